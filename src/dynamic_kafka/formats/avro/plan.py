"""The plan by which the native kernel reads messages of one Avro schema as columns (`native/decode/src/avro/plan.rs`).

The kernel reads bytes, and knows no schemas. This module decides what they mean, once for each schema of a writer.

Schemas are matched by Avro's schema resolution, with additions because columns have no Avro types: names of records,
enums and fixed types need not match, an enum can be read as a string and a fixed as bytes, times are converted from the
unit in which they were written, and Debezium's semantic types are read as what they stand for (see `connect`).

A part of a schema that occurs several times is one step of the plan. So a short schema with names for large parts has a
short plan, and a schema that contains itself has one, too.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa

from dynamic_kafka.formats.avro.connect import VARIABLE_SCALE_DECIMAL, ZONED_TIMESTAMP, converted, no_time
from dynamic_kafka.formats.avro.schemas import UNIT_NS, AvroSchema, matched_fields

__all__ = ["Plan", "UnreadableError", "plan_of", "unreadable"]

Plan: TypeAlias = dict[str, Any]
Typed: TypeAlias = tuple[str, Any]
"""A schema, after Avro's name of its type; as `AvroSchema.of` gives it."""

# The types as which a type can be read: Avro's promotions, and those of columns for enum and fixed.
_READABLE = {
    "null": (),
    "boolean": ("boolean",),
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
    "fixed": ("fixed", "bytes"),
    "enum": ("enum", "string"),
    "array": ("array",),
    "map": ("map",),
    "record": ("record",),
}
_SEMANTIC = {ZONED_TIMESTAMP: "zoned-time", VARIABLE_SCALE_DECIMAL: "scaled-decimal"}
_LARGEST_SCALE = 2**31 - 1


class UnreadableError(Exception):
    """Raised when data of a writer's schema can never be read as the columns; the text is a clause without a full stop."""


def plan_of(writer: AvroSchema, schema: AvroSchema, target: pa.StructType) -> Plan:
    """Return the plan for data of one schema that is read as another schema, into columns.

    Args:
        writer: The writer's schema.
        schema: The reader's schema.
        target: The columns.

    Raises:
        UnreadableError: If no data of the writer's schema can be read as the reader's, or that one does not fit the
            columns.
    """
    try:
        return _Steps(writer, schema).plan(target)
    except RecursionError:
        raise UnreadableError("its records are nested too deeply in each other") from None


def unreadable(reason: str) -> Plan:
    """Return a plan that gives each message of a schema this reason as its error."""
    return {"steps": [{"type": "unreadable", "why": reason}]}


class _Steps:
    """The steps for a pair of schemas. A path is a field's, for reasons."""

    def __init__(self, writer: AvroSchema, schema: AvroSchema) -> None:
        self._writer, self._reader = writer, schema
        self._steps: list[Any] = [None]  # the first one reads a message
        self._places: dict[str, int] = {}  # of steps that were added, by their JSON
        self._read: dict[tuple[str, str, int], int | UnreadableError] = {}  # records, by name and place in the columns
        self._skipped: dict[str, int] = {}  # records, by name
        self._empty: dict[str, bool] = {}  # whether records take no bytes, by name

    def plan(self, target: pa.StructType) -> Plan:
        """Return the plan."""
        wanted, _ = self._without_null(self._reader.root)
        self._steps[0] = self._steps[self._value(self._writer.root, wanted, target, "", 0)]
        return {"steps": self._steps}

    def _add(self, kind: str, **more: Any) -> int:
        step = {"type": kind, **more}
        key = json.dumps(step)
        if key not in self._places:
            self._places[key] = len(self._steps)
            self._steps.append(step)
        return self._places[key]

    def _value(self, writer: Any, schema: Any, target: pa.DataType, path: str, depth: int) -> int:
        """Return the step that reads a value of the type `writer` as `schema`."""
        kind, written = self._writer.of(writer)
        if kind == "union":
            return self._add("union", branches=self._branches(written, schema, target, path, depth))
        wanted, nullable = self._without_null(schema)
        if kind == "null" and nullable:
            return self._add("null")
        semantic = converted(kind, written, target)
        if semantic is not None:
            return self._add(_SEMANTIC[semantic])
        as_kind, as_schema = self._reader.of(wanted)
        if as_kind not in _READABLE[kind]:
            raise UnreadableError(f"{path or 'the message'} is written as {kind} and is {as_kind} here")
        if not _fits(as_kind, target):
            raise UnreadableError(f"{path} is {as_kind} in its schema and {target} here")
        match kind:
            case "record":
                return self._record(written, as_schema, target, path, depth + 1)
            case "array":
                self._require_bytes(written["items"], path)
                item = self._value(written["items"], as_schema["items"], target.value_type, path, depth + 1)
                return self._add("array", item=item)
            case "map":
                item = self._value(written["values"], as_schema["values"], target.item_type, path, depth + 1)
                return self._add("map", item=item)
        return self._simple((kind, written), (as_kind, as_schema), target, path)

    def _simple(self, written: Typed, wanted: Typed, target: pa.DataType, path: str) -> int:
        """Return the step that reads a value of a primitive type, an enum or a fixed."""
        kind, schema = written
        size = {"size": schema["size"]} if kind == "fixed" else {}
        types = pa.types
        if (kind == "string" and types.is_decimal(target)) or (
            types.is_string(target) and schema.get("logicalType") == "decimal"
        ):  # both are bytes, which stand for something else
            raise UnreadableError(f"{path} is written as {schema.get('logicalType', kind)} and is {target} here")
        if types.is_decimal(target):
            scale = (schema if schema.get("logicalType") == "decimal" else wanted[1]).get("scale", 0)
            if not (isinstance(scale, int) and abs(scale) <= _LARGEST_SCALE):
                raise UnreadableError(f"{path} has the scale {scale!r} in its schema")
            return self._add("fixed" if kind == "fixed" else "bytes", scale=scale, **size)
        if kind == "enum":
            return self._add("enum", symbols=_symbols(schema, wanted))
        if types.is_timestamp(target) or types.is_time(target):
            return self._add(kind, unit_ns=_unit_ns(schema, wanted[1], target, path))
        if types.is_date(target) and (logical := no_time(schema) or schema.get("logicalType", "date")) != "date":
            raise UnreadableError(f"{path} is written as {logical} and is {target} here")
        return self._add(kind, **size)

    def _without_null(self, schema: Any) -> tuple[Any, bool]:
        """Return a reader's schema apart from null, and whether it allows null."""
        kind, branches = self._reader.of(schema)
        if kind != "union":
            return schema, False
        others = [branch for branch in branches if self._reader.of(branch)[0] != "null"]
        if len(others) != 1:
            raise UnreadableError("a column cannot be a union of several types")
        return others[0], len(others) < len(branches)

    def _branches(self, written: list[Any], schema: Any, target: pa.DataType, path: str, depth: int) -> list[int]:
        """Return the steps of the branches of a writer's union.

        A target that only `null` matches is an error of the schema, not of a message.
        """
        found: list[int] = []
        errors: list[UnreadableError] = []
        fitting = 0
        for branch in written:
            is_null = self._writer.of(branch)[0] == "null"
            try:
                found.append(self._value(branch, schema, target, path, depth))
                fitting += not is_null
            except UnreadableError as error:
                found.append(self._add("unreadable", why=str(error)))
                errors += [] if is_null else [error]
        if errors and not fitting:
            raise errors[0]
        return found

    def _record(self, written: Any, schema: Any, target: pa.StructType, path: str, depth: int) -> int:
        key = written["name"], path, depth
        if key not in self._read:
            try:
                self._read[key] = self._new_record(written, schema, target, path, depth)
            except UnreadableError as error:
                self._read[key] = error
        found = self._read[key]
        if isinstance(found, UnreadableError):
            raise found
        return found

    def _new_record(self, written: Any, schema: Any, target: pa.StructType, path: str, depth: int) -> int:
        fields: list[dict[str, Any]] = []
        left = {column.name: place for place, column in enumerate(target)}
        matched, own = matched_fields(schema, written), {field["name"]: field for field in schema["fields"]}
        for field in written["fields"]:
            shown = f"{path}.{field['name']}".lstrip(".")
            found = matched.get(field["name"])
            if found is None or found["name"] not in left:
                fields.append({"name": field["name"], "step": self._skip(field["type"], shown)})
            else:
                place = left.pop(found["name"])
                step = self._value(field["type"], found["type"], target[place].type, shown, depth)
                fields.append({"name": field["name"], "step": step, "column": place})
        defaults = [self._default(own.get(name), target[place], path, depth, place) for name, place in left.items()]
        return self._add("record", fields=fields, defaults=defaults)

    def _default(self, field: Any, column: pa.Field, path: str, depth: int, place: int) -> dict[str, Any]:
        """Return the value of a column that is not written: as data of the reader's schema, and how it is read."""
        shown = f"{path}.{column.name}".lstrip(".")
        if field is None:
            raise UnreadableError(f"{shown} is not in the reader's schema")
        if "default" not in field:
            raise UnreadableError(f"{shown} is not in the writer's schema, and has no default here")
        if field["default"] is None:
            return {"column": place, "step": self._add("null"), "data": ""}
        try:
            data = _encoded(self._reader, field["type"], field["default"])
        except ValueError:
            raise UnreadableError(f"{shown} has a default that does not fit its type") from None
        own = _Steps(self._reader, self._reader)
        own._steps, own._places = self._steps, self._places  # one plan, but records of another schema
        step = own._value(field["type"], field["type"], column.type, shown, depth)
        return {"column": place, "step": step, "data": b64encode(data).decode()}

    # --- parts that no column needs ---

    def _skip(self, writer: Any, path: str) -> int:
        """Return the step of a value that is not read."""
        self._refuse_endless(writer)
        if self._is_empty(writer):
            return self._add("null")
        kind, written = self._writer.of(writer)
        match kind:
            case "union":
                return self._add("union", branches=[self._skip(branch, path) for branch in written])
            case "array":
                self._require_bytes(written["items"], path)
                return self._add("array", item=self._skip(written["items"], path))
            case "map":
                return self._add("map", item=self._skip(written["values"], path))
            case "record":
                return self._skip_record(written, path)
            case "enum":
                return self._add(kind, symbols=written["symbols"])
            case "fixed":
                return self._add(kind, size=written["size"])
        return self._add(kind)

    def _skip_record(self, written: Any, path: str) -> int:
        name = written["name"]
        if name not in self._skipped:
            self._skipped[name] = place = len(self._steps)  # set before its fields: a record may contain itself
            self._steps.append(None)
            fields = [
                {"name": field["name"], "step": self._skip(field["type"], f"{path}.{field['name']}")}
                for field in written["fields"]
            ]
            self._steps[place] = {"type": "record", "fields": fields, "defaults": []}
        return self._skipped[name]

    def _require_bytes(self, items: Any, path: str) -> None:
        """Refuse items without bytes: a few damaged bytes could claim any number of them."""
        self._refuse_endless(items)
        if self._is_empty(items):
            raise UnreadableError(f"{path} is an array of items that take no bytes")

    def _refuse_endless(self, writer: Any, within: tuple[str, ...] = ()) -> None:
        """Refuse a record that contains itself outside of unions, arrays and maps: its data would never end."""
        kind, written = self._writer.of(writer)
        if kind != "record" or written["name"] in self._empty:
            return
        if written["name"] in within:
            raise UnreadableError(
                f"the record '{written['name']}' contains itself without end; a recursive schema cannot become columns"
            )
        for field in written["fields"]:
            self._refuse_endless(field["type"], (*within, written["name"]))
        self._empty[written["name"]] = all(self._is_empty(field["type"]) for field in written["fields"])

    def _is_empty(self, writer: Any) -> bool:
        """Return whether a value takes no bytes. Its records are known by `_refuse_endless`."""
        kind, written = self._writer.of(writer)
        if kind == "record":
            return self._empty[written["name"]]
        return kind == "null" or (kind == "fixed" and written["size"] == 0)


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
        case "array":
            return bool(types.is_list(target))
        case "map":
            return bool(types.is_map(target))
        case "record":
            return bool(types.is_struct(target))
    return bool(types.is_binary(target) or types.is_decimal(target))


def _symbols(written: Any, wanted: Typed) -> list[str | None]:
    """Return the text of each of the writer's symbols; None for one that the reader's enum does not have."""
    kind, schema = wanted
    if kind != "enum":
        return list(written["symbols"])
    return [symbol if symbol in schema["symbols"] else schema.get("default") for symbol in written["symbols"]]


def _unit_ns(written: Any, schema: Any, target: pa.DataType, path: str) -> int:
    """Return the unit in which a time is written; that of the reader's schema if the writer's has none."""
    logical = str(no_time(written) or written.get("logicalType") or schema.get("logicalType") or "number")
    unit_ns = UNIT_NS.get(logical.rpartition("-")[2])
    if unit_ns is None or ("timestamp" in logical) != pa.types.is_timestamp(target):
        raise UnreadableError(f"{path} is written as {logical} and is {target} here")
    return unit_ns


# --- defaults ---


def _encoded(schema: AvroSchema, part: Any, value: Any) -> bytes:
    """Return a default, as the JSON of a schema has it, in Avro's encoding.

    Raises:
        ValueError: If it is not a value of its type.
    """
    kind, part = schema.of(part)
    match kind, value:
        case "union", _:  # a default belongs to the first branch that has such values
            for number, branch in enumerate(part):
                with suppress(ValueError):
                    return _long(number) + _encoded(schema, branch, value)
        case "null", None:
            return b""
        case "record", dict():
            if all(field["name"] in value or "default" in field for field in part["fields"]):
                values = ((f["type"], value.get(f["name"], f.get("default"))) for f in part["fields"])
                return b"".join(_encoded(schema, type_, item) for type_, item in values)
        case "array", list():
            return _block([_encoded(schema, part["items"], item) for item in value])
        case "map", dict():
            return _block([_text(key.encode()) + _encoded(schema, part["values"], item) for key, item in value.items()])
        case "bytes", str():
            return _text(value.encode("latin-1"))
        case "fixed", str() if len(value) == part["size"]:
            return value.encode("latin-1")
        case "enum", str():
            return _long(part["symbols"].index(value))
        case "string", str():
            return _text(value.encode())
        case "boolean", bool():
            return b"\1" if value else b"\0"
        case (_, bool()):
            pass  # is a number in Python
        case ("int", int()) if -(2**31) <= value < 2**31:
            return _long(value)
        case ("long", int()) if -(2**63) <= value < 2**63:
            return _long(value)
        case ("float" | "double", int() | float()):
            with suppress(OverflowError):
                return struct.pack("<f" if kind == "float" else "<d", value)
    raise ValueError(f"{value!r} is not a value of the type {kind}")


def _block(items: list[bytes]) -> bytes:
    return (_long(len(items)) if items else b"") + b"".join(items) + b"\0"


def _text(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    groups = bytearray()
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*groups, rest])
