"""Messages that become rows in the task that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from dynamic_kafka.errors import RecordError
from dynamic_kafka.formats import ERROR, ROWS
from dynamic_kafka.history.model import HISTORY_ROW
from dynamic_kafka.native import Decoder
from dynamic_kafka.source.executor.tally import Tally
from dynamic_kafka.source.rules.planning import ReadTask
from dynamic_kafka.spark.columns import COLUMN_TYPES, LAST_ROW, LEFT_OUT
from dynamic_kafka.spark.datasource import DynamicKafkaDataSource, DynamicKafkaInputPartition
from dynamic_kafka.spark.dead_letters import DeadLetters
from dynamic_kafka.spark.last_row import with_column
from dynamic_kafka.spark.messages import Messages, Part, column_of, messages_of

A = StructType([StructField("a", LongType())])
AB = StructType([*A.fields, StructField("b", LongType())])


def part(type_: DataType = A, columns: StructType = A, name: str = "value", form: str = "json", **more: Any) -> Part:
    """A column of messages."""
    return Part(name, form, "", {}, columns, type_, **more)


def fetched(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, **more: pa.Array
) -> pa.RecordBatch:
    """A batch of fetched messages."""
    count = len(values)
    found = {
        "key": pa.array(keys or [None] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "cluster": pa.array(["c"] * count),
    }
    return pa.record_batch({**found, **more})


def read(messages: Messages, *batches: pa.RecordBatch, tally: Tally | None = None) -> list[dict[str, Any]]:
    """The rows of batches."""
    return [row for batch in messages.rows(iter(batches), tally) for row in batch.to_pylist()]


def reading(*parts: Part, on_error: str = "fail", columns: tuple[str, ...] = ("offset",)) -> Messages:
    """How columns are made of these parts."""
    return Messages((*columns, *(part.name for part in parts)), parts, on_error, None)


def test_unused_columns_are_checked_and_not_built() -> None:
    """In a changelog they are columns of the rows."""
    values = [b'{"a": 1, "b": 2}', b'{"a": 1, "b": "x"}']
    (rows,) = part(columns=AB).decoder(upsert=False)(fetched(values[:1])).to_pylist()
    assert rows == {"a": 1, ERROR: None}
    misfit = "It does not fit the columns: b"
    assert read(reading(part(columns=AB)), fetched(values[:1])) == [{"offset": 0, "value": {"a": 1}}]
    with pytest.raises(RecordError, match=f"offset 1: the value cannot be read as json: {misfit}"):
        read(reading(part(columns=AB)), fetched(values))

    change = StructType([StructField("row_kind", StringType()), StructField("row", A)])
    changes = part(ArrayType(change), AB, form="debezium-json")
    messages = fetched([b'{"op": "c", "after": {"a": 1, "b": 2}}'])
    (rows,) = changes.decoder(upsert=False)(messages).to_pylist()
    assert rows[ROWS] == [{"row_kind": "+I", "row": {"a": 1}}]
    (row,) = read(reading(changes), messages)
    assert row["value"] == [{"row_kind": "+I", "row": {"a": 1}}]


def test_a_struct_without_a_field() -> None:
    """`COUNT(*)` uses no column of a message; a message without a value is still none."""
    (batch,) = reading(part(StructType())).rows(iter([fetched([b'{"a": 1}', None, b'{"a": 2}'])]), None)
    assert batch["value"].is_valid().to_pylist() == [True, False, True]


def test_messages_that_cannot_be_read_are_counted_by_topic() -> None:
    """For the metrics: keys and values, each message once, whoever has decoded them. Not those of a history."""
    batch = fetched([b'{"a": 1}', b"x", b"x", b"x", b'{"a": "y"}'], keys=[None, b"x", None, None, None])
    batch = batch.set_column(2, "topic", pa.array(["t", "t", "t", "u", "u"]))
    tally = Tally("run")
    messages = reading(part(), part(name="key"), on_error="skip")
    assert [row["offset"] for row in read(messages, batch, batch.slice(2), tally=tally)] == [0]
    assert tally._report(False)["decode_errors"] == [
        {"cluster": "c", "topic": "t", "records": 3},
        {"cluster": "c", "topic": "u", "records": 4},
    ]


def test_a_stream_of_a_table_sees_what_the_policy_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    """So Spark can count it. All else of the policy has happened in the task, which tells how many there are."""
    messages = reading(part(required=True), on_error="skip", columns=("offset", LEFT_OUT))
    found = read(messages, fetched([b'{"a": 1}', b"x", None, b'{"a": 2}']))
    assert [(row["offset"], row[LEFT_OUT]) for row in found] == [(0, None), (1, True), (3, None)]
    assert [record.getMessage() for record in caplog.records] == [
        "1 messages cannot be read and are left out; the first: cluster 'c', topic 't', partition 0, offset 1"
    ]


@pytest.mark.parametrize("form", ["json", "raw"])
def test_an_upsert_has_tombstones(form: str) -> None:
    """A message without a key is no row, one without a value a tombstone; a NULL in the key is an error."""
    text = StructType([StructField("k", StringType())])
    key = Part("key", "json", "", {}, text, text, required=True, primary_key=("K",))
    number = part(form=form, columns=text if form == "raw" else A, type_=text if form == "raw" else A)
    keys = [b'{"k": "x"}', None, b'{"k": "y"}', b'{"k": null}']
    batch = fetched([b'{"a": 1}', b'{"a": 2}', None, b'{"a": 3}'], keys)
    messages = reading(key, number, on_error="skip")
    assert [(row["key"]["k"], row["value"] is None) for row in read(messages, batch)] == [("x", False), ("y", True)]
    with pytest.raises(RecordError, match=r"offset 3: the key .*: Column 'K' is NULL, but it is in the PRIMARY KEY"):
        read(reading(key, number), batch)


def test_rows_of_a_history_stay() -> None:
    """They have no bytes, and are rows of a table already."""
    history = pa.array([{"a": 7}, None, None])
    batch = fetched([None, b'{"a": 1}', None], **{HISTORY_ROW: history})
    found = read(reading(part(required=True), columns=(HISTORY_ROW,)), batch)
    assert found == [{HISTORY_ROW: {"a": 7}, "value": None}, {HISTORY_ROW: None, "value": {"a": 1}}]


def test_a_table_says_by_its_schema_how_messages_are_read() -> None:
    """What comes out is what went in."""
    parts = (part(required=True), part(name="key", columns=AB, primary_key=("a", "b")))
    letters = DeadLetters("dead", {"bootstrap.servers": "b:1"})
    schema = StructType([column_of(part, "dead-letter", letters) for part in parts])
    assert messages_of(schema) == Messages((*schema.names,), parts, "dead-letter", letters)
    assert messages_of(StructType([StructField("offset", LongType())])) is None


def test_the_last_row_has_all_columns_and_nothing_in_them() -> None:
    """But for the one that says so, which is null in all other rows."""
    row = StructType([StructField("a", LongType()), StructField("t", ArrayType(TimestampNTZType()))])
    fields = [StructField(name, type_) for name, type_ in COLUMN_TYPES.items() if name != "value"]
    fields += [column_of(part(row, row), "skip", None), StructField(LEFT_OUT, BooleanType())]
    schema = StructType([*fields, StructField(LAST_ROW, BooleanType())])
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "endingOffsets": "latest"}
    reader: Any = DynamicKafkaDataSource(options).streamReader(schema)
    assert reader._settings.last_row
    (batch,) = reader.read(DynamicKafkaInputPartition(ReadTask([], {}, last_row=True)))
    assert from_arrow_schema(batch.schema).fieldNames() == schema.names
    assert [field.dataType for field in from_arrow_schema(batch.schema)] == [field.dataType for field in schema]
    assert batch.to_pylist() == [{**dict.fromkeys(schema.names), LAST_ROW: True}]
    (others,) = with_column(iter([pa.record_batch({"a": [1, 2]})]), ["a", LAST_ROW])
    assert others.to_pylist() == [{"a": 1, LAST_ROW: None}, {"a": 2, LAST_ROW: None}]
    assert not cast("Any", DynamicKafkaDataSource(options).streamReader(StructType(fields)))._settings.last_row


def test_a_batch_that_becomes_too_large_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow counts the bytes of a column in 31 bits. One message that is too large alone names its place."""
    decode, most = Decoder.decode, 3
    sizes = []

    def limited(self: Decoder, messages: pa.Array, *given: Any, **named: Any) -> pa.Array:
        sizes.append(len(messages))
        if sum(len(message) for message in messages.to_pylist()) > most * len(b'{"a": 1}'):
            raise OverflowError("the rows have more than 2 GiB in a column")
        return decode(self, messages, *given, **named)

    monkeypatch.setattr(Decoder, "decode", limited)
    rows = read(reading(part()), fetched([b'{"a": %d}' % i for i in range(8)]))
    assert rows == [{"offset": i, "value": {"a": i}} for i in range(8)]
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
    too_large = "offset 1: a message cannot be decoded, because the rows have more than 2 GiB in a column"
    with pytest.raises(RecordError, match=too_large):
        read(reading(part()), fetched([b'{"a": 1}', b'{"a": 1}' + b" " * 100]))
