"""Histories of Parquet files: what their footers say, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dynamic_kafka.errors import HistoryError
from dynamic_kafka.history.columns import (
    COORDINATES,
    check_columns,
    comparable,
    earliest_time,
    largest_offsets,
    place_of,
    stored_columns,
)
from dynamic_kafka.history.folder import Folder, ListedFile
from dynamic_kafka.history.model import HistoryFile, HistoryPiece, Inspected
from dynamic_kafka.history.settings import HistorySettings

__all__ = ["inspect", "read"]

_BATCH_ROWS = 20_000


def inspect(folder: Folder, settings: HistorySettings, listed: ListedFile, *, with_offsets: bool) -> Inspected:
    """Read a file's footer, and only if its statistics do not tell the largest offsets also the columns with these.

    Raises:
        ConfigurationError: If its columns do not fit.
        HistoryError: If it cannot be read.
    """
    with folder.open(listed) as opened:
        parquet = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
        stored = stored_columns(parquet.schema_arrow, listed.values)
        shown = folder.shown(listed.path)
        decoded = check_columns(shown, stored, settings)
        groups = range(parquet.num_row_groups)
        rows = tuple(parquet.metadata.row_group(i).num_rows for i in groups)
        largest: dict[tuple[str, str, int], int] = {}
        for i in groups if with_offsets else ():
            for place, offset in _largest(parquet, i, listed.values, shown).items():
                largest[place] = max(offset, largest.get(place, -1))
        earliest = None
        if settings.time_column in listed.values:
            earliest = listed.values[settings.time_column]
        elif settings.time_column:
            times = (_earliest(parquet, i, settings.time_column) for i in groups if rows[i])
            earliest = min((time for time in times if time is not None), default=None)
    file = HistoryFile(*listed[:3], rows, listed.values)
    return Inspected(file, frozenset(stored), largest, earliest, decoded)


def read(folder: Folder, piece: HistoryPiece, columns: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece with these columns of the file.

    Raises:
        HistoryError: If the file is not the same any more, or cannot be read.
    """
    file = piece.file
    with folder.open(file) as opened:
        parquet = pq.ParquetFile(
            opened, coerce_int96_timestamp_unit="us", pre_buffer=True, page_checksum_verification=True
        )
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


def _earliest(parquet: pq.ParquetFile, group: int, column: str) -> Any:
    """Return the earliest time in a row group; None if it has none. Spark's files mostly have no statistics of times."""
    found = _statistics(parquet, group).get(column)
    if found is not None:
        with suppress(OverflowError, ValueError):  # Python's times have only the years 1 to 9999
            return comparable(found.min)
    return earliest_time(parquet.read_row_group(group, columns=[column], use_threads=False)[column])


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
        return {place_of(known, shown): int(known["offset"])}
    return largest_offsets(parquet.read_row_group(group, columns=names, use_threads=False), values, shown)
