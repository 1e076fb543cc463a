"""The format `json`: a message is a JSON object with the table's columns.

Reading is one `from_json` of Spark, and costs what that costs. Only a message that Spark finds fault with is looked at
again, by the rules of Flink (`json_repair`), and if `json.fail-on-missing-field` is set, one that has a null.

Source: org.apache.flink.formats.json of Flink 2.3. What is different is in docs/migrating-from-flink.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
    VarcharType,
)

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.formats.expressions import INTERVALS, check_names, either, has, let, with_error
from dynamic_kafka.formats.format import ERROR, Format, FormatOptions
from dynamic_kafka.formats.json.encoding import Style, json_text
from dynamic_kafka.formats.json.lenient import PARSER, beyond_calendar, repaired
from dynamic_kafka.formats.json.missing import with_missing_field
from dynamic_kafka.formats.json.types import from_wire, wire_schema
from dynamic_kafka.options.option import BOOL, ConfigOption, flag, word

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["JSON"]

_FAIL_ON_MISSING_FIELD = ConfigOption(
    "json.fail-on-missing-field", flag, BOOL, "false", "Whether a message without one of the fields is an error."
)
_IGNORE_PARSE_ERRORS = ConfigOption(
    "json.ignore-parse-errors",
    flag,
    BOOL,
    "false",
    "Whether a field that cannot be read is null, and a message that is no JSON object no row; else both are errors.",
)
_TIMESTAMP_FORMAT = ConfigOption(
    "json.timestamp-format.standard",
    {"SQL": " ", "ISO-8601": "T"}.__getitem__,
    "SQL or ISO-8601",
    "SQL",
    "How timestamps are written: `2020-12-30 12:13:14.123` or `2020-12-30T12:13:14.123`. Both can be read.",
)
_DECIMAL_AS_PLAIN_NUMBER = ConfigOption(
    "json.encode.decimal-as-plain-number",
    flag,
    BOOL,
    "false",
    "Whether decimal numbers are written with all their digits (`100.00`), never with an exponent (`1E+2`).",
)
_IGNORE_NULL_FIELDS = ConfigOption(
    "json.encode.ignore-null-fields", flag, BOOL, "false", "Whether fields with null are left out."
)
_OTHER_OPTIONS = (
    ConfigOption(
        "json.map-null-key.mode",
        word("fail", "drop", "literal"),
        "FAIL, DROP or LITERAL",
        "FAIL",
        "What becomes of null as a key of a map. Without effect: Spark's maps have no such keys.",
    ),
    ConfigOption("json.map-null-key.literal", str, "a text", "null", "The key instead of null. Without effect."),
    ConfigOption(
        "json.decode.json-parser.enabled", flag, BOOL, "true", "Which of Flink's parsers reads. Without effect."
    ),
)


def _check(schema: StructType, options: FormatOptions) -> None:
    if options.get(_FAIL_ON_MISSING_FIELD.key, False) and options.get(_IGNORE_PARSE_ERRORS.key, False):
        raise ConflictingOptionsError(
            [_FAIL_ON_MISSING_FIELD.key, _IGNORE_PARSE_ERRORS.key], "they cannot both be true; set one of them"
        )
    check_names(schema)
    for field in schema.fields:
        _check_keys(field.name, field.dataType)


def _check_keys(column: str, type_: DataType) -> None:
    match type_:
        case MapType(keyType=key, valueType=element):
            if not isinstance(key, (StringType, CharType, VarcharType)):
                raise ConfigurationError(
                    f"Column '{column}' has a map with keys of the type {key.simpleString()}, which the format json "
                    "does not have; keys have to be texts"
                )
            _check_keys(column, element)
        case ArrayType(elementType=element):
            _check_keys(column, element)
        case StructType():
            for field in type_.fields:
                _check_keys(column, field.dataType)
        case _:
            pass


def _decode(value: Column, schema: StructType, options: FormatOptions) -> Column:
    ignore_errors = options.get(_IGNORE_PARSE_ERRORS.key, False)

    # All that a lambda looks at comes by its variable: the message may be what a Python function returns, which Spark
    # refuses to compute in there.
    def checked(message: Column) -> Column:
        text, row = message["text"], message["row"]
        blank = row.isNull() & (F.length(text) > 0)
        literal = text == "null"
        suspicious = blank | row[ERROR].isNotNull() | literal | ~F.is_valid_utf8(text) | either(_misread(row, schema))
        mended = repaired(text, row, schema, ignore_errors=ignore_errors)
        return F.when(suspicious, mended).otherwise(from_wire(row, with_error(schema)))

    def complete(message: Column) -> Column:
        return with_missing_field(message["row"], message["text"], schema)

    text = value.cast(StringType())
    parsed = F.from_json(text, with_error(wire_schema(schema)), PARSER)
    decoded = let(F.struct(text.alias("text"), parsed.alias("row")), checked)
    if not options.get(_FAIL_ON_MISSING_FIELD.key, False):
        return decoded
    return let(F.struct(text.alias("text"), decoded.alias("row")), complete)


def _misread(column: Column, type_: DataType) -> Iterator[Column]:
    """Conditions under which Spark has read a value that is wrong, without a word."""
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


def _encode(row: Column, schema: StructType, options: FormatOptions) -> Column:
    style = Style(
        separator=options.get(_TIMESTAMP_FORMAT.key, " "),
        plain_decimals=options.get(_DECIMAL_AS_PLAIN_NUMBER.key, False),
        ignore_nulls=options.get(_IGNORE_NULL_FIELDS.key, False),
    )
    return json_text(row, schema, style).cast(BinaryType())


JSON = Format(
    "json",
    (
        _FAIL_ON_MISSING_FIELD,
        _IGNORE_PARSE_ERRORS,
        _TIMESTAMP_FORMAT,
        _DECIMAL_AS_PLAIN_NUMBER,
        _IGNORE_NULL_FIELDS,
        *_OTHER_OPTIONS,
    ),
    _decode,
    _encode,
    _check,
)
"""Flink's format `json`."""
