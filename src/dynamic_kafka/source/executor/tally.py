"""What a worker process has read, for the metrics: counted batch by batch, and reported while it reads.

The counts are of the process, from its first task of a source on. If a report is lost, the next one says it all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from dynamic_kafka.observe.clients import ClientTotals
from dynamic_kafka.observe.parts import Tally as Count
from dynamic_kafka.observe.place import Address
from dynamic_kafka.observe.reporter import Reporter, new_name
from dynamic_kafka.observe.reports import HistoryRead
from dynamic_kafka.source.executor.fetcher import Run
from dynamic_kafka.source.observation import Observation

__all__ = ["Tally", "reported", "tally_of"]

_MOST_TALLIES = 8


class Tally:
    """The counts of this process for one run of a source.

    Args:
        run: The name of the run.

    Attributes:
        address: The server; None until a task tells it.
        reporter: Sends the counts.
    """

    def __init__(self, run: str) -> None:
        self._lock = threading.Lock()
        self._run, self._name = run, new_name()
        self._counts: dict[tuple[str, str], dict[int, Count]] = {}
        self._decode_errors: dict[tuple[str, str], int] | None = None
        self._emit_lag_s: dict[str, float] = {}
        self._totals: dict[str, ClientTotals] = {}
        self._clients: dict[str, dict[str, float]] = {}
        self._tasks = self._errors = self._given_up = 0
        self._history_read = HistoryRead(rows=0, bytes=0, read_ms=None)
        self._query = "", ""
        self.address: Address | None = None
        self.reporter = Reporter(self._address, self._report)

    def _address(self) -> Address:
        assert self.address is not None  # the reporter is woken when there is one
        return self.address

    def begin(self, query_id: str, name: str) -> None:
        """Count a task."""
        with self._lock:
            self._tasks += 1
            self._query = query_id, name

    def failed(self) -> None:
        """Count a task that failed."""
        with self._lock:
            self._errors += 1

    def give_up(self, offsets: int) -> None:
        """Count offsets that are given up."""
        with self._lock:
            self._given_up += offsets

    def note_statistics(self, cluster: str, text: str) -> None:
        """Take the statistics of a cluster's client; "" if there are no new ones."""
        if not text:
            return
        with self._lock:
            self._clients[cluster] = self._totals.setdefault(cluster, ClientTotals()).take(text)

    def count(self, cluster: str, runs: Iterable[Run], bytes_per_record: float) -> None:
        """Count records that are handed to Spark now.

        Args:
            cluster: Their cluster.
            runs: What they are of.
            bytes_per_record: Their average size, as Arrow columns.
        """
        now = time.time()
        now_ms = int(now * 1000)
        last_ms: int | None = None
        with self._lock:
            for topic, partition, records, timestamp_ms in runs:
                of = self._counts.setdefault((cluster, topic), {}).setdefault(partition, Count())
                of.records += records
                of.bytes += int(bytes_per_record * records)
                of.read_ms = now_ms
                if timestamp_ms is not None:
                    last_ms = timestamp_ms
                    of.timestamp_ms = max(timestamp_ms, of.timestamp_ms or timestamp_ms)
            if last_ms is not None:
                self._emit_lag_s[cluster] = now - last_ms / 1000

    def count_history(self, rows: int, size: int) -> None:
        """Count rows of the history that are handed to Spark now, of this size in bytes."""
        with self._lock:
            of = self._history_read
            self._history_read = HistoryRead(
                rows=of["rows"] + rows, bytes=of["bytes"] + size, read_ms=int(time.time() * 1000)
            )

    def count_decode_errors(self, found: Mapping[tuple[str, str], int]) -> None:
        """Count messages that cannot be decoded, by cluster and topic. The first call says that they are counted at all."""
        with self._lock:
            known = self._decode_errors = self._decode_errors or {}
            for topic, records in found.items():
                known[topic] = known.get(topic, 0) + records

    def _report(self, _everything: bool) -> dict[str, Any]:  # noqa: FBT001  the contract of `Reporter`
        with self._lock:
            return {
                "kind": "worker",
                "reporter": self._name,
                "time_ms": int(time.time() * 1000),
                "run": self._run,
                "query_id": self._query[0],
                "name": self._query[1],
                "tasks": self._tasks,
                "errors": self._errors,
                "given_up": self._given_up,
                "emit_lag_s": dict(self._emit_lag_s),
                "read": [
                    {
                        "cluster": cluster,
                        "topic": topic,
                        "partitions": list(of),
                        "records": [c.records for c in of.values()],
                        "bytes": [c.bytes for c in of.values()],
                        "timestamp_ms": [c.timestamp_ms for c in of.values()],
                        "read_ms": [c.read_ms for c in of.values()],
                    }
                    for (cluster, topic), of in self._counts.items()
                ],
                "history_read": self._history_read,
                "decode_errors": None
                if self._decode_errors is None
                else [
                    {"cluster": cluster, "topic": topic, "records": records}
                    for (cluster, topic), records in self._decode_errors.items()
                ],
                "clients": dict(self._clients),
            }


_tallies: dict[str, Tally] = {}


def tally_of(observation: Observation) -> Tally:
    """Return this process's tally of a run; a new one for its first task."""
    tally = _tallies.pop(observation.run, None) or Tally(observation.run)
    _tallies[observation.run] = tally
    for oldest in list(_tallies)[:-_MOST_TALLIES]:
        _tallies.pop(oldest).reporter.close()
    if observation.address is not None:
        tally.address = observation.address
    return tally


def reported(batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task, and report them: a long task is seen while it reads.

    Args:
        batches: The batches; `reader.read` counts them.
        tally: The tally.
    """
    try:
        for batch in batches:
            yield batch
            if tally.address is not None:
                tally.reporter.wake()
    except Exception:
        tally.failed()
        raise
    finally:
        if tally.address is not None:
            tally.reporter.wake()
