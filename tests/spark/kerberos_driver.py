"""A driver program that copies a topic by a stream, exactly once. Run by a test, with a librdkafka that has Kerberos."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import confluent_kafka
from pyspark.sql import SparkSession

import dynamic_kafka


def run(job: dict[str, dict[str, str]]) -> None:
    """Copy what there is, and print the version of confluent-kafka."""
    settings: dict[str, str | bool | float | int | None] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "1",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    dynamic_kafka.register(spark)
    rows = spark.readStream.format("dynamic-kafka").options(**job["source"]).load()
    writer = rows.select("key", "value").writeStream.format("dynamic-kafka").options(**job["sink"])
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    print("confluent-kafka", confluent_kafka.version())


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()))
