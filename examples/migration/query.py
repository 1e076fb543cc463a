"""The query of the story, as a program of its own, so that it can be killed: it writes each batch to a folder.

A batch that is run again replaces its folder, so what is in the folders at the end is what Spark has processed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka import register


def main() -> None:
    """Read the stream `orders` of a metadata document until the process is killed."""
    document, checkpoint, out = sys.argv[1:4]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("cast(value as string) as value", "cluster", "partition", "offset")
        rows.write.mode("overwrite").parquet(str(Path(out, f"batch={number}")))

    stream = (
        spark.readStream.format("dynamic-kafka")
        .option("metadata-service", "file")
        .option("metadata-service.path", document)
        .option("stream-ids", "orders")
        .option("startingOffsets", "earliest")
        .option("stream-metadata-discovery-interval-ms", "500")
        .option("drain-quiet-ms", "1000")
        .option("cluster-failure-mode", "isolate")
        .option("properties.default.api.timeout.ms", "5000")
        .load()
    )
    stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
