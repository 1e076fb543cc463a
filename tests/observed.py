"""Reports for tests of the metrics: small ones, of which a test changes what it is about."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from dynamic_kafka.observe.model import Model
from dynamic_kafka.observe.reports import (
    ClusterReport,
    MetadataStatus,
    ReadReport,
    SinkReport,
    SourceReport,
    TopicReport,
    WorkerReport,
)
from dynamic_kafka.observe.server import MetricsServer

BEGAN_MS = 1_700_000_000_000


def topic(
    name: str = "orders",
    current: tuple[int, ...] = (10,),
    end: tuple[int | None, ...] = (10,),
    behind_since_ms: tuple[int | None, ...] = (),
    **changes: Any,
) -> TopicReport:
    """A topic with the partitions from 0 on."""
    behind = behind_since_ms or tuple(
        BEGAN_MS if e is not None and e > c else None for c, e in zip(current, end, strict=True)
    )
    found: dict[str, Any] = {
        "topic": name,
        "state": "reading",
        "partitions": list(range(len(current))),
        "current": list(current),
        "committed": [None] * len(current),
        "end": list(end),
        "behind_since_ms": list(behind),
    }
    return cast("TopicReport", found | changes)


def cluster(name: str = "east", *topics: TopicReport, **changes: Any) -> ClusterReport:
    """A cluster that answers."""
    found: dict[str, Any] = {
        "cluster": name,
        "kafka_id": f"id-{name}",
        "brokers": f"{name}:9092",
        "state": "reading",
        "reason": "",
        "failing_since_ms": None,
        "seen_ms": BEGAN_MS,
        "watched_since_ms": BEGAN_MS - 60_000,
        "missing": [],
        "unknown": 0,
        "commits": {"succeeded": 0, "failed": 0},
        "topics": list(topics or (topic(),)),
    }
    return cast("ClusterReport", found | changes)


def source(*clusters: ClusterReport, reporter: str = "run", sequence: int = 1, **changes: Any) -> SourceReport:
    """The report of a source."""
    found: dict[str, Any] = {
        "kind": "source",
        "reporter": reporter,
        "sequence": sequence,
        "time_ms": BEGAN_MS,
        "dropped": 0,
        "started_ms": BEGAN_MS,
        "label": "",
        "streams": ["orders"],
        "group_id": None,
        "max_partitions": 1000,
        "state": "running",
        "reason": "",
        "batches": 1,
        "last_batch_ms": BEGAN_MS,
        "batch_since_ms": None,
        "batch_last_s": 0.5,
        "batch_p95_s": 0.75,
        "calls": {"latest_offset": {"count": 2, "total_s": 0.5, "last_s": 0.25}},
        "metadata": None,
        "events": [],
        "history_left": None,
        "clusters": list(clusters),
    }
    return cast("SourceReport", found | changes)


def metadata(now_ms: int = BEGAN_MS, **changes: Any) -> MetadataStatus:
    """A metadata service that answers."""
    found: dict[str, Any] = {
        "refreshes": 60,
        "failures": 0,
        "consecutive_failures": 0,
        "tolerated_failures": 30,
        "ends_ms": None,
        "last_error": None,
        "last_success_ms": now_ms - 2000,
        "asking_since_ms": None,
        "changes": 1,
    }
    return cast("MetadataStatus", found | changes)


def read(
    records: dict[int, int], topic: str = "orders", cluster: str = "east", timestamp_ms: int = BEGAN_MS
) -> ReadReport:
    """What was read of a topic: records by partition."""
    return {
        "cluster": cluster,
        "topic": topic,
        "partitions": list(records),
        "records": list(records.values()),
        "bytes": [100 * count for count in records.values()],
        "timestamp_ms": [timestamp_ms for _ in records],
        "read_ms": [BEGAN_MS for _ in records],
    }


def worker(*reads: ReadReport, reporter: str = "worker", sequence: int = 1, **changes: Any) -> WorkerReport:
    """The report of a worker."""
    found: dict[str, Any] = {
        "kind": "worker",
        "reporter": reporter,
        "sequence": sequence,
        "time_ms": BEGAN_MS,
        "dropped": 0,
        "run": "run",
        "query_id": "",
        "name": "",
        "tasks": sequence,
        "errors": 0,
        "given_up": 0,
        "emit_lag_s": {},
        "read": list(reads),
        "history_read": {"rows": 0, "bytes": 0, "read_ms": None},
        "decode_errors": None,
        "clients": {},
    }
    return cast("WorkerReport", found | changes)


def sink(reporter: str = "committer", sequence: int = 1, **changes: Any) -> SinkReport:
    """The report of a sink that has written a batch exactly once."""
    found: dict[str, Any] = {
        "kind": "sink",
        "reporter": reporter,
        "sequence": sequence,
        "time_ms": BEGAN_MS,
        "dropped": 0,
        "label": "",
        "query_id": "",
        "name": "",
        "sink": "invoices",
        "guarantee": "exactly-once",
        "phase": "done",
        "reason": "",
        "batch": 7,
        "batches": sequence,
        "tasks": 2,
        "errors": 0,
        "dead_letters": 0,
        "records": {"east": 100 * sequence},
        "bytes": {"east": 1000 * sequence},
        "send_time_s": 0.125,
        "decide_s": 0.01,
        "finish_s": 0.02,
        "transactions": {"open": 0, "decided": 2 * sequence, "published": 2 * sequence, "aborted": 0},
        "clients": {},
    }
    return cast("SinkReport", found | changes)


@contextmanager
def serving(model: Model | None = None) -> Iterator[MetricsServer]:
    """A metrics server in this process, perhaps with a model of the test's own."""
    server = MetricsServer("127.0.0.1", 0)
    if model is not None:
        server._model = model
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
