"""Values that a format decodes in the process that reads, after the native kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from dynamic_kafka.formats import ERROR, Decoder
from dynamic_kafka.source.rows import VALUE_ROW
from dynamic_kafka.spark.value_rows import completed

TYPE = pa.struct([("a", pa.int64()), (ERROR, pa.string())])


def test_only_values_without_a_row_keep_their_bytes() -> None:
    """One with an error needs them for its text. One that is skipped would else look like a value that is null."""
    answers: dict[bytes, Any] = {b"left": {"a": 2, ERROR: None}, b"bad": {"a": None, ERROR: "why"}, b"skipped": None}
    decoder = SimpleNamespace(rows=lambda values: pa.array([answers[value] for value in values.to_pylist()], TYPE))
    rows = pa.array([{"a": 1, ERROR: None}, None, None, None, None], TYPE)
    values = pa.array([None, b"left", None, b"bad", b"skipped"], pa.binary())
    batch = pa.record_batch([values, rows], ["value", VALUE_ROW])
    (found,) = completed(iter([batch]), cast("Decoder", decoder))
    assert found["value"].to_pylist() == [None, None, None, b"bad", b"skipped"]
    assert found[VALUE_ROW].to_pylist() == [{"a": 1, ERROR: None}, answers[b"left"], None, answers[b"bad"], None]
