"""Debezium's changes in formats with schemas: what becomes of a message that was decoded to a record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dynamic_kafka.formats import ERROR, METADATA, ROWS
from dynamic_kafka.formats.changelog.records import decoder

ROW = pa.struct([("id", pa.int64())])
SOURCE = pa.struct([("ts_ms", pa.int64()), ("db", pa.string()), ("schema", pa.string()), ("table", pa.string())])
RECORD = pa.struct(
    [
        ("before", ROW),
        ("after", ROW),
        ("op", pa.string()),
        ("ts_ms", pa.int64()),
        ("source", SOURCE),
        (ERROR, pa.string()),
    ]
)


def decoded(*records: Any, messages: Any = None) -> list[Any]:
    """What becomes of records; each is that of a message with some bytes unless told otherwise."""
    array = pa.array(records, RECORD)
    sent = pa.array(messages or [b"x"] * len(records), pa.binary())
    found: list[Any] = decoder(lambda *_: array)(sent).to_pylist()
    return found


def kinds(found: Any) -> Any:
    """The kinds and the ids of the rows of a message."""
    rows = found[ROWS]
    return None if rows is None else [(row["row_kind"], row["row"]["id"]) for row in rows]


def test_rows_have_the_kind_of_their_operation() -> None:
    """One for an insertion, a snapshot's row and a deletion, two for an update."""
    one, two = {"id": 1}, {"id": 2}
    found = decoded(
        {"after": one, "op": "c"},
        {"before": one, "after": two, "op": "u"},
        {"after": two, "op": "r"},
        {"before": two, "op": "d"},
    )
    assert [kinds(message) for message in found] == [
        [("+I", 1)],
        [("-U", 1), ("+U", 2)],
        [("+I", 2)],
        [("-D", 2)],
    ]
    assert {message[ERROR] for message in found} == {None}


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"after": {"id": 1}}, 'It does not have the field "op" of Debezium\'s messages about rows'),
        ({"op": "x"}, 'Unknown "op" value "x", which is not about a row; exclude such messages'),
        ({"op": "t"}, 'Unknown "op" value "t": TRUNCATE cannot become rows'),
        ({"op": "u", "after": {"id": 1}}, 'The "before" field of UPDATE message is null; set the REPLICA IDENTITY'),
        ({"op": "d", "after": {"id": 1}}, 'The "before" field of DELETE message is null; set the REPLICA IDENTITY'),
        ({"op": "u", "before": {"id": 1}}, 'Its "after" is null'),
        ({"op": "c", "before": {"id": 1}}, 'Its "after" is null'),
        ({"op": "c", "after": {"id": 1}, ERROR: "it is damaged"}, "it is damaged"),
    ],
)
def test_a_message_that_is_no_change_is_an_error(record: dict[str, Any], error: str) -> None:
    """Of its own: the messages beside it have their rows."""
    good = {"op": "c", "after": {"id": 5}}
    before, found, after = decoded(good, record, good)
    assert found[ERROR].startswith(error)
    assert found[ROWS] is None
    assert kinds(before) == kinds(after) == [("+I", 5)]


def test_messages_without_bytes_have_no_rows() -> None:
    """They are tombstones, null or empty. A message that its format skips has none either."""
    good = {"op": "c", "after": {"id": 5}}
    assert decoded(None, good, None, messages=[None, b"", b"x"]) == [None, None, None]
    assert decoded() == []


def test_metadata() -> None:
    """The times are counts of milliseconds; one that Spark cannot have is null."""
    source = {"ts_ms": 2**62, "db": "d", "schema": "s", "table": "t"}
    (found,) = decoded({"op": "c", "after": {"id": 1}, "ts_ms": 1500, "source": source})
    assert found[METADATA]["ingestion-timestamp"].timestamp() == 1.5
    assert {**found[METADATA], "ingestion-timestamp": None} == {
        "ingestion-timestamp": None,
        "source.timestamp": None,
        "source.database": "d",
        "source.schema": "s",
        "source.table": "t",
    }
    (bare,) = decoded({"op": "c", "after": {"id": 1}})
    assert set(bare[METADATA].values()) == {None}
