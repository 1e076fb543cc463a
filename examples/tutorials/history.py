"""An archive of what Kafka has deleted, and the live topic after it, by one query."""

import json

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from dynamic_kafka import archive, register
from dynamic_kafka.testing import KafkaBroker, produce

with KafkaBroker() as broker:
    servers = broker.bootstrap_servers
    broker.create_topic("orders", partitions=2)
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)

    # --8<-- [start:archive]
    produce(servers, "orders", [(f"{n}", json.dumps({"id": n})) for n in range(1_000)])
    orders = (
        spark.readStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = archive.write(orders, "archive", checkpoint="archiving")
    writer.trigger(availableNow=True).start().awaitTermination()
    print(archive.verify("archive").problems)  # none
    # --8<-- [end:archive]

    # --8<-- [start:retention]
    admin = AdminClient({"bootstrap.servers": servers})
    ends = [TopicPartition("orders", partition, OFFSET_END) for partition in (0, 1)]
    for deleted in admin.delete_records(ends).values():
        deleted.result()
    produce(servers, "orders", [(f"{n}", json.dumps({"id": n})) for n in range(1_000, 1_500)])
    # --8<-- [end:retention]

    # --8<-- [start:query]
    def read_until_now() -> str:
        """Append what is there to the files in `copy`, and return what the query says of the switch."""
        both = (
            spark.readStream.format("dynamic-kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", "orders")
            .option("history.path", "archive")
            .load()
        )
        query = both.writeStream.format("parquet").option("checkpointLocation", "checkpoint").start("copy")
        query.processAllAvailable()
        progress = query.lastProgress
        query.stop()
        assert progress is not None
        return str(json.loads(progress.sources[0].latestOffset)["history"]["verdict"])
        # --8<-- [end:query]

    # --8<-- [start:run]
    print(read_until_now())
    produce(servers, "orders", [(f"{n}", json.dumps({"id": n})) for n in range(1_500, 1_600)])
    print(read_until_now())  # goes on from its checkpoint
    spark.read.parquet("copy").selectExpr("count(*) AS rows", "count(DISTINCT value) AS orders").show()
    # --8<-- [end:run]
