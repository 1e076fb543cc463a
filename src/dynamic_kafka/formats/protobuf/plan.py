"""The plan by which the native kernel decodes messages (`native/decode/src/protobuf/plan.rs`), made from a descriptor.

The kernel has no descriptors. All that depends on a file's syntax, edition and options is asked here, from Google's library:
presence, defaults, closed enums, whether texts are checked. The library does not see a message.

A field that is not in a message is read by Flink's rule (PbCodegenRowDeserializer, FLINK-33817): null, or with
`read-default-values` the field's default. A field without presence (a plain scalar of proto3) always has its default. A
repeated field or map without elements is not in the message. There is one difference: an `optional` scalar of proto3 has
presence, so it may be null; Flink treats it as a plain scalar.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.protobuf.message_header import varint
from dynamic_kafka.formats.protobuf.types import (
    STRINGS,
    TIMESTAMPS,
    check_types,
    entry_of,
    enum_of,
    field_of,
    has_required,
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

__all__ = ["Missing", "Plan", "plan_of"]

Plan = dict[str, Any]
_EMPTY = True
# The encoded zero of each type of field, without its tag; of the others it is a byte 0.
_ZEROS = {
    **dict.fromkeys(("fixed32", "sfixed32", "float"), bytes(4)),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), bytes(8)),
}


class Missing(NamedTuple):
    """The values of fields and columns that are missing.

    Args:
        defaults: If true, a field that is not in a message has its default instead of null.
        columns: If true, a column that is not a field is null instead of an error.
    """

    defaults: bool
    columns: bool = False


def plan_of(message: MessageType, columns: StructType, missing: Missing) -> Plan:
    """Return the plan for a message type.

    Args:
        message: The message type.
        columns: The table's columns.
        missing: The values of fields and columns that are missing.

    Raises:
        ConfigurationError: If a column is not a field, or cannot hold its values.
    """
    messages: list[Plan] = []
    unwanted: dict[str, int] = {}  # the messages that are not wanted, by name

    def add(descriptor: Descriptor, columns: StructType | None, where: str = "") -> int:
        """Add a message, and return its index; `columns` is None if it is not wanted."""
        if columns is None and descriptor.full_name in unwanted:
            return unwanted[descriptor.full_name]
        place = len(messages)
        plan: Plan = {"fields": []}
        messages.append(plan)
        if columns is None:
            unwanted[descriptor.full_name] = place
        else:
            arrow_type(columns)  # raises for types that no message can have
            for name in () if missing.columns else columns.names:
                field_of(descriptor, f"{where}{name}")  # raises if there is none
        at = {} if columns is None else {column.name: index for index, column in enumerate(columns.fields)}
        plan["columns"] = len(at)
        for field in descriptor.fields:
            column = at.get(field.name)
            wanted = None if columns is None or column is None else columns.fields[column].dataType
            part = {"column": column} if wanted is not None else {}
            plan["fields"].append(part | _numbered(field) | add_field(field, wanted, f"{where}{field.name}"))
        return place

    def add_field(field: FieldDescriptor, wanted: DataType | None, path: str) -> Plan:
        """Return the plan of a field with all its elements; `wanted` is the column's type."""
        of: Any = wanted
        if wanted is not None:
            check_types(field, wanted, path)
        default = {"default": _EMPTY} if missing.defaults and wanted is not None else {}
        if is_map(field):
            key, value = entry_of(field)
            keys, values = (None, None) if wanted is None else (of.keyType, of.valueType)
            parts = {"key": add_entry(key, keys, f"{path}.key"), "value": add_entry(value, values, f"{path}.value")}
            if value.message_type is not None and has_required(value.message_type):
                parts["value"]["required"] = True  # if such a value is missing, so are its fields
            return {"kind": "map", "shape": "map", **parts, **default}
        if field.is_repeated:
            return add_value(field, None if wanted is None else of.elementType, path) | {"shape": "repeated"} | default
        plan = add_value(field, wanted, path)
        if wanted is None or not (missing.defaults or not field.has_presence):
            return plan
        return plan | ({"default": _default(field)} if field.message_type is None or "as" in plan else default)

    def add_entry(field: FieldDescriptor, wanted: DataType | None, path: str) -> Plan:
        """Return the plan of a map's key or value, with the default of one that is missing."""
        return _numbered(field) | add_value(field, wanted, path) | {"default": _zero(field)}

    def add_value(field: FieldDescriptor, wanted: DataType | None, path: str) -> Plan:
        """Return the plan of a single value."""
        if wanted is not None:
            check_types(field, wanted, path, element=True)
        if field.message_type is not None:
            return {"kind": "message", "group": field.type == field.TYPE_GROUP} | add_message(field, wanted, path)
        if field.enum_type is not None:
            enum = enum_of(field)
            with_names = enum.is_closed or (wanted is not None and kind_of(wanted) in STRINGS)
            # If a number has several names, the first one is used, as in Java.
            names = {value.number: value.name for value in reversed(enum.values)} if with_names else {}
            return {"kind": "enum", "closed": enum.is_closed, "names": list(names.items())}
        checked = {"checked": _is_checked(field)} if field.type == field.TYPE_STRING else {}
        return {"kind": type_name(field)} | checked

    def add_message(field: FieldDescriptor, wanted: DataType | None, path: str) -> Plan:
        descriptor, columns = message_of(field), None
        kind = None if wanted is None else kind_of(wanted)
        if kind == "struct":
            columns = wanted
        place: Plan = {"message": add(descriptor, columns, f"{path}.")}  # type: ignore[arg-type]  # it is a struct
        if kind in {None, "struct"}:
            return place
        if (value := wrapped(field)) is not None:
            return place | {"as": "value", "value": add_value(value, wanted, path)}
        if kind in TIMESTAMPS:
            return place | {"as": "timestamp"}
        return place | {"as": "duration" if kind == "interval" else descriptor.full_name}

    add(message.descriptor, columns)
    return {"name": message.name, "messages": messages}


def _numbered(field: FieldDescriptor) -> Plan:
    plan: Plan = {"number": field.number, "name": field.name}
    if field.is_required:
        plan["required"] = True
    oneof = field.containing_oneof
    if oneof is not None and len(oneof.fields) > 1:
        plan["oneof"] = oneof.index
    return plan


def _is_checked(field: FieldDescriptor) -> bool:
    """Return whether a text of a field that is not valid UTF-8 fails its message, which the library shows."""
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    assert field.containing_type is not None
    try:
        GetMessageClass(field.containing_type).FromString(varint(field.number << 3 | 2) + b"\1\xff")
    except DecodeError:
        return True
    return False


def _default(field: FieldDescriptor) -> str:
    """Return the encoded default of a field."""
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


def _zero(field: FieldDescriptor) -> str:
    """Return the encoded value 0, or the empty one. Enums in maps have it, too."""
    return b64encode(_ZEROS.get(type_name(field), b"\0")).decode()
