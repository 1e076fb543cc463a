"""The options of formats, in SQL tables and in DataFrame functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dynamic_kafka.errors import UnknownOptionError
from dynamic_kafka.formats.format import Format, FormatOptions
from dynamic_kafka.options import Option, choice, non_blank, option_names

__all__ = [
    "DEAD_LETTER_PROPERTIES",
    "DEAD_LETTER_TOPIC",
    "KEY_FORMAT",
    "ON_ERROR",
    "VALUE_FORMAT",
    "check_unknown",
    "format_options",
    "only_topic",
]

VALUE_FORMAT = Option(
    "value.format", non_blank("a format"), doc="The format of values. Its options then begin with `value.`."
)
KEY_FORMAT = Option("key.format", non_blank("a format"), doc="The format of keys. Its options begin with `key.`.")

ON_ERROR = Option(
    "format.on-error",
    choice("fail", "skip", "dead-letter"),
    "fail",
    doc="What to do with a message that cannot be read: `fail` ends the query, `skip` counts the message and leaves it out, "
    "`dead-letter` writes it to another topic.",
)

DEAD_LETTER_TOPIC = Option(
    "format.dead-letter.topic", non_blank("a topic"), doc="The topic for messages that cannot be read."
)
DEAD_LETTER_PROPERTIES = "format.dead-letter.properties."
"""The prefix of options that are Kafka properties of the dead-letter topic's cluster."""


def only_topic(options: Mapping[str, str]) -> str | None:
    """Return the topic that options name; None if there are several, or none."""
    given = next((text for name, text in options.items() if name.lower() in ("topic", "subscribe")), "")
    topics = [name for part in given.replace(",", ";").split(";") if (name := part.strip())]
    return topics[0] if len(topics) == 1 else None


def format_options(used: Format, prefix: str, rest: Mapping[str, str]) -> tuple[FormatOptions, set[str]]:
    """Parse the options of a format.

    Args:
        used: The format.
        prefix: The beginning of their names: `key.`, `value.`, or nothing for `format`.
        rest: All options that may be the format's.

    Returns:
        Values by the option's key without the prefix, with texts for single properties of a registry; and the names of
        `rest` that were used.

    Raises:
        InvalidOptionError: If a value is wrong.
    """
    by_name = {prefix + name: option for name, option in option_names(used.options).items()}
    names = by_name.keys() & rest.keys()
    parsed = {by_name[name].key: by_name[name].parse(rest[name], name) for name in names}
    # One of the registry's properties as an option of its own, which `schema_registry_settings` checks.
    start = f"{prefix}{used.name}.properties."
    single = {name for name in rest if used.registry is not None and name.startswith(start)}
    return parsed | {name.removeprefix(prefix): rest[name] for name in single}, names | single


def check_unknown(rest: Iterable[str], formats: Iterable[tuple[str, Format]], others: Iterable[str] = ()) -> None:
    """Refuse options that do not exist.

    Args:
        rest: The names that no format and nothing else has used.
        formats: The formats in use, each with the prefix of its options.
        others: Other options to suggest.

    Raises:
        UnknownOptionError: With the most similar name.
    """
    known = [*others, *(prefix + name for prefix, used in formats for name in option_names(used.options))]
    for name in sorted(rest):
        of_value = f"value.{name}"  # what Flink's users forget most
        raise UnknownOptionError(name, [of_value] if of_value in known else known)
