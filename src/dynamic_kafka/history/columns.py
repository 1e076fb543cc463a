"""From the columns of a file to those of the source: which types fit, and how they are converted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import ConfigurationError, listed
from dynamic_kafka.history.coverage import Part, part_of
from dynamic_kafka.history.model import Place
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.rows import COLUMNS

__all__ = [
    "check_columns",
    "comparable",
    "converted",
    "earlier",
    "earliest_time",
    "is_of_records",
    "parts_of",
    "place_of",
    "stored_columns",
    "time_column_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEEDED = ("value", "topic", "partition", "offset")
_EXPECTED = {
    pa.binary(): "binary or string",
    pa.string(): "string",
    pa.int32(): "a whole number",
    pa.int64(): "a whole number",
}


def is_of_records(names: Collection[str]) -> bool:
    """Return whether files with these columns hold records as the source returns them."""
    return set(names).issuperset(_NEEDED)


def stored_columns(schema: pa.Schema, values: Mapping[str, str | None]) -> dict[str, pa.DataType]:
    """Return the columns of a file with those in the names of its folders, by name."""
    # What is in the name of a folder is a text that stands for a value of any type.
    return {**{field.name: field.type for field in schema}, **{name: pa.null() for name in values}}


def check_columns(shown: str, stored: Mapping[str, pa.DataType], settings: HistorySettings) -> bool:
    """Check that a file's rows can be rows of the source, and return whether they are rows of the table, decoded.

    Args:
        shown: The file.
        stored: Its columns.
        settings: The settings of the history.

    Raises:
        ConfigurationError: If a column is missing, or has a type that does not fit.
    """
    decoded = not is_of_records(stored.keys()) and settings.row is not None
    wanted = {field.name: field.type for field in settings.row} if decoded else COLUMNS
    needed = [name for name in wanted if name not in settings.optional] if decoded else _NEEDED
    if missing := [f"'{name}'" for name in needed if name not in stored]:
        found = f"The history's file '{shown}' has no column {listed(missing)}; it has {listed(list(stored), 12)}"
        if settings.row is not None:
            raise ConfigurationError(
                f"{found}. Its columns have to be those of the table, or those of Kafka's records: {', '.join(_NEEDED)}"
            )
        raise ConfigurationError(
            f"{found}. A history for format('dynamic-kafka') holds Kafka's records: it needs {', '.join(_NEEDED)}, and may "
            f"have {', '.join(name for name in COLUMNS if name not in _NEEDED)}. For a history of other columns, define a "
            "table in SQL"
        )
    for name, type_ in wanted.items():
        if name in stored and not _fits(stored[name], type_):
            raise ConfigurationError(
                f"The history's file '{shown}' has the column '{name}' with the type {stored[name]}; expected "
                f"{_EXPECTED.get(type_, str(type_))}"
            )
    time_column = settings.time_column or (settings.limit.column if settings.limit is not None else "")
    if time_column and time_column not in stored:
        raise ConfigurationError(
            f"The history's file '{shown}' has no column '{time_column}'. Name the column with the time of its rows by "
            "history.time-column"
        )
    if decoded and settings.switch == "coordinates" and not stored.keys() >= {"topic", "partition", "offset"}:
        raise ConfigurationError(
            f"The history's file '{shown}' does not say where Kafka goes on: it has no columns topic, partition and offset. "
            "Set history.switch to timestamp or starting-offsets"
        )
    return decoded


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column with the type of the source's; raise ValueError if a value does not fit."""
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = pc.assume_timezone(column, "UTC")  # Spark's older files have instants without a time zone
    # Parts of a microsecond are nothing that Spark's timestamps can hold.
    return pc.cast(column, wanted, safe=not pa.types.is_timestamp(wanted))


def time_column_of(settings: HistorySettings, stored: Collection[str], *, decoded: bool) -> str:
    """Return the column with the time of a file's rows; "" if it is not known which one it is.

    Args:
        settings: The settings of the history.
        stored: The columns of the file.
        decoded: True if its rows are those of a table, which may have any columns.
    """
    if settings.time_column or settings.limit is not None:
        return settings.time_column or getattr(settings.limit, "column", "")
    return "timestamp" if "timestamp" in stored and not decoded else ""


def parts_of(
    rows: pa.Table | pa.RecordBatch, values: Mapping[str, str | None], shown: str, *, cluster: str, first_row: int
) -> list[tuple[Place, Part]]:
    """Return the offsets of some rows, by cluster, topic and partition.

    Args:
        rows: Rows with those of the columns that are in the file.
        values: Those that are in the names of its folders.
        shown: The file.
        cluster: The column that says which cluster a row is of.
        first_row: The number of the first row.

    Raises:
        ConfigurationError: If a row has no offset, or does not say whose it is.
    """
    types = {cluster: COLUMNS["cluster"], **{name: COLUMNS[name] for name in ("topic", "partition", "offset")}}
    columns = {}
    for name, type_ in types.items():
        if name in rows.schema.names:
            column = pa.chunked_array(rows[name]).combine_chunks()
            encoded = name in (cluster, "topic") and pa.types.is_dictionary(column.type) and not column.null_count
            columns[name] = column if encoded else converted(column, type_)
    lacking = [name for name, found in columns.items() if found.null_count and name != cluster]
    if lacking or "offset" not in columns:
        raise ConfigurationError(
            f"The history's file '{shown}' has rows without '{(lacking or ['offset'])[0]}', so it does not say where Kafka "
            "goes on. Set history.switch to starting-offsets or timestamp"
        )
    offsets = columns.pop("offset").to_numpy(zero_copy_only=False)
    if not len(offsets):
        return []
    places = np.zeros(len(offsets), np.int64)  # a number for each combination of the others
    for column in columns.values():
        encoded = column
        if not pa.types.is_dictionary(column.type):
            encoded = pc.dictionary_encode(pc.fill_null(column, "") if column.null_count else column)
        if len(encoded.dictionary) > 1:
            places = places * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(places, kind="stable") if (places != places[0]).any() else np.arange(len(places))
    begins = [0, *(np.flatnonzero(np.diff(places[order])) + 1).tolist(), len(order)]
    found = []
    for begin, end in pairwise(begins):
        mine = order[begin:end]
        row = {name: column[int(mine[0])].as_py() for name, column in columns.items()}
        place = place_of({**values, **row, "cluster": row.get(cluster, values.get(cluster))}, shown)
        found.append((place, part_of(offsets[mine], mine + first_row)))
    return found


def earliest_time(column: pa.ChunkedArray | pa.Array) -> Any:
    """Return the earliest time of a column, as `comparable` does; None if it has none."""
    if pa.types.is_timestamp(column.type):  # no Python time, which has only the years 1 to 9999
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit]
        least = pc.min(column.cast(pa.int64())).as_py()
        return None if least is None else least * 1_000_000 // per_second
    return comparable(pc.min(column).as_py())


def comparable(time: Any) -> Any:
    """Return a time that can be compared with those of other files: microseconds since 1970, if it is an instant."""
    if not isinstance(time, datetime):
        return time
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)


def earlier(one: Any, other: Any) -> Any:
    """Return the earlier one of two times, of which each may be None."""
    return min((time for time in (one, other) if time is not None), default=None)


def place_of(row: Mapping[str, Any], shown: str) -> tuple[str, str, int]:
    """Return cluster, topic and partition of a row, of which some may be texts of the names of folders.

    Raises:
        ConfigurationError: If one is missing, or the partition is no number.
    """
    topic, partition = row["topic"], row["partition"]
    if topic is None or partition is None or not str(partition).isdecimal():
        problem = f"rows without '{'topic' if topic is None else 'partition'}'"
        if topic is not None and partition is not None:
            problem = f"'{partition}' for a partition"
        raise ConfigurationError(
            f"The history's file '{shown}' has {problem}, so it does not say where Kafka goes on. Set history.switch to "
            "starting-offsets or timestamp"
        )
    return str(row["cluster"] or ""), str(topic), int(partition)


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    of_text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    of_bytes = pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_binary_view(found)
    if pa.types.is_null(found):
        fits = True
    elif pa.types.is_string(wanted):
        fits = of_text
    elif pa.types.is_binary(wanted):
        fits = of_text or of_bytes or pa.types.is_fixed_size_binary(found)
    elif pa.types.is_integer(wanted):
        fits = pa.types.is_integer(found)
    elif pa.types.is_timestamp(wanted):  # a time without a zone is UTC; the other way round, hours would be lost
        fits = pa.types.is_timestamp(found) and (wanted.tz is not None or found.tz is None)
    elif pa.types.is_floating(wanted):
        fits = pa.types.is_floating(found) or pa.types.is_integer(found)
    elif pa.types.is_decimal(wanted):
        fits = pa.types.is_decimal(found) or pa.types.is_integer(found)
    elif pa.types.is_boolean(wanted) or pa.types.is_date(wanted) or pa.types.is_time(wanted):
        fits = any(is_(wanted) and is_(found) for is_ in (pa.types.is_boolean, pa.types.is_date, pa.types.is_time))
    else:
        fits = _can_be_cast(found, wanted)
    return bool(fits)


def _can_be_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        pa.nulls(0, found).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
