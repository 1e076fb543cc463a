"""From rows to records: the checks of the schema and of each row, and what comes out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import ConfigurationError, RowError
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink.partitioners import RoundRobinPartitioner
from dynamic_kafka.sink.records import COLUMNS, Records, by_cluster, check_schema, encoded, to_records
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS,
    "timestamp": pa.timestamp("us", tz="UTC"),
    "cluster": pa.string(),
}


def settings(**wishes: Any) -> SinkSettings:
    """A sink's settings."""
    return SinkSettings(service=InMemoryMetadataService, stream="s", **wishes)


def batch(types: Mapping[str, pa.DataType] = TYPES, **columns: Sequence[Any]) -> pa.RecordBatch:
    """Rows, given by columns."""
    schema = pa.schema([(name, types[name]) for name in columns])
    return pa.RecordBatch.from_pydict(dict(columns), schema=schema)


def eight(topic: str, at_least: int) -> int:
    """Every topic has eight partitions."""
    return 8


def records(rows: pa.RecordBatch, topic: str | None = "t", partitions: Any = eight, **wishes: Any) -> Records:
    """The records of rows that are for one cluster."""
    return to_records(rows, Destination({}, topic), settings(**wishes), partitions)


def argued(found: Records) -> list[list[Any]]:
    """The records' topics, values, keys and partitions, and their timestamps and headers as far as they are given."""
    rows, n = found.rows, found.rows.num_rows

    def column(name: str, default: Any) -> list[Any]:
        values = rows.column(name).to_pylist() if name in rows.schema.names else [None] * n
        return [default if value is None else value for value in values]

    topics = [found.topics[i] for i in column("topic", 0)]
    columns = [topics, column("value", None), column("key", None), column("partition", -1)]
    if "timestamp" in rows.schema.names or "headers" in rows.schema.names:
        columns.append(column("timestamp", 0))
    if "headers" in rows.schema.names:
        columns.append([[(h["key"], h["value"]) for h in headers] or None for headers in column("headers", [])])
    return columns


def fault(rows: pa.RecordBatch, topic: str | None = "t", **wishes: Any) -> str:
    """What is said of rows that cannot be written."""
    with pytest.raises(RowError) as raised:
        records(rows, topic, **wishes)
    return str(raised.value)


# --- the schema ---------------------------------------------------------------------------------------------------------


def test_all_columns_in_any_order() -> None:
    """Each has the type that Spark sends, and strings and binaries may be large ones."""
    check_schema(pa.schema(list(TYPES.items())), settings())
    check_schema(pa.schema(list(TYPES.items())[::-1]), settings())
    check_schema(pa.schema([("value", pa.large_binary()), ("key", pa.large_string())]), settings())
    assert list(COLUMNS) == list(TYPES)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("key", pa.int64()), ("value", pa.string())], "'key' has the type int64; cast it to string or binary"),
        ([("key", pa.binary())], r"'value' is missing \(the columns are: key\); .* tombstones cast\(null as binary\)"),
        ([("value", pa.list_(pa.string()))], "cast it to string or binary"),
        ([("value", pa.string()), ("partition", pa.int64())], "'partition' has the type int64; cast it to int"),
        ([("value", pa.int32())], "Column 'value' has the type int32; cast it to string or binary"),
        ([("value", pa.string()), ("topic", pa.binary())], "'topic' has the type binary; cast it to string"),
        ([("value", pa.string()), ("topic", pa.int32())], "Column 'topic' has the type int32; cast it to string"),
        ([("value", pa.string()), ("timestamp", pa.string())], "'timestamp' has the type string; cast it to timestamp"),
        ([("value", pa.string()), ("timestamp", pa.timestamp("us"))], "timestamp_ntz; cast it to timestamp"),
        (
            [("value", pa.string()), ("headers", pa.map_(pa.string(), pa.binary()))],
            "cast it to array<struct<key:string,value:binary>>",
        ),
        (
            [("value", pa.string()), ("headers", pa.map_(pa.string(), pa.string()))],
            "Column 'headers' has the type map<string, string>; cast it to array",
        ),
        (
            [("value", pa.string()), ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))],
            "cast it to array<struct<key:string,value:binary>>",
        ),
        (
            [("Value", pa.string())],
            "'Value' is not one of the sink's columns key, value, topic, .*; did you mean 'value'",
        ),
        (
            [("value", pa.string()), ("kee", pa.string())],
            "Column 'kee' is not one of the sink's columns key, value, .*; did you mean 'key'",
        ),
        ([("value", pa.string()), ("amount", pa.int32())], "'amount' is not one of the sink's columns"),
        ([("value", pa.string()), ("value", pa.string())], "'value' occurs 2 times"),
        ([("topic", pa.string())], "'value' is missing \\(the columns are: topic\\)"),
    ],
)
def test_a_wrong_schema(columns: list[tuple[str, pa.DataType]], said: str) -> None:
    """The error names the column, its type, and what would be right."""
    with pytest.raises(ConfigurationError, match=said):
        check_schema(pa.schema(columns), settings())


def test_many_topics_need_a_column() -> None:
    """With a list of topics, or a pattern, somebody has to choose."""
    schema = pa.schema([("value", pa.string())])
    for wishes in ({"topics": ("a", "b")}, {"pattern": re.compile("a.*")}):
        with pytest.raises(ConfigurationError, match="'topic' is missing"):
            check_schema(schema, settings(**wishes))


# --- records ------------------------------------------------------------------------------------------------------------

_payloads = st.none() | st.binary(max_size=4)
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": _payloads,
            "value": st.none() | st.text(max_size=4),
            "topic": st.sampled_from([None, "t", "u", "v"]),
            "partition": st.none() | st.integers(0, 7),
            "headers": st.none()
            | st.lists(st.fixed_dictionaries({"key": st.text(max_size=2), "value": _payloads}), max_size=2),
            "timestamp": st.none() | st.integers(1000, 10**16),
        }
    ),
    min_size=1,
    max_size=12,
)


@given(_rows, st.sets(st.sampled_from(["key", "topic", "partition", "headers", "timestamp"])), st.data())
def test_records_are_the_rows(rows: list[dict[str, Any]], names: set[str], data: st.DataObject) -> None:
    """Every row is one record, in order, whatever columns there are, nulls among them, and slices of batches."""
    columns = ["value", *sorted(names)]
    whole = batch(TYPES, **{name: [row[name] for row in rows] for name in columns})
    first = data.draw(st.integers(0, len(rows) - 1))
    found = records(whole.slice(first))
    expected = []
    for full in rows[first:]:
        row = {name: full[name] for name in columns}
        value, micros, headers = row["value"], row.get("timestamp"), row.get("headers")
        expected.append(
            (
                row.get("topic") or "t",
                None if value is None else value.encode(),
                row.get("key"),
                -1 if row.get("partition") is None else row["partition"],
                micros // 1000 if micros is not None else 0,
                [(header["key"], header["value"]) for header in headers] if headers else None,
            )
        )
    defaults = [None] * 4 + [0, None]
    padded = argued(found) + [[d] * len(expected) for d in defaults[len(argued(found)) :]]
    assert list(zip(*padded, strict=True)) == expected
    assert set(argued(found)[0]) == {e[0] for e in expected}
    assert found.volume.records == len(expected)
    assert found.volume.bytes == sum(len(e[1] or b"") + len(e[2] or b"") for e in expected)


@given(
    st.lists(st.none() | st.integers(1000, 10**16), max_size=5),
    st.integers(-(10**15), 999),
    st.lists(st.none() | st.integers(-(10**15), 10**16), max_size=5),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_a_time_that_cannot_be_written(
    before: list[int | None], micros: int, after: list[int | None], unit: str
) -> None:
    """Of 1970-01-01T00:00:00Z and earlier: an error, whatever the other rows have. It is never the time of writing."""
    types = {"value": pa.string(), "timestamp": pa.timestamp("us", tz="UTC")}
    times = [*before, micros, *after]
    rows = batch(types, value=["v"] * len(times), timestamp=times)
    times_in_unit = rows.column("timestamp").cast(pa.timestamp(unit, tz="UTC"), safe=False)
    rows = pa.record_batch([rows.column("value"), times_in_unit], ["value", "timestamp"])
    with pytest.raises(RowError, match=r"A row's column 'timestamp' is -?\d+ ms since 1970, .* leave it null"):
        records(rows)


def test_only_keys() -> None:
    """Without a column `value`, every row is a tombstone."""
    assert argued(records(batch(key=[b"a", b"b"])))[1:3] == [[None, None], [b"a", b"b"]]


def test_large_types() -> None:
    """As Spark sends them on request."""
    types = {"key": pa.large_string(), "value": pa.large_binary(), "topic": pa.large_string()}
    found = records(batch(types, key=["ä"], value=[b"v"], topic=["u"]))
    assert argued(found)[:3] == [["u"], [b"v"], ["ä".encode()]]


def test_what_is_not_given_is_not_passed() -> None:
    """Neither timestamps nor headers cost anything if there are none."""
    assert len(argued(records(batch(value=["v"])))) == 4
    assert len(argued(records(batch(value=["v"], headers=[None], timestamp=[None])))) == 4


# --- topics and partitions ----------------------------------------------------------------------------------------------


def test_the_option_wins_over_the_column() -> None:
    """As in Spark's sink; what the column says is not even looked at."""
    rows = batch(value=["v", "w"], topic=["a", None])
    found = to_records(rows, Destination({}, "o"), settings(topic="o"), eight)
    assert set(argued(found)[0]) == {"o"}


def test_no_topic() -> None:
    """A null, or no column at all, where nothing says where rows go."""
    said = "A row's column 'topic' is null or missing; it has to name the topic"
    assert fault(batch(value=["v", "w"], topic=["a", None]), topic=None).startswith(said)
    assert fault(batch(value=["v"]), topic=None).startswith(said)


@pytest.mark.parametrize("name", ["a\0b", "a/b", "", ".", "x" * 250])
def test_a_name_that_no_topic_has(name: str) -> None:
    """It is an error at once: librdkafka cannot ask a broker for each of them, and no broker has one."""
    said = fault(batch(value=["v", "w"], topic=["a", name]), topic=None)
    assert said.startswith(f"A row's column 'topic' is {name!r}; a topic's name has at most 249 letters")


def test_a_topic_that_is_not_allowed() -> None:
    """By the list, or by the pattern, which has to match the whole name."""
    rows = batch(value=["secret", "secret"], topic=["orders", "orders-2"])
    said = fault(rows, topics=("orders", "refunds"))
    assert said == "A row's column 'topic' names 'orders-2'; the option 'topic' allows orders, refunds"
    assert "'orders-2', which does not match the option 'topic-pattern' (orders)" in fault(
        rows, pattern=re.compile("orders")
    )
    assert set(argued(records(rows, pattern=re.compile("orders.*")))[0]) == {"orders", "orders-2"}


@pytest.mark.parametrize("partition", [-1, 8, 2**31 - 1])
def test_a_partition_that_is_not_there(partition: int) -> None:
    """The error names the topic and its partitions; also with several topics in the batch."""
    expected = f"A row's column 'partition' is {partition}; the topic 't' has the partitions 0 to 7"
    assert fault(batch(value=["v", "w"], partition=[7, partition])) == expected
    assert fault(batch(value=["v", "w"], partition=[7, partition], topic=["a", "t"])) == expected


def test_partitions_are_looked_up_again_before_they_are_missing() -> None:
    """A topic may have grown; another one with fewer partitions in the same batch is not asked for again."""
    asked: list[tuple[str, int]] = []

    def growing(topic: str, at_least: int) -> int:
        asked.append((topic, at_least))
        return {"a": 2, "b": 8 if at_least > 2 else 2}[topic]

    rows = batch(value=["1", "2", "3"], topic=["a", "b", "b"], partition=[1, 7, None])
    assert argued(records(rows, partitions=growing))[3] == [1, 7, -1]
    assert asked == [("a", 0), ("b", 0), ("b", 8)]


def test_the_column_wins_over_the_partitioner() -> None:
    """The partitioner is asked only for rows without a partition."""
    partitioner = RoundRobinPartitioner()
    partitioner.open(0, 1)
    rows = batch(value=["a", "b", "c", "d"], partition=[None, 5, None, None])
    assert argued(records(rows, partitioner=partitioner))[3] == [0, 5, 1, 2]


class Seen:
    """A partitioner that remembers what it was asked, and answers what it is told to."""

    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.asked: list[object] = []

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:
        """Nothing to prepare."""

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """What it was told to answer."""
        self.asked.append((key, value, topic, list(partitions)))
        return self.answer


def test_a_partitioner_sees_bytes() -> None:
    """Also if the columns are strings."""
    seen = Seen(7)
    assert argued(records(batch(key=[b"k", None], value=["v", None], topic=["u", "u"]), partitioner=seen))[3] == [
        7,
        7,
    ]
    assert seen.asked == [(b"k", b"v", "u", list(range(8))), (None, None, "u", list(range(8)))]


def test_a_partitioner_that_errs() -> None:
    """A partition that is not there, -1 included, is the partitioner's fault, and the error says so."""
    for answer in (8, -1):
        with pytest.raises(ConfigurationError, match=f"Seen \\('sink.partitioner'\\) chose the partition {answer}"):
            records(batch(value=["v"]), partitioner=Seen(answer))


def test_a_header_without_a_key() -> None:
    """Kafka has none; a header without a value it has."""
    said = fault(batch(value=["v"], headers=[[{"key": None, "value": b"1"}]]))
    assert said.startswith("A row's column 'headers' has a header without a key")
    assert "header without a key" in fault(batch(value=["v"], headers=[[None]]))
    assert argued(records(batch(value=["v"], headers=[[{"key": "a", "value": None}]])))[5] == [[("a", None)]]


# --- clusters -----------------------------------------------------------------------------------------------------------


def routed(rows: pa.RecordBatch, *clusters: str) -> dict[str, list[str]]:
    """The values of each cluster."""
    task = WriteTask({name: Destination({}, "t") for name in clusters}, settings())
    return {cluster: part.column("value").to_pylist() for cluster, part in by_cluster(rows, task)}


@given(st.lists(st.sampled_from(["east", "west"]), min_size=1, max_size=20))
def test_each_row_goes_to_its_cluster(names: list[str]) -> None:
    """In order."""
    values = [str(i) for i in range(len(names))]
    found = routed(batch(value=values, cluster=names), "east", "west")
    assert found == {
        name: [v for v, n in zip(values, names, strict=True) if n == name] for name in dict.fromkeys(names)
    }


def test_one_cluster_needs_no_column() -> None:
    """Nor a name in each row; a batch stays whole."""
    for rows in (
        batch(value=["1", "2"]),
        batch(value=["1", "2"], cluster=[None, None]),
        batch(value=["1", "2"], cluster=["east", None]),
    ):
        assert routed(rows, "east") == {"east": ["1", "2"]}


def test_no_such_cluster() -> None:
    """A name that is none of the stream's, or none at all where there are several."""
    with pytest.raises(RowError, match="'cluster' names 'north'; the stream's clusters are east, west"):
        routed(batch(value=["1", "2"], cluster=["east", "north"]), "east", "west")
    with pytest.raises(RowError, match="'cluster' names 'north'"):
        routed(batch(value=["1"], cluster=["north"]), "east")
    for rows in (batch(value=["1"]), batch(value=["1", "2"], cluster=["east", None])):
        with pytest.raises(RowError, match="'cluster' is null or missing; it has to name one of east, west"):
            routed(rows, "east", "west")


SPEC = json.dumps({"format": "json", "options": {}})


def structs(count: int, text: str = "x") -> pa.RecordBatch:
    """Rows with a struct as value; the last one is null."""
    value = [{"a": i, "b": text} for i in range(count - 1)] + [None]
    return pa.record_batch({"key": pa.array([b"k"] * count), "value": value, "topic": ["t"] * count})


def test_structs_become_bytes_and_other_columns_stay() -> None:
    """In slices if the batch is large, and in the same order."""
    whole = [structs(3), structs(2000, "x" * 10_000)]
    found = list(encoded(iter(whole), {"value": SPEC}))
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
