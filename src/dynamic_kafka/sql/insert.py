"""Running INSERTs: each is a streaming query with a checkpoint of its own, or a batch write."""

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
        self._jobs: dict[str, tuple[str, str, StreamingQuery]] = {}  # with the query's text and the prefix

    def insert(self, rows: DataFrame, table: KafkaTable, config: TableConfig, query: str) -> StreamingQuery | None:
        """Write rows to a table.

        Args:
            rows: The rows from `to_sink_rows`; a stream starts a query, other rows are written at once.
            table: The table.
            config: The settings, with the folder of checkpoints and the interval of batches.
            query: The text of the query.

        Returns:
            The streaming query; None if all rows are written.

        Raises:
            ConfigurationError: If the query updates rows and the table accepts only new ones, if the folder of
                checkpoints is missing or cannot be used, or if a running job has the same prefix of transactional ids.
        """
        prefix = configure_sink(table.sink).prefix
        self._check_prefix(prefix, table)
        if not rows.isStreaming:
            _write(rows, table)
            return None
        name = self._name(table, config, query)
        running = _start(rows, table, config, name)
        self._jobs[name] = query, prefix, running
        return running

    def _check_prefix(self, prefix: str, table: KafkaTable) -> None:
        """Raise if a running job has this prefix: each of the two would end the other one's transactions."""
        for name, (_, other, running) in self._jobs.items():
            if prefix and other == prefix and running.isActive:
                raise ConfigurationError(
                    f"Table {qualified(table.definition.name)} is written exactly once by the running job '{name}', and two "
                    f"jobs cannot share the prefix '{prefix}' of its transactional ids. Give this INSERT another prefix: "
                    f"INSERT INTO {qualified(table.definition.name)} /*+ OPTIONS('sink.transactional-id-prefix'='...') */"
                )

    def _name(self, table: KafkaTable, config: TableConfig, query: str) -> str:
        """Return the name of a job and of its checkpoint's folder: `pipeline.name`, or the table's name.

        Another query with this name gets a number, so the order in a script decides. The same query, run again after it
        stopped, has the same name and continues from its checkpoint.
        """
        name = config.get("pipeline.name") or table.definition.name[-1]
        number = 1
        while (found := name if number == 1 else f"{name}-{number}") in self._jobs:
            other, _, running = self._jobs[found]
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
        # A Python sink does not accept update mode, so each batch is a write of its own. Its identity makes a repeated write
        # void. The query's id is stored in its checkpoint: a new checkpoint begins with batch 0, and is another query. Each
        # batch is written, also an empty one, so a gap shows that the checkpoint or the commit log is another one.
        identity: dict[str, str] = {}
        if exactly_once:
            query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert query_id is not None, "Spark sets it for foreachBatch"
            identity = {"txnAppId": query_id, "txnVersion": str(batch_id), "__txnConsecutive": "true"}
        batch.write.format(NAME).options(**options, **identity).mode("append").save()

    with _usable(checkpoint):
        return start(writer.foreachBatch(write), ("update", "append"))


@contextmanager
def _usable(checkpoint: str | None) -> Iterator[None]:
    """Turn Java's error for a checkpoint folder that cannot be created into one that names the folder."""
    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).partition("\n")[0]
        raise ConfigurationError(
            f"The checkpoint in '{checkpoint}' cannot be used: {reason}. SET 'execution.checkpointing.dir' to a folder that "
            "driver and executors can write to"
        ) from error


def _spread(rows: DataFrame, table: KafkaTable) -> tuple[DataFrame, dict[str, str]]:
    """Return the rows in as many tasks as `sink.parallelism`, and the sink's other options.

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
            "all changes of a row have to go through one task, otherwise they lose their order"
        )
    return rows.repartition(int(parallelism), *(["key"] if table.key is not None else [])), options


def _append(writer: DataStreamWriter, table: KafkaTable) -> StreamingQuery:
    try:
        return writer.start()
    except AnalysisException as error:
        if "output mode" not in str(error).lower():
            raise
        raise ConfigurationError(
            f"Table {qualified(table.definition.name)} accepts only new rows, but the query updates earlier ones. "
            "Write to a table with 'connector' = 'upsert-kafka', or aggregate over windows with a watermark"
        ) from error


def _checkpoint(rows: DataFrame, config: TableConfig, name: str, table: KafkaTable) -> str | None:
    folder = config.get("execution.checkpointing.dir")
    if folder is not None:
        return f"{folder.rstrip('/')}/{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
    if rows.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None):
        return None  # Spark creates a folder with the job's name there
    raise ConfigurationError(
        f"Setting 'execution.checkpointing.dir' is missing. INSERT INTO {qualified(table.definition.name)} as a stream "
        "keeps a checkpoint there, from which it continues after a restart: SET it to a folder"
    )
