"""Running INSERTs: each is a streaming query with a checkpoint of its own, or a batch write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.spark.datasource import NAME
from dynamic_kafka.sql.connectors.all import Table
from dynamic_kafka.sql.connectors.table import WRITE_PARALLELISM, OtherTable
from dynamic_kafka.sql.errors.script import own_errors
from dynamic_kafka.sql.errors.stream import of_streams
from dynamic_kafka.sql.session.checkpoints import checkpoint_of, has_begun
from dynamic_kafka.sql.session.config import TableConfig
from dynamic_kafka.sql.session.connect import is_connect, query_id
from dynamic_kafka.sql.session.result import note_tasks_of_state, start
from dynamic_kafka.sql.tables.table import KafkaTable

__all__ = ["Jobs"]


class Jobs:
    """The jobs of an environment, by name."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[str, str, StreamingQuery]] = {}  # with the query's text, and its own

    def insert(
        self,
        rows: DataFrame,
        table: Table,
        config: TableConfig,
        query: str,
        *,
        final: bool = False,
        could_be_stream: bool = False,
    ) -> StreamingQuery | None:
        """Write rows of `to_sink_rows` or `to_table_rows` to a table: a stream starts a query, a batch is written at once.

        `final` writes rows only when they do not change any more, also to a table with a key. `could_be_stream` says that a
        batch may have been a stream under other settings.

        Returns:
            The streaming query; None if all rows are written.

        Raises:
            ConfigurationError: If the query updates rows and the table accepts only new ones, if the folder of
                checkpoints is missing or cannot be used, if a running job has the same prefix of transactional ids, or if a
                batch would write again what a stream with its name has written.
        """
        # What two running jobs cannot share.
        own = table.kind.place(table) if isinstance(table, OtherTable) else table.sink_settings.prefix
        self._check_own(own, table)
        name = self._name(table, config, query)
        if not rows.isStreaming:
            if could_be_stream and config.mode == "automatic":
                _check_never_a_stream(rows, table, config, name)
            _write(rows, table)
            return None
        running = _start(rows, table, config, name, final=final)
        self._jobs[name] = query, own, running
        return running

    def _check_own(self, own: str, table: Table) -> None:
        """Raise if a running job has this prefix or folder: each of the two would end or hide what the other one writes."""
        for name, (_, other, running) in self._jobs.items():
            if own and other == own and running.isActive:
                if isinstance(table, OtherTable):
                    raise ConfigurationError(
                        f"The running job '{name}' writes to '{own}', and Spark would lose rows of two. Write to another "
                        f"folder, such as INSERT INTO {table.name} /*+ OPTIONS('path' = '...') */"
                    )
                raise ConfigurationError(
                    f"Table {table.name} is written exactly once by the running job '{name}', and two "
                    f"jobs cannot share the prefix '{own}' of its transactional ids. Give this INSERT another prefix: "
                    f"INSERT INTO {table.name} /*+ OPTIONS('sink.transactional-id-prefix'='...') */"
                )

    def _name(self, table: Table, config: TableConfig, query: str) -> str:
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


def _check_never_a_stream(rows: DataFrame, table: Table, config: TableConfig, name: str) -> None:
    """Raise if there is a checkpoint of a job that was a stream: as a batch it would write all rows again."""
    checkpoint = checkpoint_of(rows.sparkSession, config, name)
    if checkpoint is None:
        return
    with _usable(checkpoint):
        begun = has_begun(rows.sparkSession, checkpoint)
    if begun:
        raise ConfigurationError(
            f"INSERT INTO {table.name} is a batch now, because all tables of its query have an end, "
            f"and would write all rows. But '{checkpoint}' is the checkpoint of a stream that has written rows. To continue "
            "that stream, SET 'execution.runtime-mode' = 'streaming'. To write all rows again, SET it to 'batch'"
        )


@own_errors()
def _write(rows: DataFrame, table: Table) -> None:
    if isinstance(table, OtherTable):
        assert table.kind.write is not None
        table.kind.write(_other_rows(rows, table), table)
        return
    rows, options = _spread(rows, table)
    rows.write.format(NAME).options(**options).mode("append").save()


def _start(rows: DataFrame, table: Table, config: TableConfig, name: str, *, final: bool) -> StreamingQuery:
    note_tasks_of_state(rows)
    checkpoint = _checkpoint(rows, config, name, table)
    if isinstance(table, OtherTable):
        rows = _other_rows(rows, table)
        assert table.kind.start is not None
        with _usable(checkpoint), _append_only(table):
            table.kind.check_start(rows.sparkSession, table, checkpoint)
            started: StreamingQuery = table.kind.start(_writer(rows, checkpoint, config, name), table, rows)
            return started
    rows, options = _spread(rows, table)
    exactly_once = table.sink_settings.guarantee == "exactly-once"
    writer = _writer(rows, checkpoint, config, name)
    if not table.upsert:
        with _usable(checkpoint), _append_only(table):
            return writer.format(NAME).options(**options).outputMode("append").start()

    def write(batch: DataFrame, batch_id: int) -> None:
        # A Python sink does not accept update mode, so each batch is a write of its own. Its identity makes a repeated write
        # void. The query's id is stored in its checkpoint: a new checkpoint begins with batch 0, and is another query. Each
        # batch is written, also an empty one, so a gap shows that the checkpoint or the commit log is another one.
        identity: dict[str, str] = {}
        if exactly_once:
            assert checkpoint is not None, "only a table that keeps nothing has none"
            identity = {
                "txnAppId": _query_id(batch, checkpoint),
                "txnVersion": str(batch_id),
                "__txnConsecutive": "true",
            }
        batch.write.format(NAME).options(**options, **identity).mode("append").save()

    with _usable(checkpoint):
        return start(writer.foreachBatch(write), ("append",) if final else ("update", "append"))


def _query_id(batch: DataFrame, checkpoint: str) -> str:
    """Return the id of the query that a batch in `foreachBatch` belongs to."""
    if is_connect(batch.sparkSession):
        return query_id(checkpoint)
    found: str | None = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found is not None, "Spark sets it for foreachBatch"
    return found


def _writer(rows: DataFrame, checkpoint: str | None, config: TableConfig, name: str) -> DataStreamWriter:
    writer = rows.writeStream.queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if config.interval_ms is not None:
        writer = writer.trigger(processingTime=f"{config.interval_ms} milliseconds")
    return writer


def _other_rows(rows: DataFrame, table: OtherTable) -> DataFrame:
    """Return the rows as a table that is not on Kafka gets them, in as many tasks as `sink.parallelism`."""
    tasks: int | None = WRITE_PARALLELISM.of(table.options)
    rows = table.kind.encode(rows, table)
    return rows if tasks is None else rows.repartition(tasks)


@contextmanager
def _usable(checkpoint: str | None) -> Iterator[None]:
    """Turn Java's error for a checkpoint folder that cannot be created into one that names the folder."""
    try:
        yield
    except Exception as error:
        of_java: Any = getattr(error, "java_exception", None)  # of Py4J, which a client of Spark Connect may not have
        if of_java is None:
            raise
        reason = str(of_java.getMessage()).partition("\n")[0]
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
            f"Option 'sink.parallelism' of table {table.name} needs 'key.format' and 'key.fields': "
            "all changes of a row have to go through one task, otherwise they lose their order"
        )
    return rows.repartition(int(parallelism), *(["key"] if table.key is not None else [])), options


@contextmanager
def _append_only(table: Table) -> Iterator[None]:
    """Turn Spark's error for a query that updates rows into one that names the table."""
    try:
        yield
    except AnalysisException as error:
        if "output mode" not in str(error).lower():
            raise of_streams([error]) from None
        raise ConfigurationError(
            f"Table {table.name} accepts only new rows, but the query updates earlier ones. "
            "Write to a table with a key, such as one with 'connector' = 'upsert-kafka', or aggregate over windows with a "
            "watermark"
        ) from error


def _checkpoint(rows: DataFrame, config: TableConfig, name: str, table: Table) -> str | None:
    found = checkpoint_of(rows.sparkSession, config, name)
    if found is not None or (isinstance(table, OtherTable) and table.kind.keeps_nothing):
        return found  # what keeps nothing begins anew each time
    raise ConfigurationError(
        f"Setting 'execution.checkpointing.dir' is missing. INSERT INTO {table.name} as a stream "
        "keeps a checkpoint there, from which it continues after a restart: SET it to a folder"
    )
