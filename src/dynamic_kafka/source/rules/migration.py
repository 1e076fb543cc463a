"""The rules for moving positions to a cluster that continues another one (`continues` in the metadata). Pure.

`migrate` runs after `identify` and before the rules of `reconcile`. A position is in one place only: it leaves the old
cluster's part of the document in the same document in which the new cluster's part gets it. So a replay needs nothing else.

==================================================  =====================================================================
situation                                           rule
==================================================  =====================================================================
the metadata still names the old topic              the old one is read; the new one waits, ready to take over. The document
                                                    keeps marks meanwhile (the last records before each position),
                                                    and an anchor: how far both logs were compared, and are the same
the old topic is not named any more                 it is drained, whatever `drain-on-removal` says. Its positions are held
                                                    until they have moved, also if it was removed before and is retained
it is drained, or its cluster counts as inactive    the new position of each partition is asked for, with the evidence
the answer is good enough                           the position moves, and the guarantee is said
there is no good answer                             the partition waits, with words; it is asked for again
the new cluster or topic does not show itself       the partitions wait
another number of partitions                        they wait, with words: a record may be in another partition
the document has no position of the old topic, or   nothing is to be continued: the usual rules, as for any new topic
it was made again, so that its positions are gone
it does not know the old cluster, or `topics`       the name may be wrong: it waits, except at a first start
names a topic that it does not have
the old cluster itself still continues another one  its successor waits for it; list it again until it has moved
`continues` is taken away before positions moved    it holds until they have, or until the old topic is named again
positions on the new cluster from earlier           they give way, because reading went on elsewhere since (fail-back).
                                                    The anchor of the first move says what was read there
==================================================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dynamic_kafka.continuation import Continues, continues_from_json
from dynamic_kafka.errors import listed
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.evidence import Marks, MoveRequest, Placement
from dynamic_kafka.source.document.offsets import ClusterOffsets
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, Event, Move
from dynamic_kafka.source.rules.placement import way_back

__all__ = ["Migration", "add_marks", "migrate", "unmarked"]

_SHOWN = 20


@dataclass(slots=True)
class Migration:
    """What the rules find.

    Args:
        clusters: The last document's clusters, with the positions that move in their new places.
        leaving: Cluster to the topics that are drained and held, because another cluster continues them.
        waiting: Cluster to the topics that wait for positions of another cluster.
        standby: Cluster to the topics that another cluster is ready to continue.
        standing_by: Cluster to the topics that wait because they are still read on another one.
        moves: The moves that are done or under way.
        comparisons: The positions that have a copy on a cluster which stands by.
        resets: Cluster to the partitions that do not go on at their own retained positions.
        events: The messages.
        kept: The clusters without topics that stay in the document, because others wait for them.
        changed: True if the set of positions changed.
    """

    clusters: dict[str, ClusterOffsets]
    leaving: dict[str, set[str]] = field(default_factory=dict)
    waiting: dict[str, set[str]] = field(default_factory=dict)
    standby: dict[str, set[str]] = field(default_factory=dict)
    standing_by: dict[str, set[str]] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    comparisons: list[MoveRequest] = field(default_factory=list)
    resets: dict[str, set[KafkaTopicPartition]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    changed: bool = False


def migrate(
    before: Mapping[str, ClusterOffsets],
    desired: Mapping[str, DesiredCluster],
    views: Mapping[str, ClusterView],
    *,
    quiet: Collection[tuple[str, str]],
    inactive: Collection[str],
    answers: Mapping[MoveRequest, Placement],
) -> Migration:
    """Apply the rules above once.

    Args:
        before: The last document's clusters, under today's names.
        desired: The desired clusters.
        views: The clusters that answered.
        quiet: (cluster, topic) of draining topics that received no records for long enough.
        inactive: The clusters that count as inactive.
        answers: The answers to the requests.
    """
    found = Migration(dict(before))
    for new, wanted in sorted(desired.items()):
        continues = _said(new, before, desired)
        if continues is not None:
            step = _Step(found, new, continues, desired, views, answers, first_start=not before)
            for topic in sorted(wanted.topics):
                step.topic(topic, quiet, inactive)
    return found


def _said(name: str, before: Mapping[str, ClusterOffsets], desired: Mapping[str, DesiredCluster]) -> Continues | None:
    """Return what a cluster continues, by the metadata or, as long as the other is not named again, by the document."""
    if name in desired and desired[name].continues is not None:
        return desired[name].continues
    state = before.get(name)
    if state is None or state.continues is None:
        return None
    said = continues_from_json(state.continues)
    return None if said.cluster in desired and desired[said.cluster].topics else said


@dataclass(slots=True)
class _Step:
    """The rules for one cluster that continues another."""

    found: Migration
    new: str
    continues: Continues
    desired: Mapping[str, DesiredCluster]
    views: Mapping[str, ClusterView]
    answers: Mapping[MoveRequest, Placement]
    first_start: bool

    def topic(self, topic: str, quiet: Collection[tuple[str, str]], inactive: Collection[str]) -> None:
        """Apply the rules to a topic of the new cluster."""
        old, old_topic = self.continues.cluster, self.continues.old_topic(topic)
        if old_topic is None:
            return
        waits = f"Cluster '{self.new}', topic '{topic}' waits to continue '{old_topic}' of cluster '{old}'"
        state = self.found.clusters.get(old)
        if self._waits_itself(old, old_topic):
            self.found.leaving.setdefault(old, set()).add(old_topic)
            self._wait(topic, f"{waits}, which still waits itself; list '{old}' in the metadata until it has moved")
            return
        if old in self.desired and old_topic in self.desired[old].topics:
            self._stand_by(topic, old, old_topic, waits)
            return
        if state is None or (old_topic not in state.topics and old_topic not in state.retained):
            self._check_known(topic, waits)
            return
        tps = _returned(state, old_topic).partitions_by_topic().get(old_topic, [])
        target = self.found.clusters.get(self.new)
        if not tps:
            self._say(
                f"Cluster '{self.new}', topic '{topic}' does not continue '{old_topic}' of cluster '{old}': that was made "
                "again, and its positions are gone. It is read from the starting offsets"
            )
            return
        if target is not None and any((topic, tp.partition) in target.ranges for tp in tps):
            self._say(f"Cluster '{self.new}', topic '{topic}' has positions of its own: it does not continue '{old}'")
            return
        if old_topic not in state.topics:
            state, self.found.changed = _returned(state, old_topic), True
            self.found.clusters[old] = state
        self.found.leaving.setdefault(old, set()).add(old_topic)
        self._wait(topic)
        view = self.views.get(old)
        gone = (view is None and old in inactive) or (view is not None and old_topic in view.missing)
        at_stops = all(tp in state.stops and state.ranges[tp][1] >= state.stops[tp] for tp in tps if tp in state.ranges)
        drained = view is not None and ((old, old_topic) in quiet or (at_stops and old_topic in state.draining))
        if not gone and not drained:
            why = "is read to its end first" if view is not None else "may still answer"
            self._say(f"{waits}, which {why}", "info")
            return
        self._move(topic, old_topic, tps, waits, readable=drained)

    def _check_known(self, topic: str, waits: str) -> None:
        """Let a topic wait that was said to continue what the document does not know: the name may be wrong."""
        target = self.found.clusters.get(self.new)
        if self.first_start or (target is not None and topic in target.topics):
            return
        if self.continues.cluster not in self.found.clusters:
            unknown = target is None or not (target.discovered or target.topics)
            if not unknown:  # it may have moved long ago, and left the document
                self._say(
                    f"Cluster '{self.new}', topic '{topic}' is new, and the checkpoint does not know cluster "
                    f"'{self.continues.cluster}', which it is said to continue: it is read from the starting offsets"
                )
            what = f"which the checkpoint does not know; it has {listed(sorted(self.found.clusters), 5)}"
        else:
            unknown = bool(self.continues.topics)
            what = "of which the checkpoint has no position"
        if unknown and self.continues.guarantee != "unproved":
            self._wait(
                topic, f"{waits}, {what}. Correct `continues`, or take it away to read from the starting offsets"
            )

    def _stand_by(self, topic: str, old: str, old_topic: str, waits: str) -> None:
        """Wait while the metadata names the topic on both clusters, of which one is a copy of the other."""
        state, reads = self.found.clusters.get(old), self.found.clusters.get(self.new)
        if reads is None or topic not in reads.topics:
            self.found.standby.setdefault(old, set()).add(old_topic)
            self.found.standing_by.setdefault(self.new, set()).add(topic)
            self._wait(topic)
            self._say(f"{waits}, which the metadata still names there: it stands by", "info")
            view = self.views.get(self.new)
            if state is not None and view is not None and topic in view.topics:
                tps = state.partitions_by_topic().get(old_topic, [])
                copied = [tp for tp in tps if tp in state.ranges and tp.partition < view.partitions[topic]]
                self.found.comparisons += [self._request(topic, tp, state, view, readable=True) for tp in copied]
            return
        read = [] if state is None else state.partitions_by_topic().get(old_topic, [])
        if any((topic, tp.partition) in reads.ranges for tp in read):
            return  # both were read before `continues` was said
        if read:
            self._wait(topic)  # some partitions have moved, the others go on where they are
        self.found.waiting.setdefault(old, set()).add(old_topic)
        self._say(
            f"Cluster '{old}', topic '{old_topic}' is named again, but cluster '{self.new}' continues it: what is not read "
            f"there already is not read. To go back, let '{old}' continue '{self.new}'"
        )

    def _waits_itself(self, old: str, old_topic: str) -> bool:
        """Return whether the old cluster has no position of the topic yet, because it continues another one."""
        earlier = _said(old, self.found.clusters, self.desired)
        if earlier is None or earlier.cluster == self.new:
            return False
        before, its_topic = self.found.clusters.get(earlier.cluster), earlier.old_topic(old_topic)
        if before is None or its_topic is None or not (its_topic in before.topics or its_topic in before.retained):
            return False
        if earlier.cluster not in self.desired or its_topic not in self.desired[earlier.cluster].topics:
            self.found.leaving.setdefault(earlier.cluster, set()).add(its_topic)
        self.found.kept.add(old)
        return True

    def _move(
        self, topic: str, old_topic: str, tps: Collection[KafkaTopicPartition], waits: str, *, readable: bool
    ) -> None:
        old, state, view = self.continues.cluster, self.found.clusters[self.continues.cluster], self.views.get(self.new)
        if view is None or topic not in view.topics:
            self._say(f"{waits}: it does not exist (yet)" if view is not None else f"{waits}: it does not answer")
            return
        count = len(tps) if not readable else self.views[old].partitions.get(old_topic, len(tps))
        target = self.found.clusters.get(self.new)
        moved = 0 if target is None else sum(tp.topic == topic for tp in target.ranges)
        if view.partitions[topic] != max(count, len(tps) + moved):
            self._say(
                f"{waits}: it has {view.partitions[topic]} partitions and the other {max(count, len(tps) + moved)}, so a "
                "record may be in another partition. Give it as many, or take `continues` away and set startingOffsets"
            )
            return
        found: list[Move] = []
        for tp in tps:
            if tp not in state.ranges:
                self._say(f"{waits}: partition {tp.partition} there has no position yet")
                continue
            request = self._request(topic, tp, state, view, readable=readable)
            answer = self.answers.get(request)
            good = answer is not None and answer.position is not None and self.continues.allows(answer.guarantee)
            found.append(Move(request, answer, good))
            if answer is not None and not good:
                self._say(f"{waits}, partition {tp.partition} at offset {request.position}: {self._refused(answer)}")
        # Together, in one document: after each change of its partitions a topic has to be quiet again.
        if any(move.placement is None for move in found):
            found = [move._replace(done=False) for move in found]
        self.found.moves += found
        if done := [move for move in found if move.done]:
            self._apply(topic, old_topic, view, done)

    def _request(
        self, topic: str, tp: KafkaTopicPartition, state: ClusterOffsets, view: ClusterView, *, readable: bool
    ) -> MoveRequest:
        """Return the question where a position is."""
        target = self.found.clusters.get(self.new)
        kept = target.retained.get(topic) if target is not None else None
        read_to = kept.offsets.get(tp.partition, 0) if kept is not None and kept.topic_id == view.topics[topic] else 0
        there = view.kafka_id, view.topics[topic]
        anchor = state.anchors.get(tp)
        return MoveRequest(
            self.new,
            KafkaTopicPartition(topic, tp.partition),
            self.continues.cluster,
            tp,
            state.ranges[tp][1],
            self.continues.by,
            self.continues.offset_syncs,
            readable,
            state.marks.get(tp, ()),
            *there,
            anchor if anchor is not None and anchor[:2] == there else None,
            read_to,
        )

    def _refused(self, answer: Placement) -> str:
        if answer.position is None:
            return answer.evidence
        what = f"offset {answer.position} would be {_promise(answer)} ({answer.evidence})"
        return f"{what}. To go on there, set `guarantee: {answer.guarantee}` in `continues`"

    def _apply(self, topic: str, old_topic: str, view: ClusterView, done: list[Move]) -> None:
        old, new = self.continues.cluster, self.new
        source = self.found.clusters[old]
        target = self.found.clusters.get(new, ClusterOffsets(kafka_id=view.kafka_id))
        ranges = {move.request.partition: _at(move) for move in done}
        left_there = source.kafka_id, source.topics[old_topic]
        anchors = {
            move.request.partition: way_back(move.request, move.placement, *left_there)
            for move in done
            if move.placement is not None
        }
        if topic in target.retained:
            self.found.resets.setdefault(new, set()).update(ranges)
        self.found.clusters[new] = replace(
            target,
            topics={**target.topics, topic: view.topics[topic]},
            ranges=target.ranges | ranges,
            anchors=target.anchors | anchors,
            retained={name: kept for name, kept in target.retained.items() if name != topic},
        )
        gone = {move.request.old_partition for move in done}
        left = replace(
            source,
            topics=dict(source.topics),
            ranges={tp: span for tp, span in source.ranges.items() if tp not in gone},
            stops={tp: stop for tp, stop in source.stops.items() if tp not in gone},
            marks={tp: marks for tp, marks in source.marks.items() if tp not in gone},
            anchors={tp: anchor for tp, anchor in source.anchors.items() if tp not in gone},
            draining=set(source.draining),
        )
        if old_topic not in left.partitions_by_topic():
            del left.topics[old_topic]
            left.draining.discard(old_topic)
            self.found.leaving[old].discard(old_topic)
            self.found.waiting[new].discard(topic)
        self.found.clusters[old], self.found.changed = left, True
        parts = listed((_shown(move) for move in done), _SHOWN)
        where = f"Cluster '{new}', topic '{topic}' continues '{old_topic}' of cluster '{old}'"
        worst = any(move.placement is not None and move.placement.guarantee != "exact" for move in done)
        self.found.events.append(Event("warning" if worst else "info", f"{where}: {parts}"))

    def _wait(self, topic: str, text: str = "") -> None:
        self.found.waiting.setdefault(self.new, set()).add(topic)
        if text:
            self._say(text)

    def _say(self, text: str, level: Literal["info", "warning"] = "warning") -> None:
        self.found.events.append(Event(level, text))


def _at(move: Move) -> tuple[int, int]:
    assert move.placement is not None
    assert move.placement.position is not None
    return move.placement.position, move.placement.position


def _shown(move: Move) -> str:
    assert move.placement is not None
    return (
        f"partition {move.request.partition.partition} at offset {move.placement.position} (was {move.request.position}), "
        f"{_promise(move.placement)}: {move.placement.evidence}"
    )


def _promise(placement: Placement) -> str:
    if placement.guarantee == "exact":
        return "exact"
    if placement.guarantee == "unproved":
        return "unproved"
    if placement.overlap is None:
        return "at-least-once, with an unknown number of records again"
    return f"at-least-once, with up to {placement.overlap} records again"


def _returned(state: ClusterOffsets, topic: str) -> ClusterOffsets:
    """Return the state with the positions of a topic that was removed before, so that it is drained and moves."""
    kept = state.retained.get(topic)
    if kept is None or topic in state.topics:
        return state
    positions = {KafkaTopicPartition(topic, number): (offset, offset) for number, offset in kept.offsets.items()}
    return replace(
        state,
        topics={**state.topics, topic: kept.topic_id},
        ranges=state.ranges | positions,
        draining={*state.draining, topic},
        retained={name: other for name, other in state.retained.items() if name != topic},
    )


# --- marks ----------------------------------------------------------------------------------------------------------------
# A partition keeps the newest marks, and while its batch has records also the newest ones up to the start of the batch: a
# batch that is never finished moves from there. Marks say up to which offset they are complete, so older ones are true too.
# Those of an offset after the batch are left out: the position went back, and the records may be others now.


def add_marks(state: ClusterOffsets, tp: KafkaTopicPartition, found: Marks) -> bool:
    """Keep marks of a partition, which must not go beyond its range. Return whether something changed."""
    kept = state.marks.get(tp, ())
    if not found.records:  # older ones say more
        return False
    start, end = state.ranges[tp]
    known = sorted([*(marks for marks in kept if marks.until <= end and marks.until != found.until), found])
    newest = known[-1]
    oldest = max((marks for marks in known if marks.until <= start), default=newest)
    state.marks[tp] = tuple(dict.fromkeys((oldest, newest)))
    return state.marks[tp] != kept


def unmarked(state: ClusterOffsets, topics: Collection[str]) -> list[KafkaTopicPartition]:
    """Return the partitions of topics that have a position, and no marks that reach it."""
    return [
        tp
        for tp, (_, end) in sorted(state.ranges.items())
        if tp.topic in topics and end > 0 and not any(marks.until == end for marks in state.marks.get(tp, ()))
    ]
