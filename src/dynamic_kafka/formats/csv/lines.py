"""Lines of CSV: how they are split into texts, and how they are written.

Spark's `from_csv` splits a line. It is made to agree with Flink's parser (Jackson) where they differ: for quotes that do not
match, for escapes, and for a delimiter at the end.

Lines are written byte by byte as Flink writes them. Jackson's writer puts a text in quotes if it has more than 24
characters, or a character that may need quotes: the backslash, and any character up to the greater one of delimiter and
quote in Unicode, such as a blank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    NumericType,
    StringType,
    StructType,
)

from dynamic_kafka.formats.expressions import TEMPORAL, decimal_text, either, let, temporal_text
from dynamic_kafka.formats.format import ERROR

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "Dialect",
    "code_point",
    "csv_text",
    "split_line",
    "too_long",
    "unescaped",
    "unreadable",
    "without_comments",
]

# Unicode's noncharacters, which no text contains, stand for escaped characters and for texts in quotes.
_STAND_INS = [chr(0xFDD0 + i) for i in range(7)]
_QUOTED = "\ufdd8"
# For more columns than its limit, 20,480, `from_csv` raises in any mode.
_MOST_DELIMITERS = 20_000
_LONGEST_CHECKED = 24
_BACKSLASH = "\\"


@dataclass(frozen=True)
class Dialect:
    """The special characters of a line, and how values are read and written.

    Args:
        delimiter: The character between fields.
        quote: The character around a field; empty for none.
        escape: The character that takes away the meaning of the next one; empty for none.
        element_delimiter: The character between the elements of an array or a row.
        null: The text of null, if there is one.
        ignore_errors: If true, fields that cannot be parsed become null, and lines that cannot be parsed are skipped.
        scientific: If true, decimal numbers may have an exponent.
    """

    delimiter: str
    quote: str
    escape: str
    element_delimiter: str
    null: str | None
    ignore_errors: bool
    scientific: bool


def code_point(character: str) -> str:
    """Return a character as it is written in a regular expression of Java."""
    return rf"\x{{{ord(character):x}}}"


def without_comments(text: Column) -> Column:
    """Return a message without the lines that begin with `#`, and without blanks before the rest."""
    return F.ltrim(F.regexp_replace(text, r"(?dm)^ *#.*\n?", ""), F.lit(" \r\n"))


def split_line(line: Column, width: int, dialect: Dialect) -> Column:
    """Split a line into a struct of texts `_0`, `_1` …, and `ERROR`, which is null if there are as many as expected.

    Args:
        line: The line.
        width: The expected number of fields. The struct always has as many; a missing or empty field is null.
        dialect: The dialect.
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": ERROR,
        "sep": dialect.delimiter,
        "quote": dialect.quote,
        "escape": dialect.quote,  # a doubled quote is one
        "charToEscapeQuoteEscaping": _QUOTED,  # no character; by default it is the character 0, which would get lost
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "nullValue": "",
        "emptyValue": "",
        "unescapedQuoteHandling": "STOP_AT_DELIMITER",
    }
    columns = ", ".join(f"{name} STRING" for name in [*(f"_{i}" for i in range(width)), ERROR])
    text = _with_stand_ins(line, dialect) if dialect.escape else line
    return F.from_csv(F.when(~too_long(line, dialect), text), F.lit(columns), options)


def too_long(line: Column, dialect: Dialect) -> Column:
    """Return whether a line may have more fields than `from_csv` can read."""
    delimiters = F.length(line) - F.length(F.replace(line, F.lit(dialect.delimiter)))
    return (F.octet_length(line) > _MOST_DELIMITERS) & (delimiters > _MOST_DELIMITERS)


def unreadable(line: Column, texts: Iterable[Column], dialect: Dialect) -> Column:
    """Return whether a line is malformed in a way that `from_csv` accepts.

    That is an empty line, two lines, a quote that is not closed, or one that is not followed by a delimiter. `texts` are its
    fields that may contain any text.
    """
    quote = dialect.quote
    suspicious = [F.contains(line, F.lit(line_break)) for line_break in "\r\n"]
    wrong = r"[\r\n]"
    text = _with_stand_ins(line, dialect) if dialect.escape else line
    if quote:
        count = F.length(line) - F.length(F.replace(line, F.lit(quote)))
        suspicious += [
            F.contains(line, F.lit(quote)) & (count % 2 == 1),
            *(F.startswith(t, F.lit(quote)) for t in texts),
        ]
        mark, delimiter = code_point(quote), code_point(dialect.delimiter)
        text = F.regexp_replace(text, f"{mark}[^{mark}]*{mark}", _QUOTED)
        blanks = rf"[\x{{0}}-\x{{20}}&&[^{delimiter}]]*"
        wrong += rf"|(?:^|{delimiter})(?:{_QUOTED}+{blanks}[^{delimiter}{_QUOTED}\x{{0}}-\x{{20}}]|{mark})"
    return (line == "") | (F.coalesce(either(suspicious), F.lit(True)) & text.rlike(wrong))


def _escapes(dialect: Dialect) -> dict[str, str]:
    """Return the characters that may follow the escape character, and their meanings; the escape character is the first."""
    itself = {c: c for c in (dialect.escape, dialect.quote, dialect.delimiter) if c}
    return {**itself, "n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def _with_stand_ins(line: Column, dialect: Dialect) -> Column:
    for written, stand_in in zip(_escapes(dialect), _STAND_INS, strict=False):
        line = F.replace(line, F.lit(dialect.escape + written), F.lit(stand_in))
    return F.replace(line, F.lit(dialect.escape))  # before any other character it has no effect


def unescaped(text: Column, dialect: Dialect) -> Column:
    """Return a field with the characters that were escaped."""
    if not dialect.escape:
        return text
    meanings = "".join(_escapes(dialect).values())
    return F.translate(text, "".join(_STAND_INS[: len(meanings)]), meanings)


# --- writing ---


def csv_text(row: Column, schema: StructType, dialect: Dialect) -> Column:
    """Return the line of a struct; null for null."""
    null = F.lit(dialect.null or "")
    fields = (F.coalesce(_field(row[f.name], f.dataType, dialect), null) for f in schema.fields)
    return F.when(row.isNotNull(), F.concat_ws(dialect.delimiter, *fields))


def _field(value: Column, type_: DataType, dialect: Dialect) -> Column:
    text = _text(value, type_, dialect)
    raw = isinstance(type_, (NumericType, BooleanType)) or not dialect.quote
    return text if raw else let(text, lambda t: _enclosed(t, dialect))


def _text(value: Column, type_: DataType, dialect: Dialect) -> Column:
    null = dialect.null or ""
    match type_:
        case ArrayType(elementType=element):
            texts = F.transform(value, lambda x: _text(x, element, dialect))
            return F.array_join(texts, dialect.element_delimiter, null)
        case StructType():
            texts = F.array(*(_text(value[f.name], f.dataType, dialect) for f in type_.fields))
            return F.when(value.isNotNull(), F.array_join(texts, dialect.element_delimiter, null))
        case DecimalType():
            return decimal_text(value, plain=not dialect.scientific)
        case BinaryType():
            return F.replace(F.base64(value), F.lit("\r\n"))  # the session decides whether Spark breaks it into lines
        case _ if isinstance(type_, TEMPORAL):
            return temporal_text(value, type_)
        case _:
            return value.cast(StringType())


def _enclosed(text: Column, dialect: Dialect) -> Column:
    """Return the text, in quotes if Jackson would put it in quotes."""
    escape, quote = dialect.escape, dialect.quote
    unsafe = rf"[\x{{0}}-{code_point(max(dialect.delimiter, quote))}{code_point(escape or _BACKSLASH)}]"
    # Jackson counts in UTF-16, where a character beyond U+FFFF counts twice.
    long = (F.length(text) > _LONGEST_CHECKED) | (
        (F.octet_length(text) > _LONGEST_CHECKED) & (F.octet_length(F.encode(text, "UTF-16BE")) > 2 * _LONGEST_CHECKED)
    )
    inner = F.replace(text, F.lit(escape), F.lit(escape * 2)) if escape else text
    inner = F.replace(inner, F.lit(quote), F.lit(quote * 2))
    return F.when(long | text.rlike(unsafe), F.concat(F.lit(quote), inner, F.lit(quote))).otherwise(text)
