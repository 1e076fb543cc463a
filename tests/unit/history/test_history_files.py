"""Freezing histories of Parquet files, and reading them; what is wrong with them is said with the file and the column."""

from __future__ import annotations

import io
import json
import math
import os
import random
import shutil
import types
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.histories import records, write

from dynamic_kafka.errors import ConfigurationError, HistoryError
from dynamic_kafka.history import parquet
from dynamic_kafka.history.coverage import Offsets, Part
from dynamic_kafka.history.csv_text import Rfc4180Text
from dynamic_kafka.history.folder import ListedFile, is_at, open_folder
from dynamic_kafka.history.formats import Frozen, freeze
from dynamic_kafka.history.model import HISTORY_ROW, HistoryTask, TimeLimit, pieces
from dynamic_kafka.history.orc_zones import writer_zones
from dynamic_kafka.history.reader import _of_table, read_history
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.rows import COLUMNS, arrow_schema
from dynamic_kafka.spark.comparisons import Comparison, expression_of

SCHEMA = arrow_schema(COLUMNS)


def frozen(path: Path | str, **changes: Any) -> Frozen:
    """Freeze a folder."""
    settings = HistorySettings(str(path), "parquet", "coordinates", None, "", tuple(COLUMNS))
    return freeze(settings._replace(**changes))


def read(
    found: Frozen,
    start: int = 0,
    end: int | None = None,
    schema: pa.Schema = SCHEMA,
    where: Callable[[pa.Schema], Any] | None = None,
    **how: Any,
) -> list[dict[str, Any]]:
    """Rows of a history, in order."""
    history = found.history
    task = HistoryTask(history, list(pieces(history, start, history.rows if end is None else end)), where)
    batches = read_history(task, schema, **{"fail_on_data_loss": True, **how})
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    """Their offsets."""
    return [row["offset"] for row in rows]


def test_any_range_of_rows_can_be_read(tmp_path: Path) -> None:
    """Across files, and within row groups."""
    write(tmp_path / "b.parquet", records("t", range(10, 30)), row_group_size=7)
    write(tmp_path / "a.parquet", records("t", range(10)))
    found = frozen(tmp_path)
    assert [f.rows for f in found.history.files] == [(10,), (7, 7, 6)]
    assert found.history.rows == 30
    for start in range(31):
        for end in range(start, 31, 3):
            assert offsets(read(found, start, end)) == list(range(start, end))
    first = read(found)[0]
    assert first["value"] == b"t-0-0"
    assert first["cluster"] == "kafka"
    assert first["timestamp"].timestamp() == 1_700_000_000
    assert first["headers"] is None


@pytest.mark.parametrize("statistics", [True, False])
def test_the_largest_offsets_are_found_with_and_without_statistics(tmp_path: Path, statistics: bool) -> None:  # noqa: FBT001
    """In row groups of one partition the statistics tell; in others, the columns are read."""
    both = [*records("t", range(10)), *records("t", range(40, 45), partition=1)]
    write(tmp_path / "1.parquet", both, write_statistics=statistics)
    write(tmp_path / "2.parquet", records("t", [80, 50, 60]), write_statistics=statistics)
    write(tmp_path / "3.parquet", records("u", [7], cluster="b"), write_statistics=statistics)
    write(tmp_path / "4.parquet", records("t", [3]), write_statistics=statistics)
    expected = {("kafka", "t", 0): 80, ("kafka", "t", 1): 44, ("b", "u", 0): 7}
    assert dict(frozen(tmp_path).largest) == expected
    assert not frozen(tmp_path, switch="starting-offsets").largest


def test_columns_may_be_in_the_names_of_folders(tmp_path: Path) -> None:
    """As Spark and Hive write them; the rows get them back."""
    for partition in (0, 1):
        rows = [
            {name: row[name] for name in ("value", "offset", "timestamp")}
            for row in records("t x", range(5), partition=partition)
        ]
        write(tmp_path / "topic=t%20x" / f"partition={partition}" / "day=2013-01-01" / "f.parquet", rows)
    found = frozen(tmp_path)
    assert dict(found.largest) == {("", "t x", 0): 4, ("", "t x", 1): 4}
    assert [(row["topic"], row["partition"]) for row in read(found)] == [("t x", 0)] * 5 + [("t x", 1)] * 5
    assert found.absent == ["cluster", "headers", "key", "leader_epoch", "timestampType"]


def test_types_that_mean_the_same_are_converted(tmp_path: Path) -> None:
    """Texts as bytes, other integers, instants in other units and without a time zone, as older Sparks write them."""
    row = records("t", [5])[0] | {"key": "k", "value": "v"}
    types = {
        "key": pa.large_string(),
        "value": pa.string(),
        "topic": pa.dictionary(pa.int8(), pa.string()),
        "partition": pa.int64(),
        "offset": pa.int32(),
        "timestamp": pa.timestamp("us"),
        "cluster": pa.large_string(),
    }
    write(tmp_path / "f.parquet", [row], types=types, use_deprecated_int96_timestamps=True)
    found = read(frozen(tmp_path))[0]
    assert (found["key"], found["value"], found["partition"], found["offset"]) == (b"k", b"v", 0, 5)
    assert found["timestamp"].timestamp() == 1_700_000_000.005


def test_only_the_columns_that_spark_wants_are_returned(tmp_path: Path) -> None:
    """In the order in which it wants them, also if the files do not have one of them."""
    write(tmp_path / "f.parquet", records("t", range(3)))
    assert read(frozen(tmp_path), schema=arrow_schema(["offset", "value"]))[2] == {"offset": 2, "value": b"t-0-2"}
    assert read(frozen(tmp_path), schema=arrow_schema(["headers"])) == [{"headers": None}] * 3


def test_hidden_files_are_no_data(tmp_path: Path) -> None:
    """Nor are those in hidden folders; a single file may be named itself."""
    kept = write(tmp_path / "f.parquet", records("t", range(3)))
    write(tmp_path / "_temporary" / "f.parquet", records("t", range(9)))
    write(tmp_path / ".g.parquet", records("t", range(9)))
    (tmp_path / "_SUCCESS").touch()
    assert offsets(read(frozen(tmp_path))) == [0, 1, 2]
    assert offsets(read(frozen(kept))) == [0, 1, 2]


def test_of_a_streaming_sink_only_committed_files_count(tmp_path: Path) -> None:
    """Spark's file sink lists them; a file of a batch that failed is not among them."""
    for name in ("a", "b", "c", "failed"):
        write(tmp_path / "day=1" / f"{name}.parquet", records("t", [ord(name[0])]))
    log = tmp_path / "_spark_metadata"
    log.mkdir()

    def entry(name: str) -> str:
        return json.dumps({"path": f"file:///once/elsewhere/day%3D1/{name}.parquet", "size": 1, "action": "add"})

    (log / "0").write_text("v1\n" + entry("failed"))
    (log / "1.compact").write_text("v1\n" + entry("a") + "\n" + entry("b"))
    (log / "2").write_text("v1\n" + entry("c"))
    assert offsets(read(frozen(tmp_path))) == [97, 98, 99]


def test_files_may_be_read_in_the_order_of_a_time(tmp_path: Path) -> None:
    """Of their earliest times; the statistics tell them, or the column itself."""
    for name, first in (("a", 500), ("b", 100), ("c", 300)):
        write(tmp_path / f"{name}.parquet", records("t", range(first, first + 3)))
    assert offsets(read(frozen(tmp_path, time_column="timestamp")))[::3] == [100, 300, 500]
    write(tmp_path / "d.parquet", records("t", [200]), use_deprecated_int96_timestamps=True)
    write(tmp_path / "e.parquet", [row | {"timestamp": None} for row in records("t", [7])])
    assert offsets(read(frozen(tmp_path, time_column="timestamp"))) == [
        *(7, 100, 101, 102, 200),
        *(300, 301, 302, 500, 501, 502),
    ]


def test_rows_at_or_after_the_time_of_the_switch_are_left_out(tmp_path: Path) -> None:
    """Kafka has them."""
    rows = records("t", range(10))
    rows[3]["timestamp"] = None
    write(tmp_path / "f.parquet", rows)
    found = frozen(tmp_path, switch="timestamp", limit=TimeLimit("timestamp", 1_700_000_000_005))
    assert offsets(read(found)) == [0, 1, 2, 3, 4]
    assert len(read(found, schema=arrow_schema(["offset"]))) == 5


def test_what_the_archive_says_of_its_clusters_is_found(tmp_path: Path) -> None:
    """The ids, by which the switch recognizes clusters and topics."""
    write(tmp_path / "f.parquet", records("t", range(3)))
    assert frozen(tmp_path).clusters == {}
    (tmp_path / "_dynamic_kafka").mkdir()
    said = {"kafka": {"id": "A", "topics": {"t": "x"}}}
    (tmp_path / "_dynamic_kafka" / "archive.json").write_text(json.dumps({"version": 1, "clusters": said}))
    assert frozen(tmp_path).clusters == said
    (tmp_path / "_dynamic_kafka" / "archive.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"archive\.json .* cannot be read"):
        frozen(tmp_path)


# --- other formats ------------------------------------------------------------------------------------------------------

FILES = ("csv", "csv.gz", "json", "json.zst", "orc")


def write_as(path: Path, rows: list[dict[str, Any]]) -> str:
    """Write rows in the format that the name says, and return it."""
    file_format = path.name.split(".")[1]
    if file_format == "orc":
        columns = [(name, COLUMNS.get(name, pa.string())) for name in rows[0]]
        pa.orc.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), path)
        return file_format
    shown: list[dict[str, Any]] = [
        {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()} for row in rows
    ]
    for row in shown:
        if row.get("timestamp") is not None:
            row["timestamp"] = datetime.fromtimestamp(row["timestamp"] / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if file_format == "json":
        text = "".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in shown)
    else:
        lines = [
            list(shown[0]),
            *(["" if v is None else f'"{v}"' if v == "" else str(v) for v in r.values()] for r in shown),
        ]
        text = "".join(",".join(line) + "\n" for line in lines)
    with pa.output_stream(path, compression="detect") as stream:
        stream.write(text.encode())
    return file_format


@pytest.mark.parametrize("name", FILES)
def test_other_formats_have_the_same_rows(tmp_path: Path, name: str) -> None:
    """Any range of them, the largest offsets, nulls and empty texts."""
    rows = [*records("t", range(30)), *records("t", range(5, 9), partition=1)]
    rows[3] |= {"key": None, "timestamp": None}
    rows[4] |= {"key": b""}
    file_format = write_as(tmp_path / f"f.{name}", rows)
    found = frozen(tmp_path, format=file_format, time_column="timestamp")
    assert dict(found.largest) == {("kafka", "t", 0): 29, ("kafka", "t", 1): 8}
    assert [f.rows for f in found.history.files] == [(34,)]
    for start, end in ((0, 34), (3, 5), (29, 31), (33, 34)):
        assert offsets(read(found, start, end)) == [row["offset"] for row in rows[start:end]]
    assert [(row["key"], row["timestamp"] is None) for row in read(found, 2, 5)] == [
        (b"k2", False), (None, True), (b"", False),
    ]  # fmt: skip
    limited = frozen(tmp_path, format=file_format, switch="timestamp", limit=TimeLimit("timestamp", 1_700_000_000_004))
    assert offsets(read(limited, schema=arrow_schema(["offset", "value"]))) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", FILES)
def test_rows_of_a_table_in_other_formats(tmp_path: Path, name: str) -> None:
    """With the types of the table."""
    file_format = write_as(
        tmp_path / f"f.{name}", [{"id": str(i) if name == "orc" else i, "note": f"n{i}"} for i in range(3)]
    )
    row = pa.struct([("note", pa.string()), ("id", pa.string() if name == "orc" else pa.int64())])
    found = frozen(tmp_path, format=file_format, row=row, switch="starting-offsets")
    ids = [r[HISTORY_ROW]["id"] for r in read(found, schema=arrow_schema(["value"]).append(pa.field(HISTORY_ROW, row)))]
    assert list(map(int, ids)) == [0, 1, 2]


def test_files_of_text_may_be_empty(tmp_path: Path) -> None:
    """Spark leaves such files; but there must be one with rows."""
    (tmp_path / "a.csv").touch()
    with pytest.raises(ConfigurationError, match="are empty"):
        frozen(tmp_path, format="csv")
    write_as(tmp_path / "b.csv", records("t", range(2)))
    assert offsets(read(frozen(tmp_path, format="csv"))) == [0, 1]


def test_a_value_that_is_none_of_its_type(tmp_path: Path) -> None:
    """The file is named, and the column by its number."""
    rows = [row | {"offset": "many"} for row in records("t", range(2))]
    write_as(tmp_path / "f.csv", rows)
    with pytest.raises(HistoryError, match=r"f\.csv' cannot be read: .*column #4"):
        frozen(tmp_path, format="csv")


BY_SPARK = Path(__file__).parents[1] / "data" / "history"
"""Files that Spark 4.3 wrote in New York; see the README there."""


@pytest.mark.parametrize("name", ["spark.csv", "spark-rfc4180.csv"])
def test_csv_of_spark_has_the_values_that_spark_wrote(tmp_path: Path, name: str) -> None:
    """With quotes escaped by a backslash, as is its default, and doubled. Only nothing is null. Spark cuts spaces off."""
    shutil.copy(BY_SPARK / name, tmp_path / "f.csv")
    found = frozen(tmp_path, format="csv" if name == "spark.csv" else "csv-rfc4180")
    rows = read(found)
    values = [
        "NA", "null", "NULL", "nan", "n/a", "", None, '{"a":1,"b":2}', 'say "hi"', "a\\b", "ends\\", "a\\,b",
        'q",\\"x', "two\nlines", "sp", "-", '\\"', "\\\\", 'a "b\\" c',
    ]  # fmt: skip
    assert [row["value"] for row in rows] == [None if value is None else value.encode() for value in values]
    assert rows[0]["timestamp"] == datetime(2015, 1, 1, 5, 0, 10, tzinfo=UTC)
    assert dict(found.largest) == {("", "t", 0): 18}


@pytest.mark.parametrize("name", ["spark.csv", "spark-rfc4180.csv"])
def test_csv_of_the_other_way_is_an_error(tmp_path: Path, name: str) -> None:
    """Its values would be others."""
    shutil.copy(BY_SPARK / name, tmp_path / "f.csv")
    said, other = ("csv-rfc4180", "csv") if name == "spark.csv" else ("csv", "csv-rfc4180")
    with pytest.raises(HistoryError, match=rf"this is not history\.format={said}, .* Is it {other}\?"):
        frozen(tmp_path, format=said)


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_times_of_orc_are_those_of_utc(tmp_path: Path, compression: str) -> None:
    """The zone of the writer is in each stripe. Arrow writes GMT."""
    time = pa.array([datetime(2015, 1, 1)] * 3, pa.timestamp("us"))  # noqa: DTZ001
    table = pa.table(records_of_columns(3) | {"timestamp": time})
    pa.orc.write_table(table, tmp_path / "f.orc", compression=compression)
    with pa.OSFile(str(tmp_path / "f.orc")) as file:
        assert writer_zones(file) == set()
    assert read(frozen(tmp_path, format="orc"))[0]["timestamp"] == datetime(2015, 1, 1, tzinfo=UTC)
    if compression == "uncompressed":
        path = tmp_path / "f.orc"
        path.write_bytes(path.read_bytes().replace(b"GMT", b"EST"))
        with pytest.raises(ConfigurationError, match="has times of the zone EST in the column 'timestamp'"):
            frozen(tmp_path, format="orc")


def records_of_columns(count: int) -> dict[str, Any]:
    """The columns that records need."""
    return {"value": [b"v"] * count, "topic": ["t"] * count, "partition": [0] * count, "offset": list(range(count))}


def test_orc_that_spark_wrote_in_new_york_is_refused(tmp_path: Path) -> None:
    """Its times would be read as if they were of UTC, five hours off."""
    shutil.copy(BY_SPARK / "spark-new-york.orc", tmp_path / "f.orc")
    with pytest.raises(ConfigurationError, match="times of the zone America/New_York in the column 'timestamp'"):
        frozen(tmp_path, format="orc")
    row = pa.struct([("key", pa.string()), ("timestamp", pa.timestamp("us"))])  # a time on a clock is what it is
    found = frozen(tmp_path, format="orc", row=row, switch="starting-offsets")
    assert found.history.rows == 19


@given(st.lists(st.text(st.sampled_from(['"', "\\", ",", "\n", "a"]), max_size=6), min_size=1), st.integers(1, 9))
def test_texts_of_both_ways_are_the_same_whatever_the_blocks(values: list[str], size: int) -> None:
    """A value may be cut anywhere."""
    as_backslash = "\n".join('"' + v.replace("\\", "\\\\").replace('"', '\\"') + '",a\\b' for v in values)
    doubled = "\n".join('"' + v.replace('"', '""') + '",a\\b' for v in values).encode()
    for text, file_format in ((as_backslash.encode(), "csv"), (doubled, "csv-rfc4180")):
        source = io.BytesIO(text)
        cut = types.SimpleNamespace(read=lambda _, source=source: source.read(size))
        assert Rfc4180Text(cut, file_format).readall() == doubled


@pytest.mark.parametrize("name", ["f.csv", "f.json"])
def test_columns_that_are_not_read_may_have_any_values(tmp_path: Path, name: str) -> None:
    """Numbers first, and a text after the first block."""
    rows = [{"value": "v" * 40, "topic": "t", "partition": 0, "offset": i, "other": i} for i in range(40_000)]
    rows.append({**rows[0], "offset": 40_000, "other": "text"})
    found = frozen(tmp_path, format=write_as(tmp_path / name, rows), columns=("value", "offset"))
    assert dict(found.largest) == {("", "t", 0): 40_000}
    assert len(read(found, 39_999, schema=arrow_schema(["offset", "value"]))) == 2
    assert len(read(found, 39_999, schema=arrow_schema(["headers"]))) == 2


def test_fields_of_json_may_come_late_or_never(tmp_path: Path) -> None:
    """The first key is behind the first block; and a file of nothing but tombstones."""
    rows = [{"value": "v" * 60, "topic": "t", "partition": 0, "offset": i} for i in range(40_000)]
    write_as(tmp_path / "a.json", [*rows, {**rows[0], "offset": 40_000, "key": "late"}])
    write_as(tmp_path / "b.json", [{"key": "gone", "topic": "t", "partition": 1, "offset": 0}])
    found = frozen(tmp_path, format="json")
    assert [(row["key"], row["value"]) for row in read(found, 40_000)] == [(b"late", b"v" * 60), (b"gone", None)]
    assert "key" not in found.absent
    assert dict(found.largest) == {("", "t", 0): 40_000, ("", "t", 1): 0}


@pytest.mark.parametrize("name", ["f.csv", "f.json", "f.parquet"])
def test_a_time_column_that_is_none_of_kafkas(tmp_path: Path, name: str) -> None:
    """Files are read in its order."""
    for letter, time in (("a", 20), ("b", 3)):
        rows = [row | {"made": time} for row in records("t", [time])]
        path = tmp_path / f"{letter}.{name}"
        if name == "f.parquet":
            write(path, rows, types={"made": pa.int64()})
        else:
            write_as(tmp_path / f"{letter}.{name[2:]}", rows)
    assert offsets(read(frozen(tmp_path, format=name[2:], time_column="made"))) == [3, 20]


def test_numbers_in_the_names_of_folders_are_ordered_as_numbers(tmp_path: Path) -> None:
    """Hour 9 is before hour 10."""
    for hour in (10, 9):
        write(tmp_path / f"hour={hour}" / "f.parquet", records("t", [hour]))
    assert offsets(read(frozen(tmp_path, time_column="hour"))) == [9, 10]


@pytest.mark.parametrize("statistics", [True, False])
def test_times_beyond_the_calendar_are_ordered_too(tmp_path: Path, statistics: bool) -> None:  # noqa: FBT001
    """Producers set any time they like."""
    write(tmp_path / "a.parquet", [records("t", [5])[0] | {"timestamp": 2**60}], write_statistics=statistics)
    write(tmp_path / "b.parquet", records("t", [4]), write_statistics=statistics)
    write(tmp_path / "c.parquet", [records("t", [3])[0] | {"timestamp": -(2**60)}], write_statistics=statistics)
    found = frozen(tmp_path, time_column="timestamp")
    assert offsets(read(found, schema=arrow_schema(["offset"]))) == [3, 4, 5]


# --- rows of a table ----------------------------------------------------------------------------------------------------

ROW = pa.struct(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())), ("p", pa.int32())]
)
OF_TABLE: dict[str, Any] = {"row": ROW, "optional": frozenset({"p"}), "switch": "starting-offsets"}
TABLE_SCHEMA = arrow_schema(["value", "topic"]).append(pa.field(HISTORY_ROW, ROW))
TABLE_TYPES = {"id": pa.int32(), "at": pa.timestamp("ns"), "tags": pa.large_list(pa.large_string()), "day": pa.string()}


def table_rows(count: int) -> list[dict[str, Any]]:
    """Rows of a table, with a column that it does not have."""
    return [{"tags": ["a", None], "id": i, "at": i * 1_000_000_000, "day": "x"} for i in range(count)]


def test_rows_of_a_table_are_rows_already(tmp_path: Path) -> None:
    """They stand in a column of their own, with the table's types; there is no message beside them."""
    write(tmp_path / "f.parquet", table_rows(9), types=TABLE_TYPES, row_group_size=4)
    found = frozen(tmp_path, **OF_TABLE)
    assert found.history.decoded
    assert found.absent == ["p"]
    rows = read(found, 3, 5, TABLE_SCHEMA)
    assert rows == [
        {"value": None, "topic": None,
         HISTORY_ROW: {"id": i, "at": datetime.fromtimestamp(i, UTC), "tags": ["a", None], "p": None}}
        for i in (3, 4)
    ]  # fmt: skip
    limited = frozen(tmp_path, **OF_TABLE | {"switch": "timestamp", "limit": TimeLimit("at", 4000)})
    assert len(read(limited, schema=TABLE_SCHEMA)) == 4
    with pytest.raises(ConfigurationError, match="does not name the history any more"):
        read(found, schema=arrow_schema(["value"]))


def test_records_of_kafka_are_none_of_the_table(tmp_path: Path) -> None:
    """The table's format decodes them."""
    write(tmp_path / "f.parquet", records("t", range(2)))
    found = frozen(tmp_path, **OF_TABLE)
    assert not found.history.decoded
    assert read(found, schema=TABLE_SCHEMA)[1] == {"value": b"t-0-1", "topic": "t", HISTORY_ROW: None}


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"id": pa.string()}, "'id' with the type string; expected a whole number"),
        ({"id": pa.float64()}, "'id' with the type double"),
        ({"tags": pa.string()}, "'tags' with the type string; expected list"),
    ],
)
def test_columns_of_a_table_with_another_type(tmp_path: Path, types: dict[str, pa.DataType], message: str) -> None:
    """The column is named."""
    row: dict[str, Any] = dict.fromkeys(("id", "at", "tags"))
    write(tmp_path / "f.parquet", [row], types=TABLE_TYPES | types)
    with pytest.raises(ConfigurationError, match=message):
        frozen(tmp_path, **OF_TABLE)


def test_a_time_of_a_place_is_no_time_without_a_zone(tmp_path: Path) -> None:
    """A TIMESTAMP would lose hours."""
    write(tmp_path / "f.parquet", [{"at": 0}], types={"at": pa.timestamp("us", "UTC")})
    with pytest.raises(ConfigurationError, match="'at' with the type timestamp"):
        frozen(tmp_path, **OF_TABLE | {"row": pa.struct([("at", pa.timestamp("us"))])})


def test_a_table_whose_files_lack_something(tmp_path: Path) -> None:
    """A column, or what says where Kafka goes on."""
    write(tmp_path / "f.parquet", table_rows(1), types=TABLE_TYPES)
    with pytest.raises(ConfigurationError, match="no columns topic, partition and offset"):
        frozen(tmp_path, **OF_TABLE | {"switch": "coordinates"})
    with pytest.raises(ConfigurationError, match=r"has no column 'name'; .* have to be those of the table"):
        frozen(tmp_path, **OF_TABLE | {"row": pa.struct([("name", pa.string()), ("id", pa.int64())])})


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["_delta_log", "_spark_metadata", "_dynamic_kafka"])
@pytest.mark.parametrize("named", ["parent", "part"])
def test_parts_and_parents_of_tables_are_refused(tmp_path: Path, log: str, named: str) -> None:
    """Only the log says which files count, and it is in another folder than the one that is named."""
    write(tmp_path / "all" / "orders" / "day=1" / "f.parquet", records("t", range(3)))
    assert frozen(tmp_path / "all").history.rows == 3
    (tmp_path / "all" / "orders" / log).mkdir()
    path = tmp_path / "all" if named == "parent" else tmp_path / "all" / "orders" / "day=1"
    with pytest.raises(
        ConfigurationError, match=rf"'{tmp_path}/all/orders', and only its log says .* Name that folder"
    ):
        frozen(path)
    assert frozen(path / "f.parquet" if named == "part" else path / "orders" / "day=1" / "f.parquet").history.rows == 3


@pytest.mark.parametrize("path", ["h", "h/f.parquet", "./h/", "f.parquet"])
def test_relative_paths_are_absolute_from_the_start(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors and later runs may be in other folders. The same path is recognized later."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "h" / "f.parquet", records("t", range(3)))
    write(tmp_path / "f.parquet", records("t", range(3)))
    found = frozen(path)
    assert is_at(found.history, path)
    assert not is_at(found.history, "other")
    monkeypatch.chdir("/")
    assert offsets(read(found)) == [0, 1, 2]
    assert is_at(found.history, str(tmp_path / path))


def test_files_of_a_table_may_be_on_another_file_system(tmp_path: Path) -> None:
    """An Iceberg table has a name, and whole addresses."""
    fsspec = pytest.importorskip("fsspec")
    path = write(tmp_path / "f.parquet", records("t", range(3)))
    with fsspec.open("memory://warehouse/t/a%20b.parquet", "wb") as file:
        file.write(path.read_bytes())
    folder = open_folder("cat.ns.table", "iceberg")
    assert folder.location == "cat.ns.table"
    listed = ListedFile("memory://warehouse/t/a%20b.parquet", path.stat().st_size, 0)
    settings = HistorySettings("cat.ns.table", "iceberg", "coordinates", None, "")
    found = parquet.inspect(folder, settings, listed, cluster="cluster", with_offsets=True)
    assert found.parts == ((("kafka", "t", 0), Part((Offsets(0, 3, 3),), last_row=2)),)
    for scheme in ("mock", "file"):
        place = folder._place(f"{scheme}:///warehouse/f.parquet")
        assert (place[0].type_name, place[1].lstrip("/")) == (scheme.replace("file", "local"), "warehouse/f.parquet")


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIA:hunter2@bucket/x",
        "s3a://AKIA:hun/ter2@bucket/x",
        "s3://hunter2@bucket/x",
        "s3://bucket/x?region=eu&secret_key=hunter2",
        "abfss://container@account/x?account_key=hunter2",
        "sftp://me:hunter2@host/x",
    ],
)
def test_addresses_with_secrets_are_refused(address: str) -> None:
    """They are in logs, checkpoints and progress. The error does not have the secret either."""
    with pytest.raises(ConfigurationError, match="must not have secrets") as caught:
        frozen(address)
    assert "ter2" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["mock:///a@b/c", "mock://host:80/a@b", "mock://user@host/a", "abfss://container@account/x?key=1"]
)
def test_not_every_at_is_a_login(address: str) -> None:
    """Names may have one; and a container of Azure is before it."""
    with pytest.raises(ConfigurationError) as caught:
        frozen(address)
    assert ("must not have secrets" in str(caught.value)) == ("key=1" in address)


def without(name: str) -> list[dict[str, Any]]:
    """Records that lack a column."""
    return [{key: value for key, value in row.items() if key != name} for row in records("t", range(2))]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.rmdir, r"'history\.path': '.*' does not exist"),
        (lambda path: (path / "_SUCCESS").touch(), "has no files with data"),
        (lambda path: (write(path / "f.parquet", without("")), (path / "_delta_log").mkdir()), "is a Delta table"),
        (lambda path: (path / "f.parquet").write_text("not at all"), r"f\.parquet' cannot be read"),
        (
            lambda path: write(
                path / "f.parquet", [records("t", [5])[0] | {"offset": 1.5}], types={"offset": pa.float64()}
            ),
            r"f\.parquet' has the column 'offset' with the type double; expected a whole",
        ),
        (
            lambda path: (write(path / "f.parquet", without("")), write(path / "g.parquet", without("cluster"))),
            r"f\.parquet' has the column 'cluster', and '.*g\.parquet' does not",
        ),
    ],
    ids=["no path", "no data", "a Delta table", "no Parquet", "a type", "two kinds of files"],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], Any], said: str) -> None:
    """With the file, and what there is."""
    path = tmp_path / "h"
    path.mkdir()
    make(path)
    with pytest.raises((ConfigurationError, HistoryError), match=said):
        read(frozen(path))


@pytest.mark.parametrize("name", ["value", "topic", "partition", "offset"])
def test_a_column_that_is_missing(tmp_path: Path, name: str) -> None:
    """It is named, with the file and with what there is."""
    write(tmp_path / "f.parquet", without(name))
    with pytest.raises(ConfigurationError, match=rf"f\.parquet' has no column '{name}'; it has key"):
        frozen(tmp_path)


def test_files_may_lack_columns_that_were_added_later(tmp_path: Path) -> None:
    """Their rows have null there, and the column is named."""
    write(tmp_path / "f.parquet", without("key"))
    write(tmp_path / "g.parquet", records("t", range(2, 4)))
    found = frozen(tmp_path)
    assert [row["key"] for row in read(found)] == [None, None, b"k2", b"k3"]
    assert found.absent == ["headers", "key", "leader_epoch"]


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("topic=t/partition=__HIVE_DEFAULT_PARTITION__", "rows without 'partition'"),
        ("topic=__HIVE_DEFAULT_PARTITION__/partition=0", "rows without 'topic'"),
        ("topic=t/partition=many", "'many' for a partition"),
    ],
)
@pytest.mark.parametrize("name", ["f.parquet", "f.json"])
def test_folders_that_name_no_partition(tmp_path: Path, folder: str, message: str, name: str) -> None:
    """They do not say where Kafka goes on."""
    path = tmp_path / folder / name
    row = {"value": b"v", "offset": 3}
    if name == "f.parquet":
        write(path, [row])
    else:
        path.parent.mkdir(parents=True)
        write_as(path, [row])
    with pytest.raises(ConfigurationError, match=message):
        frozen(tmp_path, format=name[2:])


def test_rows_without_coordinates(tmp_path: Path) -> None:
    """They do not say where Kafka goes on."""
    rows = records("t", range(2))
    rows[1]["offset"] = None
    write(tmp_path / "f.parquet", rows)
    with pytest.raises(ConfigurationError, match="rows without 'offset'"):
        frozen(tmp_path)
    assert frozen(tmp_path, switch="starting-offsets").history.rows == 2


def changed(path: Path) -> None:
    """Other rows."""
    write(path, records("t", range(3)))


def rewritten(path: Path) -> None:
    """Other rows, with the same number of bytes."""
    size = path.stat().st_size
    write(path, [row | {"value": row["value"].upper()} for row in records("t", range(10))])
    assert path.stat().st_size == size
    os.utime(path, ns=(1, 1))


def damaged(path: Path) -> None:
    """Zeros, without another size or time."""
    data, stat = path.read_bytes(), path.stat()
    path.write_bytes(data[:4] + b"\0" * (len(data) - 8) + data[-4:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Path.unlink, "was deleted"),
        (changed, "was changed"),
        (rewritten, "was written again"),
        (damaged, "cannot be read"),
    ],
)
def test_a_file_that_is_not_the_same_any_more(
    tmp_path: Path, change: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that names it and says what to do; tolerated, its rows are given up and counted."""
    write(tmp_path / "a.parquet", records("t", range(10)))
    write(tmp_path / "b.parquet", records("t", range(10, 12)))
    found = frozen(tmp_path)
    change(tmp_path / "a.parquet")
    with pytest.raises(HistoryError, match=rf"a\.parquet' {message}.*put the file back"):
        read(found)
    given_up: list[int] = []
    assert offsets(read(found, fail_on_data_loss=False, give_up=given_up.append)) == [10, 11]
    assert given_up == [10]
    assert "10 of its rows are given up" in caplog.text


def test_a_file_that_was_restored_is_the_same(tmp_path: Path) -> None:
    """Its size and its footer say so, or all of it where there is no footer. Nobody can restore the time of a change."""
    for name in ("parquet", "csv", "json", "orc"):
        path = tmp_path / name / f"a.{name}"
        path.parent.mkdir()
        if name == "parquet":
            write(path, records("t", range(10)))
        else:
            write_as(path, [row | {"key": None} for row in records("t", range(10))])
        found = frozen(path.parent, format=name)
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(HistoryError, match="was deleted"):
            read(found)
        path.write_bytes(data)
        os.utime(path, ns=(1, 1))
        assert offsets(read(found)) == list(range(10))
        if name == "parquet":
            rewritten(path)
        else:
            path.write_bytes(data.replace(b"t-0-3", b"t-0-9"))
        with pytest.raises(HistoryError, match="was written again"):
            read(found)


def test_a_value_that_does_not_fit(tmp_path: Path) -> None:
    """Of a column with a type that does."""
    write(tmp_path / "f.parquet", [records("t", [1])[0] | {"partition": 2**40}], types={"partition": pa.int64()})
    with pytest.raises(HistoryError, match=r"f\.parquet' has a value that does not fit its column: .*1099511627776"):
        read(frozen(tmp_path, switch="starting-offsets"))


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """The rows that were returned are of a task that fails."""
    write(tmp_path / "a.parquet", records("t", range(50_000)), row_group_size=20_000)
    found = frozen(tmp_path)
    task = HistoryTask(found.history, list(pieces(found.history, 0, 50_000)))
    batches = read_history(task, SCHEMA, fail_on_data_loss=True)
    next(batches)
    os.utime(tmp_path / "a.parquet", ns=(1, 1))
    with pytest.raises(HistoryError, match="was written again"):
        list(batches)


_VALUES = {
    "offset": st.integers(-1, 60),
    "partition": st.integers(0, 1),
    "timestamp": st.integers(-1, 60).map(lambda ms: datetime.fromtimestamp(1_700_000_000 + ms / 1000, UTC)),
    "topic": st.sampled_from(["t", "u"]),
}


@given(st.data())
def test_row_groups_without_a_wanted_row_are_not_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """No wanted row is left out, wherever a task begins and ends, also if a column has nulls or is not in the file."""
    path = tmp_path_factory.mktemp("history")
    rows = records("t", data.draw(st.permutations(range(40)))) if data.draw(st.booleans()) else records("t", range(40))
    for row in rows[: data.draw(st.sampled_from([0, 3, 40]))]:
        row["timestamp"] = None
    write(path / "a.parquet", rows, row_group_size=data.draw(st.integers(3, 12)))
    found = frozen(path, switch="starting-offsets")
    comparison = st.sampled_from(sorted(_VALUES)).flatmap(
        lambda name: st.builds(
            Comparison,
            st.just((name,)),
            st.sampled_from(["=", "!=", "<", ">=", "is null", "is not null"]),
            _VALUES[name],
        )
    )
    wanted = [tuple(any_of) for any_of in data.draw(st.lists(st.lists(comparison, min_size=1, max_size=2), max_size=3))]
    start = data.draw(st.integers(0, 40))
    end = data.draw(st.integers(start, 40))
    truth = expression_of(wanted, SCHEMA)
    rows, fewer = (
        pa.Table.from_pylist(read(found, start, end, where=where), SCHEMA)
        for where in (None, partial(expression_of, wanted))
    )
    assert fewer == rows if truth is None else fewer.filter(truth) == rows.filter(truth)


def test_the_statistics_of_row_groups_say_what_is_left_out(tmp_path: Path) -> None:
    """Those of whole numbers and times, in a task for a part of a file; a text leaves out nothing."""
    write(tmp_path / "a.parquet", records("t", range(40)), row_group_size=10)
    found = frozen(tmp_path)

    def of(sign: str, value: Any, column: str = "offset") -> list[int]:
        where = partial(expression_of, [(Comparison((column,), sign, value),)])
        return offsets(read(found, 5, 35, where=where))

    assert of("<", 12) == list(range(5, 20))
    assert of("in", (7, 32)) == [*range(5, 10), *range(30, 35)]
    assert of(">=", datetime.fromtimestamp(1_700_000_000.03, UTC), "timestamp") == list(range(30, 35))
    assert of("is null", None) == []
    assert of("=", "u", "topic") == list(range(5, 35))


def test_a_nan_that_statistics_do_not_show_is_read(tmp_path: Path) -> None:
    """It is another number than all others."""
    write(tmp_path / "a.parquet", [{"d": 1.5}, {"d": math.nan}], types={"d": pa.float64()})
    row = pa.struct([("d", pa.float64())])
    found = frozen(tmp_path, row=row, switch="starting-offsets")
    where = partial(expression_of, [(Comparison(("d",), "!=", 1.5),)])
    assert len(read(found, schema=pa.schema([(HISTORY_ROW, row)]), where=where)) == 2


def test_tables_of_pandas_are_read(tmp_path: Path) -> None:
    """Their metadata does not matter."""
    path = write(tmp_path / "f.parquet", records("t", range(3)))
    pq.write_table(pa.Table.from_pandas(pq.read_table(path).to_pandas()), path)
    assert offsets(read(frozen(tmp_path))) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_file_with_other_bytes_is_read_or_named(tmp_path: Path, kind: str) -> None:
    """Whatever pyarrow raises about damage becomes an error of this package, with the file.

    The footers of Parquet are not damaged here: pyarrow ends the process for some of them.
    """
    rows = pq.read_table(write(tmp_path / "whole.parquet", records("t", range(200)), row_group_size=50))
    file = tmp_path / "damaged" / f"a.{kind}"
    file.parent.mkdir()
    if kind == "parquet":
        pq.write_table(rows, file, row_group_size=50)
    else:
        pyarrow.orc.write_table(rows, str(file))
    whole = file.read_bytes()
    last = len(whole) - (8 + int.from_bytes(whole[-8:-4], "little") if kind == "parquet" else 0)
    chosen, errors = random.Random(7), []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chosen.choice([1, 2, 8])):
            data[chosen.randrange(last)] = chosen.randrange(256)
        file.write_bytes(data[: chosen.randrange(len(data))] if chosen.random() < 0.1 else data)
        errors += error_of(file)
    if kind == "orc":
        postscript = whole[-1 - whole[-1] :]
        assert b"\x10\x00" in postscript, "it is not compressed"
        file.write_bytes(whole[: -len(postscript)] + postscript.replace(b"\x10\x00", b"\x10\x01"))
        assert error_of(file), "for pyarrow this is an 'unknown error' of no class of its own"
    assert errors
    assert all(f"a.{kind}" in error for error in errors)


def error_of(file: Path) -> list[str]:
    """The error about a file, if there is one."""
    try:
        found = frozen(file.parent, format=file.suffix[1:]).history
        list(read_history(HistoryTask(found, list(pieces(found, 0, found.rows))), SCHEMA, fail_on_data_loss=True))
    except (ConfigurationError, HistoryError) as error:
        return [str(error)]
    return []


def test_a_tables_own_column_cluster_stays_as_it_is() -> None:
    """Only rows of records get the name of the cluster that is read."""
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["eu", None])], ["id", "cluster"])
    row = pa.struct([("id", pa.int64()), ("cluster", pa.string()), ("absent", pa.string())])
    found = _of_table(batch, pa.schema([("value", pa.binary()), (HISTORY_ROW, row)]), {})
    assert [r[HISTORY_ROW]["cluster"] for r in found.to_pylist()] == ["eu", None]
