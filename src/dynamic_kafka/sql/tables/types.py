"""Flink's types: as data, as Spark's types and back, and as text.

A type keeps its length, precision and nullability, because Spark's types do not have all of them:
`TIMESTAMP(3)` is Spark's TimestampNTZType, which has microseconds, and `CHAR(5)` is its StringType.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import types as spark
from pyspark.sql.types import DataType

from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.spark_versions import TimeType

__all__ = [
    "DAY_UNITS",
    "UNITS_US",
    "YEAR_UNITS",
    "FlinkType",
    "RowField",
    "alike",
    "cast_type",
    "decimal_of",
    "flink_type",
    "interval_units",
    "is_decimal",
    "is_fraction",
    "is_whole",
    "kind_of",
    "name_of",
    "read_as_utc",
    "spark_type",
    "string_literal",
    "time_precision",
    "wider",
]

YEAR_UNITS: tuple[str, ...] = ("YEAR", "MONTH")
DAY_UNITS: tuple[str, ...] = ("DAY", "HOUR", "MINUTE", "SECOND")
UNITS_US: Mapping[str, int] = {
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
"""The units that are as long at any time, in microseconds."""


@dataclass(frozen=True)
class RowField:
    """A field of a ROW."""

    name: str
    type: FlinkType
    comment: str | None = None


@dataclass(frozen=True)
class FlinkType:
    """A type of Flink's SQL, without synonyms; `str` returns Flink's text.

    Args:
        name: Such as `BIGINT`, `TIMESTAMP_LTZ`, `ROW` or `INTERVAL DAY(2) TO SECOND(3)`.
        parameters: The length, or the precision and the scale; defaults are filled in.
        elements: The type of an ARRAY's or a MULTISET's elements, or of a MAP's keys and of its values.
        fields: The fields of a ROW.
        nullable: False for NOT NULL.
    """

    name: str
    parameters: tuple[int, ...] = ()
    elements: tuple[FlinkType, ...] = ()
    fields: tuple[RowField, ...] = ()
    nullable: bool = True

    def __str__(self) -> str:
        text = self.name
        if self.parameters:
            text += f"({', '.join(map(str, self.parameters))})"
        if self.elements:
            text += f"<{', '.join(map(str, self.elements))}>"
        if self.name == "ROW":
            fields = (
                f"{quoted(f.name)} {f.type}{'' if f.comment is None else ' ' + string_literal(f.comment)}"
                for f in self.fields
            )
            text += f"<{', '.join(fields)}>"
        return text if self.nullable else f"{text} NOT NULL"


def string_literal(text: str) -> str:
    """Return a string in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def interval_units(text: str) -> tuple[str, ...]:
    """Return all units of an interval such as `DAY(2) TO MINUTE`: DAY, HOUR and MINUTE."""
    ends = [word.partition("(")[0] for word in text.split(" TO ")]
    family = YEAR_UNITS if ends[0] in YEAR_UNITS else DAY_UNITS
    return family[family.index(ends[0]) : family.index(ends[-1]) + 1]


def spark_type(type_: FlinkType) -> DataType:
    """Return the type of Spark for the values. It keeps the nullability of nested types; the caller keeps that of the type.

    TIMESTAMP becomes TimestampNTZType and TIMESTAMP_LTZ becomes TimestampType, both in microseconds. A MULTISET becomes a
    map from the element to its count, as in Flink's formats. Lengths of strings and bytes are not kept.
    """
    match type_:
        case FlinkType(name="DECIMAL", parameters=(precision, scale)):
            return spark.DecimalType(precision, scale)
        case FlinkType(name="TIME", parameters=(precision,)):
            return TimeType(precision)
        case FlinkType(name="ARRAY", elements=(element,)):
            return spark.ArrayType(spark_type(element), element.nullable)
        case FlinkType(name="MULTISET", elements=(element,)):
            return spark.MapType(spark_type(element), spark.IntegerType(), valueContainsNull=False)
        case FlinkType(name="MAP", elements=(key, value)):
            return spark.MapType(spark_type(key), spark_type(value), value.nullable)
        case FlinkType(name="ROW", fields=fields):
            comments = ({"comment": f.comment} if f.comment else None for f in fields)
            listed = zip(fields, comments, strict=True)
            return spark.StructType(
                [spark.StructField(f.name, spark_type(f.type), f.type.nullable, comment) for f, comment in listed]
            )
        case _ if type_.name.startswith("INTERVAL "):
            units = interval_units(type_.name.removeprefix("INTERVAL "))
            if units[0] in YEAR_UNITS:
                return spark.YearMonthIntervalType(YEAR_UNITS.index(units[0]), YEAR_UNITS.index(units[-1]))
            return spark.DayTimeIntervalType(DAY_UNITS.index(units[0]), DAY_UNITS.index(units[-1]))
        case _:
            return _IN_SPARK[type_.name]()


_IN_SPARK: Mapping[str, type[DataType]] = {
    "BOOLEAN": spark.BooleanType,
    "TINYINT": spark.ByteType,
    "SMALLINT": spark.ShortType,
    "INT": spark.IntegerType,
    "BIGINT": spark.LongType,
    "FLOAT": spark.FloatType,
    "DOUBLE": spark.DoubleType,
    "DATE": spark.DateType,
    "TIMESTAMP": spark.TimestampNTZType,
    "TIMESTAMP_LTZ": spark.TimestampType,
    "VARIANT": spark.VariantType,
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), spark.StringType),
    **dict.fromkeys(("BINARY", "VARBINARY", "BYTES"), spark.BinaryType),
}
"""The types that have no parts."""
_FLINK_NAMES = {in_spark: flink for flink, in_spark in _IN_SPARK.items()} | {spark.NullType: "NULL"}


def time_precision(type_: FlinkType) -> dict[str, int]:
    """Return a field's metadata with the precision of a time type, also inside an array or a map; Spark does not keep it."""
    if type_.name.startswith("TIME") and type_.parameters:
        return {"precision": type_.parameters[0]}
    return time_precision(type_.elements[-1]) if type_.elements else {}


def cast_type(type_: FlinkType) -> DataType:
    """Return the Spark type to cast to, with nullable parts: Spark does not cast nullable parts to others."""

    def relaxed(type_: FlinkType) -> FlinkType:
        fields = tuple(replace(f, type=relaxed(f.type)) for f in type_.fields)
        return replace(type_, elements=tuple(map(relaxed, type_.elements)), fields=fields, nullable=True)

    return spark_type(relaxed(type_))


def flink_type(data_type: DataType, *, nullable: bool = True) -> FlinkType:
    """Return the type of Flink for one of Spark's, such as a view's column.

    A type that Flink does not have gets Spark's name.
    """

    def build(
        name: str, *parameters: int, elements: tuple[FlinkType, ...] = (), fields: tuple[RowField, ...] = ()
    ) -> FlinkType:
        return FlinkType(name, parameters, elements, fields, nullable)

    match data_type:
        case spark.CharType(length=length):
            return build("CHAR", length)
        case spark.VarcharType(length=length):
            return build("VARCHAR", length)
        case spark.DecimalType(precision=precision, scale=scale):
            return build("DECIMAL", precision, scale)
        case TimeType(precision=precision):
            return build("TIME", precision)
        case spark.TimestampType():
            return build("TIMESTAMP_LTZ", 6)
        case spark.TimestampNTZType():
            return build("TIMESTAMP", 6)
        case spark.DayTimeIntervalType() | spark.YearMonthIntervalType():
            return build(data_type.simpleString().upper())
        case spark.ArrayType(elementType=element, containsNull=has_null):
            return build("ARRAY", elements=(flink_type(element, nullable=has_null),))
        case spark.MapType(keyType=key, valueType=value, valueContainsNull=has_null):
            return build("MAP", elements=(flink_type(key, nullable=False), flink_type(value, nullable=has_null)))
        case spark.StructType(fields=fields):
            types = (flink_type(f.dataType, nullable=f.nullable) for f in fields)
            listed = zip(fields, types, strict=True)
            return build("ROW", fields=tuple(RowField(f.name, type_, f.metadata.get("comment")) for f, type_ in listed))
        case _:
            return build(_FLINK_NAMES.get(type(data_type), data_type.simpleString().upper()))


def alike(one: DataType, other: DataType, fits: Callable[[DataType, DataType], bool]) -> bool:
    """Return whether the types in two arrays, maps or rows fit, whatever their nullability and the names of fields."""
    match one, other:
        case spark.ArrayType(), spark.ArrayType():
            return alike(one.elementType, other.elementType, fits)
        case spark.MapType(), spark.MapType():
            return alike(one.keyType, other.keyType, fits) and alike(one.valueType, other.valueType, fits)
        case spark.StructType(), spark.StructType():
            pairs = zip(one.fields, other.fields, strict=False)
            return len(one) == len(other) and all(alike(a.dataType, b.dataType, fits) for a, b in pairs)
        case _:
            return fits(one, other)


# --- kinds of Spark's types, as Flink's rules of arithmetic ask for them ------------------------------------------------

_WHOLE = {"ByteType": 3, "ShortType": 5, "IntegerType": 10, "LongType": 19}
"""Flink's digits of each whole number's type, from the smallest on."""


def kind_of(found: DataType) -> str:
    """Return the name of Spark's class for a type."""
    return type(found).__name__


def is_whole(found: DataType) -> bool:
    """Return whether it is a whole number's type."""
    return kind_of(found) in _WHOLE


def is_decimal(found: DataType) -> bool:
    """Return whether it is DECIMAL."""
    return kind_of(found) == "DecimalType"


def is_fraction(found: DataType) -> bool:
    """Return whether it is FLOAT or DOUBLE."""
    return kind_of(found) in ("FloatType", "DoubleType")


def decimal_of(found: DataType) -> spark.DecimalType:
    """Return the DECIMAL that Flink calculates with in place of a whole number's type."""
    return spark.DecimalType(_WHOLE[kind_of(found)], 0)


def wider(one: DataType, other: DataType) -> DataType:
    """Return the larger of two whole numbers' types."""
    return max(one, other, key=lambda found: _WHOLE[kind_of(found)])


def read_as_utc(time: str) -> str:
    """Return a TIMESTAMP as a TIMESTAMP_LTZ, as if it was the wall time of UTC. The session's time zone does not matter."""
    return f"timestamp_micros(({time} - TIMESTAMP_NTZ '1970-01-01 00:00:00') DIV INTERVAL '0.000001' SECOND)"


def name_of(found: DataType) -> str:
    """Return a type as Spark writes it. The names of fields keep their case."""
    inside: Any = found
    match kind_of(found):
        case "ArrayType":
            return f"ARRAY<{name_of(inside.elementType)}>"
        case "MapType":
            return f"MAP<{name_of(inside.keyType)},{name_of(inside.valueType)}>"
        case "StructType":
            quoted = ((field.name.replace("`", "``"), name_of(field.dataType)) for field in inside.fields)
            return f"STRUCT<{','.join(f'`{name}`:{type_}' for name, type_ in quoted)}>"
        case _:
            return found.simpleString().upper()
