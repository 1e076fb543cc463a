"""Columns of structs become bytes before the sink makes records of its rows."""

from __future__ import annotations

import json

import pyarrow as pa

from dynamic_kafka.sink.encoding import encoded

SPEC = json.dumps({"format": "json", "options": {}})


def rows(count: int, text: str = "x") -> pa.RecordBatch:
    """Rows with a struct as value; the last one is null."""
    value = [{"a": i, "b": text} for i in range(count - 1)] + [None]
    return pa.record_batch({"key": pa.array([b"k"] * count), "value": value, "topic": ["t"] * count})


def test_structs_become_bytes_and_other_columns_stay() -> None:
    """In slices if the batch is large, and in the same order."""
    given = [rows(3), rows(2000, "x" * 10_000)]
    found = list(encoded(iter(given), {"value": SPEC}))
    assert found[0].to_pydict() == {
        "key": [b"k"] * 3,
        "value": [b'{"a":0,"b":"x"}', b'{"a":1,"b":"x"}', None],
        "topic": ["t"] * 3,
    }
    assert len(found) > 2
    values = pa.chunked_array([batch.column("value") for batch in found[1:]]).to_pylist()
    assert [None if value is None else json.loads(value)["a"] for value in values] == [*range(1999), None]
    assert found[0].schema.field("value").type == pa.binary()


def test_a_null_row_of_columns_that_cannot_be_null() -> None:
    """Spark sends such a row for a tombstone of `upsert-kafka`: the parts are null, and their types say never."""
    type_ = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    parts = [pa.array([1, None], pa.int64()), pa.array(["x", None])]
    value = pa.Array.from_buffers(type_, 2, [pa.py_buffer(b"\x01")], children=parts)
    (found,) = encoded(iter([pa.record_batch({"value": value})]), {"value": SPEC})
    assert found["value"].to_pylist() == [b'{"a":1,"b":"x"}', None]


def test_bytes_stay_as_they_are() -> None:
    """Without a spec, the batches are those of Spark."""
    batch = pa.record_batch({"value": [b"a", None]})
    assert list(encoded(iter([batch]), {})) == [batch]
