"""The one table of options: name, aliases, type, default and meaning; README's table is made from it.

Flink's names are the canonical ones; the names of Spark's own Kafka source are aliases, or options of their own where Flink
has none. Names are matched without regard to case, because Spark hands them over in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.errors import ConflictingOptionsError, InvalidOptionError, UnknownOptionError

__all__ = ["OPTIONS", "PREFIXES", "ConfigOption", "ParsedOptions", "markdown_table", "parse_options"]

Parser = Callable[[str], Any]


@dataclass(frozen=True)
class ConfigOption:
    """One option.

    Args:
        key: The canonical name.
        parse: Turns the text into a value; raises ValueError.
        expected: What a value looks like, as it reads after "expected".
        default: The default, as text for people; the value is in `SourceSettings`.
        doc: One or two sentences.
        aliases: Other spellings of the same option.
    """

    key: str
    parse: Parser
    expected: str
    default: str
    doc: str
    aliases: tuple[str, ...] = ()


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError
    return value.strip()


def _flag(value: str) -> bool:
    return {"true": True, "false": False}[value.strip().lower()]


def _integer(least: int) -> Parser:
    def parse(value: str) -> int:
        number = int(value.strip())
        if number < least:
            raise ValueError
        return number

    return parse


def _word(*words: str) -> Parser:
    def parse(value: str) -> str:
        word = value.strip().lower().replace("_", "-")
        if word not in words:
            raise ValueError
        return word

    return parse


_UNITS_MS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def _duration_ms(value: str) -> int:
    """Milliseconds, or a number with a unit as in Flink and Spark (`5 min`, `30s`)."""
    match = re.fullmatch(r"(-?\d+)\s*([a-z]*)", value.strip().lower())
    if match is None:
        raise ValueError
    return int(match[1]) * _UNITS_MS[match[2]]


def _duration_from(least_ms: int) -> Parser:
    def parse(value: str) -> int:
        duration_ms = _duration_ms(value)
        if duration_ms < least_ms:
            raise ValueError
        return duration_ms

    return parse


def _regex(value: str) -> re.Pattern[str]:
    return re.compile(_text(value))


def _names(separators: str) -> Parser:
    def parse(value: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in re.split(f"[{separators}]", value))
        if not all(names):
            raise ValueError
        return names

    return parse


_BOOL = "true or false"
_MS = "milliseconds, or a number with a unit such as '30 s' or '5 min'"
_POSITIVE = "a whole number above 0"
_JSON_OFFSETS = 'earliest, latest, committed, or JSON such as {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
_JSON_TIMES = 'JSON such as {"topic": {"0": 1657256176000}}'
_STARTUP = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_SPECIFIC = "'partition:0,offset:42;partition:1,offset:300'"

OPTIONS: tuple[ConfigOption, ...] = (
    # what to read
    ConfigOption("topic", _names(";,"), "topic names separated by ';'", "", "Topics of one cluster.", ("subscribe",)),
    ConfigOption(
        "topic-pattern",
        _regex,
        "a regular expression",
        "",
        "Topics of one cluster whose whole names match.",
        ("subscribePattern",),
    ),
    ConfigOption(
        "topic-partitions",
        _text,
        'JSON such as {"topic": [0, 1]}',
        "",
        "Single partitions of one cluster.",
        ("assign",),
    ),
    ConfigOption(
        "stream-ids", _names(";,"), "stream ids separated by ';'", "", "Streams that the metadata service describes."
    ),
    ConfigOption(
        "stream-pattern",
        _regex,
        "a regular expression",
        "",
        "Streams whose ids contain a match (Flink's `find`).",
    ),
    ConfigOption(
        "metadata-service",
        _text,
        "single-cluster, file, http, or package.module:Class",
        "",
        "Who knows the streams. Its own options begin with `metadata-service.`: `cluster-id`, `path`, `url`, `timeout-ms`, "
        "`auth-header`, or whatever the class takes.",
    ),
    # where to start and stop
    ConfigOption(
        "scan.startup.mode", _word(*_STARTUP), f"one of {', '.join(_STARTUP)}", "", "Where reading starts (Flink SQL)."
    ),
    ConfigOption(
        "scan.startup.timestamp-millis",
        _integer(0),
        "milliseconds since 1970",
        "",
        "Start at the first record at or after this time; with mode `timestamp`.",
    ),
    ConfigOption(
        "scan.startup.specific-offsets",
        _text,
        _SPECIFIC,
        "",
        "Start at these offsets of a single topic; with mode `specific-offsets`.",
    ),
    ConfigOption(
        "startingOffsets",
        _text,
        _JSON_OFFSETS,
        "latest for streams, earliest for batch",
        "Where reading starts (Spark). A word may also stand for all partitions of a topic. Partitions not named start at "
        "the earliest offset.",
    ),
    ConfigOption(
        "startingTimestamp", _integer(0), "milliseconds since 1970", "", "Start time for all partitions (Spark)."
    ),
    ConfigOption("startingOffsetsByTimestamp", _text, _JSON_TIMES, "", "Start time for each partition (Spark)."),
    ConfigOption(
        "startingOffsetsByTimestampStrategy",
        _word("error", "latest"),
        "error or latest",
        "error",
        "What to do where no record is that late (Spark's two options above only).",
    ),
    ConfigOption(
        "scan.bounded.mode",
        _word("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
        "one of unbounded, latest-offset, group-offsets, timestamp, specific-offsets",
        "unbounded",
        "Where reading stops (Flink SQL). A streaming query then ends by itself.",
    ),
    ConfigOption(
        "scan.bounded.timestamp-millis",
        _integer(0),
        "milliseconds since 1970",
        "",
        "Stop before the first record at or after this time.",
    ),
    ConfigOption("scan.bounded.specific-offsets", _text, _SPECIFIC, "", "Stop before these offsets."),
    ConfigOption("endingOffsets", _text, _JSON_OFFSETS, "latest for batch", "Where reading stops (Spark)."),
    ConfigOption(
        "endingTimestamp", _integer(0), "milliseconds since 1970", "", "Stop time for all partitions (Spark)."
    ),
    ConfigOption("endingOffsetsByTimestamp", _text, _JSON_TIMES, "", "Stop time for each partition (Spark)."),
    # following changes
    ConfigOption(
        "stream-metadata-discovery-interval-ms",
        _duration_ms,
        _MS,
        "-1",
        "How often the metadata service is asked; 0 or less asks once.",
    ),
    ConfigOption(
        "stream-metadata-discovery-failure-threshold",
        _integer(0),
        "a whole number, 0 or more",
        "1",
        "How many failures of the metadata service in a row are tolerated; one more ends the query.",
    ),
    ConfigOption(
        "stream-metadata-removed-cluster-retention-ms",
        _duration_ms,
        _MS,
        "7 d",
        "How long positions of removed clusters and topics are kept, in case they come back (Flink: 0, clusters only).",
    ),
    ConfigOption(
        "partition.discovery.interval.ms",
        _duration_ms,
        _MS,
        "5 min",
        "How often clusters are asked for new topics and partitions; 0 or less asks once.",
        ("scan.topic-partition-discovery.interval",),
    ),
    ConfigOption(
        "cluster-failure-mode",
        _word("fail", "isolate"),
        "fail or isolate",
        "fail",
        "What a cluster that does not answer does: end the query after the client's time-outs, or wait by itself while "
        "the others are read.",
    ),
    ConfigOption(
        "drain-on-removal",
        _flag,
        _BOOL,
        "false",
        "Whether a removed topic is read on until it is quiet, before it is cut.",
    ),
    ConfigOption("drain-quiet-ms", _duration_from(0), _MS, "10 s", "How long a drained topic has to be without news."),
    # reading
    ConfigOption(
        "failOnDataLoss",
        _flag,
        _BOOL,
        "true",
        "Whether records that are gone before they were read end the query, or are a warning.",
    ),
    ConfigOption(
        "maxOffsetsPerTrigger",
        _integer(1),
        _POSITIVE,
        "none",
        "Most offsets in a micro-batch, shared fairly over clusters.",
    ),
    ConfigOption(
        "maxOffsetsPerTriggerPerCluster",
        _text,
        'a whole number above 0, or JSON such as {"cluster": 1000}',
        "none",
        "Most offsets of a cluster in a micro-batch.",
    ),
    ConfigOption("minOffsetsPerTrigger", _integer(1), _POSITIVE, "none", "Wait until there are as many offsets."),
    ConfigOption("maxTriggerDelay", _duration_from(0), _MS, "15 min", "Longest wait for `minOffsetsPerTrigger`."),
    ConfigOption(
        "scan.parallelism",
        _integer(1),
        _POSITIVE,
        "by the work",
        "Most tasks of a micro-batch, all of them used as soon as there are 1,000 records for each.",
    ),
    ConfigOption(
        "minPartitions", _integer(1), _POSITIVE, "1", "Least number of tasks when there is something to read."
    ),
    ConfigOption(
        "maxRecordsPerPartition",
        _integer(1),
        _POSITIVE,
        "1000000",
        "About how many records one task reads; larger ranges are split, smaller ones packed together.",
    ),
    ConfigOption("includeHeaders", _flag, _BOOL, "false", "Adds the column `headers`."),
    ConfigOption("includeLeaderEpoch", _flag, _BOOL, "false", "Adds the column `leader_epoch`."),
    ConfigOption(
        "kafkaConsumer.pollTimeoutMs",
        _duration_from(0),
        _MS,
        "2 min",
        "How long a task waits for records that were planned, before it fails.",
    ),
    ConfigOption(
        "fetchOffset.numRetries",
        _integer(0),
        "a whole number, 0 or more",
        "3",
        "How often an end that went backwards is looked at again before it counts as data loss.",
    ),
    ConfigOption("fetchOffset.retryIntervalMs", _duration_from(0), _MS, "1 s", "The pause between those looks."),
    # clients
    ConfigOption(
        "groupIdPrefix",
        _text,
        "text",
        "dynamic-kafka-source",
        "The group named to brokers if there is no `group.id`; it is neither joined nor committed to.",
    ),
    ConfigOption("client.id.prefix", _text, "text", "", "The `client.id` of all clients."),
    ConfigOption(
        "commit.offsets.on.checkpoint",
        _flag,
        _BOOL,
        "true if `properties.group.id` is set",
        "Whether the offsets of finished batches are committed to the group, for monitoring only.",
    ),
    ConfigOption(
        "register.consumer.metrics", _flag, _BOOL, "true", "Accepted for Flink's sake; there is no registry to choose."
    ),
    ConfigOption(
        "import-kafka-checkpoint",
        _flag,
        _BOOL,
        "false",
        "Whether to go on from a checkpoint of Spark's own Kafka source (one cluster, same topics).",
    ),
)

PREFIXES: Mapping[str, str] = {
    "properties.": "Any property of a Kafka client, in Java's or librdkafka's name.",
    "kafka.": "The same, as in Spark's own Kafka source.",
    "metadata-service.": "Options of the metadata service.",
}

_BY_NAME = {name.lower(): option for option in OPTIONS for name in (option.key, *option.aliases)}
# Spark's reader adds these by itself; they are no business of the source.
_IGNORED = frozenset({"path", "__datasource_name__"})


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


def parse_options(options: Mapping[str, str]) -> ParsedOptions:
    """Parse what the user gave.

    Raises:
        UnknownOptionError: For a name that is not in the table.
        ConflictingOptionsError: For two spellings of one option with different values.
        InvalidOptionError: For a value that does not parse.
    """
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    spelling: dict[str, str] = {}
    properties: dict[str, tuple[str, str]] = {}
    service_options: dict[str, str] = {}
    for name, text in options.items():
        lower = name.lower()
        option = _BY_NAME.get(lower)
        if option is None:
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
                raise UnknownOptionError(name, [n for o in OPTIONS for n in (o.key, *o.aliases)])
            continue
        shown = next(n for n in (option.key, *option.aliases) if n.lower() == lower)
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


def markdown_table(options: Iterable[ConfigOption] = OPTIONS) -> str:
    """The table for the README."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        names = "<br>".join(f"`{name}`" for name in (option.key, *option.aliases))
        lines.append(f"| {names} | {option.default} | {option.doc} |")
    lines += [f"| `{prefix}*` | | {doc} |" for prefix, doc in PREFIXES.items()]
    return "\n".join(lines)
