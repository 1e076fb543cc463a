"""Watermark alignment in Spark: a catch-up over a fast and a slow cluster loses no row of a window."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka import (
    ClusterMetadata,
    DynamicKafkaSource,
    InMemoryMetadataService,
    KafkaStream,
    WatermarkStrategy,
)
from dynamic_kafka.testing import KafkaBroker
from tests.spark.tables import Topic

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

MINUTE_MS = 60_000
RECORDS = 600


def fill(broker: KafkaBroker, topic: str, start_ms: int) -> None:
    """A record for each minute."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for i in range(RECORDS):
        producer.produce(topic, value=b"v", timestamp=start_ms + i * MINUTE_MS)
    producer.flush()


def counted(rows: DataFrame, folder: Path) -> tuple[int, int, dict[str, Any]]:
    """Count windows in a run of AvailableNow: the rows that are counted, those that Spark dropped, the last progress."""
    counts: dict[Any, int] = {}

    def keep(batch: DataFrame, _: int) -> None:
        counts.update({row["window"]["start"]: row["count"] for row in batch.collect()})

    query = (
        rows.groupBy(F.window("timestamp", "10 minutes"))
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    dropped = sum(o.numRowsDroppedByWatermark for p in query.recentProgress for o in p.stateOperators)
    source = query.lastProgress
    assert source is not None
    return sum(counts.values()), dropped, {"latestOffset": str(source.sources[0].latestOffset)}


def test_a_catch_up_of_two_clusters_days_apart_drops_no_row(
    spark: SparkSession, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """With a drift of the delay all rows are counted; without alignment Spark drops rows of the slow cluster."""
    name = topic(cluster_a, cluster_b)
    now_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    fill(cluster_a, name, now_ms - RECORDS * MINUTE_MS)
    fill(cluster_b, name, now_ms - 5 * 86_400_000)
    clusters = {
        key: ClusterMetadata(frozenset({name}), {"bootstrap.servers": b.bootstrap_servers})
        for key, b in (("fast", cluster_a), ("slow", cluster_b))
    }
    source = (
        DynamicKafkaSource.builder()
        .set_kafka_metadata_service(InMemoryMetadataService([KafkaStream("s", clusters)]))
        .set_stream_ids({"s"})
        .set_property("maxOffsetsPerTrigger", "200")
        .build()
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness("10 min")

    rows, dropped, _ = counted(source.read_stream(spark, strategy), tmp_path / "off")
    assert dropped > 0
    assert rows < 2 * RECORDS - 300

    aligned = strategy.with_watermark_alignment("s", "10 min")
    rows, dropped, progress = counted(source.read_stream(spark, aligned), tmp_path / "on")
    assert (rows, dropped) == (2 * RECORDS, 0)
    assert "watermarkLag" in progress["latestOffset"]
