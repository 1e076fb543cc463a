"""Where each message of a batch is being read.

All messages are read at once, field by field: a `Cursor` has a position in each of them, and to read a value is to move all
positions over it (numpy).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["DEEPEST", "Build", "Cursor", "Indices", "Mask", "Read", "cursor_over", "longs", "take"]

Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_PADDING = 16  # what may be read behind the last message before that is noticed: a number's 10 bytes
_LONGEST_BITS = 70


class _Batch:
    """The bytes of all messages, and what is wrong with some of them, by place."""

    def __init__(self, data: pa.Buffer | None, begin: int, end: int) -> None:
        self.bytes = np.zeros(end - begin + _PADDING, np.uint8)
        if data is not None:
            self.bytes[:-_PADDING] = np.frombuffer(data, np.uint8)[begin:end]
        self.buffer = pa.py_buffer(self.bytes)
        self.reasons: dict[int, str] = {}


class Cursor:
    """Where each of some messages is being read.

    Args:
        batch: The bytes that they are in.
        rows: Their places in the batch, ascending.
        position: Where each is being read, as an index into the bytes.
        end: Where each ends.
        depth: How many levels of unions, arrays and maps this is inside of.
    """

    __slots__ = ("batch", "depth", "end", "position", "rows")

    def __init__(self, batch: _Batch, rows: Indices, position: Indices, end: Indices, depth: int = 0) -> None:
        self.batch, self.rows, self.position, self.end, self.depth = batch, rows, position, end, depth

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def reasons(self) -> dict[int, str]:
        """Why messages cannot be read, by their places in the batch."""
        return self.batch.reasons

    def byte(self, offset: int) -> npt.NDArray[np.uint8]:
        """The byte this far behind each position; not more than 10."""
        return self.batch.bytes[self.position + offset]

    def bytes_of(self, place: int) -> memoryview:
        """What is left of one message."""
        return self.batch.bytes.data[self.position[place] : self.end[place]]

    def take(self, chosen: Indices) -> Cursor:
        """A cursor of its own for some of the messages; `put` brings back how far it got."""
        return Cursor(self.batch, self.rows[chosen], self.position[chosen], self.end[chosen], self.depth + 1)

    def put(self, chosen: Indices, cursor: Cursor) -> None:
        """Go on where the cursor that `take` gave has got to."""
        self.position = self.position.copy()  # what has been read of other fields may refer to the old ones
        self.position[chosen] = cursor.position

    def fail(self, failed: Mask, reason: str) -> None:
        """Mark messages as not readable, and go to their ends. What is read of them from then on is not used.

        Args:
            failed: Which ones.
            reason: Why, as a clause; the first reason stays.
        """
        if failed.any():
            for row in self.rows[failed].tolist():
                self.reasons.setdefault(row, reason)
            self.position = np.where(failed, self.end, self.position)

    def move(self, position: Indices, path: str) -> None:
        """Go on to a position; messages that end before are marked."""
        over = position > self.end
        self.position = position
        self.fail(over, f"it ends within {path}")


Build: TypeAlias = Callable[[], pa.Array]
"""Builds a column of what has been read."""
Read: TypeAlias = Callable[[Cursor], Build]
"""Moves a cursor over a value."""

DEEPEST = 200
"""Levels of unions, arrays and maps that a message may have; only a schema that contains itself has so many."""


def cursor_over(messages: pa.Array) -> Cursor:
    """A cursor at the beginning of each message that is not null; `messages` is binary."""
    if messages.type != pa.binary():
        messages = messages.cast(pa.binary())  # Spark may be set to use Arrow's large types
    _, offsets_buffer, data = messages.buffers()
    if not len(messages):
        none = np.zeros(0, np.int64)
        return Cursor(_Batch(None, 0, 0), none, none, none)
    offsets = np.frombuffer(offsets_buffer, np.int32)[messages.offset :][: len(messages) + 1].astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    rows = np.flatnonzero(messages.is_valid().to_numpy(zero_copy_only=False))
    return Cursor(_Batch(data, begin, end), rows, offsets[:-1][rows] - begin, offsets[1:][rows] - begin)


def take(array: pa.Array, index: Indices) -> pa.Array:
    """The values at these places, and null where the index is negative."""
    return array.take(pa.array(index, mask=index < 0))


def longs(cursor: Cursor, path: str) -> Indices:
    """Read Avro's ints and longs: groups of 7 bits, lowest first, zigzag."""
    data = cursor.batch.bytes
    position = cursor.position
    byte = data[position]
    value = (byte & 0x7F).astype(np.uint64)
    position = position + 1
    more = np.flatnonzero(byte & 0x80)
    bits = 7
    while len(more) and bits < _LONGEST_BITS:
        byte = data[position[more]]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(bits)
        position[more] += 1
        more = more[(byte & 0x80) != 0]
        bits += 7
    cursor.move(position, path)
    if len(more):
        too_long = np.zeros(len(cursor), bool)
        too_long[more] = True
        cursor.fail(too_long, f"{path} has a number of more than 10 bytes")
    return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
