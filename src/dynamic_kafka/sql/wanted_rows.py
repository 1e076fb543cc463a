"""Which rows a query of SQL wants of a table, for the table's source: conditions, as comparisons of the source's columns.

A comparison is Spark's own. Spark calculates the constants. One is taken only if Spark compares its type with that of the
column without a change of the column, and if it is a value of the column's type. All others stay with Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import SqlError
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.spark.columns import HISTORY_ROW
from dynamic_kafka.spark.comparisons import Comparison, as_text
from dynamic_kafka.sql.metadata_columns import METADATA_KEYS
from dynamic_kafka.sql.types import cast_type

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from dynamic_kafka.sql.pushed_conditions import Condition
    from dynamic_kafka.sql.table import KafkaTable

__all__ = ["wanted_rows"]

_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
"""The digits of whole numbers beside a DECIMAL."""
_COMPARED: tuple[tuple[type[DataType], tuple[type[DataType], ...]], ...] = (
    (BooleanType, (BooleanType,)),
    (DateType, (DateType,)),
    (TimestampType, (TimestampType, TimestampNTZType, DateType)),
    (TimestampNTZType, (TimestampNTZType, DateType)),
    (FloatType, (*_DIGITS, DecimalType, FloatType, DoubleType)),
    (DoubleType, (*_DIGITS, DecimalType, FloatType, DoubleType)),
)
"""The types of constants that leave a column of a type as it is. Whole numbers, DECIMAL and texts have their own rules."""
_ORDERED = ((IntegerType(), LongType()), (TimestampType(), TimestampNTZType()))
"""Types of a source's column and a metadata column made of it, which have one order but for times that clocks show twice."""
_MAX_DIGITS = 38
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _Place(NamedTuple):
    """Where the source has a table's column: its path, its type there, and in the table."""

    column: str
    path: tuple[str, ...]
    type: DataType
    declared: DataType


def wanted_rows(
    spark: SparkSession, table: KafkaTable, conditions: Iterable[Condition], translate: Callable[[str], str]
) -> str:
    """Return the conditions as the source's option; empty if it cannot use one.

    Args:
        spark: The session, which calculates the constants.
        table: The table. Its rows are not changes: those of a changelog depend on each other.
        conditions: Conditions that all rows of the query fulfil.
        translate: Takes a query of Flink, and returns it as one of Spark.
    """
    places, with_history = _places(table), "history.path" in table.source
    try:
        found = [condition for condition in conditions if condition.column.lower() in places]
        texts = list(dict.fromkeys(text for condition in found for text in condition.constants))
        if not texts:
            return ""
        selected = translate(f"SELECT {', '.join(f'{text} AS c{i}' for i, text in enumerate(texts))}")
        constants = spark.sql(f"{selected} FROM VALUES (0)")  # which Spark calculates without a job
        types = constants.schema
        taken: list[tuple[Comparison, _Place]] = []
        asked: list[Column] = []
        for column, sign, given in found:
            place = places[column.lower()]
            names = [f"c{texts.index(text)}" for text in given]
            if all(_is_compared(place, types[name].dataType, sign) for name in names):
                asked += (_exact(F.col(name), place).alias(f"v{len(asked) + i}") for i, name in enumerate(names))
                taken.append((Comparison(place.path, sign, len(names)), place))
        values = iter(constants.select(*asked).collect()[0] if asked else ())
        comparisons = []
        for (path, sign, count), place in taken:
            several = tuple(_of_python(next(values), place.type) for _ in range(count))
            if None not in several:
                value, type_ = several if sign == "in" else several[0], arrow_type(place.type)
                comparisons.append((Comparison(path, sign, value), type_))
                if with_history and place.type == place.declared:
                    comparisons.append((Comparison((HISTORY_ROW, place.column), sign, value), type_))
    except (PySparkException, SqlError, ValueError, OverflowError):  # also times that Python does not have
        return ""
    return as_text(comparisons) if comparisons else ""


def _places(table: KafkaTable) -> dict[str, _Place]:
    """Return where the source has the columns of a table, by their names in lower case."""
    found = {}
    for encoding in (table.key, table.value):  # a column of both is that of the value
        if encoding is not None:
            for name, field in zip(encoding.columns, encoding.schema.fields, strict=True):
                found[name.lower()] = _Place(name, (encoding.name, field.name), field.dataType, field.dataType)
    for column in table.metadata:
        key = METADATA_KEYS.get(column.key)
        if key is not None and column.key in ("topic", "partition", "offset", "timestamp", "kafka_cluster"):
            declared = cast_type(column.type)
            if declared == key.type or (key.type, declared) in _ORDERED:
                found[column.name.lower()] = _Place(column.name, (key.column,), key.type, declared)
    return found


def _is_compared(place: _Place, constant: DataType, sign: str) -> bool:
    """Return whether Spark compares a column with a constant of a type as the source does."""
    column = place.declared
    if column != place.type and isinstance(column, TimestampNTZType) and sign not in (">", ">="):
        return False  # of a time that clocks show twice, the constant is the first one
    if sign == "starts with" or StringType() in (column, constant):
        return column == constant == StringType()  # without a collation
    if (first := _digits(column)) is not None:
        other = _digits(constant)
        return other is not None and max(first[0], other[0]) + max(first[1], other[1]) <= _MAX_DIGITS
    return any(isinstance(column, type_) and isinstance(constant, types) for type_, types in _COMPARED)


def _digits(type_: DataType) -> tuple[int, int] | None:
    """Return the digits before and after the point of an exact number."""
    if isinstance(type_, DecimalType):
        return type_.precision - type_.scale, type_.scale
    return (_DIGITS[type(type_)], 0) if type(type_) in _DIGITS else None


def _exact(constant: Column, place: _Place) -> Column:
    """Return a constant with the type that a column has in the source; NULL if that is not the same value."""
    value = constant.try_cast(place.declared).try_cast(place.type)
    is_same = value.try_cast(place.declared) == constant
    return F.when(is_same, F.unix_micros(value) if isinstance(place.type, TimestampType) else value)


def _of_python(value: Any, type_: DataType) -> Any:
    """Return a value of Spark. A time is not one of the time zone of this process."""
    if value is None or not isinstance(type_, TimestampType):
        return value
    return _EPOCH + dt.timedelta(microseconds=value)
