"""The log of an archive, in its folder `_dynamic_kafka`: what readers see, and what makes each change one step.

* `batches/QUERY-NUMBER.json` is what a batch adds. Each query numbers its records from 1, so two queries never write the
  same file, and a record that is there already was written by another driver of the same query.
* `states/NUMBER.json` is the whole state, written by a compaction. It says which records of batches are in it. The last one
  counts.

So a reader takes the last state, and then all records that are not in it. A batch that ends while a compaction runs stays a
record of its own. Two compactions at the same time are harmless even where a file system lets both write the same number:
each state is complete in itself, and the files of both are there. Old states and records are deleted two states later.

A store that is far away answers one request after the other in tens of milliseconds, so records are read and deleted many at
a time.
"""

from __future__ import annotations

from dynamic_kafka.errors import ArchiveError
from dynamic_kafka.files import Files, open_files
from dynamic_kafka.history.archive.model import (
    Archive,
    Batch,
    decode_batch,
    decode_state,
    encode_batch,
    encode_state,
    is_data,
)
from dynamic_kafka.history.folder import in_parallel

__all__ = [
    "FOLDER",
    "begin",
    "create_record",
    "delete_old",
    "read",
    "read_archive",
    "read_record",
    "refreshed",
    "write_state",
]

FOLDER = "_dynamic_kafka"
_BATCHES, _STATES = f"{FOLDER}/batches", f"{FOLDER}/states"
_ATTEMPTS = 3


def read_archive(location: str) -> Archive | None:
    """Return the state of an archive; None if the folder is none, because it has no log.

    Args:
        location: A local path, or an address such as `s3a://bucket/path`.

    Raises:
        ArchiveError: If the log cannot be read, is damaged, or has records twice.
    """
    return read(open_files(location, ArchiveError))


def read(files: Files) -> Archive | None:
    """Return the state of the archive in a folder; None if there is no log."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _read(files)
        except ArchiveError:
            continue  # a compaction may have deleted an old state or record meanwhile
    return _read(files)


def _read(files: Files) -> Archive | None:
    # States first: a record that the state has may be gone when its folder is listed, but none that the state lacks.
    states = _states(files)
    archive = Archive()
    if states:
        path = _path(_STATES, str(max(states)))
        archive = decode_state(files.read(path), max(states), files.shown(path))
    records = sorted(_records(files))
    new = [(query, number) for query, number in records if number > archive.batches.get(query, 0)]
    have = dict(archive.batches)
    for query, number in new:
        if number != have.get(query, 0) + 1:
            missing = files.shown(_path(_BATCHES, f"{query}-{have.get(query, 0) + 1}"))
            raise ArchiveError(f"{missing} is missing, so the archive is not complete; restore it from a backup")
        have[query] = number
    added: dict[str, Batch] = {}
    for (query, number), batch in zip(new, in_parallel(lambda record: read_record(files, *record), new), strict=True):
        archive.add(query, batch, added)
        added[f"{query}-{number}"] = batch
    return archive if states or records else None


def refreshed(files: Files, archive: Archive | None) -> Archive | None:
    """Return the state of an archive, which is the known one if nobody else has written anything since.

    Args:
        files: The archive's folder.
        archive: The known state.

    Raises:
        ArchiveError: If the log cannot be read, or lacks what is known of it.
    """
    if archive is None:
        return read(files)
    files_of_log, counts = set(_records(files)), archive.batches
    expected = {
        (query, n) for query, count in counts.items() for n in range(archive.written.get(query, 0) + 1, count + 1)
    }
    nobody_wrote = all(number <= counts.get(query, 0) for query, number in files_of_log)
    if nobody_wrote and expected <= files_of_log and max(_states(files), default=0) == archive.number:
        return archive
    try:
        found = read(files) or Archive()
    except ArchiveError as error:
        problem = f". {error}"
    else:
        if found.number >= archive.number and all(found.batches.get(query, 0) >= n for query, n in counts.items()):
            return found
        problem = ""
    raise ArchiveError(
        f"The log of the archive {files.location} does not have any more what this query has read there. Was the folder "
        f"moved, its disk lost, or an older copy put back? Put the newest {FOLDER} back, and start the query again{problem}"
    )


def begin(files: Files) -> Archive:
    """Return the state of a new archive, and write it: from now on, the folder is one.

    Without a log, a reader would take files of a batch that was stopped for those of a plain folder.

    Raises:
        ArchiveError: If the folder has files: no reader would see them any more.
    """
    others = sorted(filter(is_data, files.walk()))
    if (found := read(files)) is not None:  # another query was faster
        return found
    if others:
        raise ArchiveError(
            f"The folder {files.location} has files that are not of an archive, such as {others[0]}. Name a new folder for "
            f"the archive. If it was an archive, its folder {FOLDER} is gone: restore that from a backup"
        )
    archive = Archive(number=1)
    files.create(_path(_STATES, "1"), encode_state(archive))
    return read(files) or archive


def create_record(files: Files, query: str, number: int, batch: Batch) -> bool:
    """Write the record of a batch; return False if there is one with this number already.

    Raises:
        ArchiveError: If the log cannot be written. The record may be there in spite of it.
    """
    return files.create(_path(_BATCHES, f"{query}-{number}"), encode_batch(batch))


def read_record(files: Files, query: str, number: int) -> Batch:
    """Return a batch from its record.

    Raises:
        ArchiveError: If it cannot be read or is damaged.
    """
    path = _path(_BATCHES, f"{query}-{number}")
    return decode_batch(files.read(path), files.shown(path))


def write_state(files: Files, archive: Archive) -> None:
    """Write the whole state as the next one.

    Raises:
        ArchiveError: If another compaction was faster, or the log cannot be written.
    """
    archive.number += 1
    if not files.create(_path(_STATES, str(archive.number)), encode_state(archive)):
        raise ArchiveError(
            f"Another compaction of {files.location} has just ended. Nothing was changed by this one; run it again"
        )


def delete_old(files: Files) -> None:
    """Delete the states before the last two, and the records of batches that both of these have."""
    states = sorted(_states(files))
    if len(states) < 2:
        return
    path = _path(_STATES, str(states[-2]))
    kept = decode_state(files.read(path), states[-2], files.shown(path)).batches
    old = [_path(_STATES, str(number)) for number in states[:-2]]
    old += [_path(_BATCHES, f"{query}-{number}") for query, number in _records(files) if number <= kept.get(query, 0)]
    list(in_parallel(files.delete, old))


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.json"


def _states(files: Files) -> list[int]:
    names = (name.removesuffix(".json") for name in files.names(_STATES))
    return [int(name) for name in names if name.isdecimal()]


def _records(files: Files) -> list[tuple[str, int]]:
    found = (name.removesuffix(".json").rpartition("-") for name in files.names(_BATCHES) if name.endswith(".json"))
    return [(query, int(number)) for query, _, number in found if number.isdecimal()]
