"""The plan by which the native kernel decodes messages (`native/decode/src/protobuf.rs`), made from a descriptor.

The kernel has no descriptors. All that depends on a file's syntax, edition and options is asked here, from the library that
also decodes what the kernel leaves to Spark: presence, defaults, closed enums.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dynamic_kafka.formats.protobuf.decoding import Missing
from dynamic_kafka.formats.protobuf.required import has_required
from dynamic_kafka.formats.protobuf.types import (
    STRINGS,
    TIMESTAMPS,
    entry_of,
    enum_of,
    is_map,
    kind_of,
    message_of,
    type_name,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql.types import DataType, StructType

    from dynamic_kafka.formats.protobuf.descriptors import MessageType

__all__ = ["native_plan"]

Plan = dict[str, Any]
_EMPTY = True
# The encoded zero of each type of field, without its tag; of the others it is a byte 0.
_ZEROS = {
    **dict.fromkeys(("fixed32", "sfixed32", "float"), bytes(4)),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), bytes(8)),
}


class _NotPlannedError(Exception):
    """Raised for a column that is made of a whole message, such as a wrapper."""


def native_plan(message: MessageType, columns: StructType, missing: Missing) -> Mapping[str, Any] | None:
    """Return the plan for a message type; None if the kernel cannot read it.

    Args:
        message: The message type.
        columns: The table's columns, which fit the message type.
        missing: The values of fields and columns that are missing.
    """
    messages: list[Plan] = []
    checked: dict[str, int] = {}  # the messages that are not wanted, by name

    def add(descriptor: Descriptor, columns: StructType | None) -> int:
        """Add a message, and return its index; `columns` is None if it is not wanted."""
        if columns is None and descriptor.full_name in checked:
            return checked[descriptor.full_name]
        place = len(messages)
        plan: Plan = {"fields": [], "extendable": descriptor.is_extendable}
        messages.append(plan)
        if columns is None:
            checked[descriptor.full_name] = place
        bits: dict[str, int] = {}  # by the full names of required fields and of oneofs
        at = {} if columns is None else {column.name: index for index, column in enumerate(columns.fields)}
        plan["columns"] = len(at)
        for field in descriptor.fields:
            column = at.get(field.name)
            wanted = None if columns is None or column is None else columns.fields[column].dataType
            part = {"number": field.number, "column": column} | add_field(field, wanted)
            oneof = field.containing_oneof
            if field.is_required or (_is_entry(descriptor) and _has_required_value(descriptor)):
                part |= {"bit": bits.setdefault(field.full_name, len(bits)), "required": True}
            elif oneof is not None and len(oneof.fields) > 1:
                part["bit"] = bits.setdefault(oneof.full_name, len(bits))
            plan["fields"].append(part)
        return place

    def add_field(field: FieldDescriptor, wanted: DataType | None) -> Plan:
        """Return the plan of a field with all its elements; `wanted` is the column's type."""
        if wanted is None:
            return add_value(field, None) | ({"shape": "repeated"} if field.is_repeated else {})
        of: Any = wanted
        empty = {"default": _EMPTY} if missing.defaults else {}
        if is_map(field):
            key, value = entry_of(field)
            parts = {"key": add_entry(key, of.keyType), "value": add_entry(value, of.valueType)}
            return {"kind": "message", "message": 0, "shape": "map", **parts, **empty}
        if field.is_repeated:
            return add_value(field, of.elementType) | {"shape": "repeated"} | empty
        plan = add_value(field, wanted)
        if plan["kind"] == "message":
            return plan | empty
        return plan | ({"default": _default(field)} if missing.defaults or not field.has_presence else {})

    def add_entry(field: FieldDescriptor, wanted: DataType) -> Plan:
        """Return the plan of a map's key or value. An enum that is missing is left: it may not have the number 0."""
        plan = add_value(field, wanted)
        return plan if field.enum_type is not None else plan | {"default": _zero(field)}

    def add_value(field: FieldDescriptor, wanted: DataType | None) -> Plan:
        """Return the plan of a single value."""
        if field.type == field.TYPE_GROUP:
            return {"kind": "group"}
        if field.message_type is not None:
            if wanted is not None and kind_of(wanted) in TIMESTAMPS:
                return {"kind": "timestamp"}
            if wanted is not None and kind_of(wanted) != "struct":
                raise _NotPlannedError
            columns: Any = wanted
            return {"kind": "message", "message": add(message_of(field), columns)}
        if field.enum_type is not None:
            enum = enum_of(field)
            with_names = enum.is_closed or (wanted is not None and kind_of(wanted) in STRINGS)
            # If a number has several names, the first one is used.
            names = {value.number: value.name for value in reversed(enum.values)} if with_names else {}
            return {"kind": "enum", "closed": enum.is_closed, "names": list(names.items())}
        return {"kind": type_name(field)}

    descriptor = message.descriptor
    if _has_message_sets(descriptor, set()):
        return None
    try:
        add(descriptor, columns)
    except _NotPlannedError:
        return None
    # The Arrow function that decodes the other messages returns types whose parts may all be null.
    return {"messages": messages, "schema": columns.toNullable().jsonValue()}


def _is_entry(descriptor: Descriptor) -> bool:
    return bool(descriptor.GetOptions().map_entry)


def _has_required_value(entry: Descriptor) -> bool:
    """Return whether the value of a map's entry has required fields. If such a value is missing, so are its fields."""
    value = entry.fields_by_name["value"].message_type
    return value is not None and has_required(value)


def _has_message_sets(descriptor: Descriptor, seen: set[str]) -> bool:
    """Return whether a message is or contains a MessageSet, which has an encoding of its own."""
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    inner = (field.message_type for field in descriptor.fields)
    return descriptor.GetOptions().message_set_wire_format or any(
        message is not None and _has_message_sets(message, seen) for message in inner
    )


def _zero(field: FieldDescriptor) -> str:
    """Return the encoded value 0, or the empty one, in base64."""
    return b64encode(_ZEROS.get(type_name(field), b"\0")).decode()


def _default(field: FieldDescriptor) -> str:
    """Return the encoded default of a field in base64."""
    from google.protobuf.message_factory import GetMessageClass

    assert field.containing_type is not None
    if field.message_type is not None:
        return _zero(field)
    message = GetMessageClass(field.containing_type)()
    setattr(message, field.name, field.default_value)
    encoded = message.SerializePartialToString()
    if not encoded:  # without presence the default is zero, and not written
        return _zero(field)
    tag = next(index for index, byte in enumerate(encoded) if byte < 0x80) + 1
    return b64encode(encoded[tag:]).decode()
