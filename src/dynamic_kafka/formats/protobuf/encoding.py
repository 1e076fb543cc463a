"""Arrow columns to Protobuf messages.

The native kernel encodes the batches that it is certain about (`native_spec`). Otherwise each column first becomes a list of
arguments for messages: no nulls where Protobuf has none, enums as numbers, timestamps as seconds and nanoseconds. Then upb
makes a message of each row's arguments and serializes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dynamic_kafka.errors import RowError
from dynamic_kafka.formats.protobuf.required import has_required, lacking
from dynamic_kafka.formats.protobuf.types import (
    STRINGS,
    TIMESTAMPS,
    check_types,
    entry_of,
    enum_of,
    field_of,
    is_map,
    kind_of,
    message_of,
    type_name,
    unsigned_type,
)
from dynamic_kafka.formats.protobuf.well_known import wrapped, write_durations, write_json

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql.types import DataType, StructType

    from dynamic_kafka.formats.protobuf.descriptors import MessageType

__all__ = ["Encoder", "encoder", "native_spec"]

Encoder = Callable[[pa.StructArray], list[bytes | None]]
"""Returns a message for each row; None for null."""
_Writer = Callable[[pa.Array], list[Any]]
"""Returns an argument for each message."""

_CHUNK = 1000


def encoder(message: MessageType, columns: StructType, null_literal: str) -> Encoder:
    """Return a function that encodes rows; it raises `RowError` for a row that the message cannot hold.

    Columns that are null are not set. An element, or a map's key or value, cannot be null in Protobuf: it gets the default
    of its type, or, for a text, the literal. A name or number that an enum does not have becomes its first value (Flink:
    PbCodegenUtils, PbCodegenSimpleSerializer). If several columns of a oneof are not null, the last one is set.

    Args:
        message: The message type.
        columns: The table's columns.
        null_literal: The text for a null in an array or a map.

    Raises:
        ConfigurationError: If a column is not a field, or the field cannot hold its values.
    """
    from google.protobuf.message import EncodeError
    from google.protobuf.message_factory import GetMessageClass

    descriptor = message.descriptor
    make: Callable[..., Any] = GetMessageClass(descriptor)
    write = _row_writer(descriptor, columns, "", null_literal)

    def make_checked(**row: Any) -> Any:
        made = make(**row)
        if not made.IsInitialized():
            raise EncodeError
        return made

    make_whole = make_checked if has_required(descriptor) else make

    def encode_chunk(rows: pa.StructArray) -> list[bytes | None]:
        arguments = write(rows)
        try:
            # Deterministic: another order of a map's entries would make another key.
            return [
                None if row is None else make_whole(**row).SerializeToString(deterministic=True) for row in arguments
            ]
        except (ValueError, TypeError, EncodeError):
            for row in filter(None, arguments):
                _check_row(descriptor, make, row)
            raise

    def encode(rows: pa.StructArray) -> list[bytes | None]:
        encoded: list[bytes | None] = []
        for start in range(0, len(rows), _CHUNK):
            encoded += encode_chunk(rows.slice(start, _CHUNK))
        return encoded

    return encode


def _check_row(descriptor: Descriptor, make: Callable[..., Any], row: dict[str, Any]) -> None:
    for name, value in row.items():
        try:
            make(**{name: value})
        except (ValueError, TypeError):
            raise RowError(name, f"holds a value that does not fit field {descriptor.full_name}.{name}") from None
    if (path := next(lacking(make(**row)), None)) is not None:
        raise RowError(path, f"is null or missing, but is a required field of message {descriptor.full_name}")


def _row_writer(descriptor: Descriptor, columns: StructType, where: str, null_literal: str) -> _Writer:
    """Return a writer of structs; `where` is the path to them, with a dot at the end."""
    names = [column.name for column in columns.fields]
    writers: list[_Writer] = []
    for column in columns.fields:
        path = f"{where}{column.name}"
        writers.append(_field_writer(field_of(descriptor, path), column.dataType, path, null_literal))

    def write(rows: pa.Array) -> list[Any]:
        values = [write(array) for write, array in zip(writers, rows.flatten(), strict=True)]
        arguments: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        if rows.null_count:
            return [row if valid else None for row, valid in zip(arguments, rows.is_valid().to_pylist(), strict=True)]
        return arguments

    return write if writers else lambda rows: rows.to_pylist()


def _field_writer(field: FieldDescriptor, type_: DataType, column: str, null_literal: str) -> _Writer:
    check_types(field, type_, column)
    of: Any = type_
    if is_map(field):
        key, value = entry_of(field)
        write_keys = _element_writer(key, of.keyType, f"{column}.key", null_literal)
        write_values = _element_writer(value, of.valueType, f"{column}.value", null_literal)

        def write_maps(maps: pa.MapArray) -> list[Any]:
            first, ranges = _ranges(maps)
            keys, values = write_keys(maps.keys.slice(*first)), write_values(maps.items.slice(*first))
            return [dict(zip(keys[begin:end], values[begin:end], strict=True)) for begin, end in ranges]

        return write_maps
    if field.is_repeated:
        write_elements = _element_writer(field, of.elementType, column, null_literal)

        def write_lists(lists: pa.ListArray) -> list[Any]:
            first, ranges = _ranges(lists)
            elements = write_elements(lists.values.slice(*first))
            return [elements[begin:end] for begin, end in ranges]

        return write_lists
    return _value_writer(field, type_, column, null_literal)


def _ranges(lists: pa.ListArray) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    """Return the begin and the number of the values of all lists, and each list's begin and end among them.

    A list that is null is empty.
    """
    offsets = lists.offsets.to_pylist()
    begins, ends = ([offset - offsets[0] for offset in some] for some in (offsets[:-1], offsets[1:]))
    if lists.null_count:
        ends = [
            end if valid else begin
            for begin, end, valid in zip(begins, ends, lists.is_valid().to_pylist(), strict=True)
        ]
    return (offsets[0], offsets[-1] - offsets[0]), list(zip(begins, ends, strict=True))


def _element_writer(field: FieldDescriptor, type_: DataType, column: str, null_literal: str) -> _Writer:
    """Return a writer as `_value_writer` does, with defaults for nulls."""
    check_types(field, type_, column, element=True)
    write = _value_writer(field, type_, column, null_literal)
    if field.message_type is not None:
        return lambda values: [{} if value is None else value for value in write(values)]
    if field.enum_type is not None:
        default: Any = enum_of(field).values[0].number
    elif field.type == field.TYPE_STRING:
        default = null_literal
    else:
        default = {"boolean": False, "binary": b""}.get(kind_of(type_), 0)
    return lambda values: [default if value is None else value for value in write(values)]


def _value_writer(field: FieldDescriptor, type_: DataType, column: str, null_literal: str) -> _Writer:
    kind = kind_of(type_)
    if kind == "struct":
        columns: Any = type_
        return _row_writer(message_of(field), columns, f"{column}.", null_literal)
    if kind in TIMESTAMPS:
        return _write_timestamps
    if (value := wrapped(field)) is not None:
        write = _value_writer(value, type_, column, null_literal)
        return lambda array: [None if v is None else {"value": v} for v in write(array)]
    if field.message_type is not None:
        return write_durations if kind == "interval" else write_json(field, column)
    if field.enum_type is not None:
        values = enum_of(field).values
        numbers = {value.name if kind in STRINGS else value.number: value.number for value in values}
        numbers_or_null: dict[Any, Any] = {**numbers, None: None}
        first = values[0].number
        return lambda array: [numbers_or_null.get(value, first) for value in array.to_pylist()]
    if (unsigned := unsigned_type(field, kind)) is not None:
        return lambda array: array.view(unsigned).to_pylist()
    return lambda array: array.to_pylist()


def _write_timestamps(array: pa.Array) -> list[Any]:
    micros = array.cast(pa.int64()).to_pylist()
    return [
        None if value is None else {"seconds": value // 1_000_000, "nanos": value % 1_000_000 * 1000}
        for value in micros
    ]


# --- for the native kernel ----------------------------------------------------------------------------------------------


def native_spec(message: MessageType, columns: StructType, null_literal: str) -> dict[str, Any]:
    """Return what the native kernel is told to encode rows; the arguments are those of `encoder`, which checks them."""
    fields = _native_fields(message.descriptor, columns)
    return {"format": "protobuf", "message": fields, "null_literal": null_literal}


def _native_fields(descriptor: Descriptor, columns: StructType) -> list[dict[str, Any]]:
    # The kernel refuses a required field without a column, and the library has the error.
    found: list[dict[str, Any]] = [
        {"lacking": field.name} for field in descriptor.fields if field.is_required and field.name not in columns.names
    ]
    for place, column in enumerate(columns.fields):
        field = field_of(descriptor, column.name)
        described: dict[str, Any] = {"column": place, "number": field.number}
        of: Any = column.dataType
        if is_map(field):
            key, value = entry_of(field)
            described |= {"count": "map", "key": type_name(key), **_native_value(value, of.valueType)}
        elif field.is_repeated:
            count = "packed" if field.is_packed else "unpacked"
            described |= {"count": count, **_native_value(field, of.elementType)}
        else:
            count = "required" if field.is_required else "explicit" if field.has_presence else "implicit"
            described |= {"count": count, **_native_value(field, of)}
        if field.containing_oneof is not None:
            described["oneof"] = field.containing_oneof.name
        found.append(described)
    return found


def _native_value(field: FieldDescriptor, type_: DataType) -> dict[str, Any]:
    columns: Any = type_
    if kind_of(type_) in TIMESTAMPS:
        return {"type": "timestamp"}
    if field.message_type is not None:
        if field.type == field.TYPE_GROUP or kind_of(type_) != "struct":
            return {"type": "group"}  # which the kernel refuses
        return {"type": "message", "fields": _native_fields(field.message_type, columns)}
    if field.enum_type is not None:
        values = enum_of(field).values
        return {"type": "enum", "values": {v.name: v.number for v in values}, "first": values[0].number}
    return {"type": type_name(field)}
