"""A query is tested on a broker of its own: what it writes, a second start, and a restart of the broker."""

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka import read_arrow
from dynamic_kafka.testing import KafkaBroker, produce, wait_until


# --8<-- [start:query]
def copy_paid(spark: SparkSession, servers: str, checkpoint: str, **trigger: Any) -> StreamingQuery:
    """Copy the paid orders of the topic `orders` to the topic `paid`."""
    orders = (
        spark.readStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("value.format", "json")
        .schema("value STRUCT<id: BIGINT, status: STRING>")
        .load()
    )
    paid = orders.where("value.status = 'paid'").selectExpr("to_json(value) AS value")
    return (
        paid.writeStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "paid")
        .option("sink.delivery-guarantee", "exactly-once")
        .option("sink.transactional-id-prefix", "paid")
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .start()
    )
    # --8<-- [end:query]


# --8<-- [start:helpers]
def order(number: int, status: str) -> tuple[str, str]:
    """Return an order as a key and a value."""
    return str(number), json.dumps({"id": number, "status": status})


def paid_ids(servers: str) -> list[int]:
    """Return the orders in the topic `paid` that are published."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": "paid", "kafka.isolation.level": "read_committed"}
    columns = pa.schema([("value", pa.struct([("id", pa.int64())]))])
    reader = read_arrow({**options, "value.format": "json"}, columns)
    return sorted(row["value"]["id"] for row in reader.read_all().to_pylist())
    # --8<-- [end:helpers]


# --8<-- [start:first]
with KafkaBroker() as broker:
    servers = broker.bootstrap_servers
    broker.create_topic("orders", partitions=2)
    broker.create_topic("paid")
    spark = SparkSession.builder.master("local[2]").getOrCreate()

    produce(servers, "orders", [order(1, "paid"), order(2, "open"), order(3, "paid")])
    copy_paid(spark, servers, "checkpoint", availableNow=True).awaitTermination()
    print("First start:", paid_ids(servers))
    assert paid_ids(servers) == [1, 3]
    # --8<-- [end:first]

    # --8<-- [start:again]
    produce(servers, "orders", [order(4, "paid")])
    copy_paid(spark, servers, "checkpoint", availableNow=True).awaitTermination()
    print("Second start:", paid_ids(servers))
    assert paid_ids(servers) == [1, 3, 4]
    # --8<-- [end:again]

    # --8<-- [start:outage]
    query = copy_paid(spark, servers, "checkpoint", processingTime="0 seconds")
    produce(servers, "orders", [order(5, "paid")])
    wait_until(lambda: 5 in paid_ids(servers), 60, "order 5")  # the query runs
    broker.restart()  # the same address and the same records
    produce(servers, "orders", [order(6, "paid")])
    wait_until(lambda: 6 in paid_ids(servers), 60, "order 6")
    print("After a restart of the broker:", paid_ids(servers))
    assert paid_ids(servers) == [1, 3, 4, 5, 6]
    # --8<-- [end:outage]
    query.stop()
    spark.stop()
