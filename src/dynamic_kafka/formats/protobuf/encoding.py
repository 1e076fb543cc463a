"""The plan by which the native kernel encodes rows (`native/encode/src/protobuf/plan.rs`), made from a descriptor.

Columns that are null are not set. An element, or a map's key or value, cannot be null in Protobuf: it gets the default of
its type, or, for a text, the literal. A name or number that an enum does not have becomes its first value (Flink:
PbCodegenUtils, PbCodegenSimpleSerializer). If several columns of a oneof are not null, the last one is set.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.expressions import nullable
from dynamic_kafka.formats.protobuf.types import (
    TIMESTAMPS,
    check_types,
    entry_of,
    enum_of,
    field_of,
    is_map,
    kind_of,
    message_of,
    type_name,
    wrapped,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql.types import DataType, StructType

    from dynamic_kafka.formats.protobuf.descriptors import MessageType

__all__ = ["encoder"]

Plan = dict[str, Any]


def encoder(message: MessageType, columns: StructType, null_literal: str) -> native.Encode:
    """Return a function that encodes rows. A row that the message cannot hold has an error.

    Args:
        message: The message type.
        columns: The table's columns.
        null_literal: The text for a null in an array or a map.

    Raises:
        ConfigurationError: If a column is not a field, or the field cannot hold its values.
    """
    name = message.descriptor.full_name
    plan = {"name": name, "null_literal": null_literal, "message": _message(message.descriptor, columns, "")}
    spec = json.dumps({"format": "protobuf", "plan": plan})

    def encode(rows: pa.StructArray, header: bytes) -> native.Encoded:
        return native.encoder(arrow_type(nullable(columns)), spec)(rows, header)

    return encode


def _message(descriptor: Descriptor, columns: StructType, where: str) -> Plan:
    """Return the plan of a message; `where` is the path to its columns, with a dot at the end."""
    lacking = [field.name for field in descriptor.fields if field.is_required and field.name not in columns.names]
    paths = [f"{where}{name}" for name in columns.names]
    fields = [
        {"column": place} | _field(field_of(descriptor, path), column.dataType, path)
        for place, (path, column) in enumerate(zip(paths, columns.fields, strict=True))
    ]
    return {"lacking": lacking, "fields": fields}


def _field(field: FieldDescriptor, type_: DataType, path: str) -> Plan:
    check_types(field, type_, path)
    of: Any = type_
    plan: Plan = {"number": field.number, "name": field.name}
    if field.containing_oneof is not None:
        plan["oneof"] = field.containing_oneof.name
    if is_map(field):
        key, value = entry_of(field)
        check_types(key, of.keyType, f"{path}.key", element=True)
        return plan | {"count": "map", "key": type_name(key)} | _value(value, of.valueType, f"{path}.value")
    if field.is_repeated:
        return plan | {"count": "packed" if field.is_packed else "unpacked"} | _value(field, of.elementType, path)
    count = "required" if field.is_required else "explicit" if field.has_presence else "implicit"
    return plan | {"count": count} | _value(field, type_, path)


def _value(field: FieldDescriptor, type_: DataType, path: str) -> Plan:
    """Return the plan of a single value."""
    check_types(field, type_, path, element=True)
    kind = kind_of(type_)
    if field.enum_type is not None:
        values = enum_of(field).values
        return {"type": "enum", "values": {v.name: v.number for v in values}, "first": values[0].number}
    if field.message_type is None:
        return {"type": type_name(field)}
    if kind == "struct":
        columns: Any = type_
        inner = _message(message_of(field), columns, f"{path}.")
        return {"type": "message", "message": inner, "group": field.type == field.TYPE_GROUP}
    if kind in TIMESTAMPS:
        return {"type": "timestamp"}
    if (value := wrapped(field)) is not None:
        return {"type": "wrapper", "value": type_name(value)}
    return {"type": "duration" if kind == "interval" else message_of(field).full_name}
