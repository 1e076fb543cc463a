"""Watermark alignment: how far in record time a micro-batch reads, so that no partition runs ahead of the slowest. Pure.

Spark has one watermark: the greatest event time that the query has read in earlier batches, minus the delay. A partition
that is read ahead of another one by more than the delay makes the other one's rows late, and stateful operators drop them.
What can be done about it is to admit less. After each batch this holds, with the *frontier* of the batch:

1. No holder gives a record older than the frontier any more.
2. No record that was admitted is later than the frontier plus `max_drift_ms` (the *bound* of the batch).

So with a delay of at least `max_drift_ms`, no row of a holder is late. Holders are the partitions with a backlog, and those
that had one until lately (`waiting`): a partition that is written slowly is read to its end again and again. The caller
says which these are, and for how long they count (`scan.watermark.idle-timeout`).

How the frontier rises. It may rise to a time `f` with a batch, if each holder has a record of `f` or later (its records
come in the order of their times, so what follows is not older either), and if the batch admits all records up to `f +
max_drift_ms`:

* The greatest possible `f` is therefore the least of the holders' newest records. Without a limit, or if the backlog fits
  into it, the bound is that plus `max_drift_ms`. A query that keeps up is not slowed down by this, however long its batches
  are, and an unlimited catch-up takes no more batches than without alignment.
* If so much does not fit into the limit, a lesser `f` is tried, and the width that fits is remembered for the next batch.
  The least is the frontier as it is: then the limit shares what lies within the drift, and the frontier stays.
* If there is no record up to a bound, all that is unread is later, and the frontier rises without a batch.

Two facts are asked from a cluster, and both by its index of times (`ListOffsets`), all partitions in one request and
without reading a record. One is the first offset with a record later than the bound. The other is the time of the newest
record, found by bisection to an eighth of the drift. (One request for the "maximum timestamp" would not honour
transactions: it also finds records that a consumer may not see yet, and older ones may follow in sight.)

Records out of order. The index finds the *first* record that is later than the bound. Its partition waits there until the
others come close, and what follows it is judged by it, as Spark's watermark will be. This never stops progress: the holder
whose newest record is the oldest of all has nothing later than the bound, so it is always read on. A record that is more
than a day in the future would have no others that ever come close. It is passed, with a warning, and from then on its
partition is not aligned. A partition whose newest record has a time before 1990 or none is not aligned either, because it
would hold the others for ever. It is looked at again when it has more.

The frontier never goes back. A partition that is found later with older records is read up to the bound, which does not
rise meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.collector import without_collector

__all__ = ["OLDEST_MS", "Alignment", "Backlog", "Decision", "Key", "Newest", "Span", "TimeAnswer", "TimeRequest"]

OLDEST_MS = 631_152_000_000
"""1990. An earlier time is none: seconds instead of milliseconds, a counter, or a record without a time."""
_FILLED = 0.75
"""The part of the limit that a batch is meant to take. The rest is for times that have more records than others."""

Key = tuple[str, KafkaTopicPartition]
"""The name of a cluster, and a partition of it."""
Backlog = dict[str, dict[KafkaTopicPartition, int]]


class Span(NamedTuple):
    """What can be read of a partition now."""

    position: int
    end: int


class Newest(NamedTuple):
    """The newest record of a partition below an end.

    Attributes:
        end: The end.
        time_ms: Its time, or up to an eighth of the drift less; 0 if the partition has no record with a time.
        future: The offset of the first record below `end` that is more than a day in the future; None if there is none. If
            there is one, `time_ms` is of the records before it.
    """

    end: int
    time_ms: int
    future: int | None = None


class _Reach(NamedTuple):
    """The first offset with a record later than the bound; if `is_open`, there was none below this offset."""

    bound_ms: int
    offset: int
    is_open: bool


class TimeRequest(NamedTuple):
    """Questions to a cluster about the times of records.

    Attributes:
        cluster: The cluster.
        bound_ms: For each partition in `ends`, the first record later than this is looked up.
        ends: These partitions, and the ends that are known of them.
        newest: Partitions of which the newest record below an end is looked up: the end, and the least time that it has.
        max_drift_ms: The drift, of which an eighth is the precision of the time of the newest record.
    """

    cluster: str
    bound_ms: int
    ends: Mapping[KafkaTopicPartition, int]
    newest: Mapping[KafkaTopicPartition, tuple[int, int]]
    max_drift_ms: int


class TimeAnswer(NamedTuple):
    """The answer to a `TimeRequest`, without the partitions that did not answer.

    Attributes:
        offsets: The first offset with a later record; None if there is none.
        newest: The newest records.
    """

    offsets: Mapping[KafkaTopicPartition, int | None]
    newest: Mapping[KafkaTopicPartition, Newest]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a micro-batch may read.

    Args:
        backlog: The admitted part of the backlog; None if requests have to be answered first.
        frontier_ms: The frontier for the document of this batch.
        bound_ms: No admitted record is later.
        held: The partitions with records that are not admitted because of their times.
        slowest: The partition that the others wait for.
        requests: What has to be known first.
    """

    backlog: Backlog | None
    frontier_ms: int | None = None
    bound_ms: int | None = None
    held: Collection[Key] = ()
    slowest: Key | None = None
    requests: list[TimeRequest] = field(default_factory=list)


class Alignment:
    """The rules above, and what is known of the times of records.

    Args:
        max_drift_ms: How far a partition may be ahead of the slowest.
    """

    def __init__(self, max_drift_ms: int) -> None:
        self.max_drift_ms = max_drift_ms
        self._newest: dict[Key, Newest] = {}
        self._reaches: dict[Key, _Reach] = {}
        self._floor_ms: int | None = None  # nothing that is unread is older: the frontier, or more than that
        self._width_ms: int | None = None  # how far beyond the least bound a batch tries to read; None for all
        self._below_top_ms = 0  # the same from above, as long as there is no frontier

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget partitions, because what has their names now may have another log."""
        for key in keys:
            self._newest.pop(key, None)
            self._reaches.pop(key, None)

    def learn(self, request: TimeRequest, answer: TimeAnswer) -> None:
        """Take an answer, which may be late: what it says of an end stays true."""
        for tp, offset in answer.offsets.items():
            is_open = offset is None or offset >= request.ends[tp]
            found = _Reach(request.bound_ms, request.ends[tp] if offset is None else offset, is_open)
            self._reaches[request.cluster, tp] = found
        for tp, newest in answer.newest.items():
            before = self._newest.get((request.cluster, tp))
            if before is None or before.end <= newest.end:
                self._newest[request.cluster, tp] = newest

    def unanswered(self, request: TimeRequest) -> set[KafkaTopicPartition]:
        """Return the partitions of a request of which a question is not answered."""
        name = request.cluster
        reaches = {tp: self._reaches.get((name, tp)) for tp in request.ends}
        newest = {tp: (self._newest.get((name, tp)), end) for tp, (end, _) in request.newest.items()}
        return {tp for tp, found in reaches.items() if found is None or found.bound_ms != request.bound_ms} | {
            tp for tp, (found, end) in newest.items() if found is None or found.end < end
        }

    def newest(self, key: Key) -> Newest | None:
        """Return what is known of a partition's newest record."""
        return self._newest.get(key)

    def is_free(self, key: Key, position: int) -> bool:
        """Return whether the partition is not aligned: a record of the future comes or came, or it has no times."""
        found = self._newest.get(key)
        if found is None:
            return False
        return position >= found.future if found.future is not None else found.time_ms < OLDEST_MS

    @without_collector
    def decide(
        self,
        frontier_ms: int | None,
        spans: Mapping[Key, Span],
        waiting: Mapping[Key, int],
        load: Callable[[Backlog], float],
        *,
        blocked: bool,
    ) -> Decision:
        """Return what may be read now, or what has to be asked before that.

        Args:
            frontier_ms: The frontier of the last document; None at the first start.
            spans: The partitions with a backlog.
            waiting: The other holders, and their positions.
            load: Returns which part of the limits a backlog takes: more than 1 does not fit into a batch.
            blocked: True if there may be a holder of which nothing is known. The frontier stays then.
        """
        self.forget([key for key, end in _ends(spans, waiting) if key in self._newest and self._newest[key].end > end])
        free = {key for key, span in spans.items() if self.is_free(key, span.position)}
        if again := [(key, spans[key].end) for key in free if self._may_have_times(key, spans[key].end)]:
            return Decision(None, requests=self._requests_for_newest(again))
        aligned = {key: span for key, span in spans.items() if key not in free}
        waiting = {key: position for key, position in waiting.items() if not self.is_free(key, position)}
        if frontier_ms is not None:
            self._floor_ms = max(frontier_ms, self._floor_ms or frontier_ms)
        if not aligned:
            return Decision(_admitted(spans, free, {}), self._floor_ms)
        if self._floor_ms is None:
            if blocked:
                return Decision({}, held=aligned)
            if unknown := [(key, end) for key, end in _ends(aligned, waiting) if key not in self._newest]:
                return Decision(None, requests=self._requests_for_newest(unknown))
        least_ms, slowest = min((self._time_ms(key), key) for key in (*aligned, *waiting))
        highest_ms = max(least_ms, self._floor_ms or 0)  # the greatest frontier
        if blocked:
            assert self._floor_ms is not None
            highest_ms = self._floor_ms
        top_ms = highest_ms + self.max_drift_ms
        while True:
            bound_ms = self._next_bound(top_ms)
            reached = {key: self._reached(key, span, bound_ms) for key, span in aligned.items()}
            if unknown := [(key, aligned[key].end) for key, offset in reached.items() if offset is None]:
                return Decision(None, requests=self._requests_for_offsets(bound_ms, unknown))
            offsets = {key: offset for key, offset in reached.items() if offset is not None}
            held = [key for key, span in aligned.items() if offsets[key] < span.end]
            admitted = _admitted(spans, free, offsets)
            if not any(offset > aligned[key].position for key, offset in offsets.items()) and bound_ms < top_ms:
                self._nothing_until(bound_ms, highest_ms)
                continue
            if bound_ms == top_ms and held and not blocked and (stale := self._stale(aligned, waiting, slowest)):
                return Decision(None, requests=self._requests_for_newest(stale))
            part = load(admitted)
            if part > 1 and not self._is_least(bound_ms):
                self._try_less(bound_ms, part)
                continue
            if part <= 1:
                self._note_fit(bound_ms, top_ms, part)
            frontier = self._floor_ms
            if frontier is None or part <= 1:
                frontier = max(bound_ms - self.max_drift_ms, frontier or 0)
            return Decision(admitted, frontier, bound_ms, held, slowest)

    # --- times ---

    def _may_have_times(self, key: Key, end: int) -> bool:
        """Return whether a partition that had no times may have them now."""
        found = self._newest[key]
        return found.future is None and found.end < end

    def _time_ms(self, key: Key) -> int:
        """Return a time that the partition's newest record has at least. What is not known was not older than the floor."""
        found = self._newest.get(key)
        if found is None:
            assert self._floor_ms is not None
            return self._floor_ms
        return found.time_ms

    def _reached(self, key: Key, span: Span, bound_ms: int) -> int | None:
        """Return the offset up to which a partition has no record later than the bound; None if that is not known."""
        known = self._reaches.get(key)
        if known is None:
            return None
        if known.is_open and known.bound_ms <= bound_ms and known.offset >= span.end:
            return span.end
        if not known.is_open and known.bound_ms >= bound_ms and known.offset <= span.position:
            return known.offset
        if known.bound_ms != bound_ms or (known.is_open and known.offset < span.end):
            return None
        return known.offset

    def _stale(self, aligned: Mapping[Key, Span], waiting: Mapping[Key, int], slowest: Key) -> list[tuple[Key, int]]:
        """Return the holders to look at again, if the slowest may have newer records than is known; else nothing."""
        stale = {
            key: end for key, end in _ends(aligned, waiting) if key not in self._newest or self._newest[key].end < end
        }
        if slowest not in stale:
            return []
        near_ms = self._time_ms(slowest) + self.max_drift_ms
        return [(key, end) for key, end in stale.items() if self._time_ms(key) <= near_ms]

    def _requests_for_newest(self, wanted: Iterable[tuple[Key, int]]) -> list[TimeRequest]:
        by_cluster: dict[str, dict[KafkaTopicPartition, tuple[int, int]]] = {}
        for key, end in wanted:
            least_ms = 0 if self._floor_ms is None and key not in self._newest else self._time_ms(key)
            least_ms = 0 if least_ms < OLDEST_MS else least_ms
            by_cluster.setdefault(key[0], {})[key[1]] = end, least_ms
        return [TimeRequest(name, 0, {}, newest, self.max_drift_ms) for name, newest in sorted(by_cluster.items())]

    def _requests_for_offsets(self, bound_ms: int, wanted: Iterable[tuple[Key, int]]) -> list[TimeRequest]:
        by_cluster: dict[str, dict[KafkaTopicPartition, int]] = {}
        for (name, tp), end in wanted:
            by_cluster.setdefault(name, {})[tp] = end
        return [TimeRequest(name, bound_ms, ends, {}, self.max_drift_ms) for name, ends in sorted(by_cluster.items())]

    # --- the bound ---

    def _next_bound(self, top_ms: int) -> int:
        if self._floor_ms is None:
            bound_ms = top_ms - self._below_top_ms
            if bound_ms > self.max_drift_ms:
                return bound_ms
            self._floor_ms, self._width_ms = 0, self._below_top_ms // 4
        if self._width_ms is None:
            return top_ms
        return min(top_ms, self._floor_ms + self.max_drift_ms + self._width_ms)

    def _is_least(self, bound_ms: int) -> bool:
        return self._floor_ms is not None and bound_ms <= self._floor_ms + self.max_drift_ms

    def _try_less(self, bound_ms: int, part: float) -> None:
        if self._floor_ms is None:
            self._below_top_ms = max(self.max_drift_ms, 4 * self._below_top_ms)
            return
        # As much as would fit if the records were spread evenly, but half at most, so that it ends.
        even_ms = int((bound_ms - self._floor_ms) * _FILLED / part) - self.max_drift_ms
        width_ms = min(even_ms, (bound_ms - self._floor_ms - self.max_drift_ms) // 2)
        self._width_ms = width_ms if width_ms >= self.max_drift_ms // 8 else 0

    def _nothing_until(self, bound_ms: int, highest_ms: int) -> None:
        """Raise the floor: all that is unread is later than the bound."""
        if self._floor_ms is None:
            self._width_ms = self._below_top_ms // 4
        elif self._width_ms is not None:
            self._width_ms = max(2 * self._width_ms, self.max_drift_ms)
        self._floor_ms = min(bound_ms + 1, highest_ms)

    def _note_fit(self, bound_ms: int, top_ms: int, part: float) -> None:
        if self._floor_ms is None and self._below_top_ms:
            self._width_ms = self._below_top_ms // 4
        elif self._width_ms is not None and part < _FILLED / 2 and bound_ms < top_ms:
            self._width_ms = max(2 * self._width_ms, self.max_drift_ms)


def _ends(spans: Mapping[Key, Span], waiting: Mapping[Key, int]) -> list[tuple[Key, int]]:
    return [*((key, span.end) for key, span in spans.items()), *waiting.items()]


def _admitted(spans: Mapping[Key, Span], free: Collection[Key], offsets: Mapping[Key, int]) -> Backlog:
    admitted: Backlog = {}
    for key, span in spans.items():
        count = min(span.end, span.end if key in free else offsets[key]) - span.position
        if count > 0:
            admitted.setdefault(key[0], {})[key[1]] = count
    return admitted
