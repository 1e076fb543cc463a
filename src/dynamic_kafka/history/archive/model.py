"""What is in an archive, and how a batch and a compaction change it. Pure.

An archive is a set of records by coordinates, and it knows which offsets of each partition it has read: *spans*. Rules:

1. A batch adds only offsets that are in no span yet. So a batch that is repeated after a crash, or read by another query or
   from another checkpoint, adds what is missing and nothing twice.
2. A span has the number of its records. It may be smaller than the number of its offsets: markers of transactions, records
   that Kafka has compacted away, and those that the query filters, leave gaps within a span. An offset outside of all spans
   was never read.
3. A compaction replaces files by others with the same records. It changes no span.
4. A replaced file stays until it has been replaced for some time, because a reader may have an earlier list of files.
5. A file never changes. The log has the SHA-256 of its bytes as they were written. A shorter checksum would find damage, but
   not that somebody has replaced a value and made the checksum fit.

Texts are canonical JSON. The record of a batch has what it adds, and a state has everything.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dynamic_kafka.errors import ArchiveError

__all__ = [
    "NOTHING",
    "Archive",
    "Batch",
    "DataFile",
    "PartitionKey",
    "Span",
    "decode_batch",
    "decode_state",
    "encode_batch",
    "encode_state",
    "is_compacted",
    "is_data",
    "is_own",
    "joined",
    "missing",
    "path_of",
]

_VERSION = 1
_COMPACTED = "all"
_OWN = re.compile(rf"day=[^/]*/\.?(batch-[0-9]{{12,}}|{_COMPACTED})-[0-9a-f]{{32}}\.parquet")
NOTHING = '{"version":1,"files":{},"names":{},"spans":[],"batch":-1}'
"""The record of a batch that adds nothing."""


class PartitionKey(NamedTuple):
    """A partition, by the identity of its cluster and topic.

    Args:
        cluster_id: Kafka's own cluster.id.
        topic: The topic's name.
        topic_id: The first 11 characters of the topic id; "" if the brokers have none.
        partition: The partition's number.
    """

    cluster_id: str
    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"cluster {self.cluster_id}, topic '{self.topic}', partition {self.partition}"


class Span(NamedTuple):
    """Offsets of a partition that were read, from `start` to before `end`, and the number of records in them."""

    start: int
    end: int
    rows: int


class DataFile(NamedTuple):
    """A Parquet file.

    Args:
        day: The day of its records' timestamps in UTC, such as `2013-01-31`; "" for records without a timestamp.
        rows: The number of its records.
        size_bytes: Its size.
        sha256: The SHA-256 of its bytes, in hexadecimal digits.
    """

    day: str
    rows: int
    size_bytes: int
    sha256: str


class Batch(NamedTuple):
    """What a batch adds.

    Args:
        files: Its files by path.
        spans: What it has read; without gaps between, each partition has one span.
        names: The clusters' names in the column `cluster` by cluster.id.
        number: The number of Spark's batch; -1 in a record that was emptied.
    """

    files: Mapping[str, DataFile]
    spans: Mapping[PartitionKey, Sequence[Span]]
    names: Mapping[str, str]
    number: int


@dataclass(slots=True)
class Archive:
    """The state of an archive.

    Args:
        number: The number of the last state that was written as a whole; 0 if there is none.
        files: The files with the archive's records, by path.
        spans: The spans of each partition, in order, with something between each two.
        names: The clusters' names in the column `cluster` by cluster.id; the last one, if a cluster was renamed.
        batches: The number of records of batches that are in this state, by the query that wrote them.
        replaced: The files that compactions have replaced, and when (milliseconds since 1970).
        last: The number of Spark's last batch that is in this state, by query.
        written: What `batches` was in the last state that was written as a whole. The records after these are files.
    """

    number: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    spans: dict[PartitionKey, list[Span]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict, compare=False)

    def positions(self) -> dict[PartitionKey, int]:
        """Return the offset after the last one that was read, for each partition."""
        return {key: spans[-1].end for key, spans in self.spans.items()}

    def add(self, query: str, batch: Batch, before: Mapping[str, Batch] | None = None) -> None:
        """Add a batch, whose record is the next one of its query.

        Args:
            query: The query's id.
            batch: The batch.
            before: The batches that were added since the last state that is written, by the name of their record.

        Raises:
            ArchiveError: If it has offsets or files that are here already.
        """
        if twice := batch.files.keys() & (self.files.keys() | self.replaced.keys()):
            raise ArchiveError(f"The file {min(twice)} is in two batches of the archive. Was the log copied or edited?")
        number = self.batches.get(query, 0) + 1
        try:
            found = {key: joined(self.spans.get(key, ()), spans, key) for key, spans in batch.spans.items()}
        except ArchiveError as error:
            name, lost = _least({**(before or {}), f"{query}-{number}": batch}, batch)
            raise ArchiveError(
                f"{error}: in the record {query}-{number}.json in _dynamic_kafka/batches and in another one. Were they "
                f"written by two queries at the same time? Stop both. Then replace the text of {name}.json there by "
                f"{NOTHING}. Of its {lost} offsets, those that no other record has are missing then, and a query with a new "
                "checkpoint adds them, as long as Kafka has them"
            ) from None
        self.spans.update(found)
        self.files.update(batch.files)
        self.names.update(batch.names)
        self.batches[query] = number
        if batch.number >= 0:
            self.last[query] = batch.number

    def replace(self, old: Iterable[str], new: Mapping[str, DataFile], now_ms: int) -> None:
        """Replace files by others with the same records.

        Raises:
            ArchiveError: If a file is not here, or the numbers of records differ.
        """
        gone = {path: self.files.get(path) for path in old}
        for path, file in gone.items():
            if file is None:
                raise ArchiveError(f"The file {path} is not in the archive any more, so it cannot be compacted")
        before, after = (sum(file.rows for file in files.values() if file) for files in (gone, new))
        if before != after:
            raise ArchiveError(f"Compaction would turn {before} records into {after}. Nothing was changed")
        for path in gone:
            del self.files[path]
        self.replaced |= dict.fromkeys(gone, now_ms)
        self.files |= new


def path_of(day: str, number: int | None, unique: str) -> str:
    """Return the path of a new file.

    Args:
        day: The day, as its folder has it.
        number: The number of Spark's batch, None for a compacted file. A day's files are read in the order of their names:
            those of later batches later.
        unique: 32 hexadecimal digits that no other file has.
    """
    name = _COMPACTED if number is None else f"batch-{number:012}"
    return f"day={day}/{name}-{unique}.parquet"


def is_compacted(path: str) -> bool:
    """Return whether a file of an archive was made by a compaction."""
    return path.rpartition("/")[2].startswith(f"{_COMPACTED}-")


def is_own(path: str) -> bool:
    """Return whether a file has a name that an archive gives, also while it is hidden: of a batch or a compaction."""
    return _OWN.fullmatch(path) is not None


def is_data(path: str) -> bool:
    """Return whether a file in an archive's folder may have records: the archive's own, and all that readers would see."""
    hidden = (part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.split("/"))
    return is_own(path) or not any(hidden)


def joined(spans: Sequence[Span], more: Iterable[Span], key: PartitionKey) -> list[Span]:
    """Return spans in order, of which those that follow each other are one.

    Raises:
        ArchiveError: If two of them have offsets in common.
    """
    result: list[Span] = []
    for span in sorted([*spans, *more]):
        last = result[-1] if result else None
        if last is not None and span.start == span.end <= last.end:
            continue
        if last is not None and span.start < last.end:
            raise ArchiveError(f"The archive has offsets {span.start} to {min(span.end, last.end) - 1} of {key} twice")
        if last is not None and span.start == last.end:
            result[-1] = Span(last.start, span.end, last.rows + span.rows)
        else:
            result.append(span)
    return result


def _least(batches: Mapping[str, Batch], batch: Batch) -> tuple[str, int]:
    """Return which batch has the fewest offsets, and how many, of those that have offsets in common with one.

    Only records that no written state has yet can be emptied: a state has what they added.
    """
    counts = {
        name: sum(span.end - span.start for spans in other.spans.values() for span in spans)
        for name, other in batches.items()
        if any(
            missing(span.start, span.end, sorted(other.spans.get(key, ()))) != [(span.start, span.end)]
            for key, spans in batch.spans.items()
            for span in spans
            if span.start < span.end
        )
    }
    name = min(counts, key=counts.__getitem__)
    return name, counts[name]


def missing(start: int, end: int, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return the offsets from `start` to before `end` that are in no span, as ranges."""
    result = []
    for span in spans[max(0, bisect_right(spans, (start,)) - 1) :]:
        if span.start >= end:
            break
        if span.end > start:
            if span.start > start:
                result.append((start, span.start))
            start = span.end
    if start < end:
        result.append((start, end))
    return result


# --- texts --------------------------------------------------------------------------------------------------------


def encode_batch(batch: Batch) -> str:
    """Return the record of a batch."""
    return _text(
        {
            "version": _VERSION,
            "names": batch.names,
            "spans": _spans(batch.spans),
            "files": _files(batch.files),
            "batch": batch.number,
        }
    )


def decode_batch(text: str, place: str) -> Batch:
    """Return the batch of a record. `place` is its file, for errors.

    Raises:
        ArchiveError: If the text is damaged or has a newer version.
    """
    value = _value(text, place, _OR_DELETE)
    try:
        return Batch(_files_of(value["files"]), _spans_of(value["spans"]), dict(value["names"]), int(value["batch"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(place, error, _OR_DELETE) from None


def encode_state(archive: Archive) -> str:
    """Return the text of a state."""
    return _text(
        {
            "version": _VERSION,
            "names": archive.names,
            "batches": archive.batches,
            "spans": _spans(archive.spans),
            "files": _files(archive.files),
            "replaced": archive.replaced,
            "last": archive.last,
        }
    )


def decode_state(text: str, number: int, place: str) -> Archive:
    """Return a state. `number` is its number, and `place` its file, for errors.

    Raises:
        ArchiveError: If the text is damaged or has a newer version.
    """
    value = _value(text, place)
    try:
        return Archive(
            number,
            _files_of(value["files"]),
            _spans_of(value["spans"]),
            dict(value["names"]),
            {query: int(count) for query, count in value["batches"].items()},
            {path: int(at_ms) for path, at_ms in value["replaced"].items()},
            {query: int(last) for query, last in value["last"].items()},
            {query: int(count) for query, count in value["batches"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(place, error) from None


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _spans(spans: Mapping[PartitionKey, Sequence[Span]]) -> list[dict[str, Any]]:
    topics: dict[tuple[str, str, str], list[list[int]]] = {}
    for key, found in sorted(spans.items()):
        topics.setdefault(key[:3], []).extend([key.partition, *span] for span in found)
    return [{"cluster": c, "topic": t, "id": i, "read": read} for (c, t, i), read in topics.items()]


def _spans_of(value: Iterable[Mapping[str, Any]]) -> dict[PartitionKey, list[Span]]:
    spans: dict[PartitionKey, list[Span]] = {}
    for entry in value:
        for partition, start, end, rows in entry["read"]:
            if not (0 <= start <= end and 0 <= rows <= end - start):
                raise ValueError(f"span {start} to {end} with {rows} records")
            key = PartitionKey(entry["cluster"], entry["topic"], entry["id"], int(partition))
            spans.setdefault(key, []).append(Span(start, end, rows))
    return spans


def _files(files: Mapping[str, DataFile]) -> dict[str, list[Any]]:
    return {path: list(file) for path, file in files.items()}


def _files_of(value: Mapping[str, Any]) -> dict[str, DataFile]:
    if others := [path for path in value if not _PATH.fullmatch(path)]:  # a log must not lead out of its folder
        raise ValueError(f"'{others[0]}' is no path of a file of an archive")
    files = {
        path: DataFile(str(day), int(rows), int(size), str(sha256)) for path, (day, rows, size, sha256) in value.items()
    }
    for path, file in files.items():  # a compaction makes a path of the day
        of_folder = path.removeprefix("day=").partition("/")[0]
        if file.day != (of_folder if _DAY.fullmatch(of_folder) else ""):
            raise ValueError(f"'{file.day}' is not the day of '{path}'")
    return files


_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_PATH = re.compile(r"day=[^/]*/[^/]+\.parquet")
_OR_DELETE = ", or delete it if its query was stopped while it wrote the file: the query writes it again"


def _value(text: str, place: str, remedy: str = "") -> dict[str, Any]:
    try:
        value = json.loads(text)
        version = value["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(place, error, remedy) from None
    if version != _VERSION:
        raise ArchiveError(
            f"{place} has version {version}, but this package reads only version {_VERSION}: upgrade pyspark-dynamic-kafka"
        )
    return dict(value)


def _damaged(place: str, error: Exception, remedy: str = "") -> ArchiveError:
    return ArchiveError(f"{place} is damaged ({type(error).__name__}: {error}); restore it from a backup{remedy}")
