"""Whether two logs hold the same records, from a point where they are known to agree up to a position. Pure.

1. The comparison begins at the anchor that the document keeps. Without one it begins where the first record of the new log
   is on the old one or, if it is missing, where the first record of the old log is on the new one. Then what the new log
   has before that is a difference.
2. Both logs are read in order, and each record has to be the same: time, key and value, and with `same-offsets` also offset
   and headers. Offsets without a record (markers of transactions, what compaction has removed) do not count.
3. Where they differ, the next place is looked for from which they are the same again. What lies between is a difference,
   with its number and its offsets. It stays with the anchor.
4. The records of the old log that the new one does not have yet are counted, with a hash of them in their order. So they can
   be compared when the old cluster does not answer any more, or has removed some. After them come the marks, if none is
   missing between.
5. What the new log has after the position is looked at, too: a record that was read already, or that is there twice.

Several places may be the beginning, if records are identical. One counts if 32 records from there on are the same, or if
nothing contradicts it and no other place on the old log fits, also not among the unread records. If the old log has lost its
first records, another place may be among those: then the 32 have to be the same, or the old log begins there, and the copy
goes on like it as far as both have records. Marks of lost records are other places, too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Literal, NamedTuple

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.evidence import (
    Anchor,
    Difference,
    DifferenceKind,
    Marks,
    MoveRequest,
    RecordLog,
    RecordPrint,
)

__all__ = ["ALL", "BEFORE_ALL", "Comparison", "Rest", "compare", "compare_counted", "look_after"]

ALL = 2**62
"""More than any number of records, and later than any time."""
BEFORE_ALL = -2
"""Earlier than any time, also than that of a record without one."""
_WINDOW = 20_000
_AGREE = 3
_BEGINNINGS = 50
_SURE = 1_000
_RUN = 32
_STEPS = 50
_DIFFERENCES = 12
_MOST = 2_000_000

_Key = tuple[int, str]


class Comparison(NamedTuple):
    """How far the logs were compared.

    Attributes:
        anchor: The last point at which they agree.
        state: `complete` up to the position. `lags`: the new log ends before. `differs`: no place was found from which they
            are the same again. `partial`: there is more to compare. `uncounted`: of the records before the position, nothing
            is known from the anchor on.
        lacks: With `lags`, the number of records that the new log does not have, as far as they are known.
    """

    anchor: Anchor
    state: Literal["complete", "lags", "differs", "partial", "uncounted"]
    lacks: int = 0


def compare(
    request: MoveRequest, anchor: Anchor | None, old: RecordLog, new: RecordLog, most: int
) -> Comparison | None:
    """Compare both logs from an anchor, or from their beginning, to the position; None if they have no beginning in common.

    Args:
        request: The partitions and the position.
        anchor: Where they are known to agree.
        old: The log that is read.
        new: The other one.
        most: The largest number of records to compare now.
    """
    if anchor is not None:
        if anchor.ahead and not _has_counted(request, anchor, old):
            found = compare_counted(request, anchor, new)
            if found.state not in ("complete", "uncounted"):
                return found
            anchor = found.anchor
        # What was counted is compared as a whole: the old log may lose a part of it before the next time.
        return _walk(request, anchor, old, new, max(most, anchor.ahead))
    best: Comparison | None = None
    chosen: Comparison | None = None
    is_unclear = False
    for number, begin in enumerate(_beginnings(request, old, new)):
        if number == _BEGINNINGS:
            chosen = None  # what comes next may fit, too
            break
        if chosen is not None and begin.new > chosen.anchor.began_new:
            break  # a later place on the new log loses nothing; see `look_after`
        found = _walk(request, begin, old, new, most, strictly=True)
        fits = found.anchor.records >= _SURE or (found.state != "differs" and _goes_on(request, found, old, new))
        certainty = _certainty(request, found, old, new)
        if fits and chosen is not None:
            return None
        if fits and certainty == "sure":
            chosen, is_unclear = found, False
            break
        if fits and certainty == "alone":
            chosen = found
        elif fits:
            is_unclear = True
        elif certainty != "none" and (best is None or _rank(found) > _rank(best)):
            best = found
    best = chosen or best
    if best is None or is_unclear:
        return None
    begun = best.anchor
    if begun.floor_ms == ALL:
        start, end = old.bounds(request.old_partition)
        oldest = next(old.records(request.old_partition, start, end), None)
        # Something is before, perhaps without a time. What the old log has lost is not newer, if times are in order.
        before_ms = oldest.time_ms if start and oldest is not None else BEFORE_ALL + 1
        begun = begun._replace(newest_ms=max(begun.newest_ms, before_ms))
        newest_ms = _newest_before(request.old_partition, old, begun)
        begun = begun._replace(floor=begun.new, floor_ms=newest_ms, newest_ms=newest_ms)
    best = best._replace(anchor=begun)
    return _walk(request, begun, old, new, most) if best.state == "differs" else best


def _rank(found: Comparison) -> tuple[bool, int]:
    return found.state != "differs", found.anchor.records


def _certainty(
    request: MoveRequest, found: Comparison, old: RecordLog, new: RecordLog
) -> Literal["sure", "alone", "none"]:
    """Return whether a beginning counts: `alone` if no other one fits; `none` if the old log may have lost another one."""
    tp, anchor = request.old_partition, found.anchor
    if request.by == "same-offsets" or anchor.records >= _RUN:
        return "sure"
    start, _ = old.bounds(tp)
    has_others = next(old.records(tp, start, anchor.began_old), None) is not None
    if not has_others and _begins_with_marks(request, anchor, old, new):
        return "none"
    pairs = _next_pairs(request, anchor, old, new, _RUN)
    same = sum(1 for _ in takewhile(lambda pair: pair[1] is not None and pair[0].same(pair[1]), pairs))
    if anchor.records + same >= _RUN:
        return "sure"
    if start == 0 or (not has_others and (anchor.records or same == len(pairs))):
        return "alone"
    return "none"


def _begins_with_marks(request: MoveRequest, anchor: Anchor, old: RecordLog, new: RecordLog) -> bool:
    """Return whether the new log may begin with marks that the old log has lost, as far as both logs go on."""
    marks = _newest_marks(request)
    lost = [record for record in (marks.records if marks is not None else ()) if record.offset < anchor.began_old]
    if not lost:
        return False
    begun = anchor._replace(old=anchor.began_old, new=anchor.began_new)
    pairs = _next_pairs(request, begun, old, new, _RUN)
    ours, theirs = [*lost, *(one for one, _ in pairs)], [other for _, other in pairs if other is not None]
    return any(all(one.same(other) for one, other in zip(ours[n:], theirs, strict=False)) for n in range(len(lost)))


def _goes_on(request: MoveRequest, found: Comparison, old: RecordLog, new: RecordLog) -> bool:
    """Return whether the next unread records are the same on both logs, as far as both have them."""
    if found.state != "complete" or found.anchor.old < request.position:
        return True
    pairs = _next_pairs(request, found.anchor, old, new, _AGREE)
    return all(other is None or one.same(other) for one, other in pairs)


def _next_pairs(
    request: MoveRequest, anchor: Anchor, old: RecordLog, new: RecordLog, most: int
) -> list[tuple[RecordPrint, RecordPrint | None]]:
    """Return the next records of the old log after an anchor, each with that of the new log; None after its end."""
    end_old, end_new = old.bounds(request.old_partition)[1], new.bounds(request.partition)[1]
    ours = old.records(request.old_partition, anchor.old, max(end_old, anchor.old))
    theirs = new.records(request.partition, anchor.new, max(end_new, anchor.new))
    return [(one, next(theirs, None)) for one in islice(ours, most)]


def _has_counted(request: MoveRequest, anchor: Anchor, old: RecordLog) -> bool:
    """Return whether the old log still has all records that were counted. If not, their count is what is known of them."""
    tp, same_offsets = request.old_partition, request.by == "same-offsets"
    end = max(min(anchor.until, old.bounds(tp)[1]), anchor.old)
    count, digest = 0, ""
    for record in _with_marks(old.records(tp, anchor.old, end), _newest_marks(request), anchor.old):
        if count == anchor.ahead:
            break
        count, digest = count + 1, _chained(digest, record, same_offsets=same_offsets)
    return count == anchor.ahead and digest == anchor.digest


def _beginnings(request: MoveRequest, old: RecordLog, new: RecordLog) -> Iterator[Anchor]:
    """Yield the points at which the logs may begin to agree."""
    of_old, of_new = request.old_partition, request.partition
    (old_start, old_end), (new_start, new_end) = old.bounds(of_old), new.bounds(of_new)
    settled = max(new_start, request.read_to)
    first_old = next(old.records(of_old, old_start, old_end), None)
    first_new = next(new.records(of_new, settled, new_end), None)
    if first_old is None or first_new is None:
        return

    def anchor(at_old: int, at_new: int, before: tuple[Difference, ...] = ()) -> Anchor:
        is_whole = old_start == 0 and at_old <= first_old.offset
        floor_ms = BEFORE_ALL if is_whole else ALL
        names = request.kafka_id, request.topic_id
        return Anchor(*names, at_old, at_new, at_old, at_new, 0, BEFORE_ALL, at_new, floor_ms, at_old, besides=before)

    if request.by == "same-offsets":
        at = max(old_start, settled)
        if at <= request.position:
            yield anchor(at, at, _differences("before", list(new.records(of_new, settled, at))))
        return
    # A log is read at one place at a time, and each of these points is tried before the next one is looked for.
    begin: int | None = old_start
    while begin is not None:
        ours = (
            record for record in _not_older(old, of_old, first_new.time_ms, begin, old_end) if record.same(first_new)
        )
        found = next(ours, None)
        if found is not None:
            yield anchor(found.offset, settled)
        begin = found.offset + 1 if found is not None else None
    last, count, begin = first_new.offset, 0, settled
    if first_new.same(first_old):  # that was the first one
        count, begin = 1, first_new.offset + 1
    while begin is not None and count < _MOST:
        at, begin = begin, None
        for record in islice(new.records(of_new, at, new_end), _MOST - count):
            if record.same(first_old):
                before = (Difference("before", first_new.offset, last, count),) if count else ()
                begin = record.offset
                break
            last, count = record.offset, count + 1
        if begin is not None:
            yield anchor(old_start, begin, before)
            last, count, begin = begin, count + 1, begin + 1


def _newest_before(tp: KafkaTopicPartition, old: RecordLog, begun: Anchor) -> int:
    """Return the latest time of the old log up to an anchor, with the records before the comparison began."""
    newest_ms = begun.newest_ms
    for _ in range(_STEPS):
        at = old.offset_at(tp, max(0, newest_ms + 1))
        later = next(old.records(tp, at, max(at, begun.began_old)), None) if at is not None else None
        if later is None:
            return newest_ms
        newest_ms = later.time_ms
    return ALL


def _not_older(log: RecordLog, tp: KafkaTopicPartition, time_ms: int, start: int, end: int) -> Iterator[RecordPrint]:
    """Yield the records from the first one on that is not older than a time."""
    at = log.offset_at(tp, time_ms) if time_ms >= 0 else start
    return islice(log.records(tp, max(start, at), end), _MOST) if at is not None else iter(())


# --- record by record -------------------------------------------------------------------------------------------------


class _Reader:
    """Records in order, some of which were looked at already."""

    def __init__(self, records: Iterator[RecordPrint]) -> None:
        self._records, self._ahead = records, deque[RecordPrint]()

    def window(self) -> list[RecordPrint]:
        """Return the next records, without taking them."""
        self._ahead.extend(islice(self._records, _WINDOW - len(self._ahead)))
        return list(self._ahead)

    def first(self) -> RecordPrint | None:
        """Return the next record, without taking it."""
        if not self._ahead:
            self._ahead.extend(islice(self._records, 1))
        return self._ahead[0] if self._ahead else None

    def take(self, count: int = 1) -> None:
        """Take records that were looked at."""
        for _ in range(count):
            self._ahead.popleft()


def _walk(
    request: MoveRequest, anchor: Anchor, old: RecordLog, new: RecordLog, most: int, *, strictly: bool = False
) -> Comparison:
    """Compare from an anchor on; `strictly` up to the first difference."""
    tp, position, same_offsets = request.old_partition, request.position, request.by == "same-offsets"
    marks = _newest_marks(request)
    end_old, (start_new, end_new) = old.bounds(tp)[1], new.bounds(request.partition)
    mine = _Reader(_with_marks(old.records(tp, anchor.old, max(end_old, anchor.old)), marks, anchor.old))
    theirs = _Reader(new.records(request.partition, anchor.new, max(end_new, anchor.new)))
    at_old, at_new, count, newest_ms, besides = anchor.old, anchor.new, 0, anchor.newest_ms, anchor.besides
    recent = deque[_Key](maxlen=_WINDOW)
    state: Literal["complete", "lags", "differs", "partial"]
    while True:
        ours, other = mine.first(), theirs.first()
        if ours is None or ours.offset >= position:
            state = "complete"
            if marks is not None and marks.until == position:
                at_old = max(at_old, position)
            break
        if count >= most:
            state = "partial"
            break
        if other is None:
            state = "lags"
            break
        if ours.same(other, headers=same_offsets) and (not same_offsets or ours.offset == other.offset):
            mine.take()
            theirs.take()
            at_old, at_new, count = ours.offset + 1, other.offset + 1, count + 1
            newest_ms = max(newest_ms, ours.time_ms)
            recent.append(_key(ours))
            continue
        found = None
        if not strictly and not same_offsets:
            lefts, rights = mine.window(), theirs.window()
            found = _next_agreement(lefts, rights, sum(record.offset < position for record in lefts))
        if found is None:
            state = "differs"
            break
        skipped, others = lefts[: found[0]], rights[: found[1]]
        besides = _joined((*besides, *_what_differs(skipped, others, set(recent))))
        mine.take(len(skipped))
        theirs.take(len(others))
        newest_ms = max((newest_ms, *(record.time_ms for record in (*skipped, *others))))
        at_old, at_new = (skipped[-1].offset + 1 if skipped else at_old), (others[-1].offset + 1 if others else at_new)
    lacks, until, digest = 0, at_old, ""
    if state in ("lags", "differs"):
        while lacks < most and (ours := mine.first()) is not None and ours.offset < position:
            mine.take()
            lacks, until, digest = lacks + 1, ours.offset + 1, _chained(digest, ours, same_offsets=same_offsets)
        if marks is not None and marks.until == position and (ours is None or ours.offset >= position):
            until = position
    reached = anchor._replace(
        old=at_old,
        new=at_new,
        records=anchor.records + count,
        newest_ms=newest_ms,
        until=until,
        ahead=lacks,
        digest=digest,
        besides=besides,
    )
    if anchor.newest_ms == ALL and count:  # what was read before the anchor is known again
        compared = max(time_ms for time_ms, _ in recent)
        newest_ms = _newest_before(tp, old, reached._replace(newest_ms=compared, began_old=at_old))
        reached = reached._replace(newest_ms=newest_ms, floor=at_new, floor_ms=newest_ms)
    if start_new > anchor.floor:
        reached = reached._replace(floor=at_new, floor_ms=newest_ms)
    return Comparison(reached, state, lacks)


def compare_counted(request: MoveRequest, anchor: Anchor, new: RecordLog) -> Comparison:
    """Compare the new log with what was counted of the old one, and with the marks after that."""
    tp, position, same_offsets = request.partition, request.position, request.by == "same-offsets"
    theirs = new.records(tp, anchor.new, max(new.bounds(tp)[1], anchor.new))
    at_new, newest_ms, digest, seen = anchor.new, anchor.newest_ms, "", 0
    for record in islice(theirs, anchor.ahead):
        at_new, newest_ms, seen = record.offset + 1, max(newest_ms, record.time_ms), seen + 1
        digest = _chained(digest, record, same_offsets=same_offsets)
    marks = _complete_marks(request, anchor.until)
    after = [record for record in (marks.records if marks is not None else ()) if record.offset >= anchor.until]
    if seen < anchor.ahead:
        return Comparison(anchor, "lags", anchor.ahead - seen + len(after))
    if digest != anchor.digest:
        return Comparison(anchor, "differs")
    for number, mark in enumerate(after):
        other = next(theirs, None)
        if other is None:
            return Comparison(anchor, "lags", len(after) - number)
        if not mark.same(other, headers=same_offsets) or (same_offsets and mark.offset != other.offset):
            return Comparison(anchor, "differs")
        at_new, newest_ms = other.offset + 1, max(newest_ms, other.time_ms)
    covered = max(anchor.until, marks.until if marks is not None else 0)
    reached = anchor._replace(
        old=covered,
        new=at_new,
        records=anchor.records + seen + len(after),
        newest_ms=newest_ms,
        until=covered,
        ahead=0,
        digest="",
    )
    return Comparison(reached, "complete" if covered == position else "uncounted")


def _newest_marks(request: MoveRequest) -> Marks | None:
    """Return the newest marks before the position; None if there are none."""
    return max((m for m in request.marks if m.records and m.until <= request.position), default=None)


def _complete_marks(request: MoveRequest, offset: int) -> Marks | None:
    """Return the newest marks before the position between which and an offset no record is missing."""
    usable = (m for m in request.marks if offset <= m.until <= request.position)
    return max((m for m in usable if m.records and m.records[0].offset <= offset), default=None)


def _with_marks(records: Iterator[RecordPrint], marks: Marks | None, start: int) -> Iterator[RecordPrint]:
    """Yield the records of the old log, with those of the marks that compaction has removed there since."""
    known = deque(record for record in (marks.records if marks is not None else ()) if record.offset >= start)
    for record in records:
        while known and known[0].offset <= record.offset:
            if (mark := known.popleft()).offset < record.offset:
                yield mark
        yield record
    yield from known


def _chained(digest: str, record: RecordPrint, *, same_offsets: bool) -> str:
    known = tuple(record) if same_offsets else record[1:3]
    return blake2b(f"{digest} {known}".encode(), digest_size=8).hexdigest()


def _key(record: RecordPrint) -> _Key:
    return record.time_ms, record.content


# --- what differs -----------------------------------------------------------------------------------------------------


def _next_agreement(lefts: list[RecordPrint], rights: list[RecordPrint], most: int) -> tuple[int, int] | None:
    """Return how many records to skip on each side until both are the same again, together as few as possible.

    Args:
        lefts: The next records of the old log.
        rights: Those of the new one.
        most: The largest number to skip of the old ones: a position must not be within what differs.
    """
    places: dict[_Key, list[int]] = {}
    for number, record in enumerate(rights):
        places.setdefault(_key(record), []).append(number)
    best: tuple[int, int] | None = None
    for i, left in enumerate(lefts[: most + 1]):
        if best is not None and i >= sum(best):
            break
        for j in places.get(_key(left), ()):
            if best is not None and i + j >= sum(best):
                break
            length = min(_AGREE, len(lefts) - i, len(rights) - j)
            if all(lefts[i + n].same(rights[j + n]) for n in range(length)):
                best = i, j
                break
    return best


def _what_differs(skipped: list[RecordPrint], others: list[RecordPrint], recent: set[_Key]) -> Iterator[Difference]:
    """Yield what is between two places at which the logs agree."""
    left = Counter(map(_key, skipped))
    kinds: dict[DifferenceKind, list[RecordPrint]] = {"only new": [], "again": [], "moved": []}
    for record in others:
        key = _key(record)
        if left[key]:
            left[key] -= 1
            kinds["moved"].append(record)
        else:
            kinds["again" if key in recent else "only new"].append(record)
    missing = []
    for record in reversed(skipped):
        if left[_key(record)]:
            left[_key(record)] -= 1
            missing.append(record)
    yield from _differences("only old", missing[::-1])
    for kind, records in kinds.items():
        yield from _differences(kind, records)


def _differences(kind: DifferenceKind, records: list[RecordPrint]) -> tuple[Difference, ...]:
    return (Difference(kind, records[0].offset, records[-1].offset, len(records)),) if records else ()


def _joined(found: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """Return differences, the last ones of a kind as one if there are many."""
    if len(found) <= _DIFFERENCES:
        return found
    last = found[-1]
    for number in range(len(found) - 2, -1, -1):
        if found[number].kind == last.kind:
            one = found[number]
            joined = Difference(one.kind, one.first, last.last, one.records + last.records)
            return _joined((*found[:number], joined, *found[number + 1 : -1]))
    return found


# --- what follows -----------------------------------------------------------------------------------------------------


class Rest(NamedTuple):
    """What the new log has after the position.

    Attributes:
        records: The number of its records.
        again: Those that were read already, or that are there twice.
        unclear: Those that are not newer than records with which they could not be compared.
        unseen: The first offset that was not looked at; None if all were.
        lacks: The unread records of the old log that are missing between others, by their offsets there.
        follows: Whether the first unread record of the old log is the first one here.
    """

    records: int
    again: tuple[Difference, ...]
    unclear: tuple[Difference, ...]
    unseen: int | None
    lacks: tuple[Difference, ...]
    follows: bool


def look_after(request: MoveRequest, anchor: Anchor, old: RecordLog | None, new: RecordLog) -> Rest:
    """Return what the new log has after the place that the anchor has reached."""
    tp = request.partition
    start, end = new.bounds(tp)
    unread: list[RecordPrint] = []
    if old is not None:
        _, old_end = old.bounds(request.old_partition)
        first = max(request.position, old.bounds(request.old_partition)[0])
        unread = list(islice(old.records(request.old_partition, first, old_end), _MOST)) if first < old_end else []
    expected: dict[_Key, deque[int]] = {}
    for number, record in enumerate(unread):
        expected.setdefault(_key(record), deque()).append(number)
    found, seen, twice, older = set[int](), set[_Key](), list[RecordPrint](), list[RecordPrint]()
    count, unseen, follows, before = 0, None, False, None
    for record in new.records(tp, anchor.new, max(end, anchor.new)):
        if count >= _MOST:
            unseen = record.offset
            break
        key, count = _key(record), count + 1
        if numbers := expected.get(key):
            number = numbers.popleft()
            follows |= count == 1 and number == 0
            found.add(number)
        else:
            # One after the other, they are taken for two that were produced, unless the old log has fewer.
            if key in seen and (key != before or key in expected):
                twice.append(record)
            if record.time_ms <= anchor.newest_ms:
                older.append(record)
        seen.add(key)
        before = key
    again, unclear = _seen_before(tp, anchor, new, start, older)
    furthest = max(found, default=-1)
    lacks = [record for number, record in enumerate(unread[: furthest + 1]) if number not in found]
    repeated = sorted({*twice, *again})
    return Rest(
        count,
        _differences("again", repeated),
        _differences("again", unclear),
        unseen,
        _differences("only old", lacks),
        follows,
    )


def _seen_before(
    tp: KafkaTopicPartition, anchor: Anchor, new: RecordLog, start: int, older: list[RecordPrint]
) -> tuple[list[RecordPrint], list[RecordPrint]]:
    """Return which records are on the new log before the anchor, too, and of which that cannot be known."""
    if not older:
        return [], []
    wanted = {_key(record) for record in older}
    first = max(start, anchor.floor)
    end = max(first, anchor.new)
    is_counted = anchor.floor == anchor.began_new and end - first <= _MOST
    there, count = set[_Key](), 0
    for record in new.records(tp, first, end) if is_counted else _not_older(new, tp, min(wanted)[0], first, end):
        count += 1
        if (key := _key(record)) in wanted:
            there.add(key)
    # Compaction may have removed the first one of two, and a search may have ended early.
    is_whole = count >= anchor.records if is_counted else count < _MOST
    floor_ms = anchor.floor_ms if is_whole and start <= anchor.floor else anchor.newest_ms
    again = [record for record in older if _key(record) in there]
    return again, [record for record in older if _key(record) not in there and record.time_ms <= floor_ms]
