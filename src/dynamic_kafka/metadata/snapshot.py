"""An answer of the metadata service, checked and turned from streams into clusters. Pure.

A stream names clusters, and a cluster may belong to many streams; the union of their topics is read. Everything is sorted,
so that the order of a service's answer does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.continuation import Continues
from dynamic_kafka.errors import MetadataServiceError, listed
from dynamic_kafka.metadata.model import TOPIC_NAME, ClusterMetadata, KafkaStream

__all__ = ["EMPTY", "Snapshot", "describe_change", "make_snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The metadata at one time.

    Args:
        streams: Stream id to cluster id to the stream's topics there.
        clusters: Cluster id to the cluster, with the topics of all streams.
    """

    streams: Mapping[str, Mapping[str, frozenset[str]]]
    clusters: Mapping[str, ClusterMetadata]

    @property
    def is_empty(self) -> bool:
        """Return whether no cluster has a topic."""
        return not any(cluster.topics for cluster in self.clusters.values())


EMPTY = Snapshot({}, {})


def make_snapshot(streams: Iterable[KafkaStream]) -> Snapshot:
    """Check the streams and merge them into a snapshot.

    Initializers are compared by `==`. A user's own initializer that is given to two streams should define it.

    Args:
        streams: The subscribed streams, in any order. A stream that occurs twice counts once.

    Raises:
        MetadataServiceError: If two streams give a cluster different properties or offsets (the message names both and the
            properties that differ, never their values), if a stream occurs in two versions, if a stream or cluster id is
            empty, if a cluster has no `bootstrap.servers` or continues itself, if two clusters continue one topic, or if a
            topic's name is illegal in Kafka.
    """
    by_id: dict[str, KafkaStream] = {}
    for stream in streams:
        if by_id.setdefault(stream.stream_id, stream) != stream:
            raise MetadataServiceError(
                f"The metadata describes stream '{stream.stream_id}' twice, with differences; describe it once"
            )
    first: dict[str, str] = {}
    clusters: dict[str, ClusterMetadata] = {}
    for stream_id, stream in sorted(by_id.items()):
        for cluster_id, cluster in sorted(stream.clusters.items()):
            _check(stream_id, cluster_id, cluster)
            known = clusters.get(cluster_id)
            if known is not None:
                _check_same(cluster_id, first[cluster_id], known, stream_id, cluster)
            first.setdefault(cluster_id, stream_id)
            clusters[cluster_id] = ClusterMetadata(
                frozenset(cluster.topics) | (known.topics if known else frozenset()),
                dict(sorted(cluster.properties.items())),
                cluster.starting_offsets,
                cluster.stopping_offsets,
                cluster.continues,
            )
    _check_continued_once(clusters)
    return Snapshot(
        {
            stream_id: {c: frozenset(cluster.topics) for c, cluster in sorted(stream.clusters.items())}
            for stream_id, stream in sorted(by_id.items())
        },
        dict(sorted(clusters.items())),
    )


def _check(stream_id: Any, cluster_id: Any, cluster: Any) -> None:
    # Any: no type checker has seen the answer of a user's service.
    where = f"The metadata of stream '{stream_id}', cluster '{cluster_id}',"
    if not all(isinstance(name, str) and name for name in (stream_id, cluster_id)):
        raise MetadataServiceError(f"{where} has an id that is empty or not text; give each stream and cluster a name")
    wrong = sorted(
        str(key) for key, value in cluster.properties.items() if not (isinstance(key, str) and isinstance(value, str))
    )
    if wrong:
        raise MetadataServiceError(
            f"{where} has properties that are not text: {listed(wrong, 5)}; give them as text", cluster_id=cluster_id
        )
    if not cluster.properties.get("bootstrap.servers", "").strip(" ,"):
        raise MetadataServiceError(f"{where} lacks the property 'bootstrap.servers'; add it", cluster_id=cluster_id)
    if not isinstance(cluster.continues, Continues | None):
        raise MetadataServiceError(f"{where} has no `Continues` in `continues`; give one", cluster_id=cluster_id)
    if cluster.continues is not None and cluster.continues.cluster == cluster_id:
        raise MetadataServiceError(
            f"{where} continues itself; name the cluster that was read before", cluster_id=cluster_id
        )
    # A str is a collection of its letters, and topics="orders" is an easy mistake in a user's service.
    if isinstance(cluster.topics, str):
        raise MetadataServiceError(f"{where} gives `topics` as one text; give a set of names", cluster_id=cluster_id)
    illegal = sorted(repr(t) for t in cluster.topics if not (isinstance(t, str) and TOPIC_NAME.fullmatch(t)))
    if illegal:
        raise MetadataServiceError(
            f"{where} gives names that are not allowed for topics in Kafka: {listed(illegal, 5)}; a name has at most 249 "
            "letters, digits, '.', '_' and '-'",
            cluster_id=cluster_id,
        )


def _check_continued_once(clusters: Mapping[str, ClusterMetadata]) -> None:
    successors: dict[tuple[str, str | None], str] = {}
    for name, cluster in clusters.items():
        for topic in sorted(cluster.topics) if cluster.continues is not None else ():
            assert cluster.continues is not None
            old = cluster.continues.cluster, cluster.continues.old_topic(topic)
            other = successors.setdefault(old, name)
            if old[1] is not None and other != name:
                raise MetadataServiceError(
                    f"Clusters '{other}' and '{name}' both continue topic '{old[1]}' of cluster '{old[0]}'; let one do so",
                    cluster_id=name,
                )


def _check_same(
    cluster_id: str, first_id: str, first: ClusterMetadata, second_id: str, second: ClusterMetadata
) -> None:
    differing = _differing(first, second)
    if differing:
        raise MetadataServiceError(
            f"Streams '{first_id}' and '{second_id}' describe cluster '{cluster_id}' differently: "
            f"{', '.join(differing)}; make them equal, or give the clusters two ids",
            cluster_id=cluster_id,
        )


def _differing(one: ClusterMetadata, other: ClusterMetadata) -> list[str]:
    """Return the differences other than topics: names of properties, never their values."""
    keys = {*one.properties, *other.properties}
    differing = [f"property '{k}'" for k in sorted(keys) if one.properties.get(k) != other.properties.get(k)]
    if one.starting_offsets != other.starting_offsets:
        differing.append("starting offsets")
    if one.stopping_offsets != other.stopping_offsets:
        differing.append("stopping offsets")
    if one.continues != other.continues:
        differing.append("what it continues")
    return differing


def describe_change(old: Snapshot, new: Snapshot) -> list[str]:
    """Return the differences, one line each, for logs and status. No line contains a property's value."""
    lines: list[str] = []
    for verb, ids in (("removed", old.clusters.keys() - new.clusters), ("added", new.clusters.keys() - old.clusters)):
        lines += [f"cluster '{cluster_id}' {verb}" for cluster_id in sorted(ids)]
    for cluster_id in sorted(old.clusters.keys() & new.clusters):
        differing = _differing(old.clusters[cluster_id], new.clusters[cluster_id])
        if differing:
            lines.append(f"cluster '{cluster_id}' changed: {', '.join(differing)}")
    for stream_id in sorted(old.streams.keys() | new.streams):
        before, after = old.streams.get(stream_id), new.streams.get(stream_id)
        if before is None or after is None:
            lines.append(f"stream '{stream_id}' {'added' if before is None else 'removed'}")
        before, after = before or {}, after or {}
        for cluster_id in sorted(before.keys() | after):
            was, now = before.get(cluster_id, frozenset()), after.get(cluster_id, frozenset())
            for verb, topics in (("removed", was - now), ("added", now - was)):
                if topics:
                    lines.append(f"stream '{stream_id}', cluster '{cluster_id}': {verb} {listed(sorted(topics), 5)}")
    return lines or ([] if old == new else ["a stream's clusters without topics changed"])
