"""What a worker counts of the batches that it reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.source.rows import COLUMNS, arrow_schema
from dynamic_kafka.source.tally import Tally, counted, needed

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def batch_of(rows: list[tuple[str, int]], columns: tuple[str, ...] = tuple(COLUMNS)) -> pa.RecordBatch:
    """A batch of these topics and partitions; the n-th record is n seconds after the first."""
    values: dict[str, Any] = {
        "topic": [topic for topic, _ in rows],
        "partition": [partition for _, partition in rows],
        "timestamp": [BEGAN + timedelta(seconds=i) for i in range(len(rows))],
        "cluster": ["east"] * len(rows),
        "value": [b"x"] * len(rows),
    }
    schema = arrow_schema(columns)
    return pa.record_batch([pa.array(values.get(f.name, [None] * len(rows)), f.type) for f in schema], schema)


def counts(tally: Tally) -> dict[tuple[str, int], tuple[int, int | None]]:
    """Records and the greatest timestamp, in seconds after the first one, by topic and partition."""
    found = {}
    for read in tally._report(False)["read"]:
        for partition, records, ms in zip(read["partitions"], read["records"], read["timestamp_ms"], strict=True):
            seconds = None if ms is None else ms // 1000 - int(BEGAN.timestamp())
            found[read["topic"], partition] = records, seconds
    return found


runs = st.lists(st.tuples(st.sampled_from(["a", "b", "longer"]), st.integers(0, 3), st.integers(1, 30)), min_size=1)


@given(runs, st.integers(0, 5))
def test_records_are_counted_by_partition(found: list[tuple[str, int, int]], cut: int) -> None:
    """Whatever stands beside what, also in a slice of a batch."""
    rows = [(topic, partition) for topic, partition, length in found for _ in range(length)]
    tally = Tally("run", "native")
    tally.count(batch_of(rows).slice(cut))
    expected: dict[tuple[str, int], tuple[int, int | None]] = {}
    for i, row in enumerate(rows):
        if i >= cut:
            expected[row] = expected.get(row, (0, None))[0] + 1, i
    assert counts(tally) == expected


def test_spark_gets_the_columns_that_it_wants() -> None:
    """Those that are read to be counted are dropped again."""
    tally, wanted = Tally("run", "native"), ("value",)
    columns = needed(wanted)
    (batch,) = counted(iter([batch_of([("a", 1)], columns)]), tally, list(wanted))
    assert batch.schema.names == ["value"]
    assert counts(tally) == {("a", 1): (1, None)}
    whole = batch_of([("a", 1)])
    (batch,) = counted(iter([whole]), tally, list(COLUMNS))
    assert batch is whole


def test_a_task_that_fails_is_counted() -> None:
    """Its error goes on to Spark. One that Spark ends early has not failed."""
    tally = Tally("run", "native")

    def failing() -> Any:
        yield batch_of([("a", 1)])
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        list(counted(failing(), tally, list(COLUMNS)))
    assert tally._report(False)["errors"] == 1
    batches = counted(failing(), tally, list(COLUMNS))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert tally._report(False)["errors"] == 1


def test_emit_lag_is_that_of_the_last_record() -> None:
    """Between its timestamp and now."""
    tally = Tally("run", "native")
    tally.count(batch_of([("a", 1), ("a", 2)]))
    expected = datetime.now(UTC) - BEGAN - timedelta(seconds=1)
    assert tally._report(False)["emit_lag_s"]["east"] == pytest.approx(expected.total_seconds(), abs=5)
