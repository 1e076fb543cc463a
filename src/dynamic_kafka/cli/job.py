"""The clusters of a query: from its options, or from the address of one cluster, to what is read and written where."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal

from dynamic_kafka.errors import ConfigurationError, MetadataServiceError, listed
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.snapshot import Snapshot, make_snapshot
from dynamic_kafka.metadata.subscriber import StreamSetSubscriber
from dynamic_kafka.options import Option, option_names
from dynamic_kafka.sink.configure import SINK_OPTIONS, configure_sink
from dynamic_kafka.sink.destinations import current_clusters
from dynamic_kafka.sink.settings import SinkSettings
from dynamic_kafka.source.configure import SOURCE_OPTIONS, configure_source
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["Job", "Purpose", "Target", "for_one_look", "job_of", "snapshot_of", "streams_of"]

Purpose = Literal["reading", "writing", "exactly-once"]
"""What a query does on a cluster. Writing is that with the guarantees `none` and `at-least-once`."""


@dataclass(frozen=True)
class Target:
    """A cluster of a query. It reads `topics`, and besides all that match `pattern`; `partitions` are None for all."""

    cluster: str
    properties: Mapping[str, str] = field(repr=False)
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[KafkaTopicPartition] | None = None


@dataclass(frozen=True)
class Job:
    """What a query needs of its clusters.

    It asks for a purpose if that is True, and otherwise the purpose is only of interest. `group` is None if no offsets are
    committed. The prefix of transactional ids and the commit log's topic are "" if they are not known. `unknown_streams` are
    those that the metadata service does not know.
    """

    targets: tuple[Target, ...] = ()
    purposes: Mapping[Purpose, bool] = field(default_factory=dict)
    group: str | None = None
    prefix: str = ""
    log_topic: str = ""
    unknown_streams: tuple[str, ...] = ()


def job_of(options: Mapping[str, str], *, write: bool = False) -> Job:
    """Return what a query with these options, as they are given to Spark, needs. Asks the metadata service.

    `write` says that they are those of a sink, as does an option that only a sink has.

    Raises:
        ConfigurationError: If the options are wrong, or some are of a source and some of a sink.
        Exception: Any exception of the metadata service.
    """
    names = {name.lower() for name in options}
    only_sink, only_source = (
        sorted(names & (_names(mine) - _names(others)))
        for mine, others in ((SINK_OPTIONS, SOURCE_OPTIONS), (SOURCE_OPTIONS, SINK_OPTIONS))
    )
    if only_source and (only_sink or write):
        raise ConfigurationError(
            f"Options of a source ({listed(only_source, 3)}) and of a sink ({listed(only_sink, 3) or '--write'}) are mixed; "
            "look at the source and at the sink in two calls"
        )
    return _of_sink(configure_sink(options)) if only_sink or write else _of_source(configure_source(options))


def streams_of(settings: SourceSettings) -> list[KafkaStream]:
    """Return what the metadata service says now about the streams that a source reads.

    Raises:
        Exception: Any exception of the metadata service.
    """
    with closing(settings.service()) as service:
        return list(settings.subscriber.get_subscribed_streams(service))


def snapshot_of(settings: SourceSettings) -> Snapshot:
    """Return what `streams_of` does, as a snapshot of the clusters and their topics."""
    return make_snapshot(streams_of(settings))


def for_one_look(settings: SourceSettings, timeout_s: float) -> SourceSettings:
    """Return the settings of a source for looking at its clusters once, within a time limit."""
    timeout_ms = int(timeout_s * 1000)
    return replace(
        settings.with_default_start(KafkaOffsetsInitializer.latest()),
        metadata_interval_ms=-1,
        unavailable_after_ms=timeout_ms,
        call_timeout_ms=max(1, timeout_ms // 2),
    )


def _of_source(settings: SourceSettings) -> Job:
    snapshot = snapshot_of(settings)
    return Job(
        tuple(
            Target(
                name,
                _properties(settings, name, cluster.properties),
                cluster.topics,
                settings.pattern,
                settings.partitions,
            )
            for name, cluster in snapshot.clusters.items()
        ),
        {"reading": True},
        group=settings.group_id if settings.commit_offsets else None,
        unknown_streams=unknown_streams(settings, snapshot.streams),
    )


def unknown_streams(settings: SourceSettings, known: Collection[str]) -> tuple[str, ...]:
    """Return the streams that a query names and the metadata service does not know."""
    wanted = settings.subscriber.stream_ids if isinstance(settings.subscriber, StreamSetSubscriber) else frozenset()
    return tuple(sorted(wanted.difference(known)))


def _properties(settings: SourceSettings, name: str, own: Mapping[str, str]) -> dict[str, str]:
    try:
        return settings.cluster_properties(own)
    except ConfigurationError as error:
        raise MetadataServiceError(f"Cluster '{name}': {error}", cluster_id=name) from error


def _of_sink(settings: SinkSettings) -> Job:
    clusters = current_clusters(settings, "dynamic-kafka command")
    exactly_once = settings.guarantee == "exactly-once"
    named = {
        name: d.topics or frozenset({d.topic} if d.topic is not None else ())
        for name, d in clusters.destinations.items()
    }
    targets = [Target(name, clusters.destinations[name].properties, topics) for name, topics in named.items()]
    targets += [Target(name, properties) for name, properties in clusters.others.items()]
    return Job(
        tuple(targets),
        {"exactly-once" if exactly_once else "writing": True},
        prefix=settings.prefix,
        log_topic=settings.log_topic,
    )


def _names(table: tuple[Option[object], ...]) -> set[str]:
    return {name.lower() for name in option_names(table)}
