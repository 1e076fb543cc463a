"""The format `json`: a message is a JSON object with the table's columns.

A message is read by one `from_json` of Spark, at no other cost. Only a message with which Spark finds a problem is read
again, by the rules of Flink (see `lenient`); with `json.fail-on-missing-field` also a message that has a null.

Source: org.apache.flink.formats.json of Flink 2.3. The differences are in docs/migrating-from-flink.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    VarcharType,
)

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.formats.expressions import INTERVALS, check_names, either, has, let, parts, with_error
from dynamic_kafka.formats.format import ERROR, Format, FormatOptions
from dynamic_kafka.formats.json.encoding import Style, json_text
from dynamic_kafka.formats.json.lenient import (
    PARSER,
    beyond_calendar,
    from_wire,
    has_long_numbers,
    repaired,
    wire_schema,
    with_missing_field,
)
from dynamic_kafka.options import Option, Parser, boolean, choice, text

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["IGNORE_PARSE_ERRORS", "JSON"]

_FAIL_ON_MISSING_FIELD = Option(
    "json.fail-on-missing-field",
    boolean,
    "false",
    doc="If true, a message without one of the fields is an error. If false, the field is null.",
)
IGNORE_PARSE_ERRORS = Option(
    "json.ignore-parse-errors",
    boolean,
    "false",
    doc="If true, fields that cannot be parsed become null and messages that are not JSON objects are skipped; otherwise "
    "both are errors.",
)


def _separator(style: str) -> str:
    """Return the text between the date and the time."""
    separators = {"SQL": " ", "ISO-8601": "T"}
    if style not in separators:
        raise ValueError
    return separators[style]


_TIMESTAMP_FORMAT = Option(
    "json.timestamp-format.standard",
    Parser(_separator, "SQL or ISO-8601"),
    "SQL",
    doc="The format in which timestamps are written: `SQL` as `2020-12-30 12:13:14.123`, `ISO-8601` as "
    "`2020-12-30T12:13:14.123`. Both can be read.",
)
_DECIMAL_AS_PLAIN_NUMBER = Option(
    "json.encode.decimal-as-plain-number",
    boolean,
    "false",
    doc="If true, decimal numbers are written with all their digits (`100.00`), never with an exponent (`1E+2`).",
)
_IGNORE_NULL_FIELDS = Option(
    "json.encode.ignore-null-fields", boolean, "false", doc="If true, fields that are null are not written."
)
_OTHER_OPTIONS = (
    Option(
        "json.map-null-key.mode",
        choice("fail", "drop", "literal", expected="FAIL, DROP or LITERAL"),
        "FAIL",
        doc="Accepted for compatibility with Flink, without effect: Spark's maps have no null keys.",
    ),
    Option(
        "json.map-null-key.literal",
        text(),
        "null",
        doc="Accepted for compatibility with Flink, without effect.",
    ),
    Option(
        "json.decode.json-parser.enabled",
        boolean,
        "true",
        doc="Accepted for compatibility with Flink, without effect: Spark parses JSON.",
    ),
)


def _check(schema: StructType, options: FormatOptions) -> None:
    if _FAIL_ON_MISSING_FIELD.of(options) and IGNORE_PARSE_ERRORS.of(options):
        raise ConflictingOptionsError(
            [_FAIL_ON_MISSING_FIELD.key, IGNORE_PARSE_ERRORS.key], "they cannot both be true; set one of them"
        )
    check_names(schema)
    for field in schema.fields:
        for part in parts(field.dataType):
            if isinstance(part, MapType) and not isinstance(part.keyType, (StringType, CharType, VarcharType)):
                raise ConfigurationError(
                    f"Column '{field.name}' has a map with keys of the type {part.keyType.simpleString()}, which the format "
                    "json does not support; the keys of a map must be texts"
                )


def _decode(value: Column, schema: StructType, options: FormatOptions) -> Column:
    ignore_errors = IGNORE_PARSE_ERRORS.of(options)

    # A lambda uses only its variable: the message may be the result of a Python function, and Spark does not evaluate such
    # functions inside a lambda.
    def checked(message: Column) -> Column:
        text, row = message["text"], message["row"]
        blank = row.isNull() & (F.length(text) > 0)
        literal = text == "null"
        suspicious = blank | row[ERROR].isNotNull() | literal | ~F.is_valid_utf8(text) | either(_misread(row, schema))
        if has(schema, (TimestampType,)):
            suspicious |= has_long_numbers(text)
        mended = repaired(text, row, schema, ignore_errors=ignore_errors)
        return F.when(suspicious, mended).otherwise(from_wire(row, with_error(schema)))

    def complete(message: Column) -> Column:
        return with_missing_field(message["row"], message["text"], schema)

    text = value.cast(StringType())
    parsed = F.from_json(text, with_error(wire_schema(schema)), PARSER)
    decoded = let(F.struct(text.alias("text"), parsed.alias("row")), checked)
    if not _FAIL_ON_MISSING_FIELD.of(options):
        return decoded
    return let(F.struct(text.alias("text"), decoded.alias("row")), complete)


def _misread(column: Column, type_: DataType) -> Iterator[Column]:
    """Yield conditions under which Spark has silently read a wrong value."""
    match type_:
        case StructType():
            for field in type_.fields:
                yield from _misread(column[field.name], field.dataType)
        case ArrayType(elementType=element) if has(element, (TimestampType, ByteType, *INTERVALS)):
            yield F.coalesce(F.exists(column, lambda x: either(_misread(x, element))), F.lit(False))
        case MapType(valueType=element) if has(element, (TimestampType, ByteType, *INTERVALS)):
            yield from _misread(F.map_values(column), ArrayType(element))
        case TimestampType():
            yield beyond_calendar(column)
        case _ if isinstance(type_, (ByteType, *INTERVALS)):
            yield column.isNotNull() & from_wire(column, type_).isNull()
        case _:
            pass


def _style(options: FormatOptions) -> Style:
    return Style(
        separator=_TIMESTAMP_FORMAT.of(options),
        plain_decimals=_DECIMAL_AS_PLAIN_NUMBER.of(options),
        ignore_nulls=_IGNORE_NULL_FIELDS.of(options),
    )


def _encode(row: Column, schema: StructType, options: FormatOptions) -> Column:
    return json_text(row, schema, _style(options)).cast(BinaryType())


def _native_encode(schema: StructType, options: FormatOptions) -> Mapping[str, Any]:
    del schema  # the kernel refuses types that it does not write
    return {"format": "json", "options": asdict(_style(options))}


def _native(schema: StructType, options: FormatOptions) -> Mapping[str, Any] | None:
    if has(schema, (TimeType,)):
        return None  # Spark reads Arrow's times as TIME(6) only
    return {"format": "json", "options": {_FAIL_ON_MISSING_FIELD.key: _FAIL_ON_MISSING_FIELD.of(options)}}


JSON = Format(
    "json",
    (
        _FAIL_ON_MISSING_FIELD,
        IGNORE_PARSE_ERRORS,
        _TIMESTAMP_FORMAT,
        _DECIMAL_AS_PLAIN_NUMBER,
        _IGNORE_NULL_FIELDS,
        *_OTHER_OPTIONS,
    ),
    _decode,
    _encode,
    _check,
    native=_native,
    native_encode=_native_encode,
)
"""Flink's format `json`."""
