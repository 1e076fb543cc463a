"""Avro's arrays and maps for all messages of a batch at once: blocks of items, each after its number of items; 0 ends them.

The first items of all messages are read at once, then the second ones, and so on; as soon as only a few messages have more,
all the items that these have left, of all blocks: a message may have as many blocks as items.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dynamic_kafka.formats.avro.cursor import DEEPEST, Build, Cursor, Indices, Read, longs
from dynamic_kafka.formats.avro.skipping import Skip, starts

__all__ = ["read_blocks"]

_FEW = 32  # messages that are quicker read one by one than item by item


def read_blocks(item: Read, skips: list[Skip], combine: Callable[[pa.Array, pa.Array], pa.Array], path: str) -> Read:
    """How to read blocks of items.

    Args:
        item: How to read an item.
        skips: How to get over one in a single message.
        combine: Makes the column of the offsets of each message's items, and of all items.
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
                    items, owner = _all_left(block, chosen, count[chosen] - number, skips, path)
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


def _all_left(block: Cursor, chosen: Indices, left: Indices, skips: list[Skip], path: str) -> tuple[Cursor, Indices]:
    """All that is left of a few messages, found item by item.

    Args:
        block: Where the items begin; it is moved behind the last blocks of those messages.
        chosen: Which messages.
        left: How many items each has left in its block.
        skips: How to get over an item.
        path: The field, for reasons.

    Returns:
        A cursor with an item in the place of a message, and the message in `block` that each belongs to.
    """
    position = block.position.copy()
    begins: list[Indices] = [np.zeros(0, np.int64)]
    number = np.zeros(len(block), np.int64)
    failed = np.zeros(len(block), bool)
    for place, count in zip(chosen.tolist(), left.tolist(), strict=True):
        found = starts(skips, block.bytes_of(place), count)
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
    cursor.fail(wrong, f"{path} has more items than bytes are left")
    count[wrong] = 0
    return count
