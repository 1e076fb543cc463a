"""Protobuf schemas as a registry has them, to descriptors and back.

A registered schema is the text of a .proto file (so Java's clients write it) or a serialized `FileDescriptorProto` in
base64 (so Confluent's Python client does). Texts are compiled by protoc, in a process of its own, so that its errors can be
told. Written are texts: Apicurio Registry takes base64 too, but cannot compare it with the subject's next version.
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

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError, RegistryError
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

_MAIN = "registered schema.proto"  # no import has such a name
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?"([^"]+)"')
_PROTOC_TIMEOUT_S = 60
_SHOWN_INDEXES = 10


def parse_schema(text: str, imports: Mapping[str, str]) -> FileDescriptorSet:
    """The descriptors of a schema, which is the last file, and of all that it imports.

    Args:
        text: The schema: a .proto file's text, or a `FileDescriptorProto` in base64.
        imports: The schemas that it imports, by the names of the imports, each after those that it imports itself.
            Google's and Confluent's own need not be there.

    Raises:
        ConfigurationError: If it is neither, or an import is missing.
        MissingDependencyError: If it is a text and there is no protoc here.
        RegistryError: If protoc did not come to an end; that says nothing about the schema.
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
        if answer.returncode != 0:
            said = answer.stderr.replace(f"{folder}/{_MAIN}", "line").strip()[:500]
            raise ConfigurationError(f"protoc cannot compile a schema: {said}")
        (file,) = FileDescriptorSet.FromString(compiled.read_bytes()).file
    return file


def _protoc_failed(what: str) -> RegistryError:
    """Of a machine that is too busy, or has too little memory: the schema may be all right."""
    return RegistryError(
        f"protoc {what}; see how busy this machine is, and how much memory it has left, and start again", retriable=True
    )


def message_at(file: FileDescriptorProto, path: Sequence[int]) -> str:
    """The full name of the message to which message indexes lead.

    As in Java's client, the entries of maps do not count, though they are nested messages in the descriptor.

    Raises:
        ConfigurationError: If there is none.
    """
    messages: Sequence[DescriptorProto] = file.message_type
    names = [file.package] if file.package else []
    for index in path:
        declared = _declared(messages)
        if not 0 <= index < len(declared):
            shown = f"{list(path[:_SHOWN_INDEXES])}{' and more' if len(path) > _SHOWN_INDEXES else ''}"
            raise ConfigurationError(f"The schema has no message with the indexes {shown}")
        names.append(declared[index].name)
        messages = declared[index].nested_type
    return ".".join(names)


def message_path(file: FileDescriptorProto, name: str) -> list[int]:
    """The message indexes that lead to the message with this full name, which the file has."""
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
    """A file as the text of a .proto file that means the same to messages; services and extensions are left out.

    Raises:
        ConfigurationError: If it has what texts are not made of here: editions, groups.
    """
    if file.syntax not in {"", "proto2", "proto3"}:
        raise ConfigurationError(
            f"File '{file.name}' is of edition {file.edition}, of which no text is made here; give the schema as text"
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
        quoted = _quoted(field.default_value) if text else f'"{field.default_value}"'  # bytes are escaped already
        options.append(f"default = {quoted if text or field.type == field.TYPE_BYTES else field.default_value}")
    shown = f" [{', '.join(options)}]" if options else ""
    return f"{label}{type_} {field.name} = {field.number}{shown};"


def _type_name(field: FieldDescriptorProto) -> str:
    if field.type == field.TYPE_GROUP:
        raise ConfigurationError(
            f"Field '{field.name}' is a group, of which no text is made here; give the schema as text"
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
    """The options that are plain values; not those of one's own, which are extensions."""
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
