"""Options: name, aliases, type, default and meaning, in one table for the source and one for the sink.

README's tables are made from them. Flink's names are the canonical ones; the names of Spark's own Kafka connector are
aliases, or options of their own where Flink has none. Names are matched without regard to case, because Spark hands them
over in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.errors import ConflictingOptionsError, InvalidOptionError, UnknownOptionError
from dynamic_kafka.options.option import ConfigOption
from dynamic_kafka.options.sink import SINK_OPTIONS
from dynamic_kafka.options.source import OPTIONS

__all__ = [
    "OPTIONS",
    "PREFIXES",
    "SINK_OPTIONS",
    "ConfigOption",
    "ParsedOptions",
    "markdown_table",
    "option_names",
    "parse_options",
]

PREFIXES: Mapping[str, str] = {
    "properties.": "Any property of a Kafka client, in Java's or librdkafka's name.",
    "kafka.": "The same, as in Spark's own Kafka connector.",
    "metadata-service.": "Options of the metadata service.",
}

# Spark's readers and writers add these by themselves; they are no business of ours.
_IGNORED = frozenset({"path", "queryname", "outputmode", "__datasource_name__"})


@dataclass(frozen=True)
class ParsedOptions:
    """Options after parsing: values by canonical key, client properties, and the metadata service's own options."""

    values: Mapping[str, Any]
    properties: Mapping[str, str]
    service_options: Mapping[str, str]
    spelling: Mapping[str, str]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of an option, or the default."""
        return self.values.get(key, default)

    def given(self, *keys: str) -> list[str]:
        """Those of the options that the user gave, as the user spelled them."""
        return [self.spelling[key] for key in keys if key in self.values]


def option_names(table: Iterable[ConfigOption]) -> dict[str, ConfigOption]:
    """The options of a table by each of their names, aliases too."""
    return {name: option for option in table for name in (option.key, *option.aliases)}


def parse_options(options: Mapping[str, str], table: Iterable[ConfigOption] = OPTIONS) -> ParsedOptions:
    """Parse what the user gave.

    Args:
        options: Names, in any case, and texts.
        table: The options there are: the source's or the sink's.

    Raises:
        UnknownOptionError: For a name that is not in the table.
        ConflictingOptionsError: For two spellings of one option with different values.
        InvalidOptionError: For a value that does not parse.
    """
    known = option_names(table)
    as_spelled = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    spelling: dict[str, str] = {}
    properties: dict[str, tuple[str, str]] = {}
    service_options: dict[str, str] = {}
    for name, text in options.items():
        lower = name.lower()
        shown = as_spelled.get(lower)
        if shown is None:
            if lower.startswith("metadata-service."):
                service_options[lower] = text
            elif lower.startswith(("properties.", "kafka.")):
                key = lower.partition(".")[2]
                other, other_text = properties.setdefault(key, (lower, text))
                if other_text != text:
                    raise ConflictingOptionsError(
                        [other, lower], "they are one property with two values; give one of them"
                    )
            elif lower not in _IGNORED:
                raise UnknownOptionError(name, known)
            continue
        option = known[shown]
        if texts.setdefault(option.key, text) != text:
            raise ConflictingOptionsError(
                [spelling[option.key], shown], "they are one option with two values; give one of them"
            )
        spelling[option.key] = shown
        try:
            values[option.key] = option.parse(text)
        except (ValueError, KeyError, re.error):
            raise InvalidOptionError(shown, text, option.expected) from None
    return ParsedOptions(values, {k: text for k, (_, text) in properties.items()}, service_options, spelling)


def markdown_table(table: Iterable[ConfigOption] = OPTIONS, prefixes: Mapping[str, str] = PREFIXES) -> str:
    """The table for README.md and docs/sql.md."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in table:
        names = "<br>".join(f"`{name}`" for name in (option.key, *option.aliases))
        lines.append(f"| {names} | {option.default} | {option.doc} |")
    lines += [f"| `{prefix}*` | | {doc} |" for prefix, doc in prefixes.items()]
    return "\n".join(lines)
