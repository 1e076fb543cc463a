"""The sink as its users have it: `df.write`, `df.writeStream`, `foreachBatch` and the builder, against real brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka import DeliveryGuarantee, KafkaRecordSerializationSchema, KafkaSink, SimpleStringSchema
from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.kafka.transactions.client import TransactionClient, TransactionState
from dynamic_kafka.sink.commit_log import decode
from dynamic_kafka.sink.configure import commit_log_topic, configure_sink
from dynamic_kafka.sink.destinations import destinations_of
from dynamic_kafka.sink.protocol import Record
from dynamic_kafka.sink.settings import WriteTask
from dynamic_kafka.sink.transactional_ids import belongs_to
from dynamic_kafka.sink.transactional_producers import TransactionalProducers
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.engine import MetadataFile

pytestmark = [pytest.mark.broker, pytest.mark.spark]

Topic = Callable[..., str]
GUARANTEES = ("none", "at-least-once", "exactly-once")


class Got(NamedTuple):
    """A record as a consumer has it."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, str | bytes | None]] | None


def records(broker: KafkaBroker, topic: str) -> list[Got]:
    """What read_committed shows, to the end of each partition; waits until no transaction is open there."""
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "t",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 3,
    }
    consumer = Consumer(config)
    try:
        left = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        found: list[Got] = []
        while left:
            message = consumer.poll(30)
            assert message is not None, f"no end of {topic}"
            partition = message.partition()
            assert partition is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                left.discard(partition)
                continue
            headers = message.headers()
            assert not isinstance(headers, dict)
            found.append(Got(partition, message.key(), message.value(), message.timestamp()[1], headers))
        return sorted(found, key=lambda got: got.partition)
    finally:
        consumer.close()


def values(broker: KafkaBroker, topic: str) -> list[str]:
    """The values, sorted."""
    return sorted((got.value or b"").decode() for got in records(broker, topic))


def to(broker: KafkaBroker, topic: str | None = None, guarantee: str | None = None, **more: str) -> dict[str, str]:
    """Options; `__` stands for a dot and `_` for a dash in the names of the sink's own ones."""
    found = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    found |= {} if topic is None else {"topic": topic}
    found |= {} if guarantee is None else {"sink.delivery-guarantee": guarantee}
    return found | {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}


def once(broker: KafkaBroker, topic: str | None, prefix: str, **more: str) -> dict[str, str]:
    """Options for exactly-once."""
    return to(broker, topic, "exactly-once", sink__transactional_id_prefix=prefix, **more)


def write(rows: DataFrame, options: Mapping[str, str]) -> None:
    """A batch write."""
    rows.write.format("dynamic-kafka").mode("append").options(**options).save()


class Files:
    """A streaming source: each file is a micro-batch of its own.

    Args:
        path: An empty folder.
    """

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark, self._path = spark, path
        self.count = 0

    def add(self, *rows: Mapping[str, str] | str) -> None:
        """The next file; a text stands for a row's value."""
        self.count += 1
        texts = [json.dumps({"value": row} if isinstance(row, str) else row) for row in rows]
        new = self._path / f".{self.count}"  # Spark leaves such names alone
        new.write_text("\n".join(texts))
        new.rename(self._path / f"{self.count:05}.json")

    def rows(self, schema: str = "value string") -> DataFrame:
        """What it streams."""
        return self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self._path))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    """An empty one."""
    path = tmp_path / "files"
    path.mkdir()
    return Files(spark, path)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A new checkpoint."""
    return str(tmp_path / "checkpoint")


def run(rows: DataFrame, options: Mapping[str, str], checkpoint: str, mode: str = "append") -> None:
    """Write what is there now."""
    writer = rows.writeStream.format("dynamic-kafka").outputMode(mode).options(**options)
    _finish(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())


def _finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


@contextmanager
def running(rows: DataFrame, options: Mapping[str, str], checkpoint: str) -> Iterator[StreamingQuery]:
    """A query that goes on until the block ends."""
    writer = rows.writeStream.format("dynamic-kafka").options(**options).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        yield query
    finally:
        query.stop()


def replay_last_batch(checkpoint: str) -> None:
    """Make Spark forget that the last batch was committed."""
    commits = Path(checkpoint, "commits")
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def fault(call: Callable[[], object]) -> str:
    """The first line of our error, as the user finds it in Spark's."""
    with pytest.raises(PySparkException) as caught:
        call()
    found = re.search(r"^dynamic_kafka\.errors\.\w+: (.*)$", str(caught.value), re.MULTILINE)
    assert found is not None, str(caught.value)
    return found[1]


def transactions(broker: KafkaBroker, prefix: str) -> dict[str, TransactionState]:
    """The transactional ids of a prefix."""
    client = TransactionClient("c", broker.client_properties(), timeout_ms=20_000)
    try:
        return {name: state for name, state in client.list_all().items() if belongs_to(prefix, name)}
    finally:
        client.close()


def is_settled(broker: KafkaBroker, prefix: str) -> bool:
    """Whether no transaction of a prefix is open."""
    over = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.EMPTY}
    return set(transactions(broker, prefix).values()) <= over


def log(broker: KafkaBroker, prefix: str) -> list[Record]:
    """The records of a commit log."""
    found = [decode(got.value) for got in records(broker, commit_log_topic(prefix))]
    return [record for record in found if record is not None]


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


@pytest.mark.parametrize("guarantee", GUARANTEES)
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


def test_strings_bytes_and_tombstones(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Text is UTF-8, null is null, and empty is not null."""
    name = topic(cluster_a)
    data = [(1, "ä", b"\xff\0"), (2, "k", None), (3, None, b"v"), (4, "", b""), (5, None, None)]
    rows = spark.createDataFrame(data, "n int, text string, bytes binary").repartition(1).sortWithinPartitions("n")
    write(rows.selectExpr("text AS key", "bytes AS value"), to(cluster_a, name))
    write(rows.selectExpr("bytes AS key", "text AS value"), to(cluster_a, name))
    write(rows.selectExpr("text AS key", "cast(NULL AS BINARY) AS value"), to(cluster_a, name))
    encoded = [(None if text is None else text.encode(), given) for _, text, given in data]
    expected = [*encoded, *[(given, text) for text, given in encoded], *[(text, None) for text, _ in encoded]]
    assert [(got.key, got.value) for got in records(cluster_a, name)] == expected


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


def test_the_topic_of_each_row(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """The column says it, among those that the option allows; a single topic in the option wins."""
    one, two = topic(cluster_a), topic(cluster_a)
    rows = spark.createDataFrame([(one, "1"), (two, "2")], "topic string, value string")
    write(rows, to(cluster_a))
    assert (values(cluster_a, one), values(cluster_a, two)) == (["1"], ["2"])
    write(rows, to(cluster_a, f"{one};{two}"))
    write(rows, to(cluster_a, topic_pattern=f"({one}|{two})"))
    assert (values(cluster_a, one), values(cluster_a, two)) == (["1"] * 3, ["2"] * 3)
    write(rows, to(cluster_a, two))
    assert (values(cluster_a, one), values(cluster_a, two)) == (["1"] * 3, ["1", *["2"] * 4])


def test_several_topics_are_published_together(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Exactly-once: a task's transaction holds all of them."""
    one, two = topic(cluster_a), topic(cluster_a, partitions=3)
    rows = spark.createDataFrame([(one, "1"), (two, "2"), (two, "3")], "topic string, value string").coalesce(1)
    write(rows, once(cluster_a, None, one))
    assert (values(cluster_a, one), values(cluster_a, two)) == (["1"], ["2", "3"])
    assert [len(record.state.transactions) for record in log(cluster_a, one)] == [0, 1, 0]


# --- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("value, 'x' AS kee", {}, "Column 'kee' is not one of the sink's columns key, value, .*; did you mean 'key'"),
        ("1 AS value", {}, "Column 'value' has the type int32; cast it to string or binary"),
        ("value, 1L AS partition", {}, "Column 'partition' has the type int64; cast it to int"),
        ("value, 1 AS topic", {}, "Column 'topic' has the type int32; cast it to string"),
        ("value, 'now' AS timestamp", {}, "Column 'timestamp' has the type string; cast it to timestamp"),
        ("value, map('a', 'b') AS headers", {}, "Column 'headers' has the type map<string, string>; cast it to array"),
        ("'t' AS topic", {}, "Column 'value' is missing"),
        ("value", {"topic": "a;b"}, "Column 'topic' is missing"),
        ("value", {"topik": "t"}, "Unknown option 'topik'; did you mean 'topic'"),
        ("value", {"sink.partitoner": "fixed"}, "Unknown option 'sink.partitoner'; did you mean 'sink.partitioner'"),
        (
            "value",
            {"sink.delivery-guarantee": "twice"},
            "Option 'sink.delivery-guarantee' has the value 'twice'; expec",
        ),
        ("value", {"sink.delivery-guarantee": "exactly-once"}, "Option 'sink.transactional-id-prefix' is missing"),
    ],
)
def test_what_is_wrong_before_anything_is_written(
    spark: SparkSession, cluster_a: KafkaBroker, columns: str, options: dict[str, str], expected: str
) -> None:
    """Columns and options: the error names them, and what would be right."""
    rows = spark.sql(f"SELECT {columns} FROM VALUES ('v') AS t(value)")
    message = fault(lambda: write(rows, to(cluster_a) | {"topic": "t"} | options))
    assert re.match(expected, message), message


@pytest.mark.parametrize(
    ("columns", "given", "expected"),
    [
        (
            "value",
            "",
            "A row's column 'topic' is null or missing; it has to name the topic",
        ),
        ("value, CAST(NULL AS STRING) AS topic", "", "A row's column 'topic' is null or missing"),
        ("value, 'no-such-topic' AS topic", "", "Cluster 'kafka', topic 'no-such-topic': the topic does not exist"),
        (
            "value, 2 AS partition",
            "{topic}",
            "A row's column 'partition' is 2; the topic '{topic}' has the partitions 0 to 1",
        ),
        (
            "value, -1 AS partition",
            "{topic}",
            "A row's column 'partition' is -1; the topic '{topic}' has the partitions 0 to 1",
        ),
        (
            "value, from_json('[{}]', 'array<struct<key:string,value:binary>>') AS headers",
            "{topic}",
            "A row's column 'headers' has a header without a key",
        ),
        ("value, 'b' AS cluster", "{topic}", "A row's column 'cluster' names 'b'; the stream's clusters are kafka"),
    ],
)
def test_rows_that_cannot_be_written(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, columns: str, given: str, expected: str
) -> None:
    """The error names the column, and what would be right."""
    name = topic(cluster_a, partitions=2)
    rows = spark.sql(f"SELECT {columns} FROM VALUES ('v') AS t(value)")
    message = fault(lambda: write(rows, to(cluster_a, given.format(topic=name) or None)))
    assert message.startswith(expected.format(topic=name))


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


def test_a_task_that_fails_leaves_nothing_open(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Readers do not wait for its time-out."""
    name = topic(cluster_a, config={"max.message.bytes": "2000"})
    rows = spark.createDataFrame([("a",), ("x" * 5000,)], "value string").coalesce(1)
    fault(lambda: write(rows, once(cluster_a, name, name)))
    assert wait_until(lambda: is_settled(cluster_a, name), 20, "the abort")
    assert records(cluster_a, name) == []


def test_a_failed_stream_goes_on_where_it_was(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """The refused batch is written again, whole, once the fault is gone."""
    name = topic(cluster_a, config={"max.message.bytes": "2000"})
    options = once(cluster_a, name, name)
    files.add("a")
    files.add("b", "x" * 5000)
    message = fault(lambda: run(files.rows(), options, checkpoint))
    assert message.startswith(f"Cluster 'kafka', topic '{name}', partition 0: ")
    assert values(cluster_a, name) == ["a"]
    run(files.rows().selectExpr("left(value, 10) AS value"), options, checkpoint)
    assert values(cluster_a, name) == ["a", "b", "x" * 10]


def test_a_transaction_timeout_that_brokers_refuse(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """An error with both numbers, before anything is written."""
    name = topic(cluster_a)
    rows = spark.createDataFrame([("v",)], "value string")
    options = once(cluster_a, name, name) | {"kafka.transaction.timeout.ms": "900001"}
    message = fault(lambda: write(rows, options))
    assert message.startswith(
        "Option 'properties.transaction.timeout.ms' is 900001, and cluster 'kafka' allows at most 900000"
    )
    assert transactions(cluster_a, name) == {}
    assert records(cluster_a, name) == []


def test_brokers_that_allow_less_than_our_default(spark: SparkSession) -> None:
    """The same error, if no time-out was given at all; a task that gets no further says why, too."""
    with KafkaBroker(properties={"transaction.max.timeout.ms": "60000"}) as broker:
        broker.create_topic("t")
        rows = spark.createDataFrame([("v",)], "value string")
        message = fault(lambda: write(rows, once(broker, "t", "p")))
        assert message.startswith(
            "Option 'properties.transaction.timeout.ms' is 900000, and cluster 'kafka' allows at most 600"
        )
        settings = configure_sink(once(broker, "t", "p"))
        found = destinations_of(settings, settings.service().describe_streams([settings.stream]))
        with (
            TransactionalProducers(WriteTask(found, settings, "x", 1)) as producers,
            pytest.raises(
                ClusterUnavailableError,
                match=r"Cluster 'kafka': transactional id 'p.* cannot be used: .*timeout is larger",
            ),
        ):
            producers.producer("kafka")
        write(rows, once(broker, "t", "p") | {"kafka.transaction.timeout.ms": "60000"})
        assert values(broker, "t") == ["v"]


# --- modes --------------------------------------------------------------------------------------------------------------


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


# --- exactly once -------------------------------------------------------------------------------------------------------


def test_a_batch_write_with_an_identity_is_written_once(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """The same version again, and an older one, are no-ops; another application and another sink name are not."""
    name = topic(cluster_a)

    def save(value: str, app: str, version: int, **more: str) -> None:
        rows = spark.createDataFrame([(value,)], "value string")
        identity = {"txnAppId": app, "txnVersion": str(version)}
        write(rows, once(cluster_a, name, name, **more) | identity)

    save("a", "app", 3)
    save("b", "app", 3)
    save("c", "app", 2)
    save("d", "app", 5)
    save("e", "other", 3)
    save("f", "app", 3, sink__name="audit")
    save("g", "app", 3, sink__name="audit")
    assert values(cluster_a, name) == ["a", "d", "e", "f"]


def test_foreach_batch_with_two_sinks(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """In update mode; a batch that is repeated after one sink failed is written to the other one only."""
    one, two = topic(cluster_a), topic(cluster_a)
    fails = {1}

    def save(rows: DataFrame, batch_id: int) -> None:
        identity = {"txnAppId": "job", "txnVersion": str(batch_id)}
        write(rows, once(cluster_a, one, one, sink__name="one") | identity)
        if batch_id in fails:
            fails.remove(batch_id)
            raise ValueError
        write(rows, once(cluster_a, two, one, sink__name="two") | identity)

    def run_all() -> None:
        counts = files.rows().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
        writer = counts.writeStream.outputMode("update").foreachBatch(save).option("checkpointLocation", checkpoint)
        _finish(writer.trigger(availableNow=True).start())

    files.add("a", "b")
    run_all()
    files.add("b")
    with pytest.raises(PySparkException):
        run_all()
    run_all()
    replay_last_batch(checkpoint)
    run_all()
    for name in (one, two):
        found = sorted((got.key, got.value) for got in records(cluster_a, name))
        assert found == [(b"a", b"1"), (b"b", b"1"), (b"b", b"2")]


def test_foreach_batch_without_an_identity(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Two writes of one batch are two writes: the batch that they are called from is not their identity."""
    one, two = topic(cluster_a), topic(cluster_a)

    def save(rows: DataFrame, batch_id: int) -> None:
        write(rows, once(cluster_a, one, one))
        write(rows, once(cluster_a, two, one))

    files.add("a")
    files.add("b")
    writer = files.rows().writeStream.foreachBatch(save).option("checkpointLocation", checkpoint)
    _finish(writer.trigger(availableNow=True).start())
    assert (values(cluster_a, one), values(cluster_a, two)) == (["a", "b"], ["a", "b"])


def test_a_stream_has_its_own_identity(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """One version for all its batches would leave out all but the first: an error."""
    name = topic(cluster_a)
    files.add("a")
    files.add("b")
    options = once(cluster_a, name, name) | {"txnAppId": "app", "txnVersion": "1"}
    message = fault(lambda: run(files.rows(), options, checkpoint))
    assert message.startswith("Options 'txnAppId' and 'txnVersion' identify a batch write; a stream has its own")
    assert records(cluster_a, name) == []


def test_a_replayed_batch_is_published_once(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Also if the query has another plan, and more tasks, when it is written again."""
    name = topic(cluster_a, partitions=2)
    options = once(cluster_a, name, name)
    files.add("a", "b", "c")
    files.add("d")
    run(files.rows(), options, checkpoint)
    replay_last_batch(checkpoint)
    files.add("e")
    run(files.rows().repartition(3).selectExpr("upper(value) AS value"), options, checkpoint)
    assert values(cluster_a, name) == ["E", "a", "b", "c", "d"]
    assert is_settled(cluster_a, name)


def test_the_prefix_comes_from_the_checkpoint(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Another spelling of its path is the same one."""
    name = topic(cluster_a)
    options = to(cluster_a, name, "exactly-once")
    files.add("a")
    run(files.rows(), options, checkpoint)
    replay_last_batch(checkpoint)
    run(files.rows(), options, f"file://{checkpoint}/")
    assert values(cluster_a, name) == ["a"]


def test_a_new_checkpoint_with_an_old_prefix_starts_clean(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """It is another query: it writes everything."""
    name = topic(cluster_a)
    for value in ("a", "b"):
        files.add(value)
    for number in range(2):
        run(files.rows(), once(cluster_a, name, name), f"{checkpoint}-{number}")
    assert values(cluster_a, name) == ["a", "a", "b", "b"]


def test_an_old_checkpoint_with_a_new_prefix(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """The new commit log does not know the batches before: an error, until the user says that this is meant."""
    name = topic(cluster_a)
    files.add("a")
    run(files.rows(), once(cluster_a, name, f"{name}-1"), checkpoint)
    files.add("b")
    options = once(cluster_a, name, f"{name}-2")
    message = fault(lambda: run(files.rows(), options, checkpoint))
    assert message.startswith("Batch 1 of query ")
    assert "knows no earlier batch of it: the prefix, the log or its cluster is another one now" in message
    assert wait_until(lambda: is_settled(cluster_a, f"{name}-2"), 20, "the aborts")
    assert values(cluster_a, name) == ["a"]
    run(files.rows(), options | {"sink.accept-gaps": "true"}, checkpoint)
    files.add("c")
    run(files.rows(), options, checkpoint)
    assert values(cluster_a, name) == ["a", "b", "c"]


def test_ids_stay_few_over_many_batches(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Two tasks at a time need four ids: two for this batch, and two that are made ready for the next one."""
    name = topic(cluster_a, partitions=2)
    for number in range(60):
        files.add(f"{number:02}")
    run(files.rows().repartition(2), once(cluster_a, name, name), checkpoint)
    assert values(cluster_a, name) == [f"{number:02}" for number in range(60)]
    assert len(transactions(cluster_a, name)) <= 4
    assert is_settled(cluster_a, name)


@pytest.mark.parametrize("foreign", ["{}-eu.dk-0123456789ab-0", "{}-0-1", "x{}.dk-0123456789ab-0", "{}"])
def test_the_transactions_of_others_are_not_touched(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, foreign: str
) -> None:
    """One that is open before our first claim, and stays so during later ones, can be committed after them."""
    mine, theirs = topic(cluster_a), topic(cluster_a)
    config = {
        "bootstrap.servers": cluster_a.bootstrap_servers,
        "transactional.id": foreign.format(mine),
        "log_level": 3,
    }
    other = Producer(config)
    other.init_transactions(20)
    other.begin_transaction()
    other.produce(theirs, "theirs")
    assert other.flush(20) == 0
    rows = spark.createDataFrame([("mine",)], "value string")
    for _ in range(2):
        write(rows, once(cluster_a, mine, mine))
    other.commit_transaction(20)
    assert (values(cluster_a, mine), values(cluster_a, theirs)) == (["mine"] * 2, ["theirs"])


# --- several clusters ---------------------------------------------------------------------------------------------------


def cluster(broker: KafkaBroker, *topics: str) -> dict[str, object]:
    """A cluster's part of a stream."""
    return {"bootstrapServers": broker.bootstrap_servers, "topics": list(topics)}


def by_file(metadata: MetadataFile, guarantee: str, prefix: str = "", **more: str) -> dict[str, str]:
    """Options for the stream `s` of a metadata file."""
    found = {
        "metadata-service": "file",
        "metadata-service.path": str(metadata.path),
        "stream-ids": "s",
        "sink.delivery-guarantee": guarantee,
    }
    return found | ({"sink.transactional-id-prefix": prefix} if prefix else {}) | more


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataFile:
    """A document that is not there yet."""
    return MetadataFile(tmp_path / "metadata.yaml")


def test_two_clusters_in_one_batch(
    spark: SparkSession, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, metadata: MetadataFile
) -> None:
    """The column `cluster` says where each row goes, and one decision covers both clusters."""
    name = topic(cluster_a, cluster_b)
    metadata.write(s={"a": cluster(cluster_a, name), "b": cluster(cluster_b, name)})
    rows = spark.createDataFrame([("a", "1"), ("b", "2"), ("a", "3")], "cluster string, value string").coalesce(1)
    options = by_file(metadata, "exactly-once", name) | {"txnAppId": "app", "txnVersion": "0"}
    for _ in range(2):
        write(rows, options)
    assert (values(cluster_a, name), values(cluster_b, name)) == (["1", "3"], ["2"])
    decisions = [record.state for record in log(cluster_a, name) if record.state.status == "decided"]
    assert [sorted(t.cluster for t in state.transactions) for state in decisions] == [["a", "b"]]
    assert sorted(decisions[0].clusters) == ["a", "b"]
    message = fault(lambda: write(rows.drop("cluster"), by_file(metadata, "at-least-once")))
    assert message.startswith("A row's column 'cluster' is null or missing; it has to name one of a, b")


def test_two_clusters_of_which_one_refuses(
    spark: SparkSession, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, metadata: MetadataFile
) -> None:
    """Neither shows anything."""
    name = topic(cluster_a)
    cluster_b.create_topic(name, config={"max.message.bytes": "2000"})
    metadata.write(s={"a": cluster(cluster_a, name), "b": cluster(cluster_b, name)})
    rows = spark.createDataFrame([("a", "1"), ("b", "x" * 5000)], "cluster string, value string").coalesce(1)
    message = fault(lambda: write(rows, by_file(metadata, "exactly-once", name)))
    assert message.startswith(f"Cluster 'b', topic '{name}', partition 0: ")
    for broker in (cluster_a, cluster_b):
        assert wait_until(lambda broker=broker: is_settled(broker, name), 20, "the aborts")  # type: ignore[misc]
        assert records(broker, name) == []


def test_a_stream_moves_between_batches(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    metadata: MetadataFile,
    files: Files,
    checkpoint: str,
) -> None:
    """Without a restart: the next batch goes where the document says then."""
    name = topic(cluster_a, cluster_b)
    metadata.write(s={"a": cluster(cluster_a, name)})
    with running(files.rows(), by_file(metadata, "at-least-once"), checkpoint):
        files.add("1")
        wait_until(lambda: values(cluster_a, name) == ["1"], 30, "the first row on a")
        metadata.write(s={"b": cluster(cluster_b, name)})
        files.add("2")
        wait_until(lambda: values(cluster_b, name) == ["2"], 30, "the second row on b")
    assert values(cluster_a, name) == ["1"]


def test_a_stream_moves_exactly_once(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    metadata: MetadataFile,
    files: Files,
    checkpoint: str,
) -> None:
    """If the commit log's cluster stays: here it is the one that the stream moves to."""
    name = topic(cluster_a, cluster_b)
    metadata.write(s={"a": cluster(cluster_a, name), "b": cluster(cluster_b, name)})
    options = by_file(metadata, "exactly-once", name, **{"sink.commit-log.cluster": "b"})
    with running(files.rows("cluster string, value string"), options, checkpoint):
        files.add({"cluster": "a", "value": "1"}, {"cluster": "b", "value": "2"})
        wait_until(lambda: values(cluster_a, name) + values(cluster_b, name) == ["1", "2"], 30, "the first batch")
        metadata.write(s={"b": cluster(cluster_b, name)})
        files.add({"value": "3"})
        wait_until(lambda: values(cluster_b, name) == ["2", "3"], 30, "the second batch")
    assert values(cluster_a, name) == ["1"]
    assert [r.state.status for r in log(cluster_b, name)].count("decided") == 2


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_stream_moves_while_a_batch_is_written(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    metadata: MetadataFile,
    files: Files,
    checkpoint: str,
    kind: str,
) -> None:
    """The batch is published where it was written to."""
    name = topic(cluster_a, cluster_b)
    metadata.write(s={"b": cluster(cluster_b, name)})
    path, moved = str(metadata.path), metadata.path.read_text()
    metadata.write(s={"a": cluster(cluster_a, name), "b": cluster(cluster_b, name)})

    def move(value: str) -> str:
        with open(path, "w") as file:  # noqa: PTH123  # this runs in Spark's worker
            file.write(moved)
        return value

    columns, moving = "cluster string, value string", F.udf(move, "string", useArrow=False)("value").alias("value")
    options = by_file(metadata, "exactly-once", name, **{"sink.commit-log.cluster": "b"})
    if kind == "batch":
        write(spark.createDataFrame([("a", "1"), ("b", "2")], columns).select("cluster", moving), options)
    else:
        files.add({"cluster": "a", "value": "1"}, {"cluster": "b", "value": "2"})
        run(files.rows(columns).select("cluster", moving), options, checkpoint)
    assert (values(cluster_a, name), values(cluster_b, name)) == (["1"], ["2"])


# --- partitioners -------------------------------------------------------------------------------------------------------

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize("column", ["key", "encode(key, 'UTF-8')"])
def test_keys_land_where_java_puts_them(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, column: str) -> None:
    """By murmur2 without its sign; the partition column wins, where it is not null."""
    name = topic(cluster_a, partitions=11)
    data = [(key, None) for key in MURMUR2] + [("21", 10)]
    rows = spark.createDataFrame(data, "key string, partition int")
    write(rows.selectExpr(f"{column} AS key", "partition", "key AS value"), to(cluster_a, name))
    expected = [(key.encode(), (number & 0x7FFFFFFF) % 11) for key, number in MURMUR2.items()] + [(b"21", 10)]
    assert sorted((got.key, got.partition) for got in records(cluster_a, name)) == sorted(expected)


def test_the_fixed_partitioner(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Each task has a partition of its own; the third one begins again."""
    name = topic(cluster_a, partitions=2)
    rows = spark.range(9).repartitionByRange(3, "id").selectExpr("'k' AS key", "CAST(id AS STRING) AS value")
    write(rows, to(cluster_a, name, sink__partitioner="fixed"))
    found = {
        partition: {got.value for got in records(cluster_a, name) if got.partition == partition} for partition in (0, 1)
    }
    assert found[1] == {b"3", b"4", b"5"}
    assert len(found[0]) == 6


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
    assert message.startswith("Option 'sink.partitioner' = 'my_partitioners:Nobody' could not be made: AttributeError")


# --- the builder --------------------------------------------------------------------------------------------------------


class Last:
    """A user's own partitioner: the last partition."""

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:
        """See KafkaPartitioner."""

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """See KafkaPartitioner."""
        return partitions[-1]


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
        _finish(writer.trigger(availableNow=True).start())
        replay_last_batch(checkpoint)
    headers = [("from", b"builder")]
    for name, letter in ((one, "a"), (two, "b")):
        found = [(got.partition, got.key, got.value, got.headers) for got in records(cluster_a, name)]
        assert found == [(2, text.upper().encode(), text.encode(), headers) for text in (letter, letter * 2)]


def test_the_builders_default_promises_nothing(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """As Flink's; the rows come all the same."""
    name = topic(cluster_a)
    serializer = (
        KafkaRecordSerializationSchema.builder().set_topic(name).set_value_serialization_schema("value").build()
    )
    builder = KafkaSink.builder().set_bootstrap_servers(cluster_a.bootstrap_servers).set_record_serializer(serializer)
    builder.build().save(spark.createDataFrame([("a",)], "value string"))
    assert wait_until(lambda: values(cluster_a, name) == ["a"], 20, "the row")
