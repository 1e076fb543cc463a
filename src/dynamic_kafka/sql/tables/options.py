"""Options of SQL tables: those of the source and the sink, those of the SQL connectors themselves, and those of formats.

A table's options are split here by their consumer. Source: Flink's "Apache Kafka SQL Connector" documentation,
KafkaConnectorOptions and UpsertKafkaDynamicTableFactory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import Format, FormatOptions
from dynamic_kafka.formats.options import (
    DEAD_LETTER_PROPERTIES,
    DEAD_LETTER_TOPIC,
    KEY_FORMAT,
    ON_ERROR,
    VALUE_FORMAT,
    only_topic,
)
from dynamic_kafka.kafka.config import jaas
from dynamic_kafka.options import PREFIXES, Option, Parser, choice, duration_ms, integer, non_blank, option_names
from dynamic_kafka.sink.configure import SINK_OPTIONS
from dynamic_kafka.source.configure import SOURCE_OPTIONS

__all__ = [
    "CONNECTOR",
    "CONNECTORS",
    "FORMAT",
    "KEY_FIELDS",
    "KEY_FIELDS_PREFIX",
    "SQL_OPTIONS",
    "SQL_PREFIXES",
    "TABLE_KEYS",
    "UPSERT_BUFFER",
    "VALUE_FIELDS_INCLUDE",
    "TableOptions",
    "split_options",
    "value_format_option",
    "with_subject",
    "without_properties",
    "without_unused",
]

_log = logging.getLogger(__name__)

CONNECTORS = ("kafka", "dynamic-kafka", "upsert-kafka")

SQL_PREFIXES: Mapping[str, str] = {
    DEAD_LETTER_PROPERTIES: "A property of the clients of that topic's cluster, besides the table's or query's own."
}
"""The names that cannot be listed one by one: what they begin with, and their meaning."""


CONNECTOR = Option(
    "connector",
    choice(*CONNECTORS),
    doc="The connector: `kafka` for topics of one cluster, `dynamic-kafka` for streams, `upsert-kafka` for a table with a "
    "PRIMARY KEY, in which a message replaces the row of its key.",
)
FORMAT = Option("format", non_blank("a format"), doc="The format of values; it goes before `value.format`.")
KEY_FIELDS = Option(
    "key.fields",
    Parser(lambda value: tuple(name.strip() for name in value.split(";") if name.strip()), "columns separated by ';'"),
    "",
    doc="The columns in the key, in order, separated by `;`.",
)
KEY_FIELDS_PREFIX = Option(
    "key.fields-prefix",
    Parser(str.strip, "text"),
    "",
    doc="A prefix that key columns have in the table and do not have in the key. It needs `value.fields-include` = "
    "EXCEPT_KEY.",
)
VALUE_FIELDS_INCLUDE = Option(
    "value.fields-include",
    choice("all", "except-key", expected="ALL or EXCEPT_KEY"),
    "ALL",
    doc="The columns in the value: `ALL`, or `EXCEPT_KEY` for those that are not in the key.",
)
UPSERT_BUFFER = (
    Option(
        "sink.buffer-flush.max-rows",
        integer(at_least=0),
        "0",
        doc="Accepted for compatibility with Flink (`upsert-kafka`), without effect: a micro-batch is the buffer.",
    ),
    Option(
        "sink.buffer-flush.interval",
        duration_ms(at_least=0),
        "0",
        doc="Accepted for compatibility with Flink (`upsert-kafka`), without effect.",
    ),
)
_ENUMERATOR_MODE = Option(
    "stream-enumerator-mode",
    choice("per-cluster", "global"),
    "global",
    doc="Accepted for compatibility with Flink (`dynamic-kafka`), without effect: Spark plans the tasks of all clusters "
    "together.",
)
SQL_OPTIONS: tuple[Option[Any], ...] = (
    CONNECTOR,
    FORMAT,
    VALUE_FORMAT,
    KEY_FORMAT,
    KEY_FIELDS,
    KEY_FIELDS_PREFIX,
    VALUE_FIELDS_INCLUDE,
    ON_ERROR,
    DEAD_LETTER_TOPIC,
    *UPSERT_BUFFER,
    _ENUMERATOR_MODE,
)
"""The options that only SQL tables have."""
TABLE_KEYS = tuple(option.key for table in (SQL_OPTIONS, SOURCE_OPTIONS, SINK_OPTIONS) for option in table)
"""The keys of all options of SQL tables besides those of formats."""

_BUFFER_KEYS = {option.key for option in UPSERT_BUFFER}
# Spark's columns and identities: SQL tables have metadata columns and the job that writes instead.
_NOT_IN_SQL = {
    *("includeHeaders", "includeLeaderEpoch", "checkpointLocation"),
    *("txnAppId", "txnVersion", "__txnConsecutive", "sink.name"),
}
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
        {*_OF_STREAMS, *_STARTS, "key.fields", "sink.partitioner"},
        "it is read from the earliest offset on, and its PRIMARY KEY is the key of messages, which says their partition",
    ),
}


@dataclass(frozen=True)
class TableOptions:
    """A table's options by their consumer.

    `sql` are those of `SQL_OPTIONS`, parsed, by key. All others are texts: the source's, the sink's, the properties of the
    cluster for dead letters besides the table's own, and the rest, which can only be a format's.
    """

    sql: Mapping[str, Any]
    source: Mapping[str, str]
    sink: Mapping[str, str]
    dead_letter: Mapping[str, str]
    rest: Mapping[str, str]


def split_options(options: Mapping[str, str]) -> TableOptions:
    """Split a table's options by their consumer.

    Raises:
        ConfigurationError: If the connector is missing or unknown, or an option does not go with it.
        InvalidOptionError: If one of `SQL_OPTIONS` has a wrong value.
    """
    known = {option.key: option for option in SQL_OPTIONS}
    sql = {name: known[name].parse(value) for name, value in options.items() if name in known}
    connector: str | None = CONNECTOR.of(sql)
    if connector is None:
        raise ConfigurationError(f"Option '{CONNECTOR.key}' is missing; give one of {', '.join(CONNECTORS)}")
    source_names, sink_names = (
        {name: option for name, option in option_names(table).items() if option.key not in _NOT_IN_SQL}
        for table in (SOURCE_OPTIONS, SINK_OPTIONS)
    )
    source, sink, dead_letter, rest = {}, {}, {}, {}
    for name, value in options.items():
        option = source_names.get(name) or sink_names.get(name) or known.get(name)
        key = option.key if option is not None else name
        refused, why = _NOT_FOR[connector]
        if key in refused or (key.startswith("metadata-service.") and connector != "dynamic-kafka"):
            raise ConfigurationError(f"Option '{name}' does not go with 'connector' = '{connector}': {why}")
        if key in _BUFFER_KEYS and connector != "upsert-kafka":
            raise ConfigurationError(f"Option '{name}' goes with 'connector' = 'upsert-kafka' only")
        if name.startswith(DEAD_LETTER_PROPERTIES):
            dead_letter[name.removeprefix(DEAD_LETTER_PROPERTIES)] = value
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


def value_format_option(sql: Mapping[str, Any]) -> str:
    """Return the option that names the format of values. Flink takes `format` if there are both."""
    return "format" if "format" in sql else "value.format"


def with_subject(form: Format, given: FormatOptions, source: Mapping[str, str], name: str) -> FormatOptions:
    """Return a format's options with the default subject in a schema registry, if there is one topic.

    It is the topic's name with `-key` or `-value`: `name` is one of these words.
    """
    topic = only_topic(source)
    if form.registry is None or form.registry in given or topic is None:
        return given
    return {**given, form.registry: f"{topic}-{name}"}


def _as_pasted(name: str, value: str) -> str:
    # Flink's documentation has `\"` around the values of a login module; in SQL, the backslash means nothing.
    if name.endswith("sasl.jaas.config"):
        try:
            jaas.parse(value)
        except ConfigurationError:
            return value.replace('\\"', '"')
    return value


# --- options without an effect ------------------------------------------------------------------------------------------

# Scripts have options all the same that have no effect in Flink, or keep them when a mode is changed. Flink ignores them, so
# a table of SQL does, too, with a warning. Options of a DataFrame have no such rule: there, each of them is an error.

_PREFIXES = ("properties.", "kafka.")
_FORMAT = "the table's format reads the bytes, as in Flink"
_DISCOVERY = "as in Flink; 'scan.topic-partition-discovery.interval' is the option"
_SET_ELSEWHERE = "it is a setting of topics, which Kafka's clients ignore: set it where topics are made"
_TOPICS = """
    cleanup.policy delete.retention.ms file.delete.delay.ms flush.messages flush.ms index.interval.bytes
    max.compaction.lag.ms message.format.version message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
    min.insync.replicas preallocate retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms
    segment.ms unclean.leader.election.enable
"""
_NO_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(("key.deserializer", "value.deserializer"), _FORMAT),
    "enable.auto.commit": "a group's offsets are committed when a micro-batch has finished",
    **dict.fromkeys(("flink.partition-discovery.interval-millis", "partition-discovery.interval-millis"), _DISCOVERY),
    **dict.fromkeys(_TOPICS.split(), _SET_ELSEWHERE),
}
"""Properties, and why each has no effect."""


def without_properties(options: Mapping[str, str], table: str) -> dict[str, str]:
    """Return a table's options without the properties that have no effect, and warn of each."""
    found = dict(options)
    for name in options:
        prefix = next(filter(name.startswith, _PREFIXES), None)
        reason = None if prefix is None else _NO_EFFECT.get(name.removeprefix(prefix))
        if reason is not None:
            del found[name]
            _log.warning("Table %s: option '%s' has no effect: %s", table, name, reason)
    return found


_STARTUP, _BOUNDED = "scan.startup.mode", "scan.bounded.mode"
_WITHOUT_MODE = {_STARTUP: "group-offsets", _BOUNDED: "unbounded"}
_MODES = {option.key: option.parser.words for option in SOURCE_OPTIONS if option.key in _WITHOUT_MODE}
_BELONGS_TO = {
    "properties.auto.offset.reset": (_STARTUP, "group-offsets"),
    "kafka.auto.offset.reset": (_STARTUP, "group-offsets"),
    "scan.startup.timestamp-millis": (_STARTUP, "timestamp"),
    "scan.startup.specific-offsets": (_STARTUP, "specific-offsets"),
    "scan.bounded.timestamp-millis": (_BOUNDED, "timestamp"),
    "scan.bounded.specific-offsets": (_BOUNDED, "specific-offsets"),
}
"""For each option, the option with the mode, and the only mode that uses it."""


def without_unused(source: Mapping[str, str], table: str) -> dict[str, str]:
    """Return the source's options without those that the modes do not use, and warn of each."""
    found = dict(source)
    for name, (option, wanted) in _BELONGS_TO.items():
        if name not in found:
            continue
        mode = source.get(option, _WITHOUT_MODE[option]).strip().lower()
        if mode == wanted or mode not in _MODES[option]:  # the source says what is wrong with an unknown mode
            continue
        if option not in source and any(key.lower().startswith(("starting", "ending", "history.")) for key in source):
            continue  # where to start or stop is said in Spark's words, and the source says what contradicts them
        del found[name]
        _log.warning(
            "Table %s: option '%s' has no effect, as in Flink: '%s' is '%s', and only '%s' uses it",
            table,
            name,
            option,
            mode,
            wanted,
        )
    return found
