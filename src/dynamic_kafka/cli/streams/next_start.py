"""What the next start of a query would do: its checkpoint and today's metadata and clusters, put to the source's own rules.

The clusters are looked at as the query looks at them, and `reconcile` says what follows. Nothing is read or committed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from dynamic_kafka.cli.output import now_ms
from dynamic_kafka.errors import ClusterUnavailableError, DynamicKafkaError, MetadataServiceError, nearest
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.driver.resolving import policy_of, resolve
from dynamic_kafka.source.driver.view import SourceView
from dynamic_kafka.source.rules.differences import differences
from dynamic_kafka.source.rules.model import ClusterView, Event, Move, SourceSnapshot
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["NextStart", "TopicChange", "next_start", "topic_changes", "with_similar"]

_ORDER = ("removed", "forgotten", "unreachable", "waits", "draining", "moved", "returns", "new", "goes on")


class TopicChange(NamedTuple):
    """What happens to a topic of a cluster.

    Args:
        change: `new`, `returns`, `moved` (another name of the cluster, or a copy that continues it), `draining`, `removed`
            (its positions are kept), `forgotten`, `waits` (no position yet), `unreachable` or `goes on`.
        cluster: The cluster, by its new name.
        topic: The topic.
        partitions: The number of partitions.
        unread: The number of offsets that the first batch reads.
        was: The cluster's old name, if it has another one, or the cluster that it continues.
    """

    change: str
    cluster: str
    topic: str
    partitions: int
    unread: int
    was: str = ""


class NextStart(NamedTuple):
    """The answer: what happens to each topic, the worst first, and what the source would log.

    `error` is the one with which the start would end; None if it would not. Clusters that do not answer have the reason.
    """

    changes: list[TopicChange]
    events: list[Event]
    error: DynamicKafkaError | None
    unreachable: Mapping[str, str]


def next_start(settings: SourceSettings, document: Document) -> NextStart:
    """Return what a query with these settings would do if it were started with the document of a checkpoint.

    A cluster that does not answer is left out, whatever the settings say.
    """
    settings = replace(settings, cluster_failure_mode="isolate")
    view, policy = SourceView(settings), policy_of(settings)
    unreachable: dict[str, str] = {}
    with closing(view):
        try:
            seen = view.collect(document, at_once=True)
            unreachable = {
                name: str(view.monitors[name].error or f"Cluster '{name}' has not answered")
                for name in seen.desired
                if name not in seen.views
            }
            if not seen.fresh:
                status = view.metadata.status()
                raise MetadataServiceError((status and status["last_error"]) or "The metadata service did not answer")
            result = resolve(view, document, seen, policy, settings, patient=True, now_ms=now_ms)
            missing = [*_missing(seen, view, settings)]
        except DynamicKafkaError as error:
            return NextStart([], [], error, unreachable)
    about_options = differences(document, seen.desired, policy, settings.packing)
    events = [
        *([Event("warning", about_options)] if about_options else []),
        *result.events,
        *missing,
    ]
    changes = topic_changes(document, result.document, result.views, waiting=unreachable, moves=result.moving.moves)
    return NextStart(changes, events, None, unreachable)


def _missing(seen: SourceSnapshot, view: SourceView, settings: SourceSettings) -> Iterator[Event]:
    """Return a warning for each topic that the metadata names and that does not exist, with the most similar name."""
    for name, shown in sorted(seen.views.items()):
        missing = sorted(shown.unconfirmed & seen.desired[name].topics) if name in seen.desired else []
        for topic, similar in with_similar(missing, name, view, settings):
            hint = f"; did you mean '{similar}'?" if similar else ". Is the name right?"
            yield Event("warning", f"Cluster '{name}', topic '{topic}' does not exist, say its brokers{hint}")


def with_similar(
    missing: Sequence[str], name: str, view: SourceView, settings: SourceSettings
) -> Iterator[tuple[str, str | None]]:
    """Yield topics that a cluster does not have, each with the most similar name of those that it has; None if none is."""
    if not missing:
        return
    connection = ClusterConnection(
        name, view.metadata.properties(name, {}), group_id=settings.consumer_group, timeout_ms=settings.call_timeout_ms
    )
    with closing(connection):
        try:
            known = connection.matching_topics(re.compile(".*"))
        except ClusterUnavailableError:
            known = frozenset()
    for topic in missing:
        yield topic, nearest(topic, known)


def topic_changes(
    before: Document,
    after: Document,
    views: Mapping[str, ClusterView],
    waiting: Mapping[str, str],
    moves: Collection[Move] = (),
) -> list[TopicChange]:
    """Return what happens to each topic between two documents, the worst first.

    `views` are the clusters that answered, `waiting` those that do not. `moves` are partitions that go on from another
    cluster, or wait to.
    """
    found: list[TopicChange] = []
    taken: set[tuple[str, str]] = set()
    # The cluster's name in the document, by Kafka's cluster.id and topic.
    names = {(c.kafka_id, topic): name for name, c in before.clusters.items() if c.kafka_id for topic in c.topics}
    olds = {
        (move.request.cluster, move.request.partition.topic): (
            move.request.old_cluster,
            move.request.old_partition.topic,
        )
        for move in moves
    }
    for name, state in after.clusters.items():
        counts = Counter(tp.topic for tp in state.ranges)
        unread = _unread(state, views.get(name))
        for topic in sorted(state.topics):
            old = _name_before(before, names, name, state.kafka_id, topic)
            continued = olds.get((name, topic))
            if old is not None:
                taken.add((old, topic))
            if continued is not None:
                taken.add(continued)
            if name in waiting and old is not None:
                change = "unreachable"
            elif continued is not None or (old is not None and old != name):
                change = "moved"
            elif old is not None:
                newly_draining = topic in state.draining and topic not in before.clusters[old].draining
                change = "draining" if newly_draining else "goes on"
            elif not counts[topic]:
                change = "waits"
            else:
                change = "returns" if _was_retained(before, name, state.kafka_id, topic) else "new"
            was = continued[0] if continued is not None else old if old is not None and old != name else ""
            found.append(TopicChange(change, name, topic, counts[topic], unread[topic], was))
        found += [TopicChange("waits", name, topic, 0, 0) for topic in state.unseen.keys() - state.topics.keys()]
    waits = [key for key in olds if key[1] not in after.clusters[key[0]].topics]
    found += [TopicChange("waits", name, topic, 0, 0, olds[name, topic][0]) for name, topic in waits]
    for name, state in before.clusters.items():
        counts = Counter(tp.topic for tp in state.ranges)
        now = after.clusters.get(name)
        for topic in sorted(state.topics):
            if (name, topic) not in taken:
                what = "removed" if now is not None and topic in now.retained else "forgotten"
                found.append(TopicChange(what, name, topic, counts[topic], 0))
    return sorted(found, key=lambda change: (_ORDER.index(change.change), change.cluster, change.topic))


def _unread(state: ClusterOffsets, view: ClusterView | None) -> Counter[str]:
    """Return the number of offsets to read, by topic."""
    found = Counter[str]()
    for tp, end in view.ends.items() if view is not None else ():
        if tp in state.ranges:
            found[tp.topic] += max(0, min(end, state.stops.get(tp, end)) - state.ranges[tp][1])
    return found


def _name_before(
    before: Document, names: Mapping[tuple[str, str], str], name: str, kafka_id: str, topic: str
) -> str | None:
    """Return the name under which a topic's positions were in the document before; None if they were not."""
    same = before.clusters.get(name)
    if same is not None and topic in same.topics and (kafka_id == same.kafka_id or not (kafka_id and same.kafka_id)):
        return name
    return names.get((kafka_id, topic))


def _was_retained(before: Document, name: str, kafka_id: str, topic: str) -> bool:
    return any(
        topic in c.retained and (other == name or (kafka_id and c.kafka_id == kafka_id))
        for other, c in before.clusters.items()
    )
