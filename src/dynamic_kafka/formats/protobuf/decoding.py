"""Protobuf messages to Arrow columns.

A message is parsed by upb, Google's parser in C. Then each column is read from many messages at once: the list of a field's
values becomes one Arrow array. No row becomes a Python object. A chunk is a thousand messages, so that they stay in the
processor's cache (measured: twice as fast as a hundred thousand).

A field that is not in a message is read by Flink's rule (PbCodegenRowDeserializer, FLINK-33817): null, or with
`read-default-values` the field's default. A field without presence (a plain scalar of proto3) always has its default. A
repeated field or map without elements is not in the message. There is one difference: an `optional` scalar of proto3 has
presence, so it may be null; Flink treats it as a plain scalar.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.formats.arrow import arrow_type, bisect_errors
from dynamic_kafka.formats.format import ERROR
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
    unsigned_type,
)
from dynamic_kafka.formats.protobuf.well_known import durations, json_texts, wrapped

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql.types import DataType, StructType

    from dynamic_kafka.formats.protobuf.descriptors import MessageType

__all__ = ["Decoder", "Missing", "decoder", "with_errors"]

Decoder = Callable[[Sequence[bytes | None]], pa.StructArray]
"""Returns a struct of the columns and `ERROR` for each message; null for None, and for errors that are ignored."""
_Reader = Callable[[list[Any]], pa.Array]

_CHUNK = 1000
# Java's name for a number that an enum does not have; Flink shows it, too.
_UNRECOGNIZED = "UNRECOGNIZED"
# The range of a Timestamp by its definition; Python supports no other times.
_FIRST_TIME_US, _LAST_TIME_US = -62_135_596_800_000_000, 253_402_300_799_999_999


class Missing(NamedTuple):
    """The values of fields and columns that are missing.

    Args:
        defaults: If true, a field that is not in a message has its default instead of null.
        columns: If true, a column that is not a field is null instead of an error.
    """

    defaults: bool
    columns: bool = False


def decoder(message: MessageType, columns: StructType, missing: Missing, *, ignore_errors: bool) -> Decoder:
    """Return a function that decodes messages.

    Args:
        message: The message type.
        columns: The table's columns.
        missing: The values of fields and columns that are missing.
        ignore_errors: If true, a message that cannot be decoded is null instead of an error.

    Raises:
        ConfigurationError: If a column is not a field, or cannot hold its values.
    """
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    descriptor = message.descriptor
    from_string: Callable[[Any], Any] = GetMessageClass(descriptor).FromString
    read = _row_reader(descriptor, columns.toNullable(), "", missing)

    def parse_checked(payload: Any) -> Any:
        made = from_string(payload)
        if not made.IsInitialized():
            raise DecodeError(f"Message of type '{message.name}' lacks required fields: {', '.join(lacking(made))}")
        return made

    parse = parse_checked if has_required(descriptor) else from_string

    def parse_each(payloads: Iterable[bytes | None]) -> tuple[list[Any], list[int | None], list[str | None]]:
        """Return the messages that can be parsed, and for each payload the index of its message or its error."""
        messages: list[Any] = []
        places: list[int | None] = []
        errors: list[str | None] = []
        for payload in payloads:
            place = error = None
            if payload is not None:
                try:
                    messages.append(parse(payload))
                    place = len(messages) - 1
                except DecodeError as reason:
                    error = str(reason)
            places.append(place)
            errors.append(error)
        return messages, places, errors

    def decode_chunk(payloads: Sequence[bytes | None]) -> pa.StructArray:
        try:
            messages = list(map(parse, payloads))
        except (DecodeError, TypeError):  # TypeError: None
            messages, places, errors = parse_each(payloads)
            rows, unreadable = _read_all(read, messages)
            rows = rows.take(pa.array(places, pa.int64()))
            errors = [error if at is None else unreadable[at] for at, error in zip(places, errors, strict=True)]
            nulls = [payload is None for payload in payloads]
        else:
            rows, errors = _read_all(read, messages)
            nulls = [False] * len(errors)
        return with_errors(rows, errors, nulls, ignore_errors=ignore_errors)

    def decode(payloads: Sequence[bytes | None]) -> pa.StructArray:
        starts = range(0, max(len(payloads), 1), _CHUNK)
        return pa.concat_arrays([decode_chunk(payloads[start : start + _CHUNK]) for start in starts])

    return decode


def with_errors(
    rows: pa.StructArray, errors: Sequence[str | None], nulls: Sequence[bool], *, ignore_errors: bool
) -> pa.StructArray:
    """Add the field `ERROR` to structs.

    Args:
        rows: The columns.
        errors: The error of each message, or None.
        nulls: True for each message without a row.
        ignore_errors: If true, a message with an error is null.
    """
    if ignore_errors:
        nulls = [null or error is not None for null, error in zip(nulls, errors, strict=True)]
    fields = [*rows.type, pa.field(ERROR, pa.string())]
    arrays = [*rows.flatten(), pa.array(errors, pa.string())]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(nulls, pa.bool_()))


def _read_all(read: _Reader, messages: list[Any]) -> tuple[pa.StructArray, list[str | None]]:
    """Return the rows of messages, and the error of each message: text that is not UTF-8, a number that is too large."""
    errors: list[str | None] = [None] * len(messages)

    def blame(place: int, error: Exception) -> pa.StructArray:
        errors[place] = f"A value does not fit its column: {error}"
        return pa.nulls(1, read([]).type)

    parts = bisect_errors(
        len(messages),
        lambda begin, end: read(messages[begin:end]),
        blame,
        (ValueError, OverflowError),  # ValueError is also UnicodeDecodeError and ArrowInvalid
    )
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts), errors


def _row_reader(descriptor: Descriptor, columns: StructType, where: str, missing: Missing) -> _Reader:
    """Return a reader of messages; `where` is the path to the struct, with a dot at the end."""
    struct = arrow_type(columns)
    readers: list[_Reader] = []
    for column, of_arrow in zip(columns.fields, struct, strict=True):
        if missing.columns and column.name not in descriptor.fields_by_name:
            readers.append(_no_values(of_arrow.type))
        else:
            path = f"{where}{column.name}"
            readers.append(_field_reader(field_of(descriptor, path), column.dataType, path, missing))
    if not readers:
        return lambda messages: pa.array([{}] * len(messages), struct)
    return lambda messages: pa.StructArray.from_arrays([read(messages) for read in readers], fields=list(struct))


def _no_values(of_arrow: pa.DataType) -> _Reader:
    return lambda messages: pa.nulls(len(messages), of_arrow)


def _field_reader(field: FieldDescriptor, type_: DataType, column: str, missing: Missing) -> _Reader:
    """Return a reader of a field from messages."""
    check_types(field, type_, column)
    name = field.name
    get = operator.attrgetter(name)
    of_arrow = arrow_type(type_)
    of: Any = type_
    if is_map(field):
        key, value = entry_of(field)
        read_keys = _values_reader(key, of.keyType, f"{column}.key", missing)
        read_values = _values_reader(value, of.valueType, f"{column}.value", missing)

        def read_maps(messages: list[Any]) -> pa.Array:
            maps = list(map(get, messages))
            keys = read_keys(list(chain.from_iterable(maps)))
            values = read_values([value for one in maps for value in one.values()])
            return pa.MapArray.from_arrays(_offsets(maps, missing), keys, values, type=of_arrow)

        return read_maps
    if field.is_repeated:
        read_elements = _values_reader(field, of.elementType, column, missing)

        def read_lists(messages: list[Any]) -> pa.Array:
            lists = list(map(get, messages))
            elements = read_elements(list(chain.from_iterable(lists)))
            return pa.ListArray.from_arrays(_offsets(lists, missing), elements, type=of_arrow)

        return read_lists
    read = _values_reader(field, type_, column, missing)
    if missing.defaults or not field.has_presence:
        return lambda messages: read(list(map(get, messages)))
    if field.message_type is None:
        return lambda messages: read([get(message) if message.HasField(name) else None for message in messages])

    def read_present(messages: list[Any]) -> pa.Array:
        present = pa.array([message.HasField(name) for message in messages], pa.bool_())
        return pc.if_else(
            present, read(list(map(get, messages))), pa.scalar(None, of_arrow)
        )  # `get` makes an empty one

    return read_present


def _offsets(containers: Iterable[Collection[Any]], missing: Missing) -> pa.Array:
    """Return where each list begins among all values, and where the last one ends; null for a list that is null."""
    sizes = [len(container) for container in containers]
    offsets: list[int | None] = list(accumulate(sizes, initial=0))
    if not missing.defaults:
        offsets[:-1] = [offset if size else None for offset, size in zip(offsets, sizes, strict=False)]
    return pa.array(offsets, pa.int32())


def _timestamps(values: Sequence[Any], of_arrow: pa.DataType) -> pa.Array:
    micros = pa.array([value.seconds * 1_000_000 + value.nanos // 1000 for value in values], pa.int64())
    bounds = pc.min_max(micros).as_py()
    if values and not (_FIRST_TIME_US <= bounds["min"] <= bounds["max"] <= _LAST_TIME_US):
        raise ValueError("a google.protobuf.Timestamp is not within the years 1 to 9999")
    return micros.view(of_arrow)


def _values_reader(field: FieldDescriptor, type_: DataType, column: str, missing: Missing) -> _Reader:
    """Return a reader of a field's values or elements; a scalar may be None."""
    check_types(field, type_, column, element=True)
    kind = kind_of(type_)
    of_arrow = arrow_type(type_)
    if kind == "struct":
        columns: Any = type_
        return _row_reader(message_of(field), columns, f"{column}.", missing)
    if kind in TIMESTAMPS:
        return lambda values: _timestamps(values, of_arrow)
    if field.message_type is not None:
        return _well_known_reader(field, type_, column, missing)
    if field.enum_type is not None and kind in STRINGS:
        # If a number has several names (`allow_alias`), the first one is used, as in Java.
        names: dict[int | None, str | None] = {value.number: value.name for value in reversed(enum_of(field).values)}
        names[None] = None
        return lambda values: pa.array([names.get(v, _UNRECOGNIZED) for v in values], of_arrow)
    if (unsigned := unsigned_type(field, kind)) is not None:
        return lambda values: pa.array(values, unsigned).view(of_arrow)
    return lambda values: pa.array(values, of_arrow)


def _well_known_reader(field: FieldDescriptor, type_: DataType, column: str, missing: Missing) -> _Reader:
    value = wrapped(field)
    if value is None:
        return durations if kind_of(type_) == "interval" else json_texts
    read = _values_reader(value, type_, column, missing)
    return lambda messages: read([message.value for message in messages])
