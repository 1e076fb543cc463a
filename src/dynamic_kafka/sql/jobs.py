"""An INSERT started: a streaming query with a checkpoint of its own, or a batch write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.spark.datasource import NAME
from dynamic_kafka.sql.config import TableConfig
from dynamic_kafka.sql.definition import qualified
from dynamic_kafka.sql.result import start
from dynamic_kafka.sql.table import KafkaTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Jobs"]


class Jobs:
    """The jobs of an environment, by name."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[str, StreamingQuery]] = {}

    def insert(self, rows: DataFrame, table: KafkaTable, config: TableConfig, query: str) -> StreamingQuery | None:
        """Write rows to a table.

        Args:
            rows: From `to_sink_rows`; a stream is followed, anything else is written at once.
            table: The table.
            config: Where checkpoints are, and how often a batch is due.
            query: The text of the query.

        Returns:
            The streaming query; None if all is written.

        Raises:
            ConfigurationError: If the query updates rows and the table takes new ones only, or a checkpoint is needed and
                there is no place for it.
        """
        if not rows.isStreaming:
            _write(rows, table)
            return None
        name = self._name(table, config, query)
        running = _start(rows, table, config, name)
        self._jobs[name] = query, running
        return running

    def _name(self, table: KafkaTable, config: TableConfig, query: str) -> str:
        """The name of a job, and of its checkpoint's folder: `pipeline.name`, or the table's.

        Another query of that name gets a number: its place in the script is what names it again. The same one again has the
        same name, and goes on where it has stopped.
        """
        name = config.get("pipeline.name") or table.definition.name[-1]
        number = 1
        while (found := name if number == 1 else f"{name}-{number}") in self._jobs:
            other, running = self._jobs[found]
            if other == query and not running.isActive:
                break
            number += 1
        return found


def _write(rows: DataFrame, table: KafkaTable) -> None:
    rows, options = _spread(rows, table)
    rows.write.format(NAME).options(**options).mode("append").save()


def _start(rows: DataFrame, table: KafkaTable, config: TableConfig, name: str) -> StreamingQuery:
    rows, options = _spread(rows, table)
    exactly_once = configure_sink(options).guarantee == "exactly-once"
    checkpoint = _checkpoint(rows, config, name, table)
    writer = rows.writeStream.queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if config.interval_ms is not None:
        writer = writer.trigger(processingTime=f"{config.interval_ms} milliseconds")
    if not table.upsert:
        with _usable(checkpoint):
            return _append(writer.format(NAME).options(**options).outputMode("append"), table)

    def write(batch: DataFrame, batch_id: int) -> None:
        # A sink in Python takes no updates, so each batch is a write of its own; its identity makes a repeated one void.
        # The query's id is that of its checkpoint: a new one begins anew with batch 0, and is another query.
        identity: dict[str, str] = {}
        if exactly_once:
            query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert query_id is not None, "Spark tells it to foreachBatch"
            identity = {"txnAppId": query_id, "txnVersion": str(batch_id)}
        batch.write.format(NAME).options(**options, **identity).mode("append").save()

    with _usable(checkpoint):
        return start(writer.foreachBatch(write), ("update", "append"))


@contextmanager
def _usable(checkpoint: str | None) -> Iterator[None]:
    """A checkpoint's folder that cannot be made is an error of Java's; it becomes one that names the folder."""
    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).partition("\n")[0]
        raise ConfigurationError(
            f"The checkpoint in '{checkpoint}' cannot be used: {reason}; SET 'execution.checkpointing.dir' to a folder that "
            "driver and executors can write to"
        ) from error


def _spread(rows: DataFrame, table: KafkaTable) -> tuple[DataFrame, dict[str, str]]:
    """The rows in as many tasks as `sink.parallelism` says, and the sink's other options.

    Raises:
        ConfigurationError: If changes would lose their order.
    """
    options = dict(table.sink)
    parallelism = options.pop("sink.parallelism", None)
    if parallelism is None:
        return rows, options
    if table.key is None and table.changelog:
        raise ConfigurationError(
            f"Option 'sink.parallelism' of table {qualified(table.definition.name)} needs 'key.format' and 'key.fields': "
            "the changes of a row have to go through one task, else they lose their order"
        )
    return rows.repartition(int(parallelism), *(["key"] if table.key is not None else [])), options


def _append(writer: DataStreamWriter, table: KafkaTable) -> StreamingQuery:
    try:
        return writer.start()
    except AnalysisException as error:
        if "output mode" not in str(error).lower():
            raise
        raise ConfigurationError(
            f"Table {qualified(table.definition.name)} takes new rows only, and the query updates rows it gave before; "
            "write to a table with 'connector' = 'upsert-kafka', or aggregate over windows with a watermark"
        ) from error


def _checkpoint(rows: DataFrame, config: TableConfig, name: str, table: KafkaTable) -> str | None:
    folder = config.get("execution.checkpointing.dir")
    if folder is not None:
        return f"{folder.rstrip('/')}/{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
    if rows.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None):
        return None  # Spark makes it there, in a folder of the job's name
    raise ConfigurationError(
        f"SET 'execution.checkpointing.dir' is missing; INSERT INTO {qualified(table.definition.name)} as a stream needs a "
        "place for its checkpoint, from which it goes on after a restart"
    )
