"""Arrow columns to Avro's binary encoding: field by field, each for all rows of a batch at once.

The native kernel encodes the batches that it is certain about. Otherwise each field becomes a binary column; a record is the
columns of its fields, joined row by row by Arrow. So no value becomes a Python object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import RowError
from dynamic_kafka.formats.avro.schemas import UNIT_NS, AvroSchema
from dynamic_kafka.formats.avro.values import take
from dynamic_kafka.native import encode_all

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["encode", "native_spec"]

Parts: TypeAlias = list[pa.Array | pa.Scalar]  # binary, to be joined row by row

_LARGEST_NUMBER_BYTES = 10
_MOST_DIGITS = 38  # of Spark's decimals
_JOINT = pa.scalar(b"", pa.binary())
_END = pa.scalar(b"\x00", pa.binary())


def native_spec(columns: StructType, schema: AvroSchema, cut: Collection[str]) -> str:
    """Return what the native kernel is told to encode rows; the arguments are those of `encode`."""
    spec = {"format": "avro", "schema": columns.jsonValue(), "record": schema.root, "cut": sorted(cut)}
    return json.dumps(spec)


def encode(
    rows: pa.StructArray,
    schema: AvroSchema,
    prefix: bytes = b"",
    cut: Collection[str] = frozenset(),
    native: str | None = None,
) -> pa.Array:
    """Encode a batch.

    Args:
        rows: The rows; null becomes a null message.
        schema: A record with a field for each column.
        prefix: The first bytes of each message.
        cut: Columns with times that are cut to the unit of their schema; see `to_be_cut`.
        native: The result of `native_spec`; None to encode in Python.

    Returns:
        A binary array.

    Raises:
        RowError: If a value does not fit its field, would lose digits there, or is null in a field that does not allow null.
        TypeError: If a column's type does not fit its field.
    """
    if native is not None and (encoded := encode_all(native, rows, prefix)) is not None:
        return encoded
    parts = _Writer(schema, cut).parts(rows.drop_null(), schema.root, "")
    messages = _join([pa.scalar(prefix, pa.binary()), *parts], rows)
    if not rows.null_count:
        return messages
    return _spread(messages, rows)


def _spread(array: pa.Array, where: pa.Array) -> pa.Array:
    """Spread an array over the rows where another array is not null; the other rows are null."""
    valid = where.is_valid().to_numpy(zero_copy_only=False)
    return take(array, np.where(valid, np.cumsum(valid) - 1, -1))


class _Writer:
    """Encodes columns by the parts of a schema. A path is a column's, for errors."""

    def __init__(self, schema: AvroSchema, cut: Collection[str]) -> None:
        self._schema, self._cut = schema, cut

    def parts(self, array: pa.Array, schema: Any, path: str) -> Parts:
        """Encode a column. It has nulls only if the schema is a union."""
        kind, written = self._schema.of(schema)
        if kind == "union":
            return self._union(array, written, path)
        if array.null_count:
            raise RowError(path, "is null, and its schema does not allow that")
        match kind:
            case "record" if pa.types.is_struct(array.type):
                return self._record(array, written, path)
            case "array" if pa.types.is_list(array.type):
                return self._blocks(array, lambda items: self.parts(items, written["items"], path))
            case "map" if pa.types.is_map(array.type):
                return self._blocks(array, lambda entries: self._entries(entries, written["values"], path))
        if kind in {"int", "long"} and pa.types.is_temporal(array.type):
            return [_numbers(_time(array, kind, written, path, cut=path in self._cut))]
        return _value(array, kind, written, path)

    def _union(self, array: pa.Array, branches: list[Any], path: str) -> Parts:
        kinds = [self._schema.of(branch)[0] for branch in branches]
        others = [number for number, kind in enumerate(kinds) if kind != "null"]
        if len(others) != 1:
            raise TypeError(f"{path or 'the row'} is a union of several types in its schema")
        if array.null_count and "null" not in kinds:
            raise RowError(path, "is null, and its schema does not allow that")
        branch = pa.scalar(_number_bytes(others[0]), pa.binary())
        parts = [branch, *self.parts(array.drop_null(), branches[others[0]], path)]
        if not array.null_count:
            return parts
        return [_spread(_join(parts, array), array).fill_null(_number_bytes(kinds.index("null")))]

    def _record(self, array: pa.StructArray, written: Any, path: str) -> Parts:
        parts: Parts = []
        for field in written["fields"]:
            place = array.type.get_field_index(field["name"])
            shown = f"{path}.{field['name']}".lstrip(".")
            if place < 0:
                raise TypeError(f"{shown} is in the schema but is not a column")
            parts += self.parts(array.field(place), field["type"], shown)
        return parts

    def _entries(self, entries: pa.StructArray, values: Any, path: str) -> Parts:
        return [*self.parts(entries.field(0), "string", path), *self.parts(entries.field(1), values, path)]

    def _blocks(self, array: pa.Array, items: Callable[[pa.Array], Parts]) -> Parts:
        """Encode each list as one block of all its items, if it has any, and the end."""
        offsets = array.offsets.to_numpy()
        begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        used = array.values.slice(begin, end - begin)
        joined = pa.ListArray.from_arrays(pa.array(offsets - begin), _join(items(used), used))
        size = np.diff(offsets).astype(np.int64)
        return [pc.if_else(pa.array(size > 0), _numbers(size), _JOINT), pc.binary_join(joined, _JOINT), _END]


def _join(parts: Parts, like: pa.Array) -> pa.Array:
    """Join the parts of each row; the result has as many rows as `like` has values that are not null."""
    if not any(isinstance(part, pa.Array) for part in parts):
        parts = [*parts, pa.array([b""], pa.binary()).take(pa.array(np.zeros(len(like) - like.null_count, np.int64)))]
    return pc.binary_join_element_wise(*parts, _JOINT)


def _value(array: pa.Array, kind: str, schema: Any, path: str) -> Parts:
    """Encode a value of a primitive type, an enum or a fixed."""
    types = pa.types
    if types.is_large_string(array.type) or types.is_large_binary(array.type):  # Spark may be set to use them
        array = array.cast(pa.string() if types.is_large_string(array.type) else pa.binary())
    match kind:
        case "boolean" if types.is_boolean(array.type):
            return [_fixed_width(array.cast(pa.uint8()).to_numpy())]
        case "float" if types.is_float32(array.type):
            return [_fixed_width(array.to_numpy().astype("<f4", copy=False))]
        case "double" if types.is_floating(array.type):
            return [_fixed_width(array.to_numpy().astype("<f8", copy=False))]
        case "int" | "long" if types.is_integer(array.type) and (kind == "long" or array.type.bit_width <= 32):
            return [_numbers(array.to_numpy().astype(np.int64))]
        case "string" if types.is_string(array.type):
            return _text(array.cast(pa.binary()))
        case "bytes" if types.is_binary(array.type):
            return _text(array)
        case "fixed" if types.is_binary(array.type):
            if pc.any(pc.not_equal(pc.binary_length(array), schema["size"])).as_py():
                raise RowError(path, f"does not have the {schema['size']} bytes of its schema")
            return [array]
        case "enum" if types.is_string(array.type):
            index = pc.index_in(array, pa.array(schema["symbols"], pa.string()))
            if index.null_count:
                raise RowError(path, "is not one of the symbols of its enum")
            return [_numbers(index.to_numpy().astype(np.int64))]
        case "bytes" | "fixed" if types.is_decimal(array.type) and schema.get("logicalType") == "decimal":
            return _decimal(array, schema, path)
    raise TypeError(f"{path or 'the row'} is {kind} in its schema and {array.type} here")


def _numbers(values: npt.NDArray[np.int64]) -> pa.Array:
    """Encode ints and longs: groups of 7 bits, lowest first, zigzag."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    groups = np.empty((len(values), _LARGEST_NUMBER_BYTES), np.uint8)
    size = np.ones(len(values), np.int64)
    width = 0
    while width == 0 or rest.any():
        groups[:, width] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        size += rest != 0
        groups[:, width] |= (rest != 0).astype(np.uint8) << np.uint8(7)
        width += 1
    used = np.arange(width) < size[:, None]
    return _binary(groups[:, :width][used], size)


def _number_bytes(value: int) -> bytes:
    found: bytes = _numbers(np.array([value]))[0].as_py()
    return found


def _fixed_width(values: npt.NDArray[Any]) -> pa.Array:
    return _binary(values, np.full(len(values), values.itemsize))


def _binary(data: npt.NDArray[Any], size: npt.NDArray[np.int64]) -> pa.Array:
    """Return a binary array of values of these sizes, which follow each other in the data."""
    offsets = np.concatenate(([0], np.cumsum(size))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(size), buffers)


def _text(array: pa.Array) -> Parts:
    return [_numbers(pc.binary_length(array).to_numpy().astype(np.int64)), array]


def _time(array: pa.Array, kind: str, schema: Any, path: str, *, cut: bool) -> npt.NDArray[np.int64]:
    types = pa.types
    logical = schema.get("logicalType", "number")
    if types.is_date(array.type):
        if kind != "int":
            raise TypeError(f"{path} is {logical} in its schema and {array.type} here")
        return np.asarray(array.view(pa.int32()).to_numpy()).astype(np.int64)
    unit_ns = UNIT_NS.get(logical.rpartition("-")[2])
    if unit_ns is None or ("timestamp" in logical) != types.is_timestamp(array.type):
        raise TypeError(f"{path} is {logical} in its schema and {array.type} here")
    values = np.asarray(array.view(pa.int64()).to_numpy())
    column_ns = 1 if array.type.unit == "ns" else 1000
    if unit_ns >= column_ns:
        whole, rest = np.divmod(values, unit_ns // column_ns)
        if not cut and rest.any():
            raise RowError(
                path,
                f"has more digits than {logical} in its schema; set 'timestamp_mapping.legacy' of the format to false for "
                "microseconds, or cut the value with date_trunc('millisecond', ...)",
            )
        return whole
    factor = column_ns // unit_ns
    if len(values) and np.abs(values).max() > np.iinfo(np.int64).max // factor:
        raise RowError(path, f"is out of the range of {logical}")
    return values * factor


def _decimal(array: pa.Array, schema: Any, path: str) -> Parts:
    """Encode decimals as two's complement, highest byte first, with as few bytes as possible or those of a fixed."""
    precision = schema.get("precision")
    if not (isinstance(precision, int) and 1 <= precision <= _MOST_DIGITS):
        raise TypeError(
            f"{path} has a decimal of precision {precision} in its schema; expected 1 to {_MOST_DIGITS} digits"
        )
    try:
        array = array.cast(pa.decimal128(precision, schema.get("scale", 0)))
    except pa.ArrowInvalid:
        raise RowError(path, "has more digits than its schema allows") from None
    data = np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.zeros(0, np.uint8)
    digits = data[16 * array.offset :][: 16 * len(array)].reshape(-1, 16)[:, ::-1]
    # A leading byte is redundant if it only repeats the sign of the next byte.
    sign = np.where(digits[:, :1] >= 0x80, 0xFF, 0)
    same = (digits[:, :15] == sign) & ((digits[:, 1:] ^ sign) < 0x80)
    size = 16 - np.cumprod(same, axis=1).sum(axis=1)
    if "size" not in schema:
        used = np.arange(16) >= (16 - size)[:, None]
        return _text(_binary(digits[used], size))
    padding = np.broadcast_to(sign.astype(np.uint8), (len(digits), max(0, schema["size"] - 16)))
    wide = np.concatenate([padding, digits], axis=1)[:, -schema["size"] :]
    return [_binary(wide, np.full(len(wide), schema["size"]))]
