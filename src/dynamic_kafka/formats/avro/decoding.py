"""Avro's binary encoding to Arrow columns: field by field, each for all messages of a batch at once.

A library that decodes message by message makes a Python object of each value first: 4 to 5 us for a message of 100 bytes
where this takes 0.6 us, and twice that if its schema is not the reader's. And as each message is read between its own first
and last byte, a damaged one cannot shift its neighbours, and one with bytes left over is noticed.

To read a field is to move a `Cursor` over it in all messages, and to note what is needed to build its column later, or
never, if the field is only skipped.

Which schemas go together is Avro's schema resolution, and a little more, as columns have no Avro types: names of records,
enums and fixed need not match, an enum can be a string and a fixed can be bytes, and times are converted from the unit in
which they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from dynamic_kafka.formats.avro.blocks import read_blocks
from dynamic_kafka.formats.avro.cursor import DEEPEST, Build, Cursor, Indices, Read, cursor_over, longs, take
from dynamic_kafka.formats.avro.skipping import Skip, value_skipper
from dynamic_kafka.formats.avro.types import AvroSchema
from dynamic_kafka.formats.avro.values import Typed, UnreadableError, converter, scan
from dynamic_kafka.formats.format import ERROR

__all__ = ["decode", "reader", "unreadable"]

_KEY: Typed = ("string", {})
# What a type may be read as: Avro's promotions, and what columns have for enum and fixed.
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
        groups: Takes a cursor over all messages that are not null, and says who reads which of them. It may move the
            cursor over what precedes the bodies, and leave out messages that it marks.

    Returns:
        A struct of the columns and `ERROR`, as `Format.decode` describes it.
    """
    cursor = cursor_over(messages)
    parts: list[tuple[Indices, Build]] = []
    for chosen, read in groups(cursor):
        group = cursor.take(chosen)
        parts.append((group.rows, read(group)))
        group.fail(group.position < group.end, "bytes are left over behind the record")
    arrays = [(rows, build()) for rows, build in parts]  # may still mark messages
    bad = np.fromiter(cursor.reasons, np.int64, len(cursor.reasons))
    records = _gather(len(messages), arrays, target, without=bad)
    reasons = _gather(len(messages), [(bad, pa.array(list(cursor.reasons.values()), pa.string()))], pa.string())
    fields = [*(field.with_nullable(True) for field in target), pa.field(ERROR, pa.string())]
    return pa.StructArray.from_arrays([*records.flatten(), reasons], fields=fields, mask=messages.is_null())


def reader(writer: AvroSchema, schema: AvroSchema, target: pa.DataType) -> Read:
    """How to read what is written with one schema as another one, into a column.

    Args:
        writer: The writer's schema.
        schema: The reader's schema.
        target: The column's type.

    Raises:
        UnreadableError: If nothing that is written with the former can be read as the latter, or the latter does not fit
            the column.
    """
    return _Compiler(writer, schema).read(writer.root, schema.root, target, "")


def unreadable(reason: str, target: pa.DataType) -> Read:
    """Marks whatever it is to read, for a reason."""

    def read(cursor: Cursor) -> Build:
        cursor.fail(np.ones(len(cursor), bool), reason)
        return lambda: pa.nulls(len(cursor), target)

    return read


class _Compiler:
    """Makes a `Read` of a pair of schemas. A path is a field's, for reasons."""

    def __init__(self, writer: AvroSchema, schema: AvroSchema) -> None:
        self._writer, self._reader = writer, schema
        self._skips: dict[str, Read] = {}
        self._finite: set[str] = set()  # records, by name

    def read(self, writer: Any, schema: Any, target: pa.DataType, path: str) -> Read:
        """What is written with `writer`, as `schema`."""
        kind, written = self._writer.of(writer)
        if kind == "union":
            return _union(self._branches(written, schema, target, path), target, path)
        wanted, nullable = self._without_null(schema)
        if kind == "null" and nullable:
            return lambda cursor: lambda: pa.nulls(len(cursor), target)
        as_kind, as_schema = self._reader.of(wanted)
        if as_kind not in _READABLE[kind]:
            raise UnreadableError(f"{path or 'the message'} is written as {kind} and is {as_kind} here")
        match kind:
            case "record":
                return self._record(written, as_schema, target, path)
            case "array":
                self._require_bytes(written["items"], path)
                item = self.read(written["items"], as_schema["items"], target.value_type, path)
                skips = [value_skipper(self._writer, written["items"])]
                return read_blocks(item, skips, lambda o, items: pa.ListArray.from_arrays(o, items, type=target), path)
            case "map":
                key = _leaf(scan(_KEY, path), converter(_KEY, _KEY, pa.string(), path))
                entry = _entry(key, self.read(written["values"], as_schema["values"], target.item_type, path))
                return read_blocks(entry, self._entry_skips(written), lambda o, entries: _map(o, entries, target), path)
        return _leaf(scan((kind, written), path), converter((kind, written), (as_kind, as_schema), target, path))

    def skip(self, writer: Any, path: str) -> Read:
        """What is written with `writer`, and not wanted; what it gives is never built."""
        kind, written = self._writer.of(writer)
        match kind:
            case "union":
                return _union([self.skip(branch, path) for branch in written], pa.null(), path)
            case "array":
                self._require_bytes(written["items"], path)
                skips = [value_skipper(self._writer, written["items"])]
                return read_blocks(self.skip(written["items"], path), skips, _never, path)
            case "map":
                entry = _entry(_leaf(scan(_KEY, path)), self.skip(written["values"], path))
                return read_blocks(entry, self._entry_skips(written), _never, path)
            case "record":
                return self._skip_record(written, path)
        return _leaf(scan((kind, written), path))

    def _entry_skips(self, written: Any) -> list[Skip]:
        return [value_skipper(self._writer, "string"), value_skipper(self._writer, written["values"])]

    def _without_null(self, schema: Any) -> tuple[Any, bool]:
        """What a reader's schema is apart from null, and whether it may be null."""
        kind, branches = self._reader.of(schema)
        if kind != "union":
            return schema, False
        others = [branch for branch in branches if self._reader.of(branch)[0] != "null"]
        if len(others) != 1:
            raise UnreadableError("a column cannot be a union of several types")
        return others[0], len(others) < len(branches)

    def _branches(self, written: list[Any], schema: Any, target: pa.DataType, path: str) -> list[Read]:
        """Of a writer's union; what fits none of its types but null is no fault of messages."""
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
        wanted = {name: field for field in schema["fields"] for name in (*field.get("aliases", ()), field["name"])}
        steps: list[Read] = []
        step_of: dict[str, int] = {}  # by column
        for field in written["fields"]:
            shown = f"{path}.{field['name']}".lstrip(".")
            found = wanted.get(field["name"])
            if found is None or found["name"] in step_of or target.get_field_index(found["name"]) < 0:
                steps.append(self.skip(field["type"], shown))
            else:
                step_of[found["name"]] = len(steps)
                steps.append(self.read(field["type"], found["type"], target.field(found["name"]).type, shown))
        defaults = {
            column.name: self._default(wanted.get(column.name), column, path)
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
        """A column that is not written, as an array of one."""
        shown = f"{path}.{column.name}".lstrip(".")
        if field is None:
            raise UnreadableError(f"{shown} is not in the reader's schema")
        if "default" not in field:
            raise UnreadableError(f"{shown} is missing in what is written, and has no default here")
        return pa.array([self._default_value(field["type"], field["default"], column.type)], column.type)

    def _default_value(self, schema: Any, value: Any, target: pa.DataType) -> Any:
        """A default as it stands in a schema, as Arrow takes it."""
        kind, schema = self._reader.of(schema)
        if value is None:
            return None
        match kind:
            case "union":  # the default is one of the first branch
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

        self._skips[name] = read  # before its steps: it may contain itself
        steps += [self.skip(field["type"], f"{path}.{field['name']}") for field in written["fields"]]
        return read

    def _require_bytes(self, items: Any, path: str) -> None:
        """Refuse items of no bytes: a few damaged bytes could claim any number of them."""
        self._refuse_endless(items, ())
        if self._is_empty(items):
            raise UnreadableError(f"{path} is an array of items that take no bytes")

    def _refuse_endless(self, writer: Any, within: tuple[str, ...]) -> None:
        """Refuse a record that contains itself other than in a union, an array or a map: it would never end."""
        kind, written = self._writer.of(writer)
        if kind != "record" or written["name"] in self._finite:
            return
        if written["name"] in within:
            raise UnreadableError(
                f"the record '{written['name']}' contains itself without end; a recursive schema cannot be columns"
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
    """The number of a branch, and what is written with it."""

    def read(cursor: Cursor) -> Build:
        branch = longs(cursor, path)
        wrong = (branch < 0) | (branch >= len(branches)) | (cursor.depth > DEEPEST)
        cursor.fail(wrong, f"{path} has no such branch in its union, or is nested too deeply")
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
    """An entry of a map."""

    def read(cursor: Cursor) -> Build:
        build_key, build_value = key(cursor), value(cursor)
        return lambda: pa.StructArray.from_arrays([build_key(), build_value()], ["key", "value"])

    return read


def _map(offsets: pa.Array, entries: pa.StructArray, target: pa.DataType) -> pa.Array:
    keys = entries.field(0)
    if keys.null_count:  # of marked messages
        keys = keys.fill_null("")
    return pa.MapArray.from_arrays(offsets, keys, entries.field(1), type=target)


def _never(_offsets: pa.Array, items: pa.Array) -> pa.Array:
    return items


def _nothing() -> pa.Array:
    return pa.nulls(0)


def _gather(
    size: int, parts: Sequence[tuple[Indices, pa.Array]], target: pa.DataType, without: Indices | None = None
) -> pa.Array:
    """One array of parts of it.

    Args:
        size: Its length.
        parts: Places, ascending, and their values. There is null where no part is.
        target: Its type.
        without: Places that are to be null, too.
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
