"""`dynamic-kafka offsets` on checkpoints that Spark has written, and Spark on checkpoints that the command has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka.cli.main import main
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.spark.conftest import RecordingSink
from tests.spark.sinks import once, values
from tests.spark.tables import Topic
from tests.versions import needs

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def rows_of(spark: SparkSession, broker: KafkaBroker, name: str) -> DataFrame:
    """A stream of a topic from its earliest offset on."""
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
    return spark.readStream.format("dynamic-kafka").options(**options).load()


def run(rows: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: str) -> None:
    """One run that reads all there is."""
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(60)


def offsets(*arguments: str) -> int:
    """Run the command; the queries of these tests have just stopped, so `--force` is needed to change something."""
    return main(["offsets", *arguments])


def read(sink: RecordingSink) -> list[tuple[int, int]]:
    """(partition, offset) of all rows in the sink."""
    return sorted((row[2], row[3]) for row in sink.rows())


@needs("AvailableNow")
def test_a_query_goes_on_at_exactly_the_positions_that_were_set(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, sink: RecordingSink, checkpoint: str
) -> None:
    """One partition forward, one back; a third change comes before the next start. Batch numbers have no gap."""
    name = topic(cluster_a, partitions=3)
    for partition in range(3):
        produce(cluster_a.bootstrap_servers, name, [(None, str(i)) for i in range(10)], partition=partition)
    run(rows_of(spark, cluster_a, name), sink, checkpoint)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i)) for i in range(10, 20)], partition=0)
    before = read(sink)
    assert offsets("set", checkpoint, f"kafka/{name}/0:15", f"kafka/{name}/1:8", "--execute", "--force") == 0
    assert offsets("set", checkpoint, f"kafka/{name}/2:9", "--execute", "--force") == 0
    again = RecordingSink(sink.path / "again")
    again.path.mkdir()
    run(rows_of(spark, cluster_a, name), again, checkpoint)
    assert before == [(p, i) for p in range(3) for i in range(10)]
    assert read(again) == [(0, 15), (0, 16), (0, 17), (0, 18), (0, 19), (1, 8), (1, 9), (2, 9)]
    assert sorted(int(path.name) for path in Path(checkpoint, "commits").glob("[0-9]*")) == [0, 1, 2]


@needs("AvailableNow")
def test_a_query_that_still_runs_is_ended_and_not_misled(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    topic: Topic,
    sink: RecordingSink,
    checkpoint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The change is refused. With --force, the query cannot log its next batch, and the next start has the change."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i)) for i in range(4)])
    writer = rows_of(spark, cluster_a, name).writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query: StreamingQuery = writer.start()
    wait_until(lambda: len(sink.rows()) == 4 and Path(checkpoint, "commits", "0").exists(), 30, "the first batch")
    assert offsets("set", checkpoint, f"kafka/{name}/0:1", "--execute") == 1
    assert "The query may be running" in capsys.readouterr().out
    assert offsets("set", checkpoint, f"kafka/{name}/0:1", "--execute", "--force") == 0
    produce(cluster_a.bootstrap_servers, name, [(None, "4")])
    with pytest.raises(Exception, match="CONCURRENT_STREAM_LOG_UPDATE"):
        query.awaitTermination(30)
    sink.path.joinpath("0.json").unlink()
    run(rows_of(spark, cluster_a, name), sink, checkpoint)
    assert read(sink) == [(0, 1), (0, 2), (0, 3), (0, 4)]


@pytest.mark.slow
def test_an_unfinished_batch_is_left_alone_unless_the_user_says_so(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    topic: Topic,
    sink: RecordingSink,
    checkpoint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A row that its program cannot bear is left out of the batch that runs again and again."""
    name = topic(cluster_a, partitions=2)
    for partition in (0, 1):
        produce(cluster_a.bootstrap_servers, name, [(None, str(i)) for i in range(5)], partition=partition)

    def fails(batch: DataFrame, number: int) -> None:
        assert batch.where("partition = 0 AND offset = 1").isEmpty()
        sink(batch, number)

    with pytest.raises(Exception, match="AssertionError"):
        run(rows_of(spark, cluster_a, name), fails, checkpoint)
    assert offsets("show", checkpoint) == 0
    assert "Batch 0 is not finished" in capsys.readouterr().out
    wanted = ("set", checkpoint, f"kafka/{name}/0:2", "--execute", "--force")
    assert offsets(*wanted) == 1
    assert "add --rewrite-unfinished" in capsys.readouterr().out
    assert offsets(*wanted, "--rewrite-unfinished") == 0
    run(rows_of(spark, cluster_a, name), fails, checkpoint)
    assert read(sink) == [(0, 2), (0, 3), (0, 4), *((1, i) for i in range(5))]


@pytest.mark.slow
def test_an_exactly_once_sink_publishes_what_is_read_after_a_change_once(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change is a batch of its own, so the commit log sees no gap. A batch that is published cannot be changed."""
    name, target = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i)) for i in range(4)])

    def start() -> None:
        rows = rows_of(spark, cluster_a, name).select("value")
        writer = rows.writeStream.format("dynamic-kafka").options(**once(cluster_a, target, target))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    start()
    assert offsets("set", checkpoint, f"kafka/{name}/0:3", "--execute", "--force") == 0
    start()
    assert values(cluster_a, target) == ["0", "1", "2", "3", "3"]
    last = max(int(path.name) for path in Path(checkpoint, "commits").glob("[0-9]*"))
    for path in (f"commits/{last}", f"commits/.{last}.crc"):
        Path(checkpoint, path).unlink()  # the query died after the sink had published the batch
    capsys.readouterr()
    sink = ("--sink-prefix", target, "--commit-log-property", f"bootstrap.servers={cluster_a.bootstrap_servers}")
    assert offsets("set", checkpoint, f"kafka/{name}/0:0", "--rewrite-unfinished", *sink, "--output", "json") == 1
    refused: Any = json.loads(capsys.readouterr().out)["refused"]
    assert [text for text in refused if f"Batch {last} is decided or published" in text]
    start()
    assert values(cluster_a, target) == ["0", "1", "2", "3", "3"]
