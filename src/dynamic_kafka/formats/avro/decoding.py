"""Avro's binary encoding to Arrow columns: field by field, each for all messages of a batch at once.

This decoder decides what a message means. The native kernel gives the same rows, and leaves to it what it is not certain
about. It also reads what the kernel does not get: keys, columns with TIME, DataFrames, and all messages where the kernel is
not installed. fastavro cannot take its place: it makes a Python object of each value first,
which takes 15 to 20 times as long, and it does not say where in a message an error is (docs/architecture.md).

Reading a field moves a `Cursor` over it in all messages, and keeps what is needed to build its column later. A field that is
only skipped is never built. Each message is read between its own first and last byte: a damaged message cannot shift its
neighbours, and bytes that are left over are an error.

Schemas are matched by Avro's schema resolution, with additions because columns have no Avro types: names of records,
enums and fixed types need not match, an enum can be read as a string and a fixed as bytes, times are converted from the
unit in which they were written, and Debezium's semantic types are read as what they stand for (see `connect`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from dynamic_kafka.formats.avro.blocks import entry_skipper, read_blocks, value_skipper
from dynamic_kafka.formats.avro.connect import converted
from dynamic_kafka.formats.avro.schemas import AvroSchema, fields_by_name, matched
from dynamic_kafka.formats.avro.semantic import semantic_reader
from dynamic_kafka.formats.avro.values import (
    DEEPEST,
    Build,
    Cursor,
    Indices,
    Read,
    Typed,
    UnreadableError,
    converter,
    cursor_over,
    longs,
    scan,
    take,
)
from dynamic_kafka.formats.format import ERROR

__all__ = ["decode", "reader", "unreadable"]

_KEY: Typed = ("string", {})
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


def decode(
    messages: pa.Array, target: pa.StructType, groups: Callable[[Cursor], Iterable[tuple[Indices, Read]]]
) -> pa.StructArray:
    """Decode a batch.

    Args:
        messages: Binary.
        target: The columns.
        groups: Takes a cursor over all messages that are not null, and returns groups of them, each with its reader. It
            may move the cursor over a header, and omit messages that it marks as failed.

    Returns:
        A struct of the columns and `ERROR`, as `Format.decode` describes it.
    """
    cursor = cursor_over(messages)
    parts: list[tuple[Indices, Build]] = []
    for chosen, read in groups(cursor):
        group = cursor.take(chosen)
        parts.append((group.rows, read(group)))
        group.fail(group.position < group.end, "bytes are left over behind the record")
    arrays = [(rows, build()) for rows, build in parts]  # building may still mark messages
    bad = np.array(sorted(cursor.reasons), np.int64)
    records = _gather(len(messages), arrays, target, without=bad)
    reasons = _gather(
        len(messages), [(bad, pa.array([cursor.reasons[row] for row in bad.tolist()], pa.string()))], pa.string()
    )
    fields = [*(field.with_nullable(True) for field in target), pa.field(ERROR, pa.string())]
    return pa.StructArray.from_arrays([*records.flatten(), reasons], fields=fields, mask=messages.is_null())


def reader(writer: AvroSchema, schema: AvroSchema, target: pa.DataType) -> Read:
    """Return a function that reads data of one schema as another schema, into a column.

    Args:
        writer: The writer's schema.
        schema: The reader's schema.
        target: The column's type.

    Raises:
        UnreadableError: If no data of the writer's schema can be read as the reader's, or that one does not fit the
            column.
    """
    return _Compiler(writer, schema).read(writer.root, schema.root, target, "")


def unreadable(reason: str, target: pa.DataType) -> Read:
    """Return a function that marks all messages as failed, with this reason."""

    def read(cursor: Cursor) -> Build:
        cursor.fail(np.ones(len(cursor), bool), reason)
        return lambda: pa.nulls(len(cursor), target)

    return read


class _Compiler:
    """Makes a `Read` from a pair of schemas. A path is a field's, for reasons."""

    def __init__(self, writer: AvroSchema, schema: AvroSchema) -> None:
        self._writer, self._reader = writer, schema
        self._skips: dict[str, Read] = {}
        self._finite: set[str] = set()  # records, by name

    def read(self, writer: Any, schema: Any, target: pa.DataType, path: str) -> Read:
        """Return the reader of a value of the type `writer` as `schema`."""
        kind, written = self._writer.of(writer)
        if kind == "union":
            return _union(self._branches(written, schema, target, path), target, path)
        wanted, nullable = self._without_null(schema)
        if kind == "null" and nullable:
            return lambda cursor: lambda: pa.nulls(len(cursor), target)
        semantic = converted(kind, written, target)
        if semantic is not None:
            return semantic_reader(semantic, target, path)
        as_kind, as_schema = self._reader.of(wanted)
        if as_kind not in _READABLE[kind]:
            raise UnreadableError(f"{path or 'the message'} is written as {kind} and is {as_kind} here")
        match kind:
            case "record":
                return self._record(written, as_schema, target, path)
            case "array":
                self._require_bytes(written["items"], path)
                item = self.read(written["items"], as_schema["items"], target.value_type, path)
                skip = value_skipper(self._writer, written["items"])
                return read_blocks(item, skip, lambda o, items: pa.ListArray.from_arrays(o, items, type=target), path)
            case "map":
                key = _leaf(scan(_KEY, path), converter(_KEY, _KEY, pa.string(), path))
                entry = _entry(key, self.read(written["values"], as_schema["values"], target.item_type, path))
                skip = entry_skipper(self._writer, written["values"])
                return read_blocks(entry, skip, lambda o, entries: _map(o, entries, target), path)
        return _leaf(scan((kind, written), path), converter((kind, written), (as_kind, as_schema), target, path))

    def skip(self, writer: Any, path: str) -> Read:
        """Return the reader of a value that no column needs; its result is never built."""
        kind, written = self._writer.of(writer)
        match kind:
            case "union":
                return _union([self.skip(branch, path) for branch in written], pa.null(), path)
            case "array":
                self._require_bytes(written["items"], path)
                skip = value_skipper(self._writer, written["items"])
                return read_blocks(self.skip(written["items"], path), skip, _never, path)
            case "map":
                entry = _entry(_leaf(scan(_KEY, path)), self.skip(written["values"], path))
                return read_blocks(entry, entry_skipper(self._writer, written["values"]), _never, path)
            case "record":
                return self._skip_record(written, path)
        return _leaf(scan((kind, written), path))

    def _without_null(self, schema: Any) -> tuple[Any, bool]:
        """Return a reader's schema apart from null, and whether it allows null."""
        kind, branches = self._reader.of(schema)
        if kind != "union":
            return schema, False
        others = [branch for branch in branches if self._reader.of(branch)[0] != "null"]
        if len(others) != 1:
            raise UnreadableError("a column cannot be a union of several types")
        return others[0], len(others) < len(branches)

    def _branches(self, written: list[Any], schema: Any, target: pa.DataType, path: str) -> list[Read]:
        """Return the readers of the branches of a writer's union.

        A target that only `null` matches is an error of the schema, not of a message.
        """
        found: list[Read] = []
        errors: list[UnreadableError] = []
        fitting = 0
        for branch in written:
            is_null = self._writer.of(branch)[0] == "null"
            try:
                found.append(self.read(branch, schema, target, path))
                fitting += not is_null
            except UnreadableError as error:
                found.append(unreadable(str(error), target))
                errors += [] if is_null else [error]
        if errors and not fitting:
            raise errors[0]
        return found

    def _record(self, written: Any, schema: Any, target: pa.StructType, path: str) -> Read:
        steps: list[Read] = []
        step_of: dict[str, int] = {}  # by column
        for field, found in matched(written, schema, [column.name for column in target]):
            shown = f"{path}.{field['name']}".lstrip(".")
            if found is None:
                steps.append(self.skip(field["type"], shown))
            else:
                step_of[found["name"]] = len(steps)
                steps.append(self.read(field["type"], found["type"], target.field(found["name"]).type, shown))
        by_name = fields_by_name(schema)
        defaults = {
            column.name: self._default(by_name.get(column.name), column, path)
            for column in target
            if column.name not in step_of
        }

        def read(cursor: Cursor) -> Build:
            builds = [step(cursor) for step in steps]
            first = np.zeros(len(cursor), np.int64)

            def column(name: str) -> pa.Array:
                return builds[step_of[name]]() if name in step_of else take(defaults[name], first)

            return lambda: pa.StructArray.from_arrays([column(f.name) for f in target], fields=list(target))

        return read

    def _default(self, field: Any, column: pa.Field, path: str) -> pa.Array:
        """Return the value of a column that is not written, as an array of one."""
        shown = f"{path}.{column.name}".lstrip(".")
        if field is None:
            raise UnreadableError(f"{shown} is not in the reader's schema")
        if "default" not in field:
            raise UnreadableError(f"{shown} is not in the writer's schema, and has no default here")
        return pa.array([self._default_value(field["type"], field["default"], column.type)], column.type)

    def _default_value(self, schema: Any, value: Any, target: pa.DataType) -> Any:
        """Convert a default in a schema to the form that Arrow takes."""
        kind, schema = self._reader.of(schema)
        if value is None:
            return None
        match kind:
            case "union":  # a default belongs to the first branch
                return self._default_value(schema[0], value, target)
            case "record":
                fields = {field["name"]: field for field in schema["fields"]}
                return {
                    c.name: self._default_value(
                        fields[c.name]["type"], value.get(c.name, fields[c.name].get("default")), c.type
                    )
                    for c in target
                }
            case "array":
                return [self._default_value(schema["items"], item, target.value_type) for item in value]
            case "map":
                return [(k, self._default_value(schema["values"], item, target.item_type)) for k, item in value.items()]
            case "bytes" | "fixed":
                data = value.encode("latin-1")
                if not pa.types.is_decimal(target):
                    return data
                return Decimal(f"{int.from_bytes(data, 'big', signed=True)}e-{schema.get('scale', 0)}")
            case "int" | "long" if pa.types.is_timestamp(target) or pa.types.is_time(target):
                as_column = converter((kind, schema), (kind, schema), target, "a default")
                return as_column(np.array([value]), cursor_over(pa.array([b""])))[0]
        return value

    def _skip_record(self, written: Any, path: str) -> Read:
        name = written["name"]
        if name in self._skips:
            return self._skips[name]
        self._refuse_endless(written, ())
        steps: list[Read] = []

        def read(cursor: Cursor) -> Build:
            for step in steps:
                step(cursor)
            return _nothing

        self._skips[name] = read  # set before its steps: a record may contain itself
        steps += [self.skip(field["type"], f"{path}.{field['name']}") for field in written["fields"]]
        return read

    def _require_bytes(self, items: Any, path: str) -> None:
        """Refuse items without bytes: a few damaged bytes could claim any number of them."""
        self._refuse_endless(items, ())
        if self._is_empty(items):
            raise UnreadableError(f"{path} is an array of items that take no bytes")

    def _refuse_endless(self, writer: Any, within: tuple[str, ...]) -> None:
        """Refuse a record that contains itself outside of unions, arrays and maps: its data would never end."""
        kind, written = self._writer.of(writer)
        if kind != "record" or written["name"] in self._finite:
            return
        if written["name"] in within:
            raise UnreadableError(
                f"the record '{written['name']}' contains itself without end; a recursive schema cannot become columns"
            )
        for field in written["fields"]:
            self._refuse_endless(field["type"], (*within, written["name"]))
        self._finite.add(written["name"])

    def _is_empty(self, writer: Any) -> bool:
        kind, written = self._writer.of(writer)
        match kind:
            case "record":
                return all(self._is_empty(field["type"]) for field in written["fields"])
            case "fixed":
                return bool(written["size"] == 0)
        return kind == "null"


def _leaf(scanned: Callable[[Cursor], Any], convert: Callable[[Any, Cursor], pa.Array] | None = None) -> Read:
    def read(cursor: Cursor) -> Build:
        found = scanned(cursor)
        return _nothing if convert is None else lambda: convert(found, cursor)

    return read


def _union(branches: Sequence[Read], target: pa.DataType, path: str) -> Read:
    """Return the reader of a union: the number of a branch, then a value of that branch."""

    def read(cursor: Cursor) -> Build:
        branch = longs(cursor, path)
        wrong = (branch < 0) | (branch >= len(branches)) | (cursor.depth > DEEPEST)
        cursor.fail(wrong, f"{path} has a number that is not a branch of its union, or is nested too deeply")
        branch[wrong] = -1
        parts: list[tuple[Indices, Build]] = []
        for number, read_branch in enumerate(branches):
            chosen = np.flatnonzero(branch == number)
            if len(chosen):
                some = cursor.take(chosen)
                parts.append((chosen, read_branch(some)))
                cursor.put(chosen, some)
        return lambda: _gather(len(cursor), [(chosen, build()) for chosen, build in parts], target)

    return read


def _entry(key: Read, value: Read) -> Read:
    """Return the reader of a map's entry."""

    def read(cursor: Cursor) -> Build:
        build_key, build_value = key(cursor), value(cursor)
        return lambda: pa.StructArray.from_arrays([build_key(), build_value()], ["key", "value"])

    return read


def _map(offsets: pa.Array, entries: pa.StructArray, target: pa.DataType) -> pa.Array:
    keys = entries.field(0)
    if keys.null_count:  # those of marked messages
        keys = keys.fill_null("")
    return pa.MapArray.from_arrays(offsets, keys, entries.field(1), type=target)


def _never(_offsets: pa.Array, items: pa.Array) -> pa.Array:
    return items


def _nothing() -> pa.Array:
    return pa.nulls(0)


def _gather(
    size: int, parts: Sequence[tuple[Indices, pa.Array]], target: pa.DataType, without: Indices | None = None
) -> pa.Array:
    """Join parts into one array, in the order of their indices.

    Args:
        size: The length of the array.
        parts: Indices, ascending, and their values. An index without a value is null.
        target: The type of the array.
        without: Indices that are null in any case.
    """
    filled = [(chosen, array) for chosen, array in parts if array.null_count < len(array)]
    if not filled:
        return pa.nulls(size, target)
    if len(filled[0][0]) == size and (without is None or not len(without)):
        return filled[0][1]
    index = np.full(size, -1)
    begin = 0
    for chosen, array in filled:
        index[chosen] = np.arange(begin, begin + len(array))
        begin += len(array)
    if without is not None:
        index[without] = -1
    return take(pa.concat_arrays([array for _, array in filled]), index)
