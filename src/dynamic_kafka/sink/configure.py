"""From options to `SinkSettings`: which options belong together and which exclude each other.

Options that are not one field of the settings are declared here, next to the functions that use them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError
from dynamic_kafka.kafka.config.properties import check_mechanism, to_librdkafka
from dynamic_kafka.metadata.factory import METADATA_SERVICE, document_rules, one_cluster, service_of
from dynamic_kafka.metadata.model import TOPIC_NAME
from dynamic_kafka.metadata.service import KafkaMetadataService
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
    options_of,
    parse_options,
    regex,
)
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.partitioners import KafkaPartitioner, create_partitioner
from dynamic_kafka.sink.settings import Guarantee, SinkSettings

__all__ = ["SINK_OPTIONS", "SinkObjects", "check_producer", "commit_log_topic", "configure_sink"]


@dataclass(frozen=True)
class SinkObjects:
    """The objects of a builder that do not fit into text options; all picklable."""

    metadata_service: KafkaMetadataService | None = None
    partitioner: KafkaPartitioner | None = None


_PARTITIONER = Option(
    "sink.partitioner",
    non_blank("default, fixed, round-robin, or package.module:Class"),
    "default",
    doc="The partitioner of rows without a column `partition`: `default` as in Java's client (by the murmur2 hash of the "
    "key, sticky without a key), `fixed` (one partition per task), `round-robin`, or a class of your own as "
    "`package.module:Class`.",
)
_PARALLELISM = Option(
    "sink.parallelism",
    integer(at_least=1),
    shown_default="as the DataFrame",
    doc="The number of tasks that write. Only the builder and SQL tables use it; elsewhere call `df.repartition(n)`.",
)


def configure_sink(options: Mapping[str, str], objects: SinkObjects | None = None) -> SinkSettings:
    """Check all options together, with the objects that a builder adds to them.

    Raises:
        ConfigurationError: With the option, its value and what to change.
    """
    objects = objects or SinkObjects()
    parsed = parse_options(options, SINK_OPTIONS)
    fields = parsed.fields_of(SinkSettings)
    guarantee: Guarantee = fields.get("guarantee", SinkSettings.guarantee)
    properties = dict(parsed.properties)
    check_producer(properties, guarantee, "Option 'properties.")
    topics: tuple[str, ...] = parsed[_TOPIC] or ()
    stream, service, own_properties = _stream(parsed, objects, properties, topics)
    partitioner = objects.partitioner
    if partitioner is None:
        partitioner = create_partitioner(parsed[_PARTITIONER])
    elif parsed.given(_PARTITIONER):
        raise ConflictingOptionsError([_PARTITIONER.key, "set_partitioner"], "both choose partitions; give one of them")
    exactly_once = guarantee == "exactly-once"
    prefix = _prefix(parsed) if exactly_once else ""
    settings = SinkSettings(
        service=service,
        stream=stream,
        properties=own_properties,
        document_rules=document_rules(parsed, objects.metadata_service),
        topic=topics[0] if len(topics) == 1 else None,
        topics=topics if len(topics) > 1 else (),
        pattern=parsed[_TOPIC_PATTERN],
        partitioner=partitioner,
        prefix=prefix,
        identity=_identity(parsed, exactly_once=exactly_once),
        name=parsed[_NAME] or "",
        metrics=metrics_settings(parsed, clients=parsed[_REGISTER_METRICS]),
        log_topic=(parsed[_LOG_TOPIC] or commit_log_topic(prefix)) if exactly_once else "",
        **fields,
    )
    if settings.dead_letter_topic is not None and settings.dead_letter_topic in topics:
        raise InvalidOptionError(
            "sink.dead-letter.topic", settings.dead_letter_topic, "another topic than those that rows are written to"
        )
    if settings.log_cluster not in (None, stream) and not parsed.given(_STREAM_ID):
        raise InvalidOptionError(
            "sink.commit-log.cluster",
            settings.log_cluster,
            f"{stream!r}: without a metadata service there is only this cluster",
        )
    return settings


# --- where to write -----------------------------------------------------------------------------------------------------

_topic_name = non_blank("a topic's name: at most 249 letters, digits, '.', '_' and '-'", TOPIC_NAME.fullmatch)
_names = name_list("topic names separated by ';'")


def _one_name(value: str) -> str:
    (name,) = _names(value)
    return name


_TOPIC = Option(
    "topic",
    Parser(lambda value: tuple(map(_topic_name, _names(value))), _names.expected),
    doc="The topic of all rows, whatever their column `topic` contains. If there are several, the column `topic` names one "
    "of them for each row. Without this option and without `stream-ids`, the column alone decides.",
)
_STREAM_ID = Option(
    "stream-ids",
    Parser(_one_name, "one stream id"),
    doc="The id of the stream to write to; its clusters and topics are looked up for each batch. If the stream is on "
    "several clusters, the column `cluster` names one for each row; if it has several topics there, the column `topic` "
    "does.",
)
_TOPIC_PATTERN = Option(
    "topic-pattern", regex, doc="A regular expression that the topics in the column `topic` must match as a whole."
)


def _stream(
    parsed: ParsedOptions, objects: SinkObjects, properties: Mapping[str, str], topics: tuple[str, ...]
) -> tuple[str, Callable[[], KafkaMetadataService], Mapping[str, str]]:
    """Return the stream, the function that makes its service, and the properties besides those of its clusters."""
    by_topic = parsed.given(_TOPIC, _TOPIC_PATTERN)
    if len(by_topic) > 1:
        raise ConflictingOptionsError(by_topic, "both name the topics to write to; give one of them")
    by_stream = parsed.given(_STREAM_ID, METADATA_SERVICE)
    if not by_stream and objects.metadata_service is None:
        name, service = one_cluster(parsed, properties, topics, by_topic)
        return name, service, {}
    if parsed.given(_TOPIC_PATTERN):
        raise ConflictingOptionsError([*by_topic, *by_stream], "the metadata service names the topics of a stream")
    service = service_of(parsed, properties, objects.metadata_service)
    stream = parsed[_STREAM_ID]
    if stream is None:
        raise ConfigurationError(
            f"Option '{_STREAM_ID.key}' is missing; name the stream of the metadata service to write to"
        )
    return stream, service, properties


# --- exactly once -------------------------------------------------------------------------------------------------------

# Kafka's protocol ends a string at 32,767 bytes (Flink's own limit, 64,000, is above it), and ids go on after the prefix.
_MAX_PREFIX_BYTES = 32_000

_PREFIX = Option(
    "sink.transactional-id-prefix",
    non_blank("text of less than 32,000 bytes", lambda prefix: len(prefix.encode()) < _MAX_PREFIX_BYTES),
    shown_default="from `checkpointLocation`",
    doc="The beginning of all transactional ids; needed for exactly-once. It identifies the query: keep it over restarts, "
    "and never give it to two queries at once.",
)
_CHECKPOINT = Option(
    "checkpointLocation",
    non_blank("a path"),
    doc="Spark's own option. With exactly-once and without a prefix, the prefix is made from it. So it has to be a whole "
    "path, which no other query has on any machine. A location in Spark's configuration is not visible to sinks.",
)
_NAMING = Option(
    "sink.transaction-naming-strategy",
    choice("incrementing", "pooling"),
    "pooling",
    doc="Accepted for compatibility with Flink, without effect: transactional ids always come from a pool.",
)
_APP = Option(
    "txnAppId",
    non_blank("text"),
    doc="With `txnVersion`, the identity of a batch write. If the last version is written again, its rows are counted and "
    "not published again. An older version is an error. `foreachBatch` needs neither, except on threads of your own and "
    "with Spark Connect. Exactly-once only.",
)
_VERSION = Option(
    "txnVersion", integer(at_least=0), doc="The number of the batch write, such as the batch id of `foreachBatch`."
)
_CONSECUTIVE = Option(
    "__txnConsecutive",
    boolean,
    "false",
    doc="For SQL tables only: the versions have no gaps, as the numbers of a streaming query's batches.",
)
_NAME = Option(
    "sink.name",
    non_blank("text without '/'", lambda name: "/" not in name),
    doc="A name for this write, if one batch of `foreachBatch`, or one `txnVersion`, is written in several writes.",
)
_LOG_TOPIC = Option(
    "sink.commit-log.topic",
    _topic_name,
    shown_default="`__dynamic-kafka-commits-` and the prefix",
    doc="The topic of the commit log, which records the batches that are published.",
)


_REGISTER_METRICS = Option(
    "register.producer.metrics",
    boolean,
    "true",
    doc="If true, and metrics are on, librdkafka's own numbers are among them.",
)

_ABSOLUTE = re.compile(r"([a-z][a-z0-9+.-]*:)?/", re.IGNORECASE)


def _prefix(parsed: ParsedOptions) -> str:
    prefix: str | None = parsed[_PREFIX]
    if prefix is not None:
        return prefix
    location: str | None = parsed[_CHECKPOINT]
    if location is None:
        raise ConfigurationError(
            f"Option '{_PREFIX.key}' is missing; exactly-once needs it, or '{_CHECKPOINT.key}' as an option to make it "
            "from (a location in Spark's configuration is not visible to sinks)"
        )
    prefix = f"dynamic-kafka-{hashlib.sha256(_one_spelling(location).encode()).hexdigest()[:16]}"
    if not _ABSOLUTE.match(location):
        raise ConfigurationError(
            f"Option '{_CHECKPOINT.key}' is the relative path {location!r}, which other queries may have too, so it "
            f"does not identify this one; give the whole path. A query that ran with this path before goes on with "
            f"{_PREFIX.key}={prefix}"
        )
    return prefix


def _one_spelling(location: str) -> str:
    # `/a/b`, `file:/a/b`, `file:///a/b/` and `/a//b` are one path, as for Hadoop's Path.
    path = re.sub(r"^file:/*", "/", location, flags=re.IGNORECASE)
    return re.sub(r"(?<![:/])/{2,}", "/", path).rstrip("/") or "/"


def _identity(parsed: ParsedOptions, *, exactly_once: bool) -> Identity | None:
    """Return the identity that the user gives a batch write; None without one."""
    given = parsed.given(_APP, _VERSION, _NAME)
    if given and not exactly_once:
        raise ConfigurationError(
            f"Option '{given[0]}' identifies a batch that is written exactly once; set 'sink.delivery-guarantee' to "
            "exactly-once, or leave it out"
        )
    if not parsed.given(_APP, _VERSION):
        return None
    for needed in (_APP, _VERSION):
        if not parsed.given(needed):
            raise ConfigurationError(
                f"Option '{needed.key}' is missing; '{given[0]}' is part of the identity txnAppId, txnVersion, sink.name"
            )
    app, name = parsed[_APP].replace("/", "//"), parsed[_NAME]  # "a/b" is not sink "b" of app "a"
    consecutive = parsed[_CONSECUTIVE]
    return Identity(app if name is None else f"{app}/{name}", parsed[_VERSION], consecutive, of_query=consecutive)


def commit_log_topic(prefix: str) -> str:
    """Return the default name of the commit log's topic.

    It contains the prefix as it is, if that may be part of a topic's name; otherwise the characters that may be, and a hash.
    Two prefixes never have the same name: after `commits` comes `-` in the first case and `.` in the second.
    """
    plain = f"__dynamic-kafka-commits-{prefix}"
    if TOPIC_NAME.fullmatch(plain):
        return plain
    left = re.sub(r"[^A-Za-z0-9._-]", "_", prefix)[:100]
    return f"__dynamic-kafka-commits.{left}-{hashlib.sha256(prefix.encode()).hexdigest()[:32]}"


# --- the producer -------------------------------------------------------------------------------------------------------


_SERIALIZERS = ("ByteArraySerializer", "StringSerializer")
# What transactions need of the producer's properties: the right values in words, and as a function.
_TRANSACTIONAL: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "enable.idempotence": ("true", lambda value: value.lower() == "true"),
    "acks": ("all", lambda value: value.lower() in ("all", "-1")),
    "retries": ("more than 0", lambda value: int(value) > 0),
    "max.in.flight.requests.per.connection": ("5 or less", lambda value: int(value) <= 5),
}


def check_producer(properties: Mapping[str, str], guarantee: Guarantee, where: str) -> None:
    """Refuse properties that belong to the sink, or break its guarantee. `where` stands before a property's name in errors.

    Raises:
        ConfigurationError: With the property and what to do.
    """
    if "transactional.id" in properties:
        raise ConfigurationError(
            f"{where}transactional.id' is not supported because the sink names its transactions itself; give "
            "'sink.transactional-id-prefix'"
        )
    for part in ("key", "value"):
        serializer = properties.get(f"{part}.serializer", _SERIALIZERS[0])
        if serializer.rpartition(".")[2] not in _SERIALIZERS:
            raise ConfigurationError(
                f"{where}{part}.serializer' is not supported because {part}s are written as the bytes or text of the column "
                f"'{part}'; use DataFrame operations to serialize the {part}s"
            )
    if properties.get("interceptor.classes", "").strip():
        raise ConfigurationError(
            f"{where}interceptor.classes' is not supported because interceptors are Java code; use DataFrame operations "
            "instead"
        )
    # An unknown or impossible property is an error here, not in a task.
    check_mechanism(properties)
    config = to_librdkafka(properties, role="producer")
    if guarantee == "exactly-once":
        for name, (expected, fits) in _TRANSACTIONAL.items():
            if name in config and not fits(config[name]):
                raise ConfigurationError(
                    f"{where}{name}' has the value {config[name]!r}, which rules out exactly-once; expected {expected}"
                )


_guarantee, *_of_commit_log = options_of(SinkSettings).values()
SINK_OPTIONS: tuple[Option[Any], ...] = (
    _TOPIC,
    _TOPIC_PATTERN,
    _STREAM_ID,
    METADATA_SERVICE,
    _guarantee,
    _PARTITIONER,
    _PARALLELISM,
    _PREFIX,
    _CHECKPOINT,
    _NAMING,
    _APP,
    _VERSION,
    _CONSECUTIVE,
    _NAME,
    _LOG_TOPIC,
    *_of_commit_log,
    _REGISTER_METRICS,
    *METRICS_OPTIONS,
)
"""The options of the sink."""
