"""The threads that compare records: how often they ask again, and marks of clusters that are far away or partly silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.document import ClusterOffsets
from dynamic_kafka.source.document.evidence import Anchor, Marks, MoveRequest, Placement, RecordPrint, Sync
from dynamic_kafka.source.driver import movers as movers_module
from dynamic_kafka.source.driver.movers import Movers
from dynamic_kafka.source.driver.record_log import OffsetSyncs, SyncsOfTopic

T0, T1 = KafkaTopicPartition("t", 0), KafkaTopicPartition("t", 1)
REQUEST = MoveRequest("b", T0, "a", T0, 5, "records", "", True, ())


class Far:
    """A log that answers when it is let, and never for the second partition."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[Mapping[KafkaTopicPartition, int]] = []

    def marks(self, positions: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, Marks]:
        """The marks of the first partition."""
        self.asked.append(dict(positions))
        assert self.may_answer.wait(30)
        return {T0: marks_until(positions[T0])} if T0 in positions else {}


def marks_until(end: int) -> Marks:
    """One record."""
    return Marks(end, (RecordPrint(end - 1, 1, "x", ""),))


def at(
    positions: Mapping[KafkaTopicPartition, int], topic_id: str = "x"
) -> tuple[ClusterOffsets, list[KafkaTopicPartition], dict[str, str]]:
    """Positions, their partitions and no properties."""
    state = ClusterOffsets("kafka", topics={"t": topic_id}, ranges={tp: (end, end) for tp, end in positions.items()})
    return state, list(positions), {}


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Far:
    """It stands for every cluster."""
    log = Far()

    @contextmanager
    def open_log(*_: Any, **__: Any) -> Iterator[Far]:
        yield log

    monkeypatch.setattr(movers_module, "open_log", open_log)
    return log


def test_a_move_that_waits_is_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 2 s, 4 s and so on up to a minute, while the answer stays the same."""
    now = [0.0]
    answered: list[float] = []

    def answer(*_: Any, **__: Any) -> Placement:
        answered.append(now[0])
        return Placement(None, "unproved", None, "not there")

    monkeypatch.setattr(movers_module, "answer", answer)
    monkeypatch.setattr(movers_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    movers = Movers(group_id="g", timeout_ms=1000)
    for second in range(200):
        now[0] = float(second)
        movers.request([REQUEST], {}, 10)
    movers.close()
    assert answered == [0, 2, 6, 14, 30, 62, 122, 182]


def test_offset_syncs_are_read_once_for_all_partitions_of_a_move() -> None:
    """Also if several threads need them at the same time, and if the cluster does not answer."""
    asked: list[str] = []

    def read() -> SyncsOfTopic:
        asked.append("b")
        raise ClusterUnavailableError("no answer", cluster_id="b")

    syncs, together, failed = OffsetSyncs(), threading.Barrier(4), []

    def use() -> None:
        together.wait(30)
        try:
            syncs.read_once(("b", "mm2"), read)
        except ClusterUnavailableError as error:
            failed.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (asked, len(failed)) == (["b"], 4)
    known = {T0: [Sync(1, 1)]}
    assert syncs.read_once(("a", "mm2"), lambda: known) is syncs.read_once(("a", "mm2"), read) is known


def test_marks_that_come_late_are_used_for_the_position_that_they_are_of(far: Far) -> None:
    """A batch does not wait for a cluster that has not answered the one before. No partition waits for another one."""
    movers = Movers(group_id="g", timeout_ms=1000)
    assert movers.marks("a", *at({T0: 5, T1: 5}), 0.01) == {}
    began = time.monotonic()
    assert movers.marks("a", *at({T0: 7, T1: 5}), 30) == {}
    assert time.monotonic() - began < 10
    far.may_answer.set()
    while movers._busy:
        time.sleep(0.001)
    assert movers.marks("a", *at({T0: 9, T1: 5}), 30) == {T0: marks_until(9)}
    assert far.asked == [{T0: 5, T1: 5}, {T0: 7, T1: 5}, {T0: 9, T1: 5}]
    assert movers.marks("a", *at({T0: 9, T1: 5}), 30) == {T0: marks_until(9)}
    assert len(far.asked) <= 4
    movers.close()


def test_marks_of_records_that_are_gone_are_not_used_for_others_at_the_same_offsets(far: Far) -> None:
    """A topic that was made again, and a log that was cut: each time the position comes back to where it was."""
    far.may_answer.set()
    movers = Movers(group_id="g", timeout_ms=1000)
    assert movers.marks("a", *at({T0: 5}), 30) == {T0: marks_until(5)}
    assert movers.marks("a", *at({T0: 5}, "made again"), 30) == {T0: marks_until(5)}
    assert far.asked == [{T0: 5}, {T0: 5}]
    state, tps, properties = at({T0: 5}, "made again")
    state.ranges[T0] = 3, 5
    movers._tried.clear()  # as after 2 s
    assert movers.marks("a", state, tps, properties, 30) == {T0: marks_until(5)}
    assert far.asked == [{T0: 5}, {T0: 5}, {T0: 5}]
    movers.close()


def test_marks_that_were_read_before_the_position_went_back_are_not_used(far: Far) -> None:
    """The answer is late, and may be of records that the log has lost since."""
    movers = Movers(group_id="g", timeout_ms=1000)
    assert movers.marks("a", *at({T0: 9}), 0.01) == {}
    (log,) = movers._tried["a"][0]
    movers._went_back[log] = time.monotonic()
    far.may_answer.set()
    while movers._busy:
        time.sleep(0.001)
    assert movers._marks == {}
    movers.close()


def test_copies_are_compared_in_the_background_and_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is what is known by now; when the position goes back, it is forgotten and compared again."""
    reached: list[int] = []

    @contextmanager
    def open_log(*_: Any, **__: Any) -> Iterator[None]:
        yield None

    def follow(request: MoveRequest, *_: Any) -> tuple[Anchor, bool]:
        reached.append(request.position)
        end = request.position
        return Anchor("kb", "tb", end, end, 0, 0, end, 1, 0, -2, end), True

    monkeypatch.setattr(movers_module, "open_log", open_log)
    monkeypatch.setattr(movers_module, "follow", follow)
    movers = Movers(group_id="g", timeout_ms=1000)
    properties: dict[str, dict[str, str]] = {"a": {}, "b": {}}

    def known(position: int) -> int | None:
        request = REQUEST._replace(position=position)
        found = movers.follow([request], properties)
        while movers._busy:
            time.sleep(0.001)
        return found[request][0].until if found else None

    assert [known(5), known(5)] == [None, 5]
    assert [known(3), known(3)] == [None, 3]
    assert reached == [5, 3]
    movers.close()
