"""An INSERT started: a streaming query with a checkpoint of its own, or a batch write."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

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

__all__ = ["insert", "job_name"]

_log = logging.getLogger(__name__)


def job_name(table: KafkaTable, config: TableConfig, running: Collection[str]) -> str:
    """The name of an INSERT's job, and of its checkpoint's folder: `pipeline.name`, or the table's.

    A job whose name is that of one that runs gets a number: its statement's place in the script is what names it again.
    """
    name = config.get("pipeline.name") or table.definition.name[-1]
    number = 1
    while (found := name if number == 1 else f"{name}-{number}") in running:
        number += 1
    return found


def insert(rows: DataFrame, table: KafkaTable, config: TableConfig, name: str) -> StreamingQuery | None:
    """Write rows to a table.

    Args:
        rows: From `to_sink_rows`; a stream is followed, anything else is written at once.
        table: The table.
        config: Where checkpoints are, and how often a batch is due.
        name: Of the job.

    Returns:
        The streaming query; None if all is written.

    Raises:
        ConfigurationError: If the query updates rows and the table takes new ones only, or a checkpoint is needed and there
            is no place for it.
    """
    options = dict(table.sink)
    parallelism = options.pop("sink.parallelism", None)
    if parallelism is not None:
        # Changes of a row stay in their order: all of a key go to one task.
        keys = ["key"] if table.changelog and table.key is not None else []
        rows = rows.repartition(int(parallelism), *keys)
    if not rows.isStreaming:
        rows.write.format(NAME).options(**options).mode("append").save()
        return None
    exactly_once = configure_sink(options).guarantee == "exactly-once"
    checkpoint = _checkpoint(config, name, table, exactly_once=exactly_once)
    writer = rows.writeStream.queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if config.interval_ms is not None:
        writer = writer.trigger(processingTime=f"{config.interval_ms} milliseconds")
    if not table.upsert:
        return _append(writer.format(NAME).options(**options).outputMode("append"), table)

    def write(batch: DataFrame, batch_id: int) -> None:
        # A sink in Python takes no updates, so each batch is a write of its own; its identity makes a repeated one void.
        identity = {"txnAppId": f"{name}-{_hash(checkpoint)}", "txnVersion": str(batch_id)} if exactly_once else {}
        batch.write.format(NAME).options(**options, **identity).mode("append").save()

    return start(writer.foreachBatch(write), ("update", "append"))


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


def _checkpoint(config: TableConfig, name: str, table: KafkaTable, *, exactly_once: bool) -> str | None:
    folder = config.get("execution.checkpointing.dir")
    if folder is not None:
        return f"{folder.rstrip('/')}/{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
    if exactly_once:
        raise ConfigurationError(
            f"SET 'execution.checkpointing.dir' is missing; INSERT INTO {qualified(table.definition.name)} exactly-once "
            "needs a place for its checkpoint"
        )
    _log.warning(
        "SET 'execution.checkpointing.dir' is missing: after a restart, job '%s' starts where its tables say, not where "
        "it stopped",
        name,
    )
    return None


def _hash(text: str | None) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()[:16]
