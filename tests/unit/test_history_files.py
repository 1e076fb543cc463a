"""Freezing histories of Parquet files, and reading them; what is wrong with them is said with the file and the column."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.histories import records, write

from dynamic_kafka.errors import ConfigurationError, HistoryError
from dynamic_kafka.history.columns import RECORD
from dynamic_kafka.history.formats import Frozen, freeze
from dynamic_kafka.history.model import HistoryTask, TimeLimit, pieces
from dynamic_kafka.history.reader import read_history
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.source.rows import COLUMNS, arrow_schema

SCHEMA = arrow_schema(COLUMNS)


def frozen(path: Path | str, **changes: Any) -> Frozen:
    """Freeze a folder."""
    settings = HistorySettings(str(path), "parquet", "coordinates", None, "", tuple(COLUMNS))
    return freeze(settings._replace(**changes))


def read(
    found: Frozen, start: int = 0, end: int | None = None, schema: pa.Schema = SCHEMA, **how: Any
) -> list[dict[str, Any]]:
    """Rows of a history, in order."""
    history = found.history
    task = HistoryTask(history, list(pieces(history, start, history.rows if end is None else end)))
    batches = read_history(task, schema, **{"fail_on_data_loss": True, **how})
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    """Their offsets."""
    return [row["offset"] for row in rows]


def test_the_columns_are_those_of_the_source() -> None:
    """They are declared twice, because a history knows nothing of the source."""
    assert dict(RECORD) == dict(COLUMNS)


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
    assert found.absent == ["key", "timestampType", "cluster", "headers", "leader_epoch"]


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
    """Of their earliest times, by the statistics."""
    for name, first in (("a", 500), ("b", 100), ("c", 300)):
        write(tmp_path / f"{name}.parquet", records("t", range(first, first + 3)))
    assert offsets(read(frozen(tmp_path, time_column="timestamp")))[::3] == [100, 300, 500]
    write(tmp_path / "d.parquet", records("t", [1]), write_statistics=False)
    with pytest.raises(ConfigurationError, match=r"d\.parquet have no statistics of the column 'timestamp'"):
        frozen(tmp_path, time_column="timestamp")


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


# --- bad input ----------------------------------------------------------------------------------------------------------


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    """Nothing is a history."""
    with pytest.raises(ConfigurationError, match=r"'history\.path': '.*nowhere' does not exist"):
        frozen(tmp_path / "nowhere")


def test_a_folder_without_data(tmp_path: Path) -> None:
    """Probably a wrong path."""
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(ConfigurationError, match="has no files with data"):
        frozen(tmp_path)


def test_a_delta_table_is_not_read_as_files(tmp_path: Path) -> None:
    """Some of its files may be removed from the table."""
    write(tmp_path / "f.parquet", records("t", range(3)))
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(ConfigurationError, match="is a Delta table"):
        frozen(tmp_path)


def without(name: str) -> list[dict[str, Any]]:
    """Records that lack a column."""
    return [{key: value for key, value in row.items() if key != name} for row in records("t", range(2))]


@pytest.mark.parametrize("name", ["value", "topic", "partition", "offset"])
def test_a_column_that_is_missing(tmp_path: Path, name: str) -> None:
    """It is named, with the file and with what there is."""
    write(tmp_path / "f.parquet", without(name))
    with pytest.raises(ConfigurationError, match=rf"f\.parquet' has no column '{name}'; it has key"):
        frozen(tmp_path)


def test_a_column_of_another_type(tmp_path: Path) -> None:
    """It is named with its type."""
    row = records("t", [5])[0]
    write(tmp_path / "f.parquet", [row | {"offset": 1.5}], types={"offset": pa.float64()})
    with pytest.raises(
        ConfigurationError, match=r"f\.parquet' has the column 'offset' with the type double; expected a whole"
    ):
        frozen(tmp_path)


def test_files_with_different_columns(tmp_path: Path) -> None:
    """Null in half of the rows would be a surprise."""
    write(tmp_path / "f.parquet", records("t", range(2)))
    write(tmp_path / "g.parquet", without("key"))
    with pytest.raises(ConfigurationError, match=r"f\.parquet' has the column 'key', and '.*g\.parquet' does not"):
        frozen(tmp_path)


def test_rows_without_coordinates(tmp_path: Path) -> None:
    """They do not say where Kafka goes on."""
    rows = records("t", range(2))
    rows[1]["offset"] = None
    write(tmp_path / "f.parquet", rows)
    with pytest.raises(ConfigurationError, match="rows without 'offset'"):
        frozen(tmp_path)
    assert frozen(tmp_path, switch="starting-offsets").history.rows == 2


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    """It is named."""
    (tmp_path / "f.parquet").write_text("not at all")
    with pytest.raises(HistoryError, match=r"f\.parquet' cannot be read"):
        frozen(tmp_path)


def changed(path: Path) -> None:
    """Other rows."""
    write(path, records("t", range(3)))


def rewritten(path: Path) -> None:
    """The same bytes, at another time."""
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


def test_tables_of_pandas_are_read(tmp_path: Path) -> None:
    """Their metadata does not matter."""
    path = write(tmp_path / "f.parquet", records("t", range(3)))
    pq.write_table(pa.Table.from_pandas(pq.read_table(path).to_pandas()), path)
    assert offsets(read(frozen(tmp_path))) == [0, 1, 2]
