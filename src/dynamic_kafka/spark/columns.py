"""The columns of `format("dynamic-kafka")`: the source's own, and those that only other parts of this package ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.history.model import HISTORY_ROW

if TYPE_CHECKING:
    from dynamic_kafka.source.settings import SourceSettings

__all__ = [
    "COLUMN_TYPES",
    "DECODED",
    "DECODING",
    "LAST_ROW",
    "LEFT_OUT",
    "check_columns",
    "with_columns",
]

DECODING = ("key.", "value.", "format.")
"""The beginnings of the names of options that decode the columns `key` and `value`; see `message_formats`."""
DECODED = "decoded"
"""The metadata of a column `key` or `value` of decoded messages that `sql.connectors.scan` asks for; see
`messages.column_of`."""
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMN_TYPES: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "cluster": StringType(),
    "headers": _HEADERS,
    "leader_epoch": IntegerType(),
}
"""The source's columns, in order. `rows` declares them again, as Arrow types: importing pyarrow here would cost every
Spark session 0.2 s, and the reader must not depend on Spark. A test compares the two."""


LEFT_OUT = "__left_out"
"""A column beside decoded ones that is true for a message that `format.on-error` leaves out, and null for all others. So
`sql.connectors.scan` can count these messages."""
_OPTIONAL = "optional"
LAST_ROW = "__last_row"
"""A column that is true in one row after the last record of a stream, and null in all others; see `last_row`."""


def check_columns(schema: StructType) -> None:
    """Check a schema, which may be the user's own.

    Raises:
        ConfigurationError: If it has a column that the source does not have, or that has another type there.
    """
    if not schema.fields:
        raise ConfigurationError(f"The schema has no column; name at least one of {', '.join(COLUMN_TYPES)}")
    for column in schema.fields:
        if column.name == HISTORY_ROW and _OPTIONAL in column.metadata:
            continue
        if column.name == LAST_ROW and column.dataType == BooleanType():
            continue
        expected = COLUMN_TYPES.get(column.name)
        if expected is None:
            raise ConfigurationError(
                f"Column '{column.name}' does not exist; the columns are {', '.join(COLUMN_TYPES)}"
            )
        if column.dataType != expected:
            raise ConfigurationError(
                f"Column '{column.name}' has the type {column.dataType.simpleString()} in the schema, but "
                f"the source has {expected.simpleString()}; {_remedy(column.name)}"
            )
    if len(set(schema.names)) < len(schema.names):
        raise ConfigurationError(f"A column is named twice in the schema: {', '.join(schema.names)}")


def _remedy(column: str) -> str:
    if column in ("key", "value"):
        return f"convert it after reading, or let the option '{column}.format' decode it"
    return "convert it after reading"


def with_columns(settings: SourceSettings, schema: StructType) -> SourceSettings:
    """Return the settings with the columns that a history should have, and with the last row if there is a column for it."""
    settings = replace(settings, last_row=LAST_ROW in schema.names)
    history = settings.history
    if history is None:
        return settings
    history = history._replace(columns=tuple(name for name in schema.names if name != LAST_ROW))
    if HISTORY_ROW in schema.names:
        from dynamic_kafka.formats.arrow import arrow_type

        column = schema[HISTORY_ROW]
        optional = frozenset(column.metadata[_OPTIONAL])
        history = history._replace(row=arrow_type(column.dataType), optional=optional)
    return replace(settings, history=history)
