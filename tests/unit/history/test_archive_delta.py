"""An archive that is a Delta table, too: each version of the table is a state of the archive."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.history.test_archive import Folder, rows

from dynamic_kafka import archive
from dynamic_kafka.cli.main import main
from dynamic_kafka.errors import ArchiveError
from dynamic_kafka.files import Files
from dynamic_kafka.history.archive import log
from dynamic_kafka.history.archive.model import Archive
from dynamic_kafka.history.formats import freeze
from dynamic_kafka.history.settings import HistorySettings

deltalake = pytest.importorskip("deltalake")
TOMORROW = dt.date(2013, 1, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An archive with two days and two batches."""
    found = Folder(tmp_path / "archive")
    found.write({0: (0, 4), 1: (5, 6)}, [rows(0, [0, 1]), rows(0, [2, 3], day=1)], [rows(1, [5], day=None)])
    found.write({0: (4, 6)}, [rows(0, [4, 5])])
    return found


def table_of(folder: Folder, version: int | None = None) -> Any:
    """The table as any reader of Delta sees it."""
    return deltalake.DeltaTable(folder.path, version=version)


def records(folder: Folder, version: int | None = None) -> list[tuple[int, int, bytes]]:
    """As `Folder.records`."""
    table = table_of(folder, version).to_pyarrow_table()
    return sorted(zip(*(table[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))


def test_the_table_has_the_records_of_the_archive(folder: Folder) -> None:
    """By day, in one commit for all that was added since; publishing again changes nothing."""
    assert archive.publish_delta(folder.path) == (0, 4, 0)
    assert records(folder) == folder.records()
    days = table_of(folder).to_pyarrow_table()["day"].to_pylist()
    assert sorted(map(str, days)) == ["2013-01-01"] * 4 + ["2013-01-02"] * 2 + ["None"]
    folder.write({0: (6, 9)}, [rows(0, [6, 7, 8], day=1)])
    assert len(records(folder)) == 7
    assert archive.publish_delta(folder.path) == (1, 1, 0)
    assert archive.publish_delta(folder.path) == (1, 0, 0)
    assert records(folder) == folder.records()
    assert archive.verify(folder.path).is_sound


def test_a_compaction_changes_the_table_in_one_version(folder: Folder) -> None:
    """The version before and the one after have the same rows, and streams that read the table have nothing to do."""
    archive.publish_delta(folder.path)
    folder.write({0: (6, 7)}, [rows(0, [6], day=1)])
    assert folder.compact(before=TOMORROW).days == {"2013-01-01": 2, "2013-01-02": 2}
    assert table_of(folder).version() == 2, "what was added, and then the compaction"
    assert records(folder, 1) == records(folder, 2) == folder.records()
    last = (Path(folder.path) / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    changes = [change for line in last for change in json.loads(line).items() if change[0] in ("add", "remove")]
    assert {(kind, change["dataChange"]) for kind, change in changes} == {("add", False), ("remove", False)}


@pytest.mark.parametrize("when", ["read", "write_state"])
def test_a_batch_that_ends_while_a_compaction_runs_is_another_version(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Streams that read the table take its rows, and none of those that the compaction has moved."""
    archive.publish_delta(folder.path)
    run = getattr(log, when)

    def during(files: Files, *state: Archive) -> Any:
        calls.append(when)
        if len(calls) == (2 if when == "read" else 1):  # publishing reads first
            folder.write({0: (6, 9)}, [rows(0, [6]), rows(0, [7], day=1), rows(0, [8], day=9)])
        return run(files, *state)

    calls: list[str] = []
    monkeypatch.setattr(log, when, during)
    folder.compact(before=TOMORROW)
    changes: dict[int, set[tuple[str, bool]]] = {}
    for version in (1, 2):
        last = (Path(folder.path) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
        for kind, change in (pair for line in last for pair in json.loads(line).items()):
            if kind in ("add", "remove"):
                changes.setdefault(version, set()).add((kind, change["dataChange"]))
    assert changes == {1: {("add", False), ("remove", False)}, 2: {("add", True)}}
    assert records(folder) == folder.records()
    assert len(records(folder, 1)) == 7


def test_files_that_are_deleted_are_in_no_table(folder: Folder) -> None:
    """A compaction deletes what was replaced long ago, so it publishes first."""
    folder.compact(before=TOMORROW)
    archive.publish_delta(folder.path)
    folder.write({0: (6, 7)}, [rows(0, [6])])
    for _ in range(2):
        folder.compact(before=TOMORROW, keep=dt.timedelta(0))
    assert records(folder) == folder.records()


def test_columns_that_come_later_are_null_before(folder: Folder) -> None:
    """The table gets the new column."""
    archive.publish_delta(folder.path)
    more = pa.Table.from_batches([rows(0, [6])]).append_column("more", pa.array(["x"])).to_batches()
    folder.write({0: (6, 7)}, more)
    archive.publish_delta(folder.path)
    found = table_of(folder).to_pyarrow_table().to_pylist()
    assert {row["offset"]: row["more"] for row in found if row["partition"] == 0} == {6: "x"} | dict.fromkeys(range(6))


def test_vacuum_keeps_files_that_are_not_published_yet(folder: Folder) -> None:
    """They belong to the archive, and only its own log knows them."""
    archive.publish_delta(folder.path)
    folder.write({0: (6, 7)}, [rows(0, [6])])
    before = folder.files()
    for path in before:
        os.utime(Path(folder.path) / path, (0, 0))
    table_of(folder).vacuum(dry_run=False)
    assert folder.files() == before


def test_a_table_that_others_write_is_not_touched(folder: Folder) -> None:
    """Publishing would undo their change without a word."""
    archive.publish_delta(folder.path)
    table_of(folder).delete("offset = 1")
    with pytest.raises(ArchiveError, match="written by something else than its archive, in version 1"):
        archive.publish_delta(folder.path)


def test_of_two_runs_at_the_same_time_the_later_one_is_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may know less of the archive than the table has already: rows would be there twice."""
    archive.publish_delta(folder.path)
    folder.write({0: (6, 7)}, [rows(0, [6])])
    old = folder.state()

    def overtaken(_: Files) -> Archive:
        monkeypatch.undo()
        folder.compact(before=TOMORROW)
        return old

    monkeypatch.setattr(log, "read", overtaken)
    with pytest.raises(ArchiveError, match=r"was not changed.*Run it again"):
        archive.publish_delta(folder.path)
    assert records(folder) == folder.records()


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_history_of_either_kind_goes_on_behind_the_same_offsets(folder: Folder, form: str) -> None:
    """As a folder it is an archive, and as a table a version of it."""
    archive.publish_delta(folder.path)
    frozen = freeze(HistorySettings(folder.path, form, "coordinates", None, "", ("value", "cluster")))
    assert frozen.history.rows == 7
    assert frozen.largest == {("eu", "orders", 0): 5, ("eu", "orders", 1): 5}


@pytest.fixture
def empty(tmp_path: Path) -> Folder:
    """A folder that is no archive."""
    return Folder(tmp_path)


def test_only_an_archive_with_records_can_be_published(empty: Folder) -> None:
    """A table needs columns."""
    with pytest.raises(ArchiveError, match="is no archive"):
        archive.publish_delta(empty.path)
    empty.write({0: (0, 5)})
    with pytest.raises(ArchiveError, match="no records yet"):
        archive.publish_delta(empty.path)


def test_the_command_says_what_was_done(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """In a line, or as JSON."""
    assert main(["archive", "delta", folder.path]) == 0
    assert capsys.readouterr().out == "Version 0 of the Delta table is the archive: 4 files came in, 0 went out.\n"
    assert main(["archive", "delta", folder.path, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 0, "added": 0, "removed": 0}
