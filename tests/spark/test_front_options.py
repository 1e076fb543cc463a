"""`format("dynamic-kafka")` as a user of Spark's own Kafka source meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import MetadataFile, part
from tests.spark.conftest import RecordingSink
from tests.spark.tables import Topic
from tests.versions import needs

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_an_existing_query_runs_after_changing_the_format_name(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Options, columns and types of Spark's own source; the column `cluster` comes on top."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(f"k{i}", f"v{i}") for i in range(20)])

    df = (
        spark.read.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", cluster_a.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "false")
        .option("minPartitions", "2")
        .load()
    )

    assert df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").count() == 20
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "cluster:string,headers:array<struct<key:string,value:binary>>>"
    )
    assert df.rdd.getNumPartitions() == 2


@pytest.mark.slow
def test_the_format_is_found_without_registering(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Spark finds the module `pyspark_dynamic_kafka` by itself, also in a session that never called register()."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")])
    fresh = spark.newSession()
    options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    assert fresh.read.format("dynamic-kafka").options(**options).load().count() == 1


def test_wrong_options_are_errors_at_load(spark: SparkSession) -> None:
    """Before anything is read; tests/unit has all of them."""
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingOffset": "earliest"}
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        spark.readStream.format("dynamic-kafka").options(**options).load()


def test_a_user_schema_narrows_the_columns(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Only the columns named are sent to Spark; an unknown one, or a wrong type, is named."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")])
    reader = spark.read.format("dynamic-kafka").options(
        **{"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    )
    assert [tuple(r) for r in reader.schema("offset bigint, value binary").load().collect()] == [(0, bytearray(b"v"))]
    assert reader.schema("leader_epoch int").load().first() == (0,)
    with pytest.raises(Exception, match="Column 'valu' does not exist"):
        reader.schema("valu binary").load().count()
    with pytest.raises(Exception, match="Column 'value' has the type string"):
        reader.schema("value string").load().count()


@needs("lastProgress")
def test_a_stream_follows_two_clusters(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    sink: RecordingSink,
) -> None:
    """Default trigger, watermark on the record's time, a cluster added while it runs, lag in the progress, a restart."""
    name = topic(cluster_a, cluster_b, partitions=2)
    file = MetadataFile(tmp_path / "streams.yaml")
    a = part(cluster_a, name)
    b = part(cluster_b, name)
    file.write(s={"a": a})
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 100)
    df = spark.readStream.format("dynamic-kafka").options(**file.options(startingOffsets="earliest")).load()

    def start() -> StreamingQuery:
        return (
            df.withWatermark("timestamp", "1 minute")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

    query = start()
    try:
        wait_until(lambda: len(sink.rows()) >= 100, 60, "the first cluster's rows")
        produce(cluster_b.bootstrap_servers, name, [(None, b"v")] * 50)
        file.write(s={"a": a, "b": b})
        wait_until(lambda: len(sink.rows()) >= 150, 60, "the second cluster's rows")
        wait_until(
            lambda: query.lastProgress is not None and '"b"' in str(query.lastProgress.sources[0].latestOffset),
            30,
            "the progress to show both clusters",
        )
    finally:
        query.stop()
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 10)
    query = start()
    try:
        wait_until(lambda: len(sink.rows()) >= 160, 60, "the rows of the outage")
    finally:
        query.stop()
    assert len(set(sink.rows())) == len(sink.rows()) == 160


@pytest.mark.slow
def test_triggers_once_and_available_now(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, sink: RecordingSink
) -> None:
    """AvailableNow keeps the limit per trigger, Once lifts it; both end."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 10)
    df = (
        spark.readStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", cluster_a.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 4)
        .load()
    )

    def run(**trigger: bool) -> int:
        writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**trigger).start()
        assert query.awaitTermination(60)
        return len(query.recentProgress)

    assert run(availableNow=True) == 3
    assert len(sink.rows()) == 10
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 10)
    assert run(once=True) == 1
    assert len(set(sink.rows())) == len(sink.rows()) == 20


def test_a_stream_with_a_stop_ends_by_itself(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, sink: RecordingSink
) -> None:
    """The thread that register() starts stops it, also when a finished query is started again."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 10)
    df = (
        spark.readStream.format("dynamic-kafka")
        .option("properties.bootstrap.servers", cluster_a.bootstrap_servers)
        .option("topic", name)
        .option("scan.startup.mode", "earliest-offset")
        .option("scan.bounded.mode", "latest-offset")
        .load()
    )
    for _ in range(2):
        query = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(60)
        assert query.exception() is None
        assert len(sink.rows()) == 10


def test_errors_name_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    """What a user sees in Spark's exception: which cluster, where, and what to do."""
    df = (
        spark.readStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("kafka.default.api.timeout.ms", "1500")
        .option("subscribe", "t")
        .load()
    )
    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match=r"Cluster 'kafka' at 127\.0\.0\.1:1 does not answer"):
        query.awaitTermination(60)


@pytest.mark.slow
def test_counts_by_window_with_a_watermark(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """The record's timestamp is event time."""
    name = topic(cluster_a, config={"retention.ms": "-1"})
    for minute in range(3):
        produce(
            cluster_a.bootstrap_servers,
            name,
            [(None, b"v")] * (minute + 1),
            timestamp_ms=1_700_000_070_000 + minute * 60_000,
        )
    df = (
        spark.readStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", cluster_a.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = df.withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "1 minute")).count()
    query = (
        counts.writeStream.format("memory")
        .queryName("windows")
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert [r["count"] for r in spark.sql("select count from windows order by window.start").collect()] == [1, 2]
