"""Which offsets the conditions on a batch read leave out."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.rules.model import Event, OffsetRequest
from dynamic_kafka.source.rules.pruning import (
    COMPARISONS,
    Condition,
    left_out,
    log_start_requests,
    narrow,
    size,
    start_at,
    time_requests,
)
from dynamic_kafka.spark.comparisons import Comparison, condition_of

TP = KafkaTopicPartition
TIMES_MS = st.integers(0, 20)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "cluster": st.sampled_from("abc"),
    "topic": st.sampled_from(["t", "tu"]),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-2, 12),
    "timestamp": st.integers(-1000, 21_000),
}
CONDITIONS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda column: st.sampled_from(sorted(COMPARISONS)).flatmap(
        lambda sign: st.builds(
            Condition,
            st.just(column),
            st.just(sign),
            st.lists(VALUES[column], min_size=1, max_size=3).map(tuple) if sign == "in" else VALUES[column],
        )
    )
)


def held(condition: Condition, row: dict[str, Any]) -> bool:
    """Whether a condition holds for a row."""
    return COMPARISONS[condition.operator](row[condition.column], condition.value)


@given(
    st.dictionaries(
        st.tuples(VALUES["cluster"], VALUES["topic"], st.integers(0, 2)), st.lists(TIMES_MS, max_size=10), max_size=5
    ),
    st.lists(CONDITIONS, max_size=4),
    st.integers(0, 3),
    st.integers(0, 4),
)
def test_no_row_is_left_out_that_a_condition_allows(
    logs: dict[tuple[str, str, int], list[int]], conditions: list[Condition], start: int, log_start: int
) -> None:
    """Whatever the order of times in a log, and no range grows. What was deleted is not left out because of its time."""
    document = Document()
    for (cluster, topic, partition), times in logs.items():
        offsets = document.clusters.setdefault(cluster, ClusterOffsets())
        offsets.ranges[TP(topic, partition)] = (min(start, len(times)), len(times))
    before = {(name, tp): span for name, cluster in document.clusters.items() for tp, span in cluster.ranges.items()}
    narrow(document, conditions)
    found = {}
    for cluster, _, initializer, tps in time_requests(document, conditions):
        for tp in tps:
            times = logs[cluster, tp.topic, tp.partition]
            late = (i for i in range(log_start, len(times)) if times[i] >= initializer.default_ms)  # type: ignore[attr-defined]
            found[cluster, tp] = next(late, len(times) + 5)
    start_at(document, found, dict.fromkeys(found, log_start))
    for (cluster, tp), (first, end) in before.items():
        low, high = document.clusters[cluster].ranges[tp]
        assert first <= low <= high <= end or low == high
        for offset in range(first, end):
            row = {"cluster": cluster, "topic": tp.topic, "partition": tp.partition, "offset": offset}
            row["timestamp"] = logs[cluster, tp.topic, tp.partition][offset] * 1000
            if all(held(condition, row) for condition in conditions):
                assert low <= offset < high


def test_where_logs_start_is_asked_of_the_same_partitions() -> None:
    """After the times."""
    request = OffsetRequest("c", "start", KafkaOffsetsInitializer.timestamp(5), (TP("t", 0),))
    assert log_start_requests([request]) == [request._replace(initializer=KafkaOffsetsInitializer.earliest())]


def ranges(*conditions: Condition) -> dict[int, tuple[int, int]]:
    """The ranges of three partitions with ten records each, by partition."""
    document = Document(clusters={"c": ClusterOffsets(ranges={TP("t", p): (0, 10) for p in range(3)})})
    narrow(document, conditions)
    return {tp.partition: span for tp, span in document.clusters["c"].ranges.items()}


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        ([Condition("partition", "=", 1)], {0: (0, 0), 1: (0, 10), 2: (0, 0)}),
        ([Condition("partition", "in", (0, 2)), Condition("offset", ">", 3)], {0: (4, 10), 1: (0, 0), 2: (4, 10)}),
        ([Condition("offset", ">=", 3), Condition("offset", "<", 5)], dict.fromkeys(range(3), (3, 5))),
        ([Condition("offset", "in", (7, 4))], dict.fromkeys(range(3), (4, 8))),
        ([Condition("offset", "in", ())], dict.fromkeys(range(3), (0, 0))),
        ([Condition("offset", "=", 4)], dict.fromkeys(range(3), (4, 5))),
        ([Condition("offset", "<=", 4)], dict.fromkeys(range(3), (0, 5))),
        ([Condition("offset", "<", -4)], dict.fromkeys(range(3), (0, 0))),
        ([Condition("offset", ">", 90)], dict.fromkeys(range(3), (10, 10))),
        ([Condition("cluster", "!=", "c")], dict.fromkeys(range(3), (0, 0))),
    ],
)
def test_what_is_known_before_reading_is_left_out(
    conditions: list[Condition], left: dict[int, tuple[int, int]]
) -> None:
    """Conditions hold together."""
    assert ranges(*conditions) == left


@pytest.mark.parametrize(
    ("conditions", "asked_ms"),
    [
        ([Condition("timestamp", ">=", 5_000)], 5),
        ([Condition("timestamp", ">", 5_000)], 6),
        ([Condition("timestamp", ">=", 5_001)], 6),
        ([Condition("timestamp", "in", (9_000, 7_000))], 7),
        ([Condition("timestamp", "=", 1)], 1),
        ([Condition("timestamp", "<", 5_000)], None),
        ([Condition("timestamp", ">", -2_000)], None),
    ],
)
def test_the_time_that_is_asked_for(conditions: list[Condition], asked_ms: int | None) -> None:
    """A lower bound in whole milliseconds. -1 and -2 would mean the end and the start of a log."""
    document = Document(clusters={"c": ClusterOffsets(ranges={TP("t", 0): (0, 10), TP("t", 1): (3, 3)})})
    requests = time_requests(document, conditions)
    first = KafkaOffsetsInitializer.timestamp(asked_ms) if asked_ms is not None else None
    assert requests == ([OffsetRequest("c", "start", first, (TP("t", 0),))] if first is not None else [])


def test_ranges_start_at_the_first_record_that_is_late_enough() -> None:
    """None grows or is turned round. The words say how many are left out.

    One without an answer stays as it is, and so does one from which records were deleted, or may have been.
    """
    document = Document(clusters={"c": ClusterOffsets(ranges={TP("t", p): (2, 10) for p in range(6)})})
    before = size(document)
    found = {("c", TP("t", p)): offset for p, offset in enumerate([5, 1, 90, None, 5, 5]) if offset is not None}
    log_starts = {("c", TP("t", p)): offset for p, offset in enumerate([2, 0, 1, 0, 3])}
    start_at(document, found, log_starts)
    assert list(document.clusters["c"].ranges.values()) == [(5, 10), (2, 10), (10, 10), (2, 10), (2, 10), (2, 10)]
    conditions = [Condition("timestamp", ">", 5), Condition("offset", ">", 1), Condition("timestamp", "<", 9)]
    text = "The conditions on 'offset', 'timestamp' leave out 11 of 48 offsets"
    assert left_out(before, size(document), conditions) == Event("info", text)


NOON = dt.datetime(2024, 3, 31, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("found", "condition"),
    [
        (Comparison(("partition",), "=", 3), Condition("partition", "=", 3)),
        (Comparison(("cluster",), "!=", "a"), Condition("cluster", "!=", "a")),
        (Comparison(("offset",), "in", (1, 2)), Condition("offset", "in", (1, 2))),
        (Comparison(("timestamp",), ">", NOON), Condition("timestamp", ">", 1_711_879_200_000_000)),
        (Comparison(("timestamp",), ">", NOON.replace(tzinfo=None)), None),
        (Comparison(("partition",), "=", None), None),
        (Comparison(("offset",), "in", (1, None)), None),
        (Comparison(("partition",), "=", True), None),
        (Comparison(("value",), "=", b"x"), None),
        (Comparison(("topic", "inner"), "=", "t"), None),
        (Comparison(("offset",), "not in", (1, 2)), None),
    ],
)
def test_a_comparison_that_is_not_known_leaves_out_nothing(found: Comparison, condition: Condition | None) -> None:
    """Those on coordinates are taken, with values of the columns' types."""
    assert condition_of((found,)) == condition
