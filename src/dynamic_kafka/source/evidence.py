"""What is known about a position on a cluster: the records next to it, from the log or from the marks of a document. Pure.

A record is known by its print: time, a hash of key and value, and a hash of the headers. What is known about a position is
the run of records just before it and, where the old cluster can be read, just behind it. Where it cannot be read, it is the
marks in the offset document: the last records that were planned before the position. The records come from a `RecordLog`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Protocol

from dynamic_kafka.continuation import Guarantee, Way
from dynamic_kafka.initializer import KafkaTopicPartition

__all__ = [
    "MARKS",
    "Evidence",
    "Marks",
    "MoveRequest",
    "Placement",
    "RecordLog",
    "RecordPrint",
    "Sync",
    "evidence_around",
    "marks_of",
    "marks_text",
]

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


class Placement(NamedTuple):
    """The answer.

    Attributes:
        position: The new position; None if it is not known.
        guarantee: What it promises.
        overlap: The number of records that are read again, or the largest number that it can be.
        evidence: What it rests on or, without a position, why there is none; a clause.
    """

    position: int | None
    guarantee: Guarantee
    overlap: int | None
    evidence: str


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
        behind: The records behind it, in order.
        gap: The number of offsets between the last of `before` and the position of which nothing is known.
        is_start: Whether the log never had a record before the position.
        cut_at: The end of the log, if that is before the position: it was truncated.
    """

    before: tuple[RecordPrint, ...]
    behind: tuple[RecordPrint, ...]
    gap: int
    is_start: bool
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
        return Evidence((), behind, 0, position == 0) if of_marks.gap and behind else of_marks._replace(behind=behind)
    gap = position - before[-1].offset - 1
    if gap and of_marks.before and not of_marks.gap:
        if of_marks.before[-1].offset != before[-1].offset:
            return of_marks._replace(behind=behind)
        gap = 0
    # Compaction removes a record only if a later one replaces it. So with none behind, only markers were removed or hidden.
    # (Tombstones at the end of a log go too, with what they replaced: then marks are needed.)
    return Evidence(before, behind, gap if behind else 0, is_start=False)


def _of_marks(position: int, marks: Iterable[Marks]) -> Evidence:
    for until, records in sorted(marks, reverse=True):
        if before := tuple(record for record in records if record.offset < position):
            return Evidence(before, (), max(0, position - until), is_start=False)
    return Evidence((), (), 0, position == 0)


def _before(log: RecordLog, tp: KafkaTopicPartition, position: int, start: int) -> tuple[RecordPrint, ...]:
    reach = _AROUND
    while True:  # markers of transactions and compaction leave offsets without a record
        first = max(start, position - reach)
        found = deque(log.records(tp, first, position), maxlen=_AROUND) if first < position else deque[RecordPrint]()
        if len(found) == _AROUND or first <= start or (found and reach > _REACH):
            return tuple(found)
        reach *= 8


# --- the marks as text ------------------------------------------------------------------------------------------------


def marks_text(marks: Mapping[KafkaTopicPartition, tuple[Marks, ...]]) -> dict[str, dict[str, list[list[Any]]]]:
    """Return the marks as a JSON value."""
    result: dict[str, dict[str, list[list[Any]]]] = {}
    for (topic, partition), runs in sorted(marks.items()):
        text = [[run.until, [list(record) for record in run.records]] for run in runs]
        result.setdefault(topic, {})[str(partition)] = text
    return result


def marks_of(value: Mapping[str, Mapping[str, list[list[Any]]]]) -> dict[KafkaTopicPartition, tuple[Marks, ...]]:
    """Return the marks that `marks_text` wrote. Those of an earlier layout, which had no `until`, are left out."""
    return {
        KafkaTopicPartition(topic, int(partition)): tuple(
            Marks(run[0], tuple(RecordPrint(*record) for record in run[1])) for run in runs
        )
        for topic, partitions in value.items()
        for partition, runs in partitions.items()
        if all(len(run) == 2 for run in runs)
    }
