"""A batch of a cluster that died is read from its copy: which ranges, and what is said."""

from __future__ import annotations

from typing import Any

import pytest

from dynamic_kafka.continuation import Continues
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.document.evidence import Marks, MoveRequest, Placement
from dynamic_kafka.source.rules.planning import Range
from dynamic_kafka.source.rules.stand_in import stand_in

TP = KafkaTopicPartition
MARKS = (Marks(30, ()),)
COPY = Continues("old", "records", {"t": "t2"})


def exact(position: int | None, **more: Any) -> Placement:
    """The place of a position that is proved."""
    return Placement(position, "exact", 0, "it was found")._replace(**more)


def read(
    groups: list[list[Range]], answers: dict[int, Placement], continues: Continues = COPY
) -> tuple[list[list[Range]], list[str], list[MoveRequest]]:
    """The ranges, what is said, and what was asked for. The answers are by position."""
    asked = []

    def ask(request: MoveRequest) -> Placement:
        asked.append(request)
        return answers[request.position]

    document = Document(clusters={"old": ClusterOffsets(marks={TP("t", 3): MARKS})})
    found, said = stand_in(groups, document, "new", topics=["t2"], continues=continues, ask=ask)
    return found, said, asked


def test_both_ends_of_the_whole_range_are_asked_for_and_the_first_task_reads_it() -> None:
    """A range that was cut is not cut again, and a task without ranges is none. All others stay as they are."""
    groups = [
        [Range("old", "t", "id", 3, 20, 30), Range("other", "t", "id", 3, 1, 2)],
        [Range("old", "t", "id", 3, 10, 20)],
        [Range("old", "t", "id", 3, 30, 35), Range("old", "u", "id", 0, 5, 6)],
    ]
    found, (said,), asked = read(groups, {10: exact(110), 35: exact(135)})
    assert found == [
        [Range("new", "t2", "", 3, 110, 135), Range("other", "t", "id", 3, 1, 2)],
        [Range("old", "u", "id", 0, 5, 6)],
    ]
    assert said == (
        "Cluster 'old' does not answer. Its part of this batch is read from cluster 'new': t2/3:110-135. The last records "
        "before both ends and the number of offsets are the same, what is between was not compared"
    )
    ends = [MoveRequest("new", TP("t2", 3), "old", TP("t", 3), end, "records", "", False, MARKS) for end in (10, 35)]
    assert asked == ends


def test_a_range_without_offsets_is_left_out() -> None:
    """So is a task that has no other."""
    found, (said,), _ = read([[Range("old", "t", "id", 3, 10, 10)]], {10: exact(7)})
    assert found == []
    assert "t2/3:7-7" in said


def test_a_place_that_is_alone_is_enough() -> None:
    """What is further back does not matter for a range, and the number of its offsets is compared."""
    groups = [[Range("old", "t", "id", 3, 10, 20)]]
    alone = Placement(50, "unproved", None, "it is the only one", alone=True)
    found, _, _ = read(groups, {10: alone, 20: alone._replace(position=60)})
    assert found == [[Range("new", "t2", "", 3, 50, 60)]]


@pytest.mark.parametrize(
    ("first", "last", "by", "why"),
    [
        (
            exact(10),
            exact(21),
            "records",
            "it has 11 offsets there and not 10: markers of transactions, or records that",
        ),
        (exact(20), exact(10), "records", "it has -10 offsets there and not 10"),
        (
            exact(11),
            exact(21),
            "same-offsets",
            "the range begins at offset 11 there, so it is not a copy with same offsets",
        ),
        (Placement(10, "unproved", None, "two places"), exact(20), "records", "two places"),
        (Placement(10, "at-least-once", 3, "late"), exact(20), "records", "late"),
        (exact(10), Placement(20, "unproved", None, "two places"), "records", "two places"),
        (Placement(None, "unproved", None, "nothing was found", alone=True), exact(20), "records", "nothing was found"),
        (exact(None, evidence="gone"), exact(20), "records", "gone"),
    ],
)
def test_a_range_whose_ends_are_not_proved_stays_and_the_reason_is_said(
    first: Placement, last: Placement, by: Any, why: str
) -> None:
    """So the batch waits for the old cluster."""
    groups = [[Range("old", "t", "id", 3, 10, 20)]]
    found, (said,), _ = read(groups, {10: first, 20: last}, Continues("old", by, {"t": "t2"}))
    assert found == groups
    expected = (
        "The records of cluster 'old', topic 't', partition 3, offsets 10 to 20 cannot be read from cluster 'new': "
    )
    assert said.startswith(expected + why)


def test_a_copy_with_the_same_offsets_has_them() -> None:
    """Both ends are at their own offsets."""
    groups = [[Range("old", "t", "id", 3, 10, 20)]]
    found, _, asked = read(groups, {10: exact(10), 20: exact(20)}, Continues("old", "same-offsets", {"t": "t2"}))
    assert found == [[Range("new", "t2", "", 3, 10, 20)]]
    assert [request.by for request in asked] == ["records", "records"]


def test_some_of_many_ranges_are_shown() -> None:
    """By partition."""
    groups = [[Range("old", "t", "id", p, 10, 20) for p in range(12, 0, -1)]]
    (found,), (said,), _ = read(groups, {10: exact(10), 20: exact(20)})
    assert [r.partition for r in found] == list(range(1, 13))
    assert "t2/1:10-20, " in said
    assert "t2/10:10-20 and 2 more. " in said
