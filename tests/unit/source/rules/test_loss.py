"""What the answer of a cluster proves about a planned range, answer by answer."""

from __future__ import annotations

import pytest

from dynamic_kafka.source.rules.loss import PartitionAnswer, Proof, prove
from dynamic_kafka.source.rules.planning import Range

ID = "AbCdEfGhIjK"
RANGE = Range("c", "t", ID, 2, 50, 100)
HEALTHY = PartitionAnswer(topic_exists=True, topic_id=ID, partitions=3, start=0, end=100)


@pytest.mark.parametrize(
    "answer",
    [
        PartitionAnswer(),
        PartitionAnswer(topic_exists=True, partitions=3),
        HEALTHY,
        HEALTHY._replace(topic_id="", start=60),
        HEALTHY._replace(end=101),
    ],
    ids=str,
)
def test_nothing_is_proved(answer: PartitionAnswer) -> None:
    """By an answer without content, nor by one that shows every offset that is still to be read."""
    assert prove(RANGE, 60, answer) is None


def test_a_range_without_a_topic_id_is_of_any_topic() -> None:
    """Brokers before 2.8 have no ids, so none is not another one."""
    assert prove(RANGE._replace(topic_id=""), 60, HEALTHY) is None


def test_another_topic_id_loses_the_whole_range() -> None:
    """Also what was read of it: its records are of another topic. It is the first that is looked at."""
    answer = PartitionAnswer(topic_exists=True, topic_id="other-topic", partitions=1, start=70, end=80)
    reason = f"the topic was recreated (topic id {ID} is now other-topic)"
    assert prove(RANGE, 60, answer) == Proof("recreated", reason, 50, 100)


def test_a_deleted_topic_loses_the_rest() -> None:
    """From the position on; what was read was read."""
    answer = PartitionAnswer(topic_exists=False, partitions=0, start=70, end=80)
    assert prove(RANGE, 60, answer) == Proof("deleted", "the topic was deleted", 60, 100)


@pytest.mark.parametrize("partitions", [0, 2])
def test_fewer_partitions_lose_the_rest(partitions: int) -> None:
    """Kafka never takes partitions away, so it is another topic, even if brokers tell no topic ids."""
    reason = f"the topic has only {partitions} partitions now, so it was recreated"
    answer = PartitionAnswer(topic_exists=True, partitions=partitions, start=70, end=80)
    assert prove(RANGE, 60, answer) == Proof("removed", reason, 60, 100)


@pytest.mark.parametrize(("start", "lost"), [(61, (60, 61)), (100, (60, 100)), (500, (60, 100))])
def test_a_log_that_starts_later_loses_what_is_before_its_start(start: int, lost: tuple[int, int]) -> None:
    """One answer is enough: a log's start never goes back."""
    reason = f"offsets up to {start} were deleted (retention, or DeleteRecords)"
    answer = HEALTHY._replace(start=start, end=max(start, 100))
    assert prove(RANGE, 60, answer) == Proof("expired", reason, *lost, final=True)


@pytest.mark.parametrize(("end", "lost"), [(0, (60, 100)), (60, (60, 100)), (99, (99, 100))])
def test_a_log_that_ends_earlier_loses_what_is_from_its_end_on(end: int, lost: tuple[int, int]) -> None:
    """What is before its end can still be read. A new leader may show an older end, so one answer is not enough."""
    reason = f"the log ends at offset {end}, below the end of the planned range [50, 100)"
    assert prove(RANGE, 60, HEALTHY._replace(end=end)) == Proof("truncated", reason, *lost, final=False)
