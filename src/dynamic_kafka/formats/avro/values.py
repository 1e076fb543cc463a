"""Avro's single values, read in all messages of a batch at once.

A `Cursor` holds a position in each message. Reading a value moves all positions over it (numpy). `scan` does that and
returns what is needed to build a column later: numbers, or where texts begin and end. `converter` builds the column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dynamic_kafka.formats.arrow import bisect_errors
from dynamic_kafka.formats.avro.connect import no_time
from dynamic_kafka.formats.avro.schemas import UNIT_NS

__all__ = [
    "DEEPEST",
    "Build",
    "Cursor",
    "Indices",
    "Mask",
    "Read",
    "Typed",
    "UnreadableError",
    "cast",
    "converter",
    "cursor_over",
    "longs",
    "scan",
    "symbols",
    "take",
    "texts",
]

Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_PADDING = 16  # bytes behind the last message that may be read before a check: a number has up to 10
_LONGEST_BITS = 70


class _Batch:
    """The bytes of all messages, and the reasons why some of them cannot be read, by row."""

    def __init__(self, data: pa.Buffer | None, begin: int, end: int) -> None:
        self.bytes = np.zeros(end - begin + _PADDING, np.uint8)
        if data is not None:
            self.bytes[:-_PADDING] = np.frombuffer(data, np.uint8)[begin:end]
        self.buffer = pa.py_buffer(self.bytes)
        self.reasons: dict[int, str] = {}


class Cursor:
    """The read positions of some messages.

    Args:
        batch: The bytes of all messages.
        rows: The rows of these messages in the batch, ascending.
        position: Each message's read position, as an index into the bytes.
        end: The position behind each message.
        depth: The number of unions, arrays and maps around the current value.
    """

    __slots__ = ("batch", "depth", "end", "position", "rows")

    def __init__(self, batch: _Batch, rows: Indices, position: Indices, end: Indices, depth: int = 0) -> None:
        self.batch, self.rows, self.position, self.end, self.depth = batch, rows, position, end, depth

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def reasons(self) -> dict[int, str]:
        """Return why messages cannot be read, by row."""
        return self.batch.reasons

    def byte(self, offset: int) -> npt.NDArray[np.uint8]:
        """Return the byte at an offset (at most 10) from each position."""
        return self.batch.bytes[self.position + offset]

    def bytes_of(self, place: int) -> memoryview:
        """Return the rest of one message."""
        return self.batch.bytes.data[self.position[place] : self.end[place]]

    def take(self, chosen: Indices) -> Cursor:
        """Return a new cursor over some of the messages; `put` takes over its positions."""
        return Cursor(self.batch, self.rows[chosen], self.position[chosen], self.end[chosen], self.depth + 1)

    def put(self, chosen: Indices, cursor: Cursor) -> None:
        """Continue at the positions of a cursor that `take` returned."""
        self.position = self.position.copy()  # values that were read before refer to the old array
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
        """Move to new positions; mark messages that end before them."""
        over = position > self.end
        self.position = position
        self.fail(over, f"it ends within {path}")


Build: TypeAlias = Callable[[], pa.Array]
"""Builds a column of the values that were read."""
Read: TypeAlias = Callable[[Cursor], Build]
"""Moves a cursor over a value."""

DEEPEST = 200
"""The most levels of unions, arrays and maps in a message; only a recursive schema can have as many."""


def cursor_over(messages: pa.Array) -> Cursor:
    """Return a cursor at the beginning of each message that is not null; `messages` is binary."""
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
    """Return the values at these indices, and null where the index is negative."""
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


# --- reading ---

Typed: TypeAlias = tuple[str, Any]
"""A schema, after Avro's name of its type; as `AvroSchema.of` gives it."""

_LONG = np.iinfo(np.int64)
_DAY_NS = 86_400 * 10**9


class UnreadableError(Exception):
    """Raised when data of a writer's schema can never be read as the columns; the text is a clause without a full stop."""


def scan(written: Typed, path: str) -> Callable[[Cursor], Any]:
    """Return a function that reads a value of a primitive type, an enum or a fixed.

    Args:
        written: The type, and the writer's schema of it.
        path: The field, for reasons.

    Returns:
        A function that moves a cursor, and returns numbers, or the begin and the end of each text.
    """
    kind, schema = written
    match kind:
        case "null":
            return lambda _: None
        case "int":
            return lambda cursor: _within(longs(cursor, path), -(2**31), 2**31 - 1, cursor, path)
        case "long":
            return lambda cursor: longs(cursor, path)
        case "enum":
            return lambda cursor: _within(longs(cursor, path), 0, len(schema["symbols"]) - 1, cursor, path)
        case "boolean":
            return lambda cursor: _within(_numbers(cursor, "<u1", path), 0, 1, cursor, path)
        case "float":
            return lambda cursor: _numbers(cursor, "<f4", path)
        case "double":
            return lambda cursor: _numbers(cursor, "<f8", path)
        case "fixed":
            return lambda cursor: _text(cursor, np.full(len(cursor), schema["size"]), path)
    return lambda cursor: _text(cursor, longs(cursor, path), path)


def _numbers(cursor: Cursor, dtype: str, path: str) -> Any:
    data = cursor.batch.bytes
    width = np.dtype(dtype).itemsize
    at_every_byte = np.ndarray(len(data) - width + 1, dtype, data, strides=(1,))  # numbers that overlap
    found = at_every_byte[cursor.position]
    cursor.move(cursor.position + width, path)
    return found


def _text(cursor: Cursor, size: Indices, path: str) -> tuple[Indices, Indices]:
    wrong = (size < 0) | (size > cursor.end - cursor.position)
    if wrong.any():
        cursor.fail(wrong, f"it ends within {path}")
        size = np.where(wrong, 0, size)
    start = cursor.position
    cursor.position = start + size
    return start, cursor.position


def _within(values: Any, least: int, most: int, cursor: Cursor, path: str) -> Any:
    """Return the values; those out of range are replaced, and their messages are marked."""
    wrong = (values < least) | (values > most)
    if wrong.any():
        cursor.fail(wrong, f"{path} is not between {least} and {most}")
        values[wrong] = least
    return values


# --- columns ---


def converter(written: Typed, wanted: Typed, target: pa.DataType, path: str) -> Callable[[Any, Cursor], pa.Array]:
    """Return a function that makes a column of the result of `scan`.

    Args:
        written: The writer's type.
        wanted: The reader's type, to which the writer's may be promoted.
        target: The column's type.
        path: The field, for reasons.

    Raises:
        UnreadableError: If the reader's type does not fit the column, or its unit of time does not.
    """
    types = pa.types
    if not _fits(wanted[0], target):
        raise UnreadableError(f"{path} is {wanted[0]} in its schema and {target} here")
    if types.is_decimal(target):
        scale = (written if written[1].get("logicalType") == "decimal" else wanted)[1].get("scale", 0)
        return lambda span, cursor: _decimals(span, scale, target, cursor, path)
    if written[0] == "enum":
        known = symbols(written[1], wanted)
        return lambda index, cursor: _symbol(known, index, cursor, path)
    if types.is_binary(target) or types.is_string(target):
        return lambda span, cursor: cast(texts(span, cursor), target, cursor, f"{path} is not a text in UTF-8")
    if types.is_timestamp(target) or types.is_time(target):
        unit_ns = _unit_ns(written[1], wanted[1], target, path)
        return lambda values, cursor: _times(values, unit_ns, target, cursor, path)
    if types.is_date(target):
        if (logical := no_time(written[1]) or written[1].get("logicalType", "date")) != "date":
            raise UnreadableError(f"{path} is written as {logical} and is {target} here")
        return lambda values, _: pa.array(values.astype(np.int32)).view(target)
    dtype = np.dtype(target.to_pandas_dtype())
    if types.is_integer(target) and target.bit_width < 64:
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return lambda values, cursor: pa.array(_within(values, least, most, cursor, path).astype(dtype))
    return lambda values, _: pa.array(values.astype(dtype, copy=False))


def _fits(kind: str, target: pa.DataType) -> bool:
    types = pa.types
    match kind:
        case "boolean":
            return bool(types.is_boolean(target))
        case "int":
            return bool(types.is_integer(target) or types.is_date(target) or types.is_time(target))
        case "long":
            return bool(types.is_int64(target) or types.is_timestamp(target) or types.is_time(target))
        case "float":
            return bool(types.is_floating(target))
        case "double":
            return bool(types.is_float64(target))
        case "string" | "enum":
            return bool(types.is_string(target))
    return bool(types.is_binary(target) or types.is_decimal(target))


def texts(span: tuple[Indices, Indices], cursor: Cursor) -> pa.Array:
    """Return texts, as binary, from where they begin and end."""
    start, end = span
    if not len(start):
        return pa.array([], pa.binary())
    # The batch's bytes are texts and gaps between them, in turn; every other piece is a text.
    offsets = np.empty(2 * len(start), np.int32)
    offsets[0::2], offsets[1::2] = start, end
    buffers = [None, pa.py_buffer(offsets), cursor.batch.buffer]
    pieces = pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return pieces.take(pa.array(np.arange(0, len(offsets) - 1, 2)))


def _decimals(span: tuple[Indices, Indices], scale: int, target: pa.DataType, cursor: Cursor, path: str) -> pa.Array:
    """Convert two's complement, highest byte first, to Arrow's 16 bytes, lowest first."""
    start, end = span
    data = cursor.batch.bytes
    size = end - start
    sign = np.where((size > 0) & (data[start] >= 0x80), 0xFF, 0).astype(np.uint8)
    digits = np.empty((len(start), 16), np.uint8)
    for place in range(16):
        digits[:, place] = np.where(size > place, data[end - 1 - place], sign)
    too_wide = ((digits[:, 15] ^ sign) & 0x80) != 0
    for i in np.flatnonzero(size > 16).tolist():  # rare: leading bytes that only repeat the sign
        too_wide[i] |= bool((data[start[i] : end[i] - 16] != sign[i]).any())
    digits[too_wide] = 0
    reason = f"{path} does not fit into {target}"
    cursor.fail(too_wide, reason)
    plain = pa.Array.from_buffers(pa.decimal256(76, scale), len(start), [None, pa.py_buffer(_widened(digits))])
    return cast(plain, target, cursor, reason)


def _widened(digits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Extend 16 bytes to 32: Arrow then checks the precision, which it does not do between equal scales."""
    wide = np.empty((len(digits), 32), np.uint8)
    wide[:, :16] = digits
    wide[:, 16:] = np.where(digits[:, 15:] >= 0x80, 0xFF, 0)
    return wide


def cast(array: pa.Array, target: pa.DataType, cursor: Cursor, reason: str) -> pa.Array:
    """Cast an array; values that do not fit become null, and their messages are marked."""
    failed = np.zeros(len(array), bool)

    def blame(place: int, _: Exception) -> pa.Array:
        failed[place] = True
        return pa.nulls(1, target)

    parts = bisect_errors(
        len(array), lambda begin, end: array.slice(begin, end - begin).cast(target), blame, pa.ArrowInvalid
    )
    cursor.fail(failed, reason)
    return pa.concat_arrays(parts)


def symbols(written: Any, wanted: Typed) -> list[str | None]:
    """Return the text of each of the writer's symbols; None for one that the reader's enum does not have."""
    kind, schema = wanted
    if kind != "enum":
        return list(written["symbols"])
    return [symbol if symbol in schema["symbols"] else schema.get("default") for symbol in written["symbols"]]


def _symbol(known: list[str | None], index: Indices, cursor: Cursor, path: str) -> pa.Array:
    found = pa.array(known, pa.string()).take(pa.array(index))
    if found.null_count:
        unknown = found.is_null().to_numpy(zero_copy_only=False)
        cursor.fail(unknown, f"{path} is a symbol that the enum of the reader's schema does not have")
    return found


def _unit_ns(written: Any, schema: Any, target: pa.DataType, path: str) -> int:
    """Return the unit in which a time is written; that of the reader's schema if the writer's has none."""
    logical = no_time(written) or written.get("logicalType") or schema.get("logicalType") or "number"
    unit_ns = UNIT_NS.get(logical.rpartition("-")[2])
    if unit_ns is None or ("timestamp" in logical) != pa.types.is_timestamp(target):
        raise UnreadableError(f"{path} is written as {logical} and is {target} here")
    return unit_ns


def _times(values: Indices, unit_ns: int, target: pa.DataType, cursor: Cursor, path: str) -> pa.Array:
    column_ns = 1 if target.unit == "ns" else 1000
    if unit_ns < column_ns:
        values = values // (column_ns // unit_ns)
    elif factor := unit_ns // column_ns:
        values = _within(values, _LONG.min // factor + 1, _LONG.max // factor, cursor, path) * factor
    if pa.types.is_time(target):
        values = _within(values, 0, _DAY_NS - 1, cursor, path)
    return pa.array(values).view(target)
