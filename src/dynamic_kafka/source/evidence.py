"""Where a position on one cluster is on another one, and what proves it. Pure: the records come from a `RecordLog`.

A record is known by its print: time, a hash of key and value, and a hash of the headers. What is known about a position is
the run of records just before it and, where the old cluster can be read, just behind it. Where it cannot be read, it is the
marks in the offset document: the last records that were planned before the position.

==============  =========================================================================================================
by              how the new position is found
==============  =========================================================================================================
same-offsets    it is the same number. All records around it, with their headers, have to be the same at the same offsets
records         the last record before the position is looked for from its time on. If it is there several times, the one
                with the longest equal run of neighbours counts, if there is only one
mirror-maker    the same, from the offset on that MirrorMaker's last sync before the position leads to. Without any record
                to compare, that offset itself, as MirrorMaker's own library translates: it is at or before the position
timestamp       the first record that is not older than the last one before the position
==============  =========================================================================================================

What is not found is not guessed: then there is no new position, and words instead. A position is exact under one
condition that no record can show: the copy keeps the order of a partition, as all of these tools do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from dynamic_kafka.continuation import Guarantee, Way
from dynamic_kafka.initializer import KafkaTopicPartition

__all__ = [
    "MARKS",
    "Evidence",
    "MoveRequest",
    "Placement",
    "RecordLog",
    "RecordPrint",
    "Sync",
    "evidence_around",
    "marks_of",
    "marks_text",
    "place",
    "translate",
]

MARKS = 6
"""The number of records of a partition that the offset document keeps."""
_AROUND = 32
_REACH = 2_000
_BACK = 500
_BEYOND = 20_000
_MOST = 2_000_000
_CANDIDATES = 1_000


class RecordPrint(NamedTuple):
    """What a record is recognized by: time in milliseconds, hash of key and value, hash of the headers."""

    offset: int
    time_ms: int
    content: str
    headers: str

    def same(self, other: RecordPrint, *, headers: bool = False) -> bool:
        """Return whether two records are the same, wherever they are. Some mirrors add headers."""
        return self[1:3] == other[1:3] and (not headers or self.headers == other.headers)


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
    marks: tuple[RecordPrint, ...]


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
    """

    before: tuple[RecordPrint, ...]
    behind: tuple[RecordPrint, ...]
    gap: int
    is_start: bool


def evidence_around(
    log: RecordLog | None, tp: KafkaTopicPartition, position: int, marks: tuple[RecordPrint, ...]
) -> Evidence:
    """Return what is known: from the log, or from the marks if it cannot be read or has lost what was before."""
    marks = tuple(mark for mark in marks if mark.offset < position)
    of_marks = Evidence(marks, (), position - marks[-1].offset - 1 if marks else 0, position == 0)
    if log is None:
        return of_marks
    start, end = log.bounds(tp)
    behind = tuple(islice(log.records(tp, position, end), _AROUND)) if end > position else ()
    before = _before(log, tp, position, start)
    if before:
        return Evidence(before, behind, 0, is_start=False)
    if behind and of_marks.gap:
        return Evidence((), behind, 0, is_start=False)
    return of_marks._replace(behind=behind, is_start=position == 0 or (start == 0 and not marks))


def _before(log: RecordLog, tp: KafkaTopicPartition, position: int, start: int) -> tuple[RecordPrint, ...]:
    reach = _AROUND
    while True:  # markers of transactions and compaction leave offsets without a record
        first = max(start, position - reach)
        found = deque(log.records(tp, first, position), maxlen=_AROUND) if first < position else deque[RecordPrint]()
        if len(found) == _AROUND or first <= start or (found and reach > _REACH):
            return tuple(found)
        reach *= 8


def place(request: MoveRequest, old: RecordLog | None, new: RecordLog) -> Placement:
    """Return where a position is on the new cluster.

    Args:
        request: The question.
        old: The logs of the old cluster; None if they cannot be read.
        new: The logs of the new cluster.

    Raises:
        ClusterUnavailableError: If a cluster does not answer.
    """
    known = evidence_around(old, request.old_partition, request.position, request.marks)
    start, end = new.bounds(request.partition)
    if known.is_start and request.by != "same-offsets":
        return Placement(start, "exact", 0, "no record was read before it")
    if request.by == "same-offsets":
        return _at_same_offset(request, known, new, start, end)
    if request.by == "mirror-maker":
        return _by_syncs(request, known, old, new)
    if not known.before and not known.behind:
        return _unknown(_nothing_known(request))
    if request.by == "timestamp":
        return _by_time(request, known, new, end)
    return _by_records(request, known, new, None)


def _unknown(why: str) -> Placement:
    return Placement(None, "unproved", None, why)


def _nothing_known(request: MoveRequest) -> str:
    if request.readable:
        return f"cluster '{request.old_cluster}' does not hold the records around offset {request.position} any more"
    return (
        f"cluster '{request.old_cluster}' does not answer, and the checkpoint has no mark of the last records that were "
        "read there"
    )


def _number(count: int, noun: str = "record") -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


# --- same offsets -----------------------------------------------------------------------------------------------------


def _at_same_offset(request: MoveRequest, known: Evidence, new: RecordLog, start: int, end: int) -> Placement:
    position = request.position
    if start > position:
        return _unknown(f"the log starts at offset {start} on '{request.cluster}': records from {position} on are gone")
    if known.is_start:
        return Placement(position, "exact", 0, "no record was read before it")
    if end < position:
        return _unknown(f"the log ends at offset {end} on '{request.cluster}', before {position}: the copy lags behind")
    expected = (*known.before, *known.behind)
    if not expected:
        return Placement(position, "unproved", None, f"nothing was compared: {_nothing_known(request)}")
    first, last = expected[0].offset, min(expected[-1].offset + 1, end)
    if first < start:
        first = start
        expected = tuple(record for record in expected if record.offset >= start)
    there = {record.offset: record for record in new.records(request.partition, first, last)}
    compared = 0
    for record in expected:
        if record.offset >= last:
            break
        twin = there.pop(record.offset, None)
        if twin is None or not record.same(twin, headers=True):
            what = "no record" if twin is None else "another record"
            return _unknown(
                f"'{request.cluster}' has {what} at offset {record.offset}: it is not a copy with same offsets"
            )
        compared += 1
    unasked = range(known.before[-1].offset + 1, position) if known.before else ()
    strangers = [offset for offset in there if offset not in unasked]
    if strangers:
        return _unknown(
            f"'{request.cluster}' has a record at offset {min(strangers)} where '{request.old_cluster}' has none"
        )
    if not compared:
        return Placement(position, "unproved", None, "no record around it is on both clusters any more")
    return Placement(
        position, "exact", 0, f"{_number(compared)} around it {_are(compared)} the same at the same offsets"
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


# --- the same records -------------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    """A place where the record was found: its offset, and how many records up to it are the same."""

    offset: int
    run: int


def _by_records(request: MoveRequest, known: Evidence, new: RecordLog, hint: int | None) -> Placement:
    """Look for the last record before the position; with none before it, for the first one behind it."""
    tp = request.partition
    wanted = known.before or known.behind[:1]
    start, end = new.bounds(tp)
    last, found = len(wanted) - 1, dict[int, list[_Candidate]]()
    # No record is before the first one that is not older. So the latest time leads closest, if that record is there.
    for time_ms in sorted({max(record.time_ms for record in wanted), min(record.time_ms for record in wanted)})[::-1]:
        at = new.offset_at(tp, time_ms)
        begin = min((offset for offset in (at, hint) if offset is not None), default=None)
        if begin is not None and last not in found:
            found = _candidates(new, tp, max(start, begin - _BACK), end, wanted)
    if last not in found:
        return _not_there(request, known, found, last)
    candidates = found[last]
    longest = max(candidate.run for candidate in candidates)
    best = [candidate.offset for candidate in candidates if candidate.run == longest]
    if len(best) > 1 and known.before and known.behind:
        best = _followed_best(new, tp, best, end, known)
    ahead = 1 if known.before else 0
    if len(best) > 1:
        again = sum(1 for _ in new.records(tp, best[0] + ahead, best[-1] + ahead))
        return Placement(
            best[0] + ahead,
            "at-least-once",
            again,
            f"it is on '{request.cluster}' {len(best)} times, with the same {_number(longest)} up to it",
        )
    position = best[0] + ahead
    which = "the last record before it" if known.before else "the first record behind it"
    evidence = f"{which} is at offset {best[0]}, with {_number(longest)} up to it the same"
    if known.gap:
        evidence = (
            f"the record at offset {known.before[-1].offset} of '{request.old_cluster}' is at offset {best[0]}; of the "
            f"{_number(known.gap, 'offset')} behind it nothing is known"
        )
        return Placement(position, "at-least-once", min(known.gap, max(0, end - position)), evidence)
    return Placement(position, "exact", 0, evidence)


def _candidates(
    log: RecordLog, tp: KafkaTopicPartition, start: int, end: int, wanted: Sequence[RecordPrint]
) -> dict[int, list[_Candidate]]:
    """Return where records are, by their number in `wanted`.

    The log is read to its end or, once the last one was found, a good deal further.
    """
    numbers: dict[tuple[int, str], list[int]] = {}
    for number, record in enumerate(wanted):
        numbers.setdefault((record.time_ms, record.content), []).append(number)
    runs = [0] * len(wanted)
    found: dict[int, list[_Candidate]] = {}
    limit = min(end, start + _MOST)
    for record in log.records(tp, start, end):
        if record.offset >= limit:
            break
        mine = numbers.get((record.time_ms, record.content), ())
        before, runs = runs, [0] * len(wanted)
        for number in mine:
            runs[number] = 1 + (before[number - 1] if number else 0)
            places = found.setdefault(number, [])
            if len(places) < _CANDIDATES:
                places.append(_Candidate(record.offset, runs[number]))
            if number == len(wanted) - 1 and len(places) == 1:
                limit = min(limit, record.offset + _BEYOND)
    return found


def _followed_best(
    log: RecordLog, tp: KafkaTopicPartition, offsets: Iterable[int], end: int, known: Evidence
) -> list[int]:
    """Return those of the offsets that are followed by the longest run of the records behind the position."""
    lengths = {}
    for offset in offsets:
        following = islice(log.records(tp, offset + 1, end), len(known.behind))
        length = 0
        for record, expected in zip(following, known.behind, strict=False):
            if not record.same(expected):
                break
            length += 1
        lengths[offset] = length
    return [offset for offset, length in lengths.items() if length == max(lengths.values())]


def _not_there(request: MoveRequest, known: Evidence, found: Mapping[int, list[_Candidate]], last: int) -> Placement:
    if not known.before:
        return _unknown(f"the first record behind it is not on '{request.cluster}' (yet)")
    if not found:
        return _unknown(f"none of the last {_number(last + 1)} before it is on '{request.cluster}' (yet)")
    newest = max(found)
    missing = last - newest
    places = found[newest]
    what = f"the last {_number(missing)} before it {_are(missing)} not on '{request.cluster}' (yet)"
    if len(places) > 1:
        return _unknown(what)
    return Placement(places[0].offset + 1, "unproved", missing, f"{what}; if they come, they are read again")


# --- MirrorMaker ------------------------------------------------------------------------------------------------------


def _by_syncs(request: MoveRequest, known: Evidence, old: RecordLog | None, new: RecordLog) -> Placement:
    # With offset-syncs.topic.location=target the topic is on the new cluster, and has the old one in its name.
    usual = f"mm2-offset-syncs.{request.old_cluster}.internal", f"mm2-offset-syncs.{request.cluster}.internal"
    topics = (request.offset_syncs, request.offset_syncs) if request.offset_syncs else usual
    syncs = new.syncs(topics[0], request.old_partition)
    if syncs is None and old is not None:
        syncs = old.syncs(topics[1], request.old_partition)
    sync = translate(syncs or (), request.position)
    why = _nothing_known(request)
    if known.before or known.behind:
        found = _by_records(request, known, new, sync.downstream if sync is not None else None)
        if sync is None:
            return found
        if found.guarantee != "unproved":
            text = f"{found.evidence}; MirrorMaker's last sync before it leads to {sync.downstream}"
            return found._replace(evidence=text)
        why = found.evidence
    if syncs is None:
        where = f"neither '{topics[0]}' on '{request.cluster}' nor '{topics[1]}' on '{request.old_cluster}' can be read"
        return _unknown(f"{why}; {where}")
    if sync is None:
        return _unknown(f"{why}; MirrorMaker has no sync of an offset up to {request.position}")
    text = f"MirrorMaker has copied offset {sync.upstream} to {sync.downstream}"
    if request.position in (sync.upstream, sync.upstream + 1):
        return Placement(sync.downstream + request.position - sync.upstream, "exact", 0, text)
    _, end = new.bounds(request.partition)
    again = min(request.position - sync.upstream - 1, max(0, end - sync.downstream - 1))
    return Placement(sync.downstream + 1, "at-least-once", again, f"{why}; {text}")


def translate(syncs: Iterable[Sync], position: int) -> Sync | None:
    """Return the sync that MirrorMaker's library translates a position by: the last one that is not behind it.

    A sync of an earlier offset than the one before it means that the source was read again, and makes the others invalid.
    """
    best: Sync | None = None
    newest = -1
    for sync in syncs:
        if sync.upstream < newest:
            best = None
        newest = sync.upstream
        if sync.upstream <= position:
            best = sync
    return best


# --- a time -----------------------------------------------------------------------------------------------------------


def _by_time(request: MoveRequest, known: Evidence, new: RecordLog, end: int) -> Placement:
    time_ms = known.before[-1].time_ms if known.before else known.behind[0].time_ms
    position = new.offset_at(request.partition, time_ms)
    if position is None:
        return _unknown(f"'{request.cluster}' has no record of time {time_ms} ms or later (yet)")
    exact = _by_records(request, known, new, position)
    again = None
    if exact.position is not None and exact.guarantee == "exact":
        again = sum(1 for _ in new.records(request.partition, position, min(exact.position, end)))
    return Placement(position, "at-least-once", again, f"it is the first record of time {time_ms} ms or later")


# --- the marks as text ------------------------------------------------------------------------------------------------


def marks_text(marks: Mapping[KafkaTopicPartition, tuple[RecordPrint, ...]]) -> dict[str, dict[str, list[list[Any]]]]:
    """Return the marks as a JSON value."""
    result: dict[str, dict[str, list[list[Any]]]] = {}
    for (topic, partition), records in sorted(marks.items()):
        result.setdefault(topic, {})[str(partition)] = [list(record) for record in records]
    return result


def marks_of(value: Mapping[str, Mapping[str, list[list[Any]]]]) -> dict[KafkaTopicPartition, tuple[RecordPrint, ...]]:
    """Return the marks that `marks_text` wrote."""
    return {
        KafkaTopicPartition(topic, int(partition)): tuple(RecordPrint(*record) for record in records)
        for topic, partitions in value.items()
        for partition, records in partitions.items()
    }
