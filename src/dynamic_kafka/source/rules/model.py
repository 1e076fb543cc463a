"""What the rules of the source work with: what the metadata wants, what clusters show, what the rules ask for and return."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dynamic_kafka.continuation import Continues
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.evidence import MoveRequest, Placement
from dynamic_kafka.source.document.offsets import ClusterOffsets

__all__ = [
    "ClusterView",
    "DesiredCluster",
    "Event",
    "KafkaRow",
    "Move",
    "OffsetAnswers",
    "OffsetRequest",
    "Purpose",
    "ReadPolicy",
    "SourceSnapshot",
    "Unread",
]


@dataclass(frozen=True, slots=True)
class DesiredCluster:
    """A cluster that has to be read according to the metadata.

    Args:
        topics: The topics, including those that do not exist.
        properties: The part of the cluster's properties that may be stored in the document.
        starting: The cluster's own starting offsets.
        stopping: The cluster's own stopping offsets.
        partitions: If given, only these partitions are read.
        continues: The cluster that this one continues.
    """

    topics: frozenset[str]
    properties: Mapping[str, str]
    starting: KafkaOffsetsInitializer | None = None
    stopping: KafkaOffsetsInitializer | None = None
    partitions: frozenset[KafkaTopicPartition] | None = None
    continues: Continues | None = None


class KafkaRow(NamedTuple):
    """A record of Kafka: what is compared with a history."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of a reachable cluster, as far as it is known. A topic that no field names is unknown.

    Args:
        kafka_id: Kafka's own cluster.id.
        topics: Topic to topic id, for the monitored topics that exist.
        partitions: Topic to number of partitions.
        ends: The end of each partition that has a leader; under read_committed, the last stable offset.
        missing: The monitored topics that do not exist, which the brokers have said for long enough.
        denied: The monitored topics that the user may not see.
        user: That user, as ACLs name it; "" if nothing is denied.
        last_ends: The last known end of each partition that has none in `ends` now.
        unconfirmed: The monitored topics that do not exist according to the last answer. It may be wrong for a moment, and
            they are not in `missing` yet.
        log_ends: Under read_committed, the last known ends of logs with all their records; else None. They were asked for
            after `ends`.
    """

    kafka_id: str
    topics: Mapping[str, str]
    partitions: Mapping[str, int]
    ends: Mapping[KafkaTopicPartition, int]
    missing: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    user: str = ""
    last_ends: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)
    unconfirmed: frozenset[str] = frozenset()
    log_ends: Mapping[KafkaTopicPartition, int] | None = None


@dataclass(slots=True)
class SourceSnapshot:
    """The metadata and the clusters at one moment.

    Args:
        streams: Stream to cluster to topics, for the document.
        desired: The clusters that have to be read, by cluster id.
        views: The clusters that answered, by cluster id. Positions of a cluster without a view wait.
        fresh: True if `desired` is an answer of the metadata service, False if it comes from the document.
        inactive: Clusters that the metadata service calls inactive.
        quiet: (cluster, topic) of draining topics that received no records for long enough.
        regressed: (cluster, partition) with an end that was below the position for long enough to be accepted, to the
            lowest end seen.
    """

    streams: Mapping[str, Mapping[str, frozenset[str]]]
    desired: Mapping[str, DesiredCluster]
    views: Mapping[str, ClusterView]
    fresh: bool
    inactive: frozenset[str] = frozenset()
    quiet: Collection[tuple[str, str]] = ()
    regressed: Mapping[tuple[str, KafkaTopicPartition], int] = field(default_factory=dict)

    def sees(self, views: Mapping[str, ClusterView], inactive: frozenset[str]) -> bool:
        """Return whether the snapshot was made of these very objects."""
        mine = self.views
        return inactive == self.inactive and len(views) == len(mine) and all(mine.get(n) is v for n, v in views.items())


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """The user's settings for these rules. Their defaults are those of the options (`SourceSettings`).

    Args:
        starting: The global starting offsets.
        stopping: The global stopping offsets; None never stops.
        fail_on_data_loss: If true, lost records are an error.
        retention_ms: The time for which positions of removed topics are kept; 0 drops them at once.
        drain: If true, a removed topic is read until it is quiet before it is cut.
    """

    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    fail_on_data_loss: bool
    retention_ms: int
    drain: bool


Purpose = Literal["start", "stop"]


class OffsetRequest(NamedTuple):
    """A request to a cluster for the offsets of partitions by an initializer."""

    cluster: str
    purpose: Purpose
    initializer: KafkaOffsetsInitializer
    partitions: tuple[KafkaTopicPartition, ...]


@dataclass(slots=True)
class OffsetAnswers:
    """The answers to offset requests, by cluster and partition; those to moves by what was asked."""

    start: dict[tuple[str, KafkaTopicPartition], int] = field(default_factory=dict)
    stop: dict[tuple[str, KafkaTopicPartition], int] = field(default_factory=dict)
    moves: Mapping[MoveRequest, Placement] = field(default_factory=dict)


class Move(NamedTuple):
    """A partition that goes on from another cluster.

    Args:
        request: The move.
        placement: What was found out; None as long as nothing was.
        done: Whether reading goes on there.
    """

    request: MoveRequest
    placement: Placement | None
    done: bool


class Event(NamedTuple):
    """A message for the log and the progress report: its level, and a sentence that stands alone."""

    level: Literal["info", "warning"]
    text: str


class Unread(NamedTuple):
    """The number of records that are left unread: at least `known` and, if `exact`, no more.

    What is behind an open transaction may become records, so it is not known.
    """

    known: int
    exact: bool

    @classmethod
    def of(cls, tps: Iterable[KafkaTopicPartition], state: ClusterOffsets, view: ClusterView | None) -> Unread:
        """Return it of partitions of a cluster, by the ends that the view shows; None has no ends."""
        known, exact = 0, view is not None
        for tp in tps:
            if view is not None and tp in state.ranges:
                end = view.ends.get(tp, view.last_ends.get(tp))
                known += max(0, (end or 0) - state.ranges[tp][1])
                whole = end if view.log_ends is None else view.log_ends.get(tp)
                exact &= end is not None and end == whole and (tp in view.ends or tp.topic in view.missing)
            else:
                exact = False
        return cls(known, exact)

    @property
    def some(self) -> bool:
        """Whether records are, or may be, left."""
        return self.known > 0 or not self.exact

    def __str__(self) -> str:
        if self.exact:
            return str(self.known)
        return f"at least {self.known}" if self.known else "an unknown number of"
