"""The Parquet files of an archive: rows of a batch become one file for each task and day.

A row is checked before it is written: its offset is one that the batch reads, and within a task the offsets of a partition
grow. So with the check of the driver that two tasks have no offsets in common, no record can be written twice.

The SHA-256 of a file is that of the bytes that the task gives to the file system. They are not read again for it, so damage
on the way is found, too.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dynamic_kafka.errors import ArchiveError
from dynamic_kafka.files import Files, open_files
from dynamic_kafka.filesystems import failure_reason, failures
from dynamic_kafka.history.archive.model import DataFile, path_of
from dynamic_kafka.history.archive.plan import AS_THE_SOURCE, Part, Plan, Written
from dynamic_kafka.history.folder import NULL
from dynamic_kafka.history.model import Place

__all__ = ["COORDINATES", "NEEDED", "FileWriter", "check_unchanged", "write_parts"]

NEEDED = ("cluster", "topic", "partition", "offset", "timestamp")
"""The columns without which rows cannot be archived."""
COORDINATES = ("cluster_id", "topic", "topic_id", "partition", "offset")
"""The columns that identify a record, in the order of a compacted file."""
_BUFFERED_BYTES = 64 << 20
_OPEN_FILES = 100
_READ_BYTES = 4 << 20
_FIRST_DAY, _LAST_DAY = ((day - dt.date(1970, 1, 1)).days for day in (dt.date.min, dt.date.max))
_MICROSECONDS = pa.timestamp("us", tz="UTC")


def write_parts(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of a task.

    Args:
        plan: The plan of the batch.
        batches: The rows.

    Raises:
        ArchiveError: If a row is none that the batch reads, or one comes twice. Files of this call are deleted then.
    """
    written = Written()
    days = _Days(open_files(plan.location, ArchiveError), plan.batch, written)
    try:
        for batch in batches:
            if batch.num_rows:
                days.add(_checked(batch, plan.parts, written))
        days.close()
    except BaseException:
        days.abort()
        raise
    return written


def _checked(batch: pa.RecordBatch, parts: Mapping[Place, Part], written: Written) -> pa.Table:
    """Return the rows that are new, with `cluster_id` and `topic_id`."""
    clusters, topics = (_column(batch, name).dictionary_encode() for name in ("cluster", "topic"))
    partitions, offsets = (_column(batch, name).to_numpy(zero_copy_only=False) for name in ("partition", "offset"))
    keys = np.stack([clusters.indices.to_numpy(), topics.indices.to_numpy(), partitions])
    cuts = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1  # rows of a partition follow each other mostly
    ids, topic_ids = [], []
    keep = np.ones(len(offsets), dtype=bool)
    for run in np.split(np.arange(len(offsets)), cuts):
        first = run[0]
        name = (
            clusters.dictionary[keys[0, first]].as_py(),
            topics.dictionary[keys[1, first]].as_py(),
            int(keys[2, first]),
        )
        part = parts.get(name)
        found = offsets[run]
        if part is None or found.min() < part.start or found.max() >= part.end:
            raise ArchiveError(
                f"A row with offset {found.min()} of cluster '{name[0]}', topic '{name[1]}', partition {name[2]} is none "
                f"that this batch reads. {AS_THE_SOURCE}"
            )
        low, high = written.offsets.get(name, (int(found[0]), -1))
        if found[0] <= high or (np.diff(found) <= 0).any():
            raise ArchiveError(
                f"The offsets of cluster '{name[0]}', topic '{name[1]}', partition {name[2]} are not in order, or come "
                "twice. Archive the stream as the source gives it: before joins, explode and repartition"
            )
        written.offsets[name] = low, int(found[-1])
        rows = written.rows.setdefault(name, [0] * len(part.new))
        if list(part.new) == [(part.start, part.end)]:
            rows[0] += len(found)
        else:
            keep[run] = False
            for i, (start, end) in enumerate(part.new):
                inside = (found >= start) & (found < end)
                rows[i] += int(inside.sum())
                keep[run] |= inside
        ids += [part.key.cluster_id] * len(run)
        topic_ids += [part.key.topic_id] * len(run)
    table = _with_ids(pa.Table.from_batches([batch]), ids, topic_ids)
    return table if keep.all() else table.filter(pa.array(keep))


def _column(batch: pa.RecordBatch, name: str) -> Any:
    column = batch.column(name)
    if column.null_count:
        raise ArchiveError(f"A row has no {name}. {AS_THE_SOURCE}")
    return column


def _with_ids(table: pa.Table, ids: list[str], topic_ids: list[str]) -> pa.Table:
    time = table.schema.get_field_index("timestamp")
    table = table.set_column(time, "timestamp", table.column(time).cast(_MICROSECONDS))
    for name, values in (("cluster_id", ids), ("topic_id", topic_ids)):
        table = table.append_column(name, pa.array(values, pa.string()))
    return table


class _Days:
    """The files of a task: one for each day, or more if there are many days; written in groups of rows of some megabytes."""

    def __init__(self, files: Files, number: int, written: Written) -> None:
        self._files, self._number, self._written = files, number, written
        self._waiting: dict[str, list[pa.Table]] = {}
        self._bytes: dict[str, int] = {}
        self._open: dict[str, FileWriter] = {}

    def add(self, table: pa.Table) -> None:
        days = _days(table.column("timestamp"))
        for day in pc.unique(days):
            rows = table.filter(pc.equal(days, day) if day.is_valid else pc.is_null(days))
            name = str(day.as_py()) if day.is_valid else ""
            self._waiting.setdefault(name, []).append(rows)
            self._bytes[name] = self._bytes.get(name, 0) + rows.nbytes
        while sum(self._bytes.values()) > _BUFFERED_BYTES:
            self._flush(max(self._bytes, key=self._bytes.__getitem__))

    def _flush(self, day: str) -> None:
        tables = self._waiting.pop(day)
        del self._bytes[day]
        table = pa.concat_tables(tables)
        if day not in self._open:
            if len(self._open) >= _OPEN_FILES:  # a process may have so many
                self._finish(next(iter(self._open)))
            self._open[day] = FileWriter(self._files, day, self._number, table.schema)
        self._open[day].add(table)

    def close(self) -> None:
        for day in list(self._waiting):
            self._flush(day)
        for day in list(self._open):
            self._finish(day)

    def _finish(self, day: str) -> None:
        writer = self._open[day]
        self._written.files[writer.path] = writer.finish()
        del self._open[day]

    def abort(self) -> None:
        for writer in self._open.values():
            writer.abort()
        for path in self._written.files:
            with suppress(Exception):  # a compaction deletes it then
                self._files.delete(path)


def _days(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the days of times in UTC; null also for those outside of the years 1 to 9999, which have no name."""
    days = times.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.date32())
    number = days.cast(pa.int32())
    is_named = pc.and_(pc.greater_equal(number, _FIRST_DAY), pc.less_equal(number, _LAST_DAY))
    return pc.if_else(is_named, days, pa.scalar(None, pa.date32()))


class _Hashing(io.RawIOBase):
    """A stream that counts and hashes what is written to it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size_bytes = 0
        self.hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self.hash.update(data)
        self.size_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size_bytes

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class FileWriter:
    """Writes a new file. It is hidden, where that is possible, until it is finished.

    Args:
        files: The archive's folder.
        day: The day of the file.
        number: The number of Spark's batch; None for a compacted file.
        schema: The columns.
    """

    def __init__(self, files: Files, day: str, number: int | None, schema: pa.Schema) -> None:
        self.path = path_of(day or NULL, number, uuid.uuid4().hex)
        self._files, self._day, self._rows = files, day, 0
        place = files.full(files.hidden(self.path))
        try:
            with self._failing():
                files.file_system.create_dir(place.rpartition("/")[0], recursive=True)
                self._stream = _Hashing(files.file_system.open_output_stream(place))
                # Readers of Parquet compare the checksums of pages, which finds damage without reading the whole file.
                self._parquet = pq.ParquetWriter(self._stream, schema, compression="zstd", write_page_checksum=True)
        except ArchiveError:
            self.abort()
            raise

    def add(self, table: pa.Table) -> None:
        """Write rows."""
        with self._failing():
            self._parquet.write_table(table)
        self._rows += table.num_rows

    def finish(self) -> DataFile:
        """Complete the file, give it its name, and return what the log says of it."""
        with self._failing():
            self._parquet.close()
            self._stream.close()
        self._files.reveal(self.path)
        return DataFile(self._day, self._rows, self._stream.size_bytes, self._stream.hash.hexdigest())

    def _failing(self) -> AbstractContextManager[None]:
        # Not the errors of Arrow: it refuses rows, and nothing is wrong with the file system then.
        return self._files.failing(self.path, "written", (OSError,))

    def abort(self) -> None:
        """Delete the file. An error led here and is the one to show; what stays is deleted by a compaction."""
        with suppress(Exception):
            self._parquet.close()
        with suppress(Exception):
            self._stream.close()
        with suppress(AttributeError):  # without it, it is closed again when it is collected, and the error is shown
            self._parquet.is_open = False
        for left in (self._files.hidden(self.path), self.path):
            with suppress(Exception):
                self._files.delete(left)


def check_unchanged(files: Files, path: str, file: DataFile) -> None:
    """Read a file as a whole, and compare it with what the log says of it.

    Raises:
        ArchiveError: If it cannot be read, or was changed.
    """
    size_bytes, found = 0, hashlib.sha256()
    try:
        with files.file_system.open_input_stream(files.full(path)) as stream:
            while data := stream.read(_READ_BYTES):
                size_bytes += len(data)
                found.update(data)
    except failures() as error:
        raise ArchiveError(
            f"{files.shown(path)} cannot be read: {failure_reason(error)}. Restore the file from a backup"
        ) from error
    if found.hexdigest() != file.sha256:
        raise ArchiveError(
            f"{files.shown(path)} was changed: the archive's log says {file.size_bytes} bytes with the SHA-256 "
            f"{file.sha256}, and it has {size_bytes} with {found.hexdigest()}. Restore the file from a backup"
        )
