"""Identity: a position belongs to Kafka's cluster.id and a topic. A cluster's name in the metadata is only a label. Pure.

`identify` runs before the rules of `reconcile`. It gives the last document's positions to the names of today's metadata.

==================================================  =====================================================================
situation                                           rule
==================================================  =====================================================================
cluster under another name                          the new name takes over positions, stops and retained positions once its
                                                    view shows the cluster.id; until then nothing of the old name is removed
topic moves between two names of one cluster        the same, for that topic
two names change places; names are shifted          the same; a name that leads to another cluster waits until every cluster
                                                    of the metadata has answered
two names become one                                the one name takes over the topics of both
a name leads to another cluster, and no name in     an error: offsets of one cluster mean nothing on another; unless all
the metadata leads to the old one                   its positions are retained ones and their time is over
one topic under two names                           a warning, and it is read once: under the name that has its positions,
                                                    else under the first name
==================================================  =====================================================================

The evidence is a view, which contains the cluster.id. A desired cluster without a view is what the document says it is.
A desired cluster that was never reached may be any cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from dynamic_kafka.errors import CheckpointError, listed
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, RetainedTopic
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, Event

__all__ = ["Identified", "identify"]


@dataclass(slots=True)
class Identified:
    """The arguments of the rules, under today's names.

    Args:
        clusters: The last document's clusters.
        desired: The desired clusters; each topic is in one of them.
        views: The views that may be used.
        held: The names of which nothing may be removed yet.
        gone: Removed clusters with addresses that now lead to another cluster.
        moved: True if positions have a new name.
        events: The messages.
    """

    clusters: dict[str, ClusterOffsets]
    desired: dict[str, DesiredCluster]
    views: dict[str, ClusterView]
    held: set[str]
    gone: set[str]
    moved: bool
    events: list[Event]


def identify(
    previous: Document | None,
    desired: Mapping[str, DesiredCluster],
    views: Mapping[str, ClusterView],
    is_over: Callable[[RetainedTopic], bool],
) -> Identified:
    """Apply the rules above once.

    Args:
        previous: The last document; None on a first start.
        desired: The clusters that have to be read.
        views: The clusters that answered.
        is_over: The function that returns whether retained positions may be forgotten.

    Raises:
        CheckpointError: If a name leads to another cluster, and the cluster that it stood for has no name any more.
    """
    previous = previous or Document()
    found = Identified(dict(previous.clusters), dict(desired), dict(views), set(), set(), moved=False, events=[])
    before = previous.clusters
    for name in before.keys() & views.keys() - desired.keys():
        if _differ(before[name].kafka_id, views[name].kafka_id):
            del found.views[name]
            found.gone.add(name)
    ids = {name: _today(before.get(name), views.get(name)) for name in desired}
    displaced = [name for name in sorted(ids) if name in before and _differ(before[name].kafka_id, ids[name])]
    _let_wait(displaced, ids, found, is_over)
    homes: dict[str, list[str]] = {}
    for name in sorted(ids):
        if ids[name]:
            homes.setdefault(ids[name], []).append(name)
    _move(before, homes, ids, found)
    _hold(previous, homes, found)
    _read_once(homes, found)
    return found


def _differ(one: str, other: str) -> bool:
    return bool(one and other and one != other)


def _today(state: ClusterOffsets | None, view: ClusterView | None) -> str:
    return (view.kafka_id if view is not None else "") or (state.kafka_id if state is not None else "")


def _named(names: Iterable[str]) -> str:
    return listed((f"'{name}'" for name in names), 5)


def _let_wait(
    displaced: Iterable[str], ids: dict[str, str], found: Identified, is_over: Callable[[RetainedTopic], bool]
) -> None:
    """Have each displaced name wait if a cluster without a view may be the cluster that it stood for."""
    waiting = True
    while waiting:
        waiting = False
        unseen = sorted(found.desired.keys() - found.views.keys())
        for name in displaced:
            state = found.clusters[name]
            if name not in found.views or state.kafka_id in ids.values() or not (state.topics or state.retained):
                continue
            where = (
                f"Cluster '{name}' leads to Kafka cluster.id {ids[name]}, but its offsets were read from "
                f"{state.kafka_id}, and they are not valid on another cluster"
            )
            if not unseen and not state.topics and all(is_over(kept) for kept in state.retained.values()):
                continue
            if not unseen:
                raise CheckpointError(
                    f"{where}. Give the new cluster a cluster id of its own in the metadata, or correct its bootstrap "
                    "servers",
                    cluster_id=name,
                )
            found.events.append(
                Event("warning", f"{where}. It waits until {_named(unseen)} has answered, which may be that cluster")
            )
            del found.views[name], ids[name]
            found.held.add(name)
            waiting = True


def _move(
    before: Mapping[str, ClusterOffsets], homes: Mapping[str, list[str]], ids: Mapping[str, str], found: Identified
) -> None:
    """Give each topic's positions to the name that stands for its cluster and lists it."""
    taken: dict[tuple[str, str], list[str]] = {}
    for old, state in sorted(before.items()):
        names = homes.get(state.kafka_id, [])
        displaced = old in ids and _differ(state.kafka_id, ids[old])
        if not displaced and names in ([], [old]):
            continue  # as nearly always
        for topic in sorted({*state.topics, *state.retained}):
            if old in names and topic in found.desired[old].topics:
                continue
            takers = [
                name
                for name in names
                if topic in found.desired[name].topics and not _reads(before.get(name), topic, state.kafka_id)
            ]
            if takers or (displaced and names):
                taken.setdefault((old, (takers or names)[0]), []).append(topic)
        if displaced:
            found.clusters[old] = ClusterOffsets()
    for name in {name for pair in taken for name in pair}:
        found.clusters[name] = found.clusters.get(name, ClusterOffsets()).copied()
    for (old, new), topics in sorted(taken.items()):
        source, target = before[old], found.clusters[new]
        renamed = old not in found.desired or _differ(source.kafka_id, ids[old])
        if renamed and not target.discovered:
            target.discovered, target.since_ms = source.discovered, source.since_ms
            target.unseen = dict(source.unseen)
        if not target.topics:
            target.stopping = source.stopping
        target.kafka_id = source.kafka_id
        partitions = source.partitions_by_topic()
        for topic in topics:
            _hand_over(source, target, topic, partitions.get(topic, []))
            if found.clusters[old].kafka_id == source.kafka_id:
                _drop(found.clusters[old], topic, partitions.get(topic, []))
        found.moved = True
        what = (
            f"Cluster '{new}' is the cluster that was '{old}' (cluster.id {source.kafka_id}): reading"
            if renamed
            else f"Clusters '{new}' and '{old}' are one Kafka cluster ({source.kafka_id}): reading of {_named(topics)}"
        )
        found.events.append(Event("info", f"{what} continues where it stopped"))


def _reads(state: ClusterOffsets | None, topic: str, kafka_id: str) -> bool:
    return state is not None and state.kafka_id == kafka_id and topic in state.topics


def _hand_over(
    source: ClusterOffsets, target: ClusterOffsets, topic: str, partitions: Collection[KafkaTopicPartition]
) -> None:
    """Give the target what the source holds of a topic and its partitions; what the target reads already stays."""
    if topic in target.topics:
        return
    if topic not in source.topics:
        kept = target.retained.get(topic)
        if kept is None or kept.since_ms < source.retained[topic].since_ms:
            target.retained[topic] = source.retained[topic]
        return
    target.retained.pop(topic, None)
    target.topics[topic] = source.topics[topic]
    target.ranges |= {tp: source.ranges[tp] for tp in partitions if tp in source.ranges}
    target.unresolved |= {tp: source.unresolved[tp] for tp in partitions if tp in source.unresolved}
    target.anchors = target.anchors | {tp: source.anchors[tp] for tp in partitions if tp in source.anchors}
    if topic in source.draining:
        target.draining.add(topic)
    if target.stopping == source.stopping:  # else they are made again, from the option of the target
        target.stops |= {tp: source.stops[tp] for tp in partitions if tp in source.stops}


def _drop(state: ClusterOffsets, topic: str, partitions: Iterable[KafkaTopicPartition]) -> None:
    state.topics.pop(topic, None)
    state.retained.pop(topic, None)
    state.draining.discard(topic)
    state.forget(partitions)


def _hold(previous: Document, homes: Mapping[str, list[str]], found: Identified) -> None:
    """Hold removed clusters while the cluster.id of a cluster that was named instead of them is unknown."""
    named = {name for parts in previous.streams.values() for name in parts}
    unseen = [
        name
        for name in sorted(found.desired.keys() - found.views.keys())
        if name not in found.clusters or not found.clusters[name].kafka_id
    ]
    for old, state in sorted(found.clusters.items()):
        if old in found.desired or not state.kafka_id or not state.topics or state.kafka_id in homes:
            continue
        # Names that were in the metadata together do not replace each other.
        maybe = [new for new in unseen if not {old, new} <= named]
        if maybe:
            found.held.add(old)
            text = (
                f"Cluster '{old}' is not in the metadata any more. It is removed once {_named(maybe)} has answered, because "
                "that may be the same cluster under another name"
            )
            found.events.append(Event("info", text))


def _read_once(homes: Mapping[str, list[str]], found: Identified) -> None:
    """Leave each topic of a cluster with several names to one of the names."""
    for kafka_id, names in sorted(homes.items()):
        if len(names) < 2:
            continue
        found.events.append(Event("info", f"Clusters {_named(names)} are one Kafka cluster ({kafka_id})"))
        owners: dict[str, str] = {}
        for has in ("topics", "retained"):
            for name in names:
                if name in found.clusters:
                    for topic in found.desired[name].topics & getattr(found.clusters[name], has).keys():
                        owners.setdefault(topic, name)
        for name in names:
            for topic in found.desired[name].topics:
                owners.setdefault(topic, name)
        for name in names:
            wanted = found.desired[name]
            others = sorted(topic for topic in wanted.topics if owners[topic] != name)
            if others:
                found.desired[name] = replace(wanted, topics=wanted.topics - set(others))
                for owner in sorted({owners[topic] for topic in others}):
                    shared = _named(topic for topic in others if owners[topic] == owner)
                    text = (
                        f"Clusters '{owner}' and '{name}' are one Kafka cluster ({kafka_id}), and both list {shared}: it is "
                        f"read once, as cluster '{owner}'. List each topic under one name in the metadata"
                    )
                    found.events.append(Event("warning", text))
