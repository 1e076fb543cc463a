"""PyFlink's builders and Flink's SQL in one Spark session: the programs of the guide for users of Flink."""

import json

from pyspark.sql import SparkSession

from dynamic_kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    SimpleStringSchema,
)
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce

with KafkaBroker() as broker:
    servers = broker.bootstrap_servers
    for topic in "orders", "big-orders", "totals":
        broker.create_topic(topic)
    orders = [("Bern", 10), ("Oslo", 300), ("Bern", 500)]
    produce(servers, "orders", [(city, json.dumps({"city": city, "amount": amount})) for city, amount in orders])
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()

    # --8<-- [start:builders]
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics("orders")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic("big-orders")
            .set_value_serialization_schema("value")  # an SQL expression over the row
            .build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("big-orders")
        .build()
    )
    stream = source.read_stream(spark)  # was env.from_source(source, ...)
    big = stream.where("get_json_object(value, '$.amount') >= 100")
    query = sink.write_stream(big).option("checkpointLocation", "checkpoint").start()  # was stream.sink_to(sink)
    query.awaitTermination()  # was env.execute()
    # --8<-- [end:builders]

    # --8<-- [start:sql]
    env = TableEnvironment(spark)
    env.execute_sql(f"""
        CREATE TABLE big_orders (city STRING, amount BIGINT) WITH (
          'connector' = 'kafka', 'topic' = 'big-orders', 'properties.bootstrap.servers' = '{servers}',
          'properties.isolation.level' = 'read_committed',
          'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json'
        )""")
    env.execute_sql(f"""
        CREATE TABLE totals (city STRING, total BIGINT, PRIMARY KEY (city) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = 'totals', 'properties.bootstrap.servers' = '{servers}',
          'scan.bounded.mode' = 'latest-offset', 'key.format' = 'json', 'value.format' = 'json'
        )""")
    env.execute_sql("INSERT INTO totals SELECT city, SUM(amount) FROM big_orders GROUP BY city").wait()
    env.execute_sql("SELECT row_kind, city, total FROM totals ORDER BY city").print()
    # --8<-- [end:sql]
