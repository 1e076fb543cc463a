"""The types of columns and of Protobuf fields: which types match, and the message type that is made from columns.

The rule is Flink's (PbSchemaValidationUtils): types must match exactly, and a column has the name of its field. In addition,
a column may be wider or narrower than a field of 32 bits (a value that does not fit is an error of its message), and a
`google.protobuf.Timestamp` may be a timestamp. Other messages of Google's may be these columns, or a ROW of their fields:

| message | column |
|---|---|
| `google.protobuf.Int64Value` and the other wrappers | the type of their value; null if the field is not set |
| `google.protobuf.Duration` | INTERVAL DAY TO SECOND |
| `google.protobuf.Struct`, `Value`, `ListValue` | STRING with JSON |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, listed, suggestion

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "DURATION",
    "JSON_VALUES",
    "STRINGS",
    "TIMESTAMPS",
    "check_types",
    "entry_of",
    "enum_of",
    "field_of",
    "file_of_columns",
    "has_required",
    "is_map",
    "kind_of",
    "message_of",
    "type_name",
    "wrapped",
]

STRINGS = frozenset({"string", "varchar", "char"})
"""The kinds of columns that are texts."""
TIMESTAMPS = frozenset({"timestamp", "timestamp_ntz"})
"""The kinds of columns that are timestamps."""

DURATION = "google.protobuf.Duration"
JSON_VALUES = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP = "google.protobuf.Timestamp"
_TIMESTAMP_FILE = "google/protobuf/timestamp.proto"
# The kinds of columns by the field's type as in .proto files; the first one is Flink's.
_KINDS = {
    "bool": ("boolean",),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), ("int", "bigint", "smallint", "tinyint")),
    **dict.fromkeys(("uint32", "fixed32"), ("int", "bigint")),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), ("bigint",)),
    "float": ("float",),
    "double": ("double",),
    "string": ("string", "varchar", "char"),
    "bytes": ("binary",),
    "enum": ("string", "varchar", "char", "int", "bigint", "smallint", "tinyint"),
}
# The types of fields that are made from columns, by kind.
_FIELD_TYPES = {
    "boolean": "bool",
    **dict.fromkeys(("tinyint", "smallint", "int"), "int32"),
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    **dict.fromkeys(STRINGS, "string"),
}
_MOST_FIELDS = 20
_NO_KEYS = frozenset({"float", "double", "bytes"})


def kind_of(type_: DataType) -> str:
    """Return a column type's name without its parameters, such as `array` or `bigint`."""
    return re.split(r"\W", type_.simpleString(), maxsplit=1)[0]


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map, which is a repeated message in the descriptor."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def message_of(field: FieldDescriptor) -> Descriptor:
    """Return the message that is a field's type."""
    assert field.message_type is not None
    return field.message_type


def entry_of(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Return a map's key and value."""
    fields = message_of(field).fields_by_name
    return fields["key"], fields["value"]


def enum_of(field: FieldDescriptor) -> EnumDescriptor:
    """Return the enum that is a field's type."""
    assert field.enum_type is not None
    return field.enum_type


def field_of(descriptor: Descriptor, column: str) -> FieldDescriptor:
    """Return the field with a column's name.

    Args:
        descriptor: The message.
        column: The column's name, after the names of the structs around it, joined by dots.

    Raises:
        ConfigurationError: If the message does not have such a field.
    """
    name = column.rpartition(".")[2]
    known = descriptor.fields_by_name
    if name in known:
        return known[name]
    hint = suggestion(name, known) or f"; its fields are: {listed(known, _MOST_FIELDS) or 'none'}"
    raise ConfigurationError(f"Column '{column}' is not a field of the message {descriptor.full_name}{hint}")


def has_required(descriptor: Descriptor) -> bool:
    """Return whether a message or one that it may contain has required fields."""
    seen: set[str] = set()

    def within(descriptor: Descriptor) -> bool:
        if descriptor.full_name in seen:
            return False
        seen.add(descriptor.full_name)
        return any(
            field.is_required or (field.message_type is not None and within(field.message_type))
            for field in descriptor.fields
        )

    return within(descriptor)


def check_types(field: FieldDescriptor, type_: DataType, column: str, *, element: bool = False) -> None:
    """Check that a column can hold a field; the fields of a struct are not checked.

    Args:
        field: The field.
        type_: The column's type.
        column: The column's name, for the error.
        element: True for a column that holds one element of a repeated field.

    Raises:
        ConfigurationError: If the types do not match.
    """
    name = type_name(field)
    if is_map(field):
        wanted: tuple[str, ...] = ("map",)
    elif field.is_repeated and not element:
        wanted = ("array",)
    elif field.message_type is not None:
        wanted = ("struct", *_kinds_of_well_known(field))
    else:
        wanted = _KINDS[name]
    if kind_of(type_) not in wanted:
        label = "repeated " if wanted == ("array",) else ""
        raise ConfigurationError(
            f"Column '{column}' is of type {type_.simpleString()}, but field {field.full_name} is {label}{name}; "
            f"use {wanted[0]}"
        )


def wrapped(field: FieldDescriptor) -> FieldDescriptor | None:
    """Return the field with the value in a wrapper; None if the field is not a wrapper."""
    message = field.message_type
    return message.fields_by_name["value"] if message is not None and message.full_name in _WRAPPERS else None


def _kinds_of_well_known(field: FieldDescriptor) -> tuple[str, ...]:
    """Return the kinds of columns that a message may have besides a struct."""
    name = message_of(field).full_name
    if (value := wrapped(field)) is not None:
        return _KINDS[type_name(value)]
    if name == _TIMESTAMP:
        return tuple(TIMESTAMPS)
    if name == DURATION:
        return ("interval",)
    return tuple(STRINGS) if name in JSON_VALUES else ()


def type_name(field: FieldDescriptor) -> str:
    """Return a field's type as in .proto files."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    if is_map(field):
        return "a map"
    if field.message_type is not None:
        return field.message_type.full_name
    number: Any = field.type
    return FieldDescriptorProto.Type.Name(number).removeprefix("TYPE_").lower()


def file_of_columns(columns: StructType, name: str) -> FileDescriptorProto:
    """Return the file with the message type that is made from a table's columns, with this full name, in the syntax proto3.

    Columns are numbered from 1 on. A column that may be null is `optional`, so that null differs from the type's default. A
    struct makes a message `<column>_Row` inside its message, as in Confluent's Flink.

    Raises:
        ConfigurationError: If a column cannot be a field because of its name or its type.
    """
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    package, _, short = name.rpartition(".")
    file = FileDescriptorProto(name=f"{name}.proto", package=package, syntax="proto3")

    def add_field(
        message: DescriptorProto, scope: str, name: str, type_: DataType, column: str
    ) -> FieldDescriptorProto:
        """Return a field without number; `scope` is the full name of the message around nested messages."""
        kind = kind_of(type_)
        field = FieldDescriptorProto(name=name, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if kind == "struct":
            row: Any = type_
            field.type, field.type_name = field.TYPE_MESSAGE, f".{scope}.{name}_Row"
            add_columns(message.nested_type.add(name=f"{name}_Row"), f"{scope}.{name}_Row", row, f"{column}.")
        elif kind in TIMESTAMPS:
            field.type, field.type_name = field.TYPE_MESSAGE, f".{_TIMESTAMP}"
            if _TIMESTAMP_FILE not in file.dependency:
                file.dependency.append(_TIMESTAMP_FILE)
        elif kind in _FIELD_TYPES:
            field.type = FieldDescriptorProto.Type.Value(f"TYPE_{_FIELD_TYPES[kind].upper()}")
        else:
            raise _impossible(column, type_)
        return field

    def add_map(message: DescriptorProto, scope: str, name: str, type_: Any, column: str) -> FieldDescriptorProto:
        entry = message.nested_type.add(name="".join(p[:1].upper() + p[1:] for p in name.split("_")) + "Entry")
        entry.options.map_entry = True
        key, value = (add_field(message, scope, name, part, column) for part in (type_.keyType, type_.valueType))
        if _FIELD_TYPES.get(kind_of(type_.keyType), "bytes") in _NO_KEYS:
            raise _impossible(column, type_)
        key.name, key.number, value.name, value.number = "key", 1, "value", 2
        entry.field.extend([key, value])
        return FieldDescriptorProto(
            name=name,
            label=FieldDescriptorProto.LABEL_REPEATED,
            type=FieldDescriptorProto.TYPE_MESSAGE,
            type_name=f".{scope}.{entry.name}",
        )

    def add_columns(message: DescriptorProto, scope: str, columns: StructType, where: str) -> None:
        taken = {column.name for column in columns.fields}
        column_of: dict[str, str] = {}  # by the name in JSON, which is unique in a message
        for number, column in enumerate(columns.fields, 1):
            path = f"{where}{column.name}"
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column.name) is None:
                raise ConfigurationError(
                    f"Column '{path}' cannot be a Protobuf field. Rename it: a name consists of letters, digits and '_'"
                )
            in_json = re.sub("_+(.?)", lambda found: found[1].upper(), column.name)
            if (other := column_of.setdefault(in_json, path)) != path:
                raise ConfigurationError(
                    f"Columns '{other}' and '{path}' cannot both be Protobuf fields: both are named '{in_json}' in JSON. "
                    "Rename one of them"
                )
            kind = kind_of(column.dataType)
            of: Any = column.dataType
            if kind == "map":
                field = add_map(message, scope, column.name, of, path)
            else:
                field = add_field(message, scope, column.name, of.elementType if kind == "array" else of, path)
            if kind == "array":
                field.label = field.LABEL_REPEATED
            elif kind in _FIELD_TYPES and column.nullable:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                oneof = column.name if column.name.startswith("_") else f"_{column.name}"
                while oneof in taken:  # as protoc does
                    oneof = f"X{oneof}"
                taken.add(oneof)
                message.oneof_decl.add(name=oneof)
            field.number = number
            message.field.append(field)
        for nested in message.nested_type:
            if nested.name in taken:
                raise ConfigurationError(
                    f"Column '{where}{nested.name}' has the name of the message that is made from another column. Rename it"
                )

    add_columns(file.message_type.add(name=short), name, columns, "")
    return file


def _impossible(column: str, type_: DataType) -> ConfigurationError:
    return ConfigurationError(
        f"Column '{column}' cannot be a Protobuf field: Protobuf does not have the type {type_.simpleString()}. Put arrays "
        "and maps inside of others into a struct, and cast other types, such as decimal, to string or bigint"
    )
