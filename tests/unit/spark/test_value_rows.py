"""Values that a format decodes in the process that reads, after the native kernel."""

from __future__ import annotations

import json
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, BooleanType, LongType, StructField, StructType, TimestampNTZType

from dynamic_kafka.formats import ERROR, ROWS
from dynamic_kafka.formats.arrow import decoded_type
from dynamic_kafka.formats.changelog.format import DEBEZIUM_JSON
from dynamic_kafka.formats.expressions import decoded_struct
from dynamic_kafka.rows import VALUE_ROW
from dynamic_kafka.source.executor import reader as source_reader
from dynamic_kafka.source.executor.tally import Tally
from dynamic_kafka.source.rules.planning import ReadTask
from dynamic_kafka.spark.columns import COLUMN_TYPES, LAST_ROW, UNDECODED, UNDECODED_TYPE
from dynamic_kafka.spark.datasource import DynamicKafkaDataSource, DynamicKafkaInputPartition
from dynamic_kafka.spark.last_row import with_column
from dynamic_kafka.spark.value_rows import counted, decoding_of, gathered, of_history

TYPE = pa.struct([("a", pa.int64()), (ERROR, pa.string())])


def json_column(columns: StructType, used: StructType) -> StructField:
    """A column of values in JSON with these columns, of which a query uses some."""
    spec = json.dumps({"format": "json", "options": {}, "schema": columns.jsonValue()})
    metadata = {"spec": spec, "format": "json", "options": "{}"}
    return StructField(VALUE_ROW, decoded_type(used), metadata=metadata)


def test_only_values_without_a_row_keep_their_bytes() -> None:
    """One with an error needs them for its text. One that is skipped would else look like a value that is null."""
    columns = StructType([StructField("a", LongType())])
    values = pa.array([None, b'{"a": 2}', b"bad", b""], pa.binary())
    batch = pa.record_batch([values, pa.nulls(4, TYPE)], ["value", VALUE_ROW])
    (found,) = of_history(iter([batch]), decoding_of(json_column(columns, columns)))
    assert found["value"].to_pylist() == [None, None, b"bad", b""]
    bad = {"a": None, ERROR: "It is not a JSON object"}
    assert found[VALUE_ROW].to_pylist() == [None, {"a": 2, ERROR: None}, bad, None]


def test_unused_columns_are_checked_and_not_built() -> None:
    """In a history as in Kafka: the decoding is the same. In a changelog they are columns of the rows."""
    columns = StructType([StructField("a", LongType()), StructField("b", LongType())])
    values = pa.array([b'{"a": 1, "b": 2}', b'{"a": 1, "b": "x"}'])
    batch = pa.record_batch([values, pa.nulls(2, TYPE)], ["value", VALUE_ROW])
    column = json_column(columns, StructType(columns.fields[:1]))
    (found,) = of_history(iter([batch]), decoding_of(column))
    misfit = {"a": None, ERROR: "It does not fit the columns: b"}
    assert found[VALUE_ROW].to_pylist() == [{"a": 1, ERROR: None}, misfit]

    spec: dict[str, Any] = {
        "format": "changelog",
        "images": ["old", "new"],
        "kind": "op",
        "inserts": ["c"],
        "update": "u",
        "delete": "d",
    }
    spec |= {"metadata": [], "schema": columns.jsonValue()}
    used = decoded_struct(DEBEZIUM_JSON, StructType(columns.fields[1:]))
    metadata = {"spec": json.dumps(spec), "format": "debezium-json", "options": "{}"}
    values = pa.array([b'{"op": "c", "new": {"a": 1, "b": 2}}'])
    batch = pa.record_batch([values, pa.nulls(1, TYPE)], ["value", VALUE_ROW])
    (found,) = of_history(iter([batch]), decoding_of(StructField(VALUE_ROW, used, metadata=metadata)))
    assert found[VALUE_ROW][0][ROWS].as_py() == [{"row_kind": "+I", "row": {"b": 2}}]


def test_only_messages_without_a_good_row_keep_what_they_need() -> None:
    """One without a row is decoded or is an error. One whose row has an error needs bytes and place for the text."""
    rows = [{"a": 1, ERROR: None}, None, {"a": None, ERROR: "why"}]
    columns = {
        "topic": pa.array(["t"] * 3),
        "value": pa.array([b"", b"left", b"bad"]),
        "cluster": pa.array(["c"] * 3),
        "partition": pa.array([0, 0, 0], pa.int32()),
        "offset": pa.array([7, 8, 9], pa.int64()),
        VALUE_ROW: pa.array(rows, TYPE),
    }
    (found,) = gathered(iter([pa.record_batch(columns)]), ["topic", VALUE_ROW, UNDECODED])
    assert found.schema.names == ["topic", VALUE_ROW, UNDECODED]
    assert found["topic"].to_pylist() == ["t"] * 3
    assert found[VALUE_ROW].to_pylist() == rows
    place = {"cluster": "c", "topic": "t", "partition": 0}
    assert found[UNDECODED].to_pylist() == [
        None,
        {"value": b"left", **place, "offset": 8},
        {"value": b"bad", **place, "offset": 9},
    ]


def test_a_batch_of_decoded_messages_has_nothing_left() -> None:
    """Also a slice of a batch with others."""
    rows = pa.array([None, {"a": 1, ERROR: None}, {"a": None, ERROR: None}], TYPE)
    values = pa.array([b"left", None, None], pa.binary())
    batch = pa.record_batch([rows, values], [VALUE_ROW, "value"]).slice(1)
    (found,) = gathered(iter([batch]), [VALUE_ROW, UNDECODED])
    assert found[UNDECODED].null_count == len(found) == 2


def test_values_that_cannot_be_decoded_are_counted_by_topic() -> None:
    """For the metrics. A value without a row and without an error is none of them."""
    rows = [{"a": 1, ERROR: None}, {"a": None, ERROR: "why"}, None, {"a": None, ERROR: "why"}, None]
    batch = pa.record_batch(
        {
            "cluster": pa.array(["c"] * 5),
            "topic": pa.array(["t", "t", "t", "u", "u"]),
            VALUE_ROW: pa.array(rows, TYPE),
        }
    )
    tally = Tally("run")
    assert list(counted(iter([batch, batch.slice(2)]), tally)) == [batch, batch.slice(2)]
    assert tally._report(False)["decode_errors"] == [
        {"cluster": "c", "topic": "t", "records": 1},
        {"cluster": "c", "topic": "u", "records": 2},
    ]


def test_the_last_row_has_all_columns_and_nothing_in_them() -> None:
    """But for the one that says so, which is null in all other rows."""
    row = StructType([StructField("a", LongType()), StructField("t", ArrayType(TimestampNTZType()))])
    fields = [StructField(name, type_) for name, type_ in COLUMN_TYPES.items()]
    fields += [StructField(VALUE_ROW, row, metadata={"spec": "{}"}), StructField(UNDECODED, UNDECODED_TYPE)]
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


def test_what_the_kernel_has_decoded_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value with an error keeps the kernel's; the kernel does not fetch the rows of a history."""
    columns = StructType([StructField("a", LongType())])
    schema = StructType([StructField("value", COLUMN_TYPES["value"]), json_column(columns, columns)])
    rows = pa.array([{"a": None, ERROR: "why"}], TYPE)
    batch = pa.record_batch([pa.array([b"{"]), rows], ["value", VALUE_ROW])
    monkeypatch.setattr(source_reader, "read", lambda *_: iter([batch]))
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    reader: Any = DynamicKafkaDataSource(options).reader(schema)
    (found,) = reader.read(DynamicKafkaInputPartition(ReadTask([], {})))
    assert found == batch
    (found,) = reader.read(DynamicKafkaInputPartition(ReadTask([], {}, history=cast("Any", "history"))))
    assert found[VALUE_ROW].to_pylist() == [{"a": None, ERROR: "It is not a JSON object"}]
