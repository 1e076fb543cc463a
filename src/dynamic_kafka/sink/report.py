"""What a task of the sink reports: how much it wrote where, and how long that took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PublishReport", "TaskReport", "Volume"]


@dataclass(frozen=True, slots=True)
class Volume:
    """Records, and the bytes of their keys and values before compression."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.records + other.records, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The metrics of one task; picklable.

    Args:
        clusters: What was handed to the producers, by cluster; a cluster without rows is absent.
        topics: The topics written to, by cluster.
        errors: Records that were not acknowledged, as far as that is known: more than 0 only if they fail nothing (`none`).
        write_ms: The time it took to hand all records over, with waiting for room in the queues, without waiting for rows.
        flush_ms: The time from then on until all records were acknowledged; 0 if nobody waits for that.
    """

    clusters: Mapping[str, Volume] = field(default_factory=dict)
    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    errors: int = 0
    write_ms: float = 0.0
    flush_ms: float = 0.0

    @property
    def total(self) -> Volume:
        """Over all clusters."""
        return sum(self.clusters.values(), Volume())

    @property
    def current_send_time_ms(self) -> float:
        """How long the last record took (Flink: currentSendTime): from the hand-over to its acknowledgement."""
        return self.flush_ms


@dataclass(frozen=True, slots=True)
class PublishReport:
    """The metrics of one exactly-once batch's commit.

    Args:
        repeated: Whether the batch was published before, so that its new transactions were aborted.
        transactions: How many there were.
        decide_ms: From the beginning until the decision counts, or the transactions are dropped.
        finish_ms: From then on until all of them are committed and the log says so.
    """

    repeated: bool
    transactions: int
    decide_ms: float
    finish_ms: float
