"""The metrics of the sink: of a task, and of the commit of a batch. They are made without any client library."""

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
        clusters: The volume handed to the producers, by cluster; a cluster without rows is absent.
        errors: The number of records known as not acknowledged; more than 0 with the guarantee `none` only.
        dead_letters: The number of rows that went to the dead-letter topic; they are not in `clusters`.
        write_ms: The time to hand all records over; includes waits for a full queue, excludes waits for input.
        flush_ms: The time from then on until all records were acknowledged; 0 with the guarantee `none`.
    """

    clusters: Mapping[str, Volume] = field(default_factory=dict)
    errors: int = 0
    dead_letters: int = 0
    write_ms: float = 0.0
    flush_ms: float = 0.0

    @property
    def total(self) -> Volume:
        """Return the volume of all clusters."""
        return sum(self.clusters.values(), Volume())

    @property
    def rows(self) -> int:
        """Return the number of the task's rows, also of those that went to the dead-letter topic."""
        return self.total.records + self.dead_letters


@dataclass(frozen=True, slots=True)
class PublishReport:
    """The metrics of one exactly-once batch's commit.

    It is `repeated` if the batch was published before; then its new transactions were aborted. `decide_ms` is the time from
    the beginning until the decision counts, or the transactions are dropped, and `finish_ms` from then on until all of them
    are committed and the log says so.
    """

    repeated: bool
    transactions: int
    decide_ms: float
    finish_ms: float
