"""Messages that are JSON but not as Spark's `from_json` expects it, read by the rules of Flink.

Spark reads a number or a boolean only if it is one in JSON. Flink accepts more: it may be in quotes, a whole number may have
a point, and any value can be a boolean. So columns with numbers and booleans are read a second time, as texts, and converted
(`repaired`). A value that is null then, but not null in the message, does not fit its column. For a whole column the names
of the fields show that, for a number inside of another value `lost` does, and for everything else inside of another value
the parser does, which is why those columns are read again, too.

All of this is evaluated only for messages with which Spark found a problem. The expressions are small, because Spark plans
each micro-batch anew.

Two more rules are here: types that have another type in JSON (`wire_schema`), and `json.fail-on-missing-field`
(`with_missing_field`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from dynamic_kafka.formats.expressions import INTERVALS, either, has, let, or_error, rebuilt, retyped, with_error
from dynamic_kafka.formats.format import ERROR

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "PARSER",
    "beyond_calendar",
    "converted",
    "from_wire",
    "has_long_numbers",
    "interval_number",
    "lost",
    "relaxed",
    "repaired",
    "wire_schema",
    "with_missing_field",
]

PARSER = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": ERROR,
    "timeZone": "UTC",
    "enableDateTimeParsingFallback": "false",
    # As in Flink's parser (Jackson); Spark's own defaults come from its session.
    "allowComments": "false",
    "allowSingleQuotes": "false",
    "allowUnquotedFieldNames": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "true",
}
"""Options of Spark's JSON parser."""
_NAMES = MapType(StringType(), StringType())  # any JSON object can be read as that, and nothing else

_LONGEST_MS = (2**63 - 1) // 1000  # Spark counts microseconds in 64 bits; a longer interval is null
_WHOLE = (ByteType, ShortType, IntegerType, LongType, *INTERVALS)
_FLOATING = (FloatType, DoubleType)
_WEAK = (*_WHOLE, *_FLOATING, BooleanType)
_CONVERTED = (*_WEAK, TimestampType)
_NESTED = (StructType, ArrayType, MapType)
# Spark reads a number as seconds, and counts microseconds in 64 bits, without a check.
_LONG_NUMBER = r"[\[:,]\s*-?(9[2-9]\d{11}|\d{14})"
_LONG_TIME = r"\A-?\d{13,}\z"
_ANY_NUMBER = DecimalType(38, 18)  # holds all whole numbers, also with digits behind the point
_NOT_AN_OBJECT = "It is not a JSON object"
_NOT_UTF_8 = "It is not UTF-8"
_MISFIT = "It does not fit the columns: "


def beyond_calendar(instant: Column) -> Column:
    """Return whether a timestamp is after the year 9999.

    Spark reads a number as seconds since 1970, where Flink fails. Most producers write milliseconds, which would become
    times in the year 50,000: these are errors.
    """
    return instant >= F.timestamp_seconds(F.lit(253_402_300_800))


def has_long_numbers(text: Column) -> Column:
    """Return whether a message may have a number that Spark reads as another time, because it is too large for a time."""
    return text.rlike(_LONG_NUMBER)


def _without_long_numbers(value: Column, texts: Column, type_: DataType) -> Column:
    """Return a value without times that were long numbers in JSON: null instead.

    Args:
        value: The value, with the type `relaxed`.
        texts: The same value, with texts in place of times.
        type_: The type of the column.
    """
    match type_:
        case _ if not has(type_, (TimestampType,)):
            return value
        case StructType():
            fields = (
                _without_long_numbers(value[f.name], texts[f.name], f.dataType).alias(f.name) for f in type_.fields
            )
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType(elementType=element):
            return F.zip_with(value, texts, lambda v, t: _without_long_numbers(v, t, element))
        case MapType(valueType=element):
            return F.map_zip_with(value, texts, lambda _, v, t: _without_long_numbers(v, t, element))
        case _:
            return F.when(~texts.rlike(_LONG_TIME), value)


def repaired(text: Column, row: Column, schema: StructType, *, ignore_errors: bool) -> Column:
    """Read a message with which Spark found a problem, by the rules of Flink.

    Args:
        text: The message.
        row: The row that Spark read, with the types of `wire_schema`; or null.
        schema: The columns.
        ignore_errors: If true, fields that cannot be parsed become null, and a message that is not a JSON object is null.
    """
    again = StructType(
        [StructField(f.name, relaxed(f.dataType)) for f in schema.fields if has(f.dataType, (*_CONVERTED, *_NESTED))]
    )
    second = F.from_json(text, with_error(again), PARSER)
    # For each time, the text that it has in JSON.
    of_times = StructType(
        [StructField(f.name, retyped(f.dataType, _as_text)) for f in again.fields if has(f.dataType, (TimestampType,))]
    )
    texts = F.from_json(text, of_times, PARSER) if of_times.fields else F.lit(None)
    names = F.map_keys(F.map_filter(F.from_json(text, _NAMES, PARSER), lambda _, x: x.isNotNull()))

    def by_flink(read: Column) -> Column:
        first, second, texts, names = read["first"], read["second"], read["texts"], read["names"]

        def column(name: str, type_: DataType) -> Column:
            if name not in again.names:
                return first[name]
            value = second[name]
            return converted(
                type_, _without_long_numbers(value, texts[name], type_) if name in of_times.names else value
            )

        columns = F.struct(
            *(column(f.name, f.dataType).alias(f.name) for f in schema.fields),
            F.lit(None).cast(StringType()).alias(ERROR),
        )
        if ignore_errors:
            return F.when(names.isNotNull() & ~read["mangled"], columns)

        def checked(found: Column) -> Column:
            no_text = F.when(read["mangled"], _NOT_UTF_8)
            return or_error(found, F.coalesce(no_text, _error(names, second, found, schema)), schema)

        return let(columns, checked)

    mangled = ~F.is_valid_utf8(text)
    read = {"first": row, "second": second, "texts": texts, "names": names, "mangled": mangled}
    return let(F.struct(*(value.alias(name) for name, value in read.items())), by_flink)


def _error(names: Column, second: Column, found: Column, schema: StructType) -> Column:
    """Return the error of a message: it is not an object, or a value that is not null could not be read."""
    not_null = F.json_object_keys(F.to_json(found, {"ignoreNullFields": "true"}))
    nested = [
        F.when(lost(f.dataType, second[f.name], found[f.name]), f.name)
        for f in schema.fields
        if not isinstance(f.dataType, _CONVERTED) and has(f.dataType, _CONVERTED)
    ]
    misfits = F.array_except(F.array_intersect(F.lit(schema.names), names), not_null)
    if nested:
        misfits = F.array_union(misfits, F.array_compact(F.array(*nested)))
    wrong = (F.size(misfits) > 0) | second[ERROR].isNotNull()
    # The parser does not report where the problem is: it is inside of one of these columns.
    inside = F.array_intersect(F.lit([f.name for f in schema.fields if isinstance(f.dataType, _NESTED)] or [""]), names)
    which = F.when(F.size(misfits) > 0, F.array_join(misfits, ", ")).otherwise(
        F.concat(F.lit("inside of "), F.array_join(inside, " or "))
    )
    return F.when(names.isNull(), _NOT_AN_OBJECT).when(wrong, F.concat(F.lit(_MISFIT), which))


def relaxed(type_: DataType) -> DataType:
    """Return the type for reading a second time: with texts in place of numbers and booleans."""
    return retyped(type_, lambda leaf: StringType() if isinstance(leaf, _WEAK) else leaf)


def _as_text(type_: DataType) -> DataType:
    return StringType() if isinstance(type_, (*_WEAK, TimestampType)) else type_


def converted(type_: DataType, second: Column) -> Column:
    """Convert a value that was read with the type `relaxed` to its column's type; null if that is impossible."""

    def leaf(text: Column, type_: DataType) -> Column:
        match type_:
            case TimestampType():
                return F.when(~beyond_calendar(text), text)
            case BooleanType():
                return F.lower(F.trim(text)) == "true"
            case _ if isinstance(type_, INTERVALS):
                return from_wire(text.try_cast(_ANY_NUMBER).try_cast(LongType()), type_)
            case _ if isinstance(type_, _FLOATING):
                return F.btrim(text, F.lit('"')).try_cast(type_)  # 1e400 is read as the text "Infinity", with quotes
            case _:
                return text.try_cast(_ANY_NUMBER).try_cast(type_)

    return rebuilt(second, type_, _CONVERTED, leaf)


def lost(type_: DataType, second: Column, found: Column) -> Column:
    """Return whether a number inside of a value could not be converted."""
    match type_:
        case StructType():
            return either(
                lost(f.dataType, second[f.name], found[f.name]) for f in type_.fields if has(f.dataType, _CONVERTED)
            )
        case ArrayType(elementType=element) if isinstance(element, _CONVERTED):
            return F.size(F.array_compact(second)) != F.size(F.array_compact(found))
        case ArrayType(elementType=element):
            return F.coalesce(
                F.exists(F.zip_with(second, found, lambda s, f: lost(element, s, f)), lambda x: x), F.lit(False)
            )
        case MapType(valueType=element):
            return lost(ArrayType(element), F.map_values(second), F.map_values(found))
        case _:
            return second.isNotNull() & found.isNull()


# --- types that have another type in JSON ---
# Flink writes intervals as numbers, of months or of milliseconds. Spark reads 200 as the TINYINT -56; so a TINYINT is read
# as a SMALLINT first, to check whether it fits.


def wire_schema(schema: StructType) -> StructType:
    """Return the schema with which `from_json` reads these columns."""

    def wire(type_: DataType) -> DataType:
        if isinstance(type_, ByteType):
            return ShortType()
        return LongType() if isinstance(type_, INTERVALS) else type_

    return StructType([StructField(f.name, retyped(f.dataType, wire)) for f in schema.fields])


def from_wire(column: Column, type_: DataType) -> Column:
    """Convert a value that was read with the type of `wire_schema` to the column's type; null if it does not fit."""

    def leaf(number: Column, type_: DataType) -> Column:
        match type_:
            case ByteType():
                return number.try_cast(type_)
            case YearMonthIntervalType():
                return F.make_ym_interval(F.lit(0), number.try_cast(IntegerType())).cast(type_)
            case _:
                fits = number.between(-_LONGEST_MS, _LONGEST_MS)
                return (F.lit(timedelta(milliseconds=1)) * F.when(fits, number)).cast(type_)

    return rebuilt(column, type_, (ByteType, *INTERVALS), leaf)


def interval_number(column: Column, type_: DataType) -> Column:
    """Return an interval as a number, of months or of milliseconds."""
    if isinstance(type_, YearMonthIntervalType):
        return column.cast(YearMonthIntervalType()).cast(IntegerType())
    seconds = column.cast(DayTimeIntervalType()).cast(DecimalType(20, 6))
    return (seconds * 1000).cast(LongType())


# --- json.fail-on-missing-field ---


def with_missing_field(row: Column, text: Column, schema: StructType) -> Column:
    """Return a row, with an error if its message lacks a field.

    The message is parsed again only if the row has a null, because a missing field is read as null.
    """
    suspicious = row[ERROR].isNull() & _may_lack(row, schema)
    return F.when(suspicious, row.withField(ERROR, _missing(text, schema))).otherwise(row)


def _may_lack(column: Column, type_: DataType) -> Column:
    match type_:
        case StructType():
            return either(column[f.name].isNull() | _may_lack(column[f.name], f.dataType) for f in type_.fields)
        case _:
            return F.lit(has(type_, (StructType,)))  # structs in arrays and maps are not searched for nulls


def _missing(text: Column, type_: DataType, path: str = "") -> Column:
    """Return the error about a field that a JSON text lacks; null if it has all fields of the type.

    As in Flink, a field with the value null is not missing, and the value null itself lacks no field.
    """

    def lacking(names: Column) -> Column:
        assert isinstance(type_, StructType)
        nested = (f for f in type_.fields if has(f.dataType, (StructType,)))
        return F.coalesce(
            *(F.when(~F.map_contains_key(names, f.name), f"It lacks the field '{path}{f.name}'") for f in type_.fields),
            *(_missing(names[f.name], f.dataType, f"{path}{f.name}.") for f in nested),
        )

    match type_:
        case StructType():
            return let(F.from_json(text, _NAMES, PARSER), lacking)
        case MapType(valueType=element):
            texts = F.map_values(F.from_json(text, _NAMES, PARSER))
        case ArrayType(elementType=element):
            texts = F.from_json(text, ArrayType(StringType()), PARSER)
        case _:
            raise AssertionError(type_)
    found = F.transform(texts, lambda x: _missing(x, element, path))
    return F.get(F.array_compact(found), F.lit(0))
