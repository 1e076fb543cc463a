"""Where a run of records is on another log. Pure: the records come from a `RecordLog`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.evidence import RecordLog, RecordPrint

__all__ = ["Candidate", "search"]

_BACK = 500
_BEYOND = 20_000
_MOST = 2_000_000
_CANDIDATES = 1_000


class Candidate(NamedTuple):
    """A place where the record was found: its offset, and the number of same records up to it."""

    offset: int
    run: int


def search(
    log: RecordLog, tp: KafkaTopicPartition, wanted: Sequence[RecordPrint], hint: int | None
) -> tuple[dict[int, list[Candidate]], str]:
    """Return where records are, by their number in `wanted`, and what was left out, for people.

    No record is before the first one that is not older, so the index of times leads to the place, or before it. If a record
    with a wrong time leads it too far back, the last part of the log is searched too.
    """
    start, end = log.bounds(tp)
    times = sorted({record.time_ms for record in wanted if record.time_ms >= 0})
    found: dict[int, dict[int, Candidate]] = {}
    spans: list[tuple[int, int]] = []

    def begins() -> Iterator[int]:
        at = [log.offset_at(tp, times[-1])] if times else []
        yield from (offset for offset in (*at, hint) if offset is not None)
        if len(times) > 1 and (offset := log.offset_at(tp, times[0])) is not None:
            yield offset
        if not times or any(last < end for _, last in spans):
            yield end - _MOST

    for begin in begins():
        first = max(start, begin - _BACK)
        limit = min(end, first + _MOST + _BACK)
        if any(a <= first and limit <= b for a, b in spans):
            continue
        spans.append((first, limit))
        is_found = False
        for number, places in _candidates(log, tp, first, limit, wanted).items():
            for one in places:
                known = found.setdefault(number, {}).setdefault(one.offset, one)
                found[number][one.offset] = max(known, one)
            is_found |= number == len(wanted) - 1 and any(one.run == len(wanted) for one in places)
        if is_found:
            break
    looked = " and ".join(f"{a} to {b}" for a, b in sorted(spans))
    scope = f"; only offsets {looked} were searched" if any(b < end for _, b in spans) else ""
    return {number: [places[offset] for offset in sorted(places)] for number, places in found.items()}, scope


def _candidates(
    log: RecordLog, tp: KafkaTopicPartition, start: int, end: int, wanted: Sequence[RecordPrint]
) -> dict[int, list[Candidate]]:
    """Return where records are, by their number in `wanted`.

    The log is read to `end` or, once the last one was found with all that are before it, a good deal further.
    """
    numbers: dict[tuple[int, str], list[int]] = {}
    for number, record in enumerate(wanted):
        numbers.setdefault((record.time_ms, record.content), []).append(number)
    runs = [0] * len(wanted)
    found: dict[int, list[Candidate]] = {}
    limit, is_found = end, False
    for record in log.records(tp, start, end):
        if record.offset >= limit:
            break
        mine = numbers.get((record.time_ms, record.content), ())
        before, runs = runs, [0] * len(wanted)
        for number in mine:
            runs[number] = 1 + (before[number - 1] if number else 0)
            places = found.setdefault(number, [])
            if len(places) < _CANDIDATES or runs[number] == len(wanted):
                places.append(Candidate(record.offset, runs[number]))
            if runs[number] == len(wanted) and not is_found:
                limit, is_found = min(end, record.offset + _BEYOND), True
    return found
