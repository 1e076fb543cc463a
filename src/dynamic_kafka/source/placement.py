"""Where a position on one cluster is on another one, and what proves it. Pure: the records come from a `RecordLog`.

==============  =========================================================================================================
by              how the new position is found
==============  =========================================================================================================
same-offsets    it is the same number. All records around it, with their headers, have to be the same at the same offsets
records         the last record before the position is looked for from its time on, with all known neighbours
mirror-maker    the same, from the offset on that MirrorMaker's last sync before the position leads to. Without any record
                to compare, that offset itself, as MirrorMaker's own library translates: it is at or before the position
timestamp       the first record that is not older than the last one before the position
==============  =========================================================================================================

A position is **exact** under these conditions, all of them:

1. What is known is complete up to the position. Marks say up to which offset they are complete, and a record that follows
   on both clusters shows that nothing is between.
2. All records that are known next to the position are on the new cluster, in one run. (At least as many as the document
   keeps, if the new log has lost what was before them.) A shorter run may be another place with an identical record.
3. There is one such run, it cannot be moved by some records and still be the same, and the last of its records is not
   found again after it: a copier that goes on from an earlier place repeats records.
4. If no record was read before the position, the new log has its first record still, and by the document nothing of it was
   read earlier.
5. A sync of MirrorMaker leads to an offset that the new log has, and no later sync to an earlier one.

Otherwise it is `at-least-once` if records can only be repeated, `unproved` if they may be lost, and without any place there
are words instead. What no record can show: the copy keeps the order of a partition, as all of these tools do, and records
with the same time, key and value as all their known neighbours do not come twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from dynamic_kafka.continuation import Guarantee
from dynamic_kafka.source.evidence import (
    MARKS,
    Evidence,
    MoveRequest,
    Placement,
    RecordLog,
    Sync,
    evidence_around,
)
from dynamic_kafka.source.matching import Candidate, followed, may_be_moved, search

__all__ = ["place", "translate"]


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
    if known.is_start and request.by != "same-offsets" and (start == 0 or not known.behind):
        if start == 0:
            return Placement(start, "exact", 0, "no record was read before it")
        why = (
            f"no record was read before it, and the log on '{request.cluster}' has lost what was before offset {start}"
        )
        return Placement(start, "unproved", None, why)
    if request.by == "same-offsets":
        return _at_same_offset(request, known, new, start, end)
    if request.by == "mirror-maker":
        return _by_syncs(request, known, old, new)
    if not known.before and not known.behind:
        return _unknown(_nothing_known(request, known))
    if request.by == "timestamp":
        return _by_time(request, known, new, end)
    return _by_records(request, known, new, None)


def _unknown(why: str) -> Placement:
    return Placement(None, "unproved", None, why)


def _nothing_known(request: MoveRequest, known: Evidence) -> str:
    if known.cut_at is not None:
        return (
            f"the log of cluster '{request.old_cluster}' ends at offset {known.cut_at}, before {request.position}: it was "
            "truncated, and the checkpoint has no mark of the last records before it"
        )
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
        return Placement(position, "unproved", None, f"nothing was compared: {_nothing_known(request, known)}")
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
    if known.gap and not any(record.offset < last for record in known.behind):
        why = f"of the {_number(known.gap, 'offset')} before it nothing is known; those before them are the same"
        return Placement(position, "unproved", None, why)
    return Placement(
        position, "exact", 0, f"{_number(compared)} around it {_are(compared)} the same at the same offsets"
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


# --- the same records -------------------------------------------------------------------------------------------------


def _by_records(request: MoveRequest, known: Evidence, new: RecordLog, hint: int | None) -> Placement:
    """Look for the last record before the position; with none before it, for the first one behind it."""
    if not known.before:
        return _by_first_behind(request, known, new, hint)
    tp, wanted, behind = request.partition, known.before, known.behind
    last = len(wanted) - 1
    found, scope = search(new, tp, wanted, hint)
    if last not in found:
        return _not_there(request, found, last, scope)
    start, end = new.bounds(tp)
    whole = [c for c in found[last] if c.run == len(wanted)]
    whole = whole or [c for c in found[last] if start > 0 and c.from_start and c.run >= MARKS]
    if not whole:
        best = max(found[last], key=lambda candidate: candidate.run)
        return Placement(
            best.offset + 1,
            "unproved",
            None,
            f"offset {best.offset} has such a record, but only {best.run} of the last {_number(len(wanted))} before the "
            "position are the same there: it may be another one, or the copy is not complete (yet)",
        )
    behind_it = {c.offset: followed(new, tp, c.offset + 1, end, behind) for c in whole}
    if len(whole) > 1:
        whole = [c for c in whole if not behind_it[c.offset].differs] or whole
    longest = whole[0].run
    # Of a copy that has lost its first records it is not known whether the same ones were among them.
    is_cut = whole[0].from_start and start > 0
    weak: Guarantee = "unproved" if is_cut else "at-least-once"
    if len(whole) > 1:
        again = sum(1 for _ in new.records(tp, whole[0].offset + 1, whole[-1].offset + 1))
        text = f"it is on '{request.cluster}' {len(whole)} times, with the same {_number(longest)} up to it"
        return Placement(whole[0].offset + 1, weak, again, text)
    at, length = whole[0].offset, behind_it[whole[0].offset].length
    if may_be_moved((*wanted, *behind[:length]), len(wanted) - longest, is_whole=wanted[0].offset == 0):
        text = f"the {_number(longest)} up to offset {at} are the same, but they repeat each other"
        return Placement(at + 1, weak, None, text)
    if is_cut and longest < MARKS:
        text = f"only the first {_number(longest)} on '{request.cluster}' {_are(longest)} the same; others are gone"
        return Placement(at + 1, "unproved", None, text)
    if known.gap and not length:
        evidence = (
            f"the record at offset {wanted[-1].offset} of '{request.old_cluster}' is at offset {at}; of the "
            f"{_number(known.gap, 'offset')} behind it nothing is known"
        )
        return Placement(at + 1, "at-least-once", min(known.gap, max(0, end - at - 1)), evidence)
    evidence = f"the last record before it is at offset {at}, with {_number(longest)} up to it the same"
    # What is behind it on the old cluster too may look the same.
    same = max((record.offset for record in islice(new.records(tp, at + 1, end), length)), default=at) if length else at
    if more := [c.offset for c in found[last] if c.offset > same]:
        again = sum(1 for _ in new.records(tp, at + 1, more[-1] + 1))
        return Placement(at + 1, weak, again, f"{evidence}, but it is there again, last at offset {more[-1]}")
    return Placement(at + 1, "exact", 0, evidence)


def _by_first_behind(request: MoveRequest, known: Evidence, new: RecordLog, hint: int | None) -> Placement:
    tp, behind = request.partition, known.behind
    found, scope = search(new, tp, behind[:1], hint)
    if not found:
        return _unknown(f"the first record behind it is not on '{request.cluster}' (yet){scope}")
    _, end = new.bounds(tp)
    behind_it = {c.offset: followed(new, tp, c.offset, end, behind) for c in found[0]}
    places = [offset for offset, its in behind_it.items() if not its.differs]
    if not places or any(behind_it[offset].length < len(behind) for offset in places):
        most = max(its.length for its in behind_it.values())
        text = f"only {most} of the first {_number(len(behind))} behind it are on '{request.cluster}' together (yet)"
        return Placement(next(iter(places or behind_it)), "unproved", None, text)
    if len(places) > 1 or may_be_moved(behind, 0, is_whole=False):
        again = sum(1 for _ in new.records(tp, places[0], places[-1])) if len(places) > 1 else None
        text = f"the first {_number(len(behind))} behind it may be at several places on '{request.cluster}'"
        return Placement(places[0], "at-least-once", again, text)
    text = f"the first record behind it is at offset {places[0]}, with {_number(len(behind))} from it on the same"
    return Placement(places[0], "exact", 0, text)


def _not_there(request: MoveRequest, found: Mapping[int, list[Candidate]], last: int, scope: str) -> Placement:
    if not found:
        return _unknown(f"none of the last {_number(last + 1)} before it is on '{request.cluster}' (yet){scope}")
    newest = max(found)
    missing = last - newest
    places = found[newest]
    what = f"the last {_number(missing)} before it {_are(missing)} not on '{request.cluster}' (yet){scope}"
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
    why = _nothing_known(request, known)
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
    start, end = new.bounds(request.partition)
    if not start <= sync.downstream < end:
        return _unknown(f"{why}; {text}, and the log there has offsets {start} to {end} now: it was cut, or made again")
    if request.position in (sync.upstream, sync.upstream + 1):
        return Placement(sync.downstream + request.position - sync.upstream, "exact", 0, text)
    again = min(request.position - sync.upstream - 1, end - sync.downstream - 1)
    return Placement(sync.downstream + 1, "at-least-once", again, f"{why}; {text}")


def translate(syncs: Iterable[Sync], position: int) -> Sync | None:
    """Return the sync that MirrorMaker's library translates a position by: the last one that is not behind it.

    A sync of an earlier offset than the one before it means that the source was read again, and makes the others invalid.
    So does one that leads to an earlier offset: then the copy was made again. (MirrorMaker's library does not look at that.)
    """
    best: Sync | None = None
    newest = Sync(-1, -1)
    for sync in syncs:
        if sync.upstream < newest.upstream or sync.downstream < newest.downstream:
            best = None
        newest = sync
        if sync.upstream <= position:
            best = sync
    return best


# --- a time -----------------------------------------------------------------------------------------------------------


def _by_time(request: MoveRequest, known: Evidence, new: RecordLog, end: int) -> Placement:
    time_ms = known.before[-1].time_ms if known.before else known.behind[0].time_ms
    if time_ms < 0:
        return _unknown("the record next to it has no time")
    position = new.offset_at(request.partition, time_ms)
    if position is None:
        return _unknown(f"'{request.cluster}' has no record of time {time_ms} ms or later (yet)")
    exact = _by_records(request, known, new, position)
    again = None
    if exact.position is not None and exact.guarantee == "exact":
        again = sum(1 for _ in new.records(request.partition, position, min(exact.position, end)))
    return Placement(position, "at-least-once", again, f"it is the first record of time {time_ms} ms or later")
