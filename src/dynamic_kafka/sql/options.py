"""Options of SQL tables: those of the source and the sink, those of the SQL connectors themselves, and those of formats.

A table's options are split here by who they are for. What is left over is unknown. Source: the seed on Kafka SQL;
Flink's KafkaConnectorOptions and UpsertKafkaDynamicTableFactory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, UnknownOptionError
from dynamic_kafka.formats import Format, FormatOptions
from dynamic_kafka.kafka.config import jaas
from dynamic_kafka.options import OPTIONS, PREFIXES, SINK_OPTIONS, ConfigOption, option_names
from dynamic_kafka.options.option import duration_from, integer, text, word

__all__ = ["CONNECTORS", "SQL_OPTIONS", "TableOptions", "check_unknown", "format_options", "split_options"]

CONNECTORS = ("kafka", "dynamic-kafka", "upsert-kafka")

_DEAD_LETTER_PROPERTIES = "format.dead-letter.properties."
_UPSERT_BUFFER = ("sink.buffer-flush.max-rows", "sink.buffer-flush.interval")


def _fields(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(";") if name.strip())


SQL_OPTIONS: tuple[ConfigOption, ...] = (
    ConfigOption("connector", word(*CONNECTORS), f"one of {', '.join(CONNECTORS)}", "", "Which connector."),
    ConfigOption("format", text, "a format", "", "The format of values; the same as `value.format`."),
    ConfigOption("value.format", text, "a format", "", "The format of values; its options begin with `value.`."),
    ConfigOption("key.format", text, "a format", "", "The format of keys; its options begin with `key.`."),
    ConfigOption("key.fields", _fields, "columns separated by ';'", "", "The columns that are in the key, in order."),
    ConfigOption(
        "key.fields-prefix",
        str.strip,
        "text",
        "",
        "What names of key columns begin with in the table, and not in the key; needs `value.fields-include` = EXCEPT_KEY.",
    ),
    ConfigOption(
        "value.fields-include",
        word("all", "except-key"),
        "ALL or EXCEPT_KEY",
        "ALL",
        "Whether the columns of the key are in the value, too.",
    ),
    ConfigOption(
        "format.on-error",
        word("fail", "skip", "dead-letter"),
        "one of fail, skip, dead-letter",
        "fail",
        "What a message that cannot be read does: fail the query, be left out and counted, or be set aside in a topic.",
    ),
    ConfigOption("format.dead-letter.topic", text, "a topic", "", "The topic for messages that cannot be read."),
    ConfigOption(
        _UPSERT_BUFFER[0],
        integer(0),
        "a whole number, 0 or more",
        "0",
        "Accepted for Flink's sake (`upsert-kafka`): a micro-batch is the buffer.",
    ),
    ConfigOption(_UPSERT_BUFFER[1], duration_from(0), "a duration such as '1 s'", "0", "Likewise."),
    ConfigOption(
        "stream-enumerator-mode",
        word("per-cluster", "global"),
        "per-cluster or global",
        "global",
        "Accepted for Flink's sake (`dynamic-kafka`): Spark always plans the tasks of all clusters together.",
    ),
)
"""What SQL tables have of their own."""

# Spark's columns and identities: SQL tables say it by metadata columns, and by the job that writes.
_NOT_IN_SQL = {"includeHeaders", "includeLeaderEpoch", "checkpointLocation", "txnAppId", "txnVersion", "sink.name"}
_OF_TOPICS = {"topic", "topic-pattern", "topic-partitions"}
_OF_STREAMS = {"stream-ids", "stream-pattern", "stream-enumerator-mode", "metadata-service"}
_STARTS = {
    *("scan.startup.mode", "scan.startup.timestamp-millis", "scan.startup.specific-offsets", "startingOffsets"),
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
}
_NOT_FOR: Mapping[str, tuple[set[str], str]] = {
    "kafka": (_OF_STREAMS, "streams are read with 'connector' = 'dynamic-kafka'"),
    "dynamic-kafka": (
        {*_OF_TOPICS, "scan.startup.specific-offsets", "scan.bounded.specific-offsets"},
        "the metadata service says which topics a stream has; name streams with 'stream-ids' or 'stream-pattern'",
    ),
    "upsert-kafka": (
        {*_OF_STREAMS, *_STARTS, "topic-pattern", "key.fields"},
        "it is read from the earliest offset on, one topic, keyed by its PRIMARY KEY",
    ),
}


@dataclass(frozen=True)
class TableOptions:
    """A table's options, by who they are for.

    Args:
        sql: Those of `SQL_OPTIONS`, parsed, by name.
        source: For the source, as texts.
        sink: For the sink, as texts.
        dead_letter: Properties of the cluster for dead letters, besides the table's own.
        rest: What only a format can know, as texts.
    """

    sql: Mapping[str, Any]
    source: Mapping[str, str]
    sink: Mapping[str, str]
    dead_letter: Mapping[str, str]
    rest: Mapping[str, str]


def split_options(options: Mapping[str, str]) -> TableOptions:
    """Split a table's options by who they are for.

    Args:
        options: As in the table's WITH clause.

    Raises:
        ConfigurationError: If the connector is missing or unknown, or an option does not go with it.
        InvalidOptionError: If one of `SQL_OPTIONS` has a wrong value.
    """
    known = {option.key: option for option in SQL_OPTIONS}
    sql = {name: _parse(known[name], name, value) for name, value in options.items() if name in known}
    if "connector" not in sql:
        raise ConfigurationError(f"Option 'connector' is missing; give one of {', '.join(CONNECTORS)}")
    connector = sql["connector"]
    source_names, sink_names = (
        {name: option for name, option in option_names(table).items() if option.key not in _NOT_IN_SQL}
        for table in (OPTIONS, SINK_OPTIONS)
    )
    source, sink, dead_letter, rest = {}, {}, {}, {}
    for name, value in options.items():
        option = source_names.get(name) or sink_names.get(name) or known.get(name)
        key = option.key if option is not None else name
        refused, why = _NOT_FOR[connector]
        if key in refused or (key.startswith("metadata-service.") and connector != "dynamic-kafka"):
            raise ConfigurationError(f"Option '{name}' does not go with 'connector' = '{connector}': {why}")
        if key in _UPSERT_BUFFER and connector != "upsert-kafka":
            raise ConfigurationError(f"Option '{name}' goes with 'connector' = 'upsert-kafka' only")
        if name.startswith(_DEAD_LETTER_PROPERTIES):
            dead_letter[name.removeprefix(_DEAD_LETTER_PROPERTIES)] = value
        elif name.startswith(tuple(PREFIXES)):
            source[name] = sink[name] = _as_pasted(name, value)
        elif name in source_names or name in sink_names:
            if name in source_names:
                source[name] = value
            if name in sink_names:
                sink[name] = value
        elif name not in known:
            rest[name] = value
    return TableOptions(sql, source, sink, dead_letter, rest)


def format_options(used: Format, prefix: str, rest: Mapping[str, str]) -> tuple[FormatOptions, set[str]]:
    """The options of a format in a table.

    Args:
        used: The format.
        prefix: What its options begin with: `key.`, `value.`, or nothing for `format`.
        rest: Options that are nobody else's.

    Returns:
        Values by the option's name without the prefix, and which names of `rest` they were.

    Raises:
        InvalidOptionError: If a value is wrong.
    """
    by_name = {prefix + name: option for name, option in option_names(used.options).items()}
    names = by_name.keys() & rest.keys()
    return {by_name[name].key: _parse(by_name[name], name, rest[name]) for name in names}, names


def check_unknown(rest: Iterable[str], formats: Iterable[tuple[str, Format]]) -> None:
    """Refuse options that nobody knows.

    Args:
        rest: Names that are left over.
        formats: The formats in use, each with the prefix of its options.

    Raises:
        UnknownOptionError: With the name that was perhaps meant.
    """
    known = [option.key for table in (SQL_OPTIONS, OPTIONS, SINK_OPTIONS) for option in table]
    known += [prefix + name for prefix, used in formats for name in option_names(used.options)]
    for name in sorted(rest):
        of_value = f"value.{name}"  # what Flink's users forget most
        raise UnknownOptionError(name, [of_value] if of_value in known else known)


def _as_pasted(name: str, value: str) -> str:
    r"""Flink's documentation has `\"` around what a login module is given; in SQL, the backslash means nothing."""
    if name.endswith("sasl.jaas.config"):
        try:
            jaas.parse(value)
        except ConfigurationError:
            return value.replace('\\"', '"')
    return value


def _parse(option: ConfigOption, name: str, value: str) -> Any:
    try:
        return option.parse(value)
    except (ValueError, KeyError):
        raise InvalidOptionError(name, value, option.expected) from None
