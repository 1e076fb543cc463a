"""Watermark alignment against a model of Spark's watermark: no row of a partition that is behind comes too late.

Spark's watermark in a batch is the greatest event time of all batches before it, minus the delay, and it never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from hypothesis import assume, given
from hypothesis import strategies as st

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.offsets import Cursor
from dynamic_kafka.source.rules.admission import admit, load
from dynamic_kafka.source.rules.alignment import Alignment, Decision, Key, Newest, Span
from dynamic_kafka.source.rules.record_times import FUTURE_MS, look_up

NOW_MS = 1_700_000_000_000


@dataclass
class Log:
    """A partition: the times of its records, and how far it was read."""

    times_ms: list[int]
    position: int = 0
    holds: bool = True
    """Whether it counts as a holder, also when it was read to its end."""
    late: int = 0

    def first_at(self, time_ms: int) -> int | None:
        """Kafka's answer: the first offset of the log with this time or a later one."""
        return next((i for i, found in enumerate(self.times_ms) if found >= time_ms), None)


@dataclass
class World:
    """The query: the partitions by cluster, the frontier of the document, and Spark's watermark."""

    logs: dict[Key, Log]
    max_drift_ms: int
    delay_ms: int
    frontier_ms: int | None = None
    greatest_ms: int | None = None
    batches: int = 0
    rounds: int = 0
    silent: set[str] = field(default_factory=set)
    alignment: Alignment = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new process: only the document is left."""
        self.alignment = Alignment(self.max_drift_ms)

    def decide(self, limit: int | None) -> Decision:
        """What the next batch may read; all questions are answered, except those to silent clusters."""
        spans = {
            key: Span(log.position, len(log.times_ms))
            for key, log in self.logs.items()
            if log.position < len(log.times_ms) and key[0] not in self.silent
        }
        waiting = {
            key: log.position
            for key, log in self.logs.items()
            if log.holds and log.position and key not in spans and key[0] not in self.silent
        }
        blocked = bool(self.silent)
        while True:
            self.rounds += 1
            assert self.rounds < 20_000
            found = self.alignment.decide(self.frontier_ms, spans, waiting, partial(load, limit=limit), blocked=blocked)
            if found.backlog is not None:
                return found
            for request in found.requests:
                answer = look_up(partial(self.first_at, request.cluster), request, now_ms=NOW_MS)
                self.alignment.learn(request, answer)
                assert not self.alignment.unanswered(request)

    def first_at(
        self, cluster: str, times_ms: Mapping[KafkaTopicPartition, int]
    ) -> dict[KafkaTopicPartition, int | None]:
        """What a cluster answers."""
        self.rounds += 1
        return {tp: self.logs[cluster, tp].first_at(time_ms) for tp, time_ms in times_ms.items()}

    def batch(self, limit: int | None = None) -> int:
        """Plan and read a batch as Spark does; how many records it has."""
        decision = self.decide(limit)
        assert decision.backlog is not None
        admitted, _ = admit(decision.backlog, Cursor(), limit=limit)
        watermark_ms = None if self.greatest_ms is None else self.greatest_ms - self.delay_ms
        count = 0
        for cluster, tps in admitted.items():
            for tp, n in tps.items():
                log = self.logs[cluster, tp]
                read = log.times_ms[log.position : log.position + n]
                assert len(read) == n
                log.late += sum(1 for time_ms in read if watermark_ms is not None and time_ms < watermark_ms)
                log.position += n
                self.greatest_ms = max([*read, *([] if self.greatest_ms is None else [self.greatest_ms])])
                count += n
        if count:
            if self.frontier_ms is not None:
                assert decision.frontier_ms is not None
                assert decision.frontier_ms >= self.frontier_ms  # it never goes back
            times = [time_ms for log in self.logs.values() for time_ms in log.times_ms if time_ms < NOW_MS + FUTURE_MS]
            assert decision.frontier_ms is None or decision.frontier_ms <= max(times)  # not by a record of the future
            self.frontier_ms = decision.frontier_ms
            self.batches += 1
        return count

    @property
    def late(self) -> int:
        """The rows that Spark would drop."""
        return sum(log.late for log in self.logs.values())

    @property
    def is_read(self) -> bool:
        """Whether everything was read."""
        return all(log.position == len(log.times_ms) for log in self.logs.values())

    def read_all(self, limit: int | None) -> None:
        """Read everything. Partitions that were read to their ends hold the others back, until they are idle."""
        while not self.is_read:
            if not self.batch(limit):
                waiting = [log for log in self.logs.values() if log.holds and log.position == len(log.times_ms)]
                assert waiting
                for log in waiting:
                    log.holds = False


def key(cluster: str, partition: int = 0) -> Key:
    """A partition."""
    return cluster, KafkaTopicPartition("t", partition)


times = st.lists(st.integers(0, 100_000), max_size=30).map(sorted)
logs = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2).map(lambda p: KafkaTopicPartition("t", p))),
    times.map(lambda found: Log([NOW_MS - 200_000 + t for t in found])),
    min_size=1,
    max_size=6,
)
drifts = st.sampled_from([1, 7, 1_000, 20_000, 1_000_000])
limits = st.none() | st.integers(1, 40)


@given(logs, drifts, limits)
def test_a_catch_up_drops_no_row_and_reads_all(found: dict[Key, Log], drift_ms: int, limit: int | None) -> None:
    """Whatever the backlogs, the drift and the limit: all is read, and no row is late with a delay of the drift."""
    world = World(found, drift_ms, drift_ms)
    world.read_all(limit)
    assert world.late == 0


@given(st.data(), logs, drifts, st.sampled_from([0, 500]))
def test_no_row_is_late_while_records_come_and_processes_end(
    data: st.DataObject, found: dict[Key, Log], drift_ms: int, slack_ms: int
) -> None:
    """No row of a partition that holds is late while records come, clusters fall silent, and processes start again."""
    world = World(found, drift_ms, drift_ms + slack_ms)
    for _ in range(data.draw(st.integers(1, 12))):
        what = data.draw(st.sampled_from(["batch", "batch", "append", "append", "silent", "restart"]))
        if what == "batch":
            world.batch(data.draw(limits))
        elif what == "append":
            log = found[data.draw(st.sampled_from(sorted(found)))]
            last = log.times_ms[-1] if log.times_ms else NOW_MS - 200_000
            if not log.times_ms and world.frontier_ms is not None:
                last = max(last, world.frontier_ms)  # one that is new with older records cannot be helped
            log.times_ms += [last + step for step in sorted(data.draw(st.lists(st.integers(0, 50_000), max_size=10)))]
        elif what == "silent":
            world.silent = data.draw(st.sets(st.sampled_from("abc"), max_size=2))
        else:
            world.restart()
        assert world.late == 0


@given(st.lists(st.integers(-5_000, 5_000), min_size=1, max_size=60), logs, drifts, limits)
def test_records_out_of_order_never_stop_progress(
    steps: list[int], found: dict[Key, Log], drift_ms: int, limit: int | None
) -> None:
    """A partition whose times go back and forth is read to its end, and so are the others."""
    time_ms, shuffled = NOW_MS - 150_000, []
    for step in steps:
        time_ms += step
        shuffled.append(time_ms)
    found[key("z")] = Log(shuffled)
    world = World(found, drift_ms, drift_ms)
    world.read_all(limit)


@given(logs, drifts, limits, st.integers(0, 20))
def test_a_time_in_the_far_future_stops_nothing(
    found: dict[Key, Log], drift_ms: int, limit: int | None, at: int
) -> None:
    """A record of the year 2100 in a partition is passed, and all partitions are read to their ends."""
    wrong = min(found)
    found[wrong].times_ms.insert(min(at, len(found[wrong].times_ms)), NOW_MS + 30 * 365 * FUTURE_MS)
    world = World(found, drift_ms, drift_ms)
    world.read_all(limit)


@given(logs, drifts)
def test_without_a_limit_a_catch_up_is_one_batch_if_all_are_equally_new(found: dict[Key, Log], drift_ms: int) -> None:
    """Without a limit, all backlogs are read at once if their newest records are within the drift."""
    newest = [log.times_ms[-1] for log in found.values() if log.times_ms]
    assume(newest)
    for log in found.values():
        if log.times_ms:
            log.times_ms.append(max(newest))
    world = World(found, drift_ms, drift_ms)
    world.batch()
    assert world.is_read


@given(logs, drifts, st.integers(-1, 1_700_000_000), st.booleans())
def test_times_that_are_none_hold_nobody_back(
    found: dict[Key, Log],
    drift_ms: int,
    time_ms: int,
    late: bool,  # noqa: FBT001
) -> None:
    """Seconds instead of milliseconds, or no time: from the first start on, or on a partition that is found later."""
    without = ("z", KafkaTopicPartition("t", 0))
    alone = World({key: Log([*log.times_ms]) for key, log in found.items()}, drift_ms, drift_ms)
    world = World({**found, **({} if late else {without: Log([time_ms] * 9)})}, drift_ms, drift_ms)
    for _ in range(4):
        world.batch()
        alone.batch()
        world.logs.setdefault(without, Log([])).times_ms.append(time_ms)
    assert {key: log.position for key, log in found.items()} == {key: log.position for key, log in alone.logs.items()}


@given(times.filter(bool), st.integers(0, 200_000), drifts, st.integers(0, 35))
def test_the_newest_time_is_found_to_an_eighth_of_the_drift(
    found: list[int], least_ms: int, drift_ms: int, end: int
) -> None:
    """The search finds the greatest time below the end, from a first start as from a known time."""
    tp = KafkaTopicPartition("t", 0)
    log = Log([NOW_MS - 100_000 + t for t in found])
    end = min(end, len(found))
    assume(end)
    newest = max(log.times_ms[:end])
    alignment = Alignment(drift_ms)
    spans = {("a", tp): Span(0, end)}
    (request,) = alignment.decide(None, spans, {}, lambda _: 0.0, blocked=False).requests
    for least in (0, max(1, newest - least_ms)):
        asked = request._replace(newest={tp: (end, least)})
        answer = look_up(lambda t: {p: log.first_at(ms) for p, ms in t.items()}, asked, now_ms=NOW_MS)
        time_ms = answer.newest[tp].time_ms
        assert newest - max(1, drift_ms // 8) < time_ms <= newest or time_ms == least
        assert answer.newest[tp] == Newest(end, time_ms)
