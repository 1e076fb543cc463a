"""The sum of a topic by Confluent's consumer, by `read_arrow`, and by Spark, and a producer's rows by Spark."""

import json

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from dynamic_kafka import read_arrow, register
from dynamic_kafka.testing import KafkaBroker

with KafkaBroker() as broker:
    servers = broker.bootstrap_servers
    broker.create_topic("orders", partitions=2)
    broker.create_topic("checked-orders")

    # --8<-- [start:producer]
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(1_000):
        producer.produce("orders", json.dumps({"id": number, "amount": number % 10}), str(number))
    producer.flush()
    # --8<-- [end:producer]

    # --8<-- [start:consumer]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "totals", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", partition, 0) for partition in (0, 1)])
    total, ends = 0, 0
    while ends < 2:
        for message in consumer.consume(500, timeout=1.0):
            if message.error():
                ends += 1  # _PARTITION_EOF; a program that lives longer looks at the code of the error
            elif value := message.value():  # None is a tombstone
                total += json.loads(value)["amount"]
    consumer.close()
    print(f"Confluent's client: {total}")
    # --8<-- [end:consumer]

    # --8<-- [start:arrow]
    options = {"kafka.bootstrap.servers": servers, "subscribe": "orders", "value.format": "json"}
    columns = pa.schema([("value", pa.struct([("id", pa.int64()), ("amount", pa.int64())]))])
    total = 0
    for batch in read_arrow(options, columns):
        total += sum(row["amount"] for row in batch["value"].to_pylist())  # or in Polars, pandas, DuckDB
    print(f"read_arrow: {total}")
    # --8<-- [end:arrow]

    # --8<-- [start:stream]
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    orders = (
        spark.readStream.format("dynamic-kafka")
        .options(**options)
        .option("startingOffsets", "earliest")
        .schema("value STRUCT<id: BIGINT, amount: BIGINT>, offset BIGINT")
        .load()
    )
    query = (
        orders.selectExpr("CAST(value.id AS STRING) AS key", "to_json(value) AS value")
        .writeStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "checked-orders")
        .option("sink.delivery-guarantee", "exactly-once")
        .option("sink.transactional-id-prefix", "checked-orders")
        .option("checkpointLocation", "checkpoint")  # the positions: no commit() and no group
        .trigger(availableNow=True)  # leave it out for a query that goes on
        .start()
    )
    query.awaitTermination()
    # --8<-- [end:stream]

    # --8<-- [start:batch]
    checked = (
        spark.read.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "checked-orders")
        .option("kafka.isolation.level", "read_committed")
        .option("value.format", "json")
        .schema("value STRUCT<amount: BIGINT>")
        .load()
    )
    (row,) = checked.selectExpr("sum(value.amount) AS total").collect()
    print(f"Spark: {row.total}")
    # --8<-- [end:batch]
