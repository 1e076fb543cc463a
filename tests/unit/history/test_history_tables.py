"""Histories of Delta tables, Iceberg tables and archives: a version is frozen; what its files do not say is refused."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.histories import records
from tests.unit.history.test_archive import Folder, key, rows
from tests.unit.history.test_history_files import frozen, offsets, read

from dynamic_kafka import archive
from dynamic_kafka.cli.positions import positions
from dynamic_kafka.errors import ArchiveError, CheckpointError, ConfigurationError, HistoryError
from dynamic_kafka.history.coverage import Offsets, gaps_between
from dynamic_kafka.history.model import FrozenHistory, HistoryFile
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.rows import COLUMNS
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.document.document import HistoryStage, RetainedTopic
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, decode, encode
from dynamic_kafka.source.document.promise import Promise
from dynamic_kafka.source.document.recorded import Recorded, recorded_offsets

deltalake = pytest.importorskip("deltalake")
pyiceberg_catalog = pytest.importorskip("pyiceberg.catalog")

NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "cluster")


def table(topic: str, wanted: range, **more: Any) -> pa.Table:
    """Records as a table."""
    return pa.Table.from_pylist(records(topic, wanted, **more), pa.schema([(name, COLUMNS[name]) for name in NAMES]))


# --- Delta ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """A Delta table with three versions, partitioned by a topic whose name is not one for files."""
    path = tmp_path / "delta"
    for wanted in (range(10), range(10, 15), range(15, 20)):
        deltalake.write_deltalake(path, table("a b%/ü", wanted), partition_by=["topic"], mode="append")
    return path


def test_the_newest_version_of_a_delta_table_is_frozen(delta: Path) -> None:
    """Columns of its partitions are those of the rows; versions that follow are not read."""
    found = frozen(delta, format="delta")
    deltalake.write_deltalake(delta, table("a b%/ü", range(20, 30)), partition_by=["topic"], mode="append")
    assert sorted(offsets(read(found))) == list(range(20))
    assert {row["topic"] for row in read(found)} == {"a b%/ü"}
    assert dict(found.largest) == {("kafka", "a b%/ü", 0): 19}
    assert found.history.evidence == "version 2 of the Delta table"


def test_an_earlier_version_is_read_until_it_is_vacuumed(delta: Path) -> None:
    """Then the error names the file, also in a query that has begun with it."""
    first = frozen(delta, format="delta", version=0)
    deltalake.DeltaTable(delta).optimize.compact()
    assert sorted(offsets(read(first))) == list(range(10))
    assert sorted(offsets(read(frozen(delta, format="delta")))) == list(range(20))
    deltalake.DeltaTable(delta).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(HistoryError, match=r"delta/topic=.*parquet' was deleted"):
        read(first)
    with pytest.raises(HistoryError, match="was deleted"):
        frozen(delta, format="delta", version=0)


def test_what_is_no_delta_table_or_version_is_said(delta: Path, tmp_path: Path) -> None:
    """And an empty table, and a Delta table that is read as files."""
    with pytest.raises(ConfigurationError, match=r"version 9 of the Delta table .* cannot be read"):
        frozen(delta, format="delta", version=9)
    with pytest.raises(ConfigurationError, match="is no Delta table"):
        frozen(tmp_path / "none", format="delta")
    deltalake.DeltaTable(delta).delete()
    with pytest.raises(ConfigurationError, match=r"version 3 of the Delta table .* has no rows"):
        frozen(delta, format="delta")
    with pytest.raises(ConfigurationError, match="is a Delta table"):
        frozen(delta)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"configuration": {"delta.columnMapping.mode": "name"}}, "column mapping", id="column mapping"),
        pytest.param({"deleted": True}, "deletion vectors", id="deletion vectors"),
    ],
)
def test_rows_that_files_alone_do_not_tell_are_refused(delta: Path, change: dict[str, Any], error: str) -> None:
    """Deleted rows are still in files, and columns have other names there. No library for Python writes such a log."""
    log = delta / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{2:020}.json").read_text().splitlines()]
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {name: ["deletionVectors", "columnMapping"] for name in ("readerFeatures", "writerFeatures")}
    (metadata,) = (line["metaData"] for line in first if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    if "configuration" in change:
        for i, field in enumerate(schema["fields"]):
            field["metadata"] = {
                "delta.columnMapping.id": i + 1,
                "delta.columnMapping.physicalName": field["name"],
            }
    changed = {**metadata, "schemaString": json.dumps(schema), "configuration": change.get("configuration", {})}
    (added,) = (line["add"] for line in lines if "add" in line)
    # An inline vector as Spark writes it: a roaring bitmap of row 0, in Delta's portable format and base85.
    vector = {"storageType": "i", "pathOrInlineDv": _inline_vector(0), "sizeInBytes": 34, "cardinality": 1}
    actions = [{"protocol": {**protocol, **features}}, {"metaData": changed}]
    if "deleted" in change:
        removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
        actions += [{"remove": removed}, {"add": {**added, "deletionVector": vector}}]
    (log / f"{3:020}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(ConfigurationError, match=error):
        frozen(delta, format="delta")
    assert frozen(delta, format="delta", version=2).history.rows == 20


def _inline_vector(row: int) -> str:
    """A deletion vector of one row, as text."""
    bitmap = (12346).to_bytes(4, "little") + (1).to_bytes(4, "little")  # a container, no runs
    bitmap += (
        (0).to_bytes(2, "little") + (0).to_bytes(2, "little") + (16).to_bytes(4, "little") + row.to_bytes(2, "little")
    )
    data = (1681511377).to_bytes(4, "little") + (1).to_bytes(8, "little") + (0).to_bytes(4, "little") + bitmap
    return _z85(data + bytes(-len(data) % 4))


def _z85(data: bytes) -> str:
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for i in range(0, len(data), 4):
        number = int.from_bytes(data[i : i + 4], "big")
        text += "".join(alphabet[number // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return text


# --- Iceberg --------------------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A catalog of SQLite, which pyiceberg finds by its environment."""
    from pyiceberg.utils.config import Config

    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LOCAL__{name.upper()}", value)
    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())  # it is read when the module is imported
    found = pyiceberg_catalog.load_catalog("local")
    found.create_namespace("db")
    yield found
    found.close()


def iceberg(catalog: Any) -> Any:
    """A table with two snapshots."""
    first = table("t", range(10))
    found = catalog.create_table("db.t", schema=first.schema)
    found.append(first)
    found.append(table("t", range(10, 20)))
    return found


def test_a_snapshot_of_an_iceberg_table_is_frozen(catalog: Any) -> None:
    """By the catalog's name, or by the address of its metadata."""
    made = iceberg(catalog)
    first = made.snapshots()[0].snapshot_id
    found = frozen("local.db.t", format="iceberg")
    made.append(table("t", range(20, 30)))
    assert sorted(offsets(read(found))) == list(range(20))
    assert dict(found.largest) == {("kafka", "t", 0): 19}
    assert found.history.evidence == f"snapshot {made.snapshots()[1].snapshot_id} of the Iceberg table"
    assert offsets(read(frozen("local.db.t", format="iceberg", version=first))) == list(range(10))
    assert frozen(made.metadata_location, format="iceberg").history.rows == 30


def test_what_is_no_iceberg_table_or_snapshot_is_said(catalog: Any, tmp_path: Path) -> None:
    """And a table without rows."""
    made = iceberg(catalog)
    with pytest.raises(ConfigurationError, match="has no snapshot 7; was it expired"):
        frozen("local.db.t", format="iceberg", version=7)
    with pytest.raises(ConfigurationError, match=r"'local\.db\.x' cannot be read: Table does not exist"):
        frozen("local.db.x", format="iceberg")
    with pytest.raises(ConfigurationError, match=r"'other\.db\.x' cannot be read.*expected|Expected"):
        frozen("other.db.x", format="iceberg")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        frozen(tmp_path / "none.metadata.json", format="iceberg")
    catalog.create_table("db.empty", schema=made.schema())
    with pytest.raises(ConfigurationError, match="has no snapshot, so it has no rows"):
        frozen("local.db.empty", format="iceberg")


def test_an_iceberg_table_with_renamed_columns_is_refused(catalog: Any) -> None:
    """Its older files have the old name."""
    with iceberg(catalog).update_schema() as update:
        update.rename_column("value", "payload")
    with pytest.raises(ConfigurationError, match=r"columns that were renamed or added anew \(payload, value\)"):
        frozen("local.db.t", format="iceberg")


def test_an_iceberg_table_with_delete_files_is_refused(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyiceberg writes none, so one is put into what it plans."""
    from pyiceberg.table import DataScan

    iceberg(catalog)
    plan = DataScan.plan_files

    def with_deletes(scan: DataScan) -> list[Any]:
        tasks = list(plan(scan))
        tasks[0].delete_files.add(tasks[1].file)
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    with pytest.raises(ConfigurationError, match="has delete files"):
        frozen("local.db.t", format="iceberg")


# --- archives -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An archive of two days, with a marker at the end of partition 0, and a file that no batch names."""
    made = Folder(tmp_path / "archive")
    made.write({0: (0, 10), 1: (5, 5)}, [rows(0, range(9))])
    made.write({0: (10, 20)}, [rows(0, range(10, 19), day=1)])
    stray = Path(made.path, "day=2013-01-01", "stray.parquet")
    stray.write_bytes(Path(archive.files(made.path)[0]).read_bytes())
    return made


def test_an_archive_is_a_history_that_says_where_kafka_goes_on(folder: Folder) -> None:
    """Behind markers, too, and where nothing was read yet. Files that are not in its log are not read."""
    found = frozen(folder.path)
    assert offsets(read(found)) == [*range(9), *range(10, 19)]
    assert dict(found.largest) == {("eu", "orders", 0): 19, ("eu", "orders", 1): 4}
    assert dict(found.clusters) == {"eu": {"id": "id-eu", "topics": {"orders": "topic-id"}}}
    assert found.history.evidence == "an archive of 2 files"
    assert not frozen(folder.path, switch="starting-offsets").largest


def test_a_compaction_does_not_disturb_a_history_that_has_begun(folder: Folder) -> None:
    """The files that it began with stay for a week."""
    folder.write({0: (20, 30)}, [rows(0, range(20, 30), day=1)])
    found = frozen(folder.path)
    assert archive.compact(folder.path).days == {"2013-01-02": 2}
    assert len(offsets(read(found))) == 28
    again = frozen(folder.path)
    assert sorted(offsets(read(again))) == sorted(offsets(read(found)))
    assert dict(again.largest) == dict(found.largest)
    archive.compact(folder.path, keep=dt.timedelta(0))
    with pytest.raises(HistoryError, match="was deleted"):
        read(found)


def test_an_archive_with_other_records_than_its_log_says_is_refused(folder: Folder) -> None:
    """Nobody knows which of its offsets are missing then."""
    record = Path(folder.path, "_dynamic_kafka", "batches", "query-1.json")
    record.write_text(record.read_text().replace("[0,0,10,9]", "[0,0,10,8]"))
    with pytest.raises(
        ArchiveError, match="18 records of cluster 'eu', topic 'orders', partition 0, but 17 in its log"
    ):
        frozen(folder.path)


def test_what_an_archive_lacks_is_said(folder: Folder, tmp_path: Path) -> None:
    """Offsets that no batch has read, no records, two topics with one name, and a damaged log."""
    folder.write({0: (25, 30)}, [rows(0, range(25, 30))])
    found = frozen(folder.path)
    assert found.history.evidence == "an archive of 3 files"
    assert found.archived is not None
    assert gaps_between(found.archived.spans["eu", "orders", 0]) == [Offsets(20, 25, 5)]
    empty = Folder(tmp_path / "empty")
    empty.write({0: (3, 3)})
    with pytest.raises(ConfigurationError, match="has no records yet"):
        frozen(empty.path)
    plan = folder.plan({0: (key(topic_id="another"), 3, 3)})
    from dynamic_kafka.files import open_files
    from dynamic_kafka.history.archive import log
    from dynamic_kafka.history.archive.plan import batch_of

    assert log.create_record(open_files(folder.path), folder.query, plan.record, batch_of(plan, ()))
    with pytest.raises(ConfigurationError, match="records of two topics 'orders'"):
        frozen(folder.path)
    assert frozen(folder.path, switch="starting-offsets").history.rows == 23
    Path(folder.path, "_dynamic_kafka", "batches", "query-1.json").write_text("{}")
    with pytest.raises(ArchiveError, match="is damaged"):
        frozen(folder.path)


# --- the switch by a checkpoint -------------------------------------------------------------------------------------


def write_checkpoint(path: Path, *offsets_: Any, finished: int) -> str:
    """A checkpoint with these offsets of one source."""
    for number, value in enumerate(offsets_):
        file = path / "offsets" / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["v1", "{}", json.dumps(value)]))
    for number in range(finished):
        file = path / "commits" / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("v1\n{}")
    return str(path)


def document(end: int) -> dict[str, Any]:
    """The offset document of a batch that ends at an offset."""
    tp = KafkaTopicPartition("t", 0)
    return encode(Document(clusters={"eu": ClusterOffsets("id-eu", topics={"t": "tid"}, ranges={tp: (0, end)})}))


def test_a_checkpoint_says_where_its_query_ended(tmp_path: Path) -> None:
    """Of this source with ids, of Spark's own without."""
    ours = write_checkpoint(tmp_path / "ours", document(5), document(9), finished=2)
    assert recorded_offsets(ours) == Recorded(1, {("eu", "t", 0): 8}, {"eu": {"id": "id-eu", "topics": {"t": "tid"}}})
    spark = write_checkpoint(tmp_path / "spark", {"t": {"0": 23, "1": 0}}, finished=1)
    assert recorded_offsets(spark) == Recorded(0, {("", "t", 0): 22, ("", "t", 1): -1}, {})


@given(
    read=st.dictionaries(st.tuples(st.sampled_from("tu"), st.integers(0, 2)), st.integers(0, 99), max_size=4),
    kept=st.dictionaries(st.sampled_from("tuv"), st.dictionaries(st.integers(0, 2), st.integers(0, 99), min_size=1)),
)
def test_all_positions_of_a_checkpoint_are_those_of_its_history(
    read: dict[tuple[str, int], int], kept: dict[str, dict[int, int]]
) -> None:
    """Also those of topics that the query does not read any more: its table has their rows."""
    cluster = ClusterOffsets("id-eu", topics={topic: f"{topic}-id" for topic, _ in read})
    cluster.ranges = {KafkaTopicPartition(*tp): (0, end) for tp, end in read.items()}
    cluster.retained = {topic: RetainedTopic(f"{topic}-id", 1, dict(ends)) for topic, ends in kept.items()}
    value = Document(streams={"s": {"eu": frozenset("tuv")}}, clusters={"eu": cluster})
    known = {tuple(at): said.offset for at, said in positions(value, unfinished=False).items()}
    with TemporaryDirectory() as folder:
        path = write_checkpoint(Path(folder), encode(value), finished=1)
        if not known:
            with pytest.raises(CheckpointError, match="has not read anything yet"):
                recorded_offsets(path)
            return
        found = recorded_offsets(path)
    assert {place: last + 1 for place, last in found.largest.items()} == known
    assert found.clusters["eu"]["topics"] == {topic: f"{topic}-id" for _, topic, _ in known}


def test_a_query_that_has_just_read_its_history_has_written_all(tmp_path: Path) -> None:
    """It has no batch of Kafka yet, but its positions."""
    file = HistoryFile("f.parquet", 1, 1, 1, (4,))
    history = FrozenHistory("/h", "parquet", "1 file", 4, (file,))
    for end, name in ((4, "all"), (3, "some")):
        value = decode(document(5))
        value.history = HistoryStage(history, Promise("said"), (0, end))
        path = write_checkpoint(tmp_path / name, encode(value), finished=1)
        if end == 4:
            assert dict(recorded_offsets(path).largest) == {("eu", "t", 0): 4}
        else:
            with pytest.raises(ConfigurationError, match="still reads its own history"):
                recorded_offsets(path)


def test_a_checkpoint_that_does_not_tell_is_refused(tmp_path: Path) -> None:
    """Its last batch may be in the table or not; or it is none."""
    with pytest.raises(ConfigurationError, match=r"batch 1 in .* is not finished"):
        recorded_offsets(write_checkpoint(tmp_path / "running", document(5), document(9), finished=1))
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        recorded_offsets(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"history.switch": "checkpoint"}, "'history.switch.checkpoint' is missing"),
        ({"history.switch.checkpoint": "c"}, "needs 'history.switch' = 'checkpoint'"),
        ({"history.version": "3"}, "only tables have versions"),
        ({"history.format": "delta", "history.version": "new"}, "whole number"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], error: str) -> None:
    """They would have no effect, or do not say enough."""
    common = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "history.path": "p"}
    with pytest.raises(ConfigurationError, match=error):
        configure_source({**common, **options})
