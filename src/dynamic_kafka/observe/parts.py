"""The parts of queries as the model knows them, before they become the status, and the labels of queries. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dynamic_kafka.observe.reports import HistoryRead, SinkReport, SourceReport, Transactions

__all__ = [
    "HISTORY_LENGTH",
    "Clients",
    "Labels",
    "QueryParts",
    "Sample",
    "SinkPart",
    "SourcePart",
    "Tally",
]

HISTORY_LENGTH = 360
"""The number of samples that are kept."""
_RECONNECT_MS = 5_000
_LONGEST_LABEL = 100


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


@dataclass(slots=True, kw_only=True)
class _Part:
    """The fields that sources and sinks have in common. `query_id` and `name` are those of the query in Spark."""

    first_ms: int
    reported_ms: int
    query_id: str = ""
    name: str = ""
    errors: int = 0
    dropped: int = 0
    clients: Clients = field(default_factory=dict)
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    history: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))


@dataclass(slots=True)
class SourcePart(_Part):
    """A run of a source: its last report, and the totals of its workers."""

    run: str
    report: SourceReport | None = None
    gone_ms: int | None = None
    tallies: Tallies = field(default_factory=dict)
    decode_errors: dict[tuple[str, str], int] | None = None
    tasks: int = 0
    given_up: int = 0
    emit_lag_s: dict[str, float] = field(default_factory=dict)
    history_read: HistoryRead = field(default_factory=lambda: HistoryRead(rows=0, bytes=0, read_ms=None))
    last_read_ms: int | None = None
    watermark_ms: int | None = None
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
class SinkPart(_Part):
    """A sink: its last report, and the totals of its processes."""

    report: SinkReport
    batches: int = 0
    dead_letters: int = 0
    last_failed: bool | None = None
    records: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    transactions: Transactions | None = None

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


class Labels:
    """The labels of queries in all series. A label belongs to one query as long as the server runs.

    A query is known by Spark's id. Before its first batch it has none, and is known by the random name of its run:

    1. A query with an id has its first label for ever, unless a report has a better one (the name in Spark): then it keeps
       that.
    2. A query without an id has the label that it asks for, if no other query was ever given that. It goes to its id.
    3. A query without an id asks for a label of another one: it may be that one, started again, or may not. So it has a
       label of its own until its id is known, which no other run ever gets: `orders (run 3f9a2c41)`.
    4. A query with an id asks for a label of another one: it gets the next number, `orders (2)`.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # label -> the query that has it
        self._given: dict[tuple[str, str], str] = {}  # the query and the label it asked for -> its label

    def of(self, query: QueryParts) -> str:
        """Return the label of a query."""
        wanted = query.first("label") or query.first("name") or query.first("default_label")
        wanted = wanted if len(wanted) <= _LONGEST_LABEL else f"{wanted[: _LONGEST_LABEL - 3]}..."
        first = query.parts[0]
        run = first.run if isinstance(first, SourcePart) else f"sink {first.default_label} {first.name}"
        query_id = query.first("query_id")
        if not query_id:
            if self._owners.setdefault(wanted, run) == run:
                return wanted
            return f"{wanted} (run {run[:8]})"
        if (known := self._given.get((query_id, wanted))) is not None:
            return known
        if self._owners.get(wanted) == run:  # it was given to this run before its id was known
            self._owners[wanted] = query_id
        label, number = wanted, 1
        while self._owners.setdefault(label, query_id) != query_id:
            number += 1
            label = f"{wanted} ({number})"
        self._given[query_id, wanted] = label
        return label
