"""Planning: from the document of a batch to its tasks. Many ranges are packed into few tasks. Pure.

Rules:

1. Planning is a function of the document alone: a replay in another process, with other options and with unreachable
   clusters, plans the same tasks in the same order.
2. The number of tasks follows the work, not the number of partitions. Spark starts one Python task for each input
   partition, and a task costs about 20 ms; a thousand quiet partitions are one task. Work is counted in records, plus a
   constant for each range (assigning it, finding its end).
3. Tasks get equal work. They are filled in order of cluster, topic and partition, so that a task connects to few clusters.
   A range is in one task, so that a query which writes the records keeps their order, as with Flink and with Spark's own
   connector. Only if the user asks for more or smaller tasks, ranges are cut: at most once between two tasks, and no part
   has less than `_LEAST_CUT` records.
4. Every offset of the document's ranges is in exactly one range of one task. Empty ranges are in no task.
5. The only exception to 1 and 4 are offsets that the user gives up by name (`skip-offsets`), as the error of a task prints
   them: a planned range, or its first or last part. They fit one batch only, so they are spent with that batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.history.model import HistoryGap, HistoryTask, pieces
from dynamic_kafka.source.document.collector import without_collector
from dynamic_kafka.source.document.document import ClusterOffsets, HistoryStage, OffsetRange
from dynamic_kafka.source.document.offsets import Document, Packing

__all__ = ["ClusterAccess", "Range", "ReadTask", "plan", "skip"]

_RANGE_COST = 200
_LEAST_CUT = 500


class Range(NamedTuple):
    """Offsets [start, end) of a partition, read by one task."""

    cluster: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


_range: Callable[[tuple[str, str, str, int, int, int]], Range] = partial(
    tuple.__new__, Range
)  # quick, as `topic_partition`


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How a task reaches a cluster, and what the driver knows about the cluster.

    Args:
        properties: The client properties. They may hold secrets.
        kafka_id: Kafka's own cluster.id, by which the offsets were planned; "" if it is unknown.
        removed: The evidence that the cluster is not wanted any more, as a clause; "" if there is none.
        from_checkpoint: If true, the properties are those of the checkpoint, which holds no secrets.
    """

    properties: Mapping[str, str] = field(repr=False)
    kafka_id: str = ""
    removed: str = ""
    from_checkpoint: bool = False


class ReadTask(NamedTuple):
    """The work of a Spark task: ranges, and the access to their clusters; or rows of a history; or the last row."""

    ranges: list[Range]
    clusters: Mapping[str, ClusterAccess]
    history: HistoryTask | None = None
    last_row: bool = False


@without_collector
def plan(document: Document) -> list[list[Range]]:
    """Return the tasks of the document's batch; an empty list if there is nothing to read. No task has a partition twice."""
    gaps = _gap_ranges(document.history, document.clusters)
    ranges = gaps + [
        _range((name, topic, cluster.topics[topic], partition, start, end))
        for name, cluster in sorted(document.clusters.items())
        for (topic, partition), (start, end) in sorted(cluster.ranges.items())
        if end > start
    ]
    if not ranges:
        return []
    packing = document.packing
    records = sum([r[-1] - r[-2] for r in ranges])
    work = records + _RANGE_COST * len(ranges)
    if not packing.cuts:
        tasks = _whole(ranges, work, packing)
    else:
        count = max(-(-work // packing.records_per_task), packing.min_tasks)
        tasks = _cut(ranges, records, min(count, packing.max_tasks or count, records))
    return [part for task in tasks for part in _each_once(task)] if gaps else tasks


def _each_once(task: list[Range]) -> list[list[Range]]:
    """Return a task's ranges as tasks with each partition once: a history may have several gaps in one."""
    found: list[dict[tuple[str, str, int], Range]] = []
    for r in task:
        key = r.cluster, r.topic, r.partition
        free = next((part for part in found if key not in part), None)
        if free is None:
            found.append(free := {})
        free[key] = r
    return [[*part.values()] for part in found]


def _gap_ranges(stage: HistoryStage | None, clusters: Mapping[str, ClusterOffsets]) -> list[Range]:
    """Return the ranges of Kafka in the gaps of a history, under today's names of the clusters.

    Raises:
        ClusterUnavailableError: If the cluster of a gap is not read any more.
    """
    found: list[Range] = []
    for gap, first, last in pieces(stage.history, *stage.range) if stage is not None else ():
        if not isinstance(gap, HistoryGap):
            continue
        by_id = (name for name, state in clusters.items() if gap.kafka_id and state.kafka_id == gap.kafka_id)
        name = next(by_id, gap.cluster)
        if name not in clusters or gap.topic not in clusters[name].topics:
            raise ClusterUnavailableError(
                f"Cluster '{gap.cluster}', topic '{gap.topic}', partition {gap.partition}: the history has a gap at offsets "
                f"{gap.start} to {gap.end - 1}, which is read from Kafka, but the metadata does not name that topic any "
                "more. Name it there until the history is read",
                cluster_id=gap.cluster,
            )
        topic_id = clusters[name].topics[gap.topic]
        found.append(Range(name, gap.topic, topic_id, gap.partition, gap.start + first, gap.start + last))
    return found


def _whole(ranges: list[Range], left: int, packing: Packing) -> list[list[Range]]:
    """Pack whole ranges. A range goes to the next task if less than half of it still fits."""
    count = max(round(left / packing.records_per_task), 1)
    count = min(count, packing.max_tasks or count)
    tasks: list[list[Range]] = []
    first, cuts = 0, count - 1
    room = max(left / count, packing.records_per_task)
    for i, r in enumerate(ranges):
        work = r[-1] - r[-2] + _RANGE_COST  # by index: there may be a million ranges
        if room < work / 2 and i > first and len(tasks) < cuts:
            tasks.append(ranges[first:i])
            first = i
            room = max(left / (count - len(tasks)), packing.records_per_task)
        room -= work
        left -= work
    return [*tasks, ranges[first:]]


def _cut(ranges: list[Range], records: int, count: int) -> list[list[Range]]:
    """Cut ranges so that there are `count` tasks with equal work."""
    # A small batch with many tasks (minPartitions) is cut finer than the constants allow.
    finest = records // (4 * count)
    cost, least_cut = min(_RANGE_COST, finest), max(1, min(_LEAST_CUT, finest))
    tasks: list[list[Range]] = [[]]
    room = quota = (records + cost * (len(ranges) + count - 1)) / count  # each cut adds a range
    for r in ranges:
        rest = r
        while True:
            length = rest.end - rest.start
            fits = max(0, int(room) - cost)
            if (room > 0 and length < fits + least_cut) or len(tasks) == count:
                tasks[-1].append(rest)
                room -= length + cost
                break
            if fits >= least_cut:
                tasks[-1].append(rest._replace(end=rest.start + fits))
                rest = rest._replace(start=rest.start + fits)
            tasks.append([])
            room += quota - (fits + cost if fits >= least_cut else 0)
    return [task for task in tasks if task]


def skip(
    tasks: Iterable[list[Range]], given_up: Collection[OffsetRange]
) -> tuple[list[list[Range]], list[OffsetRange]]:
    """Take the offsets that the user gives up out of the tasks.

    Args:
        tasks: The planned tasks.
        given_up: Each one is a planned range, its first part or its last part. Others have no effect.

    Returns:
        The tasks without these offsets, and those of `given_up` that were found.
    """
    wanted: dict[tuple[str, str, int], list[OffsetRange]] = {}
    for gap in given_up:
        wanted.setdefault(gap[:3], []).append(gap)
    used: list[OffsetRange] = []

    def cut(r: Range) -> Range:
        for gap in wanted.get((r.cluster, r.topic, r.partition), ()):
            if gap.end == r.end and gap.start >= r.start:
                used.append(gap)
                r = r._replace(end=gap.start)
            elif gap.start == r.start and gap.end <= r.end:
                used.append(gap)
                r = r._replace(start=gap.end)
        return r

    rest = [[r for r in map(cut, task) if r.end > r.start] for task in tasks]
    return [task for task in rest if task], used
