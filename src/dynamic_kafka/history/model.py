"""What a history is: files with rows, in a fixed order, as if they were one long list of rows. Pure.

A position in a history is a number of rows: those of all files, in order. So a batch is a range of rows, and its files and
their rows follow from the list of files alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "FrozenHistory",
    "HistoryFile",
    "HistoryPiece",
    "HistoryTask",
    "Inspected",
    "LargestOffsets",
    "TimeLimit",
    "pieces",
]

LargestOffsets = Mapping[tuple[str, str, int], int]
"""The largest offset of each cluster, topic and partition; the cluster is "" if the files do not name it."""


class HistoryFile(NamedTuple):
    """A file of a history.

    Attributes:
        path: Its path, relative to the history's folder; or a whole address.
        size: Its size in bytes. With `modified_ns` the evidence that it is the same file.
        modified_ns: When it was changed, in nanoseconds since 1970; 0 if the file system does not say.
        rows: The rows of each part that can be read alone: the row groups of Parquet, else one number.
        values: Columns that are not in the file, as texts: those in the names of its folders. None is null.
    """

    path: str
    size: int
    modified_ns: int
    rows: tuple[int, ...]
    values: Mapping[str, str | None] = {}


class Inspected(NamedTuple):
    """What a file says of itself.

    Attributes:
        file: The file with its rows.
        columns: Its columns.
        largest: The largest offset by cluster, topic and partition, if it was asked for.
        earliest: The earliest time, in microseconds or whatever orders the files; None if it is not known.
        decoded: True if its columns are those of the table.
    """

    file: HistoryFile
    columns: frozenset[str]
    largest: Mapping[tuple[str, str, int], int]
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
        rows: The number of rows of all files.
        files: The files; none once all of them were read.
        cluster: The cluster of rows that do not name one.
        limit: Rows that are left out.
        decoded: True if the files hold the columns of a table, false if they hold records of Kafka.
    """

    location: str
    format: str
    evidence: str
    rows: int
    files: tuple[HistoryFile, ...] = field(repr=False)
    cluster: str = ""
    limit: TimeLimit | None = None
    decoded: bool = False


class HistoryPiece(NamedTuple):
    """Rows [first, last) of a file, counted from its beginning."""

    file: HistoryFile
    first: int
    last: int


class HistoryTask(NamedTuple):
    """The work of a Spark task on a history.

    Attributes:
        history: The history, without its files.
        pieces: What to read, in order.
    """

    history: FrozenHistory
    pieces: list[HistoryPiece]


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
