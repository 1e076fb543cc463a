"""An archive as a Delta table: a log of Delta in the archive's folder that names the archive's own files.

The log of the archive stays the truth. Publishing compares the two, and makes the table what the archive is:
files that batches have added come in, and those that a compaction has replaced go out. So each version of the table has each
record once. Nothing is copied. A compaction is a commit of its own that changes no data: streams of the table skip it.

Only publishing writes the table. A commit of anybody else ends it with an error, because the next one would undo it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dynamic_kafka.errors import ArchiveError, MissingDependencyError
from dynamic_kafka.files import Files, open_files
from dynamic_kafka.history.archive.compaction import read
from dynamic_kafka.history.archive.model import DataFile, is_compacted
from dynamic_kafka.history.delta import address_of, rows_of

__all__ = ["Published", "is_published", "publish", "published_files"]

_LOG = "_delta_log"
_MARK = "dynamic_kafka"
_CONFIGURATION = {
    # VACUUM deletes what the table does not name: new files of the archive, and its own log is all that knows them.
    "delta.deletedFileRetentionDuration": "interval 5200 weeks",
}


class Published(NamedTuple):
    """What publishing has done.

    Args:
        version: The version of the table that is the archive now.
        added: The number of files that came in.
        removed: The number of files that went out.
    """

    version: int
    added: int
    removed: int


def is_published(location: str) -> bool:
    """Return whether the archive is a Delta table, too."""
    return any(name.endswith(".json") for name in open_files(location, ArchiveError).names(_LOG))


def published_files(location: str) -> set[str]:
    """Return the paths of the files in the table."""
    return set(rows_of(_opened(location)))


def publish(location: str) -> Published:
    """Make the Delta table in an archive's folder what the archive is now; make the table if there is none.

    Args:
        location: The archive's folder.

    Raises:
        ArchiveError: If it is no archive or has no files, if somebody else has written the table, or another run of this was
            faster.
        MissingDependencyError: If deltalake is not installed.
    """
    files = open_files(location, ArchiveError)
    shown = f"The Delta table in {location}"
    # The table first: if another run publishes a later state meanwhile, the commit of this one is refused.
    table = _opened(location) if is_published(location) else None
    archive = read(files)
    if table is not None and _MARK not in table.history(1)[0]:
        raise ArchiveError(
            f"{shown} was written by something else than its archive, in version {table.version()}. Restore the version "
            "before it, or move the folder _delta_log away and publish again"
        )
    if table is None and not archive.files:
        raise ArchiveError(f"The archive {location} has no records yet, so a table of it would have no columns")
    published = {} if table is None else rows_of(table)
    added = {path: file for path, file in archive.files.items() if path not in published}
    removed = {path: rows for path, rows in published.items() if path not in archive.files}
    replacing = {path: file for path, file in added.items() if is_compacted(path)} if removed else {}
    # Rows leave a file only by a compaction, which puts the same rows into another one.
    is_compaction = sum(file.rows for file in replacing.values()) == sum(rows or 0 for rows in removed.values())
    rest = {path: file for path, file in added.items() if path not in replacing}
    commits = [(replacing, removed), (rest, {})] if is_compaction else [(added, removed)]
    for come, go in commits:
        if not come and not go:
            continue
        try:
            _commit(table, location, _schema(files, come), come, go, changed=not (go and is_compaction))
        except (OSError, ValueError, pa.ArrowException) as error:
            after = "" if table is None else f" after version {table.version()}"
            raise ArchiveError(f"{shown} was not changed{after}: {str(error).partition(chr(10))[0]}") from error
        table = _opened(location)
    assert table is not None
    if (added or removed) and rows_of(table).keys() != archive.files.keys():
        raise ArchiveError(
            f"{shown} does not name the archive's files in version {table.version()}. Did two runs publish it at "
            "the same time? Run it again"
        )
    return Published(table.version(), len(added), len(removed))


def _opened(location: str) -> Any:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise MissingDependencyError("deltalake", "deltalake", "to publish an archive as a Delta table") from None
    try:
        return DeltaTable(address_of(location))
    except (DeltaError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ArchiveError(f"The Delta table in {location} cannot be read: {reason}") from error


def _commit(
    table: Any,
    location: str,
    found: pa.Schema,
    added: Mapping[str, DataFile],
    removed: Mapping[str, int | None],
    *,
    changed: bool,
) -> None:
    """Commit a change; raise OSError if another run was faster."""
    try:
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
    except ImportError:
        raise MissingDependencyError("deltalake", "deltalake", "to publish an archive as a Delta table") from None
    now_ms = int(time.time() * 1000)
    adds = [
        AddAction(
            path, file.size_bytes, {"day": file.day or None}, now_ms, changed, json.dumps({"numRecords": file.rows})
        )
        for path, file in sorted(added.items())
    ]
    # Tried once: after another commit, what is to be changed is not known any more.
    once = CommitProperties(custom_metadata={_MARK: "archive"}, max_commit_retries=0)
    schema = Schema.from_arrow(found)
    try:
        if table is None:
            create_table_with_add_actions(
                address_of(location),
                schema,
                adds,
                "error",
                ["day"],
                configuration=_CONFIGURATION,
                commit_properties=once,
            )
            return
        known = {field.name for field in table.schema().fields}
        if new := [field for field in schema.fields if field.name not in known]:
            table.alter.add_columns(new, commit_properties=once)
        removes = [RemoveAction(path, changed, now_ms) for path in sorted(removed)]
        table.create_write_transaction([*removes, *adds], "append", table.schema(), ["day"], commit_properties=once)
    except DeltaError as error:
        raise OSError(f"{error}. Was it published twice at the same time? Run it again") from error


def _schema(files: Files, added: Iterable[str]) -> pa.Schema:
    """Return the columns of some files, with the day. Instants are UTC in a file, whatever zone it names."""
    found = [pq.read_schema(files.full(path), filesystem=files.file_system).remove_metadata() for path in added]
    columns = pa.unify_schemas(found)
    utc = [
        field.with_type(pa.timestamp("us", "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in columns
    ]
    return pa.schema([*utc, ("day", pa.date32())])
