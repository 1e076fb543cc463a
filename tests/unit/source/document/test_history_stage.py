"""The stage of a history in the document, and its tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.history.model import FrozenHistory, HistoryFile, HistoryGap, HistoryTask, TimeLimit, pieces
from dynamic_kafka.source.document.document import HistoryStage
from dynamic_kafka.source.document.offsets import Document, Packing, check_chain, decode, encode
from dynamic_kafka.source.document.promise import Promise
from dynamic_kafka.source.document.stage import decode_stage, encode_stage, left_of, next_stage, plan_stage, progress

EXACT = Promise("Kafka goes on", 5)
PROMISE = {"goes on": "Kafka goes on", "rows": 5, "only if": "", "recognized": [], "seen": []}
FILES = st.lists(st.lists(st.integers(0, 5000), max_size=4), min_size=1, max_size=30)


def stage_of(*parts: list[int], start: int = 0, end: int | None = None) -> HistoryStage:
    """A stage with a file for each list of parts."""
    files = tuple(HistoryFile(f"f{i:04}", 10 * i, 7, i, tuple(rows)) for i, rows in enumerate(parts))
    rows = sum(map(sum, parts))
    history = FrozenHistory("/h", "parquet", f"{len(files)} files", rows, files)
    return HistoryStage(history, EXACT, (start, rows if end is None else end))


def rows_of(tasks: list[HistoryTask]) -> list[tuple[str, int]]:
    """Each row by its file and number, in the order of the tasks."""
    return [(p.file.path, row) for task in tasks for p in task.pieces for row in range(p.first, p.last)]


@given(parts=FILES, data=st.data())
def test_a_range_is_its_rows_in_order(parts: list[list[int]], data: st.DataObject) -> None:
    """Whatever the files, each row of the range is in one task, once and in order."""
    whole = [(f"f{i:04}", row) for i, rows in enumerate(parts) for row in range(sum(rows))]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    per_task, least = data.draw(st.integers(1, 5000)), data.draw(st.integers(1, 5))
    most = data.draw(st.sampled_from([0, 5, 8]))
    packing = Packing(per_task, least, most, cuts=data.draw(st.booleans()))
    tasks = plan_stage(stage_of(*parts, start=start, end=end), packing)
    assert rows_of(tasks) == whole[start:end]
    assert all(task.pieces for task in tasks)
    assert not packing.max_tasks or len(tasks) <= packing.max_tasks


@pytest.mark.parametrize(
    ("read", "left"),
    [(0, (60, 3, 60)), (9, (51, 3, 51)), (10, (50, 2, 50)), (45, (15, 1, 15)), (59, (1, 1, 1)), (60, (0, 0, 0))],
)
def test_what_is_left_is_counted_in_rows_files_and_bytes(read: int, left: tuple[int, int, int]) -> None:
    """A file counts until its last row is read, with its bytes by the share of its rows; an empty one never."""
    files = tuple(HistoryFile(f"f{n}", n, 7, n, (n // 2, n // 2)) for n in (10, 0, 20, 30))
    found = left_of(HistoryStage(FrozenHistory("/h", "parquet", "4 files", 60, files), EXACT), read)
    assert (found["rows_left"], found["files_left"], found["bytes_left"]) == left
    assert (found["rows"], found["location"]) == (60, "/h")
    assert isinstance(found["bytes_left"], int)


def test_nothing_is_left_of_a_history_that_was_read() -> None:
    """Its files are not in the document any more."""
    stage = next_stage(replace(stage_of([3], [4]), range=(7, 7)), None)
    assert left_of(stage, 7) == {"location": "/h", "rows": 7, "rows_left": 0, "files_left": 0, "bytes_left": 0}


@given(parts=FILES, limit=st.integers(1, 9000))
def test_batches_cover_the_history_once(parts: list[list[int]], limit: int) -> None:
    """Each one begins where the one before ended, with no more rows than the limit; then the files are dropped."""
    stage = replace(stage_of(*parts), range=(0, 0))
    position = 0
    while True:
        stage = next_stage(stage, limit)
        if not stage.history.files:
            break
        assert stage.range[0] == position < stage.range[1] <= position + limit
        position = stage.range[1]
    assert stage.range == (position, position) == (stage.history.rows,) * 2


def test_parts_of_a_file_stay_whole_and_tasks_are_alike() -> None:
    """Four row groups for each of two files, in four tasks: two row groups each."""
    tasks = plan_stage(stage_of([100_000] * 4, [100_000] * 4), Packing(records_per_task=200_000))
    assert [[(p.file.path, p.first, p.last) for p in task.pieces] for task in tasks] == [
        [("f0000", 0, 200_000)], [("f0000", 200_000, 400_000)], [("f0001", 0, 200_000)], [("f0001", 200_000, 400_000)],
    ]  # fmt: skip


def test_many_small_files_are_few_tasks() -> None:
    """A file costs as much as some rows, no task of its own."""
    assert len(plan_stage(stage_of(*[[10]] * 1000), Packing())) == 2


@pytest.mark.parametrize(
    ("parts", "packing", "expected"),
    [
        ([[1000] * 6], Packing(4000), [["f0000:0-2000"], ["f0000:2000-6000"]]),
        ([[1000] * 6], Packing(1_000_000), [["f0000:0-6000"]]),
        (
            [[1000, 1000], [1000], [4000]],
            Packing(3000),
            [["f0000:0-1000"], ["f0000:1000-2000", "f0001:0-1000"], ["f0002:0-4000"]],
        ),
        ([[3000]] * 3, Packing(5000, max_tasks=2), [["f0000:0-3000", "f0001:0-3000"], ["f0002:0-3000"]]),
        ([[9000]], Packing(4000, 2, cuts=True), [["f0000:0-3000"], ["f0000:3000-6000"], ["f0000:6000-9000"]]),
        ([[10_000], [10]], Packing(10**6, 3, 2, cuts=True), [["f0000:0-5005"], ["f0000:5005-10000", "f0001:0-10"]]),
        ([[3]], Packing(1, 9, cuts=True), [["f0000:0-1"], ["f0000:1-2"], ["f0000:2-3"]]),
    ],
)
def test_rows_are_shared_among_tasks_in_this_way(parts: Any, packing: Packing, expected: list[list[str]]) -> None:
    """A repeated batch is packed as the first time, so a change of these is one of what is promised."""
    stage = stage_of(*parts)
    found = plan_stage(stage, packing)
    assert [[f"{p.file.path}:{p.first}-{p.last}" for p in task.pieces] for task in found] == expected
    assert {task.history for task in found} == {replace(stage.history, files=())}


def test_a_stage_has_this_text() -> None:
    """Whoever looks at a checkpoint can read it."""
    files = HistoryFile("a", 10, 7, 1, (3, 4), {"day": "1"}), HistoryFile("b", 20, 8, 2, (5,))
    history = FrozenHistory("/h", "parquet", "2 files", 12, files, "c", TimeLimit("time", 5), decoded=True)
    stage = HistoryStage(history, EXACT, (2, 9))
    value = {
        "location": "/h", "format": "parquet", "evidence": "2 files", "promise": PROMISE, "rows": 12, "start": 2,
        "count": 7, "cluster": "c", "before": ["time", 5], "decoded": True,
        "files": {"paths": ["a", "b"], "sizes": [10, 20], "modified": [7, 8], "checksums": [1, 2],
                  "parts": [2, 1], "rows": [3, 4, 5], "values": [{"day": "1"}, {}]},
    }  # fmt: skip
    assert json.dumps(encode_stage(stage)) == json.dumps(value)
    assert decode_stage(value) == stage


def test_a_stage_of_which_lists_are_cut_off_is_no_stage() -> None:
    """Whichever list it is."""
    value = encode_stage(stage_of([4, 4], [5], end=4))
    for name, cut in (
        ("paths", ["f0000"]),
        ("sizes", [1]),
        ("modified", [1]),
        ("checksums", [1]),
        ("parts", [2]),
        ("rows", [4, 4, 5, 0]),
    ):
        with pytest.raises(ValueError, match=r"zip|parts instead of"):
            decode_stage(value | {"files": value["files"] | {name: cut}})


def test_only_on_request_a_part_is_cut() -> None:
    """With `minPartitions`, as for the ranges of Kafka."""
    stage = stage_of([9000])
    assert len(plan_stage(stage, Packing(1000))) == 1
    assert len(plan_stage(stage, Packing(1_000_000, min_tasks=3, cuts=True))) == 3


@given(parts=FILES, values=st.booleans(), limit=st.none() | st.just(TimeLimit("time", 5)))
def test_the_document_keeps_the_stage(parts: list[list[int]], values: bool, limit: TimeLimit | None) -> None:  # noqa: FBT001
    """Through JSON and back, with the values in the names of folders and the time of the switch."""
    stage = stage_of(*parts, start=0)
    named = {"day": "1", "x": None} if values else {}
    files = [f._replace(values=named) for f in stage.history.files if isinstance(f, HistoryFile)]
    gaps = (HistoryGap("c", "id", "t", 1, 5, 9), HistoryGap("c", "", "t", 2, 0, 1))
    stage = replace(stage, history=replace(stage.history, rows=stage.history.rows + 5))
    mixed: tuple[HistoryFile | HistoryGap, ...] = (gaps[0], *files, gaps[1])
    stage = replace(stage, history=replace(stage.history, files=mixed, limit=limit, cluster="c"))
    document = Document(history=stage)
    text = json.dumps(encode(document))
    assert decode(json.loads(text)) == document
    assert json.dumps(encode(decode(json.loads(text)))) == text


def test_ten_thousand_files_are_small() -> None:
    """Under 60 bytes each, with names as Spark gives them."""
    job = "c0ffee00-1234-5678-9abc-def012345678"
    files = tuple(
        HistoryFile(f"day=2013-0{1 + i // 1200}-01/part-{i:05}-{job}-c000.snappy.parquet", 10**8 + i * 7919 % 10**7,
                    1_700_000_000_000_000_000 + i * 987_654_321, i * 2_654_435_761 % 2**32,
                    (1_048_576, 500_000 + i * 31 % 9999),
                    {"day": f"2013-0{1 + i // 1200}-01"})
        for i in range(10_000)
    )  # fmt: skip
    history = FrozenHistory("s3://b/h", "parquet", "10,000 files", sum(sum(f.rows) for f in files), files)
    text = json.dumps(encode(Document(history=HistoryStage(history, EXACT, (0, 10)))))
    assert decode(json.loads(text)).history == HistoryStage(history, EXACT, (0, 10))
    assert len(text) < 600_000


def test_earlier_versions_of_the_package_refuse_a_history() -> None:
    """They would go on with Kafka as if there was none; afterwards they may go on."""
    stage = stage_of([4, 4], end=4)
    assert encode(Document(history=stage))["version"] == 3
    assert encode(Document(history=next_stage(replace(stage, range=(4, 8)), None)))["version"] == 1


def test_a_chain_of_rows_must_not_break() -> None:
    """Offset files of different queries are an error; so are those of a query with a history and one without."""
    first, second = (Document(history=stage_of([10], start=s, end=e)) for s, e in ((0, 4), (4, 9)))
    check_chain(first, second)
    for wrong in (Document(history=stage_of([10], start=5, end=9)), Document()):
        with pytest.raises(CheckpointError, match="row 4 of the history"):
            check_chain(first, wrong)
    with pytest.raises(CheckpointError) as found:
        check_chain(Document(), first)
    assert str(found.value) == (
        "The checkpoint ends one batch at row None of the history and starts the next one at row 0; offset files of "
        "different queries were mixed or edited: restore them, or start with a new checkpoint"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"start": 7}, {"count": -1}, {"rows": 9}, {"before": ["t"]}, {"files": {}}, {"rows": "x"},
    ],
)  # fmt: skip
def test_a_damaged_stage_is_an_error_with_words(change: dict[str, object]) -> None:
    """As for all other parts of the document."""
    value = encode(Document(history=stage_of([4, 4], end=4)))
    value["history"] |= change
    with pytest.raises(CheckpointError, match="damaged"):
        decode(value)


def test_progress_says_where_it_stands() -> None:
    """For `lastProgress`."""
    stage = stage_of([4, 4], end=4)
    frozen = {"location": "/h", "evidence": "1 files", "promise": str(EXACT), "verdict": "exact", "seen": []}
    assert progress(stage) == {"stage": "history", "rows": 8, "read": 4, **frozen}
    done = next_stage(replace(stage, range=(4, 8)), None)
    assert progress(done)["stage"] == "kafka"


def test_pieces_are_within_parts() -> None:
    """A piece never spans two row groups, which are read one after the other."""
    found = list(pieces(stage_of([3, 0, 4], [5]).history, 2, 9))
    assert [(p.file.path, p.first, p.last) for p in found] == [("f0000", 2, 3), ("f0000", 3, 7), ("f0001", 0, 2)]
