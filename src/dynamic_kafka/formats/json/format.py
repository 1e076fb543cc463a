"""The format `json`: a message is a JSON object with the table's columns.

The native kernel reads and writes it (`native/decode/src/json/mod.rs`, `native/encode/src/json.rs`).

Source: org.apache.flink.formats.json of Flink 2.3. The differences are in docs/guides/from-flink.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    CharType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    VarcharType,
    YearMonthIntervalType,
)

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.formats.arrow import as_numbers
from dynamic_kafka.formats.expressions import INTERVALS, parts, rebuilt
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.kernel import decoder, rows_of
from dynamic_kafka.options import Option, Parser, boolean, choice, text

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["IGNORE_PARSE_ERRORS", "JSON", "json_options", "options_named", "rows_of_json"]

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
        doc="Accepted for compatibility with Flink, without effect: there is one parser.",
    ),
)


def _check(schema: StructType, options: FormatOptions) -> None:
    if _FAIL_ON_MISSING_FIELD.of(options) and IGNORE_PARSE_ERRORS.of(options):
        raise ConflictingOptionsError(
            [_FAIL_ON_MISSING_FIELD.key, IGNORE_PARSE_ERRORS.key], "they cannot both be true; set one of them"
        )
    for field in schema.fields:
        for part in parts(field.dataType):
            if isinstance(part, MapType) and not isinstance(part.keyType, (StringType, CharType, VarcharType)):
                raise ConfigurationError(
                    f"Column '{field.name}' has a map with keys of the type {part.keyType.simpleString()}, which the format "
                    "json does not support; the keys of a map must be texts"
                )


def read_spec(options: FormatOptions) -> dict[str, Any]:
    """Return the spec by which the kernel reads messages."""
    used = (_FAIL_ON_MISSING_FIELD, IGNORE_PARSE_ERRORS)
    return {"format": "json", "options": {option.key: option.of(options) for option in used}}


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    return decoder(as_numbers(schema), read_spec(options), used)


def _written_spec(options: FormatOptions) -> dict[str, Any]:
    style = {
        "separator": _TIMESTAMP_FORMAT.of(options),
        "plain_decimals": _DECIMAL_AS_PLAIN_NUMBER.of(options),
        "ignore_nulls": _IGNORE_NULL_FIELDS.of(options),
    }
    return {"format": "json", "options": style}


def rows_of_json(
    row: Column, schema: StructType, options: FormatOptions, header: Callable[[], bytes] | None = None
) -> Rows:
    """Return rows and what encodes them; `header` is that of `kernel.rows_of`."""
    return rows_of(_without_intervals(row, schema), as_numbers(schema), _written_spec(options), header)


def _without_intervals(column: Column, type_: DataType) -> Column:
    """Return a value with the types of `as_numbers`."""

    def number(value: Column, type_: DataType) -> Column:
        if isinstance(type_, YearMonthIntervalType):
            return value.cast(YearMonthIntervalType()).cast(IntegerType())
        return value.cast(DayTimeIntervalType())

    return rebuilt(column, type_, INTERVALS, number)


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
    _decoder,
    rows_of_json,
    _check,
)
"""Flink's format `json`."""


def options_named(name: str, options: Iterable[Option[Any]]) -> Iterator[Option[Any]]:
    """Return options of `json` as those of another format, of a name."""
    return (replace(option, key=_key(name, option), aliases=()) for option in options)


def json_options(name: str, options: FormatOptions) -> FormatOptions:
    """Return the options of another format that `json` has, too, under its names."""
    return {option.key: options[key] for option in JSON.options if (key := _key(name, option)) in options}


def _key(name: str, option: Option[Any]) -> str:
    return f"{name}.{option.key.removeprefix('json.')}"
