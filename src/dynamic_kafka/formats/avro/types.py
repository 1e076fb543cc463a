"""Spark's types as Avro schemas; schemas given as text.

A schema made from columns is the one that Flink's `AvroSchemaConverter` makes, to the letter: a nullable column is a union
with null, null first and as the default, and the record is `org.apache.flink.avro.generated.record`, with the path of
columns appended for nested ones. So Flink and Spark jobs can share a subject of a schema registry.

Differences to Flink: `TIMESTAMP_LTZ` is allowed with the legacy mapping, as the same `timestamp-millis`; without it, the
types within arrays and maps follow the new mapping, too; `TIME` of more than 3 digits is `time-micros`. Spark's timestamps
have microseconds: with the legacy mapping they are milliseconds, and a value that would lose digits is an error, unless its
column is declared as `TIMESTAMP(3)` or less. (As microseconds, Flink's jobs would read them as other times, silently.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["PRECISION", "UNIT_NS", "AvroSchema", "parse_schema", "schema_text", "to_be_cut"]

PRECISION = "precision"
"""Key in `StructField.metadata` for the fractional digits of a timestamp, which Spark's own types do not tell.

Where it is missing, it is 3 with the legacy mapping, which in Flink allows no more, and else 6. Elements of arrays and
values of maps have their column's.
"""

UNIT_NS = {"millis": 10**6, "micros": 10**3, "nanos": 1}
"""Nanoseconds of a unit of time, by the end of a logical type's name."""

_NAMESPACE = "org.apache.flink.avro.generated"
_NAME = "record"
_MAX_DEPTH = (
    200  # of brackets within brackets, about 50 records: above real schemas, below every interpreter's recursion limit
)
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)  # or a string, which may hold brackets
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
            fastavro.schema.parse_schema(_parse_json(referenced), names)
        root = fastavro.schema.parse_schema(_parse_json(text), names)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:  # fastavro's, for a part that is missing
        raise ValueError(f"not a valid schema ({type(error).__name__}: {error})") from None
    return AvroSchema(root, names)


def _parse_json(text: str) -> Any:
    """Parse JSON that is not nested too deeply; interpreters differ in the depth at which they raise RecursionError."""
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested too deeply: more than {_MAX_DEPTH} levels")
    return json.loads(text)


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
    match data_type.typeName():
        case "struct":
            return _record(kind, name, f"{path}.", legacy)
        case "array":
            items = _type(kind.elementType, name, path, legacy, precision)
            return {"type": "array", "items": ["null", items] if kind.containsNull else items}
        case "map":
            if kind.keyType.typeName() != "string":
                raise ConfigurationError(
                    f"Column '{path}' has the type {data_type.simpleString()}; the keys of a map are texts in Avro"
                )
            values = _type(kind.valueType, name, path, legacy, precision)
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


def to_be_cut(schema: StructType) -> frozenset[str]:
    """Columns declared with not more digits than milliseconds: of their times, what is more exact is cut off, as in Flink.

    Where nothing is declared, digits would be lost that nobody gave up.

    Returns:
        Names, each after those of the structs that the column is in, with dots.
    """
    return frozenset(_to_be_cut(schema, ""))


def _to_be_cut(data_type: DataType, path: str) -> Iterator[str]:
    kind: Any = data_type  # its attributes depend on its name
    match data_type.typeName():
        case "struct":
            for column in kind.fields:
                shown = f"{path}.{column.name}".lstrip(".")
                if column.metadata.get(PRECISION, 6) <= 3:
                    yield shown
                yield from _to_be_cut(column.dataType, shown)
        case "array":
            yield from _to_be_cut(kind.elementType, path)
        case "map":
            yield from _to_be_cut(kind.valueType, path)


def _timestamp(logical: str, precision: int) -> dict[str, str]:
    return {"type": "long", "logicalType": f"{logical}-{'millis' if precision <= 3 else 'micros'}"}
