"""Avro schemas for the native kernel: the writer's, resolved to the columns (`native/decode/src/avro.rs`).

The kernel does not know the reader's schema. So what that one changes is written into the writer's schema: aliases,
defaults, logical types, the symbols of enums, and the branches of unions that no column can take. What can be read, and
which schemas do not fit, is decided by `decoding.reader` alone.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dynamic_kafka.formats.avro.connect import converted
from dynamic_kafka.formats.avro.decoding import reader
from dynamic_kafka.formats.avro.schemas import AvroSchema, fields_by_name, matched
from dynamic_kafka.formats.avro.values import UnreadableError, symbols

__all__ = ["resolved"]

_MOST_PARTS = 20_000  # names stand for whole schemas, so a short text may have any number of parts
_DEEPEST = 60


def resolved(writer: AvroSchema, schema: AvroSchema, target: pa.StructType) -> Any:
    """Return a writer's schema resolved to the columns; None if the kernel cannot read its messages.

    Args:
        writer: The writer's schema. `reader` accepts it.
        schema: The reader's schema.
        target: The columns.
    """
    try:
        return _Resolver(writer, schema).wanted(writer.root, schema.root, target, 0)
    except _NotResolvedError:
        return None


class _NotResolvedError(Exception):
    """Raised for a schema that contains itself, is too large, needs a default that is not null, or has Debezium's types."""


class _Resolver:
    def __init__(self, writer: AvroSchema, schema: AvroSchema) -> None:
        self._writer, self._reader = writer, schema
        self._parts = 0

    def wanted(self, part: Any, schema: Any, target: pa.DataType, depth: int) -> Any:
        """Return a part of the writer's schema that is read as `schema` into a column."""
        self._count(depth)
        kind, written = self._writer.of(part)
        if kind == "union":
            return [self._branch(branch, schema, target, depth + 1) for branch in written]
        if converted(kind, written, target) is not None:
            raise _NotResolvedError
        as_kind, as_schema = self._reader.of(self._without_null(schema))
        types = pa.types
        match kind:
            case "record":
                return self._record(written, as_schema, target, depth)
            case "array":
                items = self.wanted(written["items"], as_schema["items"], target.value_type, depth + 1)
                return {"type": kind, "items": items}
            case "map":
                values = self.wanted(written["values"], as_schema["values"], target.item_type, depth + 1)
                return {"type": kind, "values": values}
            case "enum":
                return {"type": kind, "symbols": symbols(written, (as_kind, as_schema))}
            case "bytes" | "fixed" if types.is_decimal(target):
                scale = (written if written.get("logicalType") == "decimal" else as_schema).get("scale", 0)
                return {"type": kind, "size": written.get("size"), "logicalType": "decimal", "scale": scale}
            case "int" | "long" if types.is_timestamp(target) or types.is_time(target):
                return {"type": kind, "logicalType": written.get("logicalType") or as_schema.get("logicalType")}
        return {"type": kind, "size": written["size"]} if kind == "fixed" else kind

    def _branch(self, branch: Any, schema: Any, target: pa.DataType, depth: int) -> Any:
        try:
            reader(AvroSchema(branch, self._writer.names), AvroSchema(schema, self._reader.names), target)
        except UnreadableError:
            return "unreadable"
        return self.wanted(branch, schema, target, depth)

    def _without_null(self, schema: Any) -> Any:
        kind, branches = self._reader.of(schema)
        if kind != "union":
            return schema
        return next(branch for branch in branches if self._reader.of(branch)[0] != "null")

    def _record(self, written: Any, schema: Any, target: pa.StructType, depth: int) -> Any:
        fields: list[dict[str, Any]] = []
        left = {column.name: column.type for column in target}
        for field, found in matched(written, schema, left):
            if found is None:
                fields.append({"type": self._skipped(field["type"], depth + 1, ())})
            else:
                part = self.wanted(field["type"], found["type"], left.pop(found["name"]), depth + 1)
                fields.append({"name": found["name"], "type": part})
        of_name = fields_by_name(schema)
        for name in left:
            if of_name[name]["default"] is not None:
                raise _NotResolvedError
            fields.append({"name": name, "type": "null"})
        return {"type": "record", "fields": fields}

    def _skipped(self, part: Any, depth: int, within: tuple[str, ...]) -> Any:
        """Return a part of the writer's schema that no column needs."""
        self._count(depth)
        kind, written = self._writer.of(part)
        match kind:
            case "union":
                return [self._skipped(branch, depth + 1, within) for branch in written]
            case "array":
                return {"type": kind, "items": self._skipped(written["items"], depth + 1, within)}
            case "map":
                return {"type": kind, "values": self._skipped(written["values"], depth + 1, within)}
            case "enum":
                return {"type": kind, "symbols": written["symbols"]}
            case "fixed":
                return {"type": kind, "size": written["size"]}
            case "record" if written["name"] in within:
                raise _NotResolvedError
            case "record":
                within = (*within, written["name"])
                return {
                    "type": kind,
                    "fields": [{"type": self._skipped(f["type"], depth + 1, within)} for f in written["fields"]],
                }
        return kind

    def _count(self, depth: int) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS or depth > _DEEPEST:
            raise _NotResolvedError
