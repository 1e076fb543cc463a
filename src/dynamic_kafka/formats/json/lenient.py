"""Messages that are JSON, but not as Spark's `from_json` wants it, by the rules of Flink.

Spark takes a number or a boolean only if it is one in JSON. Flink is more generous: it may stand in quotes, a whole number
may have a point, and anything can be a boolean. So the columns with numbers and booleans are read a second time, as texts,
and converted. What is still null then, and is not null in the message, does not fit: of columns by themselves the names tell
it, of numbers inside of others `lost`, and of all else in there the parser, which is why they are read again, too.

All of this is evaluated only for messages that Spark found fault with. The expressions are small, because Spark plans each
micro-batch anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
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
)

from dynamic_kafka.formats.expressions import INTERVALS, either, has, let, or_error, with_error
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.json.types import from_wire

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["NAMES", "PARSER", "beyond_calendar", "converted", "lost", "relaxed", "repaired"]

PARSER = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": ERROR,
    "timeZone": "UTC",
    "enableDateTimeParsingFallback": "false",
    # What Flink's parser (Jackson) takes for JSON; without an option, Spark's defaults count.
    "allowComments": "false",
    "allowSingleQuotes": "false",
    "allowUnquotedFieldNames": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "true",
}
"""Options of Spark's JSON parser."""
NAMES = MapType(StringType(), StringType())
"""What any JSON object can be read as, and nothing else."""

_WHOLE = (ByteType, ShortType, IntegerType, LongType, *INTERVALS)
_FLOATING = (FloatType, DoubleType)
_WEAK = (*_WHOLE, *_FLOATING, BooleanType)
_CONVERTED = (*_WEAK, TimestampType)
_NESTED = (StructType, ArrayType, MapType)
_ANY_NUMBER = DecimalType(38, 18)  # holds all whole numbers, and what is behind their point
_NOT_AN_OBJECT = "It is not a JSON object"
_NOT_UTF_8 = "It is not UTF-8"
_MISFIT = "It does not fit the columns: "


def beyond_calendar(instant: Column) -> Column:
    """Whether a timestamp is after the year 9999.

    Spark takes a number for seconds since 1970, where Flink fails. Milliseconds, which everybody has, are seconds of the
    year 50,000: rather an error than such a time.
    """
    return instant >= F.timestamp_seconds(F.lit(253_402_300_800))


def repaired(text: Column, row: Column, schema: StructType, *, ignore_errors: bool) -> Column:
    """What Flink makes of a message that Spark found fault with.

    Args:
        text: The message.
        row: What Spark read of it, with the types of `wire_schema`; or null.
        schema: The columns.
        ignore_errors: Whether a field that cannot be read is null, and a message that is no JSON object gives null.
    """
    again = StructType(
        [StructField(f.name, relaxed(f.dataType)) for f in schema.fields if has(f.dataType, (*_CONVERTED, *_NESTED))]
    )
    second = F.from_json(text, with_error(again), PARSER)
    names = F.map_keys(F.map_filter(F.from_json(text, NAMES, PARSER), lambda _, x: x.isNotNull()))

    def by_flink(read: Column) -> Column:
        first, second, names = read["first"], read["second"], read["names"]
        columns = F.struct(
            *(
                (converted(f.dataType, second[f.name]) if f.name in again.names else first[f.name]).alias(f.name)
                for f in schema.fields
            ),
            F.lit(None).cast(StringType()).alias(ERROR),
        )
        if ignore_errors:
            return F.when(names.isNotNull() & ~read["mangled"], columns)

        def checked(found: Column) -> Column:
            no_text = F.when(read["mangled"], _NOT_UTF_8)
            return or_error(found, F.coalesce(no_text, _error(names, second, found, schema)), schema)

        return let(columns, checked)

    mangled = ~F.is_valid_utf8(text)
    read = (row.alias("first"), second.alias("second"), names.alias("names"), mangled.alias("mangled"))
    return let(F.struct(*read), by_flink)


def _error(names: Column, second: Column, found: Column, schema: StructType) -> Column:
    """What is wrong with a message: it is no object, or a field of it is null now and was not, or one is inside of it."""
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
    # The parser does not tell where: it is inside of one of those.
    inside = F.array_intersect(F.lit([f.name for f in schema.fields if isinstance(f.dataType, _NESTED)] or [""]), names)
    which = F.when(F.size(misfits) > 0, F.array_join(misfits, ", ")).otherwise(
        F.concat(F.lit("inside of "), F.array_join(inside, " or "))
    )
    return F.when(names.isNull(), _NOT_AN_OBJECT).when(wrong, F.concat(F.lit(_MISFIT), which))


def relaxed(type_: DataType) -> DataType:
    """The type to read a second time: with texts in place of numbers and booleans."""
    match type_:
        case StructType():
            return StructType([StructField(f.name, relaxed(f.dataType)) for f in type_.fields])
        case ArrayType(elementType=element):
            return ArrayType(relaxed(element))
        case MapType(keyType=key, valueType=element):
            return MapType(key, relaxed(element))
        case _ if isinstance(type_, _WEAK):
            return StringType()
        case _:
            return type_


def converted(type_: DataType, second: Column) -> Column:
    """A value of a column's type, from what was read with the type `relaxed`; null if it cannot be."""
    match type_:
        case _ if not has(type_, _CONVERTED):
            return second
        case StructType():
            fields = (converted(f.dataType, second[f.name]).alias(f.name) for f in type_.fields)
            return F.when(second.isNotNull(), F.struct(*fields))
        case ArrayType(elementType=element):
            return F.transform(second, lambda x: converted(element, x))
        case MapType(valueType=element):
            return F.transform_values(second, lambda _, x: converted(element, x))
        case TimestampType():
            return F.when(~beyond_calendar(second), second)
        case BooleanType():
            return F.lower(F.trim(second)) == "true"
        case _ if isinstance(type_, INTERVALS):
            return from_wire(second.try_cast(_ANY_NUMBER).try_cast(LongType()), type_)
        case _ if isinstance(type_, _FLOATING):
            return F.btrim(second, F.lit('"')).try_cast(type_)  # 1e400 is read as the text "Infinity", with quotes
        case _:
            return second.try_cast(_ANY_NUMBER).try_cast(type_)


def lost(type_: DataType, second: Column, found: Column) -> Column:
    """Whether a number in there could not be converted."""
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
