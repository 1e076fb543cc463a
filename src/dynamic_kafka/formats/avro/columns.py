"""The columns that an Avro schema describes, for tables without columns.

An instant (`timestamp-*`) is TIMESTAMP_LTZ, and a wall clock (`local-timestamp-*`, and Debezium's types without a zone) is
TIMESTAMP. An enum is STRING, and a fixed is BYTES. All columns can be read by `decoding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.avro.connect import ZONED_TIMESTAMP
from dynamic_kafka.formats.avro.schemas import PRECISION, AvroSchema, matched_fields
from dynamic_kafka.formats.format import count_part, parts_left
from dynamic_kafka.spark_versions import TimeType

__all__ = ["columns_of", "new_fields", "only_record"]

_Part: TypeAlias = tuple[AvroSchema, Any]
_MOST_DIGITS = 38  # of Spark's decimals
_DEEPEST = 30
_SIMPLE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "enum": StringType(),
}


def columns_of(schema: AvroSchema) -> StructType:
    """Return the columns of a schema.

    Raises:
        ConfigurationError: If it is not a record, a field cannot be a column, or there are too many.
    """
    found, _ = _nullable(schema, schema.root, "", 0, parts_left())
    if not isinstance(found, StructType):
        raise ConfigurationError("The schema is not a record, so it has no columns")
    return found


def _nullable(schema: AvroSchema, part: Any, path: str, depth: int, left: Iterator[int]) -> tuple[DataType, bool]:
    """Return the type of a part, and whether it may be null."""
    kind, written = schema.of(part)
    if kind != "union":
        return _type(schema, (kind, written), path, depth, left), False
    others = [branch for branch in written if schema.of(branch)[0] != "null"]
    if len(others) != 1:
        raise ConfigurationError(
            f"Field '{path}' of the schema is a union of several types, which cannot be a column. Write the columns without "
            "it"
        )
    return _nullable(schema, others[0], path, depth, left)[0], len(others) < len(written)


def _type(schema: AvroSchema, typed: tuple[str, Any], path: str, depth: int, left: Iterator[int]) -> DataType:
    count_part(left)
    kind, written = typed
    if depth > _DEEPEST:
        raise ConfigurationError(f"Field '{path}' of the schema contains itself. Write the columns without it")
    match kind:
        case "record":
            fields = []
            for field in written["fields"]:
                shown = f"{path}.{field['name']}".lstrip(".")
                type_, nullable = _nullable(schema, field["type"], shown, depth + 1, left)
                fields.append(StructField(field["name"], type_, nullable, _precision(schema, field["type"])))
            return StructType(fields)
        case "array":
            return ArrayType(*_nullable(schema, written["items"], path, depth + 1, left))
        case "map":
            return MapType(StringType(), *_nullable(schema, written["values"], path, depth + 1, left))
        case "null":
            raise ConfigurationError(f"Field '{path}' of the schema is always null. Write the columns without it")
    return _logical(kind, written) or _SIMPLE[kind]


def _logical(kind: str, written: Any) -> DataType | None:
    logical, name = str(written.get("logicalType")), str(written.get("connect.name"))
    if kind == "string":
        return TimestampType() if name == ZONED_TIMESTAMP else None
    if kind in ("bytes", "fixed") and logical == "decimal":
        precision, scale = written.get("precision"), written.get("scale", 0)
        fits = isinstance(precision, int) and 0 < precision <= _MOST_DIGITS
        return DecimalType(precision, scale) if fits else None
    if kind == "int" and logical == "date":
        return DateType()
    if logical in ("time-millis", "time-micros", "time-nanos") and kind in ("int", "long"):
        return TimeType(3 if logical == "time-millis" else 6)
    if kind == "long" and logical.startswith(("timestamp-", "local-timestamp-")):
        local = logical.startswith("local") or name.startswith("io.debezium.time.")
        return TimestampNTZType() if local else TimestampType()
    return None


def _precision(schema: AvroSchema, part: Any) -> dict[str, Any]:
    """Return a field's metadata with the digits of a timestamp."""
    kind, written = schema.of(part)
    if kind == "union":
        others = [_precision(schema, branch) for branch in written]
        return next((found for found in others if found), {})
    logical = str(written.get("logicalType"))
    return {PRECISION: 3 if logical.endswith("millis") else 6} if kind == "long" and "timestamp-" in logical else {}


def new_fields(writer: AvroSchema, schema: AvroSchema) -> list[str]:
    """Return the fields of a writer's schema that the reader's does not have, also those of nested records, as paths."""
    return _new_fields((writer, writer.root), (schema, schema.root), "", 0)


def _new_fields(of_writer: _Part, of_reader: _Part, path: str, depth: int) -> list[str]:
    written, known = only_record(*of_writer), only_record(*of_reader)
    if written is None or known is None or depth > _DEEPEST:
        return []
    by_name = matched_fields(known, written)
    found = []
    for field in written["fields"]:
        shown = f"{path}.{field['name']}".lstrip(".")
        if field["name"] in by_name:
            pair = (of_writer[0], field["type"]), (of_reader[0], by_name[field["name"]]["type"])
            found += _new_fields(*pair, shown, depth + 1)
        else:
            found.append(shown)
    return found


def only_record(schema: AvroSchema, part: Any) -> Any:
    """Return the record that a part is, also in a union with null; None if it is another type."""
    kind, written = schema.of(part)
    if kind == "union":
        records = [found for branch in written if (found := only_record(schema, branch)) is not None]
        return records[0] if len(records) == 1 else None
    return written if kind == "record" else None
