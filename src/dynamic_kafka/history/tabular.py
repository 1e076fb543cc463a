"""Histories of files that are read from their beginning: CSV, JSON (an object in each line) and ORC.

Their rows are counted by reading all of them once. A batch that begins in the middle of a file reads what is before it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dynamic_kafka.errors import HistoryError
from dynamic_kafka.history.columns import (
    COORDINATES,
    RECORD,
    check_columns,
    earliest_time,
    largest_offsets,
    stored_columns,
)
from dynamic_kafka.history.folder import Folder, ListedFile
from dynamic_kafka.history.model import HistoryFile, HistoryPiece, Inspected
from dynamic_kafka.history.settings import HistorySettings

__all__ = ["inspect", "read"]

_BATCH_ROWS = 20_000
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def inspect(folder: Folder, settings: HistorySettings, listed: ListedFile, *, with_offsets: bool) -> Inspected:
    """Read a file once, for its columns, its number of rows and its largest offsets.

    Raises:
        ConfigurationError: If its columns do not fit.
        HistoryError: If it cannot be read.
    """
    types = dict(RECORD) if settings.row is None else {**RECORD, **{field.name: field.type for field in settings.row}}
    if settings.format == "json":
        # A column of a given schema is there, also if the file does not have it. So its first block says what it has.
        with folder.open(listed) as opened:
            schema, _ = _open_json(_unpacked(opened, listed.path), [])
        types = {name: types[name] for name in schema.names if name in types}
    largest: dict[tuple[str, str, int], int] = {}
    earliest = listed.values.get(settings.time_column)
    rows = 0
    with folder.open(listed) as opened:
        schema, batches = _open(settings.format, opened, listed.path, types, only=None)
        stored = stored_columns(schema, listed.values)
        decoded = check_columns(folder.shown(listed.path), stored, settings)
        for batch in batches:
            if not len(batch):
                continue
            rows += len(batch)
            if with_offsets:
                names = [name for name in COORDINATES if name in batch.schema.names]
                found = largest_offsets(batch.select(names), listed.values, folder.shown(listed.path))
                largest |= {place: max(offset, largest.get(place, -1)) for place, offset in found.items()}
            if settings.time_column in batch.schema.names:
                time = earliest_time(batch[settings.time_column])
                earliest = time if earliest is None or (time is not None and time < earliest) else earliest
    return Inspected(HistoryFile(*listed[:3], (rows,), listed.values), frozenset(stored), largest, earliest, decoded)


def read(
    folder: Folder, file_format: str, piece: HistoryPiece, columns: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece with these columns of the file.

    Raises:
        HistoryError: If the file is not the same any more, or cannot be read.
    """
    position = 0
    with folder.open(piece.file) as opened:
        _, batches = _open(file_format, opened, piece.file.path, columns, only=list(columns))
        for batch in batches:
            begin, end = max(piece.first - position, 0), min(piece.last - position, len(batch))
            position += len(batch)
            for first in range(begin, end, _BATCH_ROWS):
                yield batch.slice(first, min(_BATCH_ROWS, end - first))
            if position >= piece.last:
                return
    raise HistoryError(folder.shown(piece.file.path), f"was changed: it ends after {position} rows")


def _open(
    file_format: str, opened: Any, path: str, types: Mapping[str, pa.DataType], *, only: list[str] | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of a file, and its batches: of these columns if they are given, else of all.

    Known columns are read as these types, all others as they look.
    """
    if file_format == "orc":
        from pyarrow.orc import ORCFile

        orc = ORCFile(opened)
        names = None if only is None else [name for name in only if name in orc.schema.names] or orc.schema.names[:1]
        return orc.schema, (orc.read_stripe(i, columns=names) for i in range(orc.nstripes))
    if file_format == "csv":
        from pyarrow import csv

        reader = csv.open_csv(
            _unpacked(opened, path),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            # As Spark writes them: nothing is null, and an empty text is in quotes.
            convert_options=csv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
        return reader.schema, iter(reader)
    return _open_json(_unpacked(opened, path), [*types.items()])


def _unpacked(opened: Any, path: str) -> Any:
    codec = next((codec for suffix, codec in _CODECS.items() if path.endswith(suffix)), None)
    return opened if codec is None else pa.CompressedInputStream(opened, codec)


def _open_json(stream: Any, types: list[tuple[str, pa.DataType]]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    from pyarrow import json

    options = json.ParseOptions(explicit_schema=pa.schema(types))
    if not hasattr(json, "open_json"):  # an older pyarrow
        table = json.read_json(stream, parse_options=options)
        return table.schema, iter(table.to_batches())
    reader = json.open_json(stream, parse_options=options)
    return reader.schema, iter(reader)
