"""Protobuf schemas in a registry: parsed to descriptors, and made from descriptors.

A registered schema is the text of a .proto file (from Java's clients) or a serialized `FileDescriptorProto` in base64 (from
Confluent's Python client). Texts are compiled by protoc, in a process of its own, so that its errors can be shown.

Schemas are registered as texts (`schema_text`). Base64 would be simpler, and Apicurio Registry accepts it for the first
version of a subject. But it cannot compare base64 with the next version: if the subject has a compatibility rule, that one
is refused with status 500 (measured with 2.6.13), so that a table could never get another column.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError, RegistryError, listed
from dynamic_kafka.formats.protobuf.descriptors import add_well_known

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        FileDescriptorSet,
    )
    from google.protobuf.message import Message

__all__ = ["message_at", "message_path", "parse_schema", "schema_text"]

_MAIN = "registered schema.proto"  # not the name of any import
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?"([^"]+)"')
_PROTOC_TIMEOUT_S = 60
_SHOWN_INDEXES = 10
_SHOWN_CHARS = 500


def parse_schema(text: str, imports: Mapping[str, str]) -> FileDescriptorSet:
    """Parse a schema; return the descriptors of all files that it imports, and of itself as the last one.

    Args:
        text: The schema: a .proto file's text, or a `FileDescriptorProto` in base64.
        imports: The schemas that it imports, by the names of the imports, each after those that it imports itself.
            Google's and Confluent's own files may be missing.

    Raises:
        ConfigurationError: If it is neither a text that protoc compiles nor base64, or if an import is missing.
        MissingDependencyError: If it is a text and protoc is not installed.
        RegistryError: If protoc did not finish, which says nothing about the schema.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet()
    for name, schema in {**imports, _MAIN: text}.items():
        file = _from_base64(schema)
        if file is None:
            add_well_known(files, _IMPORT.findall(schema))
            file = _compile(schema, files)
        else:
            add_well_known(files, file.dependency)
            if missing := set(file.dependency) - {other.name for other in files.file}:
                raise ConfigurationError(
                    f"The schema imports '{missing.pop()}' without a reference to it in the registry"
                )
        file.name = name
        files.file.append(file)
    return files


def _from_base64(schema: str) -> FileDescriptorProto | None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema.strip(), validate=True))
    except (ValueError, DecodeError):
        return None


def _compile(schema: str, imports: FileDescriptorSet) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if importlib.util.find_spec("grpc_tools") is None:
        raise MissingDependencyError("grpcio-tools", "protobuf", "to compile a .proto file from a schema registry")
    with tempfile.TemporaryDirectory(prefix="protoc-") as folder:
        known, compiled = Path(folder, "in.bin"), Path(folder, "out.bin")
        known.write_bytes(imports.SerializeToString())
        Path(folder, _MAIN).write_text(schema, encoding="utf-8")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_in={known}"]
        command += [f"--descriptor_set_out={compiled}", _MAIN]
        try:
            answer = subprocess.run(  # noqa: S603
                command,
                capture_output=True,
                text=True,
                timeout=_PROTOC_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _protoc_failed(f"did not compile a schema within {_PROTOC_TIMEOUT_S} s") from None
        if answer.returncode < 0:
            raise _protoc_failed(f"was ended by signal {-answer.returncode}")
        if answer.returncode != 0 and _MAIN not in answer.stderr:
            said = (answer.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise _protoc_failed(f"failed ({said[:_SHOWN_CHARS]})")
        if answer.returncode != 0:
            said = answer.stderr.replace(f"{folder}/{_MAIN}", "line").strip()[:_SHOWN_CHARS]
            raise ConfigurationError(f"protoc cannot compile a schema: {said}")
        (file,) = FileDescriptorSet.FromString(compiled.read_bytes()).file
    return file


def _protoc_failed(what: str) -> RegistryError:
    """Return the error for a machine that is too busy or has too little memory; the schema may be valid."""
    return RegistryError(
        f"protoc {what}. Check the load and the free memory of this machine, and start the query again", retriable=True
    )


def message_at(file: FileDescriptorProto, path: Sequence[int]) -> str:
    """Return the full name of the message at message indexes.

    As in Java's client, the entries of maps are not counted, although they are nested messages in the descriptor.

    Raises:
        ConfigurationError: If there is no such message.
    """
    messages: Sequence[DescriptorProto] = file.message_type
    names = [file.package] if file.package else []
    for index in path:
        declared = _declared(messages)
        if not 0 <= index < len(declared):
            raise ConfigurationError(
                f"The schema does not have a message with the indexes [{listed(map(str, path), _SHOWN_INDEXES)}]"
            )
        names.append(declared[index].name)
        messages = declared[index].nested_type
    return ".".join(names)


def message_path(file: FileDescriptorProto, name: str) -> list[int]:
    """Return the message indexes of the message with this full name, which is in the file."""
    messages: Sequence[DescriptorProto] = file.message_type
    path: list[int] = []
    for part in name.removeprefix(f"{file.package}." if file.package else "").split("."):
        declared = _declared(messages)
        path.append(next(index for index, message in enumerate(declared) if message.name == part))
        messages = declared[path[-1]].nested_type
    return path


def _declared(messages: Sequence[DescriptorProto]) -> list[DescriptorProto]:
    return [message for message in messages if not message.options.map_entry]


def schema_text(file: FileDescriptorProto) -> str:
    """Return the text of a .proto file with the same messages; services and extensions are omitted.

    Raises:
        ConfigurationError: If the file uses editions or groups, which are not supported here.
    """
    if file.syntax not in {"", "proto2", "proto3"}:
        raise ConfigurationError(
            f"File '{file.name}' uses edition {file.edition}, which cannot be written as text here; give the schema as text"
        )
    syntax = file.syntax or "proto2"
    lines = [f'syntax = "{syntax}";']
    lines += [f"package {file.package};"] if file.package else []
    public = set(file.public_dependency)
    lines += [f"import {'public ' if i in public else ''}{_quoted(name)};" for i, name in enumerate(file.dependency)]
    lines += [f"option {option};" for option in _options(file.options)]
    for enum in file.enum_type:
        lines += _enum_lines(enum)
    for message in file.message_type:
        lines += _message_lines(message, syntax)
    return "\n".join(lines) + "\n"


def _message_lines(message: DescriptorProto, syntax: str) -> Iterator[str]:
    yield f"message {message.name} {{"
    yield from (f"  option {option};" for option in _options(message.options))
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    for nested_enum in message.enum_type:
        yield from _indented(_enum_lines(nested_enum))
    for nested in _declared(message.nested_type):
        yield from _indented(_message_lines(nested, syntax))
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield f"  {_field_line(field, entries, syntax)}"
        elif field == next(other for other in message.field if _in_oneof(other, field.oneof_index)):
            yield f"  oneof {message.oneof_decl[field.oneof_index].name} {{"
            for member in message.field:
                if _in_oneof(member, field.oneof_index):
                    yield f"    {_field_line(member, entries, syntax)}"
            yield "  }"
    yield from (f"  reserved {span.start} to {span.end - 1};" for span in message.reserved_range)
    yield from (f"  reserved {_quoted(name)};" for name in message.reserved_name)
    yield from (f"  extensions {span.start} to {span.end - 1};" for span in message.extension_range)
    yield "}"


def _in_oneof(field: FieldDescriptorProto, index: int) -> bool:
    return field.HasField("oneof_index") and field.oneof_index == index and not field.proto3_optional


def _field_line(field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto], syntax: str) -> str:
    type_ = _type_name(field)
    label = {field.LABEL_REPEATED: "repeated ", field.LABEL_REQUIRED: "required "}.get(field.label, "")
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == field.LABEL_REPEATED else None
    if entry is not None:
        type_, label = f"map<{_type_name(entry.field[0])}, {_type_name(entry.field[1])}>", ""
    elif field.proto3_optional or (syntax == "proto2" and not label and not field.HasField("oneof_index")):
        label = "optional "
    options = _options(field.options)
    if field.HasField("default_value"):
        text = field.type == field.TYPE_STRING
        quoted = _quoted(field.default_value) if text else f'"{field.default_value}"'  # bytes are already escaped
        options.append(f"default = {quoted if text or field.type == field.TYPE_BYTES else field.default_value}")
    shown = f" [{', '.join(options)}]" if options else ""
    return f"{label}{type_} {field.name} = {field.number}{shown};"


def _type_name(field: FieldDescriptorProto) -> str:
    if field.type == field.TYPE_GROUP:
        raise ConfigurationError(
            f"Field '{field.name}' is a group, which cannot be written as text here; give the schema as text"
        )
    return field.type_name or field.Type.Name(field.type).removeprefix("TYPE_").lower()


def _enum_lines(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from (f"  option {option};" for option in _options(enum.options))
    yield from (f"  {value.name} = {value.number};" for value in enum.value)
    yield from (f"  reserved {span.start} to {span.end};" for span in enum.reserved_range)
    yield from (f"  reserved {_quoted(name)};" for name in enum.reserved_name)
    yield "}"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _options(options: Message) -> list[str]:
    """Return the options that are plain values, without custom options, which are extensions."""
    found: list[str] = []
    for field, value in options.ListFields():
        if field.is_extension or field.is_repeated or field.message_type is not None or field.name == "map_entry":
            continue
        shown: Any = value
        if field.enum_type is not None:
            shown = field.enum_type.values_by_number[value].name
        elif isinstance(value, bool):
            shown = str(value).lower()
        elif isinstance(value, str):
            shown = _quoted(value)
        found.append(f"{field.name} = {shown}")
    return found


def _quoted(text: str) -> str:
    escaped = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:03o}" for b in text.encode())
    return f'"{escaped}"'
