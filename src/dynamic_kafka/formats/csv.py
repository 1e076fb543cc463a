"""The format `csv`: a message is one line with the table's columns in their order.

Spark's `from_csv` splits it into texts, which are then converted by the rules of Flink. It is made to agree with Flink's
parser (Jackson) where they differ: about quotes that do not match, about escapes, and about a delimiter at the end.

Source: org.apache.flink.formats.csv of Flink 2.3. What is different is in docs/migrating-from-flink.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VarcharType,
)

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.formats.csv_text import Style, csv_text
from dynamic_kafka.formats.format import ERROR, Format, FormatOptions
from dynamic_kafka.formats.native import TEMPORAL, check_names, let
from dynamic_kafka.options.option import BOOL, ConfigOption, flag

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["CSV"]

_ONE_CHARACTER = "a single character"
_JAVA_ESCAPE = re.compile(r"\\(?:u+([0-9a-fA-F]{4})|([0-3]?[0-7]{1,2})|(.)?)", re.DOTALL)


def _character(value: str) -> str:
    if len(value) != 1 or ord(value) > 0xFFFF:
        raise ValueError
    return value


def _escaped_character(value: str) -> str:
    r"""A character that may be written as in Java (`\t`, `;`)."""

    def unescape(match: re.Match[str]) -> str:
        unicode, octal, character = match.groups()
        if unicode or octal:
            return chr(int(unicode, 16) if unicode else int(octal, 8))
        return {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}.get(character, character or "")

    return _character(_JAVA_ESCAPE.sub(unescape, value))


_FIELD_DELIMITER = ConfigOption(
    "csv.field-delimiter", _escaped_character, _ONE_CHARACTER, ",", r"What stands between fields; may be written as `\t`."
)
_DISABLE_QUOTE_CHARACTER = ConfigOption(
    "csv.disable-quote-character", flag, BOOL, "false", "Whether no field is ever in quotes."
)
_QUOTE_CHARACTER = ConfigOption("csv.quote-character", _character, _ONE_CHARACTER, '"', "What encloses a field.")
_ALLOW_COMMENTS = ConfigOption(
    "csv.allow-comments",
    flag,
    BOOL,
    "false",
    "Whether lines that begin with `#` are left out; a message without another line is one with a parse error.",
)
_IGNORE_PARSE_ERRORS = ConfigOption(
    "csv.ignore-parse-errors",
    flag,
    BOOL,
    "false",
    "Whether a field that cannot be read, or is not there, is null, and a message that cannot be read gives no row; else "
    "they are errors.",
)
_ARRAY_ELEMENT_DELIMITER = ConfigOption(
    "csv.array-element-delimiter", _character, _ONE_CHARACTER, ";", "What stands between the elements of an array or a row."
)
_ESCAPE_CHARACTER = ConfigOption(
    "csv.escape-character", _character, _ONE_CHARACTER, "", "What takes the meaning of the character behind it; none."
)
_NULL_LITERAL = ConfigOption("csv.null-literal", str, "a text", "", "The text of null, which else can be written only.")
_SCIENTIFIC = ConfigOption(
    "csv.write-bigdecimal-in-scientific-notation",
    flag,
    BOOL,
    "false",
    "Whether decimal numbers are written without trailing zeros, and with an exponent (`1E+2`) for multiples of ten. (Flink "
    "documents true as the default, and does as for false.)",
)

_TEXTS = (StringType, CharType, VarcharType)
_SIMPLE = (*_TEXTS, BinaryType, BooleanType, NumericType, *TEMPORAL)


def _check(schema: StructType, options: FormatOptions) -> None:
    if options.get(_DISABLE_QUOTE_CHARACTER.key, False) and _QUOTE_CHARACTER.key in options:
        raise ConflictingOptionsError(
            [_DISABLE_QUOTE_CHARACTER.key, _QUOTE_CHARACTER.key], "a character that is disabled is none; give one of them"
        )
    check_names(schema)
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
                f"Column '{field.name}' has the type {field.dataType.simpleString()}, which the format csv does not have; "
                "expected a simple type, or an array or a row of simple types"
            )


# --- reading ---

# Characters that no text has (Unicode calls them noncharacters) stand for escaped ones while a line is split.
_STAND_INS = "".join(map(chr, range(0xFDD0, 0xFDD7)))
_QUOTED = "\ufdd8"
# `from_csv` raises for more columns than this, whatever its mode.
_MOST_COLUMNS = 20_000

_DATE = r"^\d{4}-\d{1,2}-\d{1,2}$"
_TIME = r"^\d\d:\d\d(:\d\d(\.\d{0,9})?)?$"
_TIMESTAMP = r"^\s*[+-]?\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{0,9})?%s\s*$"


def _decode(value: Column, schema: StructType, options: FormatOptions) -> Column:
    delimiter, quote, escape = _characters(options)
    ignore_errors = options.get(_IGNORE_PARSE_ERRORS.key, False)
    text = F.rtrim(value.cast(StringType()), F.lit("\r\n"))
    if options.get(_ALLOW_COMMENTS.key, False):
        text = F.ltrim(F.regexp_replace(text, r"(?dm)^ *#.*\n?", ""), F.lit(" \r\n"))
    if escape:
        text = _with_stand_ins(text, delimiter, quote, escape)
    return F.when(value.isNotNull(), let(text, lambda line: _row(line, schema, options, ignore_errors=ignore_errors)))


def _row(line: Column, schema: StructType, options: FormatOptions, *, ignore_errors: bool) -> Column:
    delimiter, quote, escape = _characters(options)
    width = len(schema.fields)
    few = F.octet_length(line) - F.octet_length(F.replace(line, F.lit(delimiter))) < _MOST_COLUMNS * len(delimiter.encode())
    split = _split(F.when((F.octet_length(line) < _MOST_COLUMNS) | few, line), width, delimiter, quote)
    unreadable = (line == "") | (_unbalanced(line, delimiter, quote) if quote else F.lit(False))

    def read(fields: Column) -> Column:
        def raw(index: int) -> Column:
            # Nothing between two delimiters is an empty text in Flink, and null in Spark.
            found = F.coalesce(fields[f"_{index}"], F.lit(""))
            if ignore_errors:
                found = F.when(fields[ERROR].isNull(), found).otherwise(fields[f"_{index}"])
            return _original(found, delimiter, quote, escape) if escape else found

        return let(F.struct(*(raw(i).alias(f.name) for i, f in enumerate(schema.fields))), converted(fields))
    return let(split, read)
