"""The Parquet files of an archive: rows of a batch become one file for each task and day.

A row is checked before it is written: its offset is one that the batch reads, and within a task the offsets of a partition
grow. So with the check of the driver that two tasks have no offsets in common, no record can be written twice.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dynamic_kafka.errors import ArchiveError
from dynamic_kafka.files import Files, open_files
from dynamic_kafka.history.archive.model import DataFile
from dynamic_kafka.history.archive.plan import AS_THE_SOURCE, Part, Place, Plan, Written

__all__ = ["COORDINATES", "NEEDED", "new_path", "write_parts", "writer"]

NEEDED = ("cluster", "topic", "partition", "offset", "timestamp")
"""The columns without which rows cannot be archived."""
COORDINATES = ("cluster_id", "topic", "topic_id", "partition", "offset")
"""The columns that identify a record, in the order of a compacted file."""
_BUFFERED_BYTES = 64 << 20
_NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # as Spark and Hive name the folder of null
_FIRST_DAY, _LAST_DAY = ((day - dt.date(1970, 1, 1)).days for day in (dt.date.min, dt.date.max))
_MICROSECONDS = pa.timestamp("us", tz="UTC")


def new_path(day: str, number: int | None) -> str:
    """Return a path for a new file, which no other file has ever had.

    Args:
        day: The day.
        number: The number of Spark's batch, None for a compacted file. A day's files are read in the order of their names:
            those of later batches later.
    """
    name = "all" if number is None else f"batch-{number:012}"
    return f"day={day or _NO_DAY}/{name}-{uuid.uuid4().hex}.parquet"


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
    clusters, topics = (_encoded(batch, name) for name in ("cluster", "topic"))
    partitions = _numbers(batch, "partition")
    offsets = _numbers(batch, "offset")
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


def _encoded(batch: pa.RecordBatch, name: str) -> Any:
    column = batch.column(name)
    if column.null_count:
        raise ArchiveError(f"A row has no {name}. Archive the stream as the source gives it")
    return column.dictionary_encode()


def _numbers(batch: pa.RecordBatch, name: str) -> np.ndarray[Any, Any]:
    column = batch.column(name)
    if column.null_count:
        raise ArchiveError(f"A row has no {name}. Archive the stream as the source gives it")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _with_ids(table: pa.Table, ids: list[str], topic_ids: list[str]) -> pa.Table:
    time = table.schema.get_field_index("timestamp")
    table = table.set_column(time, "timestamp", table.column(time).cast(_MICROSECONDS))
    for name, values in (("cluster_id", ids), ("topic_id", topic_ids)):
        table = table.append_column(name, pa.array(values, pa.string()))
    return table


class _Days:
    """The files of a task, one for each day; each is written in groups of rows of some megabytes."""

    def __init__(self, files: Files, number: int, written: Written) -> None:
        self._files, self._number, self._written = files, number, written
        self._waiting: dict[str, list[pa.Table]] = {}
        self._bytes: dict[str, int] = {}
        self._open: dict[str, tuple[str, pq.ParquetWriter]] = {}
        self._rows: dict[str, int] = {}

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
            path = new_path(day, self._number)
            self._open[day] = path, writer(self._files, path, table.schema)
        self._open[day][1].write_table(table)
        self._rows[day] = self._rows.get(day, 0) + table.num_rows

    def close(self) -> None:
        for day in list(self._waiting):
            self._flush(day)
        for day, (path, open_) in self._open.items():
            open_.close()
            size = self._files.file_system.get_file_info(self._files.full(self._files.hidden(path))).size
            self._files.reveal(path)
            self._written.files[path] = DataFile(day, self._rows[day], size)

    def abort(self) -> None:
        for path, open_ in self._open.values():
            with suppress(
                Exception
            ):  # the error that led here is the one to show; what stays is deleted by a compaction
                open_.close()
            for left in (self._files.hidden(path), path):
                with suppress(Exception):
                    self._files.delete(left)


def _days(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the days of times in UTC; null also for those outside of the years 1 to 9999, which have no name."""
    days = times.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.date32())
    number = days.cast(pa.int32())
    is_named = pc.and_(pc.greater_equal(number, _FIRST_DAY), pc.less_equal(number, _LAST_DAY))
    return pc.if_else(is_named, days, pa.scalar(None, pa.date32()))


def writer(files: Files, path: str, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a new file. It is hidden, where that is possible, until `Files.reveal`."""
    place = files.full(files.hidden(path))
    files.file_system.create_dir(place.rpartition("/")[0], recursive=True)
    return pq.ParquetWriter(place, schema, filesystem=files.file_system, compression="zstd")
