"""The clock of lag: since when the oldest unread record of a partition waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.driver.behind import Behind

TP = KafkaTopicPartition("t", 0)


def seen(*looks: tuple[int, int | None]) -> Behind:
    """After looks at (position, end), one in each second."""
    behind = Behind()
    for i, (position, end) in enumerate(looks, 1):
        behind.see({TP: position}, {} if end is None else {TP: end}, 1000 * i)
    return behind


def test_a_partition_that_is_read_to_its_end_waits_for_nothing() -> None:
    """Nor one of which no end is known."""
    assert seen((5, 5)).since_ms(TP) is None
    assert seen((5, 9), (9, 9)).since_ms(TP) is None
    assert seen((5, None)).since_ms(TP) is None


def test_the_oldest_record_that_is_not_read_counts() -> None:
    """What has arrived later does not make it younger, and reading makes it as young as the next one."""
    assert seen((5, 9), (5, 20), (5, 30)).since_ms(TP) == 1000
    assert seen((5, 9), (5, 20), (8, 30)).since_ms(TP) == 1000
    assert seen((5, 9), (5, 20), (9, 30)).since_ms(TP) == 2000


def test_an_end_that_is_not_known_for_a_moment_changes_nothing() -> None:
    """The cluster does not answer: the records wait all the same."""
    assert seen((5, 9), (5, None), (5, 9)).since_ms(TP) == 1000


def test_partitions_that_are_gone_are_forgotten() -> None:
    """Nothing is kept of them."""
    behind = seen((5, 9))
    behind.see({}, {}, 2000)
    assert behind.since_ms(TP) is None
    assert behind._marks == {}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=200))
def test_lag_is_never_told_too_small_and_memory_is_bounded(steps: list[tuple[int, int]]) -> None:
    """Compared with all ends that were seen."""
    behind, position, end = Behind(), 0, 0
    history: list[tuple[int, int]] = []
    for i, (arrive, read) in enumerate(steps):
        end += arrive
        position = min(position + read, end)
        behind.see({TP: position}, {TP: end}, i)
        history.append((end, i))
        expected = next((at for e, at in history if e > position), None)
        found = behind.since_ms(TP)
        assert (found is None) == (expected is None)
        assert found is None or expected is None or found <= expected
        assert len(behind._marks.get(TP, ())) <= 16
