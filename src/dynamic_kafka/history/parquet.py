"""Histories of Parquet files: what their footers say, and their rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate, groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dynamic_kafka.errors import HistoryError
from dynamic_kafka.history.columns import (
    check_columns,
    comparable,
    earliest_time,
    parts_of,
    stored_columns,
    time_column_of,
)
from dynamic_kafka.history.coverage import Part
from dynamic_kafka.history.folder import Folder, ListedFile
from dynamic_kafka.history.model import HistoryFile, HistoryPiece, Inspected, Place
from dynamic_kafka.history.settings import HistorySettings

__all__ = ["checksum", "inspect", "read"]

_BATCH_ROWS = 20_000


def inspect(
    folder: Folder, settings: HistorySettings, listed: ListedFile, *, cluster: str, with_offsets: bool
) -> Inspected:
    """Read a file's footer, its coordinates, and its times if the footer does not tell the earliest one.

    Args:
        folder: The folder.
        settings: The settings of the history.
        listed: The file.
        cluster: The column that says which cluster a row is of.
        with_offsets: Whether coordinates are read.

    Raises:
        ConfigurationError: If its columns do not fit.
        HistoryError: If it cannot be read.
    """
    with folder.open(listed) as opened:
        metadata = pq.read_metadata(opened)
        few = [name for name in metadata.schema.names if name in (cluster, "topic")]  # texts that are read as numbers
        parquet = pq.ParquetFile(opened, metadata=metadata, coerce_int96_timestamp_unit="us", read_dictionary=few)
        stored = stored_columns(parquet.schema_arrow, listed.values)
        shown = folder.shown(listed.path)
        decoded = check_columns(shown, stored, settings)
        groups = range(parquet.num_row_groups)
        rows = tuple(parquet.metadata.row_group(i).num_rows for i in groups)
        names = [name for name in (cluster, "topic", "partition", "offset") if name in parquet.schema_arrow.names]
        parts: list[tuple[Place, Part]] = []
        for i in groups if with_offsets else ():
            found = parquet.read_row_group(i, columns=names, use_threads=False)
            parts += parts_of(found, listed.values, shown, cluster=cluster, first_row=sum(rows[:i]))
        time_column = time_column_of(settings, stored, decoded=decoded)
        earliest = listed.values.get(time_column)
        if time_column and time_column not in listed.values:
            times = (_earliest(parquet, i, time_column) for i in groups if rows[i])
            earliest = min((time for time in times if time is not None), default=None)
        file = HistoryFile(*listed[:3], checksum(opened, listed.size), rows, listed.values)
    return Inspected(file, frozenset(stored), tuple(parts), earliest, decoded)


def checksum(opened: Any, size: int) -> int:
    """Return the checksum of a file's footer. It has the places, sizes and statistics of all columns."""
    length = int.from_bytes(opened.read_at(8, max(size - 8, 0))[:4], "little")
    return zlib.crc32(opened.read_at(length, max(size - 8 - length, 0)))


def read(
    folder: Folder,
    where: Callable[[pa.Schema], pc.Expression | None] | None,
    piece: HistoryPiece,
    columns: Mapping[str, pa.DataType],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece with these columns of the file, without row groups that have none of the wanted rows.

    Raises:
        HistoryError: If the file is not the same any more, or cannot be read.
    """
    file = piece.file
    assert isinstance(file, HistoryFile)
    with folder.open(file, checksum) as opened:
        parquet = pq.ParquetFile(
            opened, coerce_int96_timestamp_unit="us", pre_buffer=True, page_checksum_verification=True
        )
        if tuple(parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)) != file.rows:
            raise HistoryError(folder.shown(file.path), "was written again")
        found = None if where is None else _on_statistics(parquet.schema_arrow, columns, where)
        wanted = range(len(file.rows)) if found is None else _wanted_groups(opened, parquet.schema_arrow, found)
        starts = [0, *accumulate(file.rows)]
        groups = [i for i in wanted if starts[i] < piece.last and starts[i + 1] > piece.first]
        # Groups that follow each other are read together.
        for _, run in groupby(enumerate(groups), lambda numbered: numbered[1] - numbered[0]):
            together = [group for _, group in run]
            position = starts[together[0]]
            for batch in parquet.iter_batches(_BATCH_ROWS, together, list(columns), use_threads=False):
                begin, end = max(piece.first - position, 0), min(piece.last - position, len(batch))
                position += len(batch)
                if begin < end:
                    yield batch.slice(begin, end - begin)
                if position >= piece.last:
                    break


def _on_statistics(
    schema: pa.Schema,
    columns: Mapping[str, pa.DataType],
    where: Callable[[pa.Schema], pc.Expression | None],
) -> pc.Expression | None:
    """Return the conditions that the statistics of row groups can answer.

    Those of whole numbers and times can, where the file has the column's type: those of floating numbers leave out NaN, and
    those of texts have had another order in some versions of Parquet.
    """
    known = (f for f in schema if f.type == columns.get(f.name))
    return where(pa.schema([f for f in known if pa.types.is_integer(f.type) or pa.types.is_temporal(f.type)]))


def _wanted_groups(opened: Any, schema: pa.Schema, found: pc.Expression) -> list[int]:
    """Return the row groups of a file that may have wanted rows."""
    import pyarrow.dataset as ds

    fragment = ds.ParquetFileFormat().make_fragment(opened)
    return [group.id for group in fragment.subset(found, schema).row_groups]


def _earliest(parquet: pq.ParquetFile, group: int, column: str) -> Any:
    """Return the earliest time in a row group; None if it has none. Spark's files mostly have no statistics of times."""
    metadata = parquet.metadata.row_group(group)
    names = [metadata.column(i).path_in_schema for i in range(metadata.num_columns)]
    found = metadata.column(names.index(column)).statistics if column in names else None
    if found is not None and found.has_min_max:
        with suppress(OverflowError, ValueError):  # Python's times have only the years 1 to 9999
            return comparable(found.min)
    return earliest_time(parquet.read_row_group(group, columns=[column], use_threads=False)[column])
