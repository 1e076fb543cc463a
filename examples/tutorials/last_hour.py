"""What was sold in the last hour? Three ways to ask a topic, and each reads only the end of it."""

import json
import time

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from dynamic_kafka import read_arrow, register
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce

HOUR_MS = 3_600_000

with KafkaBroker() as broker:
    # --8<-- [start:orders]
    broker.create_topic("orders", partitions=2)
    now_ms = int(time.time() * 1000)
    for age in range(23, -1, -1):  # a day of orders: 100 in each hour, each half an hour after the hour began
        records = [(f"{n}", json.dumps({"city": ["Bern", "Oslo"][n % 2], "amount": n})) for n in range(100)]
        produce(broker.bootstrap_servers, "orders", records, timestamp_ms=now_ms - age * HOUR_MS - HOUR_MS // 2)
    # --8<-- [end:orders]

    # --8<-- [start:dataframe]
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    orders = (
        spark.read.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "orders")
        .option("startingTimestamp", now_ms - HOUR_MS)
        .option("value.format", "json")
        .schema("value STRUCT<city: STRING, amount: BIGINT>")
        .load()
    )
    totals = orders.groupBy("value.city").agg(expr("count(*) AS orders"), expr("sum(value.amount) AS total"))
    totals.orderBy("city").show()
    # --8<-- [end:dataframe]

    # --8<-- [start:sql]
    env = TableEnvironment(spark)
    env.execute_sql(f"""
        CREATE TABLE orders (city STRING, amount BIGINT) WITH (
          'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '{broker.bootstrap_servers}',
          'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '{now_ms - HOUR_MS}',
          'scan.bounded.mode' = 'latest-offset', 'format' = 'json'
        )""")
    env.execute_sql("""
        SELECT city, COUNT(*) AS orders, SUM(amount) AS total
        FROM orders GROUP BY city ORDER BY city""").print()
    # --8<-- [end:sql]
    spark.stop()

    # --8<-- [start:arrow]
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", "value.format": "json"}
    columns = pa.schema([("value", pa.struct([("city", pa.string()), ("amount", pa.int64())]))])
    since = pa.scalar(now_ms - HOUR_MS, pa.timestamp("ms", tz="UTC")).as_py()
    table = read_arrow(options, columns, where=[("timestamp", ">=", since)]).read_all()
    sales = pa.table(table["value"].combine_chunks().flatten(), names=["city", "amount"])
    print(sales.group_by("city").aggregate([("amount", "sum")]).sort_by("city").to_pylist())
    # --8<-- [end:arrow]
