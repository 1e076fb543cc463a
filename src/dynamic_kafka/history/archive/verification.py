"""Verification: whether an archive has what its log says, each record once, and which offsets it lacks.

A record has one timestamp, so it can be twice only within a day. Days are read one after the other, and of them only the
coordinates are kept. Before that, each file is read as a whole for its SHA-256.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamic_kafka.errors import ArchiveError
from dynamic_kafka.files import open_files
from dynamic_kafka.history.archive.compaction import Offsets, kept_files, merged, offsets_of, outside, read
from dynamic_kafka.history.archive.model import PartitionKey, Span, is_data

__all__ = ["PartitionReport", "Verified", "verify"]


class PartitionReport(NamedTuple):
    """What an archive has of a partition.

    Args:
        key: The partition.
        cluster: The cluster's name in the column `cluster`.
        first: The first offset that was read.
        position: The offset after the last one that was read.
        records: The number of records.
        unread: The offsets in between that no batch has read, as ranges. Kafka may have had records there.
        without_record: The number of offsets that were read and have no record: markers of transactions, what Kafka has
            compacted away or aborted, what the query has left out, and records that were given up (`failOnDataLoss=false`,
            `skip-offsets`). Which of these, the archive does not know.
    """

    key: PartitionKey
    cluster: str
    first: int
    position: int
    records: int
    unread: tuple[tuple[int, int], ...]
    without_record: int


class Verified(NamedTuple):
    """The result.

    Args:
        partitions: What the archive has, in order.
        problems: What is certainly wrong: files that were changed, and records that are missing, twice or none that were
            read.
        unknown_files: Files that the log does not name: of a batch that is running or was stopped, or of something else.
        kept_files: Those of them that no compaction deletes: they have records that the archive does not have, or cannot be
            read, or the archive has not written them.
        files: The number of files with records.
    """

    partitions: tuple[PartitionReport, ...]
    problems: tuple[str, ...]
    unknown_files: tuple[str, ...]
    kept_files: tuple[str, ...]
    files: int

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is certainly wrong."""
        return not self.problems


def verify(location: str) -> Verified:
    """Read the files of an archive, and compare them and the coordinates of all records with its log.

    Args:
        location: The archive's folder.

    Raises:
        ArchiveError: If it is no archive, or its log is damaged.
    """
    files = open_files(location, ArchiveError)
    archive = read(files)
    problems: list[str] = []
    counts: dict[PartitionKey, list[int]] = {key: [0] * len(spans) for key, spans in archive.spans.items()}
    days: dict[str, list[str]] = {}
    for path, file in archive.files.items():
        days.setdefault(file.day, []).append(path)
    for _, paths in sorted(days.items()):
        readable: list[Offsets] = []
        for path in sorted(paths):
            try:
                readable.append(offsets_of(files, archive, path))
            except ArchiveError as error:
                problems.append(str(error))
        for key, found in merged(readable).items():
            problems += _problems(key, found, archive.spans.get(key, []))
            if key in counts:
                inside = np.setdiff1d(found, outside(found, archive.spans[key]))
                of = np.searchsorted([span.start for span in archive.spans[key]], inside, side="right") - 1
                for i, count in zip(*np.unique(of, return_counts=True), strict=True):
                    counts[key][i] += int(count)
    for key, spans in archive.spans.items():
        for span, count in zip(spans, counts[key], strict=True):
            if count != span.rows:
                problems.append(
                    f"{key}, offsets {span.start} to {span.end - 1}: {span.rows} records were archived, and {count} are here"
                )
    reports = (
        PartitionReport(
            key,
            archive.names.get(key.cluster_id, ""),
            spans[0].start,
            spans[-1].end,
            sum(counts[key]),
            tuple((before.end, after.start) for before, after in itertools.pairwise(spans)),
            sum(span.end - span.start - span.rows for span in spans),
        )
        for key, spans in sorted(archive.spans.items())
    )
    known = archive.files.keys() | archive.replaced.keys()
    unknown = sorted(path for path in files.walk() if is_data(path) and path not in known)
    return Verified(
        tuple(reports), tuple(problems), tuple(unknown), kept_files(files, archive, unknown), len(archive.files)
    )


def _problems(key: PartitionKey, found: np.ndarray[Any, Any], spans: Sequence[Span]) -> Iterable[str]:
    twice = found[:-1][np.diff(found) == 0]
    if twice.size:
        yield f"{key}: {len(np.unique(twice))} records are twice, the first one at offset {twice[0]}"
    strange = outside(found, spans)
    if strange.size:
        yield f"{key}: {strange.size} records were read by no batch of the log, the first one at offset {strange[0]}"
