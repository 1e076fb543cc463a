"""Required fields: whether a message type has some, and which of them a message lacks.

The library can say it too (`FindInitializationErrors`, and the error of `SerializeToString`), but crashes the process if two
messages in an array or a map lack fields and have maps of plain values (protobuf 7.36). Messages come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dynamic_kafka.formats.protobuf.types import entry_of, is_map

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["has_required", "lacking"]


def has_required(descriptor: Descriptor) -> bool:
    """Return whether a message or one that it may contain has required fields."""

    def within(descriptor: Descriptor, seen: set[str]) -> bool:
        if descriptor.full_name in seen:
            return False
        seen.add(descriptor.full_name)
        return any(
            field.is_required or (field.message_type is not None and within(field.message_type, seen))
            for field in descriptor.fields
        )

    return within(descriptor, set())


def lacking(message: Any) -> Iterator[str]:
    """Yield the paths of the required fields that a message of the library lacks, such as `lines[0].item`.

    A map with a key that is not UTF-8 cannot be looked into, and extensions are not.
    """
    fields = message.DESCRIPTOR.fields
    yield from (field.name for field in fields if field.is_required and not message.HasField(field.name))
    for field in fields:
        if field.message_type is not None:
            for path, part in _inner(message, field):
                yield from (f"{path}.{rest}" for rest in lacking(part))


def _inner(message: Any, field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    """Yield the messages in a field with their paths."""
    if not field.is_repeated:
        if message.HasField(field.name):
            yield field.name, getattr(message, field.name)
    elif not is_map(field):
        for index, element in enumerate(getattr(message, field.name)):
            yield f"{field.name}[{index}]", element
    elif entry_of(field)[1].message_type is not None:
        with suppress(UnicodeDecodeError):
            for key, element in getattr(message, field.name).items():
                shown = f'"{key}"' if isinstance(key, str) else key
                yield f"{field.name}[{shown}]", element
