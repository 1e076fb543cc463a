"""The rules for what to read next when clusters, topics and partitions appear, stay, disappear or return. Pure.

`reconcile` takes the last document, the clusters that the metadata desires, and a view of each reachable cluster. It returns
the next document with all positions and no ranges yet (`admission` opens the ranges). If a position needs an offset from
a cluster, it returns an `OffsetRequest`. The caller gets the answer and calls again; meanwhile that partition waits.

No answer is not an answer. A view may be late or partial, and a cluster may have none. What a view does not show is
unknown, and what is unknown waits: nothing is removed, drained, given a stop or called deleted because of it.

==================================================  =====================================================================
situation                                           rule
==================================================  =====================================================================
first start                                         the cluster's own starting offsets, else the global ones
cluster found later                                 its own starting offsets, else earliest; `committed` without a
                                                    committed offset is earliest and does not stop the query; `latest`
                                                    means the time when the metadata named it, if it answers only later
cluster not reachable at the first start            it is discovered once it is reachable; `latest` then means the time
                                                    of the first start, so that records since then are read
partition without a leader at the first discovery   the same, for that partition
listed topic unknown at the first discovery         the same, for that topic, until it is known to be missing
new topic or partition on a known cluster           earliest
a strict start time, looked up after the start      a partition without a later record starts at its end, without an error
listed topic is missing                             a warning; earliest once it exists
topic that the user may not see                     a warning; its positions wait
topic removed, or its cluster                       cut, with a warning that counts the unread records, and its positions
                                                    are retained; or drained first. It waits for a view or, of a cluster
                                                    that is gone, until it counts as inactive
draining topic                                      read until quiet (the caller decides), or up to the ends it had when
                                                    the metadata called its cluster inactive (they become its stops)
topic missing that was read                         data loss if records are or may be left unread: an error, or cut with
                                                    their count if the user tolerates it
returns within retention, same topic id             continues at the retained position
retention is over                                   dropped, but only after an answer that still does not name it
topic id changed                                    data loss: an error, or earliest if the user tolerates it
topic id unknown to this broker                     not a change: brokers before 2.8 have none
end moved backwards, and stayed there               data loss: an error, or the lowest end seen if the user tolerates it
stopping offsets are given, changed or taken away   stops that the old option made are dropped, and new ones are asked for
==================================================  =====================================================================

A position only ever comes from the last document, from a retained position, or from the answer to an `OffsetRequest`.
`identity` says first which cluster of the document is which cluster of the metadata, and then `migration` which positions
move to a cluster that continues another one. No position is forgotten before that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache

from dynamic_kafka.continuation import continues_to_json
from dynamic_kafka.errors import DataLossError, may_not
from dynamic_kafka.initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    PartitionTimestamps,
    initializer_to_json,
    topic_partition,
)
from dynamic_kafka.source.document.collector import without_collector
from dynamic_kafka.source.document.offsets import ClusterOffsets, Cursor, Document, RetainedTopic
from dynamic_kafka.source.rules.identity import identify
from dynamic_kafka.source.rules.migration import Migration, migrate
from dynamic_kafka.source.rules.model import (
    ClusterView,
    DesiredCluster,
    Event,
    OffsetAnswers,
    OffsetRequest,
    Purpose,
    ReadPolicy,
    SourceSnapshot,
    Unread,
)

__all__ = ["Reconciled", "reconcile"]


_EARLIEST = KafkaOffsetsInitializer.earliest()
_LATEST = KafkaOffsetsInitializer.latest()
_COMMITTED = KafkaOffsetsInitializer.committed_offsets()
_COMMITTED_OR_EARLIEST = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)


@dataclass(slots=True)
class Reconciled:
    """The next document, and what it needs and tells.

    Args:
        document: The next document, without ranges.
        views: The views of the document's clusters, without those of a name that waits.
        requests: The open requests.
        events: The messages for the log and for `lastProgress`.
        changed: True if the set of positions changed.
        moving: What goes on from other clusters, or waits to.
    """

    document: Document
    views: Mapping[str, ClusterView]
    requests: list[OffsetRequest]
    events: list[Event]
    changed: bool
    moving: Migration


@without_collector
def reconcile(
    previous: Document | None, seen: SourceSnapshot, policy: ReadPolicy, answers: OffsetAnswers, now_ms: int
) -> Reconciled:
    """Apply the rules above once.

    Args:
        previous: The last document; None on a first start.
        seen: The metadata and the clusters now.
        policy: The user's settings.
        answers: The answers to the requests of earlier calls in this process.
        now_ms: Wall-clock time, for positions that become retained or unresolved now.

    Raises:
        CheckpointError: If a cluster id leads to another Kafka cluster, and the old one has no cluster id any more.
        DataLossError: If records were lost and `policy.fail_on_data_loss` is set.
    """
    step = _Reconciliation(policy, answers, now_ms, fresh=seen.fresh, first_start=previous is None)
    known = identify(previous, seen.desired, seen.views, step.is_over)
    desired, views, inactive = known.desired, known.views, {*seen.inactive, *known.gone}
    moving = step.moving = migrate(
        known.clusters, desired, views, quiet=seen.quiet, inactive=inactive, answers=answers.moves
    )
    before = moving.clusters
    step.all_seen = desired.keys() <= views.keys()
    step.changed = known.moved or moving.changed
    step.events = [*known.events, *moving.events]
    quiet_topics: dict[str, set[str]] = {}
    for name, topic in seen.quiet:
        quiet_topics.setdefault(name, set()).add(topic)
    lowest_ends: dict[str, dict[KafkaTopicPartition, int]] = {}
    for (name, tp), end in seen.regressed.items():
        lowest_ends.setdefault(name, {})[tp] = end
    clusters: dict[str, ClusterOffsets] = {}
    for name in sorted({*before, *desired}):
        held = name in known.held
        state = step.cluster(
            name,
            before.get(name),
            desired.get(name) if not held else None,
            views.get(name),
            held=held,
            inactive=name in inactive,
            quiet=quiet_topics.get(name, ()),
            regressed=lowest_ends.get(name, {}),
        )
        if state.topics or state.retained or name in desired or name in moving.kept:
            clusters[name] = state
    if previous is not None and seen.fresh:
        for stream in sorted(set(previous.streams) - set(seen.streams)):
            step.events.append(Event("warning", f"Stream '{stream}' is no longer described by the metadata service"))
    document = Document(
        streams={s: _topics_of_stream(parts, desired, clusters) for s, parts in seen.streams.items()},
        clusters=clusters,
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
    answered = {name for name, c in before.items() if done_before and c.discovered}
    answered |= {
        name
        for name in views.keys() & desired
        if desired[name].topics - moving.standing_by.get(name, set())
        <= clusters[name].topics.keys() | views[name].missing
    }
    document.done = max(1, done_before) if not requests and _is_done(document, desired, answered, policy) else 0
    changed = step.changed or previous is None or document.done != done_before
    return Reconciled(document, views, requests, step.events, changed, moving)


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
        self.events: list[Event]  # these as `identify` and `migrate` have found
        self.all_seen: bool
        self.changed: bool
        self.moving: Migration

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
        regressed: Mapping[KafkaTopicPartition, int],
    ) -> ClusterOffsets:
        state = self._carried_over(before)
        if desired is not None:
            state.properties = dict(desired.properties)
            state.starting = initializer_to_json(desired.starting)
            if desired.continues is not None or name not in self.moving.waiting:
                state.continues = continues_to_json(desired.continues)
            self._handle_stopping(name, state, desired.stopping or self.policy.stopping)
        wanted = desired.topics if desired is not None else frozenset()
        if view is not None:
            state.kafka_id = view.kafka_id or state.kafka_id
            self._handle_lost(name, state, view, regressed)
            self._handle_deleted(name, state, wanted, view)
        if not held:
            self._remove(name, state, desired, view, inactive=inactive, quiet=quiet)
            state.unseen = {topic: since for topic, since in state.unseen.items() if topic in wanted}
        if desired is not None:
            if view is not None:
                self._add(name, state, desired, view)
            bound_to_now = self.first_start or desired.starting == _LATEST
            if bound_to_now and not state.discovered and state.since_ms is None:
                state.since_ms = self.now_ms
                self.changed = True
        self._expire(name, state, desired)
        marked = {*self.moving.standby.get(name, ()), *self.moving.leaving.get(name, ())}
        state.marks = {tp: marks for tp, marks in state.marks.items() if tp.topic in marked}
        if before is not None:
            state.resets = frozenset(
                tp
                for tp, (position, _) in state.ranges.items()
                if tp in before.ranges and before.ranges[tp][1] != position
            ) | frozenset(self.moving.resets.get(name, ()))
        return state

    def _carried_over(self, before: ClusterOffsets | None) -> ClusterOffsets:
        """Return the last state with every range closed at its end."""
        if before is None:
            return ClusterOffsets()
        return before.copied(ranges={tp: (end, end) for tp, (_, end) in before.ranges.items()})

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

    def is_over(self, retained: RetainedTopic) -> bool:
        """Return whether the time is over for which positions are retained."""
        return self.now_ms - retained.since_ms >= self.policy.retention_ms

    # --- data loss ---

    def _handle_lost(
        self, name: str, state: ClusterOffsets, view: ClusterView, regressed: Mapping[KafkaTopicPartition, int]
    ) -> None:
        partitions = cache(state.partitions_by_topic)  # for the few topics that need it
        for topic, known in state.topics.items():
            now = view.topics.get(topic) or known  # a broker before 2.8 has no topic ids
            state.topics[topic] = now  # an imported checkpoint has no topic ids: the first one seen is adopted
            if not known or now == known:
                continue
            tps = partitions().get(topic, [])
            read = [tp for tp in tps if tp in state.ranges]
            self._lost(name, state, read, view, f"the topic was recreated (topic id {known} is now {now})")
            state.forget(tps)  # added again below, as partitions of a new topic: from the earliest offset
            self.changed = True
        for tp in sorted(regressed.keys() & state.ranges.keys()):
            lowest, position = regressed[tp], state.ranges[tp][1]
            # The log may have grown since. From its lowest end on, its records are new.
            if lowest < position:
                reason = f"the log was truncated: it ended at offset {lowest}, below the position {position}"
                self._lost(name, state, [tp], view, reason)
                state.ranges[tp] = (lowest, lowest)
                state.forget_copies([tp])
                self.changed = True

    def _handle_deleted(self, name: str, state: ClusterOffsets, wanted: Collection[str], view: ClusterView) -> None:
        partitions = cache(state.partitions_by_topic)
        for topic in sorted(state.topics.keys() & view.missing & set(wanted)):
            tps = partitions().get(topic, [])
            unread = Unread.of(tps, state, view)
            if unread.some:
                left = [tp for tp in tps if Unread.of([tp], state, view).some]
                self._fail_if_lost(name, state, left, view, f"the topic was deleted; {unread} records are left unread")
            self._cut(name, state, topic, tps, unread, verb="deleted")

    def _fail_if_lost(
        self, name: str, state: ClusterOffsets, tps: list[KafkaTopicPartition], view: ClusterView, reason: str
    ) -> None:
        if self.policy.fail_on_data_loss and tps:
            topic, partition = tps[0]
            position = state.ranges[tps[0]][1] if tps[0] in state.ranges else 0
            end = view.ends.get(tps[0], view.last_ends.get(tps[0], position))
            raise DataLossError(
                reason, cluster_id=name, topic=topic, partition=partition, start=position, end=max(position, end)
            )

    def _lost(
        self, name: str, state: ClusterOffsets, tps: list[KafkaTopicPartition], view: ClusterView, reason: str
    ) -> None:
        self._fail_if_lost(name, state, tps, view, reason)
        for topic, partition in tps:
            where = f"Cluster '{name}', topic '{topic}', partition {partition}"
            known = state.ranges.get(KafkaTopicPartition(topic, partition))
            which = "" if known is None else f" from offset {known[1]} on"
            self.events.append(Event("warning", f"{where}: {reason}; continuing without the lost records{which}"))

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
        leaving = self.moving.leaving.get(name, ())
        partitions = cache(state.partitions_by_topic)
        for topic in sorted(state.topics):
            if topic in kept:
                if topic in state.draining:
                    state.draining.remove(topic)
                    # Else they are stops of the user.
                    if desired is None or (desired.stopping or self.policy.stopping) is None:
                        for tp in partitions().get(topic, ()):
                            state.stops.pop(tp, None)
                    self.changed = True
                    self.events.append(Event("info", f"Cluster '{name}', topic '{topic}' is back while it is draining"))
                continue
            if view is None and (topic in leaving or not inactive):
                continue
            drain = self.policy.drain or topic in leaving
            tps = partitions().get(topic, [])
            read = [tp for tp in tps if tp in state.ranges]
            unread = Unread.of(tps, state, view)
            gone = view is None or topic in view.missing
            if drain and topic not in state.draining and not gone:
                state.draining.add(topic)
                self.changed = True
                self.events.append(
                    Event("info", f"Cluster '{name}', topic '{topic}' was removed; draining {unread} records")
                )
            if topic in state.draining and inactive and view is not None:
                for tp in (set(read) & view.ends.keys()) - state.stops.keys():
                    state.stops[tp] = max(state.ranges[tp][1], view.ends[tp])
                    self.changed = True
            at_stops = all(s in state.stops and state.ranges[s][1] >= state.stops[s] for s in read)
            if topic in leaving or (drain and topic in state.draining and not (at_stops or topic in quiet or gone)):
                continue
            verb = "drained" if topic in state.draining and not unread.some else "removed"
            self._cut(name, state, topic, tps, unread, verb=verb)

    def _cut(
        self,
        name: str,
        state: ClusterOffsets,
        topic: str,
        tps: list[KafkaTopicPartition],
        unread: Unread,
        *,
        verb: str,
    ) -> None:
        if self.policy.retention_ms > 0 or not self.all_seen:  # a cluster that has not answered may be this one
            positions = {tp.partition: state.ranges[tp][1] for tp in tps if tp in state.ranges}
            state.retained[topic] = RetainedTopic(state.topics[topic], self.now_ms, positions)
        state.forget(tps)
        state.draining.discard(topic)
        del state.topics[topic]
        self.changed = True
        text = f"Cluster '{name}', topic '{topic}' was {verb}; {unread} records are left unread"
        self.events.append(Event("warning" if unread.some else "info", text))

    def _expire(self, name: str, state: ClusterOffsets, desired: DesiredCluster | None) -> None:
        if not self.fresh or not self.all_seen:
            return
        kept = desired.topics if desired is not None else frozenset()
        for topic, retained in list(state.retained.items()):
            if topic not in kept and self.is_over(retained):
                del state.retained[topic]
                self.changed = True  # written down now: while the query idles, no later batch would forget them
                self.events.append(Event("info", f"Cluster '{name}', topic '{topic}': its retained positions expired"))

    # --- addition ---

    def _add(self, name: str, state: ClusterOffsets, desired: DesiredCluster, view: ClusterView) -> None:
        initial = self._initial_initializer(state, desired)
        waiting: set[str] = set()
        for topic, partition in sorted(desired.partitions or ()):
            if topic in view.partitions and partition >= view.partitions[topic]:
                where = f"Cluster '{name}', topic '{topic}', partition {partition}"
                text = f"{where} does not exist yet; it will be read from the earliest offset once created"
                self.events.append(Event("warning", text))
        for topic in sorted(desired.topics):
            if topic in self.moving.waiting.get(name, ()):
                waiting.add(topic)
                continue
            if topic not in view.topics:
                self._note_absence(name, state, topic, desired, view)
                continue
            state.topics.setdefault(topic, view.topics[topic])
            retained = self._take_retained(name, state, topic)
            for partition in range(view.partitions[topic]):
                tp = topic_partition((topic, partition))
                if tp in state.ranges or (desired.partitions is not None and tp not in desired.partitions):
                    continue
                position = retained.get(partition)
                if position is None and tp not in view.ends:
                    if not state.discovered or topic in state.unseen:  # no leader at the first discovery
                        state.unresolved.setdefault(tp, state.unseen.get(topic, self._found_at(state, desired)))
                    continue
                if position is None:
                    since_ms = state.unresolved.get(tp, state.unseen.get(topic))
                    if since_ms is not None:
                        initializer = self._since(desired, since_ms)
                    else:
                        initializer = _EARLIEST if state.discovered else initial
                    position = self._answer(name, "start", tp, initializer)
                if position is None:
                    waiting.add(topic)
                    continue
                state.ranges[tp] = (position, position)
                state.unresolved.pop(tp, None)
                self.changed = True
            if topic in state.unseen and topic not in waiting:
                del state.unseen[topic]
                self.changed = True
        self._resolve_stops(name, state, desired, view)
        if not state.discovered and not waiting:
            state.discovered, state.since_ms = True, None
            self.changed = True

    def _note_absence(
        self, name: str, state: ClusterOffsets, topic: str, desired: DesiredCluster, view: ClusterView
    ) -> None:
        where = f"Cluster '{name}', topic '{topic}'"
        if topic in view.missing:
            text = f"{where} does not exist yet; it will be read from the earliest offset once created"
            self.events.append(Event("warning", text))
            if state.unseen.pop(topic, None) is not None:
                self.changed = True
            return
        if topic in view.denied:
            why = may_not(view.user, ["Describe", "Read"], "topic", topic)
            text = f"{where} is not visible to this user, and is not read until it is: {why}"
            self.events.append(Event("warning", text))
        if not state.discovered:  # also if it was seen: offsets of it may be missing
            state.unseen.setdefault(topic, self._found_at(state, desired))

    def _found_at(self, state: ClusterOffsets, desired: DesiredCluster) -> int:
        """Return the time that `latest` is bound to for what the first discovery does not show; 0 if to none."""
        bound_to_now = self.first_start or desired.starting == _LATEST
        return state.since_ms or (self.now_ms if bound_to_now else 0)

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
            if isinstance(starting, PartitionTimestamps):  # a running query does not end because it has to wait
                return replace(starting, strict=False)
            return KafkaOffsetsInitializer.timestamp(since_ms) if starting == _LATEST else starting
        own = desired.starting or _EARLIEST
        return _COMMITTED_OR_EARLIEST if own == _COMMITTED else own

    def _resolve_stops(self, name: str, state: ClusterOffsets, desired: DesiredCluster, view: ClusterView) -> None:
        stopping = desired.stopping or self.policy.stopping
        if stopping is None:
            return
        for tp in state.ranges:
            if tp not in state.stops and tp in view.ends:
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
