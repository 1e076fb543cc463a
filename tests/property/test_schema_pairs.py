"""Messages of a writer's schema read as another schema: what fastavro and Google's own library say of the same bytes.

The reader's schema is the writer's after random changes that both kinds of schemas allow: fields that are left out, added,
moved, renamed, widened or made optional.
"""

from __future__ import annotations

import io
import json
import struct
from copy import deepcopy
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st
from tests.avro import read, written
from tests.protobuf_messages import file_of, message_of

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro import columns as avro_columns
from dynamic_kafka.formats.avro.schemas import parse_schema
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.kernel import decoder
from dynamic_kafka.formats.protobuf import columns as protobuf_columns
from dynamic_kafka.formats.protobuf.descriptors import message_of_set
from dynamic_kafka.formats.protobuf.plan import Missing, plan_of
from dynamic_kafka.formats.protobuf.types import entry_of, is_map

# --- Avro ---------------------------------------------------------------------------------------------------------------

PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
DEFAULTS: dict[str, Any] = {"boolean": True, "int": -1, "long": 2**40, "float": 0.5, "double": 0.25, "string": "ü"}
EXACT = 2**53  # whole numbers up to it are the same in Python's float, over which fastavro goes


def avro_type(random: Random, names: list[str], depth: int) -> Any:
    """A random type; names are those of records, enums and fixed so far."""
    kind = random.choice([*PRIMITIVES, "enum", "fixed", "array", "map", "record", "union"][: 9 if depth > 2 else 12])
    name = f"N{len(names)}"
    match kind:
        case "enum":
            names.append(name)
            return {"type": "enum", "name": name, "symbols": ["A", "B", "C"][: random.randint(1, 3)]}
        case "fixed":
            names.append(name)
            return {"type": "fixed", "name": name, "size": random.randint(1, 5)}
        case "array":
            return {"type": "array", "items": avro_type(random, names, depth + 1)}
        case "map":
            return {"type": "map", "values": avro_type(random, names, depth + 1)}
        case "record":
            return avro_record(random, names, depth + 1)
        case "union":
            inner = avro_type(random, names, depth + 1)
            if isinstance(inner, list):
                return inner
            return ["null", inner] if random.random() < 0.7 else [inner, "null"]
    return kind


def avro_record(random: Random, names: list[str], depth: int = 0) -> dict[str, Any]:
    """A random record."""
    name = f"N{len(names)}"
    names.append(name)
    fields = [{"name": f"f{i}", "type": avro_type(random, names, depth)} for i in range(random.randint(1, 5))]
    return {"type": "record", "name": name, "fields": fields}


def changed(schema: Any, random: Random, *, nullable: bool = True) -> Any:
    """A schema as which data of another one can be read."""
    match schema:
        case str() if schema in WIDER and random.random() < 0.3:
            schema = random.choice(WIDER[schema])
        case list():
            return [branch if branch == "null" else changed(branch, random, nullable=False) for branch in schema]
        case {"type": "array"}:
            schema["items"] = changed(schema["items"], random)
        case {"type": "map"}:
            schema["values"] = changed(schema["values"], random)
        case {"type": "record"}:
            kept = [field for field in schema["fields"] if random.random() < 0.8]
            for field in kept:
                field["type"] = changed(field["type"], random)
                if random.random() < 0.2:
                    field["aliases"], field["name"] = [field["name"]], f"renamed_{field['name']}"
            for i in range(random.choice([0, 0, 1, 2])):
                type_ = random.choice(list(DEFAULTS))
                added: dict[str, Any] = {"name": f"added{i}", "type": type_, "default": DEFAULTS[type_]}
                if random.random() < 0.5:
                    added |= {"type": ["null", type_], "default": None}
                kept.append(added)
            random.shuffle(kept)
            schema["fields"] = kept or [{"name": "only", "type": "int", "default": 7}]
    return ["null", schema] if nullable and random.random() < 0.2 else schema


def avro_value(schema: Any, random: Random) -> Any:
    """A random value of a schema."""
    match schema:
        case list():
            return avro_value(random.choice(schema), random)
        case {"type": "record", "fields": fields}:
            return {field["name"]: avro_value(field["type"], random) for field in fields}
        case {"type": "array", "items": items}:
            return [avro_value(items, random) for _ in range(random.choice([0, 1, 3]))]
        case {"type": "map", "values": values}:
            return {f"k{i}": avro_value(values, random) for i in range(random.choice([0, 1, 2]))}
        case {"type": "enum", "symbols": symbols}:
            return random.choice(symbols)
        case {"type": "fixed", "size": size}:
            return random.randbytes(size)
        case "null":
            return None
        case "boolean":
            return random.random() < 0.5
        case "int":
            return random.choice([0, -1, 2**31 - 1, -(2**31), random.randrange(-(2**31), 2**31)])
        case "long":
            return random.choice([0, EXACT, -EXACT, random.randrange(-EXACT, EXACT)])
        case "float":
            return struct.unpack("f", struct.pack("f", random.uniform(-1e30, 1e30)))[0]
        case "double":
            return random.uniform(-1e300, 1e300)
        case "string":
            return "".join(random.choices("aü€😀\0", k=random.randint(0, 5)))
    return "".join(random.choices("aü€😀", k=random.randint(0, 5))).encode()  # bytes that may be read as a text


def as_arrow(value: Any, target: pa.DataType) -> Any:
    """A value of fastavro as the column has it."""
    if value is None:
        return None
    if pa.types.is_struct(target):
        return {field.name: as_arrow(value[field.name], field.type) for field in target}
    if pa.types.is_map(target):
        return [(key, as_arrow(item, target.item_type)) for key, item in value.items()]
    if pa.types.is_list(target):
        return [as_arrow(item, target.value_type) for item in value]
    return float(np.float32(value)) if pa.types.is_float32(target) else value


@given(st.integers(0, 2**32))
def test_avro_of_another_schema_is_read_as_fastavro_reads_it(seed: int) -> None:
    """Row by row: fields left out, added with a default, moved, with an alias, of a wider type, optional."""
    random = Random(seed)
    writer = avro_record(random, [])
    schema = changed(deepcopy(writer), random, nullable=False)
    values = [avro_value(writer, random) for _ in range(random.randint(1, 5))]
    messages = [written(writer, value) for value in values]
    known = parse_schema(json.dumps(schema))
    target = arrow_type(avro_columns.columns_of(known))
    found = read(messages, parse_schema(json.dumps(writer)), known, target)
    expected = [fastavro.schemaless_reader(io.BytesIO(m), writer, schema) for m in messages]
    assert found.to_pylist() == [as_arrow(value, target) | {ERROR: None} for value in expected]


# --- Protobuf -----------------------------------------------------------------------------------------------------------


def reread(message: Message, target: pa.StructType) -> dict[str, Any]:
    """A message of Google's library as the columns have it, with null for what is not in the message."""
    fields: Any = message.DESCRIPTOR.fields_by_name
    return {column.name: field_value(message, fields[column.name], column.type) for column in target}


def field_value(message: Message, field: FieldDescriptor, target: pa.DataType) -> Any:
    """The value of a field."""
    value = getattr(message, field.name)
    if field.is_repeated and not value:
        return None
    if is_map(field):
        item = entry_of(field)[1]
        # Without an order, and signed as Java has it.
        return dict(sorted((as_signed(key, target.key_type), one(value[key], item, target.item_type)) for key in value))
    if field.is_repeated:
        return [one(item, field, target.value_type) for item in value]
    return None if field.has_presence and not message.HasField(field.name) else one(value, field, target)


def one(value: Any, field: FieldDescriptor, target: pa.DataType) -> Any:
    """One value of a field, or of one of its elements."""
    if field.message_type is not None:
        if pa.types.is_timestamp(target):
            return value.seconds * 10**6 + value.nanos // 1000
        return reread(value, target)
    if field.enum_type is not None:
        symbol = field.enum_type.values_by_number.get(value)
        return "UNRECOGNIZED" if symbol is None else symbol.name
    return as_signed(value, target)


def as_signed(value: Any, target: pa.DataType) -> Any:
    """A number of an unsigned field as Java shows it."""
    if pa.types.is_integer(target) and value >= 2 ** (target.bit_width - 1):
        return value - 2**target.bit_width
    return value


def comparable(value: Any, target: pa.DataType) -> Any:
    """A value of Arrow in the form of `reread`; a NaN is equal to another one."""
    if value is None:
        return None
    if pa.types.is_struct(target):
        return {field.name: comparable(value[field.name], field.type) for field in target}
    if pa.types.is_map(target):
        return dict(sorted((key, comparable(item, target.item_type)) for key, item in value))
    if pa.types.is_list(target):
        return [comparable(item, target.value_type) for item in value]
    return value


def same_names(random: Random, files: FileDescriptorSet) -> FileDescriptorSet:
    """The same messages after changes: fields left out, and moved."""
    found = FileDescriptorSet.FromString(files.SerializeToString())
    for message in found.file[-1].message_type:
        kept = [field for field in message.field if random.random() < 0.8 or field.HasField("oneof_index")]
        random.shuffle(kept)
        if kept:
            del message.field[:]
            message.field.extend(kept)
    return found


@given(st.integers(0, 2**32))
def test_protobuf_of_another_schema_is_read_as_googles_library_reads_it(seed: int) -> None:
    """Fields by number: those that the reader does not know are left out, the others have the values of the library."""
    random = Random(seed)
    files = file_of(random)
    writer: Descriptor = message_of_set("name", "test.M0", files).descriptor
    type_ = message_of_set("name", "test.M0", same_names(random, files))
    try:
        columns = protobuf_columns.columns_of(type_.descriptor)
    except ConfigurationError:
        return  # a message in itself, or without fields
    messages = [message_of(writer, random) for _ in range(4)]
    target = arrow_type(columns)
    spec = {"format": "protobuf", "plan": plan_of(type_, columns, Missing(defaults=False))}
    found = decoder(columns, spec)(pa.array(messages, pa.binary()))
    reading = GetMessageClass(type_.descriptor)
    for message, row in zip(messages, numbers_of_times(found), strict=True):
        if row[ERROR] is None and not has_lost_entries(reading.FromString(message)):
            expected = reread(reading.FromString(message), target)
            assert repr(comparable(row, target)) == repr(expected)


def has_lost_entries(message: Any) -> bool:
    """Whether the library took entries of maps for unknown fields, because something in them is unknown. Java reads them."""
    maps = {field.number for field in message.DESCRIPTOR.fields if is_map(field)}
    unknown: Any = UnknownFieldSet(message)
    if any(field.field_number in maps for field in unknown):
        return True
    found = []
    for field, value in message.ListFields():
        if field.number in maps:
            found += list(value.values()) if entry_of(field)[1].message_type is not None else []
        elif field.message_type is not None:
            found += list(value) if field.is_repeated else [value]
    return any(map(has_lost_entries, found))


def numbers_of_times(rows: pa.StructArray) -> list[dict[str, Any]]:
    """Rows as Python objects, with microseconds for times, which may be out of Python's range."""

    def plain(type_: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(type_):
            return pa.int64()
        if pa.types.is_struct(type_):
            return pa.struct([pa.field(f.name, plain(f.type), f.nullable) for f in type_])
        if pa.types.is_map(type_):
            return pa.map_(plain(type_.key_type), plain(type_.item_type))
        return pa.list_(plain(type_.value_type)) if pa.types.is_list(type_) else type_

    found: list[dict[str, Any]] = rows.cast(plain(rows.type)).to_pylist()
    return found
