"""Message types: from a Python class or a descriptor file, in a form that can be sent to the workers.

A descriptor cannot be pickled. The workers get a `MessageType`: the serialized descriptors of all files that the message
needs, and its name. Each process builds the descriptors from that once.
"""

from __future__ import annotations

import functools
import importlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, MissingDependencyError, nearest
from dynamic_kafka.options import user_object

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

__all__ = [
    "MessageType",
    "add_well_known",
    "is_well_known",
    "message_of_options",
    "message_of_set",
    "pool_of",
    "require_protobuf",
    "sent_message",
    "sent_options",
    "set_of",
]

_HERE = (
    "package.module_pb2:Message (a class made by protoc --python_out), or the message's full name as in its .proto file "
    "with '{prefix}.descriptor-file' (made by protoc --descriptor_set_out --include_imports)"
)


_SENT = ".sent-message"  # no option for users


@dataclass(frozen=True)
class MessageType:
    """A message type; hashable and picklable.

    Args:
        files: A serialized `FileDescriptorSet`, each file after those it imports.
        name: The message's full name, such as `my.package.Outer.Message`.
    """

    files: bytes = field(repr=False)
    name: str

    @property
    def descriptor(self) -> Descriptor:
        """Return the descriptor, from this process's pool for these files."""
        found: Descriptor = pool_of(self.files).FindMessageTypeByName(self.name)
        return found


def sent_options(prefix: str, message: MessageType) -> dict[str, Any]:
    """Return options that hold a message type itself, for workers, which have neither its file nor its Python module."""
    return {f"{prefix}{_SENT}": {"files": b64encode(message.files).decode(), "name": message.name}}


def sent_message(prefix: str, options: Mapping[str, Any]) -> MessageType | None:
    """Return the message type of `sent_options`; None if the options are those of the user."""
    found = options.get(f"{prefix}{_SENT}")
    return None if found is None else MessageType(b64decode(found["files"]), found["name"])


def require_protobuf(format_name: str) -> None:
    """Raise `MissingDependencyError` if the library protobuf, which a format needs, is not installed."""
    try:
        import google.protobuf  # noqa: F401
    except ImportError:
        raise MissingDependencyError("protobuf", "protobuf", f"for the format {format_name}") from None


def message_of_options(prefix: str, options: Mapping[str, Any]) -> MessageType | None:
    """Return the message type that `message-class-name` and `descriptor-file` name; None if neither is given.

    Args:
        prefix: The format's name, with which its options begin.
        options: Values by whole name.

    Raises:
        ConfigurationError: If the class, the file or the message does not exist.
    """
    name: str | None = options.get(f"{prefix}.message-class-name")
    path: str | None = options.get(f"{prefix}.descriptor-file")
    if name is None:
        if path is not None:
            raise ConfigurationError(f"Option '{prefix}.message-class-name' is missing; it names a message of '{path}'")
        return None
    option = f"{prefix}.message-class-name"
    if path is not None:
        return _message_of_file(option, name, f"{prefix}.descriptor-file", path)
    if ":" not in name:
        raise InvalidOptionError(
            option, name, f"{_HERE.format(prefix=prefix)}; Java classes cannot be loaded in Python"
        )
    descriptor: Descriptor = user_object(
        option, name, kind="generated Protobuf class", methods=("FromString",), make=lambda found: found
    ).DESCRIPTOR
    return MessageType(set_of(descriptor.file).SerializeToString(), descriptor.full_name)


def _message_of_file(option: str, name: str, path_option: str, path: str) -> MessageType:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(Path(path).read_bytes())
    except (OSError, DecodeError) as error:
        raise ConfigurationError(
            f"Option '{path_option}' = '{path}' cannot be read as a descriptor file ({type(error).__name__}: {error}); "
            "make one with protoc --descriptor_set_out --include_imports"
        ) from None
    return message_of_set(option, name, files)


def message_of_set(option: str, name: str, files: FileDescriptorSet) -> MessageType:
    """Return a message type of a set of files by its full name.

    Args:
        option: The option that names it, for errors.
        name: The full name.
        files: Its file, and those that it imports; well-known ones may be missing.

    Raises:
        ConfigurationError: If the message does not exist, with similar names; or if an import is missing.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    given = {file.name for file in files.file}
    complete = FileDescriptorSet()
    for file in files.file:
        add_well_known(complete, set(file.dependency) - given)
        complete.file.append(file)
    serialized = complete.SerializeToString()
    try:
        descriptor = pool_of(serialized).FindMessageTypeByName(name)
    except KeyError:
        known = list(_names(files))
        last = name.replace("$", ".").rpartition(".")[2]
        near = [other for other in known if other.rpartition(".")[2] == last]
        if not near:
            similar = nearest(name, known)
            near = known[:5] if similar is None else [similar]
        raise InvalidOptionError(
            option, name, f"the full name of a message in the .proto file, such as {' or '.join(near)}"
        ) from None
    except TypeError as error:
        raise ConfigurationError(
            f"The files of message '{name}' do not fit together: {error}; a descriptor file needs --include_imports"
        ) from None
    return MessageType(set_of(descriptor.file).SerializeToString(), name)


@functools.lru_cache(maxsize=256)
def pool_of(files: bytes) -> DescriptorPool:
    """Return this process's pool of a serialized `FileDescriptorSet`, separate from all others.

    Raises:
        TypeError: If the files do not fit together.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return pool


def set_of(file: FileDescriptor) -> FileDescriptorSet:
    """Return a file and all files that it imports, each after its own imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found = FileDescriptorSet()
    seen: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name not in seen:
            seen.add(file.name)
            for imported in file.dependencies:
                add(imported)
            file.CopyToProto(found.file.add())

    add(file)
    return found


# Files that every schema registry knows; the clients for Java and Python do not register references to them.
_WELL_KNOWN = re.compile(r"(google/protobuf|google/type|confluent)/([a-z_/]+)\.proto")
_PACKAGE = {
    "google/protobuf": "google.protobuf",
    "google/type": "google.type",
    "confluent": "confluent_kafka.schema_registry.confluent",
}


def is_well_known(name: str) -> bool:
    """Return whether every registry knows a file, so that it is not registered."""
    return _WELL_KNOWN.fullmatch(name) is not None


def _well_known_file(name: str) -> FileDescriptor | None:
    """Return the file of a well-known import such as `google/protobuf/timestamp.proto`; None for other imports."""
    match = _WELL_KNOWN.fullmatch(name)
    if match is None:
        return None
    module = f"{_PACKAGE[match[1]]}.{match[2].replace('/', '.')}_pb2"
    try:
        found: FileDescriptor = importlib.import_module(module).DESCRIPTOR
    except ImportError:
        return None
    return found


def add_well_known(files: FileDescriptorSet, imports: Iterable[str]) -> None:
    """Append those imports that are well-known and missing, with the files that they import."""
    present = {file.name for file in files.file}
    for name in imports:
        if name not in present and (known := _well_known_file(name)) is not None:
            needed = [file for file in set_of(known).file if file.name not in present]
            present |= {file.name for file in needed}
            files.file.extend(needed)


def _names(files: FileDescriptorSet) -> Iterator[str]:
    """Yield the full names of all messages."""

    def below(prefix: str, messages: Any) -> Iterator[str]:
        for message in messages:
            if not message.options.map_entry:
                yield f"{prefix}{message.name}"
                yield from below(f"{prefix}{message.name}.", message.nested_type)

    def package(file: FileDescriptorProto) -> str:
        return f"{file.package}." if file.package else ""

    for file in files.file:
        yield from below(package(file), file.message_type)
