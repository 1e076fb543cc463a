"""What a worker process has read, for the metrics: counted batch by batch, and reported in the background after each task.

The counts are of the process, from its first task of a source on. If a report is lost, the next one says it all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from dynamic_kafka.native import implementation
from dynamic_kafka.observe.clients import ClientTotals
from dynamic_kafka.observe.place import Address
from dynamic_kafka.observe.reporter import Reporter, new_name
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["Observation", "Tally", "counted", "needed", "tally_of"]

_MOST_TALLIES = 8
_NEEDED = ("topic", "partition", "cluster")


class Observation(NamedTuple):
    """What a task needs to report; it travels in the task.

    Attributes:
        run: The name of the source's run.
        address: The server; None if it has not started yet.
        clients: If true, librdkafka's numbers are reported too.
    """

    run: str
    address: Address | None
    clients: bool


class _Count:
    """What was read of a partition."""

    __slots__ = ("bytes", "read_ms", "records", "timestamp_ms")

    def __init__(self) -> None:
        self.records = self.bytes = self.read_ms = 0
        self.timestamp_ms: int | None = None


class Tally:
    """The counts of this process for one run of a source.

    Args:
        run: The name of the run.
        reader: What reads: "native" or "python".

    Attributes:
        address: The server; None until a task tells it.
        reporter: Sends the counts.
    """

    def __init__(self, run: str, reader: str) -> None:
        self._lock = threading.Lock()
        self._run, self._name, self._reader = run, new_name(), reader
        self._counts: dict[tuple[str, str], dict[int, _Count]] = {}
        self._emit_lag_s: dict[str, float] = {}
        self._totals: dict[str, ClientTotals] = {}
        self._clients: dict[str, dict[str, float]] = {}
        self._tasks = self._errors = self._given_up = 0
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
        """Take the statistics of a cluster's client."""
        with self._lock:
            self._clients[cluster] = self._totals.setdefault(cluster, ClientTotals()).take(text)

    def count(self, batch: pa.RecordBatch) -> None:
        """Count the records of a batch. They are of one cluster, and those of a partition stand together."""
        rows, now = batch.num_rows, time.time()
        if not rows:
            return
        cluster = batch.column("cluster")[0].as_py()
        topics, timestamps = batch.column("topic"), None
        if "timestamp" in batch.schema.names:
            timestamps = batch.column("timestamp")
        bytes_per_row, now_ms = batch.nbytes / rows, int(now * 1000)
        last_ms: int | None = None
        with self._lock:
            for topic, partition, first, after in _parts(topics, batch.column("partition")):
                of = self._counts.setdefault((cluster, topic), {}).setdefault(partition, _Count())
                of.records += after - first
                of.bytes += int(bytes_per_row * (after - first))
                of.read_ms = now_ms
                if timestamps is not None and (micros := timestamps[after - 1].value) is not None:
                    last_ms = micros // 1000
                    of.timestamp_ms = max(last_ms, of.timestamp_ms or last_ms)
            if last_ms is not None:
                self._emit_lag_s[cluster] = now - last_ms / 1000

    def _report(self, _everything: bool) -> dict[str, Any]:  # noqa: FBT001  the contract of `Reporter`
        with self._lock:
            return {
                "kind": "worker",
                "reporter": self._name,
                "time_ms": int(time.time() * 1000),
                "run": self._run,
                "query_id": self._query[0],
                "name": self._query[1],
                "reader": self._reader,
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
                "clients": dict(self._clients),
            }


_tallies: dict[str, Tally] = {}


def tally_of(observation: Observation, settings: SourceSettings) -> Tally:
    """Return this process's tally of a run; a new one for its first task."""
    tally = _tallies.pop(observation.run, None) or Tally(
        observation.run, implementation(settings.reader_implementation)
    )
    _tallies[observation.run] = tally
    for oldest in list(_tallies)[:-_MOST_TALLIES]:
        _tallies.pop(oldest).reporter.close()
    if observation.address is not None:
        tally.address = observation.address
    return tally


def counted(batches: Iterator[pa.RecordBatch], tally: Tally, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Count batches on their way to Spark, and report them after the last one.

    Args:
        batches: The batches, with the columns `topic`, `partition` and `cluster`.
        tally: The tally.
        columns: The columns that Spark wants.
    """
    try:
        for batch in batches:
            tally.count(batch)
            yield batch if batch.schema.names == columns else batch.select(columns)
    except Exception:
        tally.failed()
        raise
    finally:
        if tally.address is not None:
            tally.reporter.wake()


def needed(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns to read: those that Spark wants, and those that are needed to count."""
    return (*columns, *(name for name in _NEEDED if name not in columns))


def _parts(topics: pa.Array, partitions: pa.Array) -> Iterator[tuple[str, int, int, int]]:
    """Yield each part of a batch with one topic and partition: these, its first row, and the row after its last."""
    one = topics[0].as_py() if _is_one(topics, 0, len(topics)) else None
    for partition, begin, end in _runs(partitions):
        if one is not None:
            yield one, partition, begin, end
        else:
            for topic, first, after in _topics(topics, begin, end):
                yield topic, partition, first, after


def _runs(partitions: pa.Array) -> Iterator[tuple[int, int, int]]:
    """Yield each run of equal numbers: the number, its first row, and the row after its last."""
    import numpy as np  # loaded by Spark's worker

    numbers = np.frombuffer(partitions.buffers()[1], dtype=np.int32, count=len(partitions) + partitions.offset)
    numbers = numbers[partitions.offset :]
    begin = 0
    for last in np.flatnonzero(numbers[1:] != numbers[:-1]).tolist():
        yield int(numbers[begin]), begin, last + 1
        begin = last + 1
    yield int(numbers[begin]), begin, len(numbers)


def _topics(topics: pa.Array, begin: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield each part of some rows that has one topic."""
    if _is_one(topics, begin, end):
        yield topics[begin].as_py(), begin, end
    else:
        middle = (begin + end) // 2
        yield from _topics(topics, begin, middle)
        yield from _topics(topics, middle, end)


def _is_one(topics: pa.Array, begin: int, end: int) -> bool:
    """Return whether some rows have the same topic."""
    length = end - begin - 1
    return bool(topics.slice(begin + 1, length).equals(topics.slice(begin, length)))
