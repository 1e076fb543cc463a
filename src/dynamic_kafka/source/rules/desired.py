"""What has to be read: by the metadata or, until it has answered, by the offset document. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dynamic_kafka.continuation import continues_from_json
from dynamic_kafka.initializer import initializer_from_json, without_group
from dynamic_kafka.kafka.config.secrets import storable
from dynamic_kafka.metadata.model import ClusterMetadata
from dynamic_kafka.metadata.snapshot import Snapshot
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["desired_cluster", "desired_clusters", "desired_streams", "is_undecided", "to_monitor"]


def desired_clusters(snapshot: Snapshot | None, previous: Document | None) -> Mapping[str, ClusterMetadata]:
    """Return the desired clusters: those of the metadata or, until it has answered, those of the document."""
    if snapshot is not None:
        return snapshot.clusters
    assert previous is not None
    clusters = {}
    for name, c in previous.clusters.items():
        topics = frozenset(c.topics) - c.draining
        for parts in previous.streams.values():
            topics |= parts.get(name) or frozenset()
        if topics:
            clusters[name] = ClusterMetadata(
                topics,
                c.properties,
                None if c.starting is None else initializer_from_json(c.starting),
                None if c.stopping is None else initializer_from_json(c.stopping),
                None if c.continues is None else continues_from_json(c.continues),
            )
    return clusters


def desired_cluster(
    cluster: ClusterMetadata, known: ClusterOffsets | None, view: ClusterView | None, settings: SourceSettings
) -> DesiredCluster:
    """Return what has to be read on a cluster.

    By a pattern, that is each topic with a name that matches, if the view or the document knows it: a topic that no
    view shows is not removed.
    """
    topics = cluster.topics
    if settings.pattern is not None:
        found = {*(view.topics if view is not None else ()), *(known.topics if known is not None else ())}
        topics |= {topic for topic in found if settings.pattern.fullmatch(topic)}
    starting, stopping = cluster.starting_offsets, cluster.stopping_offsets
    if settings.group_id is None:
        starting, stopping = starting and without_group(starting), stopping and without_group(stopping)
    return DesiredCluster(
        topics, storable(cluster.properties), starting, stopping, settings.partitions, cluster.continues
    )


def is_undecided(
    known: Mapping[str, ClusterOffsets],
    clusters: Mapping[str, ClusterMetadata],
    views: Mapping[str, ClusterView],
    inactive: Collection[str],
) -> bool:
    """Return whether a topic of the document is neither shown nor missing, or a removed cluster may still answer.

    A topic that was never seen counts only while it is wanted: nobody asks for it any more otherwise.
    """

    def is_open(name: str, c: ClusterOffsets) -> bool:
        if name not in views:
            return bool(c.topics) and name not in clusters and name not in inactive
        view, wanted = views[name], clusters[name].topics if name in clusters else frozenset()
        return bool({*c.topics, *(c.unseen.keys() & wanted)} - view.topics.keys() - view.missing - view.denied)

    return any(is_open(name, c) for name, c in known.items())


def to_monitor(clusters: Mapping[str, ClusterMetadata], previous: Document | None) -> list[str]:
    """Return the clusters to look at: those to read, and those of the document that are read or drained."""
    active = [n for n, c in previous.clusters.items() if c.topics] if previous is not None else []
    return sorted({*clusters, *active})


def desired_streams(
    snapshot: Snapshot | None, previous: Document | None, clusters: Mapping[str, ClusterMetadata]
) -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Return the topics of each stream on each cluster."""
    if snapshot is not None:
        return snapshot.streams
    assert previous is not None
    return {
        stream: {
            name: clusters[name].topics if topics is None else topics
            for name, topics in parts.items()
            if name in clusters
        }
        for stream, parts in previous.streams.items()
    }
