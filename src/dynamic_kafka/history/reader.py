"""Reads the pieces of a history as rows of the source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import ConfigurationError, HistoryError
from dynamic_kafka.history.columns import converted
from dynamic_kafka.history.formats import reader_of
from dynamic_kafka.history.model import HISTORY_ROW, HistoryFile, HistoryTask, TimeLimit
from dynamic_kafka.rows import COLUMNS

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
        give_up: Takes the number of rows that are given up.

    Yields:
        Batches of up to 20,000 rows, in the order of the files.

    Raises:
        HistoryError: If a file was changed or deleted, or cannot be read.
    """
    history, limit = task.history, task.history.limit
    of_source = _of_table if history.decoded else partial(_of_source, cluster=history.cluster)
    read = reader_of(history, task.where)
    wanted = {field.name: field.type for field in schema}
    if history.decoded:
        if HISTORY_ROW not in schema.names:
            raise ConfigurationError(
                f"The history '{history.location}' has rows of a table, and the query began with them, but its table "
                "does not name the history any more. Put the option history.path back until the history is read"
            )
        wanted = {field.name: field.type for field in schema.field(HISTORY_ROW).type}
    if limit is not None:
        wanted.setdefault(limit.column, COLUMNS["timestamp"])
    for piece in task.pieces:
        assert isinstance(piece.file, HistoryFile)
        names = {name: type_ for name, type_ in wanted.items() if name not in piece.file.values}
        left = piece.last - piece.first
        try:
            for batch in read(piece, names):
                try:
                    found = of_source(_before(batch, limit, piece.file.values), schema, piece.file.values)
                except pa.ArrowException as error:
                    shown = f"{history.location}/{piece.file.path}"
                    raise HistoryError(shown, f"has a value that does not fit its column: {error}") from error
                yield found
                left -= len(batch)
        except HistoryError as error:
            if fail_on_data_loss:
                raise
            give_up(left)
            _log.warning(
                "The history's file '%s' %s; up to %d of its rows are given up, because failOnDataLoss=false",
                error.file,
                error.problem,
                left,
            )


def _of_source(
    batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, str | None], cluster: str = ""
) -> pa.RecordBatch:
    """Return a batch with the columns of the source. Rows that name no cluster are of the given one."""
    names = batch.schema.names
    columns = []
    for field in schema:
        if field.name in names:
            column = batch[field.name]
            if field.name == "cluster" and cluster and column.null_count:
                column = pc.fill_null(column, cluster)
            columns.append(converted(column, field.type))
        elif field.name in values:
            columns.append(converted(pa.repeat(pa.scalar(values[field.name], pa.string()), len(batch)), field.type))
        elif field.name == "cluster" and cluster:
            columns.append(pa.repeat(cluster, len(batch)))
        else:
            columns.append(pa.nulls(len(batch), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_table(batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, str | None]) -> pa.RecordBatch:
    """Return a batch with the table's rows in one column. There are no messages, so all others are null.

    A column `cluster` is the table's own, so nothing is filled in.
    """
    columns = []
    for field in schema:
        if field.name == HISTORY_ROW:
            of_row = pa.schema(list(field.type))
            rows = _of_source(batch, of_row, values)
            columns.append(pa.StructArray.from_arrays(rows.columns, fields=list(of_row)))
        else:
            columns.append(pa.nulls(len(batch), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _before(batch: pa.RecordBatch, limit: TimeLimit | None, values: Mapping[str, str | None]) -> pa.RecordBatch:
    """Return the rows before the time of the switch. Those without a time are in no record of Kafka, so they stay."""
    if limit is None:
        return batch
    times = batch[limit.column] if limit.column not in values else pa.repeat(values[limit.column], len(batch))
    is_before = pc.less(converted(times, COLUMNS["timestamp"]), pa.scalar(limit.before_ms * 1000, COLUMNS["timestamp"]))
    return batch.filter(pc.fill_null(is_before, True))
