"""Archive a batch: plan its tasks, and make the log's entry from their reports. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dynamic_kafka.errors import ArchiveError, listed
from dynamic_kafka.history.archive.model import Archive, Batch, DataFile, PartitionKey, Span, missing
from dynamic_kafka.history.model import Place

__all__ = [
    "AS_THE_SOURCE",
    "Part",
    "Plan",
    "Written",
    "batch_of",
    "check_follows",
    "check_reset",
    "decode_plan",
    "encode_plan",
    "plan_batch",
]

AS_THE_SOURCE = "Archive the stream as the source gives it: before joins, explode and repartition"
"""What to do about rows that are not those of the source."""


class Part(NamedTuple):
    """What a batch reads of a partition.

    Args:
        key: The partition.
        start: The first offset of the batch.
        end: The offset after its last one.
        new: The ranges in it that are not in the archive yet. Rows of the others are left out.
    """

    key: PartitionKey
    start: int
    end: int
    new: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Plan:
    """How a batch is archived.

    Args:
        location: The archive's folder.
        query: The query's id.
        record: The number of its record in the log.
        batch: The number of Spark's batch.
        parts: What the batch reads, if some of it is new.
        idle: The positions of partitions of which nothing was read yet.
        names: The clusters' names by cluster.id.
    """

    location: str
    query: str
    record: int
    batch: int
    parts: Mapping[Place, Part]
    idle: Mapping[PartitionKey, int]
    names: Mapping[str, str]


@dataclass
class Written:
    """What a task has written.

    Args:
        files: Its files by path.
        offsets: The lowest and the highest offset that it has seen of each place.
        rows: The number of rows in each of the place's new ranges.
    """

    files: dict[str, DataFile] = field(default_factory=dict)
    offsets: dict[Place, tuple[int, int]] = field(default_factory=dict)
    rows: dict[Place, list[int]] = field(default_factory=dict)


def plan_batch(
    archive: Archive,
    ranges: Mapping[Place, tuple[PartitionKey, int, int]],
    names: Mapping[str, str],
    *,
    location: str,
    query: str,
    batch: int,
) -> Plan:
    """Return how a batch is archived.

    Args:
        archive: The archive before it.
        ranges: The partition, the first offset, and the offset after the last one of each place.
        names: The clusters' names by cluster.id.
        location: The archive's folder.
        query: The query's id.
        batch: The number of Spark's batch.
    """
    parts = {
        place: Part(key, start, end, missing(start, end, archive.spans.get(key, ())))
        for place, (key, start, end) in ranges.items()
        if start < end
    }
    idle = {key: start for key, start, end in ranges.values() if start == end and key not in archive.spans}
    record = archive.batches.get(query, 0) + 1
    if not any(part.new for part in parts.values()):
        parts = {}
    return Plan(location, query, record, batch, parts, idle, names)


def check_reset(
    archive: Archive, place: Place, key: PartitionKey, *, ended: int, start: int, query: str, batch: int
) -> None:
    """Check that what a batch reads of a partition is not new at old offsets.

    Args:
        archive: The archive before it.
        place: The partition, for people.
        key: The partition.
        ended: Where the batch before has ended.
        start: Where the batch begins.
        query: The query's id.
        batch: The number of Spark's batch.

    Raises:
        ArchiveError: If the log of the partition was cut back, and the archive has records that it does not have any more.
    """
    if start >= ended or archive.last.get(query, -1) >= batch:  # nothing was cut back, or this batch is repeated
        return
    if not any(span.start < span.end and span.end > start for span in archive.spans.get(key, ())):
        return
    cluster, topic, partition = place
    raise ArchiveError(
        f"Cluster '{cluster}', topic '{topic}', partition {partition} went back from offset {ended} to {start}: its log was "
        "truncated, or the topic was made anew. The archive has other records at these offsets, so the new ones were not "
        "written. Archive the topic to another folder from here on, with a new checkpoint and startingOffsets=earliest"
    )


def check_follows(
    archive: Archive | None,
    location: str,
    earlier: Sequence[Mapping[Place, tuple[PartitionKey, int, int]]],
    *,
    first: int,
    batch: int,
) -> None:
    """Check that an archive has what its query has read before a batch.

    Args:
        archive: The archive before the batch; None if its folder has no log.
        location: Its folder.
        earlier: What batches from `first` to before `batch` have read, of those that the checkpoint still has.
        first: The first batch of which the log has no record.
        batch: The number of Spark's batch.

    Raises:
        ArchiveError: If it lacks some of that, or it is not known what these batches have read.
    """
    lacking: dict[Place, list[tuple[int, int]]] = {}
    for ranges in earlier:
        for place, (key, start, end) in ranges.items():
            for first_lacking, after in missing(start, end, archive.spans.get(key, ()) if archive else ()):
                gaps = lacking.setdefault(place, [])
                follows = gaps and gaps[-1][1] == first_lacking
                gaps.append((gaps.pop()[0] if follows else first_lacking, after))
    unknown = batch - first - len(earlier)
    if not lacking and not unknown:
        return
    what = [
        f"offsets {start} to {end - 1} of cluster '{cluster}', topic '{topic}', partition {partition}"
        for (cluster, topic, partition), gaps in sorted(lacking.items())
        for start, end in gaps
    ]
    if unknown:
        what.append(f"what {unknown} batches have read whose offsets the checkpoint does not have")
    raise ArchiveError(
        f"The query has finished its batches up to {batch - 1}, but "
        + (f"there is no archive in {location}" if archive is None else f"{location} lacks those from {first} on")
        + f". So the archive would lack {listed(what, 5)}. If its disk was not mounted, mount it. If its folder "
        "_dynamic_kafka was put back from a backup, put the newest one there. Otherwise start the query with a new "
        "checkpoint and startingOffsets=earliest: it adds what Kafka still has of them, and nothing twice"
    )


def batch_of(plan: Plan, tasks: Iterable[Written]) -> Batch:
    """Return what a batch adds to the archive.

    Args:
        plan: The plan.
        tasks: What its tasks have written.

    Raises:
        ArchiveError: If two tasks have offsets in common.
    """
    files: dict[str, DataFile] = {}
    ranges: dict[Place, list[tuple[int, int]]] = {}
    rows = {place: [0] * len(part.new) for place, part in plan.parts.items()}
    for written in tasks:
        files |= written.files
        for place, seen in written.offsets.items():
            ranges.setdefault(place, []).append(seen)
        for place, counts in written.rows.items():
            rows[place] = [a + b for a, b in zip(rows[place], counts, strict=True)]
    for (cluster, topic, partition), found in ranges.items():
        for (_, high), (low, _) in pairwise(sorted(found)):
            if low <= high:
                raise ArchiveError(
                    f"Two tasks have offsets {low} to {high} of cluster '{cluster}', topic '{topic}', partition "
                    f"{partition}. {AS_THE_SOURCE}"
                )
    spans = {key: [Span(start, start, 0)] for key, start in plan.idle.items()}
    for place, part in plan.parts.items():
        new = [Span(start, end, count) for (start, end), count in zip(part.new, rows[place], strict=True)]
        if new:  # a renamed cluster may be there under both names
            spans.setdefault(part.key, []).extend(new)
    return Batch(files, spans, plan.names, plan.batch)


def encode_plan(plan: Plan) -> str:
    """Return the plan as a text."""
    parts = [[*place, part.key.cluster_id, part.key.topic_id, *part[1:]] for place, part in plan.parts.items()]
    idle = [[*key, start] for key, start in plan.idle.items()]
    return json.dumps([plan.location, plan.query, plan.record, plan.batch, parts, idle, dict(plan.names)])


def decode_plan(text: str) -> Plan:
    """Return the plan of a text."""
    location, query, record, batch, parts, idle, names = json.loads(text)
    return Plan(
        location,
        query,
        record,
        batch,
        {
            (cluster, topic, partition): Part(
                PartitionKey(cluster_id, topic, topic_id, partition), start, end, [(a, b) for a, b in new]
            )
            for cluster, topic, partition, cluster_id, topic_id, start, end, new in parts
        },
        {PartitionKey(*key): start for *key, start in idle},
        names,
    )
