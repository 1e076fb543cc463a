"""A query moves to another Kafka cluster while it runs, and reads each order once."""

import json
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from dynamic_kafka.testing import KafkaBroker, produce, wait_until


def describe(*clusters: dict[str, Any]) -> None:
    """Say which clusters the stream `orders` has."""
    new = Path("streams.json.new")
    new.write_text(json.dumps([{"streamId": "orders", "clusterMetadataList": clusters}]))
    new.replace("streams.json")


# --8<-- [start:copy]
def copy(source: KafkaBroker, target: KafkaBroker, records: int) -> None:
    """Copy records as mirrors do: key, value, time and order stay, and offsets differ."""
    consumer = Consumer({"bootstrap.servers": source.bootstrap_servers, "group.id": "copier"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    producer = Producer({"bootstrap.servers": target.bootstrap_servers})
    for message in consumer.consume(records, timeout=30):
        producer.produce("orders", message.value(), message.key(), partition=0, timestamp=message.timestamp()[1])
    producer.flush()
    consumer.close()
    # --8<-- [end:copy]


def write_orders(broker: KafkaBroker, first: int, last: int) -> None:
    """Write orders with these numbers."""
    produce(broker.bootstrap_servers, "orders", [("key", f"order {n}") for n in range(first, last + 1)])


with KafkaBroker() as old, KafkaBroker() as new:
    # --8<-- [start:before]
    for broker in old, new:
        broker.create_topic("orders")
    produce(new.bootstrap_servers, "orders", [("key", "aborted")], transactional="abort")  # so that offsets differ
    write_orders(old, 1, 100)
    at_old = {"clusterId": "old", "bootstrapServers": old.bootstrap_servers, "topics": ["orders"]}
    describe(at_old)

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    orders = (
        spark.readStream.format("dynamic-kafka")
        .option("metadata-service", "file")
        .option("metadata-service.path", "streams.json")
        .option("stream-ids", "orders")
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("stream-metadata-discovery-interval-ms", "1000")
        .option("drain-quiet-ms", "1000")
        .load()
    )
    rows = orders.selectExpr("cluster", "string(value) AS number")
    query = rows.writeStream.format("memory").queryName("seen").start()
    wait_until(lambda: spark.table("seen").count() == 100, 60, "the query has read the old cluster")
    # --8<-- [end:before]

    # --8<-- [start:announce]
    at_new = {
        "clusterId": "new",
        "bootstrapServers": new.bootstrap_servers,
        "topics": ["orders"],
        "continues": {"cluster": "old", "by": "records"},
    }
    describe(at_old, at_new)
    copy(old, new, 100)
    # --8<-- [end:announce]

    # --8<-- [start:move]
    describe(at_new)
    write_orders(new, 101, 200)
    wait_until(lambda: spark.table("seen").count() >= 200, 120, "the query has read the new cluster")
    # --8<-- [end:move]

    # --8<-- [start:count]
    spark.table("seen").groupBy("cluster").count().orderBy("cluster").show()
    print("Different orders:", spark.table("seen").select("number").distinct().count())
    progress = query.lastProgress
    assert progress is not None
    [move] = json.loads(progress["sources"][0]["latestOffset"])["clusters"]["new"]["continues"]
    print(
        f"Offset {move['was']['offset']} of the old cluster is offset {move['offset']} of the new one: {move['guarantee']}"
    )
    # --8<-- [end:count]
    query.stop()
    spark.stop()
