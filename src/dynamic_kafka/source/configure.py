"""From options to `SourceSettings`: which options belong together and which exclude each other.

Options that are not one field of the settings are declared here, next to the functions that use them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError
from dynamic_kafka.history.settings import HISTORY_OPTIONS, history_settings
from dynamic_kafka.initializer import (
    MAX_LONG,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    PartitionTimestamps,
    initializer_from_json,
    non_negative,
    without_group,
)
from dynamic_kafka.kafka.config.properties import check_mechanism, reject_owned, to_librdkafka, whole_number
from dynamic_kafka.metadata.factory import METADATA_SERVICE, document_rules, one_cluster, service_of
from dynamic_kafka.metadata.model import TOPIC_NAME
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber, StreamPatternSubscriber, StreamSetSubscriber
from dynamic_kafka.observe.settings import METRICS_OPTIONS, metrics_settings
from dynamic_kafka.options import (
    Option,
    ParsedOptions,
    Parser,
    boolean,
    choice,
    integer,
    name_list,
    non_blank,
    option_names,
    options_of,
    parse_options,
    regex,
)
from dynamic_kafka.source.document.offsets import Packing
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["SOURCE_OPTIONS", "SUBSCRIPTIONS", "SourceObjects", "configure_source"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceObjects:
    """The objects of a builder that do not fit into text options; all picklable."""

    metadata_service: KafkaMetadataService | None = None
    subscriber: KafkaStreamSubscriber | None = None
    starting: KafkaOffsetsInitializer | None = None
    stopping: KafkaOffsetsInitializer | None = None


_COMMIT_OFFSETS = Option(
    "commit.offsets.on.checkpoint",
    boolean,
    shown_default="true with `properties.group.id`, false with `kafka.group.id`",
    doc="If true, the offsets of finished batches are committed to the group, for monitoring only: the query goes on from "
    "its checkpoint.",
)
_REGISTER_METRICS = Option(
    "register.consumer.metrics",
    boolean,
    "true",
    doc="If true, and metrics are on, librdkafka's own numbers are among them.",
)


def configure_source(options: Mapping[str, str], objects: SourceObjects | None = None) -> SourceSettings:
    """Check all options together.

    Args:
        options: As the user gave them.
        objects: The objects that a builder adds to them.

    Raises:
        ConfigurationError: With the option, its value and what to change.
    """
    objects = objects or SourceObjects()
    parsed = parse_options(options, SOURCE_OPTIONS)
    properties = dict(parsed.properties)
    reject_owned(properties)
    reset = properties.pop("auto.offset.reset", None)
    group_id = properties.pop("group.id", None)
    check_mechanism(properties)
    to_librdkafka(properties, role="consumer")  # an unknown or impossible property is an error here, not in a task
    named = parsed.given(*_STARTUP, *_STARTING)
    if objects.starting is not None:
        named.append("the builder's starting offsets")
        if len(named) > 1:
            raise ConflictingOptionsError([named[0], named[-1]], "both say where to start; give one of them")
    named_start = objects.starting or _starting(parsed, reset)
    starting = named_start or KafkaOffsetsInitializer.earliest()
    history = history_settings(parsed, named)
    begins_with_history = history is not None and history.switch != "starting-offsets"
    if history is not None and begins_with_history:  # what the history does not have is read from its start
        limit = history.limit
        starting = KafkaOffsetsInitializer.timestamp(limit.before_ms) if limit else KafkaOffsetsInitializer.earliest()
    if objects.stopping is not None and (ends := parsed.given(*_BOUNDED, *_ENDING)):
        raise ConflictingOptionsError(
            [ends[0], "the builder's stopping offsets"], "both say where to stop; give one of them"
        )
    stopping = objects.stopping or _stopping(parsed)
    if group_id is None:
        starting, stopping = without_group(starting), stopping and without_group(stopping)
    if group_id is None and (starting.needs_group or (stopping is not None and stopping.needs_group)):
        raise ConfigurationError(
            "Option 'properties.group.id' is missing. Committed offsets belong to a consumer group: name the group"
        )
    commit = parsed[_COMMIT_OFFSETS]
    if commit and group_id is None:
        raise ConfigurationError(f"Option 'properties.group.id' is missing; '{_COMMIT_OFFSETS.key}' needs it")
    if commit is None:
        # The group of a former format("kafka") query may belong to another application, whose offsets must stay.
        commit = any(name.lower() == "properties.group.id" for name in options)
    cluster_limits, default_limit = parsed[_MAX_PER_CLUSTER] or ({}, None)
    service, subscriber, pattern, partitions = _subscription(parsed, objects, properties)
    if pattern is not None and re.fullmatch(r"[\w-]+\*", pattern.pattern):  # as in a shell
        _log.warning(
            "The pattern '%s' is a regular expression: its * repeats the character before it. For all topics that begin so, "
            "write '%s.*'",
            pattern.pattern,
            pattern.pattern.removesuffix("*"),
        )
    direct = bool(parsed.given(_TOPIC, _TOPIC_PATTERN, _TOPIC_PARTITIONS))
    api_timeout_ms = whole_number(properties, "default.api.timeout.ms", SourceSettings.unavailable_after_ms)
    settings = SourceSettings(
        service=service,
        subscriber=subscriber,
        starting=starting,
        starts_by_default=named_start is None and not begins_with_history,
        stopping=stopping,
        topics=frozenset(parsed[_TOPIC] or ()) | {topic for topic, _ in partitions or ()},
        pattern=pattern,
        partitions=partitions,
        properties={} if direct else properties,  # a single cluster has them as its own
        document_rules=None if direct else document_rules(parsed, objects.metadata_service),
        cluster_limits=cluster_limits,
        max_offsets_per_cluster=default_limit,
        packing=_packing(parsed),
        group_id=group_id,
        commit_offsets=commit,
        unavailable_after_ms=api_timeout_ms,
        metrics=metrics_settings(parsed, clients=parsed[_REGISTER_METRICS]),
        history=history,
        call_timeout_ms=min(SourceSettings.call_timeout_ms, max(1, api_timeout_ms // 2)),
        **parsed.fields_of(SourceSettings),
    )
    least, most = settings.min_offsets_per_trigger, settings.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConflictingOptionsError(
            ["minOffsetsPerTrigger", "maxOffsetsPerTrigger"], f"the minimum, {least}, is more than the maximum, {most}"
        )
    _check_alignment(parsed)
    return settings


def _check_alignment(parsed: ParsedOptions) -> None:
    declared = options_of(SourceSettings)
    group, drift = declared["alignment_group"], declared["alignment_max_drift_ms"]
    given = parsed.given(group, drift, declared["alignment_update_interval_ms"])
    if given and len(parsed.given(group, drift)) < 2:
        missing = drift if parsed.given(group) else group
        raise ConfigurationError(
            f"Option '{missing.key}' is missing; '{given[0]}' needs it. Watermark alignment has a group and a drift"
        )


# --- what to read -------------------------------------------------------------------------------------------------------


def _by_partition(value: Any) -> dict[KafkaTopicPartition, Any]:
    """Return `{"topic": {"0": value}}` by partition; raise ValueError if it is something else."""
    try:
        return {
            KafkaTopicPartition(topic, int(partition)): found
            for topic, partitions in value.items()
            for partition, found in partitions.items()
        }
    except (TypeError, AttributeError) as error:
        raise ValueError from error


def _topic_partitions(value: str) -> frozenset[KafkaTopicPartition]:
    try:
        partitions = frozenset(
            KafkaTopicPartition(topic, non_negative(p, "a partition"))
            for topic, numbers in json.loads(value).items()
            for p in numbers
        )
    except (TypeError, AttributeError) as error:
        raise ValueError from error
    if not partitions:
        raise ValueError
    return partitions


_names = name_list("")


def _topics(value: str) -> tuple[str, ...]:
    names = _names(value)
    if not all(map(TOPIC_NAME.fullmatch, names)):
        raise ValueError
    return names


_TOPIC = Option(
    "topic",
    Parser(
        _topics, "topic names separated by ';' or ','; a regular expression is for topic-pattern (subscribePattern)"
    ),
    doc="The topics of one cluster, separated by `;` or `,`.",
    aliases=("subscribe",),
)
_TOPIC_PATTERN = Option(
    "topic-pattern",
    regex,
    doc="A regular expression. All topics of one cluster with a name that matches as a whole are read.",
    aliases=("subscribePattern",),
)
_TOPIC_PARTITIONS = Option(
    "topic-partitions",
    Parser(_topic_partitions, 'JSON such as {"topic": [0, 1]}'),
    doc='The partitions of one cluster to read, as JSON such as `{"topic": [0, 1]}`.',
    aliases=("assign",),
)
_STREAM_IDS = Option(
    "stream-ids",
    name_list("stream ids separated by ';'"),
    doc="The ids of the streams to read, separated by `;` or `,`. A metadata service describes them.",
)
_STREAM_PATTERN = Option(
    "stream-pattern",
    regex,
    doc="A regular expression. All streams with an id that contains a match are read (Flink's `find`).",
)
_SUBSCRIPTIONS = (_TOPIC, _TOPIC_PATTERN, _TOPIC_PARTITIONS, _STREAM_IDS, _STREAM_PATTERN)
SUBSCRIPTIONS = frozenset(name.lower() for name in option_names(_SUBSCRIPTIONS))
"""The names of options that say what to read, in lower case."""


def _subscription(
    parsed: ParsedOptions, objects: SourceObjects, properties: Mapping[str, str]
) -> tuple[
    Callable[[], KafkaMetadataService],
    KafkaStreamSubscriber,
    re.Pattern[str] | None,
    frozenset[KafkaTopicPartition] | None,
]:
    given = parsed.given(*_SUBSCRIPTIONS)
    if len(given) > 1:
        raise ConflictingOptionsError(given, "a source reads by one of them")
    if given and objects.subscriber is not None:
        raise ConflictingOptionsError([*given, "the builder's subscription"], "a source reads by one of them")
    if not given and objects.subscriber is None:
        raise ConfigurationError(
            "What to read is missing; give one of the options topic (or subscribe), topic-pattern (subscribePattern), "
            "topic-partitions (assign), stream-ids, stream-pattern"
        )
    ids, id_pattern = parsed[_STREAM_IDS], parsed[_STREAM_PATTERN]
    if objects.subscriber is not None or ids or id_pattern:
        subscriber = objects.subscriber or (StreamSetSubscriber(ids) if ids else StreamPatternSubscriber(id_pattern))
        return service_of(parsed, properties, objects.metadata_service), subscriber, None, None
    if parsed.given(METADATA_SERVICE) or objects.metadata_service is not None:
        raise ConflictingOptionsError(
            [*given, METADATA_SERVICE.key], "a metadata service describes streams: give stream-ids or stream-pattern"
        )
    pattern, partitions = parsed[_TOPIC_PATTERN], parsed[_TOPIC_PARTITIONS]
    topics = {topic for topic, _ in partitions} if partitions is not None else parsed[_TOPIC] or ()
    name, service = one_cluster(parsed, properties, topics, given)
    return service, StreamSetSubscriber([name]), pattern, partitions


# --- where to start and stop --------------------------------------------------------------------------------------------


def _specific_offsets(value: str) -> dict[int, int]:
    found = {}
    for part in value.strip().rstrip(";").split(";"):
        match = re.fullmatch(r"partition:(\d+),offset:(\d+)", part)
        if match is None:
            raise ValueError
        found[int(match[1])] = int(match[2])
    return found


_MILLISECONDS = integer(at_least=0, at_most=MAX_LONG, expected="milliseconds since 1970")
_OFFSETS = non_blank(
    'earliest, latest, committed, or JSON such as {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
)
_TIMES = non_blank('JSON such as {"topic": {"0": 1657256176000}}')
_SPECIFIC = Parser(_specific_offsets, "'partition:0,offset:42;partition:1,offset:300'")
_MODES = ("latest-offset", "group-offsets", "timestamp", "specific-offsets")

_STARTUP_MODE = Option(
    "scan.startup.mode", choice("earliest-offset", *_MODES), doc="Where reading starts, in the words of Flink SQL."
)
_STARTUP_TIMESTAMP = Option(
    "scan.startup.timestamp-millis",
    _MILLISECONDS,
    doc="The time, in milliseconds since 1970, of the first record to read; with mode `timestamp`. A partition that has no "
    "record at or after it starts at its end.",
)
_STARTUP_OFFSETS = Option(
    "scan.startup.specific-offsets",
    _SPECIFIC,
    doc="The offsets to start at in a single topic, such as `partition:0,offset:42;partition:1,offset:300`; with mode "
    "`specific-offsets`.",
)
_STARTING_OFFSETS = Option(
    "startingOffsets",
    _OFFSETS,
    shown_default="latest for streams, earliest for batch",
    doc="Where reading starts, in the words of Spark: `earliest`, `latest`, `committed`, or JSON with an offset for each "
    "partition. In the JSON, a word may stand for all partitions of a topic. In a stream, partitions that are not listed "
    "start at the earliest offset. A batch read needs all partitions, as in Spark.",
)
_STARTING_TIMESTAMP = Option(
    "startingTimestamp", _MILLISECONDS, doc="The start time for all partitions, in milliseconds since 1970 (Spark)."
)
_STARTING_TIMES = Option(
    "startingOffsetsByTimestamp", _TIMES, doc="The start time for each partition, as JSON (Spark)."
)
_STARTING_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    choice("error", "latest"),
    "error",
    doc="What to do if a partition has no record at or after the start time: `error` fails, `latest` starts at the end. "
    "Only for Spark's two options above.",
)
_BOUNDED_MODE = Option(
    "scan.bounded.mode",
    choice("unbounded", *_MODES),
    "unbounded",
    doc="Where reading stops, in the words of Flink SQL. A streaming query with an end stops by itself.",
)
_BOUNDED_TIMESTAMP = Option(
    "scan.bounded.timestamp-millis",
    _MILLISECONDS,
    doc="The time, in milliseconds since 1970, of the first record that is not read any more; with mode `timestamp`.",
)
_BOUNDED_OFFSETS = Option(
    "scan.bounded.specific-offsets",
    _SPECIFIC,
    doc="The offsets of the first records in a single topic that are not read any more; with mode `specific-offsets`.",
)
_ENDING_OFFSETS = Option(
    "endingOffsets",
    _OFFSETS,
    shown_default="latest for batch",
    doc="Where reading stops, in the words of Spark. JSON has to name every partition.",
)
_ENDING_TIMESTAMP = Option(
    "endingTimestamp", _MILLISECONDS, doc="The stop time for all partitions, in milliseconds since 1970 (Spark)."
)
_ENDING_TIMES = Option("endingOffsetsByTimestamp", _TIMES, doc="The stop time for each partition, as JSON (Spark).")

_STARTUP = (_STARTUP_MODE, _STARTUP_TIMESTAMP, _STARTUP_OFFSETS)
_STARTING = (_STARTING_TIMESTAMP, _STARTING_TIMES, _STARTING_OFFSETS)
_BOUNDED = (_BOUNDED_MODE, _BOUNDED_TIMESTAMP, _BOUNDED_OFFSETS)
_ENDING = (_ENDING_TIMESTAMP, _ENDING_TIMES, _ENDING_OFFSETS)


def _starting(parsed: ParsedOptions, reset: str | None) -> KafkaOffsetsInitializer | None:
    flink, spark = parsed.given(*_STARTUP), parsed.given(*_STARTING)
    if flink and spark:
        raise ConflictingOptionsError([flink[0], spark[0]], "both say where to start; give one of them")
    if reset is not None and parsed[_STARTUP_MODE] != "group-offsets":
        raise ConfigurationError(
            f"Option 'properties.auto.offset.reset' cannot be set here. Use '{_STARTING_OFFSETS.key}' or "
            f"'{_STARTUP_MODE.key}' to set where reading starts; the property is only the reset of the mode 'group-offsets'"
        )
    if flink:
        return _by_mode(parsed, _STARTUP, reset)
    return _by_spark(parsed, _STARTING, strict=parsed[_STARTING_STRATEGY] == "error")


def _stopping(parsed: ParsedOptions) -> KafkaOffsetsInitializer | None:
    flink, spark = parsed.given(*_BOUNDED), parsed.given(*_ENDING)
    if flink and spark:
        raise ConflictingOptionsError([flink[0], spark[0]], "both say where to stop; give one of them")
    return _by_mode(parsed, _BOUNDED, None) if flink else _by_spark(parsed, _ENDING, strict=False)


def _by_spark(
    parsed: ParsedOptions, options: tuple[Option[int], Option[str], Option[str]], *, strict: bool
) -> KafkaOffsetsInitializer | None:
    """Return the initializer of Spark's options by their precedence: one time, then times, then offsets."""
    of_time, of_times, of_offsets = options
    if (timestamp_ms := parsed[of_time]) is not None:
        return PartitionTimestamps({}, timestamp_ms, strict)
    if (text := parsed[of_times]) is not None:
        try:
            times = {partition: non_negative(ms, "a time") for partition, ms in _by_partition(json.loads(text)).items()}
        except ValueError:
            raise InvalidOptionError(of_times.key, text, of_times.expected) from None
        return PartitionTimestamps(times, strict=strict)
    if (text := parsed[of_offsets]) is None:
        return None
    try:
        return initializer_from_json(json.loads(text) if text.startswith("{") else text.lower(), option=of_offsets.key)
    except ValueError as error:
        raise InvalidOptionError(of_offsets.key, text, f"{of_offsets.expected} ({error})") from None


def _by_mode(
    parsed: ParsedOptions, options: tuple[Option[str], Option[int], Option[dict[int, int]]], reset: str | None
) -> KafkaOffsetsInitializer | None:
    """Return the initializer of Flink SQL's modes with their companions."""
    of_mode, of_time, of_offsets = options
    mode = parsed[of_mode]
    for wanted, companion in (("timestamp", of_time), ("specific-offsets", of_offsets)):
        if mode == wanted and not parsed.given(companion):
            raise ConfigurationError(f"Option '{companion.key}' is missing; '{of_mode.key}' = '{mode}' needs it")
        if mode != wanted and parsed.given(companion):
            raise ConflictingOptionsError([companion.key, of_mode.key], f"it belongs to the mode '{wanted}'")
    match mode:
        case "earliest-offset":
            return KafkaOffsetsInitializer.earliest()
        case "latest-offset":
            return KafkaOffsetsInitializer.latest()
        case "group-offsets":
            try:
                strategy = KafkaOffsetResetStrategy(reset or "none")
            except ValueError:
                raise InvalidOptionError("properties.auto.offset.reset", reset, "earliest, latest or none") from None
            return KafkaOffsetsInitializer.committed_offsets(strategy)
        case "timestamp":
            return KafkaOffsetsInitializer.timestamp(parsed[of_time])
        case "specific-offsets":
            topics: tuple[str, ...] = parsed[_TOPIC] or ()
            if len(topics) != 1:
                raise ConfigurationError(
                    f"Option '{of_offsets.key}' names partitions without a topic, so it needs exactly one 'topic'. For more "
                    "topics use startingOffsets or endingOffsets with JSON"
                )
            return KafkaOffsetsInitializer.offsets(
                {KafkaTopicPartition(topics[0], partition): offset for partition, offset in parsed[of_offsets].items()}
            )
        case _:
            return None


# --- limits and tasks ---------------------------------------------------------------------------------------------------


def _cluster_limits(value: str) -> tuple[dict[str, int], int | None]:
    """Return the limits by cluster, and the limit of all other clusters."""
    found = json.loads(value)
    limits = found if isinstance(found, dict) else {"": found}
    if not all(type(limit) is int and limit > 0 for limit in limits.values()):
        raise ValueError
    return {cluster: limit for cluster, limit in limits.items() if cluster}, limits.get("")


_MAX_PER_CLUSTER = Option(
    "maxOffsetsPerTriggerPerCluster",
    Parser(_cluster_limits, 'a whole number above 0, or JSON such as {"cluster": 1000}'),
    shown_default="none",
    doc='The maximum number of offsets of each cluster in a micro-batch: one number, or JSON such as `{"cluster": 1000}`.',
)
_PARALLELISM = Option(
    "scan.parallelism",
    integer(at_least=1),
    shown_default="by the work",
    doc="The maximum number of tasks per micro-batch. It is reached once each task has at least 1,000 records.",
)
_MIN_PARTITIONS = Option(
    "minPartitions",
    integer(at_least=1),
    str(Packing().min_tasks),
    doc="The minimum number of tasks of a micro-batch with records. Partitions are split to reach it.",
)
_MAX_RECORDS = Option(
    "maxRecordsPerPartition",
    integer(at_least=1),
    str(Packing().records_per_task),
    doc="The approximate number of records per task, up to which small ranges are packed. If you set it, larger partitions "
    "are split, too, and the order of their records across tasks is lost.",
)
# With scan.parallelism a task is worth starting for fewer records than by default: the user asked for the spread.
_RECORDS_PER_PARALLEL_TASK = 1_000


def _packing(parsed: ParsedOptions) -> Packing:
    most, least = parsed[_PARALLELISM] or Packing().max_tasks, parsed[_MIN_PARTITIONS]
    if most and least > most:
        raise ConflictingOptionsError([_MIN_PARTITIONS.key, _PARALLELISM.key], f"{least} tasks are more than {most}")
    per_task = parsed[_MAX_RECORDS]
    if most and not parsed.given(_MAX_RECORDS):
        per_task = _RECORDS_PER_PARALLEL_TASK
    return Packing(per_task, least, most, cuts=bool(parsed.given(_MAX_RECORDS, _MIN_PARTITIONS)))


SOURCE_OPTIONS: tuple[Option[Any], ...] = (
    *_SUBSCRIPTIONS,
    METADATA_SERVICE,
    *_STARTUP,
    _STARTING_OFFSETS,
    _STARTING_TIMESTAMP,
    _STARTING_TIMES,
    _STARTING_STRATEGY,
    *_BOUNDED,
    _ENDING_OFFSETS,
    _ENDING_TIMESTAMP,
    _ENDING_TIMES,
    *options_of(SourceSettings).values(),
    _MAX_PER_CLUSTER,
    _PARALLELISM,
    _MIN_PARTITIONS,
    _MAX_RECORDS,
    _COMMIT_OFFSETS,
    _REGISTER_METRICS,
    *HISTORY_OPTIONS,
    *METRICS_OPTIONS,
)
"""The options of the source."""
