"""Histories of files that are read from their beginning: CSV, JSON (an object in each line) and ORC.

Their rows are counted by reading all of them once. A batch that begins in the middle of a file reads what is before it, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dynamic_kafka.errors import ConfigurationError, HistoryError, listed
from dynamic_kafka.history.columns import (
    check_columns,
    earlier,
    earliest_time,
    is_of_records,
    parts_of,
    stored_columns,
    time_column_of,
)
from dynamic_kafka.history.coverage import Part
from dynamic_kafka.history.csv_text import CSV_FORMATS, Rfc4180Text
from dynamic_kafka.history.folder import Folder, ListedFile
from dynamic_kafka.history.model import HistoryFile, HistoryPiece, Inspected, Place
from dynamic_kafka.history.orc_zones import writer_zones
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.rows import COLUMNS

__all__ = ["checksum", "inspect", "read"]

_BATCH_ROWS = 20_000
_BLOCK_BYTES = 1 << 20
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def inspect(
    folder: Folder, settings: HistorySettings, listed: ListedFile, *, cluster: str, with_offsets: bool
) -> Inspected:
    """Read a file once, for its columns, its number of rows, their offsets and times. See `parquet.inspect`.

    Raises:
        ConfigurationError: If its columns do not fit.
        HistoryError: If it cannot be read.
    """
    shown, file_format = folder.shown(listed.path), settings.format
    types = dict(COLUMNS) if settings.row is None else {**COLUMNS, **{field.name: field.type for field in settings.row}}
    times = {settings.time_column, settings.limit.column if settings.limit is not None else ""} - {"", *types}
    is_json = file_format == "json"
    if file_format in CSV_FORMATS or (is_json and times):
        with folder.open(listed) as opened:
            looks = _look(file_format, _unpacked(opened, listed.path))
        types |= {name: looks.field(name).type for name in times if name in looks.names}
        if not is_json:
            types = {name: types[name] for name in looks.names if name in types}
            check_columns(shown, stored_columns(pa.schema([*types.items()]), listed.values), settings)
    parts: list[tuple[Place, Part]] = []
    earliest: Any = listed.values.get(settings.time_column)
    rows = 0
    there: set[str] = set()  # in JSON a field without a value is often left out, so only rows say which ones there are
    with folder.open(listed) as opened:
        schema, batches = _open(file_format, opened, listed.path, types, only=None)
        if file_format == "orc":
            _check_zones(shown, opened, schema, types)
            types = {field.name: field.type for field in schema}
            check_columns(shown, stored_columns(schema, listed.values), settings)
        for batch in batches:
            if not len(batch):
                continue
            there |= {name for name in batch.schema.names if batch[name].null_count < len(batch)}
            names = [name for name in batch.schema.names if name in there or not is_json]
            if with_offsets:
                parts += parts_of(batch.select(names), listed.values, shown, cluster=cluster, first_row=rows)
            rows += len(batch)
            decoded = settings.row is not None and not is_of_records({*names, *listed.values})
            time_column = time_column_of(settings, names, decoded=decoded)
            if time_column in batch.schema.names:
                earliest = earlier(earliest, earliest_time(batch[time_column]))
    if is_json:
        # Kafka's records without a value have no field `value`.
        there |= {"value"} if settings.row is None else set()
        types = {name: type_ for name, type_ in types.items() if name in there}
    stored = stored_columns(pa.schema([*types.items()]), listed.values)
    decoded = check_columns(shown, stored, settings)
    with folder.open(listed) as opened:
        file = HistoryFile(*listed[:3], checksum(opened, listed.size), (rows,), listed.values)
    return Inspected(file, frozenset(stored), tuple(parts), earliest, decoded)


def checksum(opened: Any, size: int) -> int:
    """Return the checksum of a file, which has no part that stands for all of it."""
    found = 0
    for begin in range(0, size, _BLOCK_BYTES):
        found = zlib.crc32(opened.read_at(_BLOCK_BYTES, begin), found)
    return found


def read(
    folder: Folder, file_format: str, piece: HistoryPiece, columns: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece with these columns of the file.

    Raises:
        HistoryError: If the file is not the same any more, or cannot be read.
    """
    position = 0
    assert isinstance(piece.file, HistoryFile)
    with folder.open(piece.file, checksum) as opened:
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
    """Return the schema of a file, and its batches: of these columns if they are given, else of those with a type."""
    if file_format == "orc":
        from pyarrow.orc import ORCFile

        orc = ORCFile(opened)
        names = None if only is None else [name for name in only if name in orc.schema.names] or orc.schema.names[:1]
        return orc.schema, (orc.read_stripe(i, columns=names) for i in range(orc.nstripes))
    stream = _unpacked(opened, path)
    if file_format in CSV_FORMATS:
        # Without a column nothing would count the rows.
        names = (list(types) if only is None else only) or ["value"]
        reader = _csv(file_format, stream, types or {"value": pa.binary()}, names)
        return reader.schema, iter(reader)
    return _json(stream, [*types.items()])


def _check_zones(shown: str, opened: Any, schema: pa.Schema, wanted: Mapping[str, pa.DataType]) -> None:
    """Raise if times of an ORC file are those of a clock that is not in UTC: they would be read as if it were."""
    instants = (name for name, type_ in wanted.items() if pa.types.is_timestamp(type_) and type_.tz is not None)
    local = [n for n in instants if n in schema.names and getattr(schema.field(n).type, "tz", "") is None]
    if local and (zones := writer_zones(opened)):
        raise ConfigurationError(
            f"The history's file '{shown}' has times of the zone {listed([zone or 'unknown' for zone in sorted(zones)])} in "
            f"the column '{local[0]}', which would be taken for UTC. Write it as Parquet, or with a JVM in UTC "
            "(-Duser.timezone=UTC)"
        )


def _unpacked(opened: Any, path: str) -> Any:
    codec = next((codec for suffix, codec in _CODECS.items() if path.endswith(suffix)), None)
    return opened if codec is None else pa.CompressedInputStream(opened, codec)


def _look(file_format: str, stream: Any) -> pa.Schema:
    """Return the columns of a file of text, by its first block."""
    return _csv(file_format, stream, {}, []).schema if file_format in CSV_FORMATS else _json(stream, None)[0]


def _csv(file_format: str, stream: Any, types: Mapping[str, pa.DataType], names: list[str]) -> Any:
    """Return a reader of these columns, by default of all; those that the file does not have are null."""
    from pyarrow import csv

    return csv.open_csv(
        Rfc4180Text(stream, file_format),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        # As Spark writes them: null is nothing, an empty text is in quotes, and NA or null are texts.
        convert_options=csv.ConvertOptions(
            column_types=dict(types),
            include_columns=names,
            include_missing_columns=True,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _json(stream: Any, types: list[tuple[str, pa.DataType]] | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of a file, with these columns alone; without them, with all of its first block."""
    from pyarrow import json

    options = json.ParseOptions(
        explicit_schema=None if types is None else pa.schema(types),
        unexpected_field_behavior="infer" if types is None else "ignore",
    )
    if not hasattr(json, "open_json"):  # an older pyarrow
        table = json.read_json(stream, parse_options=options)
        return table.schema, iter(table.to_batches())
    reader = json.open_json(stream, parse_options=options)
    return reader.schema, iter(reader)
