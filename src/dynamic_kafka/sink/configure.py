"""From parsed options to `SinkSettings`, and from a stream's description to the destinations of a batch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError, MetadataServiceError
from dynamic_kafka.kafka.config.properties import to_librdkafka
from dynamic_kafka.metadata.configure import one_cluster, service_of
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.snapshot import make_snapshot
from dynamic_kafka.options import SINK_OPTIONS, ParsedOptions, parse_options
from dynamic_kafka.sink.partitioners import KafkaPartitioner, create_partitioner
from dynamic_kafka.sink.settings import Destination, Guarantee, SinkSettings

__all__ = ["SinkObjects", "commit_log_topic", "configure_sink", "destinations"]

_MAX_TOPIC_LENGTH = 249
_SERIALIZERS = ("ByteArraySerializer", "StringSerializer")
# What transactions need of the producer's properties: what fits, in words, and whether a value does.
_TRANSACTIONAL: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "enable.idempotence": ("true", lambda value: value.lower() == "true"),
    "acks": ("all", lambda value: value.lower() in ("all", "-1")),
    "retries": ("more than 0", lambda value: int(value) > 0),
    "max.in.flight.requests.per.connection": ("5 or less", lambda value: int(value) <= 5),
}


@dataclass(frozen=True)
class SinkObjects:
    """What a builder holds that does not fit into text options; all picklable."""

    metadata_service: KafkaMetadataService | None = None
    partitioner: KafkaPartitioner | None = None


def configure_sink(options: Mapping[str, str], objects: SinkObjects | None = None) -> SinkSettings:
    """Check all options together.

    Args:
        options: As the user gave them.
        objects: What a builder adds to them.

    Raises:
        ConfigurationError: Naming the option, the value and what would be right.
    """
    objects = objects or SinkObjects()
    parsed = parse_options(options, SINK_OPTIONS)
    guarantee: Guarantee = parsed.get("sink.delivery-guarantee", SinkSettings.guarantee)
    properties = dict(parsed.properties)
    _check_producer(properties, guarantee, "Option 'properties.")
    topics: tuple[str, ...] = parsed.get("topic", ())
    stream, service, own_properties = _stream(parsed, objects, properties, topics)
    partitioner = objects.partitioner
    if partitioner is None:
        partitioner = create_partitioner(parsed.get("sink.partitioner", "default"))
    elif "sink.partitioner" in parsed.values:
        raise ConflictingOptionsError(
            ["sink.partitioner", "set_partitioner"], "both choose partitions; give one of them"
        )
    exactly_once = guarantee == "exactly-once"
    prefix = _prefix(parsed) if exactly_once else ""
    return SinkSettings(
        service=service,
        stream=stream,
        properties=own_properties,
        topic=topics[0] if len(topics) == 1 else None,
        topics=topics if len(topics) > 1 else (),
        pattern=parsed.get("topic-pattern"),
        partitioner=partitioner,
        guarantee=guarantee,
        prefix=prefix,
        app=_identity(parsed, exactly_once=exactly_once),
        log_topic=parsed.get("sink.commit-log.topic", commit_log_topic(prefix)) if exactly_once else "",
        log_cluster=_log_cluster(parsed, stream),
        log_replication=parsed.get("sink.commit-log.replication-factor"),
        lost_transactions=parsed.get("sink.lost-transactions", SinkSettings.lost_transactions),
        accept_gaps=parsed.get("sink.accept-gaps", SinkSettings.accept_gaps),
    )


def destinations(
    settings: SinkSettings, streams: Mapping[str, KafkaStream], inactive: Collection[str] = ()
) -> dict[str, Destination]:
    """Where the rows of a batch may go.

    Args:
        settings: The user's wishes.
        streams: What the metadata service says of `settings.stream`.
        inactive: The clusters that it calls inactive.

    Returns:
        The stream's active clusters by name, sorted; only those with `settings.topic`, if that is given. The stream's only
        topic on a cluster is where rows go that name none.

    Raises:
        MetadataServiceError: If the stream is gone, or described wrongly, or has no such cluster.
        ConfigurationError: If a cluster's own properties do not suit a producer, or the guarantee.
    """
    if settings.stream not in streams:
        raise MetadataServiceError(
            f"The metadata service does not know the stream '{settings.stream}', so there is nowhere to write to; check the "
            "option 'stream-ids'"
        )
    found: dict[str, Destination] = {}
    for cluster_id, cluster in make_snapshot([streams[settings.stream]]).clusters.items():
        topics = cluster.topics
        if cluster_id in inactive or (settings.topic is not None and settings.topic not in topics):
            continue
        properties = {**settings.properties, **cluster.properties}
        _check_producer(properties, settings.guarantee, f"Cluster '{cluster_id}': property '")
        found[cluster_id] = Destination(
            properties, settings.topic or (next(iter(topics)) if len(topics) == 1 else None), topics
        )
    if not found:
        having = f" with the topic '{settings.topic}'" if settings.topic is not None else ""
        raise MetadataServiceError(
            f"The stream '{settings.stream}' has no active cluster{having}, so there is nowhere to write to"
        )
    return found


def commit_log_topic(prefix: str) -> str:
    """The name of the commit log of a transactional id prefix, if the user gives none.

    The prefix itself where it may be part of a topic's name; else what is left of it, and a hash. No two prefixes have one
    name: after `commits` comes `-` in the former and `.` in the latter.
    """
    plain = f"__dynamic-kafka-commits-{prefix}"
    if len(plain) <= _MAX_TOPIC_LENGTH and re.fullmatch(r"[A-Za-z0-9._-]+", prefix):
        return plain
    left = re.sub(r"[^A-Za-z0-9._-]", "_", prefix)[:100]
    return f"__dynamic-kafka-commits.{left}-{hashlib.sha256(prefix.encode()).hexdigest()[:32]}"


# --- where to write -----------------------------------------------------------------------------------------------------


def _stream(
    parsed: ParsedOptions, objects: SinkObjects, properties: Mapping[str, str], topics: Collection[str]
) -> tuple[str, Callable[[], KafkaMetadataService], Mapping[str, str]]:
    """The stream, who describes it, and the properties that its clusters do not have by themselves."""
    by_topic = parsed.given("topic", "topic-pattern")
    if len(by_topic) > 1:
        raise ConflictingOptionsError(by_topic, "both say which topics are written to; give one of them")
    if not parsed.given("stream-ids", "metadata-service") and objects.metadata_service is None:
        name, service = one_cluster(parsed, properties, topics)
        return name, service, {}
    if "topic-pattern" in parsed.values:
        raise ConflictingOptionsError(
            ["topic-pattern", *parsed.given("stream-ids", "metadata-service")],
            "a stream says itself which topics it has",
        )
    service = service_of(parsed, properties, objects.metadata_service)
    stream = parsed.get("stream-ids")
    if stream is None:
        raise ConfigurationError("Option 'stream-ids' is missing; name the stream of the metadata service to write to")
    return stream, service, properties


def _log_cluster(parsed: ParsedOptions, stream: str) -> str | None:
    cluster: str | None = parsed.get("sink.commit-log.cluster")
    direct = "stream-ids" not in parsed.values
    if direct and cluster is not None and cluster != stream:
        raise InvalidOptionError(
            "sink.commit-log.cluster", cluster, f"{stream!r}: without a metadata service there is only this cluster"
        )
    return cluster


# --- exactly once -------------------------------------------------------------------------------------------------------


def _prefix(parsed: ParsedOptions) -> str:
    prefix: str | None = parsed.get("sink.transactional-id-prefix")
    if prefix is not None:
        return prefix
    location: str | None = parsed.get("checkpointLocation")
    if location is None:
        raise ConfigurationError(
            "Option 'sink.transactional-id-prefix' is missing; exactly-once needs it, or 'checkpointLocation' as an "
            "option to make it from (one that is set in Spark's configuration is not visible to sinks)"
        )
    return f"dynamic-kafka-{hashlib.sha256(_one_spelling(location).encode()).hexdigest()[:16]}"


def _one_spelling(location: str) -> str:
    """`/a/b`, `file:/a/b`, `file:///a/b/` and `/a//b` are one path, as for Hadoop's Path."""
    path = re.sub(r"^file:/*", "/", location, flags=re.IGNORECASE)
    return re.sub(r"(?<![:/])/{2,}", "/", path).rstrip("/") or "/"


def _identity(parsed: ParsedOptions, *, exactly_once: bool) -> tuple[str, int] | None:
    """The identity of a batch write."""
    given = parsed.given("txnAppId", "txnVersion", "sink.name")
    if not given:
        return None
    if not exactly_once:
        raise ConfigurationError(
            f"Option '{given[0]}' identifies a batch that is written exactly once; set 'sink.delivery-guarantee' to "
            "exactly-once, or leave it out"
        )
    missing = {"txnAppId", "txnVersion"} - parsed.values.keys()
    if missing:
        raise ConfigurationError(
            f"Option '{min(missing)}' is missing; '{given[0]}' is part of the identity txnAppId, txnVersion, sink.name"
        )
    app, name = parsed.get("txnAppId").replace("/", "//"), parsed.get("sink.name")  # "a/b" is not sink "b" of app "a"
    return (app if name is None else f"{app}/{name}"), parsed.get("txnVersion")


# --- the producer -------------------------------------------------------------------------------------------------------


def _check_producer(properties: Mapping[str, str], guarantee: Guarantee, where: str) -> None:
    """Refuse properties that belong to the sink, or break its guarantee; `where` is what stands before a property's name."""
    if "transactional.id" in properties:
        raise ConfigurationError(
            f"{where}transactional.id' is not supported as the sink names its transactions itself; give "
            "'sink.transactional-id-prefix'"
        )
    for part in ("key", "value"):
        serializer = properties.get(f"{part}.serializer", _SERIALIZERS[0])
        if serializer.rpartition(".")[2] not in _SERIALIZERS:
            raise ConfigurationError(
                f"{where}{part}.serializer' is not supported as {part}s are written as the bytes or text of the column "
                f"'{part}'; use DataFrame operations to serialize the {part}s"
            )
    if properties.get("interceptor.classes", "").strip():
        raise ConfigurationError(
            f"{where}interceptor.classes' is not supported as interceptors are Java code; use DataFrame operations instead"
        )
    config = to_librdkafka(
        properties, role="producer"
    )  # an unknown or impossible property is an error here, not in a task
    if guarantee == "exactly-once":
        for name, (expected, fits) in _TRANSACTIONAL.items():
            if name in config and not fits(config[name]):
                raise ConfigurationError(
                    f"{where}{name}' has the value {config[name]!r}, which rules out exactly-once; expected {expected}"
                )
