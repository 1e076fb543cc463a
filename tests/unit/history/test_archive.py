"""Archives: what a batch and a compaction do to the files, after every crash."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.history.test_history_files import frozen, read

from dynamic_kafka import archive
from dynamic_kafka.cli.main import main
from dynamic_kafka.errors import ArchiveError, HistoryError
from dynamic_kafka.files import Files, open_files
from dynamic_kafka.history.archive import log
from dynamic_kafka.history.archive.data import FileWriter, _Hashing, write_parts
from dynamic_kafka.history.archive.model import (
    Archive,
    Batch,
    DataFile,
    PartitionKey,
    Span,
    decode_batch,
    decode_state,
    encode_batch,
    encode_state,
    joined,
    missing,
)
from dynamic_kafka.history.archive.plan import Plan, batch_of, decode_plan, encode_plan, plan_batch
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, encode
from dynamic_kafka.spark.archive_writer import ArchiveWriter

DAY_US = 86_400_000_000
FIRST_DAY = dt.date(2013, 1, 1)
START_US = 15_706 * DAY_US  # 2013-01-01
KEEP = dt.timedelta(days=7)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="Europe/Berlin")),
        ("cluster", pa.string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def key(partition: int = 0, topic: str = "orders", topic_id: str = "topic-id") -> PartitionKey:
    """A partition of the cluster `id-eu`."""
    return PartitionKey("id-eu", topic, topic_id, partition)


def rows(partition: int, offsets: Sequence[int], day: int | None = 0) -> pa.RecordBatch:
    """Records of a partition of the cluster `eu` on a day, counted from 2013-01-01."""
    count = len(offsets)
    time = None if day is None else START_US + day * DAY_US
    return pa.RecordBatch.from_pydict(
        {
            "key": [None] * count,
            "value": [b"%d-%d" % (partition, offset) for offset in offsets],
            "topic": ["orders"] * count,
            "partition": [partition] * count,
            "offset": list(offsets),
            "timestamp": [time] * count,
            "cluster": ["eu"] * count,
            "headers": [[{"key": "h", "value": b"1"}]] * count,
        },
        schema=SCHEMA,
    )


class Folder:
    """An archive whose batches are written as tasks and driver do it, but without Spark."""

    def __init__(self, path: Path | str, query: str = "query", cluster: tuple[str, str] = ("id-eu", "eu")) -> None:
        self.path, self.query, self.cluster = str(path), query, cluster

    def write(self, ranges: Mapping[int, tuple[int, int]], *tasks: Sequence[pa.RecordBatch]) -> None:
        """Write a batch: the range of each partition, and the rows of its tasks."""
        plan = self.plan({p: (key(p), *range_) for p, range_ in ranges.items()})
        if plan.parts or plan.idle:
            batch = batch_of(plan, [write_parts(decode_plan(encode_plan(plan)), task) for task in tasks])
            assert log.create_record(open_files(self.path, ArchiveError), self.query, plan.record, batch)

    def plan(self, ranges: Mapping[int, tuple[PartitionKey, int, int]]) -> Plan:
        """How a batch is archived that reads these ranges of partitions of the cluster."""
        state = log.read_archive(self.path) or Archive()
        return plan_batch(
            state,
            {(self.cluster[1], found[0].topic, p): found for p, found in ranges.items()},
            dict([self.cluster]),
            location=self.path,
            query=self.query,
            batch=state.batches.get(self.query, 0),
        )

    def state(self) -> Archive:
        """The state of the archive."""
        found = log.read_archive(self.path)
        assert found is not None
        return found

    def records(self) -> list[tuple[int, int, bytes]]:
        """Partition, offset and value of all records, sorted."""
        where = open_files(self.path, ArchiveError)
        tables = [
            pq.read_table(where.full(path), filesystem=where.file_system, partitioning=None)
            for path in self.state().files
        ]
        if not tables:
            return []
        table = pa.concat_tables(tables)
        return sorted(zip(*(table[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))

    def files(self) -> set[str]:
        """All files with records, also those that the log does not name."""
        return {path for path in open_files(self.path, ArchiveError).walk() if path.startswith("day=")}

    def compact(self, **more: Any) -> archive.Compacted:
        """Compact it."""
        return archive.compact(self.path, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An archive without a batch."""
    return Folder(tmp_path / "archive")


def expected(*parts: tuple[int, Sequence[int]]) -> list[tuple[int, int, bytes]]:
    """What `Folder.records` returns for these offsets of partitions."""
    return sorted((p, offset, b"%d-%d" % (p, offset)) for p, offsets in parts for offset in offsets)


# --- batches --------------------------------------------------------------------------------------------------------


def test_rows_are_in_the_folder_of_their_day_with_all_coordinates(folder: Folder) -> None:
    """The day is that of the timestamp in UTC; cluster.id and topic id are columns."""
    folder.write({0: (0, 4), 1: (5, 6)}, [rows(0, [0, 1]), rows(0, [2, 3], day=1)], [rows(1, [5], day=None)])
    state = folder.state()
    assert sorted((file.day, file.rows) for file in state.files.values()) == [
        ("", 1),
        ("2013-01-01", 2),
        ("2013-01-02", 2),
    ]
    assert {path.split("/")[0] for path in state.files} == {
        "day=2013-01-01",
        "day=2013-01-02",
        "day=__HIVE_DEFAULT_PARTITION__",
    }
    assert folder.records() == expected((0, range(4)), (1, [5]))
    found = ds.dataset(folder.path, partitioning="hive", exclude_invalid_files=False).to_table().to_pylist()
    assert {(row["cluster"], row["cluster_id"], row["topic_id"]) for row in found} == {("eu", "id-eu", "topic-id")}
    assert found[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert state.positions() == {key(0): 4, key(1): 6}
    assert state.names == {"id-eu": "eu"}


def test_another_query_adds_only_what_is_missing(folder: Folder, tmp_path: Path) -> None:
    """A new checkpoint that begins at the earliest offset."""
    folder.write({0: (2, 4)}, [rows(0, [2, 3])])
    Folder(tmp_path / "archive", "other").write({0: (0, 6)}, [rows(0, [0, 1, 2, 3, 4, 5])])
    assert folder.records() == expected((0, range(6)))
    assert folder.state().spans == {key(): [Span(0, 6, 6)]}


def test_a_crash_before_the_record_leaves_no_rows(folder: Folder) -> None:
    """The files are there, but the log does not name them; the repeated batch writes its own."""
    folder.write({0: (0, 2)}, [rows(0, [0, 1])])
    write_parts(folder.plan({0: (key(), 2, 4)}), [rows(0, [2, 3])])
    assert folder.records() == expected((0, [0, 1]))
    found = archive.verify(folder.path)
    assert found.is_sound
    assert len(found.unknown_files) == 1
    folder.write({0: (2, 4)}, [rows(0, [2, 3])])
    assert folder.records() == expected((0, range(4)))


def test_gaps_between_batches_are_said_and_those_within_are_counted(folder: Folder) -> None:
    """What no batch has read is certain. Why an offset that was read has no record is not known."""
    folder.write({0: (0, 10)}, [rows(0, [0, 1, 5])])
    folder.write({0: (20, 22)}, [rows(0, [20])])
    (report,) = archive.verify(folder.path).partitions
    assert (report.cluster, report.first, report.position, report.records) == ("eu", 0, 22, 4)
    assert report.unread == ((10, 20),)
    assert report.without_record == 8


def test_a_recreated_topic_is_another_topic(folder: Folder) -> None:
    """Its offsets begin anew, and both are kept."""
    folder.write({0: (0, 2)}, [rows(0, [0, 1])])
    again = key(topic_id="another")
    plan = folder.plan({0: (again, 0, 1)})
    batch = batch_of(plan, [write_parts(plan, [rows(0, [0])])])
    assert log.create_record(open_files(folder.path, ArchiveError), "query", 2, batch)
    assert folder.state().positions() == {key(): 2, again: 1}
    folder.compact()
    assert archive.verify(folder.path).is_sound


@pytest.mark.parametrize(
    ("tasks", "error"),
    [
        pytest.param([[rows(0, [0, 9])]], "none that this batch reads", id="an offset behind the range"),
        pytest.param([[rows(1, [0])]], "none that this batch reads", id="another partition"),
        pytest.param([[rows(0, [1, 1])]], "not in order, or come twice", id="a row twice"),
        pytest.param(
            [[rows(0, [1, 2]), rows(0, [2])]], "not in order, or come twice", id="a row twice, in two batches"
        ),
        pytest.param([[rows(0, [2, 1])]], "not in order, or come twice", id="another order"),
        pytest.param(
            [[rows(0, [0, 1, 2])], [rows(0, [1, 3])]], "Two tasks have offsets 1 to 2", id="doubled by a shuffle"
        ),
    ],
)
def test_rows_that_are_not_those_of_the_source_are_refused(
    folder: Folder, tasks: list[list[pa.RecordBatch]], error: str
) -> None:
    """No batch is written then."""
    with pytest.raises(ArchiveError, match=error):
        folder.write({0: (0, 4)}, *tasks)
    assert log.read_archive(folder.path) is None
    assert not folder.files() or len(tasks) > 1


def test_large_batches_are_written_in_groups(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and each day still is one file."""
    monkeypatch.setattr("dynamic_kafka.history.archive.data._BUFFERED_BYTES", 500)
    folder.write({0: (0, 40)}, [rows(0, [i, i + 1], day=i // 2 % 2) for i in range(0, 40, 2)])
    assert folder.records() == expected((0, range(40)))
    groups = [pq.ParquetFile(path).num_row_groups for path in archive.files(folder.path)]
    assert len(groups) == 2
    assert min(groups) > 1


def test_many_days_need_few_open_files(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have only so many. What a task has finished is deleted, too, if it fails."""
    monkeypatch.setattr("dynamic_kafka.history.archive.data._OPEN_FILES", 3)
    begin, others = FileWriter.__init__, []

    def counted(self: FileWriter, *args: Any) -> None:
        others.append(len(list(Path(folder.path).rglob(".batch-*"))))
        begin(self, *args)

    monkeypatch.setattr(FileWriter, "__init__", counted)
    days = [*range(8), 0, 1]
    folder.write({0: (0, 10)}, [rows(0, [i], day=day) for i, day in enumerate(days)])
    monkeypatch.setattr("dynamic_kafka.history.archive.data._BUFFERED_BYTES", 1)
    folder.write({0: (10, 20)}, [rows(0, [10 + i], day=day) for i, day in enumerate(days)])
    assert folder.records() == expected((0, range(20)))
    assert [sum(name.startswith(f"day=2013-01-0{day}") for name in folder.files()) for day in (1, 2, 3)] == [3, 3, 2]
    assert max(others) == 2
    before = folder.files()
    with pytest.raises(ArchiveError, match="none that this batch reads"):
        folder.write({0: (20, 30)}, [*(rows(0, [20 + i], day=day) for i, day in enumerate(days)), rows(1, [0])])
    assert folder.files() == before
    folder.compact()
    assert archive.verify(folder.path).is_sound


def test_a_record_of_the_log_that_is_missing_or_damaged_is_an_error(folder: Folder) -> None:
    """It names the file. An archive without a part would be a silent loss."""
    for start in (0, 1, 2):
        folder.write({0: (start, start + 1)}, [rows(0, [start])])
    records = Path(folder.path, "_dynamic_kafka", "batches")
    text = (records / "query-2.json").read_text()
    (records / "query-2.json").write_text(text[:-9])
    with pytest.raises(
        ArchiveError, match=r"batches/query-2\.json is damaged .* or delete it if its query was stopped"
    ):
        folder.state()
    (records / "query-2.json").write_text("[" * 100_000)
    with pytest.raises(ArchiveError, match=r"batches/query-2\.json is damaged \(RecursionError"):
        folder.state()
    (records / "query-2.json").unlink()
    with pytest.raises(ArchiveError, match=r"batches/query-2\.json is missing"):
        folder.state()
    (records / "query-2.json").write_text(text.replace('"version":1', '"version":2'))
    with pytest.raises(ArchiveError, match="has version 2"):
        folder.state()


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a file system that shows a file before it is complete, and renames with two arguments, as that of sftp."""
    local = pytest.importorskip("fsspec.implementations.local")
    path = tmp_path / "archive"
    folder = Folder(f"local://{path}")
    folder.write({0: (0, 2)}, [rows(0, [0, 1])])
    files, record = open_files(folder.path, ArchiveError), "_dynamic_kafka/batches/query-1.json"
    before = files.read(record)
    monkeypatch.setattr(local.LocalFileSystem, "mv", lambda _, old, new: shutil.move(old, new))
    write = local.LocalFileOpener.write
    with monkeypatch.context() as patch:

        def full(self: Any, data: bytes) -> int:
            write(self, bytes(data)[:20])
            raise OSError(28, "No space left on device")

        patch.setattr(local.LocalFileOpener, "write", full)
        with pytest.raises(ArchiveError, match=r"batches/query-2\.json cannot be written: No space left on device"):
            files.create(record.replace("1.json", "2.json"), before)
        with pytest.raises(ArchiveError, match=r"batches/query-1\.json cannot be written: No space left on device"):
            files.replace(record, before.replace("0", "1"))
    assert files.read(record) == before
    assert [file.name for file in (path / "_dynamic_kafka" / "batches").iterdir()] == ["query-1.json"]
    files.replace(record, before)
    folder.write({0: (2, 4)}, [rows(0, [2, 3])])
    assert folder.records() == expected((0, range(4)))
    assert all(file.is_dir() or file.name.startswith(("batch-", "query-")) for file in path.rglob("*"))
    out = FileWriter(files, "2013-01-01", 1, SCHEMA)
    assert out.path not in files.walk()
    out.abort()


def test_the_first_record_of_a_number_wins(folder: Folder) -> None:
    """A second driver of the same query adds nothing."""
    files = open_files(folder.path, ArchiveError)
    batch = Batch({"day=2013-01-01/a.parquet": DataFile("2013-01-01", 1, 1, "")}, {key(): [Span(0, 1, 1)]}, {}, 0)
    assert log.create_record(files, "query", 1, batch)
    assert not log.create_record(
        files, "query", 1, batch._replace(files={"day=2013-01-01/b.parquet": DataFile("2013-01-01", 1, 1, "")})
    )
    assert folder.state().files.keys() == {"day=2013-01-01/a.parquet"}


def test_offsets_of_two_queries_at_once_are_an_error(folder: Folder) -> None:
    """Both wrote the same offsets without seeing each other. Readers are told, and the record with fewer is emptied."""
    files = open_files(folder.path, ArchiveError)
    for query, number, start, end in (("a", 1, 0, 1), ("b", 1, 0, 2), ("a", 2, 2, 3)):
        batch = Batch(
            {f"day=2013-01-01/{query}{number}.parquet": DataFile("2013-01-01", 1, 1, "")},
            {key(): [Span(start, end, 1)]},
            {},
            1,
        )
        assert log.create_record(files, query, number, batch)
    with pytest.raises(ArchiveError, match=r"offsets 0 to 0 of .* twice: in the record b-1\.json .* two queries"):
        folder.state()
    assert follow_the_words(folder) == ["a-1.json"]
    assert folder.state().spans == {key(): [Span(0, 3, 2)]}
    assert folder.state().files.keys() == {"day=2013-01-01/b1.parquet", "day=2013-01-01/a2.parquet"}


def follow_the_words(folder: Folder) -> list[str]:
    """Do what the errors of an archive say until there is none, and return the records that were emptied."""
    emptied: list[str] = []
    while True:
        try:
            folder.state()
        except ArchiveError as error:
            words = str(error)
        else:
            return emptied
        found = re.search(r"replace the text of (\S+\.json) there by (\S+)\. Of", words)
        assert found, words
        assert found[1] not in emptied
        emptied.append(found[1])
        Path(folder.path, "_dynamic_kafka", "batches", found[1]).write_text(found[2])


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(1, 4)) | st.just("compact"),
        min_size=2,
        max_size=8,
    )
)
def test_the_words_about_two_writers_work_at_any_time(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int, int] | str]
) -> None:
    """Queries write without seeing each other, and states come in between: only what was emptied is missing then."""
    folder = Folder(tmp_path_factory.mktemp("archive"))
    files = open_files(folder.path, ArchiveError)
    numbers = dict.fromkeys("abc", 0)
    offsets: dict[str, set[int]] = {}
    log.begin(files)
    for step in history:
        if isinstance(step, tuple):
            query, start, count = step
            numbers[query] += 1
            batch = Batch({}, {key(): [Span(start, start + count, count)]}, {}, numbers[query])
            assert log.create_record(files, query, numbers[query], batch)
            offsets[f"{query}-{numbers[query]}.json"] = set(range(start, start + count))
        else:
            with suppress(ArchiveError):
                log.write_state(files, folder.state())
    for emptied in follow_the_words(folder):
        del offsets[emptied]
    there = [offset for span in folder.state().spans.get(key(), ()) for offset in range(span.start, span.end)]
    assert sorted(there) == sorted(itertools.chain(*offsets.values()))


def test_a_long_log_is_read_many_records_at_a_time(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is far away answers each request late: 4,000 batches are 250 requests one after the other."""
    files = open_files(folder.path, ArchiveError)
    log.begin(files)
    records = Path(folder.path, "_dynamic_kafka", "batches")
    records.mkdir()
    for number in range(1, 4_001):
        batch = Batch({}, {key(): [Span(number, number + 1, 1)]}, {}, number)
        (records / f"query-{number}.json").write_text(encode_batch(batch))
    rounds: list[int] = []
    together, read = threading.Barrier(16, lambda: rounds.append(1), timeout=20), Files.read

    def slow(self: Files, path: str) -> str:
        if "/batches/" in path:
            together.wait()  # the others have to be on their way, too
        return read(self, path)

    monkeypatch.setattr(Files, "read", slow)
    assert folder.state().spans == {key(): [Span(1, 4_001, 4_000)]}
    assert len(rounds) == 250


class Rows:
    """A batch that Spark has given, as far as an archive asks it: it is written as tasks and driver do it."""

    def __init__(self, *tasks: Sequence[pa.RecordBatch]) -> None:
        self._tasks = tasks
        self.write = self

    def format(self, _: str) -> Rows:
        """The archive's own format."""
        return self

    def option(self, _: str, plan: str) -> Rows:
        """The only option is the plan."""
        self._plan = plan
        return self

    def mode(self, _: str) -> Rows:
        """Rows are added."""
        return self

    def save(self) -> None:
        """Run the tasks and the commit."""
        writer = ArchiveWriter(self._plan)
        writer.commit([writer.write(iter(task)) for task in self._tasks])


class Query:
    """A query that archives; its batches follow each other, and its process lives on."""

    def __init__(self, folder: Folder, checkpoint: Path, topic_id: str = "topic-id") -> None:
        self.checkpoint, self._topic_id = checkpoint, topic_id
        self._writing = archive._Writing(folder.path, str(checkpoint))
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": checkpoint.name}))

    def restart(self) -> None:
        """Go on in a new process."""
        self._writing = archive._Writing(self._writing._path, str(self.checkpoint))

    def plan(self, number: int, start: int, end: int, *, reset: bool = False) -> None:
        """Write the offsets of a batch to the checkpoint."""
        tp = KafkaTopicPartition("orders", 0)
        resets = frozenset([tp] if reset else [])
        cluster = ClusterOffsets("id-eu", topics={"orders": self._topic_id}, ranges={tp: (start, end)}, resets=resets)
        text = json.dumps(encode(Document(clusters={"eu": cluster})))
        (self.checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{text}")

    def run(self, number: int, start: int, end: int, *, reset: bool = False) -> None:
        """Run a batch of partition 0."""
        self.plan(number, start, end, reset=reset)
        self._writing.write(Rows([rows(0, range(start, end))]), number)  # type: ignore[arg-type]
        (self.checkpoint / "commits" / str(number)).write_text("v1\n{}")


def test_a_query_sees_what_another_one_has_written_meanwhile(folder: Folder, tmp_path: Path) -> None:
    """A backfill was faster than the query that lives on: each record still is there once."""
    first, backfill = Query(folder, tmp_path / "first"), Query(folder, tmp_path / "backfill")
    first.run(0, 0, 10)
    backfill.run(0, 0, 20)
    first.run(1, 10, 20)
    first.run(2, 20, 30)
    assert folder.records() == expected((0, range(30)))
    folder.compact()
    first.run(3, 30, 31)
    assert folder.records() == expected((0, range(31)))


def test_new_records_at_old_offsets_end_the_query(folder: Folder, tmp_path: Path) -> None:
    """The log was truncated, and data loss is tolerated. Another query archives the new log into another folder."""
    query = Query(folder, tmp_path / "query")
    query.run(0, 0, 10)
    with pytest.raises(ArchiveError, match="went back from offset 10 to 5: its log was truncated"):
        query.run(1, 5, 7, reset=True)
    assert folder.records() == expected((0, range(10)))
    other = Folder(tmp_path / "other")
    for _ in range(2):
        Query(other, tmp_path / "new").run(0, 0, 7)
        shutil.rmtree(tmp_path / "new")
    assert other.records() == expected((0, range(7)))


@pytest.mark.parametrize("what", ["an older log", "an older state", "a log from its beginning", "no disk"])
def test_a_query_stops_if_the_archive_lacks_what_it_has_read(folder: Folder, tmp_path: Path, what: str) -> None:
    """It names the offsets. No compaction deletes their files, and with the newest log the query goes on."""
    query, path, newest = Query(folder, tmp_path / "query"), Path(folder.path), tmp_path / "newest"
    query.run(0, 3, 5)
    query.run(1, 5, 10)
    if what == "an older state":
        folder.compact()
    older = shutil.copytree(path / "_dynamic_kafka", tmp_path / "older")
    query.run(2, 10, 20)
    query.run(3, 20, 20)
    query.run(4, 20, 30)
    if what == "no disk":
        path.rename(newest)
    else:
        shutil.copytree(path / "_dynamic_kafka", newest)
        shutil.rmtree(path / "_dynamic_kafka")
        if what == "a log from its beginning":
            log.begin(open_files(str(tmp_path / "empty")))
            older = tmp_path / "empty" / "_dynamic_kafka"
        shutil.copytree(older, path / "_dynamic_kafka")
    first = 10 if "older" in what else 3
    for _ in range(2):
        query.restart()
        with pytest.raises(
            ArchiveError, match=f"lack offsets {first} to 29 of cluster 'eu', topic 'orders', partition 0"
        ):
            query.run(5, 30, 40)
    if what == "no disk":
        assert not path.exists()
        newest.rename(path)
    else:
        before = folder.files()
        for file in before:
            os.utime(path / file, (1, 1))
        kept = set(archive.verify(folder.path).kept_files)
        assert len(kept) == (2 if first == 10 else 4)
        assert set(folder.compact(before=FIRST_DAY, keep=dt.timedelta(0)).kept) == kept
        assert kept <= folder.files()
        shutil.rmtree(path / "_dynamic_kafka")
        shutil.copytree(newest, path / "_dynamic_kafka")
    query.run(5, 30, 40)
    assert folder.records() == expected((0, range(3, 40)))
    assert archive.verify(folder.path).is_sound


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("what", ["folder moved", "log moved", "last record gone", "older log"])
def test_a_query_writes_nothing_where_its_archive_is_not_any_more(
    folder: Folder, tmp_path: Path, what: str, *, compacted: bool
) -> None:
    """While it runs, too. When the log is back, the query goes on, with each record once."""
    query, path, newest = Query(folder, tmp_path / "query"), Path(folder.path), tmp_path / "newest"
    query.run(0, 0, 10)
    shutil.copytree(path / "_dynamic_kafka", tmp_path / "older")
    query.run(1, 10, 20)
    if compacted:
        folder.compact()
    query.run(2, 20, 30)
    if what == "folder moved":
        path.rename(newest)
    else:
        (path / "_dynamic_kafka").rename(newest)
        if what == "last record gone":
            shutil.copytree(newest, path / "_dynamic_kafka")
            (path / "_dynamic_kafka" / "batches" / "query-3.json").unlink()
        if what == "older log":
            shutil.copytree(tmp_path / "older", path / "_dynamic_kafka")
    before = list(path.rglob("*"))
    for words in ("does not have any more what this query has read there", "offsets .* to 29 of cluster 'eu'"):
        with pytest.raises(ArchiveError, match=words):
            query.run(3, 30, 40)
        assert list(path.rglob("*")) == before
    if what == "folder moved":
        newest.rename(path)
    else:
        shutil.rmtree(path / "_dynamic_kafka", ignore_errors=True)
        newest.rename(path / "_dynamic_kafka")
    query.run(3, 30, 40)
    assert folder.records() == expected((0, range(40)))


def test_a_new_checkpoint_adds_what_the_archive_lacks(folder: Folder, tmp_path: Path) -> None:
    """As the error says. Then the old files have nothing more, as far as Kafka has their records still."""
    query = Query(folder, tmp_path / "query")
    query.run(0, 0, 10)
    shutil.copytree(Path(folder.path, "_dynamic_kafka"), tmp_path / "older")
    query.run(1, 10, 20)
    query.run(2, 20, 30)
    lost = set(folder.state().files)
    shutil.rmtree(Path(folder.path, "_dynamic_kafka"))
    shutil.copytree(tmp_path / "older", Path(folder.path, "_dynamic_kafka"))
    lost -= folder.state().files.keys()
    Query(folder, tmp_path / "new").run(0, 15, 40)
    for file in lost:
        os.utime(Path(folder.path, file), (1, 1))
    (kept,) = folder.compact(before=FIRST_DAY).kept
    assert lost & folder.files() == {kept}
    assert pq.read_table(Path(folder.path, kept), partitioning=None)["offset"].to_pylist() == list(range(10, 20))
    assert folder.records() == expected((0, [*range(10), *range(15, 40)]))


def test_a_query_goes_on_if_all_it_has_read_is_there(folder: Folder, tmp_path: Path) -> None:
    """Its records may be missing, as long as the checkpoint shows that others have added the same offsets."""
    query, other = Query(folder, tmp_path / "query"), Query(folder, tmp_path / "other")
    other.run(0, 0, 20)
    query.run(0, 5, 10)
    query.run(1, 10, 20)
    for number in (1, 2):
        Path(folder.path, "_dynamic_kafka", "batches", f"query-{number}.json").unlink()
    query.restart()
    query.run(2, 20, 30)
    query.restart()
    query.run(3, 30, 40)
    Path(folder.path, "_dynamic_kafka", "batches", "query-2.json").unlink()
    (query.checkpoint / "offsets" / "3").unlink()
    query.restart()
    with pytest.raises(ArchiveError, match="lack what 1 batches have read whose offsets the checkpoint does not have"):
        query.run(4, 40, 41)


def test_records_that_kafka_has_deleted_do_not_end_the_query(folder: Folder, tmp_path: Path) -> None:
    """Reading goes on behind them, also where another query was further already."""
    Query(folder, tmp_path / "other").run(0, 0, 40)
    query = Query(folder, tmp_path / "query")
    query.run(0, 0, 10)
    query.run(1, 20, 50, reset=True)
    assert folder.records() == expected((0, range(50)))


def test_an_archive_is_one_before_its_first_record(folder: Folder, tmp_path: Path) -> None:
    """A batch that was stopped leaves files, which no reader takes for those of a plain folder."""
    query = Query(folder, tmp_path / "query")
    query.plan(0, 0, 5)
    with pytest.raises(ArchiveError, match="none that this batch reads"):
        query._writing.write(Rows([rows(0, range(5))], [rows(1, range(5))]), 0)  # type: ignore[arg-type]
    assert log.read_archive(folder.path) == Archive(number=1)
    query.run(0, 0, 5)
    assert folder.records() == expected((0, range(5)))


@pytest.mark.parametrize("what", ["deleted", "cut"])
def test_a_batch_whose_files_are_missing_is_not_archived(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Something may clean the folder. The query ends, and repeats the batch."""
    query, commit = Query(folder, tmp_path / "query"), ArchiveWriter.commit
    query.run(0, 0, 5)

    def late(self: ArchiveWriter, messages: Any) -> None:
        for path in folder.files() - folder.state().files.keys():
            Path(folder.path, path).unlink() if what == "deleted" else os.truncate(Path(folder.path, path), 9)
        commit(self, messages)

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveWriter, "commit", late)
        with pytest.raises(ArchiveError, match=r"now it (is missing|has 9)\. Batch 1 was not added"):
            query.run(1, 5, 10)
    query.run(1, 5, 10)
    assert folder.records() == expected((0, range(10)))
    assert archive.verify(folder.path).is_sound


def test_a_clock_that_is_ahead_takes_no_file_from_a_batch(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction on a machine with a wrong date sees the files of a batch that runs as old ones."""
    plan = folder.plan({0: (key(), 0, 5)})
    log.begin(open_files(folder.path, ArchiveError))
    written = write_parts(plan, [rows(0, range(5))])
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + 30 * 86_400)
        assert folder.compact().kept == tuple(written.files)
    assert log.create_record(open_files(folder.path, ArchiveError), "query", 1, batch_of(plan, [written]))
    assert archive.verify(folder.path).is_sound


@pytest.mark.parametrize("micros", [2**60, -(2**60), (2_932_897 * DAY_US), -719_163 * DAY_US])
def test_times_that_no_calendar_has_are_without_a_day(folder: Folder, micros: int) -> None:
    """Producers set any time they like: it must not stop the archive."""
    batch = rows(0, [0, 1])
    times = pa.array([START_US, micros]).cast(SCHEMA.field("timestamp").type)
    folder.write({0: (0, 2)}, [batch.set_column(5, SCHEMA.field("timestamp"), times)])
    assert {file.day for file in folder.state().files.values()} == {"2013-01-01", ""}
    folder.write({0: (2, 3)}, [rows(0, [2], day=None)])
    folder.compact()
    assert archive.verify(folder.path).is_sound


def test_partitions_without_records_have_positions_too(folder: Folder) -> None:
    """So a history knows where Kafka goes on there."""
    folder.write({0: (7, 7), 1: (0, 2)}, [rows(1, [0, 1])])
    folder.write({0: (7, 7), 1: (2, 2)})
    assert folder.state().positions() == {key(0): 7, key(1): 2}
    assert folder.state().batches == {"query": 1}
    folder.write({0: (7, 9)}, [rows(0, [7, 8])])
    assert folder.state().spans[key(0)] == [Span(7, 9, 2)]


# --- compaction -----------------------------------------------------------------------------------------------------


def small_files(folder: Folder) -> list[tuple[int, int, bytes]]:
    """Write six batches over three days, and return their records."""
    for i in range(6):
        start = 10 * i
        folder.write(
            {0: (start, start + 10), 1: (start, start + 10)},
            [rows(1, [start + 2, start + 3], day=i // 2)],
            [rows(0, [start, start + 1], day=i // 2)],
        )
    return folder.records()


def test_a_day_becomes_one_file_in_order(folder: Folder) -> None:
    """The records stay, sorted by cluster, topic, partition and offset; old files stay for readers that have begun."""
    before = small_files(folder)
    old = folder.files()
    done = folder.compact(before=FIRST_DAY + dt.timedelta(days=2))
    assert done == archive.Compacted({"2013-01-01": 4, "2013-01-02": 4}, 0)
    assert folder.records() == before
    assert old < folder.files()
    state = folder.state()
    assert sorted(file.day for file in state.files.values()) == ["2013-01-01", "2013-01-02", *["2013-01-03"] * 4]
    compacted = pq.read_table(archive.files(folder.path)[0], partitioning=None)
    places = list(zip(compacted["partition"].to_pylist(), compacted["offset"].to_pylist(), strict=True))
    assert places == sorted(places)
    assert archive.verify(folder.path).is_sound
    assert folder.compact(before=FIRST_DAY + dt.timedelta(days=2)).days == {}


def test_a_day_whose_later_files_have_a_new_column_becomes_one_file(folder: Folder) -> None:
    """Also if the column is never null, as Spark declares that of a constant."""
    folder.write({0: (0, 2)}, [rows(0, [0, 1])])
    never_null = pa.field("added", pa.int32(), nullable=False)
    folder.write({0: (2, 4)}, [rows(0, [2, 3]).append_column(never_null, pa.array([5, 5], pa.int32()))])
    assert folder.compact(before=FIRST_DAY + dt.timedelta(days=1)).days == {"2013-01-01": 2}
    (file,) = (f for f in archive.files(folder.path))
    assert pq.read_table(file, partitioning=None)["added"].to_pylist() == [None, None, 5, 5]
    assert archive.verify(folder.path).is_sound


def test_a_compaction_has_few_bytes_in_memory(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """However well they are compressed: a window of rows has as many as the uncompressed bytes allow."""
    found: list[int] = []
    add = FileWriter.add

    def counted(out: FileWriter, table: pa.Table) -> None:
        found.append(table.nbytes)
        add(out, table)

    for start in (0, 50):
        batch = rows(0, range(start, start + 50))
        values = pa.array([bytes([offset]) * 100_000 for offset in range(start, start + 50)])
        folder.write({0: (start, start + 50)}, [batch.set_column(1, SCHEMA.field("value"), values)])
    monkeypatch.setattr(FileWriter, "add", counted)
    monkeypatch.setattr("dynamic_kafka.history.archive.compaction._WINDOW_BYTES", 1_000_000)
    folder.compact()
    assert (max(found) < 2_000_000, sum(found) > 10_000_000) == (True, True)
    assert archive.verify(folder.path).is_sound


def test_a_day_that_cannot_be_compacted_leaves_the_others_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if Arrow refuses it: the error names the day, and the other days are compacted."""
    before = small_files(folder)
    add = FileWriter.add

    def refuse(out: FileWriter, table: pa.Table) -> None:
        if out.path.startswith("day=2013-01-02"):
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        add(out, table)

    monkeypatch.setattr(FileWriter, "add", refuse)
    with pytest.raises(ArchiveError, match=r"day 2013-01-02 cannot become one: offset overflow .* 2 other days were"):
        folder.compact()
    assert folder.records() == before
    assert archive.verify(folder.path).is_sound


@pytest.mark.parametrize("room", [0, 10, 500])
def test_a_full_disk_is_said_of_the_file_that_does_not_fit(
    folder: Folder, output: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """In the query and in a compaction, and not of the output. The words are JSON with `--output json`."""
    before = small_files(folder)
    write = _Hashing.write

    def full(self: _Hashing, data: Any) -> int:
        if self.size_bytes + len(data) > room:
            raise OSError(28, "No space left on device")
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(_Hashing, "write", full)
        code, text = output("compact", folder.path, "--before", "2013-01-02", "--execute", "--output", "json")
        with pytest.raises(ArchiveError, match=r"day=2013-01-01/batch-.*cannot be written: No space .*\. Make room"):
            folder.write({0: (60, 61)}, [rows(0, [60])])
    assert code == 1
    assert re.search(r"day=2013-01-01/all-.* cannot be written: No space .*\. Make room", json.loads(text)["error"])
    assert (folder.records(), folder.files()) == (before, set(folder.state().files))


def test_a_file_that_cannot_be_read_is_said_of_its_day(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk is no bug, and other days are compacted."""
    small_files(folder)

    def fail(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(pq, "read_metadata", fail)
    with pytest.raises(
        ArchiveError, match=r"A file of day 2013-01-01 cannot be read: Input/output error\. 2 other days"
    ):
        folder.compact()


def test_batches_go_on_while_a_compaction_runs(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that ends between the reading and the writing of the state is not lost, also if it is of a compacted day."""
    small_files(folder)
    write_state = log.write_state

    def slow(files: Files, state: Archive) -> None:
        folder.write({0: (60, 61)}, [rows(0, [60])])
        write_state(files, state)

    monkeypatch.setattr(log, "write_state", slow)
    folder.compact()
    monkeypatch.undo()
    assert (0, 60, b"0-60") in folder.records()
    assert len(folder.records()) == 25
    assert folder.compact().days == {"2013-01-01": 2}
    assert archive.verify(folder.path).is_sound


def test_replaced_files_are_deleted_after_a_while(folder: Folder) -> None:
    """And old parts of the log with them; the log stays small."""
    before = small_files(folder)
    folder.compact()
    assert folder.compact(keep=dt.timedelta(0)).deleted == 12
    assert folder.files() == folder.state().files.keys()
    folder.write({0: (60, 61)}, [rows(0, [60])])
    folder.compact()
    folder.write({0: (61, 62)}, [rows(0, [61])])
    folder.compact(keep=dt.timedelta(0))
    assert folder.records() == sorted([*before, *expected((0, [60, 61]))])
    names = {path for path in open_files(folder.path).walk() if path.startswith("_dynamic_kafka")}
    assert names == {f"_dynamic_kafka/{name}.json" for name in ("states/2", "states/3", "batches/query-8")}


@pytest.mark.parametrize("what", ["lost", "cut"])
def test_replaced_files_stay_while_the_new_one_is_not_whole(folder: Folder, what: str) -> None:
    """They are the only ones with its records. Those of other days are deleted."""
    small_files(folder)
    folder.compact()
    path = Path(sorted(archive.files(folder.path))[0])
    path.unlink() if what == "lost" else os.truncate(path, 99)
    assert folder.compact(keep=dt.timedelta(0)).deleted == 8
    assert sum(name.startswith("day=2013-01-01/batch-") for name in folder.files()) == 4


def test_old_files_that_no_log_names_are_deleted(folder: Folder, output: Callable[..., tuple[int, str]]) -> None:
    """They are of a batch that was stopped. Young ones may be of a batch that runs, and others are not the archive's."""
    small_files(folder)
    write_parts(folder.plan({0: (key(), 60, 62)}), [rows(0, [60, 61])])
    (old,) = folder.files() - folder.state().files.keys()
    hidden, young = old.replace("batch-", ".batch-"), old.replace("batch-0", "batch-1")
    foreign = ["day=2013-01-01/part-0-c000.snappy.parquet", "a.parquet", f"more/{old}"]
    for name in (hidden, young, *foreign):
        Path(folder.path, name).parent.mkdir(parents=True, exist_ok=True)
        Path(folder.path, name).write_bytes(b"")
    for name in (old, hidden, *foreign):
        os.utime(Path(folder.path, name), (1, 1))
    folder.write({0: (60, 62)}, [rows(0, [60, 61])])
    found = archive.verify(folder.path)
    assert set(found.unknown_files) == {old, hidden, young, *foreign}
    assert set(found.kept_files) == {young, *foreign}
    code, text = output("compact", folder.path, "--keep", "0")
    assert (code, text.splitlines()[-2]) == (0, "3 days would be compacted, and 15 old files deleted.")
    assert folder.compact(keep=dt.timedelta(0)).deleted == 13 + 2
    assert [Path(folder.path, name).exists() for name in (old, hidden, young, *foreign)] == [False] * 2 + [True] * 4


@pytest.mark.parametrize(
    "name",
    [
        "part-0.parquet",
        "day=2013-01-01/part-0.parquet",
        "a/b.csv",
        "_k=1/a.parquet",
        f"day=1/.all-{'0' * 32}.parquet",
    ],
)
def test_an_archive_begins_in_a_folder_without_files(folder: Folder, tmp_path: Path, name: str) -> None:
    """Readers would not see the files that are there any more. What begins with `_` or `.` is no data."""
    path = Path(folder.path, name)
    for other in (path, Path(folder.path, "_checkpoint", "metadata"), Path(folder.path, ".DS_Store")):
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_bytes(b"")
    with pytest.raises(ArchiveError, match=f"has files that are not of an archive, such as {name}. Name a new folder"):
        Query(folder, tmp_path / "refused").run(0, 0, 5)
    path.unlink()
    Query(folder, tmp_path / "query").run(0, 0, 5)
    assert folder.records() == expected((0, range(5)))


@pytest.mark.parametrize("what", ["file changed", "file lost", "file cut"])
def test_a_file_that_was_changed_is_not_compacted(folder: Folder, what: str) -> None:
    """Its day stays as it is, other days are compacted, and `verify` finds the same."""
    small_files(folder)
    path = Path(sorted(archive.files(folder.path))[0])
    table = pq.read_table(path, partitioning=None)
    match what:
        case "file changed":  # the coordinates are the same, and only a value is another one
            values = pa.array([b"tampered", b"tampered"])
            pq.write_table(table.set_column(table.schema.get_field_index("value"), "value", values), path)
        case "file lost":
            path.unlink()
        case "file cut":
            path.write_bytes(path.read_bytes()[:-100])
    state = folder.state()
    with pytest.raises(ArchiveError, match=r"(2013-01-01|day=2013-01-01).* [12] other days were compacted"):
        folder.compact()
    first = {path: file for path, file in state.files.items() if file.day == "2013-01-01"}
    now = folder.state().files
    assert first == {path: file for path, file in now.items() if file.day == "2013-01-01"}
    assert len(now) == len(first) + len({file.day for file in state.files.values()}) - 1
    assert not archive.verify(folder.path).is_sound


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """An archive of several files, one of them compacted, that is sound."""
    folder = Folder(tmp_path_factory.mktemp("sound") / "archive")
    small_files(folder)
    folder.compact(before=FIRST_DAY + dt.timedelta(days=1), keep=dt.timedelta(0))
    assert archive.verify(folder.path).is_sound
    return folder


def test_a_history_finds_a_damaged_page(written: Folder, tmp_path: Path) -> None:
    """The size is the same, and a value is another one: it is an error and no row."""
    folder = Folder(Path(shutil.copytree(written.path, tmp_path / "archive")))
    history = frozen(folder.path)
    path = Path(archive.files(folder.path)[0])
    data = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    assert column.path_in_schema == "value"
    data[column.dictionary_page_offset + column.total_compressed_size // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(HistoryError, match=r"all-.*cannot be read"):
        list(read(history))


@given(st.data())
def test_no_change_of_a_file_is_sound(
    written: Folder, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte changed, added, cut off or exchanged with another file: `verify` names the file, and nothing is compacted."""
    folder = Folder(Path(shutil.copytree(written.path, tmp_path_factory.mktemp("changed") / "archive")))
    paths = [Path(path) for path in archive.files(folder.path)]
    path, other = data.draw(st.permutations(paths))[:2]
    before, others = path.read_bytes(), other.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    match data.draw(st.sampled_from(["byte", "cut", "more", "hole", "swap", "copy", "gone", "again"])):
        case "byte":
            flipped = before[at] ^ data.draw(st.integers(1, 255))
            path.write_bytes(before[:at] + bytes([flipped]) + before[at + 1 :])
        case "cut":
            path.write_bytes(before[:at])
        case "more":
            path.write_bytes(before + b"\0")
        case "hole":
            path.write_bytes(before[:at] + before[at + 1 :])
        case "swap":
            path.write_bytes(others)
            other.write_bytes(before)
        case "copy":
            path.write_bytes(others)
        case "gone":
            path.unlink()
        case "again":  # the same rows, written once more by somebody else
            pq.write_table(pq.read_table(path, partitioning=None), path)
    found = archive.verify(folder.path)
    assert not found.is_sound
    assert any(str(path) in problem for problem in found.problems)
    with suppress(ArchiveError):  # the file may be the only one of its day, which needs no compaction
        folder.compact()
    assert not archive.verify(folder.path).is_sound


class Stopped(BaseException):
    """The process ends here."""


def stopping(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """Let the process end after a number of changes of the file system; return the number of changes so far."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if count == after:
                raise Stopped
            result = function(*args, **kwargs)
            count += 1
            if count == after:
                raise Stopped
            return result

        return call

    for name in ("create", "delete", "reveal"):
        monkeypatch.setattr(Files, name, counted(getattr(Files, name)))
    monkeypatch.setattr(pq.ParquetWriter, "write_table", counted(pq.ParquetWriter.write_table))
    return lambda: count


def test_a_compaction_may_end_at_every_step(tmp_path: Path) -> None:
    """Readers see all records once after each step, and the next compaction finishes the work."""
    first = Folder(tmp_path / "first")
    before = small_files(first)
    first.compact(before=FIRST_DAY + dt.timedelta(days=1))
    for after in range(1, 100):
        folder = Folder(Path(shutil.copytree(first.path, tmp_path / str(after))))
        with pytest.MonkeyPatch.context() as patch:
            steps = stopping(patch, after)
            try:
                folder.compact(keep=dt.timedelta(0))
            except Stopped:
                pass
            else:
                assert steps() < after
                break
        assert folder.records() == before
        assert archive.verify(folder.path).is_sound
        folder.compact(keep=dt.timedelta(0))
        assert folder.records() == before
        assert archive.verify(folder.path).is_sound
        assert len(folder.state().files) == 3
    assert after > 10


def test_a_batch_may_end_at_every_step(tmp_path: Path) -> None:
    """The repeated batch writes what is missing, once."""
    for after in range(1, 100):
        folder = Folder(tmp_path / str(after))
        folder.write({0: (0, 2)}, [rows(0, [0, 1])])
        with pytest.MonkeyPatch.context() as patch:
            stopping(patch, after)
            try:
                folder.write({0: (2, 6)}, [rows(0, [2, 3], day=1)], [rows(0, [4, 5], day=2)])
            except Stopped:
                pass
            else:
                break
        assert folder.records() in (expected((0, [0, 1])), expected((0, range(6))))
        folder.write({0: (2, 6)}, [rows(0, [2, 3], day=1)], [rows(0, [4, 5], day=2)])
        assert folder.records() == expected((0, range(6)))
        assert archive.verify(folder.path).is_sound
    assert after > 4


steps = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 5), st.sets(st.integers(0, 4)), st.integers(0, 3))
    | st.sampled_from(["compact", "compact and delete", "repeat"]),
    max_size=12,
)


@given(steps)
def test_any_history_of_batches_and_compactions_has_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, int, set[int], int] | str]
) -> None:
    """Batches of any size with gaps, repeated ones, and compactions in any order."""
    folder = Folder(tmp_path_factory.mktemp("archive"))
    ends = [0, 0, 0]
    wanted: list[tuple[int, int, bytes]] = []
    last: tuple[dict[int, tuple[int, int]], list[pa.RecordBatch]] | None = None
    for step in history:
        if isinstance(step, tuple):
            partition, count, without, day = step
            start = ends[partition]
            ends[partition] += count
            offsets = [start + i for i in range(count) if i not in without]
            wanted += expected((partition, offsets))
            last = {partition: (start, start + count)}, [rows(partition, offsets, day)]
            folder.write(last[0], last[1])
        elif last is not None and step == "repeat":
            folder.write(last[0], last[1])
        elif last is not None:
            folder.compact(
                before=FIRST_DAY + dt.timedelta(days=2),
                keep=KEEP if step == "compact" else dt.timedelta(0),
            )
    if last is not None:
        assert folder.records() == sorted(wanted)
        found = archive.verify(folder.path)
        assert found.is_sound
        assert {report.key.partition: report.position for report in found.partitions} == {
            p: end for p, end in enumerate(ends) if end
        }


# --- the rules ------------------------------------------------------------------------------------------------------

ranges = st.builds(lambda start, length: (start, start + length), st.integers(0, 30), st.integers(1, 10))


@given(st.lists(ranges, max_size=8), ranges)
def test_what_is_missing_and_what_is_there_are_all(read: list[tuple[int, int]], wanted: tuple[int, int]) -> None:
    """Adding only what is missing never adds an offset twice, in any order."""
    spans: list[Span] = []
    seen: set[int] = set()
    for start, end in [*read, wanted]:
        new = missing(start, end, spans)
        added = {offset for a, b in new for offset in range(a, b)}
        assert added == set(range(start, end)) - seen
        seen |= added
        spans = joined(spans, [Span(a, b, b - a) for a, b in new], key())
    assert {offset for span in spans for offset in range(span.start, span.end)} == seen
    assert all(before.end < after.start for before, after in itertools.pairwise(spans))


def test_texts_are_what_was_written() -> None:
    """A state and a batch with several clusters, topics and gaps."""
    files = {
        "day=2013-01-01/a.parquet": DataFile("2013-01-01", 3, 100, "e3"),
        "day=__HIVE_DEFAULT_PARTITION__/b.parquet": DataFile("", 1, 10, "b0"),
    }
    spans = {key(0): [Span(0, 3, 3), Span(5, 9, 1)], key(1): [Span(7, 7, 0)], key(0, "t2", ""): [Span(1, 2, 0)]}
    batch = Batch(files, spans, {"id-eu": "eu"}, 2)
    assert decode_batch(encode_batch(batch), "here") == batch
    state = Archive(7, dict(files), dict(spans), {"id-eu": "eu"}, {"q": 3}, {"old": 12}, {"q": 2})
    assert decode_state(encode_state(state), 7, "here") == state
    with pytest.raises(ArchiveError, match="here is damaged"):
        decode_state(encode_batch(batch), 1, "here")
    with pytest.raises(ArchiveError, match="here is damaged"):
        decode_batch(encode_batch(batch).replace("[0,0,3,3]", "[0,0,3,4]"), "here")


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs `dynamic-kafka archive`, and returns its code and output."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["archive", *arguments])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return run


def test_verify_shows_what_is_there(folder: Folder, output: Callable[..., tuple[int, str]]) -> None:
    """A table with what was not read, and the exit code."""
    folder.write({0: (0, 10)}, [rows(0, [0, 1, 5])])
    folder.write({0: (20, 22)}, [rows(0, [20])])
    code, text = output("verify", folder.path)
    assert code == 0
    assert text.splitlines()[1].split() == ["eu", "orders", "0", "0", "to", "22", "4", "10", "to", "19", "8"]
    assert "Each of the 4 records in 2 files is there once." in text
    code, text = output("verify", folder.path, "--output", "json")
    (entry,) = json.loads(text)["partitions"]
    assert (entry["unread"], entry["clusterId"], entry["withoutRecord"]) == ([[10, 20]], "id-eu", 8)
    Path(archive.files(folder.path)[0]).unlink()
    code, text = output("verify", folder.path)
    assert code == 1
    assert "Problem: " in text


def test_compact_shows_first_and_does_it_then(folder: Folder, output: Callable[..., tuple[int, str]]) -> None:
    """Like all commands that change something."""
    small_files(folder)
    files = folder.files()
    code, text = output("compact", folder.path, "--before", "2013-01-02")
    assert code == 0
    assert text.splitlines()[1].split() == ["2013-01-01", "4"]
    assert text.splitlines()[2] == "1 days would be compacted, and 0 old files deleted."
    assert "add --execute" in text
    assert folder.files() == files
    code, text = output("compact", folder.path, "--before", "2013-01-02", "--execute")
    assert (code, text.splitlines()[-1]) == (0, "1 days were compacted, and 0 old files deleted.")
    assert output("compact", folder.path, "--keep", "0", "--execute", "--output", "json")[0] == 0
    assert "nothing to compact" in output("compact", folder.path)[1]


def test_what_is_no_archive_is_said(tmp_path: Path, output: Callable[..., tuple[int, str]]) -> None:
    """A wrong path, and wrong arguments."""
    for action in ("verify", "compact"):
        code, text = output(action, str(tmp_path))
        assert code == 1
        assert "is no archive" in text
    assert output("compact", str(tmp_path), "--keep", "soon")[0] == 2
    with pytest.raises(ArchiveError, match="is no archive"):
        archive.files(str(tmp_path))


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../secret.parquet",
            "day=1/../../x.parquet",
            "/etc/x.parquet",
            "day=1/../x.parquet",
            "s3://other/day=1/x.parquet",
        ),
        *("day=1/a/b.parquet", "day=1/..", "x.parquet", "day=1/a.csv", "", "day=../a.parquet/../../b"),
    ],
)
def test_the_log_of_an_archive_leads_to_no_file_outside_of_its_days(path: str) -> None:
    """Whoever can write the log could else have any file read, and its rows copied into the archive."""
    file = DataFile("1", 1, 1, "")
    with pytest.raises(ArchiveError, match="is no path of a file of an archive"):
        decode_batch(encode_batch(Batch({path: file}, {}, {}, 1)), "here")
    with pytest.raises(ArchiveError, match="is no path of a file of an archive"):
        decode_state(encode_state(Archive(number=1, files={path: file})), 1, "here")


@pytest.mark.parametrize(
    ("day", "folder"),
    [
        *(("../../../outside", "2013-01-01"), ("../x", ".."), ("2013-01-02", "2013-01-01"), ("", "2013-01-01")),
        *(("2013-01-01", "__HIVE_DEFAULT_PARTITION__"), ("2013-1-1", "2013-1-1"), ("..", "..")),
    ],
)
def test_the_day_of_a_file_is_that_of_its_folder(day: str, folder: str) -> None:
    """A compaction writes to the folder of the day that the log says."""
    files = {f"day={folder}/a.parquet": DataFile(day, 1, 1, "")}
    with pytest.raises(ArchiveError, match="is not the day of"):
        decode_batch(encode_batch(Batch(files, {}, {}, 1)), "here")
    with pytest.raises(ArchiveError, match="is not the day of"):
        decode_state(encode_state(Archive(number=1, files=files)), 1, "here")


def test_positions_that_were_set_on_the_first_batch_need_no_batch_before(tmp_path: Path) -> None:
    """`dynamic-kafka offsets set` may change batch 0 as long as it is not finished."""
    tp = KafkaTopicPartition("orders", 0)
    cluster = ClusterOffsets("id-eu", topics={"orders": "topic-id"}, ranges={tp: (5, 9)}, resets=frozenset([tp]))
    document = Document(streams={"s": {"eu": frozenset(["orders"])}}, clusters={"eu": cluster})
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n" + json.dumps(encode(document)))
    query, found, before = archive._batch_of(str(tmp_path), 0)
    assert (query, found.clusters["eu"].resets, before) == ("q", frozenset([tp]), Document())
