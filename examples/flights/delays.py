"""The Spark side: one session, a query over the stream `flights`, and the results of the query."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody uses
from pyspark.sql.streaming.query import StreamingQuery

import dynamic_kafka
from clusters import STREAM

__all__ = ["CarrierDelay", "Delays", "read_flights", "source_report", "spark_session", "start_query"]

_BITS_OF_BUCKET = 32_768
_JVM_END_S = 15


@contextmanager
def spark_session(scratch: Path) -> Iterator[SparkSession]:
    """Create a quiet local session with its files in `scratch`. At the end of the block, stop it and its JVM."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings: dict[str, str | int | float | bool | None] = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    spark = SparkSession.builder.master("local[2]").appName("flights").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        yield spark
    finally:
        spark.stop()
        jvm.stdin.close()  # the JVM ends with its standard input; otherwise it would outlive this process for a moment
        jvm.wait(_JVM_END_S)


def read_flights(spark: SparkSession, metadata_file: Path, **options: str) -> DataFrame:
    """Return the stream of records of all clusters in the metadata file, now or later."""
    dynamic_kafka.register(spark)
    return (
        spark.readStream.format("dynamic-kafka")
        .option("metadata-service", "file")
        .option("metadata-service.path", str(metadata_file))
        .option("stream-ids", STREAM)
        .option("stream-metadata-discovery-interval-ms", 1000)
        .option("partition.discovery.interval.ms", 2000)
        .option("drain-on-removal", True)
        .option("drain-quiet-ms", 3000)
        .options(**options)
        .load()
    )


def start_query(records: DataFrame, checkpoint: Path, delays: Delays) -> StreamingQuery:
    """Start a query that aggregates the delays by carrier."""
    flight = F.from_json(F.col("value").cast("string"), "number LONG, carrier STRING, dep_delay LONG")
    flights = records.select("cluster", flight.alias("flight")).select("cluster", "flight.*")
    # Sums alone would not show one lost flight and another one read twice, so there is one bit for each flight, in buckets.
    aggregated = flights.groupBy("carrier", "cluster", F.bitmap_bucket_number("number").alias("bucket")).agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("delay"),
        F.bitmap_construct_agg(F.bitmap_bit_position("number")).alias("seen"),
    )
    return (
        aggregated.writeStream.outputMode("update")
        .foreachBatch(delays.update)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .queryName(STREAM)
        .start()
    )


def source_report(query: StreamingQuery) -> dict[str, Any] | None:
    """Return the source's report in the query's last progress: clusters, metadata, events. None without a progress."""
    progress = query.lastProgress
    if progress is None or not progress.sources:
        return None
    report: dict[str, Any] = json.loads(progress.sources[0].latestOffset)
    return report


@dataclass
class CarrierDelay:
    """One carrier's number of flights, number of departed flights, and sum of departure delays in minutes."""

    flights: int = 0
    departed: int = 0
    delay: int = 0

    @property
    def mean(self) -> float:
        """Return the mean delay in minutes of the departed flights, or NaN if none departed."""
        return self.delay / self.departed if self.departed else float("nan")


class Delays:
    """The results of the query: the last value of each group, so a repeated batch changes nothing."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, int], Row] = {}
        self._lock = threading.Lock()
        self.batch_ids: list[int] = []

    def update(self, changed: DataFrame, batch_id: int) -> None:
        """Store the groups that a micro-batch has changed. For `foreachBatch`."""
        rows = changed.collect()
        with self._lock:
            self.batch_ids.append(batch_id)
            self._groups.update({(row.carrier, row.cluster, row.bucket): row for row in rows})

    def by_carrier(self) -> dict[str, CarrierDelay]:
        """Return the delays of each carrier."""
        carriers: dict[str, CarrierDelay] = {}
        for row in self._rows():
            carrier = carriers.setdefault(row.carrier, CarrierDelay())
            carrier.flights += row.flights
            carrier.departed += row.departed
            carrier.delay += row.delay or 0  # the sum is null if all flights are cancelled
        return carriers

    def by_cluster(self) -> Counter[str]:
        """Return the number of records from each cluster."""
        counts: Counter[str] = Counter()
        for row in self._rows():
            counts[row.cluster] += row.flights
        return counts

    def distinct(self) -> int:
        """Return the number of different flights that were read."""
        seen: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        for row in self._rows():
            bits = np.frombuffer(row.seen, np.uint8)
            seen[row.bucket] = seen.get(row.bucket, np.zeros_like(bits)) | bits
        return sum(int(np.bitwise_count(bits).sum()) for bits in seen.values())

    def _rows(self) -> list[Row]:
        with self._lock:
            return list(self._groups.values())
