"""The sink with exactly-once, and on several clusters: batches, streams and `foreachBatch`, their restarts and faults."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.spark.datasource import activate
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.brokers import transactions
from tests.engine import MetadataFile, part
from tests.spark.sinks import (
    Files,
    fault,
    finish,
    is_settled,
    log,
    once,
    replay_last_batch,
    run,
    running,
    values,
    write,
)
from tests.spark.tables import Topic, records

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_several_topics_are_published_together(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Exactly-once: a task's transaction holds all of them."""
    one, two = topic(cluster_a), topic(cluster_a, partitions=3)
    rows = spark.createDataFrame([(one, "1"), (two, "2"), (two, "3")], "topic string, value string").coalesce(1)
    write(rows, once(cluster_a, None, one))
    assert (values(cluster_a, one), values(cluster_a, two)) == (["1"], ["2", "3"])
    assert [len(record.state.transactions) for record in log(cluster_a, one)] == [0, 1, 0]


@pytest.mark.slow
def test_a_task_that_fails_leaves_nothing_open(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Readers do not wait for its time-out."""
    name = topic(cluster_a, config={"max.message.bytes": "2000"})
    rows = spark.createDataFrame([("a",), ("x" * 5000,)], "value string").coalesce(1)
    fault(lambda: write(rows, once(cluster_a, name, name)))
    assert wait_until(lambda: is_settled(cluster_a, name), 20, "the abort")
    assert records(cluster_a, name) == []


@pytest.mark.slow
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
        "Option 'properties.transaction.timeout.ms' is 900001, but cluster 'kafka' allows at most 900000"
    )
    assert transactions(cluster_a, name) == {}
    assert records(cluster_a, name) == []


@pytest.mark.slow
def test_brokers_that_allow_less_than_our_default(spark: SparkSession) -> None:
    """The same error, if no time-out was given at all."""
    with KafkaBroker(properties={"transaction.max.timeout.ms": "60000"}) as broker:
        broker.create_topic("t")
        rows = spark.createDataFrame([("v",)], "value string")
        message = fault(lambda: write(rows, once(broker, "t", "p")))
        assert message.startswith(
            "Option 'properties.transaction.timeout.ms' is 900000, but cluster 'kafka' allows at most 600"
        )
        write(rows, once(broker, "t", "p") | {"kafka.transaction.timeout.ms": "60000"})
        assert values(broker, "t") == ["v"]


@pytest.mark.parametrize("app", [{}, {"txnAppId": "job"}], ids=["query", "app"])
def test_foreach_batch_with_two_sinks(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str, app: dict[str, str]
) -> None:
    """In update mode; a batch that is repeated after one sink failed is written to the other one only."""
    one, two = topic(cluster_a), topic(cluster_a)
    fails = {1}

    def save(rows: DataFrame, batch_id: int) -> None:
        identity = app | {"txnVersion": str(batch_id)} if app else {}
        write(rows, once(cluster_a, one, one, sink__name="one") | identity)
        if batch_id in fails:
            fails.remove(batch_id)
            raise ValueError
        write(rows, once(cluster_a, two, one, sink__name="two") | identity)

    def run_all() -> None:
        counts = files.rows().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
        writer = counts.writeStream.outputMode("update").foreachBatch(save).option("checkpointLocation", checkpoint)
        finish(writer.trigger(availableNow=True).start())

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


def test_foreach_batch_with_two_sinks_of_one_name(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """The second one would be taken for a repetition of the first, and dropped: an error, in each run of the batch."""
    name = topic(cluster_a)

    def save(rows: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            write(rows, once(cluster_a, name, name))

    files.add("a")
    writer = files.rows().writeStream.foreachBatch(save).option("checkpointLocation", checkpoint)
    for _ in range(2):
        message = fault(lambda: finish(writer.trigger(availableNow=True).start()))
        assert message.startswith("In one batch of a streaming query, batch 0 of query ")
        assert " was written twice. Nothing of the second write is published." in message
        assert values(cluster_a, name) == ["a"]


def test_a_batch_write_without_cost_based_optimization_is_not_taken_for_one_of_a_stream(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Spark switches it off for streams, too."""
    name = topic(cluster_a)
    spark.conf.set("spark.sql.cbo.enabled", "false")
    try:
        write(spark.createDataFrame([("a",)], "value string"), once(cluster_a, name, name))
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")
    assert values(cluster_a, name) == ["a"]


@pytest.mark.slow
def test_foreach_batch_that_writes_from_threads_of_its_own(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Spark does not tell these which batch it is: an error, unless they are given it. Other threads just write."""
    name = topic(cluster_a)

    def save(rows: DataFrame, batch_id: int) -> None:
        def in_thread(*writes: dict[str, str]) -> str:
            def each() -> str:
                activate(rows.sparkSession)
                for identity in writes:
                    write(rows, once(cluster_a, name, name) | identity)
                return ""

            with ThreadPoolExecutor(1) as pool:
                return pool.submit(each).result()

        identity = {"txnAppId": "job", "txnVersion": str(batch_id)}
        assert fault(lambda: in_thread({})).startswith(
            "A write in foreachBatch needs the batch's number to be exactly once"
        )
        assert "was written twice" in fault(lambda: in_thread(identity, identity))

    files.add("a")
    finish(
        files.rows()
        .writeStream.foreachBatch(save)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert values(cluster_a, name) == ["a"]

    def outside() -> None:
        activate(spark)
        for _ in range(2):
            write(spark.createDataFrame([("b",)], "value string"), once(cluster_a, name, name))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(outside).result()
    assert values(cluster_a, name) == ["a", "b", "b"]


def test_a_restored_checkpoint_whose_last_batch_has_more_rows(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Its rows are neither dropped nor written twice: an error names two ways on, each for this batch only."""
    name, copy = topic(cluster_a), f"{checkpoint}-copy"
    rows = files.rows().repartition(1)
    files.add("a")
    run(rows, once(cluster_a, name, name), checkpoint)
    shutil.copytree(checkpoint, copy)
    files.add("b")
    run(rows, once(cluster_a, name, name), checkpoint)
    files.replace("b", "c")
    message = fault(lambda: run(rows, once(cluster_a, name, name), copy))
    assert message.startswith("Batch 1 of query ")
    assert "it is published already with 1 row and now has 2 rows: the checkpoint was rewound, or" in message
    assert values(cluster_a, name) == ["a", "b"]
    run(rows, once(cluster_a, name, name) | {"sink.accept-gaps": "1"}, copy)
    assert values(cluster_a, name) == ["a", "b", "b", "c"]


@pytest.mark.slow
def test_a_stream_has_its_own_identity(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """One version for all its batches would leave out all but the first: an error."""
    name = topic(cluster_a)
    files.add("a")
    files.add("b")
    options = once(cluster_a, name, name) | {"txnAppId": "app", "txnVersion": "1"}
    message = fault(lambda: run(files.rows(), options, checkpoint))
    assert message.startswith("Options 'txnAppId', 'txnVersion' and 'sink.name' identify a batch write; a stream has")
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


@pytest.mark.slow
def test_ids_stay_few_over_many_batches(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Two tasks at a time need four ids: two for this batch, and two that are made ready for the next one."""
    name = topic(cluster_a, partitions=2)
    for number in range(20):
        files.add(f"{number:02}")
    run(files.rows().repartition(2), once(cluster_a, name, name), checkpoint)
    assert values(cluster_a, name) == [f"{number:02}" for number in range(20)]
    assert len(transactions(cluster_a, name)) <= 4
    assert is_settled(cluster_a, name)


@pytest.mark.slow
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
    metadata.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})
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


@pytest.mark.slow
def test_two_clusters_of_which_one_refuses(
    spark: SparkSession, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, metadata: MetadataFile
) -> None:
    """Neither shows anything."""
    name = topic(cluster_a)
    cluster_b.create_topic(name, config={"max.message.bytes": "2000"})
    metadata.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})
    rows = spark.createDataFrame([("a", "1"), ("b", "x" * 5000)], "cluster string, value string").coalesce(1)
    message = fault(lambda: write(rows, by_file(metadata, "exactly-once", name)))
    assert message.startswith(f"Cluster 'b', topic '{name}', partition 0: ")
    for broker in (cluster_a, cluster_b):
        assert wait_until(lambda broker=broker: is_settled(broker, name), 20, "the aborts")  # type: ignore[misc]
        assert records(broker, name) == []


@pytest.mark.slow
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
    metadata.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})
    options = by_file(metadata, "exactly-once", name, **{"sink.commit-log.cluster": "b"})
    with running(files.rows("cluster string, value string"), options, checkpoint):
        files.add({"cluster": "a", "value": "1"}, {"cluster": "b", "value": "2"})
        wait_until(lambda: values(cluster_a, name) + values(cluster_b, name) == ["1", "2"], 30, "the first batch")
        metadata.write(s={"b": part(cluster_b, name)})
        files.add({"value": "3"})
        wait_until(lambda: values(cluster_b, name) == ["2", "3"], 30, "the second batch")
    assert values(cluster_a, name) == ["1"]
    assert [r.state.status for r in log(cluster_b, name)].count("decided") == 2


@pytest.mark.slow
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
    metadata.write(s={"b": part(cluster_b, name)})
    path, moved = str(metadata.path), metadata.path.read_text()
    metadata.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})

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
