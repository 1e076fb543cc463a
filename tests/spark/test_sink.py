"""The sink as its users have it: `df.write`, `df.writeStream` and the builder, against real brokers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka import DeliveryGuarantee, KafkaRecordSerializationSchema, KafkaSink, SimpleStringSchema
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.spark.sinks import (
    Files,
    fault,
    finish,
    is_settled,
    once,
    replay_last_batch,
    run,
    to,
    values,
    write,
)
from tests.spark.tables import Topic, records

pytestmark = [pytest.mark.broker, pytest.mark.spark]

GUARANTEES = ("none", "at-least-once", "exactly-once")


# --- rows and records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_batch_write(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, guarantee: str) -> None:
    """All rows of all tasks, whatever is promised; twice, as nothing tells the two writes apart."""
    name = topic(cluster_a, partitions=2)
    rows = spark.range(500).repartition(3).selectExpr("CAST(id AS STRING) AS value")
    expected = sorted(str(i) for i in range(500))
    options = to(cluster_a, name, guarantee)
    if guarantee == "exactly-once":
        options["sink.transactional-id-prefix"] = name
    write(rows, options)
    assert wait_until(lambda: values(cluster_a, name) == expected, 20, "all rows")
    write(rows, options)
    assert wait_until(lambda: values(cluster_a, name) == sorted(expected * 2), 20, "all rows twice")


@pytest.mark.parametrize(
    "guarantee", [pytest.param(one, marks=[] if one == "exactly-once" else pytest.mark.slow) for one in GUARANTEES]
)
def test_a_stream(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str, guarantee: str
) -> None:
    """All rows of all batches, over a restart; with exactly-once the prefix is made from the checkpoint's option."""
    name = topic(cluster_a, partitions=2)
    options = to(cluster_a, name, guarantee)
    files.add("a", "b")
    files.add("c")
    run(files.rows(), options, checkpoint)
    files.add("d")
    run(files.rows(), options, checkpoint)
    assert wait_until(lambda: values(cluster_a, name) == ["a", "b", "c", "d"], 20, "all rows")


def test_headers_timestamps_and_partitions(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Each column lands where it belongs; without a timestamp it is the time of writing."""
    name = topic(cluster_a, partitions=3, config={"retention.ms": "-1"})
    at = datetime(2020, 2, 29, 12, 0, 0, 123_999, tzinfo=UTC)
    before = datetime.now(UTC)
    data = [
        ("a", 2, at, [("h", b"1"), ("h", None), ("ä", b"")]),
        ("b", 1, None, []),
        ("c", 0, at + timedelta(days=1), None),
    ]
    columns = "value string, partition int, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    write(spark.createDataFrame(data, columns), to(cluster_a, name))
    c, b, a = records(cluster_a, name)
    assert (a.value, a.partition, a.headers) == (b"a", 2, [("h", b"1"), ("h", None), ("ä", b"")])
    assert (b.value, b.partition, b.headers) == (b"b", 1, None)
    assert (c.value, c.partition, c.headers) == (b"c", 0, None)
    assert a.timestamp == int(at.timestamp() * 1000)
    assert c.timestamp - a.timestamp == 24 * 3600 * 1000
    assert before.timestamp() * 1000 - 1 <= b.timestamp <= datetime.now(UTC).timestamp() * 1000


# --- errors -------------------------------------------------------------------------------------------------------------


def test_what_is_wrong_before_anything_is_written(spark: SparkSession, cluster_a: KafkaBroker) -> None:
    """Columns and options: the error names them, and what would be right; tests/unit has all of them."""
    rows = spark.sql("SELECT value, 'x' AS kee FROM VALUES ('v') AS t(value)")
    message = fault(lambda: write(rows, to(cluster_a, "t")))
    assert re.match("Column 'kee' is not one of the sink's columns key, value, .*; did you mean 'key'", message), (
        message
    )
    message = fault(lambda: write(rows.select("value"), to(cluster_a) | {"topik": "t"}))
    assert message.startswith("Unknown option 'topik'; did you mean 'topic'")


def test_rows_that_cannot_be_written(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """The error names the column, and what would be right; tests/unit/sink/test_sink_records.py has all of them."""
    name = topic(cluster_a, partitions=2)
    rows = spark.sql("SELECT 'v' AS value, 2 AS partition")
    message = fault(lambda: write(rows, to(cluster_a, name)))
    assert message.startswith(f"A row's column 'partition' is 2; the topic '{name}' has the partitions 0 to 1")


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_record_that_is_refused_fails_its_batch(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, guarantee: str
) -> None:
    """With topic, partition, size of the key and code; exactly-once publishes nothing of the batch."""
    name = topic(cluster_a, partitions=2, config={"max.message.bytes": "2000"})
    data = [(f"{i}", None, 0) for i in range(20)] + [("x" * 5000, "key", 1)]
    rows = spark.createDataFrame(data, "value string, key string, partition int").repartition(2)
    options = to(cluster_a, name, guarantee)
    if guarantee == "exactly-once":
        options["sink.transactional-id-prefix"] = name
    message = fault(lambda: write(rows, options))
    assert message.startswith(f"Cluster 'kafka', topic '{name}', partition 1, a record with a key of 3 bytes: ")
    assert message.endswith("(MSG_SIZE_TOO_LARGE)")
    if guarantee == "exactly-once":
        write(rows.where("key IS NULL"), options)  # aborts what a task left open that Spark killed
        assert wait_until(lambda: is_settled(cluster_a, name), 20, "the aborts")
        assert len(records(cluster_a, name)) == 20


# --- modes --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_complete_mode_appends_each_result(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """As Spark's own sink does."""
    name = topic(cluster_a)
    counts = files.rows().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    for _ in range(2):
        files.add("a", "b", "b")
        run(counts, once(cluster_a, name, name), checkpoint, mode="complete")
    found = [(got.key, got.value) for got in records(cluster_a, name)]
    assert sorted(found) == [(b"a", b"1"), (b"a", b"2"), (b"b", b"2"), (b"b", b"4")]


def test_update_mode_is_refused(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """By Spark, whose Python sinks know append and complete."""
    files.add("a")
    with pytest.raises(PySparkException, match="does not support Update mode"):
        run(files.rows(), to(cluster_a, topic(cluster_a)), checkpoint, mode="update")


def test_a_batch_write_does_not_overwrite(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Kafka cannot."""
    name = topic(cluster_a)
    writer = spark.createDataFrame([("v",)], "value string").write.format("dynamic-kafka").mode("overwrite")
    assert fault(lambda: writer.options(**to(cluster_a, name)).save()) == (
        "Kafka cannot be overwritten; write with mode('append')"
    )


# --- partitioners -------------------------------------------------------------------------------------------------------


def test_the_round_robin_partitioner(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """One after the other."""
    name = topic(cluster_a, partitions=3)
    rows = spark.range(7).coalesce(1).selectExpr("'k' AS key", "CAST(id AS STRING) AS value")
    write(rows, to(cluster_a, name, sink__partitioner="round-robin"))
    assert [(got.partition, got.value) for got in records(cluster_a, name)] == [
        (0, b"0"),
        (0, b"3"),
        (0, b"6"),
        (1, b"1"),
        (1, b"4"),
        (2, b"2"),
        (2, b"5"),
    ]


def test_a_partitioner_from_a_module(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path) -> None:
    """A file that Spark brings to its workers; a partition that is not there is an error that names the class."""
    name = topic(cluster_a, partitions=4)
    module = tmp_path / "my_partitioners.py"
    module.write_text(
        "class ByLength:\n"
        "    def open(self, parallel_instance_id, parallel_instances):\n"
        "        pass\n"
        "    def partition(self, key, value, topic, partitions):\n"
        "        return len(value)\n"
    )
    spark.sparkContext.addPyFile(str(module))
    options = to(cluster_a, name, sink__partitioner="my_partitioners:ByLength")
    write(spark.createDataFrame([("a",), ("aaa",)], "value string"), options)
    assert [(got.partition, got.value) for got in records(cluster_a, name)] == [(1, b"a"), (3, b"aaa")]
    message = fault(lambda: write(spark.createDataFrame([("a" * 9,)], "value string"), options))
    assert (
        message == f"ByLength ('sink.partitioner') chose the partition 9; the topic '{name}' has the partitions 0 to 3"
    )
    unknown = to(cluster_a, name, sink__partitioner="my_partitioners:Nobody")
    message = fault(lambda: write(spark.createDataFrame([("a",)], "value string"), unknown))
    assert message.startswith(
        "The class of option 'sink.partitioner' ('my_partitioners:Nobody') could not be imported or created: AttributeError"
    )


# --- the builder --------------------------------------------------------------------------------------------------------


class Last:
    """A user's own partitioner: the last partition."""

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:
        """See KafkaPartitioner."""

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """See KafkaPartitioner."""
        return partitions[-1]


@pytest.mark.slow
def test_the_builder_in_batch_and_as_a_stream(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """The seed's example with everything that a record can have; the stream is exactly-once, over a replay."""
    one, two = topic(cluster_a, partitions=3), topic(cluster_a, partitions=3)
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda row: F.when(row["value"] < "b", one).otherwise(two))
        .set_key_serialization_schema("upper(value)")
        .set_value_serialization_schema(SimpleStringSchema())
        .set_header_provider("map_entries(map('from', encode('builder', 'UTF-8')))")
        .set_partitioner(Last())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(cluster_a.bootstrap_servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(one)
        .set_property("linger.ms", "5")
        .build()
    )
    sink.save(spark.createDataFrame([("a",), ("b",)], "value string"))
    files.add("aa", "bb")
    for _ in range(2):
        writer = sink.write_stream(files.rows()).option("checkpointLocation", checkpoint)
        finish(writer.trigger(availableNow=True).start())
        replay_last_batch(checkpoint)
    headers = [("from", b"builder")]
    for name, letter in ((one, "a"), (two, "b")):
        found = [(got.partition, got.key, got.value, got.headers) for got in records(cluster_a, name)]
        assert found == [(2, text.upper().encode(), text.encode(), headers) for text in (letter, letter * 2)]
