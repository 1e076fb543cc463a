"""The columns that a Protobuf message has, for tables without columns. All of them can be read by `decoding`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.format import count_part, parts_left
from dynamic_kafka.formats.protobuf.types import DURATION, JSON_VALUES, entry_of, is_map, message_of, type_name, wrapped

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["columns_of"]

_SIMPLE: dict[str, DataType] = {
    "bool": BooleanType(),
    **dict.fromkeys(("int32", "sint32", "sfixed32", "uint32", "fixed32"), IntegerType()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), LongType()),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
    "enum": StringType(),
}


def columns_of(message: Descriptor) -> StructType:
    """Return the columns of a message type. Unsigned numbers are INT and BIGINT, as in Flink.

    Raises:
        ConfigurationError: If a field contains itself, is a message without fields, or there are too many.
    """
    return _columns(message, "", (), parts_left())


def _columns(message: Descriptor, path: str, within: tuple[str, ...], left: Iterator[int]) -> StructType:
    if message.full_name in within or not message.fields:
        why = "contains itself" if message.fields else "has no fields"
        raise ConfigurationError(
            f"{f'Field {path!r} of the' if path else 'The'} message {message.full_name} {why}, so it cannot be a column. "
            "Write the columns by hand"
        )
    inside = (*within, message.full_name)
    return StructType(
        [StructField(f.name, _type(f, f"{path}.{f.name}".lstrip("."), inside, left)) for f in message.fields]
    )


def _type(field: FieldDescriptor, path: str, within: tuple[str, ...], left: Iterator[int]) -> DataType:
    count_part(left)
    if is_map(field):
        key, value = entry_of(field)
        return MapType(_one(key, path, within, left), _one(value, path, within, left))
    found = _one(field, path, within, left)
    return ArrayType(found) if field.is_repeated else found


def _one(field: FieldDescriptor, path: str, within: tuple[str, ...], left: Iterator[int]) -> DataType:
    if field.message_type is None:
        return _SIMPLE[type_name(field)]
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return TimestampType()
    if name == DURATION:
        return DayTimeIntervalType()
    if name in JSON_VALUES:
        return StringType()
    if (value := wrapped(field)) is not None:
        return _SIMPLE[type_name(value)]
    return _columns(message_of(field), path, within, left)
