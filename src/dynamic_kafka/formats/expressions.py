"""Types and expressions that formats and tables share: values as text, and expressions that are evaluated once.

None of them depends on the session's time zone or on ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark.errors import utils
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from dynamic_kafka.formats.format import ERROR, METADATA, ROW_KIND, ROWS
from dynamic_kafka.spark_versions import TimeType

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from dynamic_kafka.formats.format import Format

__all__ = [
    "INTERVALS",
    "TEMPORAL",
    "changes_type",
    "decoded_struct",
    "has",
    "let",
    "named",
    "nullable",
    "once",
    "parts",
    "quoted",
    "rebuilt",
    "retyped",
    "temporal_text",
    "without_call_sites",
]

TEMPORAL = (DateType, TimeType, TimestampNTZType, TimestampType)
"""The types with values that are texts in JSON and CSV."""
INTERVALS = (YearMonthIntervalType, DayTimeIntervalType)
"""The types with values that are numbers in JSON: of months, and of milliseconds."""


_call_sites = Lock()


@contextmanager
def without_call_sites() -> Iterator[None]:
    """Make columns without the places in our code where they are made.

    For each call of a column's method PySpark tells the JVM the line of that call, for error messages. That takes ten calls
    of the JVM, and a table has a hundred such methods. Our lines say nothing to a user. PySpark reads its setting for that
    (`spark.python.sql.dataFrameDebugging.enabled`) only once in a process, so its variable is set here. Columns that other
    threads make at the same time lack their places, too.
    """
    with _call_sites:
        pyspark: Any = utils  # private: there is no other way to change it for a while
        before = pyspark._enable_debugging_cache
        pyspark._enable_debugging_cache = False
        try:
            yield
        finally:
            pyspark._enable_debugging_cache = before


def let(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return the result of `use` for a value that is computed once, however often it is used.

    Only the variable of a lambda is never computed twice. Spark evaluates any other expression again in each place where it
    is used, unless all of these places are always evaluated.
    """
    return F.get(F.transform(F.array(value), use), F.lit(0))


def quoted(name: str) -> str:
    """Return a name in backticks, for SQL and for `functions.col`: a name may contain a dot."""
    return "`" + name.replace("`", "``") + "`"


def named(name: str) -> Column:
    """Return the column with a name, which may contain a dot."""
    return F.col(quoted(name))


def once(column: Column) -> Column:
    """Return a column, or the condition of a filter, that Spark evaluates where it stands, once for each row.

    The optimizer copies a deterministic expression into each filter above it that uses it, moves the conditions of a query
    below a deterministic filter, and joins them with it in another order. It does nothing of that with an expression that
    depends on the partition.
    """
    return F.when(F.spark_partition_id() >= 0, column)


def decoded_struct(form: Format, schema: StructType) -> StructType:
    """Return the type of what a format's decoder returns for a schema."""
    found = changes_type(schema, form.metadata) if form.changelog else schema
    return StructType([*found.fields, StructField(ERROR, StringType())])


def changes_type(row: StructType, metadata: Mapping[str, DataType]) -> StructType:
    """Return the type of a changelog's decoded messages, without `ERROR`.

    Args:
        row: The columns.
        metadata: The types of the format's metadata by name.
    """
    change = StructType([StructField(ROW_KIND, StringType()), StructField("row", row)])
    found = StructType([StructField(name, type_) for name, type_ in metadata.items()])
    return StructType([StructField(ROWS, ArrayType(change)), StructField(METADATA, found)])


def parts(type_: DataType) -> Iterator[DataType]:
    """Yield a type and all types in it, apart from the keys of maps."""
    yield type_
    match type_:
        case StructType():
            for field in type_.fields:
                yield from parts(field.dataType)
        case ArrayType(elementType=element) | MapType(valueType=element):
            yield from parts(element)
        case _:
            pass


def has(type_: DataType, classes: tuple[type[DataType], ...]) -> bool:
    """Return whether a type is one of the classes, or contains one."""
    return any(isinstance(part, classes) for part in parts(type_))


def retyped(type_: DataType, leaf: Callable[[DataType], DataType]) -> DataType:
    """Return a type with each simple type in it, apart from the keys of maps, replaced by the result of `leaf`."""
    match type_:
        case StructType():
            return StructType([StructField(f.name, retyped(f.dataType, leaf)) for f in type_.fields])
        case ArrayType(elementType=element):
            return ArrayType(retyped(element, leaf))
        case MapType(keyType=key, valueType=element):
            return MapType(key, retyped(element, leaf))
        case _:
            return leaf(type_)


def nullable(schema: StructType) -> StructType:
    """Return a struct of which all parts may be null, without metadata."""
    found = retyped(schema, lambda leaf: leaf)
    assert isinstance(found, StructType)
    return found


def rebuilt(
    column: Column, type_: DataType, classes: tuple[type[DataType], ...], leaf: Callable[[Column, DataType], Column]
) -> Column:
    """Return a value with each part of the classes replaced; parts that contain none of them stay as they are.

    Args:
        column: The value.
        type_: Its type.
        classes: Types. A part of one is replaced as a whole.
        leaf: Takes a part and its type, and returns the part that replaces it.
    """
    if isinstance(type_, classes):
        return leaf(column, type_)
    if not has(type_, classes):
        return column
    match type_:
        case StructType():
            fields = (rebuilt(column[f.name], f.dataType, classes, leaf).alias(f.name) for f in type_.fields)
            return F.when(column.isNotNull(), F.struct(*fields))
        case ArrayType(elementType=element):
            return F.transform(column, lambda x: rebuilt(x, element, classes, leaf))
        case MapType(valueType=element):
            return F.transform_values(column, lambda _, x: rebuilt(x, element, classes, leaf))
        case _:
            return column


def temporal_text(column: Column, type_: DataType) -> Column:
    """Return a date, time or timestamp as Flink writes it: with as few digits as possible, instants in UTC with `Z`."""
    if isinstance(type_, TimestampType):
        # All other functions on instants use the session's time zone.
        since_1970 = F.lit(timedelta(microseconds=1)) * F.unix_micros(column)
        column = F.lit("1970-01-01").cast(TimestampNTZType()) + since_1970
    text = column.cast(StringType())
    return F.concat(text, F.lit("Z")) if isinstance(type_, TimestampType) else text
