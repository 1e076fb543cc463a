"""What a history is: files with rows, in a fixed order, as if they were one long list of rows. Pure.

A position in a history is a number of rows: those of all files, in order. So a batch is a range of rows, and its files and
their rows follow from the list of files alone. Offsets that no file has, and Kafka has, are in the list like a file: a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dynamic_kafka.history.coverage import Part  # which imports numpy, and Spark's sessions import this module

__all__ = [
    "HISTORY_ROW",
    "FrozenHistory",
    "HistoryFile",
    "HistoryGap",
    "HistoryPiece",
    "HistoryTask",
    "Inspected",
    "LargestOffsets",
    "Place",
    "TimeLimit",
    "pieces",
]

HISTORY_ROW = "history_row"
"""The column with the rows of a table that a history has decoded already, a struct. It is null for records, also those of a
history. `sql.connectors.scan` asks for it; it is no column for users. Its metadata names the columns that files may lack."""

Place = tuple[str, str, int]
"""Cluster, topic and partition; the cluster is "" if the files do not name it."""

LargestOffsets = Mapping[Place, int]
"""The largest offset of each place."""


class HistoryFile(NamedTuple):
    """A file of a history.

    Attributes:
        path: Its path, relative to the history's folder; or a whole address.
        size: Its size in bytes.
        modified_ns: When it was changed, in nanoseconds since 1970; 0 if the file system does not say.
        checksum: CRC-32 of what it is recognized by if it was changed at another time: of Parquet the footer, else all.
        rows: The rows of each part that can be read alone: the row groups of Parquet, else one number.
        values: Columns that are not in the file, as texts: those in the names of its folders. None is null.
    """

    path: str
    size: int
    modified_ns: int
    checksum: int
    rows: tuple[int, ...]
    values: Mapping[str, str | None] = {}


class HistoryGap(NamedTuple):
    """Offsets [start, end) that no file of a history has. They are read from Kafka, in their place among the files.

    Attributes:
        cluster: The name of the cluster when the query began.
        kafka_id: Kafka's own cluster.id, by which it is found under another name; "" if it is unknown.
        topic: The topic.
        partition: The partition.
        start: The first offset.
        end: The offset after the last one.
    """

    cluster: str
    kafka_id: str
    topic: str
    partition: int
    start: int
    end: int

    @property
    def path(self) -> str:
        """What stands for a path: a gap is in no file."""
        return ""

    @property
    def size(self) -> int:
        """The bytes that are known before it is read: none."""
        return 0

    @property
    def rows(self) -> tuple[int, ...]:
        """Its offsets, as one part. Some may have no record."""
        return (self.end - self.start,)


class Inspected(NamedTuple):
    """What a file says of itself.

    Attributes:
        file: The file with its rows.
        columns: Its columns.
        parts: The offsets of its rows by place, in order, if they were asked for.
        earliest: The earliest time, in microseconds or whatever orders the files; None if it is not known.
        decoded: True if its columns are those of the table.
    """

    file: HistoryFile
    columns: frozenset[str]
    parts: tuple[tuple[Place, Part], ...]
    earliest: Any
    decoded: bool


class TimeLimit(NamedTuple):
    """Rows at or after a time are left out: Kafka has them.

    Attributes:
        column: The column with the time.
        before_ms: The time in milliseconds since 1970.
    """

    column: str
    before_ms: int


@dataclass(frozen=True, slots=True)
class FrozenHistory:
    """What a history was when the query first started, or what is left to say of it once it was read.

    Args:
        location: The folder, as the user named it.
        format: One of the names in `formats.FORMATS`.
        evidence: What was frozen, for people: "12 files", "version 17 of the table".
        rows: The number of rows of all files, and of offsets of all gaps.
        files: The files and gaps; none once all of them were read.
        cluster: The cluster of rows that do not name one.
        limit: Rows that are left out.
        decoded: True if the files hold the columns of a table, false if they hold records of Kafka.
    """

    location: str
    format: str
    evidence: str
    rows: int
    files: tuple[HistoryFile | HistoryGap, ...] = field(repr=False)
    cluster: str = ""
    limit: TimeLimit | None = None
    decoded: bool = False


class HistoryPiece(NamedTuple):
    """Rows [first, last) of a file, or offsets of a gap, counted from its beginning."""

    file: HistoryFile | HistoryGap
    first: int
    last: int


class HistoryTask(NamedTuple):
    """The work of a Spark task on a history.

    Attributes:
        history: The history, without its files.
        pieces: What to read, in order.
        where: Returns, for a schema of Arrow, an expression that is true for all wanted rows, or None.
    """

    history: FrozenHistory
    pieces: list[HistoryPiece]
    where: Callable[[Any], Any] | None = None


def pieces(history: FrozenHistory, start: int, end: int) -> Iterator[HistoryPiece]:
    """Yield the rows [start, end) of a history as pieces, each one within a part that can be read alone."""
    position = 0
    for file in history.files:
        if position >= end:
            return
        first = 0
        for rows in file.rows:
            begin, after = max(start - position, 0), min(end - position, rows)
            if begin < after:
                yield HistoryPiece(file, first + begin, first + after)
            position += rows
            first += rows
