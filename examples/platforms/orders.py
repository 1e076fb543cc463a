"""Copies the stream `orders`, on whichever clusters it is, to one topic, exactly once: a job for `spark-submit`.

Its arguments are the file with the streams, the address of the cluster that gets the copies, and a checkpoint folder.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

streams, servers, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("orders").getOrCreate()
orders = (
    spark.readStream.format("dynamic-kafka")
    .option("metadata-service", "file")
    .option("metadata-service.path", streams)
    .option("stream-ids", "orders")
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    orders.select("key", "value")
    .writeStream.format("dynamic-kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", "copies")
    .option("sink.delivery-guarantee", "exactly-once")
    .option("sink.transactional-id-prefix", "copies")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
