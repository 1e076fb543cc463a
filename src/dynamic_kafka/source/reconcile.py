"""The rules for what to read next when clusters, topics and partitions appear, stay, disappear or return. Pure.

`reconcile` takes the last document, the clusters that the metadata desires, and a view of each reachable cluster. It returns
the next document with all positions and no ranges yet (`admission` opens the ranges). If a position needs an offset from
a cluster, it returns an `OffsetRequest`. The caller gets the answer and calls again; meanwhile that partition waits.

==================================================  =====================================================================
situation                                           rule
==================================================  =====================================================================
first start                                         the cluster's own starting offsets, else the global ones
cluster found later                                 its own starting offsets, else earliest; `committed` without a
                                                    committed offset is earliest and does not stop the query
cluster not reachable at the first start            it is discovered once it is reachable; `latest` then means the time
                                                    of the first start, so that records since then are read
partition without a leader at the first discovery   the same, for that partition
new topic or partition on a known cluster           earliest
listed topic does not exist                         a warning; earliest once it exists
topic removed, or its cluster                       cut, with a warning that counts the unread records, and its positions
                                                    are retained; or drained first
draining topic                                      read until quiet (the caller decides), or up to the ends it had when
                                                    the metadata called its cluster inactive (they become its stops)
returns within retention, same topic id             continues at the retained position
retention is over                                   dropped, but only after an answer that still does not name it
topic id changed                                    data loss: an error, or earliest if the user tolerates it
end moved backwards, and stayed there               data loss: an error, or the new end if the user tolerates it
stopping offsets are given, changed or taken away   stops that the old option made are dropped, and new ones are asked for
==================================================  =====================================================================

A position only ever comes from the last document, from a retained position, or from the answer to an `OffsetRequest`.
`identity` says first which cluster of the document is which cluster of the metadata. No position is forgotten before that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from dynamic_kafka.errors import DataLossError
from dynamic_kafka.initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    initializer_to_json,
    topic_partition,
)
from dynamic_kafka.source.identity import identify
from dynamic_kafka.source.offsets import ClusterOffsets, Cursor, Document, RetainedTopic

__all__ = [
    "ClusterView",
    "DesiredCluster",
    "Event",
    "OffsetAnswers",
    "OffsetRequest",
    "ReadPolicy",
    "Reconciled",
    "reconcile",
]


@dataclass(frozen=True, slots=True)
class DesiredCluster:
    """A cluster that has to be read according to the metadata.

    Args:
        topics: The topics, including those that do not exist.
        properties: The part of the cluster's properties that may be stored in the document.
        starting: The cluster's own starting offsets.
        stopping: The cluster's own stopping offsets.
        partitions: If given, only these partitions are read.
    """

    topics: frozenset[str]
    properties: Mapping[str, str]
    starting: KafkaOffsetsInitializer | None = None
    stopping: KafkaOffsetsInitializer | None = None
    partitions: frozenset[KafkaTopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of a reachable cluster.

    Args:
        kafka_id: Kafka's own cluster.id.
        topics: Topic to topic id, for the monitored topics that exist.
        partitions: Topic to number of partitions.
        ends: The end of each partition that has a leader; under read_committed, the last stable offset.
    """

    kafka_id: str
    topics: Mapping[str, str]
    partitions: Mapping[str, int]
    ends: Mapping[KafkaTopicPartition, int]


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """The user's settings for these rules. Their defaults are those of the options (`SourceSettings`).

    Args:
        starting: The global starting offsets.
        stopping: The global stopping offsets; None never stops.
        fail_on_data_loss: If true, lost records are an error.
        retention_ms: The time for which positions of removed topics are kept; 0 drops them at once.
        drain: If true, a removed topic is read until it is quiet before it is cut.
    """

    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    fail_on_data_loss: bool
    retention_ms: int
    drain: bool


Purpose = Literal["start", "stop"]


class OffsetRequest(NamedTuple):
    """A request to a cluster for the offsets of partitions by an initializer."""

    cluster: str
    purpose: Purpose
    initializer: KafkaOffsetsInitializer
    partitions: tuple[KafkaTopicPartition, ...]


@dataclass(slots=True)
class OffsetAnswers:
    """The answers to offset requests, by cluster and partition."""

    start: dict[tuple[str, KafkaTopicPartition], int] = field(default_factory=dict)
    stop: dict[tuple[str, KafkaTopicPartition], int] = field(default_factory=dict)


class Event(NamedTuple):
    """A message for the log and the progress report: its level, and a sentence that stands alone."""

    level: Literal["info", "warning"]
    text: str


@dataclass(slots=True)
class Reconciled:
    """The result.

    Args:
        document: The next document, without ranges.
        views: The views of the document's clusters, without those of a name that waits.
        requests: The open requests.
        events: What has to be told.
        changed: True if the set of positions changed.
    """

    document: Document
    views: Mapping[str, ClusterView]
    requests: list[OffsetRequest]
    events: list[Event]
    changed: bool


_EARLIEST = KafkaOffsetsInitializer.earliest()
_LATEST = KafkaOffsetsInitializer.latest()
_COMMITTED = KafkaOffsetsInitializer.committed_offsets()
_COMMITTED_OR_EARLIEST = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)


def reconcile(
    previous: Document | None,
    streams: Mapping[str, Mapping[str, frozenset[str]]],
    desired: Mapping[str, DesiredCluster],
    views: Mapping[str, ClusterView],
    *,
    policy: ReadPolicy,
    answers: OffsetAnswers,
    now_ms: int,
    fresh: bool,
    inactive: Collection[str] = (),
    quiet: Collection[tuple[str, str]] = (),
    regressed: Collection[tuple[str, KafkaTopicPartition]] = (),
) -> Reconciled:
    """Apply the rules above once.

    Args:
        previous: The last document; None on a first start.
        streams: Stream to cluster to topics, for the document.
        desired: The clusters that have to be read, by cluster id.
        views: The clusters that answered, by cluster id. Positions of a cluster without a view wait.
        policy: The user's settings.
        answers: The answers to the requests of earlier calls in this process.
        now_ms: Wall-clock time, for positions that become retained or unresolved now.
        fresh: True if `desired` is an answer of the metadata service, False if it comes from the document.
        inactive: Clusters that the metadata service calls inactive.
        quiet: (cluster, topic) of draining topics that received no records for long enough.
        regressed: (cluster, partition) with an end that was below the position for long enough to be accepted.

    Raises:
        CheckpointError: If a cluster id leads to another Kafka cluster, and the old one has no cluster id any more.
        DataLossError: If records were lost and `policy.fail_on_data_loss` is set.
    """
    step = _Reconciliation(policy, answers, now_ms, fresh=fresh, first_start=previous is None)
    known = identify(previous, desired, views)
    before, desired, views = known.clusters, known.desired, known.views
    step.all_seen = desired.keys() <= views.keys()
    step.changed = known.moved
    step.events += [Event(*event) for event in known.events]
    clusters: dict[str, ClusterOffsets] = {}
    for name in sorted({*before, *desired}):
        held = name in known.held
        state = step.cluster(
            name,
            before.get(name),
            desired.get(name) if not held else None,
            views.get(name),
            held=held,
            inactive=name in inactive or name in known.gone,
            quiet={topic for cluster, topic in quiet if cluster == name},
            regressed={tp for cluster, tp in regressed if cluster == name},
        )
        if state.topics or state.retained or name in desired:
            clusters[name] = state
    if previous is not None and fresh:
        for stream in sorted(set(previous.streams) - set(streams)):
            step.events.append(Event("warning", f"Stream '{stream}' is no longer described by the metadata service"))
    document = Document(
        streams={s: _topics_of_stream(parts, desired, clusters) for s, parts in streams.items()}, clusters=clusters
    )
    if previous is not None:
        last = previous.cursor
        document.cursor = Cursor(last.cluster, {name: tp for name, tp in last.partitions.items() if name in clusters})
        document.packing, document.starting = previous.packing, previous.starting
    else:
        document.starting = initializer_to_json(policy.starting)
    requests = [OffsetRequest(*asked[:3], tuple(asked[3])) for asked in step.asked]
    done_before = previous.done if previous is not None else 0
    # Health is not in the document: a cluster that was done stays done while it is unreachable.
    answered = {*views, *(name for name, c in before.items() if done_before and c.discovered)}
    document.done = max(1, done_before) if not requests and _is_done(document, desired, answered, policy) else 0
    changed = step.changed or previous is None or document.done != done_before
    return Reconciled(document, views, requests, step.events, changed)


def _topics_of_stream(
    parts: Mapping[str, frozenset[str]], desired: Mapping[str, DesiredCluster], clusters: Mapping[str, ClusterOffsets]
) -> dict[str, frozenset[str] | None]:
    """Return the topics by cluster; None if they are all topics of the cluster, which the document names anyway."""
    return {
        name: None if name in desired and topics == desired[name].topics == clusters[name].topics.keys() else topics
        for name, topics in parts.items()
    }


def _is_done(
    document: Document, desired: Mapping[str, DesiredCluster], answered: Collection[str], policy: ReadPolicy
) -> bool:
    """Return whether every partition has reached its stop. A cluster that has not answered may have more partitions."""
    if not desired or not all(name in answered and (w.stopping or policy.stopping) for name, w in desired.items()):
        return False
    return all(
        not c.unresolved and all(tp in c.stops and c.stops[tp] <= end for tp, (_, end) in c.ranges.items())
        for c in document.clusters.values()
    )


class _Reconciliation:
    """One application of the rules; collects requests and events."""

    def __init__(
        self, policy: ReadPolicy, answers: OffsetAnswers, now_ms: int, *, fresh: bool, first_start: bool
    ) -> None:
        self.policy = policy
        self.answers = answers
        self.now_ms = now_ms
        self.fresh = fresh
        self.first_start = first_start
        self.asked: list[tuple[str, Purpose, KafkaOffsetsInitializer, list[KafkaTopicPartition]]] = []
        self.events: list[Event] = []
        self.all_seen = True
        self.changed = False

    def cluster(
        self,
        name: str,
        before: ClusterOffsets | None,
        desired: DesiredCluster | None,
        view: ClusterView | None,
        *,
        held: bool,
        inactive: bool,
        quiet: Collection[str],
        regressed: Collection[KafkaTopicPartition],
    ) -> ClusterOffsets:
        state = self._carried_over(before)
        if desired is not None:
            state.properties = dict(desired.properties)
            state.starting = initializer_to_json(desired.starting)
            self._handle_stopping(name, state, desired.stopping or self.policy.stopping)
        if view is not None:
            state.kafka_id = view.kafka_id or state.kafka_id
            self._handle_lost(name, state, view, regressed)
        if not held:
            self._remove(name, state, desired, view, inactive=inactive, quiet=quiet)
        if desired is not None:
            if view is not None:
                self._add(name, state, desired, view)
            if self.first_start and not state.discovered:
                state.since_ms = self.now_ms
        self._expire(name, state, desired)
        if before is not None:
            state.resets = frozenset(
                tp
                for tp, (position, _) in state.ranges.items()
                if tp in before.ranges and before.ranges[tp][1] != position
            )
        return state

    def _carried_over(self, before: ClusterOffsets | None) -> ClusterOffsets:
        """Return the last state with every range closed at its end."""
        if before is None:
            return ClusterOffsets()
        return replace(
            before,
            topics=dict(before.topics),
            ranges={tp: (end, end) for tp, (_, end) in before.ranges.items()},
            stops=dict(before.stops),
            unresolved=dict(before.unresolved),
            retained=dict(before.retained),
            resets=frozenset(),
        )

    def _handle_stopping(self, name: str, state: ClusterOffsets, stopping: KafkaOffsetsInitializer | None) -> None:
        """Drop the stops if the option that made them was taken away or changed; those of draining topics are made again."""
        before, state.stopping = state.stopping, initializer_to_json(stopping)
        # A user's own initializer has no text: whether it made the stops cannot be known, so they stay.
        if stopping is not None and (before is None or state.stopping == before):
            return
        ours = state.draining if before is None else ()  # the stops of draining topics come from no option
        stops = {tp: stop for tp, stop in state.stops.items() if tp.topic in ours}
        if stops == state.stops:
            return
        state.stops = stops
        self.changed = True
        now = "are not set any more" if stopping is None else "have changed"
        self.events.append(
            Event("info", f"Cluster '{name}': the stopping offsets {now}; those in the checkpoint are dropped")
        )

    # --- data loss ---

    def _handle_lost(
        self, name: str, state: ClusterOffsets, view: ClusterView, regressed: Collection[KafkaTopicPartition]
    ) -> None:
        for topic, known in state.topics.items():
            now = view.topics.get(topic, known)
            state.topics[topic] = now  # an imported checkpoint has no topic ids: the first one seen is adopted
            if not known or now == known:
                continue
            tps = [tp for tp in state.ranges if tp.topic == topic]
            self._lost(name, state, tps, view, f"the topic was recreated (topic id {known} is now {now})")
            for tp in tps:  # added again below, as partitions of a new topic: from the earliest offset
                del state.ranges[tp]
                state.stops.pop(tp, None)
            state.unresolved = {tp: since for tp, since in state.unresolved.items() if tp.topic != topic}
            self.changed = True
        for tp in sorted(set(regressed) & set(state.ranges)):
            end = view.ends.get(tp)
            if end is not None and end < state.ranges[tp][1]:
                self._lost(name, state, [tp], view, f"the log now ends at offset {end}, below the position")
                state.ranges[tp] = (end, end)
                self.changed = True

    def _lost(
        self, name: str, state: ClusterOffsets, tps: list[KafkaTopicPartition], view: ClusterView, reason: str
    ) -> None:
        if self.policy.fail_on_data_loss and tps:
            topic, partition = tps[0]
            position = state.ranges[tps[0]][1]
            raise DataLossError(
                reason,
                cluster_id=name,
                topic=topic,
                partition=partition,
                start=position,
                end=max(position, view.ends.get(tps[0], position)),
            )
        for topic, partition in tps:
            where = f"Cluster '{name}', topic '{topic}', partition {partition}"
            self.events.append(Event("warning", f"{where}: {reason}; continuing without the lost records"))

    # --- removal ---

    def _remove(
        self,
        name: str,
        state: ClusterOffsets,
        desired: DesiredCluster | None,
        view: ClusterView | None,
        *,
        inactive: bool,
        quiet: Collection[str],
    ) -> None:
        kept = desired.topics if desired is not None else frozenset()
        for topic in sorted(state.topics):
            if topic in kept:
                if topic in state.draining:
                    state.draining -= {topic}
                    if (
                        desired is None or (desired.stopping or self.policy.stopping) is None
                    ):  # else they are stops of the user
                        state.stops = {tp: stop for tp, stop in state.stops.items() if tp.topic != topic}
                    self.changed = True
                    self.events.append(Event("info", f"Cluster '{name}', topic '{topic}' is back while it is draining"))
                continue
            tps = [tp for tp in state.ranges if tp.topic == topic]
            ends = view.ends if view is not None else {}
            unread = sum(max(0, ends.get(s, 0) - state.ranges[s][1]) for s in tps)
            unreachable = view is None and inactive
            if self.policy.drain and topic not in state.draining and not unreachable:
                state.draining |= {topic}
                self.changed = True
                self.events.append(
                    Event("info", f"Cluster '{name}', topic '{topic}' was removed; draining at least {unread} records")
                )
            if topic in state.draining and inactive and view is not None:
                for tp in set(tps) - set(state.stops):
                    state.stops[tp] = max(state.ranges[tp][1], ends.get(tp, 0))
                    self.changed = True
            at_stops = all(s in state.stops and state.ranges[s][1] >= state.stops[s] for s in tps)
            if topic in state.draining and not (at_stops or topic in quiet or unreachable):
                continue
            self._cut(name, state, topic, tps, unread if view is not None else None)

    def _cut(
        self, name: str, state: ClusterOffsets, topic: str, tps: list[KafkaTopicPartition], unread: int | None
    ) -> None:
        if self.policy.retention_ms > 0 or not self.all_seen:  # a cluster that has not answered may be this one
            positions = {tp.partition: state.ranges[tp][1] for tp in tps}
            state.retained[topic] = RetainedTopic(state.topics[topic], self.now_ms, positions)
        for tp in tps:
            del state.ranges[tp]
            state.stops.pop(tp, None)
        state.unresolved = {tp: t for tp, t in state.unresolved.items() if tp.topic != topic}
        drained = topic in state.draining
        state.draining -= {topic}
        del state.topics[topic]
        self.changed = True
        left = "an unknown number of" if unread is None else str(unread)
        verb = "drained" if drained and not unread else "removed"
        self.events.append(
            Event(
                "warning" if unread or unread is None else "info",
                f"Cluster '{name}', topic '{topic}' was {verb}; {left} records are left unread",
            )
        )

    def _expire(self, name: str, state: ClusterOffsets, desired: DesiredCluster | None) -> None:
        if not self.fresh or not self.all_seen:
            return
        kept = desired.topics if desired is not None else frozenset()
        for topic, retained in list(state.retained.items()):
            if topic not in kept and self.now_ms - retained.since_ms >= self.policy.retention_ms:
                del state.retained[topic]  # not worth a batch of its own: written with the next one
                self.events.append(Event("info", f"Cluster '{name}', topic '{topic}': its retained positions expired"))

    # --- addition ---

    def _add(self, name: str, state: ClusterOffsets, desired: DesiredCluster, view: ClusterView) -> None:
        initial = self._initial_initializer(state, desired)
        waiting = False
        for topic, partition in sorted(desired.partitions or ()):
            if topic in view.partitions and partition >= view.partitions[topic]:
                where = f"Cluster '{name}', topic '{topic}', partition {partition}"
                text = f"{where} does not exist yet; it will be read from the earliest offset once created"
                self.events.append(Event("warning", text))
        for topic in sorted(desired.topics):
            if topic not in view.topics:
                if topic not in state.topics:
                    where = f"Cluster '{name}', topic '{topic}'"
                    text = f"{where} does not exist yet; it will be read from the earliest offset once created"
                    self.events.append(Event("warning", text))
                continue
            state.topics.setdefault(topic, view.topics[topic])
            retained = self._take_retained(name, state, topic)
            for partition in range(view.partitions[topic]):
                tp = topic_partition((topic, partition))
                if tp in state.ranges or (desired.partitions is not None and tp not in desired.partitions):
                    continue
                position = retained.get(partition)
                if position is None and tp not in view.ends:
                    if not state.discovered:  # no leader at the first discovery
                        bound_to_now = self.first_start or initial == _LATEST
                        state.unresolved.setdefault(tp, state.since_ms or (self.now_ms if bound_to_now else 0))
                    continue
                if position is None:
                    if tp in state.unresolved:
                        initializer = self._since(desired, state.unresolved[tp])
                    else:
                        initializer = _EARLIEST if state.discovered else initial
                    position = self._answer(name, "start", tp, initializer)
                if position is None:
                    waiting = True
                    continue
                state.ranges[tp] = (position, position)
                state.unresolved.pop(tp, None)
                self.changed = True
        self._resolve_stops(name, state, desired)
        if not state.discovered and not waiting:
            state.discovered, state.since_ms = True, None
            self.changed = True

    def _take_retained(self, name: str, state: ClusterOffsets, topic: str) -> Mapping[int, int]:
        """Return the retained positions of a topic that is back; none if it is another topic of the same name."""
        retained = state.retained.pop(topic, None)
        if retained is None:
            return {}
        if retained.topic_id not in ("", state.topics[topic]):
            text = f"Cluster '{name}', topic '{topic}' came back as a new topic; it is read from the earliest offset"
            self.events.append(Event("warning", text))
            return {}
        text = f"Cluster '{name}', topic '{topic}' is back; reading continues where it stopped"
        self.events.append(Event("info", text))
        return retained.offsets

    def _initial_initializer(self, state: ClusterOffsets, desired: DesiredCluster) -> KafkaOffsetsInitializer:
        """Return the starting offsets for the partitions of the cluster's first discovery."""
        if self.first_start:
            return desired.starting or self.policy.starting
        return self._since(desired, state.since_ms or 0)

    def _since(self, desired: DesiredCluster, since_ms: int) -> KafkaOffsetsInitializer:
        """Return the starting offsets of partitions waiting since a first start; 0 stands for a cluster found later."""
        if since_ms:
            starting = desired.starting or self.policy.starting
            return KafkaOffsetsInitializer.timestamp(since_ms) if starting == _LATEST else starting
        own = desired.starting or _EARLIEST
        return _COMMITTED_OR_EARLIEST if own == _COMMITTED else own

    def _resolve_stops(self, name: str, state: ClusterOffsets, desired: DesiredCluster) -> None:
        stopping = desired.stopping or self.policy.stopping
        if stopping is None:
            return
        for tp in state.ranges:
            if tp not in state.stops:
                stop = self._answer(name, "stop", tp, stopping)
                if stop is not None:
                    state.stops[tp] = stop
                    self.changed = True

    def _answer(
        self, name: str, purpose: Purpose, tp: KafkaTopicPartition, initializer: KafkaOffsetsInitializer
    ) -> int | None:
        known = (self.answers.start if purpose == "start" else self.answers.stop).get((name, tp))
        if known is None:
            self._ask(name, purpose, tp, initializer)
        return known

    def _ask(self, name: str, purpose: Purpose, tp: KafkaTopicPartition, initializer: KafkaOffsetsInitializer) -> None:
        for cluster, for_what, by, tps in self.asked:
            if cluster == name and for_what == purpose and by == initializer:
                tps.append(tp)
                return
        self.asked.append((name, purpose, initializer, [tp]))
