"""`read_arrow`: streams as Arrow batches in a process without Spark."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from dynamic_kafka import read_arrow
from dynamic_kafka.errors import ConfigurationError, DataLossError, RecordError
from dynamic_kafka.testing import KafkaBroker, produce
from tests.brokers import delete_records

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
VALUE = pa.struct([("id", pa.int64()), ("status", pa.string())])


@pytest.fixture
def orders(cluster_a: KafkaBroker, topic: Topic) -> dict[str, object]:
    """Options of a topic of 20 orders in two partitions; every tenth is paid."""
    name = topic(cluster_a, partitions=2)
    orders = [json.dumps({"id": i, "status": None if i == 5 else "open" if i % 10 else "paid"}) for i in range(20)]
    produce(cluster_a.bootstrap_servers, name, [(f"k{i}", order) for i, order in enumerate(orders)])
    return {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name, "includeHeaders": True}


def test_all_columns(orders: dict[str, object]) -> None:
    """Those of the source, with its types."""
    reader = read_arrow(orders)
    assert reader.schema.names[:4] == ["key", "value", "topic", "partition"]
    assert reader.schema.field("headers").type.value_type.names == ["key", "value"]
    assert reader.schema.field("headers").type.value_field.name == "element"
    table = pa.Table.from_batches(reader)
    assert table.schema == reader.schema
    assert table.schema.field("headers").type.value_field.name == "element"
    assert sorted(json.loads(value)["id"] for value in table["value"].to_pylist()) == [*range(20)]


def test_decoded_messages(orders: dict[str, object]) -> None:
    """With the wanted fields of the value, and conditions on them; a null fulfils none."""
    columns = pa.schema([("value", VALUE), ("offset", pa.int64())])
    options = {**orders, "value.format": "json"}

    def ids(*where: Any) -> list[int]:
        return sorted(row["value"]["id"] for row in read_arrow(options, columns, where).read_all().to_pylist())

    status = ("value", "status")
    assert ids((status, "=", "paid")) == [0, 10]
    assert ids((status, "!=", "paid"), (("value", "id"), "<", 7)) == [1, 2, 3, 4, 6]
    assert ids((status, "not in", ["open"])) == [0, 10]
    assert ids((status, "in", ["paid"]), ("cluster", "=", "kafka")) == [0, 10]
    assert ids((status, "in", ["paid"]), ("cluster", "=", "other")) == []
    assert ids((status, "in", ["paid", None])) == [0, 10]
    assert ids((status, "in", [])) == []
    assert len(ids((status, "not in", []))) == 19
    assert ids((status, "not in", ["open", None])) == []
    once: Any = iter([("offset", "in", (offset for offset in (0, 1))), (status, "=", "open")])
    reader = read_arrow(options, columns, once)
    assert {row["offset"] for row in reader.read_all().to_pylist()} <= {0, 1}


def test_conditions_on_columns_that_are_not_wanted(orders: dict[str, object]) -> None:
    """The offsets without such rows are left out, and the columns are only those that were asked for."""
    table = read_arrow(orders, ["offset"], [("partition", "=", 1), ("offset", ">=", 3)]).read_all()
    everything = read_arrow(orders, ["partition", "offset"]).read_all().to_pylist()
    assert table.column_names == ["offset"]
    assert table["offset"].to_pylist() == [
        row["offset"] for row in everything if row["partition"] == 1 and row["offset"] >= 3
    ]
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    twice = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    for since, count in ((later, 0), (twice, 20)):
        assert read_arrow(orders, where=[("timestamp", ">=", since)]).read_all().num_rows == count


def test_a_damaged_message_is_an_error_with_its_place(cluster_a: KafkaBroker, orders: dict[str, object]) -> None:
    """While the reader is read."""
    produce(cluster_a.bootstrap_servers, str(orders["subscribe"]), [("k", "{")])
    reader = read_arrow({**orders, "value.format": "json"}, pa.schema([("value", VALUE)]))
    for read in (reader.read_all, reader.read_next_batch):  # the second time, too: that is not the end
        with pytest.raises(RecordError, match="the value cannot be read as json"):
            read()


def test_a_time_does_not_hide_deleted_records(cluster_a: KafkaBroker, orders: dict[str, object]) -> None:
    """Nobody knows their times, so a bound of time leaves out nothing where records are missing that were asked for."""
    delete_records(cluster_a, str(orders["subscribe"]), 0, before=3)
    since = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    named = {**orders, "startingOffsets": json.dumps({orders["subscribe"]: {"0": 1, "1": 0}})}
    for given, where in ((named, [("timestamp", ">=", since)]), (named, [])):
        with pytest.raises(DataLossError, match=r"partition 0, offsets \[1, 3\)"):
            read_arrow(given, where=where).read_all()
    left = (
        read_arrow({**named, "failOnDataLoss": "false"}, ["offset"], [("timestamp", ">=", since)]).read_all().num_rows
    )
    assert left == read_arrow(orders, ["offset"], [("timestamp", ">=", since)]).read_all().num_rows == 17


def test_a_reader_that_is_dropped_closes_its_connections(orders: dict[str, object]) -> None:
    """Its `close` does not, because of pyarrow: the docstring says so."""
    reader = read_arrow(orders)
    reader.read_next_batch()
    reader.close()
    before = _threads()
    del reader
    assert _threads() < before


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["ofset"]}, "Column 'ofset' does not exist.*did you mean 'offset'"),
        ({"where": [("partiton", "=", 1)]}, "did you mean 'partition'"),
        ({"where": [("partition", "~", 1)]}, "operator '~'; expected one of =, !=, <"),
        ({"columns": pa.schema([("value", VALUE)])}, "the option 'value.format'"),
        ({"columns": pa.schema([("offset", pa.int64()), ("offset", pa.int64())])}, "named twice"),
        ({"columns": pa.schema([("offset", pa.uint64())])}, "a type that Spark does not have"),
        ({"where": ("offset", "=", 3)}, r"'offset' is not a column, an operator and a value, such as \('offset'"),
        ({"where": [("offset", "=")]}, "is not a column, an operator and a value"),
        ({"where": [((), "=", 1)]}, "is not a column, an operator and a value"),
        ({"where": [("offset", "!=", 1)] * 501}, "`where` has 501 conditions, and at most 500"),
        ({"where": [("topic", "in", "orders")]}, "is not a column, an operator and a value"),
        ({"where": [("offset", "=", "x")]}, "'offset' needs a value of the type int64"),
        ({"where": [("offset", "<", 3.5)]}, "'offset' needs a value of the type int64, which has 3 and not 3.5"),
        ({"where": [("offset", "in", [3, 4.5])]}, "'offset' needs a value of the type int64"),
        ({"where": [("timestamp", ">", 5)]}, "'timestamp' needs a value of the type timestamp"),
        ({"where": [("offset", ">", 10**30)]}, "'offset' needs a value of the type int64"),
        ({"where": [("timestamp", ">", dt.datetime(2024, 1, 1))]}, "a time without a time zone"),  # noqa: DTZ001
        ({"where": [(("value", "id"), "=", 1)]}, "names a field that 'value' does not have"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    """Are errors before anything is read."""
    with pytest.raises(ConfigurationError, match=message):
        read_arrow({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, **arguments)


def test_no_java_is_started(orders: dict[str, object]) -> None:
    """In a process of its own, which ends by itself, also when the rows are not read to their end."""
    code = (
        "import sys, json, dynamic_kafka\n"
        "options = json.loads(sys.argv[1])\n"
        "print(next(iter(dynamic_kafka.read_arrow(options, ['value']))).num_rows > 0)\n"
        "from pyspark import SparkContext\n"
        "print(SparkContext._gateway)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(orders)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["True", "None"]
    assert not done.stderr
