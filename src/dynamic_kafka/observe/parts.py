"""The parts of queries as the model knows them, before they become the status."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dynamic_kafka.observe.reports import HistoryRead, SinkReport, SourceReport, Transactions

__all__ = [
    "HISTORY_LENGTH",
    "Clients",
    "QueryParts",
    "Sample",
    "SinkPart",
    "SourcePart",
    "Tallies",
    "Tally",
]

HISTORY_LENGTH = 360
"""The number of samples that are kept."""
_RECONNECT_MS = 5_000


class Sample(NamedTuple):
    """Numbers at one time: totals of records and bytes (with those of the history), and the backlog; None if not known."""

    time_ms: int
    records: int | None
    bytes: int | None
    pending: int | None
    lag_s: float | None


@dataclass(slots=True)
class Tally:
    """What was read of a partition in this run."""

    records: int = 0
    bytes: int = 0
    timestamp_ms: int | None = None
    read_ms: int = 0


Tallies = dict[tuple[str, str], dict[int, Tally]]
Clients = dict[str, dict[str, tuple[int, Mapping[str, float]]]]


@dataclass(slots=True)
class SourcePart:
    """A run of a source: its last report, and the totals of its workers."""

    run: str
    first_ms: int
    report: SourceReport | None = None
    reported_ms: int = 0
    gone_ms: int | None = None
    query_id: str = ""
    name: str = ""
    tallies: Tallies = field(default_factory=dict)
    decode_errors: dict[tuple[str, str], int] | None = None
    tasks: int = 0
    errors: int = 0
    given_up: int = 0
    emit_lag_s: dict[str, float] = field(default_factory=dict)
    history_read: HistoryRead = field(default_factory=lambda: HistoryRead(rows=0, bytes=0, read_ms=None))
    clients: Clients = field(default_factory=dict)
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    last_read_ms: int | None = None
    dropped: int = 0
    watermark_ms: int | None = None
    history: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    histories: dict[str, deque[Sample]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the option `metrics.query`; "" without it."""
        return self.report["label"] if self.report is not None else ""

    @property
    def default_label(self) -> str:
        """Return what it reads."""
        return ",".join(self.report["streams"]) if self.report is not None else self.run

    def has_ended(self, now_ms: int) -> bool:
        """Return whether it has said that it ends, or its process is gone for so long that it will not connect again."""
        if self.report is not None and self.report["state"] != "running":
            return True
        return self.gone_ms is not None and now_ms - self.gone_ms >= _RECONNECT_MS


@dataclass(slots=True)
class SinkPart:
    """A sink: its last report, and the totals of its processes."""

    first_ms: int
    report: SinkReport
    reported_ms: int
    batches: int = 0
    errors: int = 0
    dead_letters: int = 0
    last_failed: bool | None = None
    records: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    transactions: Transactions | None = None
    clients: Clients = field(default_factory=dict)
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    history: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    query_id: str = ""
    name: str = ""
    dropped: int = 0

    @property
    def label(self) -> str:
        """Return the option `metrics.query`; "" without it."""
        return self.report["label"]

    @property
    def default_label(self) -> str:
        """Return what it writes to."""
        return self.report["sink"]


@dataclass(slots=True)
class QueryParts:
    """The parts that belong to one query."""

    sources: list[SourcePart] = field(default_factory=list)
    sinks: list[SinkPart] = field(default_factory=list)

    @property
    def parts(self) -> list[SourcePart | SinkPart]:
        """Return the sources and the sinks."""
        return [*self.sources, *self.sinks]

    def first(self, name: str) -> str:
        """Return the first text that is not empty."""
        return next((found for part in self.parts if (found := getattr(part, name))), "")

    def has(self, part: SourcePart | SinkPart) -> bool:
        """Return whether a part belongs to this query (rule 4)."""
        query_id = self.first("query_id")
        if query_id and part.query_id:
            return query_id == part.query_id
        return bool(part.label) and part.label == self.first("label")
