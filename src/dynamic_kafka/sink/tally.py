"""What a sink has written, for the metrics: counted where batches are committed, and reported in the background.

The tasks' numbers come with their messages, so no report of theirs can be lost. The counts are those of this process, which
Spark mostly uses for the next batch, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dynamic_kafka.observe.clients import ClientTotals
from dynamic_kafka.observe.place import find_or_start
from dynamic_kafka.observe.reporter import Reporter, new_name
from dynamic_kafka.observe.settings import MetricsSettings
from dynamic_kafka.sink.producers import ClusterProducer
from dynamic_kafka.sink.report import PublishReport, TaskReport
from dynamic_kafka.sink.settings import SinkSettings

__all__ = ["SinkTally", "TaskObservation", "client_numbers_of", "note_statistics", "sink_tally"]

_MOST_TALLIES = 8


@dataclass(frozen=True)
class TaskObservation:
    """What a task says of itself, besides its report; it travels in its message.

    Id and name of the query are Spark's, and "" if there is none. `clients` are librdkafka's numbers by cluster, of totals
    what they have grown by since the worker's last task.
    """

    query_id: str
    name: str
    clients: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


_clients_lock = threading.Lock()
_totals: dict[str, ClientTotals] = {}
_numbers: dict[str, Mapping[str, float]] = {}
_told: dict[str, Mapping[str, float]] = {}


def note_statistics(producer: ClusterProducer) -> bool:
    """Take the statistics of a producer for `client_numbers_of`, and return whether there were new ones."""
    text = producer.statistics()
    if text:
        with _clients_lock:
            _numbers[producer.cluster] = _totals.setdefault(producer.cluster, ClientTotals()).take(text)
    return bool(text)


def client_numbers_of(producers: Iterable[ClusterProducer]) -> dict[str, dict[str, float]]:
    """Return the numbers of the producers' clusters, for `TaskObservation`, if there are new ones."""
    found = {}
    for producer in producers:
        note_statistics(producer)
        with _clients_lock:
            told, numbers = _told.get(producer.cluster, {}), _numbers.get(producer.cluster, {})
            _told[producer.cluster] = numbers
        if numbers and numbers is not told:
            found[producer.cluster] = {
                name: value - told.get(name, 0) if name.endswith("_total") else value for name, value in numbers.items()
            }
    return found


class SinkTally:
    """The counts of this process for one sink."""

    def __init__(self, settings: SinkSettings, metrics: MetricsSettings) -> None:
        self._lock = threading.Lock()
        transactions = {"open": 0, "decided": 0, "published": 0, "aborted": 0}
        self._found: dict[str, Any] = {
            "kind": "sink",
            "reporter": new_name(),
            "label": metrics.label,
            "query_id": "",
            "name": "",
            "sink": sink_text(settings),
            "guarantee": settings.guarantee,
            "phase": "committing",
            "reason": "",
            "batch": None,
            "batches": 0,
            "tasks": 0,
            "errors": 0,
            "dead_letters": 0,
            "records": {},
            "bytes": {},
            "send_time_s": None,
            "decide_s": None,
            "finish_s": None,
            "transactions": transactions if settings.guarantee == "exactly-once" else None,
            "clients": {},
        }
        self._reporter = Reporter(partial(find_or_start, metrics), self._report)

    @contextmanager
    def committing(
        self, batch: int, reports: Sequence[TaskReport], observed: Sequence[TaskObservation], transactions: int
    ) -> Iterator[list[PublishReport]]:
        """Report a batch while it is committed, and after it. Put the report of its publication into the list, if any."""
        with self._lock:
            self._begin(batch, observed, tasks=len(reports))
            if (found := self._found["transactions"]) is not None:
                self._found["transactions"] = found | {"open": transactions}
        self._reporter.wake()
        published: list[PublishReport] = []
        try:
            yield published
        except Exception as error:
            self.failed(batch, observed, str(error))
            raise
        with self._lock:
            self._count(reports, observed)
            if found is not None:
                self._found["transactions"] = _ended(found, published)
            self._found |= {"phase": "done", "reason": "", "batches": self._found["batches"] + 1}
            for publication in published:
                self._found |= {
                    "decide_s": publication.decide_ms / 1000,
                    "finish_s": publication.finish_ms / 1000,
                }
        self._reporter.wake()

    def failed(self, batch: int, observed: Sequence[TaskObservation], reason: str, aborted: int = 0) -> None:
        """Report a batch that was not written, and how many transactions were aborted."""
        with self._lock:
            self._begin(batch, observed, tasks=len(observed))
            self._found |= {"phase": "failed", "reason": reason}
            if aborted and (found := self._found["transactions"]) is not None:
                self._found["transactions"] = found | {"open": 0, "aborted": found["aborted"] + aborted}
        self._reporter.wake()

    def _begin(self, batch: int, observed: Sequence[TaskObservation], *, tasks: int) -> None:
        self._found |= {"phase": "committing", "reason": "", "batch": batch if batch >= 0 else None, "tasks": tasks}
        for task in observed[:1]:
            self._found |= {"query_id": task.query_id, "name": task.name}

    def _count(self, reports: Sequence[TaskReport], observed: Sequence[TaskObservation]) -> None:
        found = self._found
        records, sizes, clients = dict(found["records"]), dict(found["bytes"]), dict(found["clients"])
        for report in reports:
            for cluster, volume in report.clusters.items():
                records[cluster] = records.get(cluster, 0) + volume.records
                sizes[cluster] = sizes.get(cluster, 0) + volume.bytes
        for task in observed:
            for cluster, numbers in task.clients.items():
                known = clients.get(cluster, {})
                clients[cluster] = {
                    name: known.get(name, 0) + value if name.endswith("_total") else value
                    for name, value in numbers.items()
                }
        found |= {
            "records": records,
            "bytes": sizes,
            "clients": clients,
            "errors": found["errors"] + sum(report.errors for report in reports),
            "dead_letters": found["dead_letters"] + sum(report.dead_letters for report in reports),
        }
        if any(report.clusters for report in reports):
            found["send_time_s"] = max(report.flush_ms for report in reports) / 1000

    def _report(self, _everything: bool) -> dict[str, Any]:  # noqa: FBT001  the contract of `Reporter`
        with self._lock:
            return {**self._found, "time_ms": int(time.time() * 1000)}


def _ended(found: Mapping[str, int], published: Sequence[PublishReport]) -> dict[str, int]:
    """Return the transactions after a batch was published, or was found to be published before."""
    ended = dict(found, open=0)
    for publication in published:
        for name in ("aborted",) if publication.repeated else ("decided", "published"):
            ended[name] += publication.transactions
    return ended


def sink_text(settings: SinkSettings) -> str:
    """Return what a sink writes to, for people."""
    if settings.topic is not None:
        return settings.topic
    if settings.topics:
        return ",".join(settings.topics)
    return settings.pattern.pattern if settings.pattern is not None else settings.stream


_tallies: dict[tuple[object, ...], SinkTally] = {}


def sink_tally(settings: SinkSettings, metrics: MetricsSettings) -> SinkTally:
    """Return this process's tally of a sink; a new one for its first batch."""
    key = metrics, settings.stream, sink_text(settings), settings.prefix, settings.guarantee
    tally = _tallies.pop(key, None) or SinkTally(settings, metrics)
    _tallies[key] = tally
    for oldest in list(_tallies)[:-_MOST_TALLIES]:
        del _tallies[oldest]
    return tally
