"""Measures what docs/guides/event-time.md says: the rows that a catch-up over two clusters loses to Spark's watermark.

Two clusters have a record for each minute of a week, and the weeks follow each other. A query with small batches counts the
records of each ten minutes, with a delay of ten minutes. It runs three times: aligned, not aligned, and with Spark's own
Kafka connector (a union of two sources with one watermark). It needs Spark 4.2 (`spark_versions`), for the jar.

    python -m scripts.event_time
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.spark_versions import ROOT, jars, python

MINUTE_MS = 60_000
RECORDS = 7 * 24 * 60
LIMIT = 1_000
TOPIC = "events"
ALIGNMENT = {
    "scan.watermark.alignment.group": "events",
    "scan.watermark.alignment.max-drift": "10 min",
    "scan.watermark.idle-timeout": "10 s",
}


def main() -> None:
    """Run the comparison in the other environment, and print a table."""
    if "--here" not in sys.argv:
        command = [python(), "-m", "scripts.event_time", "--here", jars(ROOT / "benchmarks" / "pom.xml")]
        subprocess.run(command, check=True, cwd=ROOT)
        return
    from dynamic_kafka.testing import KafkaBroker

    with KafkaBroker() as slow, KafkaBroker() as fast, tempfile.TemporaryDirectory() as folder:
        end_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
        _fill(fast, end_ms - RECORDS * MINUTE_MS)
        _fill(slow, end_ms - 2 * RECORDS * MINUTE_MS)
        _measure(Path(folder), fast.bootstrap_servers, slow.bootstrap_servers)


def _fill(broker: Any, start_ms: int) -> None:
    from confluent_kafka import Producer

    broker.create_topic(TOPIC, 1, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for i in range(RECORDS):
        producer.produce(TOPIC, value=b"{}", timestamp=start_ms + i * MINUTE_MS)
        producer.poll(0)
    producer.flush()


def _measure(folder: Path, fast: str, slow: str) -> None:
    from pyspark.sql import DataFrame, SparkSession

    import dynamic_kafka
    from dynamic_kafka import ClusterMetadata, DynamicKafkaSource, InMemoryMetadataService, KafkaStream

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", sys.argv[sys.argv.index("--here") + 1])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    dynamic_kafka.register(spark)
    clusters = {
        name: ClusterMetadata(frozenset({TOPIC}), {"bootstrap.servers": servers})
        for name, servers in (("fast", fast), ("slow", slow))
    }
    service = InMemoryMetadataService([KafkaStream("events", clusters)])

    def ours(**options: str) -> DataFrame:
        builder = DynamicKafkaSource.builder().set_kafka_metadata_service(service).set_stream_ids({"events"})
        return builder.set_properties({"maxOffsetsPerTrigger": str(LIMIT), **options}).build().read_stream(spark)

    def theirs() -> DataFrame:
        sources = [
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", LIMIT // 2)
            .load()
            for servers in (fast, slow)
        ]
        return sources[0].union(sources[1])

    print("| | batches | median time of a batch | rows counted | rows lost |\n|---|---|---|---|---|")
    for name, rows in (("aligned", ours(**ALIGNMENT)), ("not aligned", ours()), ("Spark's connector", theirs())):
        print(_run(name, rows, folder / name), flush=True)


def _run(name: str, rows: Any, checkpoint: Path) -> str:
    from pyspark.sql import functions as F  # noqa: N812

    counts: dict[Any, int] = {}

    def keep(batch: Any, _: int) -> None:
        counts.update({row["window"]["start"]: row["count"] for row in batch.collect()})

    counted = rows.withWatermark("timestamp", "10 minutes").groupBy(F.window("timestamp", "10 minutes")).count()
    query = (
        counted.writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    quiet_since, seen = time.monotonic(), -1
    while time.monotonic() - quiet_since < 20 and query.isActive:
        time.sleep(0.5)
        done = [p for p in query.recentProgress if p.numInputRows]
        if len(done) != seen:
            quiet_since, seen = time.monotonic(), len(done)
    done = [p for p in query.recentProgress if p.numInputRows]
    query.stop()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    dropped = sum(int(o.numRowsDroppedByWatermark) for p in done for o in p.stateOperators)
    times = sorted(p.batchDuration for p in done)
    total = sum(counts.values())
    lost = 2 * RECORDS - total
    return f"| {name} | {len(done)} | {times[len(times) // 2]} ms | {total:,} | {lost:,} ({dropped:,} groups dropped) |"


if __name__ == "__main__":
    main()
