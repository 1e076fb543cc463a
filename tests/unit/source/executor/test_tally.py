"""What a worker counts of the records that it reads."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from dynamic_kafka.source.executor.tally import Tally, reported

BATCH = pa.record_batch({"value": [b"x"]})


def read(tally: Tally) -> dict[tuple[str, str, int], tuple[int, int, int | None]]:
    """Records, bytes and the greatest timestamp by cluster, topic and partition."""
    found: dict[tuple[str, str, int], Any] = {}
    for of in tally._report(False)["read"]:
        rows = zip(of["partitions"], of["records"], of["bytes"], of["timestamp_ms"], strict=True)
        found |= {(of["cluster"], of["topic"], partition): tuple(row) for partition, *row in rows}
    return found


def test_records_are_counted_by_partition() -> None:
    """Whatever follows what. Of timestamps the greatest is kept."""
    tally = Tally("run")
    tally.count("east", [("a", 0, 2, 5000), ("b", 0, 1, None), ("a", 1, 3, 9000), ("a", 0, 1, 4000)], 10.0)
    tally.count("west", [("a", 0, 4, 1000)], 2.5)
    assert read(tally) == {
        ("east", "a", 0): (3, 30, 5000),
        ("east", "a", 1): (3, 30, 9000),
        ("east", "b", 0): (1, 10, None),
        ("west", "a", 0): (4, 10, 1000),
    }


def test_emit_lag_is_that_of_the_last_record() -> None:
    """Between its timestamp and now; a record without one says nothing."""
    tally = Tally("run")
    before_ms = int(time.time() * 1000)
    tally.count("east", [("a", 0, 1, before_ms - 60_000), ("a", 1, 1, before_ms - 5000), ("a", 2, 1, None)], 1.0)
    assert tally._report(False)["emit_lag_s"]["east"] == pytest.approx(5, abs=4)
    tally.count("east", [("a", 2, 1, None)], 1.0)
    assert tally._report(False)["emit_lag_s"]["east"] < 10


def test_rows_of_a_history_are_counted_apart() -> None:
    """They are of no partition that this query reads."""
    tally = Tally("run")
    assert tally._report(False)["history_read"] == {"rows": 0, "bytes": 0, "read_ms": None}
    tally.count_history(5, 70)
    tally.count_history(2, 30)
    found = tally._report(False)["history_read"]
    assert (found["rows"], found["bytes"]) == (7, 100)
    assert abs(found["read_ms"] - time.time() * 1000) < 60_000
    assert read(tally) == {}


def test_a_task_that_fails_is_counted() -> None:
    """Its error goes on to Spark. One that Spark ends early has not failed."""
    tally = Tally("run")

    def failing() -> Any:
        yield BATCH
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        list(reported(failing(), tally))
    assert tally._report(False)["errors"] == 1
    batches = reported(failing(), tally)
    assert next(batches) is BATCH
    batches.close()  # type: ignore[attr-defined]
    assert tally._report(False)["errors"] == 1


def test_what_is_not_counted_is_not_reported_as_none() -> None:
    """Messages that cannot be decoded are known from the first call on."""
    tally = Tally("run")
    assert tally._report(False)["decode_errors"] is None
    tally.count_decode_errors({})
    assert tally._report(False)["decode_errors"] == []
    for _ in range(2):
        tally.count_decode_errors({("east", "a"): 3})
    assert tally._report(False)["decode_errors"] == [{"cluster": "east", "topic": "a", "records": 6}]
