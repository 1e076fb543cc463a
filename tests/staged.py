"""Staged queries for tests of the status page: what their processes report over ten minutes, joined by the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dynamic_kafka.observe.model import HISTORY_INTERVAL_MS, Model
from dynamic_kafka.observe.reports import ClusterReport, Event, TopicReport, WorkerReport
from tests.observed import BEGAN_MS, cluster, metadata, read, sink, source, topic, worker

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
MINUTES = 10
_RECORDS_PER_S = 120

Clusters = Callable[[int, int], list[ClusterReport]]
"""Takes the time and the records in each partition since the beginning, and returns the clusters."""


def event(time_ms: int, level: str, text: str) -> Event:
    """An event."""
    return {"time_ms": time_ms, "level": level, "text": text}


def reading(name: str, time_ms: int, written: int, partitions: int = 4) -> TopicReport:
    """A topic that is read as it is written: a few records are on their way."""
    current = tuple(written + 1000 * n for n in range(partitions))
    end = tuple(offset + n % 3 for n, offset in enumerate(current))
    since = tuple(time_ms - 400 if n % 3 else None for n in range(partitions))
    return topic(name, current, end, since, committed=[offset - 5 for offset in current])


def run(
    model: Model,
    now_ms: int,
    queries: Mapping[str, Clusters],
    *,
    silent_s: int = 0,
    read_until_ms: int | None = None,
    last: Mapping[str, Any] | None = None,
    **changes: Any,
) -> None:
    """Report what queries do, as their processes would, until now.

    Args:
        model: What joins the reports.
        now_ms: The time at which it ends.
        queries: For each query, by its name in Spark, its clusters at each time.
        silent_s: The time without a report before its end.
        read_until_ms: When the workers read their last records; None for now.
        last: Changes of the last report of each source.
        changes: Changes of all reports of each source.
    """
    began_ms = now_ms - MINUTES * 60_000
    records = 0.0
    steps = MINUTES * 60_000 // HISTORY_INTERVAL_MS
    for step in range(steps + 1 - silent_s * 1000 // HISTORY_INTERVAL_MS):
        time_ms = began_ms + step * HISTORY_INTERVAL_MS
        records += _RECORDS_PER_S * HISTORY_INTERVAL_MS / 1000 * (0.9 + step * 7 % 10 / 50)
        usual: dict[str, Any] = {"batches": step + 1, "last_batch_ms": time_ms - 900, "metadata": metadata(time_ms)}
        usual |= {"sequence": step + 1, "time_ms": time_ms, "started_ms": began_ms}
        for name, clusters in queries.items():
            found = clusters(time_ms, int(records))
            for c in found:  # each answers now, unless it says otherwise
                c["seen_ms"] = time_ms if c["seen_ms"] == BEGAN_MS else c["seen_ms"]
            model.report(
                source(*found, reporter=name, **usual | changes | dict((last or {}) if step == steps else {})), time_ms
            )
            if read_until_ms is None or time_ms <= read_until_ms:
                model.report(_worker(name, found, step + 1, time_ms, int(records)), time_ms)
        model.tick(time_ms)


def _worker(name: str, clusters: list[ClusterReport], sequence: int, time_ms: int, records: int) -> WorkerReport:
    """The report of a worker that has read so many records of each partition on the clusters that are read."""
    of_worker = worker(reporter=f"worker of {name}", run=name, sequence=sequence, name=name, time_ms=time_ms)
    of_worker["query_id"] = f"id of {name}"
    for c in clusters:
        if c["state"] == "reading":
            of_worker["emit_lag_s"][c["cluster"]] = 0.7
            for t in c["topics"] or ():
                found = read(dict.fromkeys(t["partitions"], records), t["topic"], c["cluster"], time_ms - 700)
                found["read_ms"] = [time_ms - 300 for _ in t["partitions"]]
                of_worker["read"].append(found)
    return of_worker


def running(now_ms: int) -> Model:
    """A query without any trouble, which writes exactly once."""
    model = Model(now_ms - MINUTES * 60_000)

    def clusters(time_ms: int, written: int) -> list[ClusterReport]:
        eu = cluster("orders-eu", reading("orders", time_ms, written), reading("refunds", time_ms, written // 9, 2))
        return [eu, cluster("orders-us", reading("orders", time_ms, written))]

    found = "Stream 'orders': cluster 'orders-us' is new. It is read from the earliest offsets"
    run(model, now_ms, {"billing": clusters}, events=[event(now_ms - 500_000, "info", found)], group_id="billing")
    written = {"orders-eu": 480_000, "orders-us": 240_000}
    size = {name: 180 * count for name, count in written.items()}
    model.report(sink(sequence=120, query_id="id of billing", batch=119, records=written, bytes=size), now_ms)
    return model


def dead_cluster(now_ms: int, *, waits: bool = False) -> Model:
    """A query that has lost one of three clusters two minutes ago, and reads the others, or waits with them."""
    model, died_ms = Model(now_ms - MINUTES * 60_000), now_ms - 120_000
    error = "Cluster 'orders-us' does not answer: Connect to 10.1.7.20:9092 failed: refused. Bring the cluster back"

    def clusters(time_ms: int, written: int) -> list[ClusterReport]:
        dead = time_ms > died_ms
        changes = {"state": "unreachable", "reason": error, "failing_since_ms": died_ms} if dead else {}
        stays = reading("orders", min(time_ms, died_ms), min(written, 55_000))
        us = cluster("orders-us", stays, seen_ms=min(time_ms, died_ms), **changes)
        others = [cluster(name, reading("orders", time_ms, written)) for name in ("orders-ap", "orders-eu")]
        return [*others, us]

    until_ms = died_ms if waits else None
    run(model, now_ms, {"billing": clusters}, read_until_ms=until_ms, events=[event(died_ms + 1500, "warning", error)])
    return model


def hot_partition(now_ms: int, for_s: int = 240) -> Model:
    """A query with one partition of 160 that is written faster than it is read, for some time."""
    model, since_ms = Model(now_ms - MINUTES * 60_000), now_ms - for_s * 1000

    def clusters(time_ms: int, written: int) -> list[ClusterReport]:
        of_topic = reading("orders", time_ms, written, 160)
        if time_ms > since_ms:
            of_topic["end"][37] = of_topic["current"][37] + (time_ms - since_ms) // 1000 * 900
            of_topic["behind_since_ms"][37] = since_ms
        return [cluster("orders-eu", of_topic), cluster("orders-us", reading("orders", time_ms, written))]

    run(model, now_ms, {"billing": clusters})
    return model


def each_half_minute(now_ms: int) -> Model:
    """A query that starts a batch each half minute, a moment before the next one."""
    model = Model(now_ms - MINUTES * 60_000)

    def clusters(time_ms: int, _: int) -> list[ClusterReport]:
        waits_s = 29 - (now_ms - time_ms) // 1000 % 30
        behind = {"end": (100 + 50 * waits_s,), "behind_since_ms": (time_ms - 1000 * waits_s,)} if waits_s else {}
        return [cluster("orders-eu", topic("orders", current=(100,), **({"end": (100,)} | behind)))]

    run(model, now_ms, {"billing": clusters})
    return model


def metadata_mistake(now_ms: int) -> Model:
    """A query of which the metadata document is damaged."""
    model = Model(now_ms - MINUTES * 60_000)
    error = "streams.yaml, [0].clusterMetadataList[1].bootstrapServers: Field required. The last good answer is used"

    def clusters(time_ms: int, written: int) -> list[ClusterReport]:
        return [cluster(name, reading("orders", time_ms, written)) for name in ("orders-eu", "orders-us")]

    failing = {
        "failures": 24, "consecutive_failures": 24, "ends_ms": now_ms + 67_000, "last_error": error,
        "last_success_ms": now_ms - 240_000,
    }  # fmt: skip
    events = [event(now_ms - 238_000, "warning", error)]
    run(model, now_ms, {"billing": clusters}, last={"metadata": metadata(now_ms, **failing)}, events=events)
    return model


def typing_error(now_ms: int) -> Model:
    """A query of which the metadata document names a wrong topic."""
    model = Model(now_ms - MINUTES * 60_000)
    wrong = "Cluster 'orders-us', topic 'ordres' does not exist, say its brokers. Correct its name in the metadata"
    run(model, now_ms, {"billing": one_cluster}, events=[event(now_ms - 250_000, "warning", wrong)])
    return model


def one_cluster(time_ms: int, written: int) -> list[ClusterReport]:
    """A cluster that answers."""
    return [cluster("orders-eu", reading("orders", time_ms, written))]


def failed(now_ms: int) -> Model:
    """A query that has ended by an error a moment ago."""
    model = Model(now_ms - MINUTES * 60_000)
    reason = "Cluster 'orders-eu', topic 'orders', partition 3: offsets 1200 to 1499 were deleted before they were read"
    last = {"state": "failed", "reason": reason}
    run(model, now_ms, {"billing": one_cluster}, last=last)
    model.gone("billing", now_ms)
    return model


def silent(now_ms: int) -> Model:
    """A query whose reader process exists and has not reported for half a minute."""
    model = Model(now_ms - MINUTES * 60_000)
    run(model, now_ms, {"billing": one_cluster}, silent_s=30)
    return model


def starting(now_ms: int) -> Model:
    """A query that has only just begun."""
    model = Model(now_ms)
    model.report(source(started_ms=now_ms, time_ms=now_ms, batches=0, last_batch_ms=None), now_ms)
    return model


def hostile(now_ms: int) -> Model:
    """A query in which each name and each text is HTML that would run a script."""
    model = Model(now_ms - MINUTES * 60_000)

    def clusters(time_ms: int, written: int) -> list[ClusterReport]:
        return [
            cluster(HOSTILE, reading(HOSTILE, time_ms, written), reason=HOSTILE, state="unreachable"),
            cluster("javascript:alert(1)", reading('"><script>alert(1)</script>', time_ms, written)),
        ]

    failing = metadata(now_ms, last_error=HOSTILE, consecutive_failures=1, failures=1)
    left = {"location": HOSTILE, "rows": 9, "rows_left": 5, "files_left": 1, "bytes_left": 70}
    changes: dict[str, Any] = {
        "history_left": left,
        "streams": [HOSTILE],
        "group_id": HOSTILE,
        "label": HOSTILE,
        "metadata": failing,
    }
    run(model, now_ms, {HOSTILE: clusters}, events=[event(now_ms, HOSTILE, HOSTILE)], **changes)
    model.report(
        sink(query_id=f"id of {HOSTILE}", sink=HOSTILE, reason=HOSTILE, phase="failed", records={HOSTILE: 1}), now_ms
    )
    return model


def several(now_ms: int) -> Model:
    """Three queries of one driver."""
    model = Model(now_ms - MINUTES * 60_000)

    def clusters_of(name: str, **changes: Any) -> Clusters:
        return lambda time_ms, written: [cluster(f"{name}-eu", reading(name, time_ms, written), **changes)]

    failing = clusters_of("fraud", state="unreachable", reason="no broker answers")
    queries = {"billing": clusters_of("billing"), "fraud": failing, "search": clusters_of("search")}
    run(model, now_ms, queries)
    return model


STATES: dict[str, Callable[[int], Model]] = {
    "running": running,
    "dead-cluster": dead_cluster,
    "waits-for-a-dead-cluster": partial(dead_cluster, waits=True),
    "hot-partition": hot_partition,
    "newly-hot-partition": partial(hot_partition, for_s=40),
    "each-half-minute": each_half_minute,
    "metadata-mistake": metadata_mistake,
    "typing-error": typing_error,
    "failed": failed,
    "silent": silent,
    "starting": starting,
    "hostile": hostile,
    "several": several,
}
