"""JSON Schemas made from Spark's types, of the JSON that the format `json` writes, and the columns of a JSON Schema.

Numbers have `connect.type`, as Confluent's converters write it, so that readers know their size. Times are texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.format import count_part, parts_left
from dynamic_kafka.spark_versions import TimeType

__all__ = ["columns_of", "schema_of_connect", "schema_text"]

_SIMPLE: dict[str, dict[str, str]] = {
    "boolean": {"type": "boolean"},
    "byte": {"type": "integer", "connect.type": "int8"},
    "short": {"type": "integer", "connect.type": "int16"},
    "integer": {"type": "integer", "connect.type": "int32"},
    "long": {"type": "integer", "connect.type": "int64"},
    "float": {"type": "number", "connect.type": "float32"},
    "double": {"type": "number", "connect.type": "float64"},
    "binary": {"type": "string", "connect.type": "bytes"},
    "date": {"type": "string", "format": "date"},
}


def schema_text(schema: StructType) -> str:
    """Return the JSON Schema of rows, as text."""
    record = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Record", **_record(schema)}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def _record(schema: StructType) -> dict[str, Any]:
    properties = {f.name: _or_null(_type(f.dataType), nullable=f.nullable) for f in schema.fields}
    required = [field.name for field in schema.fields if not field.nullable]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _or_null(schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]} if nullable else schema


def _type(type_: DataType) -> dict[str, Any]:
    match type_:
        case StructType():
            return _record(type_)
        case ArrayType(elementType=element, containsNull=nullable):
            return {"type": "array", "items": _or_null(_type(element), nullable=nullable)}
        case MapType(valueType=element, valueContainsNull=nullable):
            values = _or_null(_type(element), nullable=nullable)
            return {"type": "object", "connect.type": "map", "additionalProperties": values}
        case DecimalType(precision=precision, scale=scale):
            parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
            title = "org.apache.kafka.connect.data.Decimal"
            return {"type": "number", "title": title, "connect.type": "bytes", "connect.parameters": parameters}
        case _ if type_.typeName().startswith("interval"):
            return {"type": "integer"}
        case _:
            return dict(_SIMPLE.get(type_.typeName(), {"type": "string"}))


# --- the columns of a schema --------------------------------------------------------------------------------------------

_OF_CONNECT: dict[str, DataType] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float32": FloatType(),
    "float64": DoubleType(),
    "bytes": BinaryType(),
}
_OF_TYPE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "integer": LongType(),
    "number": DoubleType(),
    "string": StringType(),
}
_OF_TITLE: dict[str, DataType] = {
    "org.apache.kafka.connect.data.Date": DateType(),
    "org.apache.kafka.connect.data.Time": TimeType(3),
    "org.apache.kafka.connect.data.Timestamp": TimestampType(),  # an instant; Debezium's are without a zone
    "io.debezium.time.Date": DateType(),
    "io.debezium.time.Time": TimeType(3),
    "io.debezium.time.MicroTime": TimeType(6),
    "io.debezium.time.NanoTime": TimeType(6),
    "io.debezium.time.Timestamp": TimestampNTZType(),
    "io.debezium.time.MicroTimestamp": TimestampNTZType(),
    "io.debezium.time.NanoTimestamp": TimestampNTZType(),
    "io.debezium.time.ZonedTimestamp": TimestampType(),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MOST_DIGITS = 38  # of Spark's decimals
_DEEPEST = 30
_SEMANTIC_COLUMNS = (DateType, DecimalType, TimestampNTZType, TimestampType, TimeType)
_SEMANTIC_NAMES = ("io.debezium.", "org.apache.kafka.connect.data.")


def columns_of(text: str) -> StructType:
    """Return the columns of a JSON Schema. A text with a `format` is STRING, apart from `date`.

    Raises:
        ConfigurationError: If it does not describe an object, a property cannot be a column, or there are too many.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigurationError("The schema is not JSON, or is nested too deeply") from None
    found, _ = _column(root, root, "", 0, parts_left())
    if not isinstance(found, StructType):
        raise ConfigurationError("The schema does not describe an object with properties, so it has no columns")
    return found


def _column(root: Any, schema: Any, path: str, depth: int, left: Iterator[int]) -> tuple[DataType, bool]:
    """Return the type of a part of a schema, and whether it may be null."""
    count_part(left)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        raise _no_column(path, "has no type, or contains itself")
    if "$ref" in schema:
        found = _referred(root, schema["$ref"])
        if found is None:
            raise _no_column(path, f"refers to '{schema['$ref']}', which is not in the schema")
        return _column(root, found, path, depth + 1, left)
    branches = schema.get("oneOf", schema.get("anyOf"))
    if branches is None and isinstance(schema.get("type"), list):
        branches = [{**schema, "type": type_} for type_ in schema["type"]]
    if branches is not None:
        others = [branch for branch in branches if not (isinstance(branch, dict) and branch.get("type") == "null")]
        if len(others) != 1:
            raise _no_column(path, "has several types")
        return _column(root, others[0], path, depth + 1, left)[0], len(others) < len(branches)
    return _plain_column(root, schema, path, depth, left), False


def _plain_column(root: Any, schema: dict[str, Any], path: str, depth: int, left: Iterator[int]) -> DataType:
    title, type_, connect = schema.get("title"), schema.get("type"), schema.get("connect.type")
    if title == _DECIMAL:
        return _decimal(schema.get("connect.parameters"), path)
    if isinstance(title, str) and title in _OF_TITLE:
        return _OF_TITLE[title]
    if isinstance(connect, str) and connect in _OF_CONNECT:
        return _OF_CONNECT[connect]
    if type_ == "object" and isinstance(schema.get("properties"), dict):
        fields = []
        required = schema.get("required", [])
        for name, part in schema["properties"].items():
            found, nullable = _column(root, part, f"{path}.{name}".lstrip("."), depth + 1, left)
            fields.append(StructField(name, found, nullable or name not in required))
        return StructType(fields)
    if type_ == "object" and isinstance(schema.get("additionalProperties"), dict):
        return MapType(StringType(), *_column(root, schema["additionalProperties"], path, depth + 1, left))
    if type_ == "array" and isinstance(schema.get("items"), dict):
        return ArrayType(*_column(root, schema["items"], path, depth + 1, left))
    if type_ == "string" and schema.get("format") == "date":
        return DateType()
    if type_ is None and all(isinstance(word, str) for word in schema.get("enum", [None])):
        return StringType()
    if isinstance(type_, str) and type_ in _OF_TYPE:
        return _OF_TYPE[type_]
    raise _no_column(path, f"has the type {json.dumps(type_)} without a description of its parts")


def _decimal(parameters: Any, path: str) -> DataType:
    given = parameters if isinstance(parameters, dict) else {}
    try:
        scale, precision = int(given["scale"]), int(given.get("connect.decimal.precision", _MOST_DIGITS))
    except (KeyError, TypeError, ValueError):
        raise _no_column(path, "is a decimal without a scale") from None
    if not 0 <= scale <= precision <= _MOST_DIGITS:
        raise _no_column(path, f"is a decimal with precision {precision} and scale {scale}")
    return DecimalType(precision, scale)


def _referred(root: Any, reference: Any) -> Any:
    """Return the part of the same schema that a reference such as `#/definitions/a` names; None if it has none."""
    found = root
    steps = str(reference).split("/")
    for step in steps[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if steps[0] == "#" else None


def _no_column(path: str, why: str) -> ConfigurationError:
    where = f"Property '{path}' of the schema" if path else "The schema"
    return ConfigurationError(f"{where} {why}, so it cannot be a column. Write the columns by hand")


# --- times and decimals of Kafka Connect ---


def schema_of_connect(schema: Any, column: DataType) -> dict[str, Any] | None:
    """Return a JSON Schema as one of Connect, for the kernel (`native/decode/src/json/semantic.rs`).

    Args:
        schema: The JSON Schema. Connect's names of types are titles in it.
        column: The type of the columns.

    Returns:
        What says of the columns that their values stand for times and decimals; None if nothing does.
    """
    return _semantic(schema, schema, column, 0, parts_left())


def _semantic(root: Any, schema: Any, column: DataType, depth: int, left: Iterator[int]) -> dict[str, Any] | None:
    count_part(left)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None

    def part(schema: Any, column: DataType) -> dict[str, Any] | None:
        return _semantic(root, schema, column, depth + 1, left)

    if "$ref" in schema:
        return part(_referred(root, schema["$ref"]), column)
    for combined in ("oneOf", "anyOf", "allOf"):
        if isinstance(schema.get(combined), list):  # with null
            found = [part(branch, column) for branch in schema[combined]]
            return next((one for one in found if one is not None), None)
    name, is_number = schema.get("title"), schema.get("type") == "number"
    if isinstance(column, _SEMANTIC_COLUMNS) and isinstance(name, str) and name.startswith(_SEMANTIC_NAMES):
        return None if is_number else {"name": name, "parameters": schema.get("connect.parameters")}
    inner: Any = None
    match column:
        case StructType() if isinstance(properties := schema.get("properties"), dict):
            parts = {f.name: part(properties.get(f.name), f.dataType) for f in column.fields}
            inner = "fields", [{"field": name, **found} for name, found in parts.items() if found is not None]
        case ArrayType(elementType=element):
            inner = "items", part(schema.get("items"), element)
        case MapType(valueType=element):
            inner = "values", part(schema.get("additionalProperties"), element)
    return dict([inner]) if inner is not None and inner[1] else None
