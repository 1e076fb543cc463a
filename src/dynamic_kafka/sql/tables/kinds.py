"""Kinds of Spark's types, as Flink's rules of arithmetic ask for them. Pure."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import DataType, DecimalType

__all__ = [
    "decimal_of",
    "is_decimal",
    "is_fraction",
    "is_text",
    "is_whole",
    "kind_of",
    "name_of",
    "read_as_utc",
    "wider",
]

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


def is_text(found: DataType) -> bool:
    """Return whether it is STRING."""
    return kind_of(found) in ("StringType", "CharType", "VarcharType")


def decimal_of(found: DataType) -> DecimalType:
    """Return the DECIMAL that Flink calculates with in place of a whole number's type."""
    return DecimalType(_WHOLE[kind_of(found)], 0)


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
