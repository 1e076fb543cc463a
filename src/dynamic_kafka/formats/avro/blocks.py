"""Avro's arrays and maps, read in all messages of a batch at once.

Both are blocks of items; each block begins with its number of items, and 0 ends the last one. The first items of all
messages are read at once, then the second ones, and so on. When only a few messages have items left, a loop over one message
after the other finds where each of their items begins, and all of these are read at once. Without that loop, 20 messages
with 1,000 items each take 7 times as long, and 1,000 messages of which one has 100,000 items take 170 times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dynamic_kafka.formats.avro.schemas import AvroSchema
from dynamic_kafka.formats.avro.values import DEEPEST, Build, Cursor, Indices, Read, longs

__all__ = ["Skip", "entry_skipper", "read_blocks", "value_skipper"]

Skip: TypeAlias = Callable[[memoryview, int], int]
"""Takes a message and the position where a value begins in it, and returns the position where it ends.

Raises IndexError if the message ends before that, and ValueError for a negative length. A text may still claim to end behind
the message.
"""

_LONGEST_BITS, _LONG_BITS = 70, 2**64 - 1
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_FEW = 32  # messages; for so few, reading one after the other is faster than reading item by item


def read_blocks(item: Read, skip: Skip, combine: Callable[[pa.Array, pa.Array], pa.Array], path: str) -> Read:
    """Return a function that reads blocks of items.

    Args:
        item: Reads an item in all messages.
        skip: Skips an item in a single message.
        combine: Makes the column from the offsets of each message's items and from all items.
        path: The field, for reasons.
    """

    def read(cursor: Cursor) -> Build:
        total = np.zeros(len(cursor), np.int64)
        owners: list[Indices] = []
        builds: list[Build] = []
        active = np.arange(len(cursor))
        while len(active):
            block = cursor.take(active)
            count = _block_count(block, path)
            number = 0
            over = np.zeros(len(block), bool)
            while len(chosen := np.flatnonzero(count > number)):
                if len(chosen) <= _FEW:
                    items, owner = _all_left(block, chosen, count[chosen] - number, skip, path)
                    builds.append(item(items))
                    owners.append(active[owner])
                    total[active] += np.bincount(owner, minlength=len(block))
                    count[chosen] = number
                    over[chosen] = True
                    break
                items = block.take(chosen)
                ended = items.position >= items.end  # each item takes a byte at least
                if ended.any():
                    items.fail(ended, f"it ends within {path}")
                    count[chosen[ended]] = number
                    continue
                builds.append(item(items))
                block.put(chosen, items)
                owners.append(active[chosen])
                number += 1
            total[active] += count
            cursor.put(active, block)
            active = active[(count > 0) & ~over]

        def build() -> pa.Array:
            offsets = pa.array(np.concatenate(([0], np.cumsum(total))).astype(np.int32))
            if not builds:
                return combine(offsets, item(cursor.take(active))())  # `active` is empty by now
            items = pa.concat_arrays([build_items() for build_items in builds])
            order = np.argsort(np.concatenate(owners), kind="stable")
            return combine(offsets, items.take(pa.array(order)))

        return build

    return read


def _all_left(block: Cursor, chosen: Indices, left: Indices, skip: Skip, path: str) -> tuple[Cursor, Indices]:
    """Find all items that a few messages have left.

    Args:
        block: A cursor where the items begin. It is moved behind the last blocks of those messages.
        chosen: The messages, as indices into `block`.
        left: The number of items that each of them has left in its current block.
        skip: Skips an item in a single message.
        path: The field, for reasons.

    Returns:
        A cursor over items instead of messages, and for each item the index of its message in `block`.
    """
    position = block.position.copy()
    begins: list[Indices] = [np.zeros(0, np.int64)]
    number = np.zeros(len(block), np.int64)
    failed = np.zeros(len(block), bool)
    for place, count in zip(chosen.tolist(), left.tolist(), strict=True):
        found = _item_starts(skip, block.bytes_of(place), count)
        if found is None:
            failed[place] = True
        else:
            *offsets, end = found
            begins.append(np.array(offsets, np.int64) + position[place])
            number[place] = len(offsets)
            position[place] += end
    block.position = position
    block.fail(failed, f"it ends within {path}, or is nested too deeply there")
    owner = np.repeat(np.arange(len(block)), number)
    return Cursor(block.batch, block.rows[owner], np.concatenate(begins), block.end[owner], block.depth + 1), owner


def _block_count(cursor: Cursor, path: str) -> Indices:
    if cursor.depth > DEEPEST:
        cursor.fail(np.ones(len(cursor), bool), f"{path} is nested too deeply")
    count = longs(cursor, path)
    negative = np.flatnonzero(count < 0)
    if len(negative):  # then the block's size in bytes follows
        some = cursor.take(negative)
        longs(some, path)
        cursor.put(negative, some)
        count = np.abs(count)
    wrong = (count < 0) | (count > cursor.end - cursor.position)
    cursor.fail(wrong, f"{path} claims more items than the message has bytes left")
    count[wrong] = 0
    return count


# --- one message after the other ---


def _item_starts(skip: Skip, message: memoryview, count: int) -> list[int] | None:
    """Return where each item begins and, last, where the last block ends; None if the message is cut or damaged.

    Args:
        skip: Skips an item, which has at least one byte.
        message: The rest of a message, from the first item on.
        count: The number of items that the first block has left; other blocks may follow.
    """
    found: list[int] = []
    position = 0
    try:
        while count:
            if count > len(message) - position:
                return None
            for _ in range(count):
                found.append(position)
                position = skip(message, position)
            count, position = _next_block(message, position)
    except (IndexError, ValueError, RecursionError):
        return None
    return [*found, position]


def value_skipper(schema: AvroSchema, part: Any, known: dict[str, Skip] | None = None) -> Skip:
    """Return a function that skips a value in a single message.

    Args:
        schema: The writer's schema.
        part: The part of it that describes the value.
        known: The skippers of the records around the value, by name.
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
            return _skip_union([value_skipper(schema, branch, known) for branch in written])
        case "array":
            return _skip_blocks(value_skipper(schema, written["items"], known))
        case "map":
            return _skip_blocks(entry_skipper(schema, written["values"], known))
    if written["name"] not in known:
        steps: list[Skip] = []
        known[written["name"]] = _in_turn(steps)  # set before its steps: a record may contain itself
        steps += [value_skipper(schema, field["type"], known) for field in written["fields"]]
    return known[written["name"]]


def entry_skipper(schema: AvroSchema, values: Any, known: dict[str, Skip] | None = None) -> Skip:
    """Return a function that skips a map's entry; the arguments are those of `value_skipper`, for the map's values."""
    return _in_turn([_skip_text, value_skipper(schema, values, known)])


def _in_turn(steps: list[Skip]) -> Skip:
    def skip(message: memoryview, position: int) -> int:
        for step in steps:
            position = step(message, position)
        return position

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


def _next_block(message: memoryview, position: int) -> tuple[int, int]:
    count, position = _number(message, position)
    if count < 0:  # then the block's size in bytes follows, which is not used
        _, position = _number(message, position)
    return abs(count), position


def _skip_union(branches: list[Skip]) -> Skip:
    def skip(message: memoryview, position: int) -> int:
        branch, position = _number(message, position)
        if branch < 0:
            raise ValueError
        return branches[branch](message, position)

    return skip


def _skip_blocks(item: Skip) -> Skip:
    def skip(message: memoryview, position: int) -> int:
        while True:
            count, position = _next_block(message, position)
            if count == 0:
                return position
            for _ in range(count):
                position = item(message, position)
                if position > len(message):
                    raise IndexError

    return skip
