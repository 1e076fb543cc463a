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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dynamic_kafka.source.offsets import Document, Packing

__all__ = ["Range", "ReadTask", "plan"]

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


class ReadTask(NamedTuple):
    """The work of a Spark task: ranges, and the client properties of their clusters."""

    ranges: list[Range]
    properties: Mapping[str, Mapping[str, str]]


def plan(document: Document) -> list[list[Range]]:
    """Return the tasks of the document's batch; an empty list if there is nothing to read."""
    ranges = [
        Range(name, topic, cluster.topics[topic], partition, start, end)
        for name, cluster in sorted(document.clusters.items())
        for (topic, partition), (start, end) in sorted(cluster.ranges.items())
        if end > start
    ]
    if not ranges:
        return []
    packing = document.packing
    records = sum(r.end - r.start for r in ranges)
    work = records + _RANGE_COST * len(ranges)
    if not packing.cuts:
        return _whole(ranges, work, packing)
    count = max(-(-work // packing.records_per_task), packing.min_tasks)
    return _cut(ranges, records, min(count, packing.max_tasks or count, records))


def _whole(ranges: list[Range], left: int, packing: Packing) -> list[list[Range]]:
    """Pack whole ranges. A range goes to the next task if less than half of it still fits."""
    count = max(round(left / packing.records_per_task), 1)
    count = min(count, packing.max_tasks or count)
    tasks: list[list[Range]] = [[]]
    room = max(left / count, packing.records_per_task)
    for r in ranges:
        work = r.end - r.start + _RANGE_COST
        if tasks[-1] and room < work / 2 and len(tasks) < count:
            tasks.append([])
            room = max(left / (count - len(tasks) + 1), packing.records_per_task)
        tasks[-1].append(r)
        room -= work
        left -= work
    return tasks


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
