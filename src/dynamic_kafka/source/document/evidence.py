"""What is known about a position on a cluster: the records next to it, from the log or from the marks of a document. Pure.

A record is known by its print: time, a hash of key and value, and a hash of the headers. What is known about a position is
the run of records just before it and, where the old cluster can be read, just after it. Where it cannot be read, it is the
marks in the offset document: the last records that were planned before the position. The records come from a `RecordLog`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

from dynamic_kafka.continuation import Guarantee, Way
from dynamic_kafka.initializer import KafkaTopicPartition

__all__ = [
    "MARKS",
    "Anchor",
    "Difference",
    "DifferenceKind",
    "Evidence",
    "Marks",
    "MoveRequest",
    "Placement",
    "RecordLog",
    "RecordPrint",
    "Sync",
    "anchors_of",
    "anchors_text",
    "evidence_around",
    "marks_of",
    "marks_text",
]

DifferenceKind = Literal["only new", "only old", "before", "again", "moved"]

MARKS = 6
"""The number of records of a partition that the offset document keeps."""
_AROUND = 32
_REACH = 2_000


class RecordPrint(NamedTuple):
    """What a record is recognized by: time in milliseconds, hash of key and value, hash of the headers."""

    offset: int
    time_ms: int
    content: str
    headers: str

    def same(self, other: RecordPrint, *, headers: bool = False) -> bool:
        """Return whether two records are the same, wherever they are. Some mirrors add headers."""
        return self[1:3] == other[1:3] and (not headers or self.headers == other.headers)


class Marks(NamedTuple):
    """The last records before an offset: between the first of them and `until` there is no other one."""

    until: int
    records: tuple[RecordPrint, ...]


class Sync(NamedTuple):
    """An offset sync of MirrorMaker: the record at `upstream` was copied to `downstream`."""

    upstream: int
    downstream: int


class Difference(NamedTuple):
    """Records that only one of two logs has at a place, and their offsets.

    Attributes:
        kind: `only new` and `only old`: only that log has them there. `before`: the new log has them before the first
            record that was compared. `again`: the new log has them a second time. `moved`: both have them, in another order.
        first: The offset of the first of them: on the old cluster for `only old`, else on the new one.
        last: The offset of the last of them. Others may be between.
        records: Their number.
    """

    kind: DifferenceKind
    first: int
    last: int
    records: int


class Anchor(NamedTuple):
    """A point at which two logs are known to agree: an offset on each. What is before it was compared, or read.

    Attributes:
        cluster: Kafka's own cluster.id of the other cluster.
        topic_id: The id of the topic there.
        old: The offset on the cluster that is read: its records before it are done.
        new: The offset on the other one that belongs to it.
        began_old: Where the comparison began on the one.
        began_new: Where it began on the other.
        records: The number of records that were compared, and are the same.
        newest_ms: The latest time of all records before it.
        floor: An offset on the other cluster. What it has from there to `new` is what was compared.
        floor_ms: The latest time of the records before `floor`; less than any time if there never was one.
        until: The records of the cluster that is read are counted from `old` to here. The other one may not have them yet.
        ahead: Their number.
        digest: A hash of them in their order.
        besides: What differs before it.
    """

    cluster: str
    topic_id: str
    old: int
    new: int
    began_old: int
    began_new: int
    records: int
    newest_ms: int
    floor: int
    floor_ms: int
    until: int
    ahead: int = 0
    digest: str = ""
    besides: tuple[Difference, ...] = ()


class MoveRequest(NamedTuple):
    """The question where a position is on another cluster.

    Attributes:
        cluster: The new cluster.
        partition: The partition there.
        old_cluster: The cluster that the position is on.
        old_partition: The partition there.
        position: The position.
        by: How it is translated.
        offset_syncs: The topic with MirrorMaker's offset syncs; "" for its usual names.
        readable: Whether the old cluster answers.
        marks: The last records before the position, in case that it does not.
        kafka_id: Kafka's own cluster.id of the new cluster; "" if unknown.
        topic_id: The id of the topic there; "" if unknown.
        anchor: Where both logs are known to agree; None if nowhere.
        read_to: The query has read the new log up to this offset, at an earlier time.
    """

    cluster: str
    partition: KafkaTopicPartition
    old_cluster: str
    old_partition: KafkaTopicPartition
    position: int
    by: Way
    offset_syncs: str
    readable: bool
    marks: tuple[Marks, ...]
    kafka_id: str = ""
    topic_id: str = ""
    anchor: Anchor | None = None
    read_to: int = 0


class Placement(NamedTuple):
    """The answer.

    Attributes:
        position: The new position; None if it is not known.
        guarantee: What it promises.
        overlap: The number of records that are read again, or the largest number that it can be.
        evidence: What it rests on or, without a position, why there is none; a clause.
        anchor: How far both logs were compared, and what differs; None if they were not.
        besides: What the new log has before the position and was not read, or lacks, or has again.
        alone: Whether the records next to the position are at one place only. That is no proof of what is further back.
    """

    position: int | None
    guarantee: Guarantee
    overlap: int | None
    evidence: str
    anchor: Anchor | None = None
    besides: tuple[Difference, ...] = ()
    alone: bool = False


class RecordLog(Protocol):
    """The logs of a cluster. Each method raises `ClusterUnavailableError` if it does not answer."""

    def bounds(self, tp: KafkaTopicPartition) -> tuple[int, int]:
        """Return the start and the end of a log."""

    def offset_at(self, tp: KafkaTopicPartition, time_ms: int) -> int | None:
        """Return the first offset of a record that is not older; None if there is none."""

    def records(self, tp: KafkaTopicPartition, start: int, end: int) -> Iterator[RecordPrint]:
        """Yield the records with offsets in [start, end), in order."""

    def syncs(self, topic: str, of: KafkaTopicPartition) -> list[Sync] | None:
        """Return MirrorMaker's offset syncs of a partition in order; None if the topic does not exist."""


class Evidence(NamedTuple):
    """What is known about a position.

    Attributes:
        before: The records before it that are next to it, in order.
        behind: The records after it, in order.
        gap: The number of offsets between the last of `before` and the position of which nothing is known.
        cut_at: The end of the log, if that is before the position: it was truncated.
    """

    before: tuple[RecordPrint, ...]
    behind: tuple[RecordPrint, ...]
    gap: int
    cut_at: int | None = None


def evidence_around(
    log: RecordLog | None, tp: KafkaTopicPartition, position: int, marks: tuple[Marks, ...]
) -> Evidence:
    """Return what is known: from the log, or from the marks if it cannot be read or has lost what was before."""
    of_marks = _of_marks(position, marks)
    if log is None:
        return of_marks
    start, end = log.bounds(tp)
    if end < position:
        return of_marks._replace(cut_at=end)
    if start > position:  # retention has taken what was next to the position, also records that were not read
        return of_marks
    behind = tuple(islice(log.records(tp, position, end), _AROUND)) if end > position else ()
    before = _before(log, tp, position, start)
    if not before:
        return Evidence((), behind, 0) if of_marks.gap and behind else of_marks._replace(behind=behind)
    gap = position - before[-1].offset - 1
    if gap and of_marks.before and not of_marks.gap:
        if of_marks.before[-1].offset != before[-1].offset:
            return of_marks._replace(behind=behind)
        gap = 0
    # Compaction removes a record only if a later one replaces it. So with none behind, only markers were removed or hidden.
    # (Tombstones at the end of a log go too, with what they replaced: then marks are needed.)
    return Evidence(before, behind, gap if behind else 0)


def _of_marks(position: int, marks: Iterable[Marks]) -> Evidence:
    for until, records in sorted(marks, reverse=True):
        if before := tuple(record for record in records if record.offset < position):
            return Evidence(before, (), max(0, position - until))
    return Evidence((), (), 0)


def _before(log: RecordLog, tp: KafkaTopicPartition, position: int, start: int) -> tuple[RecordPrint, ...]:
    reach = _AROUND
    while True:  # markers of transactions and compaction leave offsets without a record
        first = max(start, position - reach)
        found = deque(log.records(tp, first, position), maxlen=_AROUND) if first < position else deque[RecordPrint]()
        if len(found) == _AROUND or first <= start or (found and reach > _REACH):
            return tuple(found)
        reach *= 8


# --- marks and anchors as text ----------------------------------------------------------------------------------------


def marks_text(marks: Mapping[KafkaTopicPartition, tuple[Marks, ...]]) -> dict[str, dict[str, list[list[Any]]]]:
    """Return the marks as a JSON value."""
    result: dict[str, dict[str, list[list[Any]]]] = {}
    for (topic, partition), runs in sorted(marks.items()):
        text = [[run.until, [list(record) for record in run.records]] for run in runs]
        result.setdefault(topic, {})[str(partition)] = text
    return result


def marks_of(value: Mapping[str, Mapping[str, list[list[Any]]]]) -> dict[KafkaTopicPartition, tuple[Marks, ...]]:
    """Return the marks that `marks_text` wrote."""
    return {
        KafkaTopicPartition(topic, int(partition)): tuple(
            Marks(until, tuple(RecordPrint(*record) for record in records)) for until, records in runs
        )
        for topic, partitions in value.items()
        for partition, runs in partitions.items()
    }


def anchors_text(anchors: Mapping[KafkaTopicPartition, Anchor]) -> dict[str, dict[str, list[Any]]]:
    """Return anchors as a JSON value: for each topic the other log, and a list of numbers for each partition."""
    result: dict[str, dict[str, list[Any]]] = {}
    for (topic, partition), anchor in sorted(anchors.items()):
        of_topic = result.setdefault(topic, {"logs": []})
        logs, log = of_topic["logs"], [anchor.cluster, anchor.topic_id]
        if log not in logs:
            logs.append(log)
        of_topic[str(partition)] = [logs.index(log), *anchor[2:-1], [list(one) for one in anchor.besides]]
    return result


def anchors_of(value: Mapping[str, Mapping[str, list[Any]]]) -> dict[KafkaTopicPartition, Anchor]:
    """Return the anchors that `anchors_text` wrote."""
    found = {}
    for topic, of_topic in value.items():
        for partition in of_topic.keys() - {"logs"}:
            log, *numbers, besides = of_topic[partition]
            cluster, topic_id = of_topic["logs"][log]
            anchor = Anchor(cluster, topic_id, *numbers)
            found[KafkaTopicPartition(topic, int(partition))] = anchor._replace(
                besides=tuple(Difference(*one) for one in besides)
            )
    return found
