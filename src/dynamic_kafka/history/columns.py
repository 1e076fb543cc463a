"""From the columns of a file to those of the source: which types fit, and how they are converted."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import ConfigurationError, listed

__all__ = ["COORDINATES", "check_columns", "converted", "is_of_records", "stored_columns"]

RECORD: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "cluster": pa.string(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "leader_epoch": pa.int32(),
}
"""The columns of the source, as `source.rows.COLUMNS`; a test compares the two."""
COORDINATES = ("cluster", "topic", "partition", "offset")
_NEEDED = ("value", "topic", "partition", "offset")
_EXPECTED = {
    pa.binary(): "binary or string",
    pa.string(): "string",
    pa.int32(): "a whole number",
    pa.int64(): "a whole number",
}


def is_of_records(names: set[str]) -> bool:
    """Return whether files with these columns hold records as the source returns them."""
    return names.issuperset(_NEEDED)


def stored_columns(schema: pa.Schema, values: Mapping[str, str | None]) -> dict[str, pa.DataType]:
    """Return the columns of a file with those in the names of its folders, by name."""
    return {**{field.name: field.type for field in schema}, **{name: pa.string() for name in values}}


def check_columns(shown: str, stored: Mapping[str, pa.DataType]) -> None:
    """Check that a file's rows can be rows of the source.

    Args:
        shown: The file.
        stored: Its columns.

    Raises:
        ConfigurationError: If a column is missing, or has a type that does not fit.
    """
    if missing := [f"'{name}'" for name in _NEEDED if name not in stored]:
        raise ConfigurationError(
            f"The history's file '{shown}' has no column {listed(missing)}; it has "
            f"{listed(list(stored), 12)}. A history for format('dynamic-kafka') holds Kafka's records: it needs "
            f"{', '.join(_NEEDED)}, and may have {', '.join(name for name in RECORD if name not in _NEEDED)}"
        )
    for name, wanted in RECORD.items():
        if name in stored and not _fits(stored[name], wanted):
            raise ConfigurationError(
                f"The history's file '{shown}' has the column '{name}' with the type {stored[name]}; expected "
                f"{_EXPECTED.get(wanted, str(wanted))}"
            )


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column with the type of the source's; raise ValueError if a value does not fit."""
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = pc.assume_timezone(column, "UTC")  # Spark's older files have instants without a time zone
    # Parts of a microsecond are nothing that Spark's timestamps can hold.
    return pc.cast(column, wanted, safe=not pa.types.is_timestamp(wanted))


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
        fits = pa.types.is_integer(found) or pa.types.is_string(found)  # texts are those of folders
    elif pa.types.is_timestamp(wanted):
        fits = pa.types.is_timestamp(found)
    else:
        fits = _can_be_cast(found, wanted)
    return bool(fits)


def _can_be_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        pa.nulls(0, found).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
