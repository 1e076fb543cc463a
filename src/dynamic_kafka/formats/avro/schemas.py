"""Avro schemas: made from Spark's types, or parsed from text.

A schema that is made from columns is the one that Flink's `AvroSchemaConverter` makes, to the letter: a nullable column is a
union with null, null first and as the default, and the record is `org.apache.flink.avro.generated.record`, with the path of
columns appended for nested records. So Flink and Spark jobs can share a subject of a schema registry.

Differences to Flink:

* `TIMESTAMP_LTZ` is allowed with the legacy mapping, as the same `timestamp-millis`.
* With the new mapping, the types within arrays and maps follow it, too.
* `TIME` of more than 3 digits is `time-micros`.
* Spark's timestamps have microseconds. With the legacy mapping they become milliseconds, and a value that would lose digits
  is an error, unless its column is declared as `TIMESTAMP(3)` or less. (Flink's jobs would silently read microseconds as
  other times.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.formats.avro.connect import with_logical_types

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "NAMESPACE",
    "PRECISION",
    "UNIT_NS",
    "AvroSchema",
    "matched_fields",
    "parse_schema",
    "schema_text",
    "to_be_cut",
]

PRECISION = "precision"
"""The key in `StructField.metadata` for the fractional digits of a timestamp, which Spark's own types do not have.

The default is 3 with the legacy mapping, which in Flink allows no more, and otherwise 6. Elements of arrays and values of
maps have the digits of their column.
"""

UNIT_NS = {"millis": 10**6, "micros": 10**3, "nanos": 1}
"""The nanoseconds of a unit of time, by the last part of a logical type's name."""

NAMESPACE = "org.apache.flink.avro.generated"
"""The namespace of a schema that is made from columns."""
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
        """Return the type of a part of the schema, and the part itself, with names resolved.

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
        return "record" if schema["type"] == "error" else schema["type"], schema


def parse_schema(text: str, references: dict[str, str] | None = None) -> AvroSchema:
    """Parse a schema.

    Args:
        text: The schema as JSON.
        references: Schemas that it refers to, each after those it needs itself.

    Raises:
        ValueError: If the text is not a valid schema.
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
    return json.loads(text, object_hook=with_logical_types)


def matched_fields(record: Any, written: Any) -> dict[str, Any]:
    """Return the fields of a reader's record by the names that they have in a writer's record.

    An alias counts only where the writer has neither the field's own name nor an earlier alias of it, and where the reader
    has no field of that name.
    """
    own, names = {known["name"]: known for known in record["fields"]}, {given["name"] for given in written["fields"]}
    found = {name: known for name, known in own.items() if name in names}
    for name, known in own.items():
        alias = next((alias for alias in known.get("aliases", ()) if alias in names - own.keys()), None)
        if alias is not None and name not in names:
            found[alias] = known
    return found


def schema_text(schema: StructType, *, legacy_timestamps: bool) -> str:
    """Return the schema that Flink makes from columns, as text in the form in which Java prints it.

    Args:
        schema: The columns.
        legacy_timestamps: True if `TIMESTAMP` is `timestamp-millis` (Flink before 1.19, and its default), false for
            `local-timestamp-millis` or `-micros`.

    Raises:
        ConfigurationError: If Avro does not have a column's type, or does not allow its name.
    """
    record = _record(schema, _NAME, "", legacy_timestamps)
    named = {"type": "record", "name": _NAME, "namespace": NAMESPACE, "fields": record["fields"]}
    return json.dumps(named, separators=(",", ":"), ensure_ascii=False)


def _record(schema: StructType, name: str, path: str, legacy: bool) -> dict[str, Any]:  # noqa: FBT001
    fields = []
    for column in schema.fields:
        shown = f"{path}{column.name}"
        if not (column.name.isascii() and column.name.isidentifier()):
            raise ConfigurationError(
                f"Column '{shown}' cannot be a field of an Avro record. Rename it: a name consists of letters, digits and "
                "underscores, and does not begin with a digit"
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
                    f"Column '{path}' has the type {data_type.simpleString()}, but the keys of a map are strings in Avro"
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
    """Return the columns that are declared with at most milliseconds: their times are cut to them, as in Flink.

    Times of other columns are not cut, because no declaration says that their digits may be lost.

    Returns:
        The columns' names, with the names of the structs around them, joined by dots.
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
