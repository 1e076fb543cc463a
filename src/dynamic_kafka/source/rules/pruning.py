"""Which offsets a batch read leaves out because of the conditions on its rows. Pure.

Rules:

1. What is left may be too much, and is never too little: each condition is evaluated on the rows that are read.
2. The cluster, the topic, the partition and the offset of a record are known before it is read.
3. Of a time, only a lower bound leaves something out. A broker looks for the first record that is not earlier, so all
   records before it are earlier, also where the producers' times are out of order. After it may be earlier ones: an upper
   bound proves nothing.
4. The broker looked only at records that it still had. So a range that begins below the start of its log, asked for after
   the times, stays as it is. The times of the deleted records are not known, and the reader of the range reports the loss.
5. A history is read as a whole.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.offsets import Document
from dynamic_kafka.source.rules.model import Event, OffsetRequest

__all__ = [
    "COMPARISONS",
    "Condition",
    "Offsets",
    "left_out",
    "log_start_requests",
    "narrow",
    "size",
    "start_at",
    "time_requests",
]

Offsets = Mapping[tuple[str, KafkaTopicPartition], int]
"""Offsets that clusters have answered, by cluster and partition."""

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, values: value in values,
}
"""The operators of conditions."""


class Condition(NamedTuple):
    """A condition that holds for all rows that are asked for.

    Args:
        column: `cluster`, `topic`, `partition`, `offset` or `timestamp`.
        operator: One of `COMPARISONS`.
        value: What the column is compared with, by its type: a text, a number, or microseconds since 1970; a tuple for `in`.
    """

    column: str
    operator: str
    value: Any


def narrow(document: Document, conditions: Collection[Condition]) -> None:
    """Leave out of a document's ranges what is known without a question to a cluster."""
    low, high = _bounds([condition for condition in conditions if condition.column == "offset"])
    for name, cluster in document.clusters.items():
        for tp, (start, end) in cluster.ranges.items():
            known = {"cluster": name, "topic": tp.topic, "partition": tp.partition}
            if _may_hold(known, conditions):
                first = min(max(start, low), end)
                cluster.ranges[tp] = (first, end if high is None else max(first, min(end, high)))
            else:
                cluster.ranges[tp] = (start, start)


def time_requests(document: Document, conditions: Collection[Condition]) -> list[OffsetRequest]:
    """Return what to ask the clusters for: the first record that is late enough, of each partition with a range."""
    low_us, _ = _bounds([condition for condition in conditions if condition.column == "timestamp"])
    low_ms = -(-low_us // 1000)
    if low_ms <= 0:  # -1 and -2 have other meanings
        return []
    first = KafkaOffsetsInitializer.timestamp(low_ms)
    asked = {
        name: tuple(tp for tp, (start, end) in cluster.ranges.items() if end > start)
        for name, cluster in document.clusters.items()
    }
    return [OffsetRequest(name, "start", first, tps) for name, tps in asked.items() if tps]


def log_start_requests(requests: Collection[OffsetRequest]) -> list[OffsetRequest]:
    """Return what to ask after the requests for times were answered: where the logs of the same partitions start."""
    return [request._replace(initializer=KafkaOffsetsInitializer.earliest()) for request in requests]


def start_at(document: Document, found: Offsets, log_starts: Offsets) -> None:
    """Have the ranges start at the offsets that the clusters have found (rule 4).

    A partition without both answers stays as it is.
    """
    for (name, tp), offset in found.items():
        start, end = document.clusters[name].ranges[tp]
        if log_starts.get((name, tp), start + 1) <= start:
            document.clusters[name].ranges[tp] = (min(max(start, offset), end), end)


def size(document: Document) -> int:
    """Return the number of offsets in a document's ranges."""
    return sum(end - start for cluster in document.clusters.values() for start, end in cluster.ranges.values())


def left_out(before: int, after: int, conditions: Sequence[Condition]) -> Event:
    """Return what is said of the offsets that are left out."""
    columns = ", ".join(sorted({f"'{condition.column}'" for condition in conditions}))
    return Event("info", f"The conditions on {columns} leave out {before - after} of {before} offsets")


def _may_hold(values: Mapping[str, Any], conditions: Collection[Condition]) -> bool:
    return all(COMPARISONS[c.operator](values[c.column], c.value) for c in conditions if c.column in values)


def _bounds(conditions: Collection[Condition]) -> tuple[int, int | None]:
    """Return the least value of a whole number that conditions allow, at least 0, and the first one that is too large."""
    lows, highs = [0], []
    for _, sign, value in conditions:
        values = value if sign == "in" else (value,)
        if sign in (">", ">=", "=", "in"):
            lows.append(min(values, default=0) + (sign == ">"))
        if sign in ("<", "<=", "=", "in"):
            highs.append(max(values, default=-1) + (sign != "<"))
    return max(lows), max(0, min(highs)) if highs else None
