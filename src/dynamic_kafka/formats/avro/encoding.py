"""Arrow columns to Avro's binary encoding, by the native kernel: the plan by which it writes rows with a schema.

The kernel knows no schemas. This module decides how each column is written with a schema (`native/encode/src/avro.rs`).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, TypeAlias

import pyarrow as pa

from dynamic_kafka.formats.avro.schemas import UNIT_NS, AvroSchema
from dynamic_kafka.native import Encoded, encoder

__all__ = ["encode", "plan_of"]

Step: TypeAlias = dict[str, Any]

_MOST_DIGITS = 38  # of Spark's decimals


def encode(
    rows: pa.StructArray, schema: AvroSchema, prefix: bytes = b"", cut: Collection[str] = frozenset()
) -> Encoded:
    """Encode a batch. A row has an error if a value does not fit its field, would lose digits there, or may not be null.

    Args:
        rows: The rows; null becomes a null message.
        schema: A record with a field for each column.
        prefix: The first bytes of each message.
        cut: Columns with times that are cut to the unit of their schema; see `to_be_cut`.

    Raises:
        TypeError: If a column's type does not fit its field.
    """
    spec = json.dumps({"format": "avro", "plan": plan_of(rows.type, schema, cut)})
    return encoder(rows.type, spec)(rows, prefix)


def plan_of(columns: pa.StructType, schema: AvroSchema, cut: Collection[str] = frozenset()) -> Step:
    """Return the plan for rows of these columns; the other arguments are those of `encode`.

    Raises:
        TypeError: If a column's type does not fit its field.
    """
    return _Plan(schema, cut).step(columns, schema.root, "")


class _Plan:
    """The steps for the parts of a schema. A path is a column's, for errors."""

    def __init__(self, schema: AvroSchema, cut: Collection[str]) -> None:
        self._schema, self._cut = schema, cut

    def step(self, type_: pa.DataType, schema: Any, path: str) -> Step:
        """Return how a column of a type is written."""
        kind, written = self._schema.of(schema)
        types = pa.types
        match kind:
            case "union":
                return self._union(type_, written, path)
            case "record" if types.is_struct(type_):
                return {"type": kind, "fields": [self._field(type_, field, path) for field in written["fields"]]}
            case "array" if types.is_list(type_):
                return {"type": kind, "item": self.step(type_.value_type, written["items"], path)}
            case "map" if types.is_map(type_):
                self.step(type_.key_type, "string", path)
                return {"type": kind, "item": self.step(type_.item_type, written["values"], path)}
        if kind in {"int", "long"} and types.is_temporal(type_):
            return _time(type_, kind, written, path, cut=path in self._cut)
        return _simple(type_, kind, written, path)

    def _union(self, type_: pa.DataType, branches: list[Any], path: str) -> Step:
        kinds = [self._schema.of(branch)[0] for branch in branches]
        others = [number for number, kind in enumerate(kinds) if kind != "null"]
        if len(others) != 1:
            raise TypeError(f"{path or 'the row'} is a union of several types in its schema")
        null = {"null": kinds.index("null")} if "null" in kinds else {}
        return {"type": "union", "branch": others[0], "item": self.step(type_, branches[others[0]], path), **null}

    def _field(self, type_: pa.StructType, field: Any, path: str) -> Step:
        name = field["name"]
        shown = f"{path}.{name}".lstrip(".")
        place = type_.get_field_index(name)
        if place < 0:
            raise TypeError(f"{shown} is in the schema but is not a column")
        return {"name": name, "column": place, "item": self.step(type_[place].type, field["type"], shown)}


def _simple(type_: pa.DataType, kind: str, schema: Any, path: str) -> Step:
    """Return how a value of a primitive type, an enum or a fixed is written."""
    types = pa.types
    is_text, is_binary = (
        _is(type_, types.is_string, types.is_large_string),
        _is(type_, types.is_binary, types.is_large_binary),
    )
    match kind:
        case "boolean" if types.is_boolean(type_):
            return {"type": kind}
        case "float" if types.is_float32(type_):
            return {"type": kind}
        case "double" if types.is_floating(type_):
            return {"type": kind}
        case "int" | "long" if types.is_integer(type_) and (kind == "long" or type_.bit_width <= 32):
            return {"type": "number"}
        case "string" if is_text:
            return {"type": "bytes"}
        case "bytes" if is_binary:
            return {"type": "bytes"}
        case "fixed" if is_binary:
            return {"type": "fixed", "size": schema["size"]}
        case "enum" if is_text:
            return {"type": "enum", "symbols": schema["symbols"]}
        case "bytes" | "fixed" if types.is_decimal(type_) and schema.get("logicalType") == "decimal":
            return _decimal(kind, schema, path)
    raise TypeError(f"{path or 'the row'} is {kind} in its schema and {type_} here")


def _is(type_: pa.DataType, *tests: Any) -> bool:
    return any(test(type_) for test in tests)


def _time(type_: pa.DataType, kind: str, schema: Any, path: str, *, cut: bool) -> Step:
    types = pa.types
    logical = str(schema.get("logicalType", "number"))
    unit_ns = UNIT_NS.get(logical.rpartition("-")[2])
    if types.is_date(type_):
        fits = kind == "int"
    else:
        fits = (
            unit_ns is not None
            and ("timestamp" in logical) == types.is_timestamp(type_)
            and not types.is_duration(type_)
        )
    if not fits:
        raise TypeError(f"{path} is {logical} in its schema and {type_} here")
    column_ns = 1 if types.is_time(type_) else 1000
    if unit_ns is None or unit_ns == column_ns or types.is_date(type_):
        return {"type": "number"}
    factors = {"divide": unit_ns // column_ns} if unit_ns > column_ns else {"multiply": column_ns // unit_ns}
    return {"type": "time", **factors, "cut": cut, "logical": logical}


def _decimal(kind: str, schema: Any, path: str) -> Step:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not (isinstance(precision, int) and 1 <= precision <= _MOST_DIGITS and isinstance(scale, int)):
        raise TypeError(
            f"{path} has a decimal of precision {precision} in its schema; expected 1 to {_MOST_DIGITS} digits"
        )
    size = {"size": schema["size"]} if kind == "fixed" else {}
    return {"type": "decimal", "precision": precision, "scale": scale, **size}
