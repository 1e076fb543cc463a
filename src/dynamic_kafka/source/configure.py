"""From parsed options to `SourceSettings`: what belongs together, what excludes each other, and the defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError
from dynamic_kafka.initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    PartitionTimestamps,
    initializer_from_json,
)
from dynamic_kafka.kafka.config.properties import reject_owned, to_librdkafka
from dynamic_kafka.metadata.configure import one_cluster, service_of
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber, StreamPatternSubscriber, StreamSetSubscriber
from dynamic_kafka.options import OPTIONS, ParsedOptions, parse_options
from dynamic_kafka.source.offsets import Packing
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["BuilderObjects", "configure"]

_SUBSCRIPTIONS = ("topic", "topic-pattern", "topic-partitions", "stream-ids", "stream-pattern")
_EXPECTED = {option.key: option.expected for option in OPTIONS}
# With scan.parallelism a task is worth starting for fewer records than by default: the user asked for the spread.
_RECORDS_PER_PARALLEL_TASK = 1_000


@dataclass(frozen=True)
class BuilderObjects:
    """What a builder holds that does not fit into text options; all picklable."""

    metadata_service: KafkaMetadataService | None = None
    subscriber: KafkaStreamSubscriber | None = None
    starting: KafkaOffsetsInitializer | None = None
    stopping: KafkaOffsetsInitializer | None = None


def configure(
    options: Mapping[str, str], objects: BuilderObjects | None = None, *, default_starting: KafkaOffsetsInitializer
) -> SourceSettings:
    """Check all options together.

    Args:
        options: As the user gave them.
        objects: What a builder adds to them.
        default_starting: Where reading starts if nothing says so; each front has its own.

    Raises:
        ConfigurationError: Naming the option, the value and what would be right.
    """
    objects = objects or BuilderObjects()
    parsed = parse_options(options)
    properties = dict(parsed.properties)
    reject_owned(properties, "properties.")
    reset = properties.pop("auto.offset.reset", None)
    group_id = properties.pop("group.id", None)
    to_librdkafka(properties, role="consumer")  # an unknown or impossible property is an error here, not in a task
    starting = objects.starting or _starting(parsed, reset) or default_starting
    stopping = objects.stopping or _stopping(parsed)
    if group_id is None and (starting.needs_group or (stopping is not None and stopping.needs_group)):
        raise ConfigurationError(
            "Option 'properties.group.id' is missing; committed offsets are those of a consumer group, so name it"
        )
    commit = parsed.get("commit.offsets.on.checkpoint")
    if commit and group_id is None:
        raise ConfigurationError("Option 'properties.group.id' is missing; 'commit.offsets.on.checkpoint' needs it")
    cluster_limits, default_limit = _cluster_limits(parsed)
    least, most = parsed.get("minOffsetsPerTrigger"), parsed.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConflictingOptionsError(
            ["minOffsetsPerTrigger", "maxOffsetsPerTrigger"], f"the least, {least}, is more than the most, {most}"
        )
    retention_ms = parsed.get("stream-metadata-removed-cluster-retention-ms", SourceSettings.retention_ms)
    if retention_ms < 0:
        key = "stream-metadata-removed-cluster-retention-ms"
        raise InvalidOptionError(key, retention_ms, "0 or more (0 keeps no position)")
    service, subscriber, pattern, partitions = _subscription(parsed, objects, properties)
    direct = "topic" in parsed.values or pattern is not None or partitions is not None
    api_timeout_ms = int(properties.get("default.api.timeout.ms", SourceSettings.unavailable_after_ms))
    optional = {
        "metadata_interval_ms": parsed.get("stream-metadata-discovery-interval-ms"),
        "metadata_failure_threshold": parsed.get("stream-metadata-discovery-failure-threshold"),
        "discovery_interval_ms": parsed.get("partition.discovery.interval.ms"),
        "cluster_failure_mode": parsed.get("cluster-failure-mode"),
        "drain": parsed.get("drain-on-removal"),
        "drain_quiet_ms": parsed.get("drain-quiet-ms"),
        "fail_on_data_loss": parsed.get("failOnDataLoss"),
        "max_trigger_delay_ms": parsed.get("maxTriggerDelay"),
        "include_headers": parsed.get("includeHeaders"),
        "include_leader_epoch": parsed.get("includeLeaderEpoch"),
        "poll_timeout_ms": parsed.get("kafkaConsumer.pollTimeoutMs"),
        "group_id_prefix": parsed.get("groupIdPrefix"),
        "client_id_prefix": parsed.get("client.id.prefix"),
        "commit_offsets": commit,
        "call_retries": parsed.get("fetchOffset.numRetries"),
        "call_retry_interval_ms": parsed.get("fetchOffset.retryIntervalMs"),
        "import_spark_checkpoint": parsed.get("import-kafka-checkpoint"),
    }
    return SourceSettings(
        service=service,
        subscriber=subscriber,
        starting=starting,
        stopping=stopping,
        topics=frozenset(parsed.get("topic", ())) | {topic for topic, _ in partitions or ()},
        pattern=pattern,
        partitions=partitions,
        properties={} if direct else properties,  # a single cluster has them as its own
        retention_ms=retention_ms,
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        cluster_limits=cluster_limits,
        max_offsets_per_cluster=default_limit,
        packing=_packing(parsed),
        group_id=group_id,
        unavailable_after_ms=api_timeout_ms,
        call_timeout_ms=min(SourceSettings.call_timeout_ms, max(1, api_timeout_ms // 2)),
        **{name: value for name, value in optional.items() if value is not None},
    )


# --- what to read -----------------------------------------------------------------------------------------------


def _subscription(
    parsed: ParsedOptions, objects: BuilderObjects, properties: Mapping[str, str]
) -> tuple[
    Callable[[], KafkaMetadataService],
    KafkaStreamSubscriber,
    re.Pattern[str] | None,
    frozenset[KafkaTopicPartition] | None,
]:
    given = parsed.given(*_SUBSCRIPTIONS)
    if len(given) > 1:
        raise ConflictingOptionsError(given, "a source reads by one of them")
    if not given and objects.subscriber is None:
        raise ConfigurationError(
            "What to read is missing; give one of the options topic (or subscribe), topic-pattern (subscribePattern), "
            "topic-partitions (assign), stream-ids, stream-pattern"
        )
    streams = parsed.get("stream-ids"), parsed.get("stream-pattern")
    if objects.subscriber is not None or any(streams):
        subscriber = objects.subscriber or (
            StreamSetSubscriber(streams[0]) if streams[0] else StreamPatternSubscriber(streams[1])
        )
        return service_of(parsed, properties, objects.metadata_service), subscriber, None, None
    if "metadata-service" in parsed.values or objects.metadata_service is not None:
        raise ConflictingOptionsError(
            [*given, "metadata-service"], "a metadata service is asked for streams: give stream-ids or stream-pattern"
        )
    pattern: re.Pattern[str] | None = parsed.get("topic-pattern")
    partitions = _partitions(parsed) if "topic-partitions" in parsed.values else None
    topics = {topic for topic, _ in partitions} if partitions is not None else parsed.get("topic", ())
    name, service = one_cluster(parsed, properties, topics)
    return service, StreamSetSubscriber([name]), pattern, partitions


def _partitions(parsed: ParsedOptions) -> frozenset[KafkaTopicPartition]:
    text = parsed.get("topic-partitions")
    try:
        partitions = frozenset(
            KafkaTopicPartition(topic, _partition_number(p))
            for topic, numbers in json.loads(text).items()
            for p in numbers
        )
        if not partitions:
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise _invalid(parsed, "topic-partitions") from None
    return partitions


def _partition_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


# --- where to start and stop ------------------------------------------------------------------------------------


def _starting(parsed: ParsedOptions, reset: str | None) -> KafkaOffsetsInitializer | None:
    flink = parsed.given("scan.startup.mode", "scan.startup.timestamp-millis", "scan.startup.specific-offsets")
    spark = parsed.given("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    if flink and spark:
        raise ConflictingOptionsError([flink[0], spark[0]], "both say where to start; give one of them")
    if reset is not None and parsed.get("scan.startup.mode") != "group-offsets":
        raise ConfigurationError(
            "Option 'properties.auto.offset.reset' cannot be set here; where reading starts is said by 'startingOffsets' or "
            "'scan.startup.mode' (it is the reset of the mode 'group-offsets' only)"
        )
    if flink:
        return _by_mode(parsed, "scan.startup", reset)
    strict = parsed.get("startingOffsetsByTimestampStrategy", "error") == "error"
    return _by_spark(parsed, "starting", strict=strict)


def _stopping(parsed: ParsedOptions) -> KafkaOffsetsInitializer | None:
    flink = parsed.given("scan.bounded.mode", "scan.bounded.timestamp-millis", "scan.bounded.specific-offsets")
    spark = parsed.given("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if flink and spark:
        raise ConflictingOptionsError([flink[0], spark[0]], "both say where to stop; give one of them")
    return _by_mode(parsed, "scan.bounded", None) if flink else _by_spark(parsed, "ending", strict=False)


def _by_spark(parsed: ParsedOptions, which: str, *, strict: bool) -> KafkaOffsetsInitializer | None:
    """Spark's precedence: one time, then times, then offsets."""
    if (timestamp_ms := parsed.get(f"{which}Timestamp")) is not None:
        initializer = KafkaOffsetsInitializer.timestamp(timestamp_ms)
        return PartitionTimestamps({}, default_ms=timestamp_ms, strict=True) if strict else initializer
    key = f"{which}OffsetsByTimestamp"
    if key in parsed.values:
        try:
            times = {
                KafkaTopicPartition(topic, int(p)): _partition_number(ms)
                for topic, partitions in json.loads(parsed.get(key)).items()
                for p, ms in partitions.items()
            }
        except (ValueError, TypeError, AttributeError):
            raise _invalid(parsed, key) from None
        return PartitionTimestamps(times, strict=strict)
    key = f"{which}Offsets"
    if key not in parsed.values:
        return None
    text = parsed.get(key)
    try:
        return initializer_from_json(json.loads(text) if text.startswith("{") else text.lower())
    except ValueError as error:
        raise InvalidOptionError(parsed.spelling[key], text, f"{_EXPECTED[key]} ({error})") from None


def _by_mode(parsed: ParsedOptions, prefix: str, reset: str | None) -> KafkaOffsetsInitializer | None:
    """Flink SQL's modes with their companions."""
    mode = parsed.get(f"{prefix}.mode")
    companions = {
        "timestamp": f"{prefix}.timestamp-millis",
        "specific-offsets": f"{prefix}.specific-offsets",
    }
    for of_mode, key in companions.items():
        if mode == of_mode and key not in parsed.values:
            raise ConfigurationError(f"Option '{key}' is missing; '{prefix}.mode' = '{mode}' needs it")
        if mode != of_mode and key in parsed.values:
            raise ConflictingOptionsError([key, f"{prefix}.mode"], f"it belongs to the mode '{of_mode}'")
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
            return KafkaOffsetsInitializer.timestamp(parsed.get(companions["timestamp"]))
        case "specific-offsets":
            return _specific(parsed, companions["specific-offsets"])
        case _:
            return None


def _specific(parsed: ParsedOptions, key: str) -> KafkaOffsetsInitializer:
    topics = parsed.get("topic", ())
    if len(topics) != 1:
        raise ConfigurationError(
            f"Option '{key}' names partitions without a topic, so it needs exactly one 'topic'; use startingOffsets or "
            "endingOffsets with JSON for more"
        )
    offsets: dict[KafkaTopicPartition | tuple[str, int], int] = {}
    for part in parsed.get(key).rstrip(";").split(";"):
        match = re.fullmatch(r"partition:(\d+),offset:(\d+)", part)
        if match is None:
            raise _invalid(parsed, key)
        offsets[KafkaTopicPartition(topics[0], int(match[1]))] = int(match[2])
    return KafkaOffsetsInitializer.offsets(offsets)


# --- the rest ---------------------------------------------------------------------------------------------------


def _cluster_limits(parsed: ParsedOptions) -> tuple[dict[str, int], int | None]:
    key = "maxOffsetsPerTriggerPerCluster"
    text = parsed.get(key)
    if text is None:
        return {}, None
    try:
        value = json.loads(text)
        limits = value if isinstance(value, dict) else {"": value}
        if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in limits.values()):
            raise ValueError
    except ValueError:
        raise _invalid(parsed, key) from None
    return {c: n for c, n in limits.items() if c}, limits.get("")


def _packing(parsed: ParsedOptions) -> Packing:
    most = parsed.get("scan.parallelism", 0)
    per_task = _RECORDS_PER_PARALLEL_TASK if most else Packing().records_per_task
    least = parsed.get("minPartitions", 1)
    if most and least > most:
        raise ConflictingOptionsError(["minPartitions", "scan.parallelism"], f"{least} tasks are more than {most}")
    cuts = bool(parsed.given("maxRecordsPerPartition", "minPartitions"))
    return Packing(parsed.get("maxRecordsPerPartition", per_task), least, most, cuts)


def _invalid(parsed: ParsedOptions, key: str) -> InvalidOptionError:
    return InvalidOptionError(parsed.spelling[key], parsed.get(key), _EXPECTED[key])
