"""`archive.write`: what a query archives, after a crash and from another checkpoint, and what is refused."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka import archive
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.testing import KafkaBroker, produce
from tests.engine import MetadataFile, part
from tests.spark.sinks import finish, replay_last_batch
from tests.spark.tables import Topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def on(*topics: str, **clusters: KafkaBroker) -> dict[str, dict[str, object]]:
    """These topics on clusters, for `MetadataFile.write`."""
    return {name: part(b, *topics) for name, b in clusters.items()}


def stream(spark: SparkSession, file: MetadataFile, **options: str) -> DataFrame:
    """The stream `s` from its earliest offsets on."""
    return (
        spark.readStream.format("dynamic-kafka")
        .options(**file.options("s"), startingOffsets="earliest", includeHeaders="true", **options)
        .load()
    )


def run(rows: DataFrame, path: str, checkpoint: str) -> None:
    """Archive what is there now."""
    finish(archive.write(rows, path, checkpoint=checkpoint).trigger(availableNow=True).start())


@pytest.mark.slow
def test_each_record_is_archived_once_with_its_coordinates(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    file: MetadataFile,
    topic: Topic,
    tmp_path: Path,
    checkpoint: str,
) -> None:
    """From two clusters, in several batches, one of which is repeated, and once more from another checkpoint."""
    name, path = topic(cluster_a, cluster_b, partitions=2), str(tmp_path / "archive")
    for broker in (cluster_a, cluster_b):
        produce(broker.bootstrap_servers, name, [(f"k{i}", f"v{i}") for i in range(50)])
    file.write(s=on(name, a=cluster_a, b=cluster_b))

    run(stream(spark, file, maxOffsetsPerTrigger="30"), path, checkpoint)
    once = set(archive.files(path))
    replay_last_batch(checkpoint)
    run(stream(spark, file, maxOffsetsPerTrigger="30"), path, checkpoint)
    assert set(archive.files(path)) == once
    produce(cluster_a.bootstrap_servers, name, [(f"k{i}", f"v{i}") for i in range(50, 60)])
    run(stream(spark, file), path, str(tmp_path / "another"))
    found = archive.verify(path)
    assert found.is_sound
    assert sum(report.records for report in found.partitions) == 110
    assert {(r.cluster, len(r.key.cluster_id), r.key.topic, len(r.key.topic_id)) for r in found.partitions} == {
        ("a", 22, name, 11),
        ("b", 22, name, 11),
    }
    assert all(not report.unread and not report.without_record for report in found.partitions)

    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    assert archive.compact(path, before=tomorrow).days
    columns = ["cluster", "topic", "partition", "offset", "key", "value", "timestamp", "headers"]
    archived = spark.read.parquet(*archive.files(path)).select(columns)
    kafka = spark.read.format("dynamic-kafka").options(**file.options("s"), includeHeaders="true").load()
    assert archived.exceptAll(kafka.select(columns)).count() == 0
    assert archived.count() == kafka.count() == 110


@pytest.mark.slow
def test_a_filter_and_more_columns_are_archived_and_what_repeats_rows_is_refused(
    spark: SparkSession, cluster_a: KafkaBroker, file: MetadataFile, topic: Topic, tmp_path: Path
) -> None:
    """Filtered offsets were read, so they are no gap. Rows that come twice are none of Kafka's."""
    name, path = topic(cluster_a), str(tmp_path / "archive")
    produce(cluster_a.bootstrap_servers, name, [(None, f"v{i}") for i in range(10)])
    file.write(s=on(name, a=cluster_a))
    rows = stream(spark, file)

    filtered = rows.where("offset % 2 = 1").withColumn("text", F.col("value").cast("string")).drop("key", "headers")
    run(filtered, path, str(tmp_path / "filtered"))
    (report,) = archive.verify(path).partitions
    assert (report.position, report.records, report.unread, report.without_record) == (10, 5, (), 5)
    assert [row["text"] for row in spark.read.parquet(*archive.files(path)).orderBy("offset").collect()] == [
        f"v{i}" for i in range(1, 10, 2)
    ]

    twice = rows.withColumn("twice", F.explode(F.array(F.lit(1), F.lit(2))))
    with pytest.raises(StreamingQueryException, match="not in order, or come twice"):
        run(twice, str(tmp_path / "refused"), str(tmp_path / "c1"))
    with pytest.raises(ConfigurationError, match="no column offset"):
        archive.write(rows.drop("offset"), path, checkpoint="c")
    with pytest.raises(ConfigurationError, match="is the archive's own"):
        archive.write(rows.withColumn("day", F.lit(1)), path, checkpoint="c")
    with pytest.raises(ConfigurationError, match="not a stream"):
        archive.write(spark.range(1), path, checkpoint="c")


@pytest.mark.slow
def test_a_query_reads_an_archive_and_goes_on_with_kafka(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    file: MetadataFile,
    topic: Topic,
    tmp_path: Path,
    checkpoint: str,
) -> None:
    """Each record once, behind a transaction at the end of the archive, after a failed batch and a compaction."""
    name, path = topic(cluster_a, cluster_b, partitions=2), str(tmp_path / "archive")
    file.write(s=on(name, a=cluster_a, b=cluster_b))
    for broker in (cluster_a, cluster_b):
        produce(broker.bootstrap_servers, name, [(f"k{i}", f"v{i}") for i in range(40)])
        produce(broker.bootstrap_servers, name, [(None, b"v")], partition=1, transactional="commit")
    run(stream(spark, file, maxOffsetsPerTrigger="50"), path, str(tmp_path / "archiving"))
    for broker in (cluster_a, cluster_b):
        produce(broker.bootstrap_servers, name, [(f"k{i}", f"v{i}") for i in range(40, 60)])

    found: list[tuple[str, int, int]] = []
    options = file.options("s", **{"history.path": path, "maxOffsetsPerTrigger": "30"})

    def take(batch: DataFrame, number: int) -> None:
        rows = [(r["cluster"], r["partition"], r["offset"]) for r in batch.collect()]
        if number == 1 and not failed:
            failed.append(number)
            raise InterruptedError
        found.extend(rows)

    failed: list[int] = []
    for _ in range(2):
        query = (
            spark.readStream.format("dynamic-kafka").options(**options).load().writeStream.foreachBatch(take)
        ).option("checkpointLocation", checkpoint)
        running = query.trigger(availableNow=True).start()
        with suppress(StreamingQueryException):
            running.awaitTermination()
        tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
        archive.compact(path, before=tomorrow)
    assert failed
    kafka = spark.read.format("dynamic-kafka").options(**file.options("s")).load()
    assert sorted(found) == sorted((r["cluster"], r["partition"], r["offset"]) for r in kafka.collect())
