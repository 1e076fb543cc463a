"""Over Avro's values in one message after each other, to find where each begins.

For the few messages of a batch that have more items in an array than the others: there is nothing left to do at once but
their items, and these can be read at once only when it is known where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dynamic_kafka.formats.avro.types import AvroSchema

__all__ = ["Skip", "starts", "value_skipper"]

Skip: TypeAlias = Callable[[memoryview, int], int]
"""Takes a message and where a value begins in it, and gives where it ends.

Raises IndexError if the message ends before, and ValueError for a negative length; but a text may end behind the message.
"""

_LONGEST_BITS, _LONG_BITS = 70, 2**64 - 1
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def starts(skips: list[Skip], message: memoryview, count: int) -> list[int] | None:
    """Where items begin, and where the last block ends.

    Args:
        skips: What an item consists of; it takes a byte at least.
        message: What begins with the first item.
        count: How many items the first block has left; others may follow.

    Returns:
        One more than the number of items; None if they are not all there.
    """
    found: list[int] = []
    position = 0
    try:
        while count:
            if count > len(message) - position:
                return None
            for _ in range(count):
                found.append(position)
                for skip in skips:
                    position = skip(message, position)
            count, position = _block_count(message, position)
    except (IndexError, ValueError, RecursionError):
        return None
    return [*found, position]


def value_skipper(schema: AvroSchema, part: Any, known: dict[str, Skip] | None = None) -> Skip:
    """How to get over a value.

    Args:
        schema: The writer's schema.
        part: The part of it that the value has.
        known: Records that are being made, by name.
    """
    known = {} if known is None else known
    kind, written = schema.of(part)
    if kind in _WIDTHS or kind == "fixed":
        width: int = written["size"] if kind == "fixed" else _WIDTHS[kind]
        return lambda _, position: position + width
    match kind:
        case "int" | "long" | "enum":
            return _skip_number
        case "string" | "bytes":
            return _skip_text
        case "union":
            return _union([value_skipper(schema, branch, known) for branch in written])
        case "array":
            return _blocks([value_skipper(schema, written["items"], known)])
        case "map":
            return _blocks([_skip_text, value_skipper(schema, written["values"], known)])
    if written["name"] in known:
        return known[written["name"]]
    steps: list[Skip] = []

    def skip(message: memoryview, position: int) -> int:
        for step in steps:
            position = step(message, position)
        return position

    known[written["name"]] = skip  # before its steps: it may contain itself
    steps += [value_skipper(schema, field["type"], known) for field in written["fields"]]
    return skip


def _skip_number(message: memoryview, position: int) -> int:
    while message[position] & 0x80:
        position += 1
    return position + 1


def _skip_text(message: memoryview, position: int) -> int:
    size, position = _number(message, position)
    if size < 0:
        raise ValueError
    return position + size


def _number(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for bits in range(0, _LONGEST_BITS, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << bits
        if not byte & 0x80:
            value &= _LONG_BITS
            return (value >> 1) ^ -(value & 1), position
    raise ValueError


def _block_count(message: memoryview, position: int) -> tuple[int, int]:
    count, position = _number(message, position)
    if count < 0:  # then the block's size in bytes follows; it is not relied on
        _, position = _number(message, position)
    return abs(count), position


def _union(branches: list[Skip]) -> Skip:
    def skip(message: memoryview, position: int) -> int:
        branch, position = _number(message, position)
        if branch < 0:
            raise ValueError
        return branches[branch](message, position)

    return skip


def _blocks(item: list[Skip]) -> Skip:
    def skip(message: memoryview, position: int) -> int:
        while True:
            count, position = _block_count(message, position)
            if count == 0:
                return position
            for _ in range(count):
                for step in item:
                    position = step(message, position)
                if position > len(message):
                    raise IndexError

    return skip
