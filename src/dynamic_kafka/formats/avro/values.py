"""Avro's single values: how to move over them in all messages at once, and how to make Arrow columns of them.

`scan` moves a `Cursor` over a value of every message, and gives what is needed to make a column later: numbers, or where
texts begin and end. `converter` makes that column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dynamic_kafka.formats.avro.cursor import Cursor, Indices, longs
from dynamic_kafka.formats.avro.types import UNIT_NS

__all__ = ["Typed", "UnreadableError", "converter", "scan"]

Typed: TypeAlias = tuple[str, Any]
"""A schema, after Avro's name of its type; as `AvroSchema.of` gives it."""

_LONG = np.iinfo(np.int64)
_DAY_NS = 86_400 * 10**9


class UnreadableError(Exception):
    """What is written with a schema cannot be read as the columns; says why, as a clause."""


def scan(written: Typed, path: str) -> Callable[[Cursor], Any]:
    """How to read a value of a type that is not made of others.

    Args:
        written: The type, and the writer's schema of it.
        path: The field, for reasons.

    Returns:
        A function that moves a cursor, and gives numbers, or the begin and the end of each text.
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
    """The values, with something in range for those that are not, whose messages are marked."""
    wrong = (values < least) | (values > most)
    if wrong.any():
        cursor.fail(wrong, f"{path} is not between {least} and {most}")
        values[wrong] = least
    return values


# --- columns ---


def converter(written: Typed, wanted: Typed, target: pa.DataType, path: str) -> Callable[[Any, Cursor], pa.Array]:
    """How to make a column of what `scan` gave.

    Args:
        written: The writer's type.
        wanted: The reader's type, to which the writer's may be promoted.
        target: The column's type.
        path: The field, for reasons.

    Raises:
        UnreadableError: If the reader's type does not fit the column, or the times in it.
    """
    types = pa.types
    if not _fits(wanted[0], target):
        raise UnreadableError(f"{path} is {wanted[0]} in its schema and {target} here")
    if types.is_decimal(target):
        scale = (written if written[1].get("logicalType") == "decimal" else wanted)[1].get("scale", 0)
        return lambda span, cursor: _decimals(span, scale, target, cursor, path)
    if written[0] == "enum":
        symbols = _symbols(written[1], wanted)
        return lambda index, cursor: _symbol(symbols, index, cursor, path)
    if types.is_binary(target) or types.is_string(target):
        return lambda span, cursor: _cast(_binary(span, cursor), target, cursor, f"{path} is not a text in UTF-8")
    if types.is_timestamp(target) or types.is_time(target):
        unit_ns = _unit_ns(written[1], wanted[1], target, path)
        return lambda values, cursor: _times(values, unit_ns, target, cursor, path)
    if types.is_date(target):
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


def _binary(span: tuple[Indices, Indices], cursor: Cursor) -> pa.Array:
    start, end = span
    if not len(start):
        return pa.array([], pa.binary())
    # Texts and the gaps between them, in turn, are the batch's bytes; every other one is wanted.
    offsets = np.empty(2 * len(start), np.int32)
    offsets[0::2], offsets[1::2] = start, end
    buffers = [None, pa.py_buffer(offsets), cursor.batch.buffer]
    pieces = pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return pieces.take(pa.array(np.arange(0, len(offsets) - 1, 2)))


def _decimals(span: tuple[Indices, Indices], scale: int, target: pa.DataType, cursor: Cursor, path: str) -> pa.Array:
    """Two's complement, highest byte first, as Arrow's 16 bytes, lowest first."""
    start, end = span
    data = cursor.batch.bytes
    size = end - start
    sign = np.where((size > 0) & (data[start] >= 0x80), 0xFF, 0).astype(np.uint8)
    digits = np.empty((len(start), 16), np.uint8)
    for place in range(16):
        digits[:, place] = np.where(size > place, data[end - 1 - place], sign)
    too_wide = ((digits[:, 15] ^ sign) & 0x80) != 0
    for i in np.flatnonzero(size > 16).tolist():  # rare: leading bytes that say nothing
        too_wide[i] |= bool((data[start[i] : end[i] - 16] != sign[i]).any())
    digits[too_wide] = 0
    reason = f"{path} does not fit into {target}"
    cursor.fail(too_wide, reason)
    plain = pa.Array.from_buffers(pa.decimal256(76, scale), len(start), [None, pa.py_buffer(_widened(digits))])
    return _cast(plain, target, cursor, reason)


def _widened(digits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """16 bytes as 32: Arrow then checks the precision, which it would not between equal scales."""
    wide = np.empty((len(digits), 32), np.uint8)
    wide[:, :16] = digits
    wide[:, 16:] = np.where(digits[:, 15:] >= 0x80, 0xFF, 0)
    return wide


def _cast(array: pa.Array, target: pa.DataType, cursor: Cursor, reason: str) -> pa.Array:
    """The array in another type, with null for what does not fit, whose messages are marked."""
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        if len(array) == 1:
            cursor.fail(np.ones(1, bool), reason)
            return pa.nulls(1, target)
    # Which ones: in halves, as they are few.
    middle = len(array) // 2
    halves = np.arange(middle), np.arange(middle, len(array))
    return pa.concat_arrays([_cast(array.take(pa.array(h)), target, cursor.take(h), reason) for h in halves])


def _symbols(written: Any, wanted: Typed) -> list[str | None]:
    """The text of each of the writer's symbols; None for one that the reader's enum does not have."""
    kind, schema = wanted
    if kind != "enum":
        return list(written["symbols"])
    return [symbol if symbol in schema["symbols"] else schema.get("default") for symbol in written["symbols"]]


def _symbol(symbols: list[str | None], index: Indices, cursor: Cursor, path: str) -> pa.Array:
    found = pa.array(symbols, pa.string()).take(pa.array(index))
    if found.null_count:
        unknown = found.is_null().to_numpy(zero_copy_only=False)
        cursor.fail(unknown, f"{path} is a symbol that its enum does not have here")
    return found


def _unit_ns(written: Any, schema: Any, target: pa.DataType, path: str) -> int:
    """The unit in which a time is written; that of the reader's schema if the writer's does not tell."""
    logical = written.get("logicalType") or schema.get("logicalType") or "number"
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
