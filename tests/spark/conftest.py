"""One Spark session for all tests of this folder, and a sink that records each batch idempotently."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.sql import TableEnvironment
from tests.spark.sinks import Files

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent / "site"), os.environ.get("PYTHONPATH", "")])


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Expressions are evaluated as they are: compiling them takes most of the time of a query of a few rows."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # compiles quickly, not thoroughly
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    **INTERPRETED,
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with the format registered; it compiles no expressions, see `compiled`."""
    import dynamic_kafka

    builder = SparkSession.builder.master("local[2]").appName("dynamic-kafka-tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    dynamic_kafka.register(session)
    yield session
    session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Spark compiles its expressions during the test, as it does for users."""
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)


@pytest.fixture
def env(spark: SparkSession, tmp_path: Path) -> Iterator[TableEnvironment]:
    """A table environment whose tables, settings and queries end with the test."""
    environment = TableEnvironment(spark)
    environment.get_config().set("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    yield environment
    for query in spark.streams.active:
        query.stop()
    environment.get_config().reset()  # drops the views as well


class RecordingSink:
    """Writes each micro-batch to a file of its own, by batch id: writing a batch again replaces it.

    Args:
        path: An existing folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """For `foreachBatch`."""
        rows = [[r["cluster"], r["topic"], r["partition"], r["offset"]] for r in batch.collect()]
        new = self.path / f"{batch_id}.new"
        new.write_text(json.dumps(rows))
        new.replace(self.path / f"{batch_id}.json")

    def rows(self) -> list[tuple[Any, ...]]:
        """(cluster, topic, partition, offset) of all rows, sorted."""
        files = self.path.glob("*.json")
        return sorted(tuple(row) for file in files for row in json.loads(file.read_text()))


@pytest.fixture
def sink(tmp_path: Path) -> RecordingSink:
    """A recording sink."""
    folder = tmp_path / "sink"
    folder.mkdir()
    return RecordingSink(folder)


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    """A streaming source without files."""
    folder = tmp_path / "files"
    folder.mkdir()
    return Files(spark, folder)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A new checkpoint."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def stopped(spark: SparkSession) -> Iterator[None]:
    """No query is left."""
    yield
    for query in spark.streams.active:
        query.stop()
