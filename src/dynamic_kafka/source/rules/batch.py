"""A batch read returns everything that it was asked for, or fails. These are its checks, without I/O.

==================================================  =====================================================================
what is asked for                                   what happens
==================================================  =====================================================================
a stream, topic or partition that does not exist,   an error: a batch read does not wait
or may not be described
a partition without a leader or without offsets     an error; left out with a warning if `cluster-failure-mode` is `isolate`
a cluster that does not answer                      the same (`SourceView` raises the error)
JSON of offsets that leaves a partition out, or     an error, as in Spark
names one that is not read
JSON with `latest` as a start or `earliest` as an   an error, as in Spark: nothing would be read
end
an end beyond the log's end, a start beyond it      an error; up to the end of the log, or from its start, with a warning if
                                                    data loss is tolerated
==================================================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, OffsetResolutionError, listed, may_not
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition, named_in_option
from dynamic_kafka.metadata.subscriber import StreamSetSubscriber
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["check_streams", "open_ranges"]


def open_ranges(
    document: Document,
    desired: Mapping[str, DesiredCluster],
    views: Mapping[str, ClusterView],
    settings: SourceSettings,
) -> list[str]:
    """Open the ranges of a batch read, from the starting to the stopping offsets.

    Args:
        document: The document with the positions and stops; its ranges are changed.
        desired: The clusters that have to be read.
        views: The clusters that answered.
        settings: The source's settings.

    Returns:
        Warnings about what is left out because the user tolerates it.

    Raises:
        ConfigurationError: If a stream, topic or partition does not exist, or offsets are given for other partitions.
        ClusterUnavailableError: If a partition cannot be read now.
        OffsetResolutionError: If offsets are beyond the end of a log.
    """
    check_streams(document.streams, settings)
    warnings = [
        f"Cluster '{name}' does not answer: its topics {listed(sorted(wanted.topics), 5)} are left out"
        for name, wanted in desired.items()
        if name not in views
    ]
    isolate = settings.cluster_failure_mode == "isolate"
    # A cluster with two names is read once.
    ready = {(c.kafka_id, tp) for c in document.clusters.values() for tp in c.ranges if tp in c.stops}
    for name, wanted in desired.items():
        if name in views:
            asked = _asked_for(name, wanted, views[name])
            left_out = sorted(tp for tp in asked if (views[name].kafka_id, tp) not in ready)
            warnings += _leave_out(name, document.clusters[name], left_out, isolate=isolate)
    # Partitions of clusters that do not answer may be named too.
    if views.keys() >= desired.keys():
        found = {tp for cluster in document.clusters.values() for tp in (*cluster.ranges, *cluster.unresolved)}
        _check_named("startingOffsets", settings.starting, found, useless="latest")
        _check_named("endingOffsets", settings.stopping, found, useless="earliest")
    for name, cluster in document.clusters.items():
        ends = views[name].ends if name in views else {}
        for tp in cluster.ranges:
            warnings += _open(name, cluster, tp, ends.get(tp), settings)
    return warnings


def check_streams(streams: Collection[str], settings: SourceSettings) -> None:
    """Check that all streams are known, for a query with an end that asks for them once: it would wait for ever.

    Raises:
        ConfigurationError: If a stream is not known.
    """
    subscriber = settings.subscriber
    if isinstance(subscriber, StreamSetSubscriber) and (unknown := subscriber.stream_ids - set(streams)):
        raise ConfigurationError(
            f"The metadata service does not know the stream '{min(unknown)}'. A query that ends by itself asks only once: "
            "check the id, or add the stream to the metadata"
        )


def _asked_for(name: str, wanted: DesiredCluster, view: ClusterView) -> set[KafkaTopicPartition]:
    """Return the partitions to read on a cluster, which all exist."""
    missing = wanted.topics - view.topics.keys()
    if denied := missing & view.denied:
        raise ConfigurationError(
            f"Cluster '{name}': {may_not(view.user, ['Describe', 'Read'], 'topic', min(denied))}", cluster_id=name
        )
    if missing:
        raise ConfigurationError(
            f"Topic '{min(missing)}' does not exist on the cluster '{name}'. A batch read does not wait: check the name, or "
            "create the topic"
        )
    existing = {KafkaTopicPartition(topic, p) for topic in wanted.topics for p in range(view.partitions[topic])}
    if wanted.partitions is None:
        return existing
    if absent := wanted.partitions - existing:
        topic, partition = min(absent)
        raise ConfigurationError(
            f"Topic '{topic}' has no partition {partition} on the cluster '{name}', but it has "
            f"{view.partitions.get(topic, 0)} partitions. Correct the partitions to read"
        )
    return set(wanted.partitions)


def _leave_out(
    name: str, cluster: ClusterOffsets, tps: Iterable[KafkaTopicPartition], *, isolate: bool
) -> Iterator[str]:
    """Drop the partitions that cannot be read now, and return a warning for each one, or raise."""
    for tp in tps:
        cluster.ranges.pop(tp, None)
        why = "it has no leader" if tp in cluster.unresolved else "the cluster did not return its offsets"
        text = f"Cluster '{name}', topic '{tp.topic}', partition {tp.partition} cannot be read: {why}"
        if not isolate:
            raise ClusterUnavailableError(
                f"{text}. Wait until it can be read, or set cluster-failure-mode=isolate to leave the partition out",
                cluster_id=name,
            )
        yield f"{text}. It is left out"


def _check_named(
    option: str, initializer: KafkaOffsetsInitializer | None, found: Iterable[KafkaTopicPartition], *, useless: str
) -> None:
    """Check that the JSON of an option names the partitions that are read, and no others."""
    named = named_in_option(initializer)
    if named is None:
        return
    existing = set(found)
    topics = {tp.topic for tp in existing}
    left_out = [f"{topic}-{p}" for topic, p in sorted(existing) if (topic, p) not in named and topic not in named]
    foreign = [
        f"topic {key}" if isinstance(key, str) else f"{key[0]}-{key[1]}"
        for key in named
        if key not in (topics if isinstance(key, str) else existing)
    ]
    if left_out:
        raise ConfigurationError(
            f"Option '{option}' does not name {listed(left_out, 5)}. A batch read needs the offset of every partition "
            "(-1 stands for the latest, -2 for the earliest offset)"
        )
    if foreign:
        raise ConfigurationError(
            f"Option '{option}' names {listed(sorted(foreign), 5)}, which this query does not read. Check the names of the "
            "topics and the partitions"
        )
    if useless in named.values():
        raise ConfigurationError(
            f"Option '{option}' gives the offset '{useless}' ({'-1' if useless == 'latest' else '-2'}). A batch read would "
            "read nothing: give another offset"
        )


def _open(
    name: str, cluster: ClusterOffsets, tp: KafkaTopicPartition, log_end: int | None, settings: SourceSettings
) -> Iterator[str]:
    """Open one range. Its offsets are within the log, or the user hears of it."""
    start, stop = cluster.ranges[tp][0], cluster.stops[tp]
    where = f"Cluster '{name}', topic '{tp.topic}', partition {tp.partition}"
    given = named_in_option(settings.stopping) or {}
    if log_end is not None and start > max(log_end, stop):
        reason = f"{where}: reading starts at offset {start}, but the log ends at offset {log_end}"
        if settings.fail_on_data_loss:
            raise OffsetResolutionError(
                f"{reason}. Was the topic recreated? Correct the start, or set failOnDataLoss=false to start at the "
                "earliest offset",
                cluster_id=name,
            )
        yield f"{reason}; it is read from the earliest offset, because failOnDataLoss=false"
        start = 0  # the reader goes on at the start of the log
    elif log_end is not None and stop > log_end and given.get(tp) == stop:
        reason = f"{where}: reading ends at offset {stop}, but the log ends at offset {log_end}"
        if settings.fail_on_data_loss:
            raise OffsetResolutionError(
                f"{reason}. Correct endingOffsets, or set failOnDataLoss=false to read up to the end of the log",
                cluster_id=name,
            )
        yield f"{reason}; it is read up to there, because failOnDataLoss=false"
        stop = log_end
    cluster.ranges[tp] = (start, max(start, stop))
