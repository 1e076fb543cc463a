"""Spark's types as Avro schemas and as Arrow types; schemas given as text.

A schema made from columns is the one that Flink's `AvroSchemaConverter` makes, to the letter: a nullable column is a union
with null, null first and as the default, and the record is `org.apache.flink.avro.generated.record`, with the path of
columns appended for nested ones. So Flink and Spark jobs can share a subject of a schema registry.

Differences to Flink: `TIMESTAMP_LTZ` is allowed with the legacy mapping, as the same `timestamp-millis`; without it, the
types within arrays and maps follow the new mapping, too; `TIME` of more than 3 digits is `time-micros`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = ["PRECISION", "UNIT_NS", "AvroSchema", "arrow_type", "parse_schema", "schema_text"]

PRECISION = "precision"
"""Key in `StructField.metadata` for the fractional digits of a timestamp, which Spark's own types do not tell.

Where it is missing, as in arrays and maps, it is 3 with the legacy mapping, which in Flink allows no more, and else 6.
"""

UNIT_NS = {"millis": 10**6, "micros": 10**3, "nanos": 1}
"""Nanoseconds of a unit of time, by the end of a logical type's name."""

_NAMESPACE = "org.apache.flink.avro.generated"
_NAME = "record"
_SIMPLE: dict[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
}


@dataclass(frozen=True)
class AvroSchema:
    """A schema as fastavro parsed it.

    Args:
        root: The schema: a name, a list for a union, or a dict.
        names: Named schemas in it, by full name.
    """

    root: Any
    names: dict[str, Any] = field(default_factory=dict)

    def of(self, schema: Any) -> tuple[str, Any]:
        """The type of a part of the schema, and the part itself, with names looked up.

        Returns:
            `union` and a list, or one of Avro's type names and a dict.
        """
        if isinstance(schema, list):
            return "union", schema
        if isinstance(schema, str):
            return self.of(self.names[schema]) if schema in self.names else (schema, {})
        if isinstance(schema["type"], dict | list):
            return self.of(schema["type"])
        if schema["type"] in self.names:
            return self.of(schema["type"])
        return schema["type"], schema


def parse_schema(text: str, references: dict[str, str] | None = None) -> AvroSchema:
    """Parse a schema.

    Args:
        text: The schema as JSON.
        references: Schemas that it refers to, each after those it needs itself.

    Raises:
        ValueError: If it is no valid schema.
        MissingDependencyError: If fastavro is not installed.
    """
    try:
        import fastavro.schema
    except ImportError:
        raise MissingDependencyError("fastavro", "avro", "for the formats avro and avro-confluent") from None

    names: dict[str, Any] = {}
    try:
        for referenced in (references or {}).values():
            fastavro.schema.parse_schema(json.loads(referenced), names)
        root = fastavro.schema.parse_schema(json.loads(text), names)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:  # fastavro's, for a part that is missing
        raise ValueError(f"not a valid schema ({type(error).__name__}: {error})") from None
    return AvroSchema(root, names)


def schema_text(schema: StructType, *, legacy_timestamps: bool) -> str:
    """The schema that Flink makes from columns, in the form in which Java prints it.

    Args:
        schema: The columns.
        legacy_timestamps: Whether `TIMESTAMP` is `timestamp-millis` (Flink before 1.19, and its default), or
            `local-timestamp-millis` or `-micros`.

    Raises:
        ConfigurationError: If a column has a type that Avro does not have, or a name that it does not allow.
    """
    record = _record(schema, _NAME, "", legacy_timestamps)
    named = {"type": "record", "name": _NAME, "namespace": _NAMESPACE, "fields": record["fields"]}
    return json.dumps(named, separators=(",", ":"), ensure_ascii=False)


def _record(schema: StructType, name: str, path: str, legacy: bool) -> dict[str, Any]:  # noqa: FBT001
    fields = []
    for column in schema.fields:
        shown = f"{path}{column.name}"
        if not (column.name.isascii() and column.name.isidentifier()):
            raise ConfigurationError(
                f"Column '{shown}' cannot be a field of an Avro record: a name has letters, digits and underscores, and "
                "does not begin with a digit; rename it"
            )
        precision = column.metadata.get(PRECISION, 3 if legacy else 6)
        described = _type(column.dataType, f"{name}_{column.name}", shown, legacy, precision)
        if column.nullable:
            fields.append({"name": column.name, "type": ["null", described], "default": None})
        else:
            fields.append({"name": column.name, "type": described})
    return {"type": "record", "name": name, "fields": fields}


def _type(data_type: DataType, name: str, path: str, legacy: bool, precision: int) -> Any:  # noqa: FBT001
    kind: Any = data_type  # its attributes depend on its name
    inner = 3 if legacy else 6
    match data_type.typeName():
        case "struct":
            return _record(kind, name, f"{path}.", legacy)
        case "array":
            items = _type(kind.elementType, name, path, legacy, inner)
            return {"type": "array", "items": ["null", items] if kind.containsNull else items}
        case "map":
            if kind.keyType.typeName() != "string":
                raise ConfigurationError(
                    f"Column '{path}' has the type {data_type.simpleString()}; the keys of a map are texts in Avro"
                )
            values = _type(kind.valueType, name, path, legacy, inner)
            return {"type": "map", "values": ["null", values] if kind.valueContainsNull else values}
        case "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case "timestamp":
            return _timestamp("timestamp", precision)
        case "timestamp_ntz":
            return _timestamp("timestamp" if legacy else "local-timestamp", precision)
        case "time" if kind.precision <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case "time":
            return {"type": "long", "logicalType": "time-micros"}
        case simple if simple in _SIMPLE:
            return _SIMPLE[simple]
    raise ConfigurationError(f"Column '{path}' has the type {data_type.simpleString()}, which Avro does not have")


def _timestamp(logical: str, precision: int) -> dict[str, str]:
    return {"type": "long", "logicalType": f"{logical}-{'millis' if precision <= 3 else 'micros'}"}


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which Spark's workers take a type, for those types that `schema_text` takes."""
    import pyarrow as pa

    kind: Any = data_type  # its attributes depend on its name
    match data_type.typeName():
        case "struct":
            return pa.struct([pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in kind.fields])
        case "array":
            return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
        case "map":
            return pa.map_(pa.string(), pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull))
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case "timestamp_ntz":
            return pa.timestamp("us")
    simple = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("ns"),
    }
    return simple.get(data_type.typeName(), pa.string())
