"""Formats as functions over Arrow batches in Spark's workers: the types of columns, and how Spark calls a function."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, RowError
from dynamic_kafka.formats.expressions import INTERVALS, rebuilt, retyped
from dynamic_kafka.formats.format import Rows
from dynamic_kafka.native import Encoded
from dynamic_kafka.spark_versions import TimeType, arrow_udf, takes_values

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "MESSAGE_OR_ERROR",
    "all_messages",
    "arrow_type",
    "as_numbers",
    "decoded",
    "encoded",
    "encoded_or_error",
    "evaluated",
    "handed_over",
    "of_values",
    "taken_over",
    "with_errors",
]

MESSAGE_OR_ERROR = StructType([StructField("message", BinaryType()), StructField("error", StringType())])
"""The type of the column of `encoded_or_error`. One of the two fields is null; both are for a row without a message."""


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type in which Spark's workers take a type, with the same nullability inside.

    Raises:
        ConfigurationError: If no format over Arrow supports the type.
    """
    kind: Any = data_type  # its attributes depend on its name
    name = data_type.typeName()
    match name:
        case "struct":
            return pa.struct([_field(f.name, f.dataType, nullable=f.nullable) for f in kind.fields])
        case "array":
            return pa.list_(_field("element", kind.elementType, nullable=kind.containsNull))
        case "map":
            value = _field("value", kind.valueType, nullable=kind.valueContainsNull)
            return pa.map_(arrow_type(kind.keyType), value)
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
        "string": pa.string(),
        "char": pa.string(),
        "varchar": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("ns"),
        "daytimeinterval": pa.duration("us"),
    }
    if name not in simple:
        raise ConfigurationError(
            f"Columns of type {data_type.simpleString()} are not supported. Remove them, or change their type"
        )
    return simple[name]


def _field(name: str, data_type: DataType, *, nullable: bool) -> pa.Field:
    """Return a field. That of a TIME has its precision as metadata, which Arrow's type does not have."""
    precision = {"precision": str(data_type.precision)} if isinstance(data_type, TimeType) else None
    return pa.field(name, arrow_type(data_type), nullable, precision)


def as_numbers(schema: StructType) -> StructType:
    """Return the types of columns for the kernel, where intervals are numbers: of months, or Spark's own of microseconds."""

    def number(type_: DataType) -> DataType:
        match type_:
            case YearMonthIntervalType():
                return IntegerType()
            case DayTimeIntervalType():
                return DayTimeIntervalType()
            case _:
                return type_

    found = retyped(schema, number)
    assert isinstance(found, StructType)
    return found


def handed_over(schema: StructType) -> StructType:
    """Return the types in which Arrow hands rows over to Spark: Spark takes no months, and times as TIME(6) only."""
    found = retyped(as_numbers(schema), lambda type_: TimeType(6) if isinstance(type_, TimeType) else type_)
    assert isinstance(found, StructType)
    return found


def taken_over(column: Column, type_: DataType) -> Column:
    """Return a value of a type that was `handed_over`, with the type itself."""

    def original(value: Column, type_: DataType) -> Column:
        match type_:
            case TimeType(precision=6) | DayTimeIntervalType(startField=0, endField=3):
                return value
            case TimeType():  # a cast to TIME needs the setting spark.sql.timeType.enabled
                return F.from_csv(value.cast(StringType()), F.lit(f"t {type_.simpleString()}"))["t"]
            case YearMonthIntervalType():
                return F.make_ym_interval(F.lit(0), value).cast(type_)
            case _:
                return value.cast(type_)

    return rebuilt(column, type_, (TimeType, *INTERVALS), original)


def decoded(rows: Callable[[pa.Array], pa.Array], type_: StructType, column: Column) -> Column:
    """Return a binary column with its decoded messages.

    Args:
        rows: Takes a binary array and returns a struct array, as `format.Decode` does.
        type_: The type of the result, of which all parts may be null.
        column: The messages.
    """

    def decode(messages: pa.Array) -> pa.Array:
        try:
            return rows(messages.cast(pa.binary()))  # Spark may be set to use Arrow's large types
        except OverflowError as error:
            raise DynamicKafkaError(
                f"Of a batch of {len(messages)} messages, {error}; set spark.sql.execution.arrow.maxRecordsPerBatch to less"
            ) from None

    return taken_over(evaluated(decode, handed_over(type_), column), type_)


def evaluated(function: Callable[..., pa.Array], result: DataType, *columns: Column) -> Column:
    """Return a column that Spark's workers evaluate over Arrow batches."""
    return arrow_udf(function, result)(*columns)


def encoded(rows: Rows | Column) -> Column:
    """Return the messages of what `Format.rows` returns. Spark's workers encode rows over Arrow batches.

    They raise `RowError` for a row that has no message.
    """
    if not isinstance(rows, Rows):
        return rows
    return _of_rows(rows, all_messages, BinaryType())


def encoded_or_error(rows: Rows) -> Column:
    """Return a column of `MESSAGE_OR_ERROR` that Spark's workers encode over Arrow batches."""
    return _of_rows(rows, with_errors, MESSAGE_OR_ERROR)


def _of_rows(rows: Rows, finish: Callable[[Encoded], pa.Array], result: DataType) -> Column:
    encode = rows.encode

    def messages(rows: pa.Array) -> pa.Array:
        return finish(encode(rows))

    messages.__name__ = encode.__name__  # plans show it
    return of_values(messages, result, rows.column, rows.type)


def all_messages(found: Encoded) -> pa.Array:
    """Return the messages of rows that all have one.

    Raises:
        RowError: If a row cannot be encoded.
    """
    if found.errors:
        _, column, reason = found.errors[0]
        raise RowError(column, reason)
    return found.messages


def with_errors(found: Encoded) -> pa.Array:
    """Return the messages as `MESSAGE_OR_ERROR`."""
    reasons = {place: str(RowError(column, reason)) for place, column, reason in found.errors}
    errors = pa.array([reasons.get(place) for place in range(len(found.messages))], pa.string())
    return pa.StructArray.from_arrays([found.messages, errors], MESSAGE_OR_ERROR.names)


def of_values(function: Callable[[pa.Array], pa.Array], result: DataType, column: Column, type_: DataType) -> Column:
    """Return a column that Spark's workers evaluate over Arrow batches of any type: if need be, of pickles."""
    if takes_values():
        return evaluated(function, result, column)

    # Python's times have fewer years and depend on the time zone, and its maps have another order.
    def plain(part: Column, type_: DataType) -> Column:
        match type_:
            case MapType(valueType=value):
                return F.map_entries(F.transform_values(part, lambda _, x: rebuilt(x, value, classes, plain)))
            case DateType():
                return F.unix_date(part)
            case TimestampType():
                return F.unix_micros(part)
            case _:
                return part - F.lit("1970-01-01").cast(type_)

    numbers: dict[type[DataType], DataType] = {DateType: IntegerType(), TimestampType: LongType()}
    classes = (MapType, TimestampNTZType, *numbers)

    def arrow(of_other_times: DataType) -> pa.DataType:
        types: dict[type[DataType], DataType] = {**numbers, TimestampNTZType: of_other_times}
        return arrow_type(retyped(type_, lambda leaf: types.get(type(leaf), leaf)))

    steps = arrow(DayTimeIntervalType()), arrow(LongType()), arrow_type(retyped(type_, lambda leaf: leaf))

    def of_pickles(pickles: pa.Array) -> pa.Array:
        values = [pickle.loads(value) for value in pickles.to_pylist()]  # noqa: S301  of the other function
        return function(pa.array(values, steps[0]).cast(steps[1]).cast(steps[2]))

    of_pickles.__name__ = function.__name__  # plans show it
    pickled = F.udf(
        pickle.dumps, BinaryType(), useArrow=False
    )  # by Arrow, a whole number beside a null becomes a float
    return evaluated(of_pickles, result, pickled(rebuilt(column, type_, classes, plain)))
