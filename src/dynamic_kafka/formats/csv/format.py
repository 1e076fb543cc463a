"""The format `csv`: a message is one line with the table's columns in their order.

The native kernel reads and writes it (`native/decode/src/csv.rs`, `native/encode/src/csv.rs`).

Source: org.apache.flink.formats.csv of Flink 2.3. The differences are in docs/guides/from-flink.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    NumericType,
    StringType,
    StructType,
    VarcharType,
)

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.formats.expressions import TEMPORAL
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Used
from dynamic_kafka.formats.kernel import decoder, rows_of
from dynamic_kafka.options import Option, Parser, boolean, text

__all__ = ["CSV"]

# --- options ---

_ONE_CHARACTER = "a single character"
_JAVA_ESCAPE = re.compile(r"\\(?:u+([0-9a-fA-F]{4})|([0-3]?[0-7]{1,2})|(.)?)", re.DOTALL)


def _character(value: str) -> str:
    if len(value) != 1 or ord(value) > 0xFFFF or "\ud800" <= value <= "\udfff":
        raise ValueError
    return value


def _escaped_character(value: str) -> str:
    r"""Parse a character that may be written as in Java, such as `\t`."""

    def unescape(match: re.Match[str]) -> str:
        unicode, octal, character = match.groups()
        if unicode or octal:
            return chr(int(unicode, 16) if unicode else int(octal, 8))
        return {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}.get(character, character or "")

    return _character(_JAVA_ESCAPE.sub(unescape, value))


_FIELD_DELIMITER = Option(
    "csv.field-delimiter",
    Parser(_escaped_character, _ONE_CHARACTER),
    ",",
    doc=r"The character between fields; may be written as `\t`.",
)
_DISABLE_QUOTE_CHARACTER = Option(
    "csv.disable-quote-character", boolean, "false", doc="If true, fields are never in quotes."
)
_QUOTE_CHARACTER = Option(
    "csv.quote-character", Parser(_character, _ONE_CHARACTER), '"', doc="The character around fields in quotes."
)
_ALLOW_COMMENTS = Option(
    "csv.allow-comments",
    boolean,
    "false",
    doc="If true, lines that begin with `#` are skipped. A message with only such lines is a parse error.",
)
_IGNORE_PARSE_ERRORS = Option(
    "csv.ignore-parse-errors",
    boolean,
    "false",
    doc="If true, fields that are missing or cannot be parsed become null, and messages that cannot be parsed are skipped; "
    "otherwise they are errors.",
)
_ARRAY_ELEMENT_DELIMITER = Option(
    "csv.array-element-delimiter",
    Parser(_character, _ONE_CHARACTER),
    ";",
    doc="The character between the elements of an array or a row.",
)
_ESCAPE_CHARACTER = Option(
    "csv.escape-character",
    Parser(_character, _ONE_CHARACTER),
    shown_default="none",
    doc="The character that takes away the meaning of the next character.",
)
_NULL_LITERAL = Option(
    "csv.null-literal",
    text(),
    shown_default="none",
    doc="The text that stands for null. Without it, null is written as an empty field, and no field is read as null.",
)
_SCIENTIFIC = Option(
    "csv.write-bigdecimal-in-scientific-notation",
    boolean,
    "false",
    doc="If true, decimal numbers are written without trailing zeros, and multiples of ten with an exponent (`1E+2`). Flink "
    "documents true as the default, but behaves as with false.",
)


def _spec(options: FormatOptions) -> Mapping[str, Any]:
    """Return the options for the native kernel. A special character that is not used is an empty text."""
    quote = "" if _DISABLE_QUOTE_CHARACTER.of(options) else _QUOTE_CHARACTER.of(options)
    escape = _ESCAPE_CHARACTER.of(options) or ""
    return {
        "format": "csv",
        "delimiter": _FIELD_DELIMITER.of(options),
        "quote": quote,
        "escape": "" if escape == quote else escape,  # a doubled quote is one anyway
        "element_delimiter": _ARRAY_ELEMENT_DELIMITER.of(options),
        "null": _NULL_LITERAL.of(options),
        "allow_comments": _ALLOW_COMMENTS.of(options),
        "ignore_parse_errors": _IGNORE_PARSE_ERRORS.of(options),
        "scientific": _SCIENTIFIC.of(options),
    }


_TEXTS = (StringType, CharType, VarcharType)
_SIMPLE = (*_TEXTS, BinaryType, BooleanType, NumericType, *TEMPORAL)


def _check(schema: StructType, options: FormatOptions) -> None:
    if _DISABLE_QUOTE_CHARACTER.of(options) and _QUOTE_CHARACTER.key in options:
        raise ConflictingOptionsError(
            [_DISABLE_QUOTE_CHARACTER.key, _QUOTE_CHARACTER.key], "without quotes there is no quote character"
        )
    for field in schema.fields:
        match field.dataType:
            case ArrayType(elementType=element):
                simple = isinstance(element, _SIMPLE)
            case StructType(fields=fields):
                simple = all(isinstance(f.dataType, _SIMPLE) for f in fields)
            case type_:
                simple = isinstance(type_, _SIMPLE)
        if not simple:
            raise ConfigurationError(
                f"Column '{field.name}' has the type {field.dataType.simpleString()}, which the format csv does not "
                "support; expected a simple type, or an array or a row of simple types"
            )


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    return decoder(schema, _spec(options), used)


CSV = Format(
    "csv",
    (
        _FIELD_DELIMITER,
        _DISABLE_QUOTE_CHARACTER,
        _QUOTE_CHARACTER,
        _ALLOW_COMMENTS,
        _IGNORE_PARSE_ERRORS,
        _ARRAY_ELEMENT_DELIMITER,
        _ESCAPE_CHARACTER,
        _NULL_LITERAL,
        _SCIENTIFIC,
    ),
    _decoder,
    lambda row, schema, options: rows_of(row, schema, _spec(options)),
    _check,
)
"""Flink's format `csv`."""
