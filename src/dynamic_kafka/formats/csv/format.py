"""The format `csv`: a message is one line with the table's columns in their order.

Spark splits the line into texts (see `lines`), which are then converted by the rules of Flink.

Source: org.apache.flink.formats.csv of Flink 2.3. The differences are in docs/migrating-from-flink.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
from dynamic_kafka.formats.csv.lines import (
    Dialect,
    code_point,
    csv_text,
    split_line,
    too_long,
    unescaped,
    unreadable,
    without_comments,
)
from dynamic_kafka.formats.expressions import TEMPORAL, check_names, either, has, let, or_error
from dynamic_kafka.formats.format import ERROR, Format, FormatOptions
from dynamic_kafka.options import Option, Parser, boolean, text

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["CSV"]

# --- options ---

_ONE_CHARACTER = "a single character"
_JAVA_ESCAPE = re.compile(r"\\(?:u+([0-9a-fA-F]{4})|([0-3]?[0-7]{1,2})|(.)?)", re.DOTALL)


def _character(value: str) -> str:
    if len(value) != 1 or ord(value) > 0xFFFF:
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


def _dialect(options: FormatOptions) -> Dialect:
    quote = "" if _DISABLE_QUOTE_CHARACTER.of(options) else _QUOTE_CHARACTER.of(options)
    escape = _ESCAPE_CHARACTER.of(options) or ""
    return Dialect(
        delimiter=_FIELD_DELIMITER.of(options),
        quote=quote,
        escape="" if escape == quote else escape,  # a doubled quote is one anyway
        element_delimiter=_ARRAY_ELEMENT_DELIMITER.of(options),
        null=_NULL_LITERAL.of(options),
        ignore_errors=_IGNORE_PARSE_ERRORS.of(options),
        scientific=_SCIENTIFIC.of(options),
    )


_TEXTS = (StringType, CharType, VarcharType)
_SIMPLE = (*_TEXTS, BinaryType, BooleanType, NumericType, *TEMPORAL)


def _check(schema: StructType, options: FormatOptions) -> None:
    if _DISABLE_QUOTE_CHARACTER.of(options) and _QUOTE_CHARACTER.key in options:
        raise ConflictingOptionsError(
            [_DISABLE_QUOTE_CHARACTER.key, _QUOTE_CHARACTER.key], "without quotes there is no quote character"
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
                f"Column '{field.name}' has the type {field.dataType.simpleString()}, which the format csv does not "
                "support; expected a simple type, or an array or a row of simple types"
            )


# --- reading ---

_BYTE_ORDER_MARK = "\ufeff"
_DATE = r"^\d{4}-\d{1,2}-\d{1,2}$"
_TIME = r"^\d\d:\d\d(:\d\d(\.\d{0,9})?)?$"
_TIMESTAMP = r"^\s*[+-]?\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{0,9})?"


def _decode(value: Column, schema: StructType, options: FormatOptions) -> Column:
    dialect = _dialect(options)
    text = F.ltrim(F.rtrim(value.cast(StringType()), F.lit("\r\n")), F.lit(_BYTE_ORDER_MARK))
    if _ALLOW_COMMENTS.of(options):
        text = without_comments(text)
    return F.when(value.isNotNull(), let(text, lambda line: _row(line, schema, dialect)))


def _row(line: Column, schema: StructType, dialect: Dialect) -> Column:
    width = len(schema.fields)
    any_text = [i for i, f in enumerate(schema.fields) if isinstance(f.dataType, (*_TEXTS, ArrayType, StructType))]

    def read(fields: Column) -> Column:
        broken = (
            ~F.is_valid_utf8(line)
            | too_long(line, dialect)
            | unreadable(line, (fields[f"_{i}"] for i in any_text), dialect)
        )
        # Evaluated only if there are not as many fields as columns. One more field that is empty is a delimiter at the end.
        wider = split_line(line, width + 1, dialect)
        as_many = fields[ERROR].isNull()
        too_many = ~as_many & wider[f"_{width}"].isNotNull()
        too_few = ~as_many & wider[ERROR].isNotNull()
        texts = F.struct(*(_raw(fields, i, dialect).alias(f"_{i}") for i in range(width)))
        if dialect.ignore_errors:
            return F.when(~broken & ~too_many, let(texts, lambda t: _columns(t, schema, dialect)))
        fault = F.when(broken, "It is empty, is not one line of UTF-8, or has quotes that do not match").when(
            too_many | too_few, f"It does not have {width} fields, one for each column of the table"
        )
        return let(texts, lambda t: let(_columns(t, schema, dialect), lambda c: _checked(c, t, fault, schema, dialect)))

    return let(split_line(line, width, dialect), read)


def _raw(fields: Column, index: int, dialect: Dialect) -> Column:
    """Return the text of a field; null if it is the text of null."""
    # An empty field is an empty text in Flink. In Spark it is null, and so is a field that is missing.
    text = F.coalesce(unescaped(fields[f"_{index}"], dialect), F.lit(""))
    if dialect.ignore_errors:
        text = F.when(fields[ERROR].isNull() | fields[f"_{index}"].isNotNull(), text)
    return _or_null(text, dialect)


def _or_null(text: Column, dialect: Dialect) -> Column:
    return text if dialect.null is None else F.when(text != dialect.null, text)


def _columns(texts: Column, schema: StructType, dialect: Dialect) -> Column:
    values = (_value(texts[f"_{i}"], f.dataType, dialect).alias(f.name) for i, f in enumerate(schema.fields))
    return F.struct(*values, F.lit(None).cast(StringType()).alias(ERROR))


def _checked(columns: Column, texts: Column, fault: Column, schema: StructType, dialect: Dialect) -> Column:
    """Return the columns, or the error."""
    failed = {
        f.name: _failed(texts[f"_{i}"], columns[f.name], f.dataType, dialect)
        for i, f in enumerate(schema.fields)
        if not isinstance(f.dataType, (*_TEXTS, BooleanType))
    }
    names = F.array_compact(F.array(*(F.when(condition, name) for name, condition in failed.items())))
    misfit = F.when(
        either(failed.values()), F.concat(F.lit("It does not fit the columns: "), F.array_join(names, ", "))
    )
    return or_error(columns, F.coalesce(fault, misfit), schema)


def _value(text: Column, type_: DataType, dialect: Dialect) -> Column:
    """Convert a text to a value of a column's type; null if that is impossible."""
    match type_:
        case ArrayType(elementType=element):
            return F.transform(_elements(text, dialect), lambda x: _value(x, element, dialect))
        case StructType():
            fields = (
                _value(F.get(_elements(text, dialect), F.lit(i)), f.dataType, dialect).alias(f.name)
                for i, f in enumerate(type_.fields)
            )
            return F.when(text != "", F.struct(*fields))
        case BooleanType():
            return F.lower(F.trim(text)) == "true"
        case BinaryType():
            return F.try_to_binary(text, F.lit("base64"))
        case DateType():
            return F.when(text.rlike(_DATE), text).try_cast(type_)
        case TimestampNTZType():
            return F.when(text.rlike(rf"{_TIMESTAMP}\s*$"), text).try_cast(type_)
        case TimestampType():
            return F.when(text.rlike(rf"{_TIMESTAMP}Z\s*$"), text).try_cast(type_)
        case TimeType():
            # The only conversion to TIME in Spark that works without spark.sql.timeType.enabled.
            return F.from_csv(F.when(text.rlike(_TIME), text), F.lit(f"t {type_.simpleString()}"))["t"]
        case NumericType():
            return text.try_cast(type_)
        case _:
            return text


def _elements(text: Column, dialect: Dialect) -> Column:
    """Return the texts of the elements of an array or a row; an empty text has none."""
    parts = F.filter(F.split(text, code_point(dialect.element_delimiter)), lambda _: text != "")
    return parts if dialect.null is None else F.transform(parts, lambda x: _or_null(x, dialect))


def _failed(text: Column, value: Column, type_: DataType, dialect: Dialect) -> Column:
    """Return whether a text could not be converted."""
    match type_:
        case ArrayType():
            count = F.size(F.array_compact(_elements(text, dialect)))
            return F.coalesce(count != F.size(F.array_compact(value)), F.lit(False))
        case StructType():
            parts = _elements(text, dialect)
            nested = (
                _failed(F.get(parts, F.lit(i)), value[f.name], f.dataType, dialect) for i, f in enumerate(type_.fields)
            )
            return value.isNotNull() & ((F.size(parts) < len(type_.fields)) | either(nested))
        case _:
            return text.isNotNull() & value.isNull()


# --- writing ---


def _encode(row: Column, schema: StructType, options: FormatOptions) -> Column:
    return csv_text(row, schema, _dialect(options)).cast(BinaryType())


def _native(schema: StructType, options: FormatOptions) -> Mapping[str, Any] | None:
    dialect = _dialect(options)
    nested = any(has(field.dataType, (TimeType, ArrayType, StructType)) for field in schema.fields)
    if nested or dialect.escape or _ALLOW_COMMENTS.of(options):
        return None
    return {
        "format": "csv",
        "delimiter": dialect.delimiter,
        "quote": dialect.quote,
        "null": dialect.null,
        "ignore_parse_errors": dialect.ignore_errors,
    }


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
    _decode,
    _encode,
    _check,
    native=_native,
)
"""Flink's format `csv`."""
