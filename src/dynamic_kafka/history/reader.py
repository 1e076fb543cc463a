"""Reads the pieces of a history as rows of the source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import HistoryError
from dynamic_kafka.history.columns import RECORD, converted
from dynamic_kafka.history.formats import reader_of
from dynamic_kafka.history.model import FrozenHistory, HistoryTask, TimeLimit

__all__ = ["read_history"]

_log = logging.getLogger(__name__)


def read_history(
    task: HistoryTask, schema: pa.Schema, *, fail_on_data_loss: bool, give_up: Callable[[int], None] = lambda _: None
) -> Iterator[pa.RecordBatch]:
    """Read a task.

    Args:
        task: The pieces.
        schema: The columns to return.
        fail_on_data_loss: If false, the rest of a file that cannot be read is given up with a warning.
        give_up: Is told the number of rows that are given up.

    Yields:
        Batches of up to 20,000 rows, in the order of the files.

    Raises:
        HistoryError: If a file was changed or deleted, or cannot be read.
    """
    history, limit = task.history, task.history.limit
    read = reader_of(history)
    wanted = [*schema.names, *([] if limit is None or limit.column in schema.names else [limit.column])]
    for piece in task.pieces:
        names = [name for name in wanted if name not in piece.file.values]
        left = piece.last - piece.first
        try:
            for batch in read(piece, names):
                found = _before(batch, limit, piece.file.values)
                yield _of_source(found, schema, piece.file.values, history)
                left -= len(batch)
        except HistoryError as error:
            if fail_on_data_loss:
                raise
            give_up(left)
            _log.warning(
                "The history's file '%s' %s; %d of its rows are given up, because failOnDataLoss=false",
                error.file,
                error.problem,
                left,
            )


def _of_source(
    batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, str | None], history: FrozenHistory
) -> pa.RecordBatch:
    """Return a batch with the columns of the source."""
    names = batch.schema.names
    columns = []
    for field in schema:
        if field.name in names:
            column = batch[field.name]
            if field.name == "cluster" and history.cluster and column.null_count:
                column = pc.fill_null(column, history.cluster)
            columns.append(converted(column, field.type))
        elif field.name in values:
            columns.append(converted(pa.repeat(pa.scalar(values[field.name], pa.string()), len(batch)), field.type))
        elif field.name == "cluster" and history.cluster:
            columns.append(pa.repeat(history.cluster, len(batch)))
        else:
            columns.append(pa.nulls(len(batch), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _before(batch: pa.RecordBatch, limit: TimeLimit | None, values: Mapping[str, str | None]) -> pa.RecordBatch:
    """Return the rows before the time of the switch. Those without a time are in no record of Kafka, so they stay."""
    if limit is None:
        return batch
    times = batch[limit.column] if limit.column not in values else pa.repeat(values[limit.column], len(batch))
    is_before = pc.less(converted(times, RECORD["timestamp"]), pa.scalar(limit.before_ms * 1000, RECORD["timestamp"]))
    return batch.filter(pc.fill_null(is_before, True))
