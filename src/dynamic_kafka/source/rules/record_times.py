"""Looking up the times of records on a cluster, by its index of times: all partitions in one request, no record is read.

The time of the newest record is found by bisection. The first guesses are chosen so that it takes few rounds where the
answer is usual: near to now at a first start, and a little more than the last time later on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.rules.alignment import OLDEST_MS, Newest, TimeAnswer, TimeRequest

__all__ = ["FUTURE_MS", "look_up"]

FUTURE_MS = 24 * 3_600_000
"""A record that is so far in the future has a wrong time. Clocks differ by less, and so do time zones mostly."""

FirstAt = Callable[[Mapping[KafkaTopicPartition, int]], Mapping[KafkaTopicPartition, int | None]]
"""From times to the first offsets with a record of that time or later, None if there is none; without partitions that do
not answer."""


def look_up(first_at: FirstAt, request: TimeRequest, *, now_ms: int) -> TimeAnswer:
    """Return the answer to a request."""
    offsets = first_at(dict.fromkeys(request.ends, request.bound_ms + 1)) if request.ends else {}
    newest = _newest(first_at, request.newest, now_ms, request.max_drift_ms) if request.newest else {}
    return TimeAnswer(offsets, newest)


@dataclass(slots=True)
class _Bracket:
    """What is known of the newest time: it is at least `low_ms` and, if that is not None, less than `high_ms`.

    Once a record of the future was found, it is the newest time before that record.
    """

    end: int
    least_ms: int
    step_ms: int
    low_ms: int = 0
    high_ms: int | None = None
    is_low_sure: bool = True
    future: int | None = None

    def guess(self, now_ms: int, horizon_ms: int) -> int:
        """Return the next time to ask for."""
        if self.high_ms is None:
            return min(self.low_ms + self.step_ms, horizon_ms)
        if not self.is_low_sure and now_ms - self.step_ms > self.low_ms:
            return now_ms - self.step_ms
        return (self.low_ms + self.high_ms) // 2


def _newest(
    first_at: FirstAt, wanted: Mapping[KafkaTopicPartition, tuple[int, int]], now_ms: int, max_drift_ms: int
) -> dict[KafkaTopicPartition, Newest]:
    horizon_ms, exact_ms = now_ms + FUTURE_MS, max(1, max_drift_ms // 8)
    found: dict[KafkaTopicPartition, Newest] = {}
    brackets: dict[KafkaTopicPartition, _Bracket] = {}
    for tp, (end, least_ms) in wanted.items():
        if least_ms:
            brackets[tp] = _Bracket(end, least_ms, max_drift_ms, least_ms)
        else:  # begin at now, and go back in growing steps
            brackets[tp] = _Bracket(end, 0, now_ms + exact_ms, is_low_sure=False)
    while brackets:
        guesses = {tp: bracket.guess(now_ms, horizon_ms) for tp, bracket in brackets.items()}
        answers = first_at(guesses)
        for tp, guess_ms in guesses.items():
            bracket = brackets[tp]
            if tp not in answers:
                del brackets[tp]
                continue
            offset = answers[tp]
            if offset is not None and offset < (bracket.end if bracket.future is None else bracket.future):
                if bracket.high_ms is None and guess_ms >= horizon_ms:
                    bracket.future, bracket.low_ms, bracket.high_ms = offset, bracket.least_ms, horizon_ms
                else:
                    bracket.step_ms *= 2
                    bracket.low_ms, bracket.is_low_sure = guess_ms, True
            else:
                if not bracket.is_low_sure:
                    bracket.step_ms = max_drift_ms if bracket.high_ms is None else 4 * bracket.step_ms
                bracket.high_ms = guess_ms
            if bracket.high_ms is not None and bracket.high_ms - bracket.low_ms <= exact_ms:
                found[tp] = Newest(bracket.end, bracket.low_ms, bracket.future)
                del brackets[tp]
    # What is not newer than expected may be without any time: then it was not as new as expected either.
    unsure = {tp: OLDEST_MS for tp, newest in found.items() if newest.time_ms == wanted[tp][1] >= OLDEST_MS}
    answers = first_at(unsure) if unsure else {}
    for tp, offset in answers.items():
        newest = found[tp]
        if offset is None or offset >= (newest.end if newest.future is None else newest.future):
            found[tp] = newest._replace(time_ms=0)
    return found
