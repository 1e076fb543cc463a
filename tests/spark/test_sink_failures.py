"""Exactly-once batches that fail half-way: nothing of them is published, and nothing stays open that readers wait for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.kafka.transactions.client import TransactionState
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.brokers import transactions
from tests.spark.sinks import Files, is_settled, log, once, run, running, to, values, write
from tests.spark.tables import Topic, records

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]


def failing(rows: DataFrame, gate: Path) -> DataFrame:
    """Task 0 yields rows and does not end; task 1 fails when the gate is there."""
    path = str(gate)

    def to_fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0:
            yield pa.RecordBatch.from_pydict({"value": ["x" * 10] * 20_000})  # Spark passes on 10,000 rows and 64 KiB
            time.sleep(60)
        wait_until(Path(path).exists, 60, "the gate")
        raise ValueError("poison")

    return rows.mapInArrow(to_fail, "value string")


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_batch_that_fails_while_another_task_writes(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Spark kills that one in the middle of its transaction, and has no word from any."""
    name, gate = topic(cluster_a, partitions=2), tmp_path / "gate"
    rows = spark.range(0, 2, 1, 2)

    def open_gate() -> None:
        wait_until(lambda: TransactionState.ONGOING in transactions(cluster_a, name).values(), 60, "a transaction")
        gate.touch()

    with ThreadPoolExecutor() as pool:
        opened = pool.submit(open_gate)
        with pytest.raises(PySparkException, match="poison"):
            write(failing(rows, gate), once(cluster_a, name, name))
        opened.result()
    wait_until(lambda: is_settled(cluster_a, name), 20, "the abort")
    assert records(cluster_a, name) == []


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_query_that_is_stopped_in_a_batch(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, files: Files, checkpoint: str
) -> None:
    """Readers go on when `stop()` returns. Nothing is lost and nothing twice when the query starts again."""
    name = topic(cluster_a, partitions=2)

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"value": ["x" * 10] * 20_000})  # Spark passes on 10,000 rows and 64 KiB
            time.sleep(60)
            yield batch

    files.add("a")
    rows = files.rows().repartition(2).mapInArrow(slow, "value string")
    with running(rows, once(cluster_a, name, name), checkpoint):
        wait_until(lambda: TransactionState.ONGOING in transactions(cluster_a, name).values(), 60, "a transaction")
        assert log(cluster_a, name)[-1].state.owner
    assert is_settled(cluster_a, name)
    write(spark.createDataFrame([("other",)], "value string"), to(cluster_a, name))
    assert values(cluster_a, name) == ["other"]
    run(files.rows(), once(cluster_a, name, name), checkpoint)
    assert values(cluster_a, name) == ["a", "other"]
