"""Errors at a place in SQL text, shown with the line and without its secrets.

Secrets are searched for in the text, not in the tokens: if a quote is missing, the tokens of a password do not look like a
password.
"""

from __future__ import annotations

import re

from dynamic_kafka.errors import SqlError
from dynamic_kafka.kafka.config.secrets import is_secret

__all__ = ["is_hidden", "line_number", "sql_error", "without_secrets"]

_HIDDEN = "***"
_WIDTH = 120  # characters of a line that are shown
_KEY = re.compile(r"[\w.-]+")
_BLANK = r"(?>\s|--[^\n]*\n|//[^\n]*\n|/\*.*?\*/)*+"  # possessive: backtracking over many comments would take minutes
# The text between a key and its value. If there is no sign, both must be in quotes.
_SEPARATOR = re.compile(rf"""['"`]?{_BLANK}(?:=>|[=:])\s*|['"`]\s*(?={_BLANK}['"`])""", re.DOTALL)
# A comment before the value is hidden too, because it may be the value.
_VALUE = re.compile(rf"""{_BLANK}(?:'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z))""", re.DOTALL)
# The text behind a value that ends at its closing quote: the end of the line, or another option.
_OPTION = r"'[\w.-]+'\s*="
_AFTER_VALUE = re.compile(rf"[ \t]*(?:\)?[ \t]*;?$|,\s*{_OPTION})", re.MULTILINE)
# Otherwise that quote was part of the value, which goes on to the end of the line at least.
_LINE_END = re.compile(r"$", re.MULTILINE)
_NEXT_OPTION = re.compile(rf"$(?=\s*{_OPTION})|\Z", re.MULTILINE)
_ALWAYS_SECRET = re.compile(
    r"(?<=://)(?:[^\s']|'')+(?=@)|-----BEGIN[^-']*PRIVATE KEY-----.*?(?:-----END[^-']*-----|\Z)", re.DOTALL
)


def sql_error(source: str, offset: int, problem: str, *, unfinished: bool = False) -> SqlError:
    """Return an error at a place in the text. The problem, and what to do about it, are without any secret."""
    start = source.rfind("\n", 0, offset) + 1
    end = source.find("\n", offset)
    line, caret = _without_secrets(source, start, len(source) if end < 0 else end, offset)
    first = max(0, caret - _WIDTH * 2 // 3) if len(line) > _WIDTH else 0
    shown = _printable(line[first : first + _WIDTH])
    return SqlError(
        _printable(problem),
        line=line_number(source, offset),
        column=offset - start + 1,
        excerpt=f"{shown.rstrip()}\n{' ' * (caret - first)}^",
        unfinished=unfinished,
    )


def _printable(text: str) -> str:
    """Return the text on one line, with the same number of characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def line_number(source: str, offset: int) -> int:
    """Return the line, counted from 1, of the index `offset`."""
    return source.count("\n", 0, offset) + 1


def is_hidden(source: str, start: int, end: int) -> bool:
    """Return whether the text from `start` to `end` overlaps a secret."""
    return any(first < end and start < last for first, last in _secrets(source))


def without_secrets(source: str) -> str:
    """Return a text with `***` in the place of its secrets, quotes included or not."""
    return _without_secrets(source, 0, len(source), 0)[0]


def _without_secrets(source: str, start: int, end: int, offset: int) -> tuple[str, int]:
    """Return the text from `start` to `end` without its secrets, and the place of `offset` in it."""
    shown, caret, position = "", 0, start
    for first, last in [*_secrets(source), (end, end)]:
        if last <= position or first > end:
            continue
        if position <= offset:
            caret = len(shown) + min(offset, max(first, position)) - position
        shown += source[position:first]
        if first < end:
            shown += _HIDDEN
        position = min(last, end)
    return shown, caret


def _secrets(source: str) -> list[tuple[int, int]]:
    """Return the parts of the text that hold a secret, in order and without overlaps."""
    found = [match.span() for match in _ALWAYS_SECRET.finditer(source)]
    for key in _KEY.finditer(source):
        separator = _SEPARATOR.match(source, key.end()) if is_secret(key.group()) else None
        if separator is None:
            continue
        value = _VALUE.match(source, separator.end())
        end = value.end() if value else separator.end()
        if value is None or _AFTER_VALUE.match(source, end) is None:
            quoted = source[key.end() : key.end() + 1] in ("'", '"')
            rest = (_NEXT_OPTION if quoted else _LINE_END).search(source, end)
            assert rest is not None
            end = rest.start()
        found.append((separator.end(), end))
    merged: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
