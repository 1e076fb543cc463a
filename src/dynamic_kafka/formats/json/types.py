"""Columns whose values are numbers of another type in JSON, or may have to be taken for one.

Flink writes intervals as numbers, of months or of milliseconds. Spark reads 200 as the TINYINT -56; so a TINYINT is read as
a SMALLINT, to see whether it is one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from dynamic_kafka.formats.expressions import INTERVALS, has

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["from_wire", "interval_number", "wire_schema"]

_LONGEST_MS = (2**63 - 1) // 1000  # Spark counts microseconds in 64 bits; a longer interval is null


def wire_schema(schema: StructType) -> StructType:
    """The schema that `from_json` is given for these columns."""
    return StructType([StructField(f.name, _wire(f.dataType)) for f in schema.fields])


def _wire(type_: DataType) -> DataType:
    match type_:
        case ByteType():
            return ShortType()
        case YearMonthIntervalType() | DayTimeIntervalType():
            return LongType()
        case ArrayType(elementType=element):
            return ArrayType(_wire(element))
        case MapType(keyType=key, valueType=element):
            return MapType(key, _wire(element))
        case StructType():
            return wire_schema(type_)
        case _:
            return type_


def from_wire(column: Column, type_: DataType) -> Column:
    """What was read with the type of `wire_schema`, with the column's own type; null if it does not fit."""
    match type_:
        case _ if not has(type_, (ByteType, *INTERVALS)):
            return column
        case ByteType():
            return column.try_cast(type_)
        case YearMonthIntervalType():
            return F.make_ym_interval(F.lit(0), column.try_cast(IntegerType())).cast(type_)
        case DayTimeIntervalType():
            return (F.lit(timedelta(milliseconds=1)) * F.when(column.between(-_LONGEST_MS, _LONGEST_MS), column)).cast(
                type_
            )
        case ArrayType(elementType=element):
            return F.transform(column, lambda x: from_wire(x, element))
        case MapType(valueType=element):
            return F.transform_values(column, lambda _, x: from_wire(x, element))
        case StructType():
            fields = (from_wire(column[f.name], f.dataType).alias(f.name) for f in type_.fields)
            return F.when(column.isNotNull(), F.struct(*fields))
        case _:
            raise AssertionError(type_)


def interval_number(column: Column, type_: DataType) -> Column:
    """An interval as a number: of months or of milliseconds."""
    if isinstance(type_, YearMonthIntervalType):
        return column.cast(YearMonthIntervalType()).cast(IntegerType())
    seconds = column.cast(DayTimeIntervalType()).cast(DecimalType(20, 6))
    return (seconds * 1000).cast(LongType())
