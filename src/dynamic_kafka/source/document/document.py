"""The state between two micro-batches as objects. `offsets` turns it into the text of the checkpoint, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from dynamic_kafka.history.model import FrozenHistory
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.evidence import Anchor, Marks
from dynamic_kafka.source.document.promise import Promise

__all__ = [
    "ClusterOffsets",
    "Cursor",
    "Document",
    "HistoryStage",
    "OffsetRange",
    "Packing",
    "RetainedTopic",
    "parse_offset_ranges",
]

_OFFSET_RANGE = re.compile(r"\s*(.+?)/([^/;]+)/(\d+):(\d+)-(\d+)\s*(?:;|$)")


class Packing(NamedTuple):
    """The settings for packing ranges into tasks; part of the document, so that a replay packs the same way.

    Attributes:
        records_per_task: The work that a task should get, in records.
        min_tasks: The minimum number of tasks if there is something to read (Spark's `minPartitions`).
        max_tasks: The maximum number of tasks; 0 means no limit (Flink's `scan.parallelism`).
        cuts: If true, a partition's range may be cut between tasks. Its records are then not in order across these tasks.
    """

    records_per_task: int = 1_000_000
    min_tasks: int = 1
    max_tasks: int = 0
    cuts: bool = False


class Cursor(NamedTuple):
    """The cluster and partitions served last when a limit was too small for all; the next batch starts after them."""

    cluster: str = ""
    partitions: Mapping[str, KafkaTopicPartition] = {}


@dataclass(slots=True)
class RetainedTopic:
    """The positions of a removed topic, in case it comes back."""

    topic_id: str
    since_ms: int
    offsets: dict[int, int]


@dataclass(slots=True)
class ClusterOffsets:
    """A cluster's part of the document; the top of `offsets` explains the fields."""

    kafka_id: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    starting: Any = None
    stopping: Any = None
    discovered: bool = False
    since_ms: int | None = None
    topics: dict[str, str] = field(default_factory=dict)
    ranges: dict[KafkaTopicPartition, tuple[int, int]] = field(default_factory=dict)
    stops: dict[KafkaTopicPartition, int] = field(default_factory=dict)
    unresolved: dict[KafkaTopicPartition, int] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    resets: frozenset[KafkaTopicPartition] = frozenset()
    retained: dict[str, RetainedTopic] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)
    continues: Any = None
    marks: dict[KafkaTopicPartition, tuple[Marks, ...]] = field(default_factory=dict)
    anchors: dict[KafkaTopicPartition, Anchor] = field(default_factory=dict)

    def partitions_by_topic(self) -> dict[str, list[KafkaTopicPartition]]:
        """Return the partitions that are read or wait for their first position, in order, by topic."""
        return {topic: list(tps) for topic, tps in groupby(sorted({*self.ranges, *self.unresolved}), itemgetter(0))}

    def copied(self, **changes: Any) -> ClusterOffsets:
        """Return a copy with containers of its own, and with other values of some fields."""
        kept = {part.name for part in fields(self)} - changes.keys()
        return replace(self, **{name: copy(getattr(self, name)) for name in kept}, **changes)

    def forget(self, tps: Iterable[KafkaTopicPartition]) -> None:
        """Remove the positions and stops of partitions, and what is known of copies of them."""
        for tp in tps:
            self.ranges.pop(tp, None)
            self.stops.pop(tp, None)
            self.unresolved.pop(tp, None)
            self.forget_copies([tp])

    def forget_copies(self, tps: Iterable[KafkaTopicPartition]) -> None:
        """Remove what is known of copies of partitions, whose records are others now."""
        for tp in tps:
            self.marks.pop(tp, None)
            self.anchors.pop(tp, None)


@dataclass(frozen=True, slots=True)
class HistoryStage:
    """The history that is read before Kafka; see `stage`.

    Args:
        history: What was frozen.
        promise: What is guaranteed at the switch to Kafka.
        range: The rows of this batch, as positions in the history.
    """

    history: FrozenHistory
    promise: Promise
    range: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Document:
    """The state between two micro-batches, and the ranges of the batch before it."""

    streams: dict[str, dict[str, frozenset[str] | None]] = field(default_factory=dict)
    clusters: dict[str, ClusterOffsets] = field(default_factory=dict)
    cursor: Cursor = field(default_factory=Cursor)
    packing: Packing = field(default_factory=Packing)
    starting: Any = None
    done: int = 0
    last_row: int = 0
    history: HistoryStage | None = None
    frontier_ms: int | None = None


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition that the user gives up. As text: `cluster/topic/partition:start-end`."""

    cluster: str
    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        """Return the text that `parse_offset_ranges` reads."""
        return f"{self.cluster}/{self.topic}/{self.partition}:{self.start}-{self.end}"


def parse_offset_ranges(text: str) -> tuple[OffsetRange, ...]:
    """Return the ranges of a text such as `cluster/topic/0:50-100;cluster/topic/1:0-10`; raise ValueError if it is wrong."""
    found, at = [], 0
    while at < len(text):
        match = _OFFSET_RANGE.match(text, at)
        if match is None:
            raise ValueError(text)
        cluster, topic, *numbers = match.groups()
        found.append(OffsetRange(cluster, topic, *map(int, numbers)))
        at = match.end()
    if any(r.start >= r.end for r in found):
        raise ValueError(text)
    return tuple(found)
