"""Intervals in JSON: numbers of milliseconds or of months.

Spark does not take months over Arrow, so they are whole numbers there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DayTimeIntervalType,
    IntegerType,
    StructType,
    YearMonthIntervalType,
)

from dynamic_kafka.formats.expressions import INTERVALS, has, rebuilt, retyped
from dynamic_kafka.spark_versions import TimeType

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["as_intervals", "as_numbers", "is_native", "without_intervals"]


def is_native(schema: StructType) -> bool:
    """Return whether the kernel reads and writes columns of these types, which Spark takes and gives as they are."""
    return not has(schema, (TimeType, *INTERVALS))  # Spark reads Arrow's times as TIME(6) only


def as_numbers(schema: StructType) -> StructType:
    """Return the types of columns for the kernel."""

    def number(type_: DataType) -> DataType:
        match type_:
            case YearMonthIntervalType():
                return IntegerType()
            case DayTimeIntervalType():
                return DayTimeIntervalType()
            case _:
                return type_

    return cast("StructType", retyped(schema, number))


def as_intervals(column: Column, type_: DataType) -> Column:
    """Return a value of `as_numbers` with the intervals of its type."""

    def interval(value: Column, type_: DataType) -> Column:
        months = isinstance(type_, YearMonthIntervalType)
        return (F.make_ym_interval(F.lit(0), value) if months else value).cast(type_)

    return rebuilt(column, type_, INTERVALS, interval)


def without_intervals(column: Column, type_: DataType) -> Column:
    """Return a value with the types of `as_numbers`."""

    def number(value: Column, type_: DataType) -> Column:
        if isinstance(type_, YearMonthIntervalType):
            return value.cast(YearMonthIntervalType()).cast(IntegerType())
        return value.cast(DayTimeIntervalType())

    return rebuilt(column, type_, INTERVALS, number)
