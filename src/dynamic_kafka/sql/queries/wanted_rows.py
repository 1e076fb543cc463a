"""Which rows a query of SQL wants of a table, for the table's source: conditions, as comparisons of the source's columns.

A comparison is Spark's own. Spark calculates the constants. One is taken only if Spark compares its type with that of the
column without a change of the column, and if it is a value of the column's type. All others stay with Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
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
from dynamic_kafka.history.model import HISTORY_ROW
from dynamic_kafka.spark.comparisons import EPOCH, MOST_COMPARISONS, AnyOf, Comparison, as_text
from dynamic_kafka.sql.tables.metadata_columns import METADATA_KEYS
from dynamic_kafka.sql.tables.types import cast_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from dynamic_kafka.sql.queries import pushed_conditions
    from dynamic_kafka.sql.queries.pushed_conditions import Condition
    from dynamic_kafka.sql.tables.table import KafkaTable

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


class _Place(NamedTuple):
    """Where the source has a table's column: its path, its type there, and in the table."""

    column: str
    path: tuple[str, ...]
    type: DataType
    declared: DataType


def wanted_rows(
    spark: SparkSession,
    table: KafkaTable,
    conditions: Iterable[pushed_conditions.AnyOf],
    translate: Callable[[str], str],
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
        found = [any_of for any_of in conditions if all(one.column.lower() in places for one in any_of)]
        if sum(map(len, found)) > MOST_COMPARISONS:
            return ""
        values = _constants(spark, places, chain.from_iterable(found), translate)
        taken: list[AnyOf] = []
        types: dict[tuple[str, ...], pa.DataType] = {}
        for any_of in found:
            of_any = [places[one.column.lower()] for one in any_of]
            given = [tuple(values.get((one, text)) for text in one.constants) for one in any_of]
            if any(None in several for several in given):
                continue
            rows_of = [[place.path for place in of_any]]
            if with_history and all(place.type == place.declared for place in of_any):
                rows_of.append([(HISTORY_ROW, place.column) for place in of_any])
            for paths in rows_of:
                types |= {path: arrow_type(place.type) for path, place in zip(paths, of_any, strict=True)}
                compared = zip(paths, any_of, given, strict=True)
                taken.append(tuple(Comparison.of(path, one.sign, several) for path, one, several in compared))
    except (PySparkException, SqlError, ValueError, OverflowError):  # also times that Python does not have
        return ""
    return as_text(taken, types) if taken else ""


def _constants(
    spark: SparkSession, places: Mapping[str, _Place], found: Iterable[Condition], translate: Callable[[str], str]
) -> dict[tuple[Condition, str], Any]:
    """Return the constants of conditions as values of their columns; without those that are not compared as they are."""
    asked = {(one, text): places[one.column.lower()] for one in found for text in one.constants}
    if not asked:
        return {}
    names = {text: f"c{i}" for i, text in enumerate(dict.fromkeys(text for _, text in asked))}
    selected = translate(f"SELECT {', '.join(f'{text} AS {name}' for text, name in names.items())}")
    constants = spark.sql(f"{selected} FROM VALUES (0)")  # which Spark calculates without a job
    schema = constants.schema
    types = {text: schema[name].dataType for text, name in names.items()}
    alike: dict[tuple[_Place, DataType], list[tuple[Condition, str]]] = {}
    for (one, text), place in asked.items():
        if _is_compared(place, types[text], one.sign):
            alike.setdefault((place, types[text]), []).append((one, text))
    if not alike:
        return {}
    # Arrays, as texts: many columns take long to analyse, and a Column is made by many calls of the JVM.
    arrays = (
        f"transform(array({', '.join(names[text] for _, text in keys)}), c -> {_exact('c', place)})"
        for (place, _), keys in alike.items()
    )
    row = constants.selectExpr(*arrays).collect()[0]
    return {
        key: _of_python(value, place.type)
        for ((place, _), keys), values in zip(alike.items(), row, strict=True)
        for key, value in zip(keys, values, strict=True)
    }


def _places(table: KafkaTable) -> dict[str, _Place]:
    """Return where the source has the columns of a table, by their names in lower case."""
    found = {}
    for encoding in (table.key, table.value):  # a column of both is that of the value
        if encoding is not None:
            for name, field in zip(encoding.columns, encoding.schema.fields, strict=True):
                found[name.lower()] = _Place(name, (encoding.name, field.name), field.dataType, field.dataType)
    for column in table.definition.metadata:
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


def _exact(constant: str, place: _Place) -> str:
    """Return a constant with the type that a column has in the source, as SQL; NULL if that is not the same value."""
    declared, of_source = place.declared.simpleString(), place.type.simpleString()
    value = f"try_cast(try_cast({constant} AS {declared}) AS {of_source})"
    given = f"unix_micros({value})" if isinstance(place.type, TimestampType) else value
    return f"CASE WHEN try_cast({value} AS {declared}) = {constant} THEN {given} END"


def _of_python(value: Any, type_: DataType) -> Any:
    """Return a value of Spark. A time is not one of the time zone of this process."""
    if value is None or not isinstance(type_, TimestampType):
        return value
    return EPOCH + dt.timedelta(microseconds=value)
