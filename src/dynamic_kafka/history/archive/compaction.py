"""Compaction: the files of a finished day become one, sorted by cluster, topic, partition and offset.

The steps, of which each may be the last one before a crash:

1. Write the new file. Readers do not see it, because no log names it.
2. Write the state that has the new file instead of the old ones. It counts from now on.
3. Delete files that were replaced long ago, and old parts of the log. Delete old files that the log does not name, if other
   files have all of their records.

So a reader sees the old files or the new one, and a compaction that was stopped is just run again. Before step 2, the new
file is compared with the old ones: the same offsets of each partition, none twice, and only those that the log has. Old
files are those that were written: their bytes are compared with the log, before they are copied and after it.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dynamic_kafka.errors import ArchiveError, listed
from dynamic_kafka.files import Files, open_files
from dynamic_kafka.filesystems import failure_reason, failures
from dynamic_kafka.history.archive import log
from dynamic_kafka.history.archive.data import COORDINATES, FileWriter, check_unchanged
from dynamic_kafka.history.archive.model import Archive, DataFile, PartitionKey, Span, is_own

__all__ = ["Compacted", "Offsets", "compact", "kept_files", "merged", "offsets_of", "outside", "read"]

Offsets: TypeAlias = "dict[PartitionKey, np.ndarray[Any, Any]]"

_DAY_MS = 86_400_000
_MOST = 5
_WINDOW_ROWS = 500_000
_WINDOW_BYTES = 64 << 20


class Compacted(NamedTuple):
    """What a compaction has done.

    Args:
        days: The compacted days with the number of files they had.
        deleted: The number of files that were deleted.
        kept: Old files that the log does not name, and that stay: they have records that the archive does not have, or
            cannot be read.
    """

    days: dict[str, int]
    deleted: int
    kept: tuple[str, ...] = ()


def compact(
    location: str, *, before: dt.date, keep_ms: int, execute: bool = True, only: Collection[str] | None = None
) -> Compacted:
    """Compact the days before a day that have more than one file, and delete what is not needed any more.

    Args:
        location: The archive's folder.
        before: The first day that is left alone.
        keep_ms: How long replaced files stay for readers that began earlier.
        execute: If false, nothing is written or deleted; the result is what would be done.
        only: The files to compact; by default all. Others of their days wait for the next compaction.

    Raises:
        ArchiveError: If it is no archive, or records of a day would be lost or doubled. Such a day is left as it is, and all
            others are compacted before the error.
    """
    files = open_files(location, ArchiveError)
    found = files.walk()  # before the log: a file that it names now is not taken for one that no log names
    archive = read(files)
    now_ms = int(time.time() * 1000)
    done: dict[str, int] = {}
    problems: list[str] = []
    new: set[str] = set()
    for day, paths in _days_to_compact(archive, before, only).items():
        if execute:
            try:
                path, file = _rewritten(files, archive, day, paths)
            except ArchiveError as error:
                problems.append(str(error))
                continue
            except OSError as error:
                problems.append(f"A file of day {day} cannot be read: {failure_reason(error)}")
                continue
            archive.replace(paths, {path: file}, now_ms)
            new.add(path)
        else:
            archive.replaced |= dict.fromkeys(paths, now_ms)
        done[day] = len(paths)
    incomplete = {  # of these days, the files that were replaced may be the only ones with some records
        path.partition("/")[0]
        for path, file in archive.files.items()
        if path not in new and found.get(path, (-1, 0))[0] != file.size_bytes
    }
    old = [
        path
        for path, at_ms in archive.replaced.items()
        if at_ms <= now_ms - keep_ms and path in found and path.partition("/")[0] not in incomplete
    ]
    unknown = [
        path
        for path, (_, changed_ms) in found.items()
        if is_own(path)
        and path not in archive.files
        and path not in archive.replaced
        and changed_ms < now_ms - max(keep_ms, _DAY_MS)  # a task may be writing a younger one
    ]
    kept = kept_files(files, archive, unknown)
    gone = [*old, *sorted(set(unknown) - set(kept))]
    if not execute:
        return Compacted(done, len(gone), kept)
    for path in [path for path, at_ms in archive.replaced.items() if path not in found and at_ms != now_ms]:
        del archive.replaced[path]  # it was deleted earlier
    if done:
        log.write_state(files, archive)
    for path in gone:
        files.delete(path)
    log.delete_old(files)
    if problems:
        compacted = f"{len(done)} other days were compacted" if done else "No other day was to be compacted"
        raise ArchiveError(f"{listed(problems, _MOST)}. {compacted}")
    return Compacted(done, len(gone), kept)


def _days_to_compact(archive: Archive, before: dt.date, only: Collection[str] | None) -> dict[str, list[str]]:
    """Return the days before a day that have more than one file, in order, with their files."""
    days: dict[str, list[str]] = {}
    for path, file in sorted(archive.files.items()):
        if file.day < before.isoformat() and (only is None or path in only):
            days.setdefault(file.day, []).append(path)
    return {day: paths for day, paths in sorted(days.items()) if len(paths) > 1}


def kept_files(files: Files, archive: Archive, unknown: Iterable[str]) -> tuple[str, ...]:
    """Return which files that the log does not name may not be deleted.

    The log may be an older copy, and a file the only one with its records. So a file goes only if the log's files have all
    its records, or if it is hidden, because it never was complete.
    """
    kept: list[str] = []
    days: dict[str, list[str]] = {}
    for path in sorted(unknown):
        folder, _, name = path.rpartition("/")
        if not is_own(path):
            kept.append(path)
        elif not name.startswith("."):
            days.setdefault(f"{folder}/", []).append(path)
    for day, paths in days.items():
        try:
            there = merged(offsets_of(files, archive, path) for path in archive.files if path.startswith(day))
        except ArchiveError:  # a file of this day was changed or lost
            kept += paths
            continue
        for path in paths:
            try:
                found = _offsets_in(files, path)
            except ArchiveError:
                kept.append(path)
                continue
            if not all(np.isin(offsets, there.get(key, [])).all() for key, offsets in found.items()):
                kept.append(path)
    return tuple(sorted(kept))


def offsets_of(files: Files, archive: Archive, path: str) -> Offsets:
    """Return the offsets in a file that the log names, by partition.

    Raises:
        ArchiveError: If it cannot be read or was changed, or does not have as many records as the log says.
    """
    check_unchanged(files, path, archive.files[path])
    offsets = _offsets_in(files, path)
    if (rows := sum(map(len, offsets.values()))) != archive.files[path].rows:
        raise ArchiveError(
            f"{files.shown(path)} has {rows} records, but the archive's log says {archive.files[path].rows}. Restore the "
            "file from a backup"
        )
    return offsets


def _offsets_in(files: Files, path: str) -> Offsets:
    try:
        table = pq.read_table(
            files.full(path), columns=list(COORDINATES), filesystem=files.file_system, partitioning=None
        )
    except failures() as error:
        raise ArchiveError(
            f"{files.shown(path)} cannot be read: {failure_reason(error)}. Restore the file from a backup"
        ) from error
    places = table.group_by(list(COORDINATES[:4]), use_threads=False).aggregate([("offset", "list")])
    return {
        PartitionKey(*(places[name][row].as_py() for name in COORDINATES[:4])): places["offset_list"][
            row
        ].values.to_numpy()
        for row in range(places.num_rows)
    }


def merged(parts: Iterable[Offsets]) -> Offsets:
    """Return the offsets of several files in order, by partition."""
    found: dict[PartitionKey, list[np.ndarray[Any, Any]]] = {}
    for part in parts:
        for key, offsets in part.items():
            found.setdefault(key, []).append(offsets)
    return {key: np.sort(np.concatenate(offsets)) for key, offsets in sorted(found.items())}


def outside(offsets: np.ndarray[Any, Any], spans: Sequence[Span]) -> np.ndarray[Any, Any]:
    """Return the offsets that are in no span."""
    if not spans:
        return offsets
    starts, ends = np.array([s.start for s in spans]), np.array([s.end for s in spans])
    of = np.searchsorted(starts, offsets, side="right") - 1
    return offsets[(of < 0) | (offsets >= ends[of])]


def read(files: Files) -> Archive:
    """Return the state of an archive; raise `ArchiveError` if the folder is none."""
    archive = log.read(files)
    if archive is None:
        raise ArchiveError(f"{files.location} is no archive: it has no folder {log.FOLDER}. Correct the path")
    return archive


def _rewritten(files: Files, archive: Archive, day: str, paths: Sequence[str]) -> tuple[str, DataFile]:
    """Write the records of files to one new file, and return it."""
    offsets = merged(offsets_of(files, archive, path) for path in paths)
    for key, found in offsets.items():
        if (np.diff(found) == 0).any():
            twice = int(found[:-1][np.diff(found) == 0][0])
            raise ArchiveError(f"Day {day or 'without a time'} has offset {twice} of {key} twice. It was not compacted")
        if (strange := outside(found, archive.spans.get(key, ()))).size:
            raise ArchiveError(
                f"Day {day or 'without a time'} has offset {strange[0]} of {key}, which no batch of the log has read. It "
                "was not compacted"
            )
    try:
        footers = [pq.read_metadata(files.full(path), filesystem=files.file_system) for path in paths]
        schema = pa.unify_schemas([footer.schema.to_arrow_schema() for footer in footers]).remove_metadata()
        # A column that is new on this day is in none of the earlier files.
        schema = pa.schema([field.with_nullable(True) for field in schema])
    except pa.ArrowException as error:
        raise ArchiveError(
            f"The files of day {day or 'without a time'} have columns of different types, so they stay as they are: {error}"
        ) from None
    data = ds.dataset([files.full(path) for path in paths], schema=schema, filesystem=files.file_system)
    rows = sum(map(len, offsets.values()))
    size = sum(footer.row_group(i).total_byte_size for footer in footers for i in range(footer.num_row_groups))
    window = max(1, min(_WINDOW_ROWS, _WINDOW_BYTES * rows // max(size, 1)))
    out = FileWriter(files, day, None, schema)
    try:
        for key, first, last, expected in _windows(offsets, window):
            inside = (pc.field("offset") >= first) & (pc.field("offset") <= last)
            for name in COORDINATES[:4]:
                inside &= pc.field(name) == getattr(key, name)
            table = data.to_table(filter=inside).sort_by("offset")
            if not np.array_equal(table["offset"].to_numpy(), expected):
                raise ArchiveError(f"The files of day {day} changed while they were read. Run the compaction again")
            out.add(table)
        for path in paths:
            check_unchanged(files, path, archive.files[path])
        new, written = out.path, out.finish()
    except pa.ArrowException as error:  # such as values that are too large for one column
        out.abort()
        raise ArchiveError(
            f"The files of day {day or 'without a time'} cannot become one: {failure_reason(error)}. They stay as they are"
        ) from error
    except BaseException:
        out.abort()
        raise
    again = merged([offsets_of(files, Archive(files={new: written}), new)])
    if again.keys() != offsets.keys() or any(not np.array_equal(again[key], offsets[key]) for key in offsets):
        raise ArchiveError(f"{files.shown(new)} does not have the records it was made from. Nothing was changed")
    return new, written


def _windows(offsets: Offsets, size: int) -> Iterator[tuple[PartitionKey, int, int, np.ndarray[Any, Any]]]:
    """Yield parts of partitions that fit into memory: the first and the last offset, and all offsets."""
    for key, found in offsets.items():
        for i in range(0, len(found), size):
            part = found[i : i + size]
            yield key, int(part[0]), int(part[-1]), part
