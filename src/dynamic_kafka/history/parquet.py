"""Histories of Parquet files: what their footers say, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dynamic_kafka.errors import ConfigurationError, HistoryError
from dynamic_kafka.history.columns import COORDINATES, check_columns, converted, stored_columns
from dynamic_kafka.history.folder import Folder, ListedFile
from dynamic_kafka.history.model import HistoryFile, HistoryPiece

__all__ = ["Inspected", "inspect", "read"]

_BATCH_ROWS = 20_000
_TYPES = {"cluster": pa.string(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}


class Inspected(NamedTuple):
    """What a file says of itself.

    Attributes:
        file: The file with its rows.
        columns: Its columns.
        largest: The largest offset by cluster, topic and partition, if it was asked for.
        earliest: The earliest time, in microseconds or whatever orders the files; None if it is not known.
    """

    file: HistoryFile
    columns: frozenset[str]
    largest: Mapping[tuple[str, str, int], int]
    earliest: Any


def inspect(folder: Folder, listed: ListedFile, *, with_offsets: bool, time_column: str) -> Inspected:
    """Read a file's footer, and only if its statistics do not tell the largest offsets also the columns with these.

    Raises:
        ConfigurationError: If its columns do not fit.
        HistoryError: If it cannot be read.
    """
    with folder.open(listed) as opened:
        parquet = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
        stored = stored_columns(parquet.schema_arrow, listed.values)
        shown = folder.shown(listed.path)
        check_columns(shown, stored)
        if time_column and time_column not in stored:
            raise ConfigurationError(
                f"The history's file '{shown}' has no column '{time_column}', which 'history.time-column' names"
            )
        groups = range(parquet.num_row_groups)
        rows = tuple(parquet.metadata.row_group(i).num_rows for i in groups)
        largest: dict[tuple[str, str, int], int] = {}
        for i in groups if with_offsets else ():
            for place, offset in _largest(parquet, i, listed.values, shown).items():
                largest[place] = max(offset, largest.get(place, -1))
        earliest = None
        if time_column and time_column not in listed.values:
            least = [_statistics(parquet, i).get(time_column) for i in groups if rows[i]]
            earliest = min((s.min for s in least if s is not None), default=None)
        elif time_column:
            earliest = listed.values[time_column]
    file = HistoryFile(*listed[:3], rows, listed.values)
    return Inspected(file, frozenset(stored), largest, earliest)


def read(folder: Folder, piece: HistoryPiece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece with these columns of the file.

    Raises:
        HistoryError: If the file is not the same any more, or cannot be read.
    """
    file = piece.file
    with folder.open(file) as opened:
        parquet = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=True)
        if tuple(parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)) != file.rows:
            raise HistoryError(folder.shown(file.path), "was written again")
        groups, skipped, position = [], 0, 0
        for i, rows in enumerate(file.rows):
            if position < piece.last and position + rows > piece.first:
                groups.append(i)
            elif not groups:
                skipped += rows
            position += rows
        position = skipped
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=groups, columns=list(columns), use_threads=False):
            begin, end = max(piece.first - position, 0), min(piece.last - position, len(batch))
            position += len(batch)
            if begin < end:
                yield batch.slice(begin, end - begin)
            if position >= piece.last:
                break


def _statistics(parquet: pq.ParquetFile, group: int) -> dict[str, Any]:
    """Return the statistics of a row group's columns that have a least and a largest value, by the column's name."""
    metadata = parquet.metadata.row_group(group)
    columns = (metadata.column(i) for i in range(metadata.num_columns))
    return {c.path_in_schema: c.statistics for c in columns if c.statistics is not None and c.statistics.has_min_max}


def _largest(
    parquet: pq.ParquetFile, group: int, values: Mapping[str, str | None], shown: str
) -> dict[tuple[str, str, int], int]:
    """Return the largest offset of each cluster, topic and partition in a row group."""
    if not parquet.metadata.row_group(group).num_rows:
        return {}
    names = [name for name in COORDINATES if name in parquet.schema_arrow.names]
    known: dict[str, Any] = {"cluster": "", **values}
    statistics = _statistics(parquet, group)
    for name in names:
        found = statistics.get(name)
        if found is None or found.null_count != 0 or (name != "offset" and found.min != found.max):
            break
        known[name] = found.max
    else:
        return {(str(known["cluster"] or ""), str(known["topic"]), int(known["partition"])): int(known["offset"])}
    table = parquet.read_row_group(group, columns=names, use_threads=False)
    # The names are few, so they are compared as numbers.
    columns = {name: converted(table[name].combine_chunks(), _TYPES[name]) for name in names}
    for name, found in columns.items():
        if found.null_count and name != "cluster":
            raise ConfigurationError(
                f"The history's file '{shown}' has rows without '{name}', so it does not say where Kafka goes on. Set "
                "history.switch to starting-offsets or timestamp"
            )
    of_places = [name for name in names if name != "offset"]
    if "offset" not in columns:
        raise ConfigurationError(f"The history's file '{shown}' has no offsets: 'offset' is the name of a folder")
    grouped = pa.table(columns).group_by(of_places, use_threads=False).aggregate([("offset", "max")])
    return {
        (
            str({**known, **row}["cluster"] or ""),
            str({**known, **row}["topic"]),
            int({**known, **row}["partition"]),
        ): row["offset_max"]
        for row in grouped.to_pylist()
    }
