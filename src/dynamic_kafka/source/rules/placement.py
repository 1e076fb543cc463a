"""Where a position on one cluster is on another one, and what proves it. Pure: the records come from a `RecordLog`.

A position is **exact** if all records between an anchor and the position were compared, on both clusters (`comparison`):

1. The anchor is a point at which both logs are known to agree. Nothing that was not read is on the new log before it.
2. From there to the position each record of the old log is on the new one, in the same order, and nothing else is.
3. No record was between the last one compared and the position. Marks show that, or a record that follows on both.
4. What the new log has after the position was not read before, and is no repetition.

==============  ==========================================================================================================
what was seen   what is promised
==============  ==========================================================================================================
all of it       `exact`
only repeats    `at-least-once`: the new log has records again, in another order or not at all, or the old log was not
                compared up to the position, and cannot be. Reading goes on where the comparison ends
records that    `unproved`: those that only the new log has before the position would not be read
were not read
nothing         `unproved`: no anchor, or too much differs. The position is the one after the same last records, if they are
                found. With `timestamp` it is the first record that is not older than the last one before the position.
                With `mirror-maker` it is the one that MirrorMaker's library gives, which is `at-least-once`
an end too      no good answer (yet): the copy lags behind
early
==============  ==========================================================================================================

`at-least-once` means that no record of the old log that was copied is lost. With `same-offsets`, offsets and headers have
to be the same, too. A time proves nothing: times may be out of order, and the copy may lack the record whose time it is.
What no record can show: whether a copier will repeat records later on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from dynamic_kafka.continuation import Guarantee
from dynamic_kafka.errors import plural
from dynamic_kafka.source.document.evidence import (
    Anchor,
    Difference,
    DifferenceKind,
    Evidence,
    MoveRequest,
    Placement,
    RecordLog,
    RecordPrint,
    Sync,
    evidence_around,
)
from dynamic_kafka.source.rules.comparison import (
    ALL,
    BEFORE_ALL,
    Comparison,
    Rest,
    compare,
    compare_counted,
    look_after,
)
from dynamic_kafka.source.rules.matching import Candidate, search

__all__ = ["follow", "place", "translate", "way_back"]

_records = partial(plural, noun="record")


def follow(request: MoveRequest, old: RecordLog, new: RecordLog, most: int) -> tuple[Anchor | None, bool]:
    """Return how far both logs agree now, None if that is not known, and whether there is nothing more to compare now.

    Args:
        request: The question, with the anchor that is known.
        old: The logs of the old cluster.
        new: The logs of the new cluster.
        most: The largest number of records to compare.

    Raises:
        ClusterUnavailableError: If a cluster does not answer.
    """
    found = _compared(_with_usable_anchor(request, new), old, new, most)
    return (None, True) if found is None else (found.anchor, found.state != "partial" and found.lacks < most)


def place(request: MoveRequest, old: RecordLog | None, new: RecordLog, most: int = ALL) -> Placement:
    """Return where a position is on the new cluster.

    Args:
        request: The question.
        old: The logs of the old cluster; None if they cannot be read.
        new: The logs of the new cluster.
        most: The largest number of records to compare. What was compared is in the answer, to go on from there.

    Raises:
        ClusterUnavailableError: If a cluster does not answer.
    """
    request = _with_usable_anchor(request, new)
    if request.anchor is None and request.position == 0:
        start, end = new.bounds(request.partition)
        at = max(start, min(end, request.read_to))
        names = request.kafka_id, request.topic_id
        # Nothing was read. Whether the copy has the first records is not known, so `follow` does not begin there.
        request = request._replace(anchor=Anchor(*names, 0, at, 0, at, 0, BEFORE_ALL, at, BEFORE_ALL, 0))
    found = _compared(request, old, new, most)
    if request.by == "same-offsets" and (found is None or found.state in ("differs", "lags")):
        return _at_same_offset(request, found, old, new)
    if found is None or found.state == "differs":
        return _not_compared(request, old, new, found)
    if found.state == "partial":
        text = (
            f"the records are being compared: {_records(found.anchor.records)} so far, up to offset {found.anchor.old}"
        )
        return Placement(None, "unproved", None, text, found.anchor)
    return _lagging(request, found) if found.state == "lags" else _proved(request, found, old, new)


def way_back(request: MoveRequest, placement: Placement, kafka_id: str, topic_id: str) -> Anchor:
    """Return the anchor for a move back, once reading goes on at a position: what is before both positions was read.

    Args:
        request: The question.
        placement: Its answer, with a position.
        kafka_id: Kafka's own cluster.id of the cluster that was left.
        topic_id: The id of the topic there.
    """
    here, there, known = placement.position, request.position, placement.anchor
    assert here is not None
    newest_ms = ALL
    if known is not None and (placement.guarantee == "exact" or known.old == there):
        newest_ms = known.newest_ms
    return Anchor(kafka_id, topic_id, here, there, here, there, 0, newest_ms, there, newest_ms, here)


def _with_usable_anchor(request: MoveRequest, new: RecordLog) -> MoveRequest:
    """Return the request with an anchor that can be used: not deleted by now, and nothing it counts is after the position.

    A position that was set back is before what was counted: that would be taken for read.
    """
    start, end = new.bounds(request.partition)
    anchor = request.anchor
    if anchor is not None and (max(anchor.old, anchor.until) > request.position or not start <= anchor.new <= end):
        return request._replace(anchor=None)
    return request


def _compared(request: MoveRequest, old: RecordLog | None, new: RecordLog, most: int) -> Comparison | None:
    """Return how far both logs agree; None if there is no point from which they can be compared."""
    anchor = request.anchor
    if old is not None:
        start, end = old.bounds(request.old_partition)
        begin = anchor.old if anchor is not None else start
        if start <= begin <= request.position <= end:
            return compare(request, anchor, old, new, most)
    return compare_counted(request, anchor, new) if anchor is not None else None


# --- what was compared ------------------------------------------------------------------------------------------------

_WORDS: dict[DifferenceKind, str] = {
    "before": "{0} on '{1}' before the first one that was compared ({2}): {3} not read",
    "only new": "{0} on '{1}' that '{4}' does not have there ({2}): {3} not read",
    "only old": "{0} of '{4}' that '{1}' does not have there ({2})",
    "again": "{0} on '{1}' that {3} there before ({2})",
    "moved": "{0} on '{1}' in another order ({2})",
}


def _proved(request: MoveRequest, found: Comparison, old: RecordLog | None, new: RecordLog) -> Placement:
    """Return the answer where both logs agree up to the position, or as far as the old one is known."""
    anchor = found.anchor
    rest = look_after(request, anchor, old, new)
    start, _ = new.bounds(request.partition)
    if request.position == 0 and start > request.read_to:
        text = (
            f"no record was read before it, and the log on '{request.cluster}' has lost what was before offset {start}"
        )
        return Placement(max(start, anchor.new), "unproved", None, text, anchor)
    is_gap = found.state == "uncounted" or (rest.records > 0 and not rest.follows)
    gap = max(0, request.position - anchor.old) if is_gap else 0
    besides = (*anchor.besides, *rest.again)
    words = [_compared_words(request, anchor), *(_difference(request, one) for one in besides)]
    if gap:
        words.append(f"of the {plural(gap, 'offset')} from {anchor.old} to {request.position} nothing is known")
    words += [f"{_records(one.records)} may be there before ({_span(one)})" for one in rest.unclear]
    if rest.unseen is not None:
        words.append(f"what is there from offset {rest.unseen} on was not looked at")
    words += [f"{_difference(request, one)}, not read yet" for one in rest.lacks]
    guarantee: Guarantee = "exact"
    if besides or gap or rest.unclear or rest.unseen is not None:
        guarantee = "at-least-once"
    if rest.lacks or any(one.kind in ("only new", "before") for one in besides):
        guarantee = "unproved"
    return Placement(
        anchor.new, guarantee, _overlap(rest, anchor, gap), "; ".join(words), anchor, (*besides, *rest.unclear)
    )


def _overlap(rest: Rest, anchor: Anchor, gap: int) -> int | None:
    """Return the largest number of records that may be read again."""
    if rest.unseen is not None:
        return None
    late = sum(one.records for one in anchor.besides if one.kind == "only old")
    return late + min(rest.records, gap + sum(one.records for one in (*rest.again, *rest.unclear)))


def _compared_words(request: MoveRequest, anchor: Anchor) -> str:
    if not anchor.records:
        return (
            "no record was read before it" if request.position == 0 else f"nothing was read since offset {anchor.old}"
        )
    return (
        f"{_records(anchor.records)} from offset {anchor.began_old} of '{request.old_cluster}' on, {anchor.began_new} on "
        f"'{request.cluster}', {_are(anchor.records)} the same"
    )


def _difference(request: MoveRequest, one: Difference) -> str:
    return _WORDS[one.kind].format(
        _records(one.records), request.cluster, _span(one), _are(one.records), request.old_cluster
    )


def _span(one: Difference) -> str:
    return f"offset {one.first}" if one.first == one.last else f"offsets {one.first} to {one.last}"


def _lagging(request: MoveRequest, found: Comparison) -> Placement:
    anchor = found.anchor
    text = f"the last {_records(found.lacks)} before it {_are(found.lacks)} not on '{request.cluster}' (yet)"
    words = [text, *(_difference(request, one) for one in anchor.besides)]
    position, overlap = None, None
    if anchor.records:
        words.append("if they come, they are read again")
        position, overlap = anchor.new, found.lacks
    return Placement(position, "unproved", overlap, "; ".join(words), anchor, anchor.besides)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


# --- without an anchor ------------------------------------------------------------------------------------------------


def _not_compared(
    request: MoveRequest, old: RecordLog | None, new: RecordLog, compared: Comparison | None
) -> Placement:
    """Return where the last record before the position is, or its time. Neither proves anything of those before it."""
    known = evidence_around(old, request.old_partition, request.position, request.marks)
    sync = _sync_of(request, old, new) if request.by == "mirror-maker" else None
    if request.by == "timestamp":
        answer = _by_time(request, known, new)
    else:
        answer = _next_to(request, known, new, sync.downstream if isinstance(sync, Sync) else None)
    if compared is not None:
        anchor = compared.anchor
        words = [
            f"after offset {anchor.old} of '{request.old_cluster}' and {anchor.new} on '{request.cluster}' they differ"
        ]
        if anchor.records:
            words.insert(0, _compared_words(request, anchor))
        words += [_difference(request, one) for one in anchor.besides]
        text = "; ".join((*words, answer.evidence))
        answer = answer._replace(evidence=text, anchor=anchor, besides=anchor.besides)
    elif answer.position is not None:
        answer = answer._replace(evidence=f"{answer.evidence}; what is before that was not compared")
    return answer if sync is None or compared is not None else _by_sync(request, answer, sync, new)


def _at_same_offset(
    request: MoveRequest, compared: Comparison | None, old: RecordLog | None, new: RecordLog
) -> Placement:
    """Return the same offset, which is not proved, or why reading cannot go on there."""
    tp, position = request.partition, request.position
    start, end = new.bounds(tp)
    if start > position:
        return _unknown(f"the log starts at offset {start} on '{request.cluster}': records from {position} on are gone")
    if end < position:
        return _unknown(f"the log ends at offset {end} on '{request.cluster}', before {position}: the copy lags behind")
    known = evidence_around(old, request.old_partition, position, request.marks)
    expected = [record for record in known.before if record.offset >= start]
    there = {r.offset: r for r in new.records(tp, expected[0].offset, position)} if expected else {}
    differs = [record.offset for record in expected if not _is_at(record, there)]
    if compared is not None:
        differs.append(compared.anchor.old)
    if differs:
        return _unknown(
            f"'{request.cluster}' has another record or none at offset {min(differs)}: it is not a copy with same offsets"
        )
    if count := len(expected):
        text = f"{_records(count)} before it {_are(count)} the same there; what is before that was not compared"
    elif known.before:
        text = f"the log starts at offset {start} on '{request.cluster}', so no record before it can be compared"
    else:
        text = _nothing_known(request, known)
    return Placement(position, "unproved", None, text)


def _is_at(record: RecordPrint, there: Mapping[int, RecordPrint]) -> bool:
    return record.offset in there and record.same(there[record.offset], headers=True)


def _unknown(why: str) -> Placement:
    return Placement(None, "unproved", None, why)


def _nothing_known(request: MoveRequest, known: Evidence) -> str:
    if known.cut_at is not None:
        return (
            f"the log of cluster '{request.old_cluster}' ends at offset {known.cut_at}, before {request.position}: it was "
            "truncated, and the checkpoint has no mark of the last records before it"
        )
    if request.readable:
        return f"cluster '{request.old_cluster}' does not hold the records before offset {request.position} any more"
    return (
        f"cluster '{request.old_cluster}' does not answer, and the checkpoint has no mark of the last records that were "
        "read there"
    )


def _next_to(request: MoveRequest, known: Evidence, new: RecordLog, hint: int | None) -> Placement:
    """Look for the last record before the position, with all that are known before it."""
    tp, wanted = request.partition, known.before
    if not wanted:
        return _unknown(_nothing_known(request, known))
    last = len(wanted) - 1
    found, scope = search(new, tp, wanted, hint)
    if last not in found:
        return _not_there(request, found, last, scope)
    whole = [c for c in found[last] if c.run == len(wanted)]
    if not whole:
        best = max(found[last], key=lambda candidate: candidate.run)
        text = (
            f"offset {best.offset} has such a record, but only {best.run} of the last {_records(len(wanted))} before the "
            "position are the same there: it may be another one, or the copy is not complete (yet)"
        )
        return Placement(best.offset + 1, "unproved", None, text)
    at, length = whole[0].offset, whole[0].run
    text = f"the last record before it is at offset {at}, with {_records(length)} up to it the same"
    if len(found[last]) > 1:
        again = sum(1 for _ in new.records(tp, at + 1, found[last][-1].offset + 1))
        text = f"{text}, and it is there {len(found[last])} times, last at offset {found[last][-1].offset}"
        return Placement(at + 1, "unproved", again, text)
    if known.gap:
        text = f"{text}; of the {plural(known.gap, 'offset')} after it nothing is known"
        return Placement(at + 1, "unproved", known.gap, text)
    return Placement(at + 1, "unproved", None, text, alone=True)


def _not_there(request: MoveRequest, found: Mapping[int, list[Candidate]], last: int, scope: str) -> Placement:
    if not found:
        return _unknown(f"none of the last {_records(last + 1)} before it is on '{request.cluster}' (yet){scope}")
    newest = max(found)
    missing = last - newest
    places = found[newest]
    what = f"the last {_records(missing)} before it {_are(missing)} not on '{request.cluster}' (yet){scope}"
    if len(places) > 1:
        return _unknown(what)
    return Placement(places[0].offset + 1, "unproved", missing, f"{what}; if they come, they are read again")


# --- MirrorMaker ------------------------------------------------------------------------------------------------------


def _sync_of(request: MoveRequest, old: RecordLog | None, new: RecordLog) -> Sync | str:
    """Return MirrorMaker's last sync before the position or, without one, why there is none."""
    # With offset-syncs.topic.location=target the topic is on the new cluster, and has the old one in its name.
    usual = f"mm2-offset-syncs.{request.old_cluster}.internal", f"mm2-offset-syncs.{request.cluster}.internal"
    topics = (request.offset_syncs, request.offset_syncs) if request.offset_syncs else usual
    syncs = new.syncs(topics[0], request.old_partition)
    if syncs is None and old is not None:
        syncs = old.syncs(topics[1], request.old_partition)
    if syncs is None:
        return f"neither '{topics[0]}' on '{request.cluster}' nor '{topics[1]}' on '{request.old_cluster}' can be read"
    return translate(syncs, request.position) or f"MirrorMaker has no sync of an offset up to {request.position}"


def _by_sync(request: MoveRequest, answer: Placement, sync: Sync | str, new: RecordLog) -> Placement:
    """Return the place that MirrorMaker's library gives: at the position, or before it."""
    if isinstance(sync, str):
        return answer._replace(evidence=f"{answer.evidence}; {sync}")
    text = f"MirrorMaker has copied offset {sync.upstream} to {sync.downstream}"
    start, end = new.bounds(request.partition)
    if not start <= sync.downstream < end:
        why = (
            f"{answer.evidence}; {text}, and the log there has offsets {start} to {end} now: it was cut, or made again"
        )
        return _unknown(why)
    text = f"{answer.evidence}; {text}. What only '{request.cluster}' has was not looked for"
    after = min(1, request.position - sync.upstream)
    again = max(0, min(request.position - sync.upstream - 1, end - sync.downstream - 1))
    return Placement(sync.downstream + after, "at-least-once", again, text)


def translate(syncs: Iterable[Sync], position: int) -> Sync | None:
    """Return the sync that MirrorMaker's library translates a position by: the last one that is not behind it.

    A sync of an earlier offset than the one before it means that the source was read again, and makes the others invalid.
    So does one that leads to an earlier offset: then the copy was made again. (MirrorMaker's library does not look at that.)
    """
    best: Sync | None = None
    newest: Sync | None = None
    for sync in syncs:
        if newest is not None and (sync.upstream < newest.upstream or sync.downstream < newest.downstream):
            best = None
        newest = sync
        if sync.upstream <= position:
            best = sync
    return best


# --- a time -----------------------------------------------------------------------------------------------------------


def _by_time(request: MoveRequest, known: Evidence, new: RecordLog) -> Placement:
    """Return the first place of the last record's time."""
    if not known.before:
        return _unknown(_nothing_known(request, known))
    time_ms = known.before[-1].time_ms
    if time_ms < 0:
        return _unknown("the record next to it has no time")
    position = new.offset_at(request.partition, time_ms)
    if position is None:
        return _unknown(f"'{request.cluster}' has no record of time {time_ms} ms or later (yet)")
    return Placement(position, "unproved", None, f"it is the first record of time {time_ms} ms or later")
