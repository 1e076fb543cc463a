"""From the ranges of a document to tasks: examples of what the properties in test_pure_parts.py hold for any input."""

from __future__ import annotations

import re

import pytest

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.document import parse_offset_ranges
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, Packing
from dynamic_kafka.source.rules.planning import Range, plan, skip

ID = "AbCdEfGhIjK"


def planned(start: int, end: int, partition: int = 0) -> Range:
    """A range of topic `t` on cluster `c`."""
    return Range("c", "t", ID, partition, start, end)


def tasks_of(ranges: list[tuple[int, int]], packing: Packing) -> list[list[tuple[int, int, int]]]:
    """Partition, start and end of the ranges of each task, for a topic with these ranges."""
    by_partition = {KafkaTopicPartition("t", p): r for p, r in enumerate(ranges)}
    document = Document(clusters={"c": ClusterOffsets("k", topics={"t": ID}, ranges=by_partition)}, packing=packing)
    return [[(r.partition, r.start, r.end) for r in task] for task in plan(document)]


def test_whole_ranges_are_shared_by_their_work_and_not_by_their_offsets() -> None:
    """A task that is half full takes a range of twice its room, and the tasks after it share what is left."""
    packing = Packing(records_per_task=1_000, max_tasks=3)
    assert tasks_of([(5_000, 6_800), (10, 3_010), (10, 1_810), (0, 3_000)], packing) == [
        [(0, 5_000, 6_800)],
        [(1, 10, 3_010), (2, 10, 1_810)],
        [(3, 0, 3_000)],
    ]


def test_whole_ranges_are_one_task_if_they_are_little_more_than_one_task_should_get() -> None:
    """The number of tasks is rounded, so that none of them is nearly empty."""
    assert len(tasks_of([(5_000, 6_800), (5_000, 5_004)], Packing(records_per_task=2_000, max_tasks=3))) == 1


def test_each_range_costs_as_much_as_some_records() -> None:
    """Ten thousand ranges with a record each are more than a million records of work."""
    assert [len(task) for task in tasks_of([(0, 1)] * 10_000, Packing())] == [5_000, 5_000]


@pytest.mark.parametrize(
    ("ranges", "packing", "tasks"),
    [
        ([(10, 14), (10, 19)], Packing(2_000, 3, 0, cuts=True), [[(0, 10, 14)], [(1, 10, 15)], [(1, 15, 19)]]),
        ([(0, 1), (0, 1)], Packing(1_000, 8, 0, cuts=True), [[(0, 0, 1)], [(1, 0, 1)]]),
        (
            [(0, 1_200), (10, 110), (5_000, 5_700)],
            Packing(1_000, 1, 2, cuts=True),
            [[(0, 0, 1_200)], [(1, 10, 110), (2, 5_000, 5_700)]],
        ),
    ],
    ids=["more tasks than ranges", "more tasks than records", "no cut where a range ends"],
)
def test_cut_ranges_give_tasks_of_equal_size(
    ranges: list[tuple[int, int]], packing: Packing, tasks: list[list[tuple[int, int, int]]]
) -> None:
    """As many as asked for, if there is a record for each."""
    assert tasks_of(ranges, packing) == tasks


# --- what the user gives up ---


def test_offsets_that_are_given_up_are_planned_no_more() -> None:
    """A whole range, its last part, or its first part; nothing else, and no other partition."""
    tasks = [[planned(50, 100), planned(50, 100, partition=1)], [planned(0, 10, partition=2)]]
    text = "c/t/0:80-100; c/t/1:50-60;c/t/2:0-10;c/t/3:0-10;c/t/0:60-70;d/t/0:50-100;"

    rest, used = skip(tasks, parse_offset_ranges(text))

    assert rest == [[planned(50, 80), planned(60, 100, partition=1)]]
    assert [str(r) for r in used] == ["c/t/0:80-100", "c/t/1:50-60", "c/t/2:0-10"]
    assert skip(tasks, ()) == (tasks, [])


@pytest.mark.parametrize("text", ["c/t/0:40-100", "c/t/0:50-110", "c/t/0:60-70", "c/t/0:100-110", "c/t/0:40-50"])
def test_offsets_that_do_not_fit_the_range_have_no_effect(text: str) -> None:
    """They are of another batch, so nobody has looked at what would be left out here."""
    assert skip([[planned(50, 100)]], parse_offset_ranges(text)) == ([[planned(50, 100)]], [])


def test_the_text_of_given_up_offsets() -> None:
    """The id of a cluster may hold any character: by default it is the list of its brokers."""
    text = "h:9092,h2:9092/a.b-c_d/7:0-18;x/y;z/t/0:1-2"
    assert ";".join(map(str, parse_offset_ranges(text))) == text
    assert parse_offset_ranges("") == ()
    for wrong in ("c/t/0", "c/t/0:5-5", "c/t/0:9-5", "t/0:1-2", "c/t/x:1-2", "c/t/0:1-2;x"):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            parse_offset_ranges(wrong)
