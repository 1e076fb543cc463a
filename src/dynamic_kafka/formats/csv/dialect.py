"""How lines of CSV are written, and how one is split into texts.

Spark's `from_csv` splits. It is made to agree with Flink's parser (Jackson) where they differ: about quotes that do not
match, about escapes, and about a delimiter at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats.expressions import either
from dynamic_kafka.formats.format import ERROR

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Dialect", "code_point", "split_line", "too_long", "unescaped", "unreadable", "without_comments"]

# Characters that no text has (Unicode's noncharacters) stand for escaped ones, and for what is in quotes.
_STAND_INS = [chr(0xFDD0 + i) for i in range(7)]
_QUOTED = "\ufdd8"
# For more columns than its limit, 20,480, `from_csv` raises in any mode.
_MOST_DELIMITERS = 20_000


@dataclass(frozen=True)
class Dialect:
    """What the characters of a line mean.

    Args:
        delimiter: Between fields.
        quote: Around a field; empty if there is none.
        escape: Before a character that shall mean itself; empty if there is none.
        element_delimiter: Between the elements of an array or a row.
        null: The text of null, if it has one.
        ignore_errors: Whether a field that cannot be read is null, and a line that cannot be read no row.
        scientific: Whether decimal numbers may have an exponent.
    """

    delimiter: str
    quote: str
    escape: str
    element_delimiter: str
    null: str | None
    ignore_errors: bool
    scientific: bool


def code_point(character: str) -> str:
    """A character in a regular expression of Java."""
    return rf"\x{{{ord(character):x}}}"


def without_comments(text: Column) -> Column:
    """A message without lines that begin with `#`, and without blanks before what is left."""
    return F.ltrim(F.regexp_replace(text, r"(?dm)^ *#.*\n?", ""), F.lit(" \r\n"))


def split_line(line: Column, width: int, dialect: Dialect) -> Column:
    """A struct of texts `_0`, `_1` …, null for an empty one, and of `ERROR`, which is null if they are as many as expected.

    Args:
        line: The line.
        width: How many fields are expected. The struct has as many in any case; null for those that are not there.
        dialect: The dialect.
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": ERROR,
        "sep": dialect.delimiter,
        "quote": dialect.quote,
        "escape": dialect.quote,  # a doubled quote is one
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
    """Whether a line may have more fields than `from_csv` bears."""
    delimiters = F.length(line) - F.length(F.replace(line, F.lit(dialect.delimiter)))
    return (F.octet_length(line) > _MOST_DELIMITERS) & (delimiters > _MOST_DELIMITERS)


def unreadable(line: Column, texts: Iterable[Column], dialect: Dialect) -> Column:
    """Whether a line is empty or two lines, or a quote in it is not closed or not followed by a delimiter.

    `from_csv` takes all of that as it is.

    Args:
        line: The line.
        texts: Fields of it that may be any text.
        dialect: The dialect.
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
    """What stands behind the escape character, and what it means; the escape character itself is the first."""
    itself = {c: c for c in (dialect.escape, dialect.quote, dialect.delimiter) if c}
    return {**itself, "n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def _with_stand_ins(line: Column, dialect: Dialect) -> Column:
    for written, stand_in in zip(_escapes(dialect), _STAND_INS, strict=False):
        line = F.replace(line, F.lit(dialect.escape + written), F.lit(stand_in))
    return F.replace(line, F.lit(dialect.escape))  # before any other character it has no effect


def unescaped(text: Column, dialect: Dialect) -> Column:
    """A field with the characters that were escaped."""
    if not dialect.escape:
        return text
    meanings = "".join(_escapes(dialect).values())
    return F.translate(text, "".join(_STAND_INS[: len(meanings)]), meanings)
