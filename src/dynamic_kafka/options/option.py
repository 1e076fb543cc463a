"""What an option is, and how the texts of options become values.

Each parser raises ValueError, KeyError or re.error for a wrong text; `ConfigOption.expected` says what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "BOOL",
    "POSITIVE",
    "ConfigOption",
    "Parser",
    "duration_from",
    "duration_ms",
    "flag",
    "integer",
    "names",
    "regex",
    "text",
    "word",
]

Parser = Callable[[str], Any]

BOOL = "true or false"
POSITIVE = "a whole number above 0"


@dataclass(frozen=True)
class ConfigOption:
    """One option.

    Args:
        key: The canonical name.
        parse: Turns the text into a value; raises ValueError.
        expected: What a value looks like, as it reads after "expected".
        default: The default, as text for people; the value is in `SourceSettings` or `SinkSettings`.
        doc: One or two sentences.
        aliases: Other spellings of the same option.
    """

    key: str
    parse: Parser
    expected: str
    default: str
    doc: str
    aliases: tuple[str, ...] = ()


def text(value: str) -> str:
    """Text that is not blank, without the blanks around it."""
    if not value.strip():
        raise ValueError
    return value.strip()


def flag(value: str) -> bool:
    """True or false, in any case."""
    return {"true": True, "false": False}[value.strip().lower()]


def integer(least: int) -> Parser:
    """A parser of whole numbers from `least` on."""

    def parse(value: str) -> int:
        number = int(value.strip())
        if number < least:
            raise ValueError
        return number

    return parse


def word(*words: str) -> Parser:
    """A parser of one of these words, in any case, with `_` for `-` as in Java's enumerations."""

    def parse(value: str) -> str:
        found = value.strip().lower().replace("_", "-")
        if found not in words:
            raise ValueError
        return found

    return parse


_UNITS_MS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def duration_ms(value: str) -> int:
    """Milliseconds, or a number with a unit as in Flink and Spark (`5 min`, `30s`)."""
    match = re.fullmatch(r"(-?\d+)\s*([a-z]*)", value.strip().lower())
    if match is None:
        raise ValueError
    return int(match[1]) * _UNITS_MS[match[2]]


def duration_from(least_ms: int) -> Parser:
    """A parser of durations from `least_ms` on."""

    def parse(value: str) -> int:
        found_ms = duration_ms(value)
        if found_ms < least_ms:
            raise ValueError
        return found_ms

    return parse


def regex(value: str) -> re.Pattern[str]:
    """A regular expression in Python's syntax."""
    return re.compile(text(value))


def names(separators: str) -> Parser:
    """A parser of names between any of the separators."""

    def parse(value: str) -> tuple[str, ...]:
        found = tuple(name.strip() for name in re.split(f"[{separators}]", value))
        if not all(found):
            raise ValueError
        return found

    return parse
