"""One query reads two Kafka clusters as one stream, and follows when a third one is added."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from dynamic_kafka.testing import KafkaBroker, produce, wait_until


# --8<-- [start:describe]
def describe(**clusters: KafkaBroker) -> None:
    """Say which clusters and topics belong to the stream `flights`."""
    stream = {
        "streamId": "flights",
        "clusterMetadataList": [
            {"clusterId": name, "bootstrapServers": broker.bootstrap_servers, "topics": ["flights"]}
            for name, broker in clusters.items()
        ],
    }
    new = Path("streams.json.new")
    new.write_text(json.dumps([stream], indent=2))
    new.replace("streams.json")  # in one step, so that nobody reads half of a document
    # --8<-- [end:describe]


# --8<-- [start:clusters]
with KafkaBroker() as ewr, KafkaBroker() as jfk, KafkaBroker() as lga:
    for name, broker in ("ewr", ewr), ("jfk", jfk), ("lga", lga):
        broker.create_topic("flights")
        produce(broker.bootstrap_servers, "flights", [("key", f"flight {n} from {name}") for n in range(1, 4)])
    # --8<-- [end:clusters]

    # --8<-- [start:query]
    describe(ewr=ewr, jfk=jfk)
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    flights = (
        spark.readStream.format("dynamic-kafka")
        .option("metadata-service", "file")
        .option("metadata-service.path", "streams.json")
        .option("stream-ids", "flights")
        .option("startingOffsets", "earliest")
        .option("stream-metadata-discovery-interval-ms", "1000")
        .load()
    )
    rows = flights.selectExpr("cluster", "offset", "string(value)")
    query = rows.writeStream.format("memory").queryName("seen").start()
    # --8<-- [end:query]

    # --8<-- [start:look]
    wait_until(lambda: spark.table("seen").count() == 6, 60, "the query has read two clusters")
    spark.table("seen").orderBy("cluster", "offset").show()
    # --8<-- [end:look]

    # --8<-- [start:add]
    describe(ewr=ewr, jfk=jfk, lga=lga)
    wait_until(lambda: spark.table("seen").count() == 9, 60, "the query has read the third cluster")
    spark.table("seen").groupBy("cluster").count().orderBy("cluster").show()
    print("The same query:", query.isActive)
    # --8<-- [end:add]
    query.stop()
    spark.stop()
