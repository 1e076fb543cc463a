"""From the parts of a query to its status. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from dynamic_kafka.observe.parts import QueryParts, Sample, SinkPart, SourcePart
from dynamic_kafka.observe.reports import ClusterReport, Event, SourceReport, TopicReport, UnreadKind
from dynamic_kafka.observe.status import (
    ClusterStatus,
    History,
    PartitionStatus,
    QueryState,
    QueryStatus,
    SinkStatus,
    SourceStatus,
    TopicStatus,
)

__all__ = ["Detail", "query_status", "source_status"]

SILENT_AFTER_MS = 15_000
"""A source that has not reported for so long is silent. It reports every second, or says that nothing has changed."""
IDLE_AFTER_MS = 60_000
"""A partition without records for so long does not hold the watermark back."""
_ENDED = "it was stopped, or failed where its source cannot see it: the log of the driver says which"
_GAUGE_MS = 60_000
_MOST_EVENTS = 50
_RATE_SAMPLES = 3

Detail = Callable[[str, str], bool]
"""Takes a cluster and a topic, and returns whether the status shows its partitions."""


def query_status(query: QueryParts, label: str, now_ms: int, detail: Detail | None) -> QueryStatus:
    """Return the status of a query."""
    sources = [source_status(s, now_ms, detail) for s in query.sources]
    sinks = [_sink_status(s, now_ms) for s in query.sinks]
    state, reason = _state(query, sources, sinks, now_ms)
    events: list[Event] = [e for s in query.sources if s.report is not None for e in s.report["events"]]
    return QueryStatus(
        query=label,
        query_id=query.first("query_id") or None,
        name=query.first("name") or None,
        state=state,
        reason=reason,
        started_ms=min(part.first_ms for part in query.parts),
        sources=sources,
        sinks=sinks,
        events=sorted(events, key=lambda e: e["time_ms"])[-_MOST_EVENTS:],
        reports_dropped=sum(part.dropped for part in query.parts),
    )


def _state(
    query: QueryParts, sources: list[SourceStatus], sinks: list[SinkStatus], now_ms: int
) -> tuple[QueryState, str]:
    reports = [s.report for s in query.sources if s.report is not None]
    if failed := [r["reason"] for r in reports if r["state"] == "failed"]:
        return "failed", failed[0]
    if reports and all(r["state"] == "finished" for r in reports):
        return "finished", ""
    unwritten = [f"the last batch was not written: {s['reason']}" for s in sinks if s["phase"] == "failed"]
    problems = [f"{c['reason']}" for s in sources for c in s["clusters"] if c["state"] == "unreachable"]
    problems += [text for s in sources for c in s["clusters"] for text in c["missing"]]
    problems += [
        f"the metadata service fails: {m['last_error']}"
        for s in sources
        if (m := s["metadata"]) is not None and m["consecutive_failures"]
    ]
    if query.sources and all(s.has_ended(now_ms) for s in query.sources):
        state: QueryState = "failed" if unwritten else "ended"
        # Most likely the reason: a task that waits for a dead cluster fails, and then its batch is not written.
        known = f". When it ended: {'; '.join(problems)}" if problems else ""
        return state, (unwritten[0] if unwritten else _ENDED) + known
    silent_ms = max((now_ms - s.reported_ms for s in query.sources if not s.has_ended(now_ms)), default=0)
    if silent_ms >= SILENT_AFTER_MS:
        return "silent", f"the reader process has not reported for {silent_ms // 1000} s"
    problems += unwritten
    if problems:
        return "degraded", "; ".join(problems)
    if any(s["batches"] or s["clusters"] for s in sources) or sinks:
        return "running", ""
    return "starting", ""


def source_status(source: SourcePart, now_ms: int, detail: Detail | None) -> SourceStatus:
    """Return the status of a source. It keeps the watermark, which never goes back."""
    report = source.report
    if detail is None:
        is_small = report is not None and _partitions(report) <= report["max_partitions"]
        detail = lambda _cluster, _topic: is_small  # noqa: E731
    clusters = [_cluster_status(source, c, now_ms, detail) for c in report["clusters"]] if report else []
    clusters.sort(key=lambda c: (c["state"] != "unreachable", -(c["lag_s"] or 0), -c["pending_records"], c["cluster"]))
    started_ms = report["started_ms"] if report else source.first_ms
    source.watermark_ms = watermark_ms = _watermark_ms(source, now_ms)
    records_per_s, bytes_per_s = _rates(source.history)
    # Of all partitions, also of those that are gone: a total never falls.
    tallies = [t for by_partition in source.tallies.values() for t in by_partition.values()]
    return SourceStatus(
        run=source.run,
        started_ms=started_ms,
        reported_ms=source.reported_ms,
        streams=report["streams"] if report else [],
        group_id=report["group_id"] if report else None,
        reader=source.reader,
        batches=report["batches"] if report else 0,
        last_batch_ms=report["last_batch_ms"] if report else None,
        calls=report["calls"] if report else {},
        records=sum(t.records for t in tallies),
        bytes=sum(t.bytes for t in tallies),
        records_per_s=records_per_s,
        bytes_per_s=bytes_per_s,
        tasks=source.tasks,
        task_errors=source.errors,
        given_up=source.given_up,
        partition_count=sum(c["partition_count"] for c in clusters),
        pending_records=sum(c["pending_records"] for c in clusters),
        lag_s=_greatest(c["lag_s"] for c in clusters),
        emit_lag_s=_greatest(source.emit_lag_s.values()),
        watermark_ms=watermark_ms,
        watermark_lag_s=None if watermark_ms is None else (now_ms - watermark_ms) / 1000,
        idle_s=max(0, now_ms - (source.last_read_ms or started_ms)) / 1000,
        max_partitions=report["max_partitions"] if report else 0,
        commits={
            "succeeded": sum(c["commits"]["succeeded"] for c in clusters),
            "failed": sum(c["commits"]["failed"] for c in clusters),
        },
        metadata=report["metadata"] if report else None,
        history_left=report["history_left"] if report else None,
        history_read=source.history_read,
        clusters=clusters,
        history=_history(source.history),
    )


def _partitions(report: SourceReport) -> int:
    return sum(len(t["partitions"]) for c in report["clusters"] for t in c["topics"] or ())


def _cluster_status(source: SourcePart, c: ClusterReport, now_ms: int, detail: Detail) -> ClusterStatus:
    name = c["cluster"]
    topics = [_topic_status(source, c, t, now_ms, partitions=detail(name, t["topic"])) for t in c["topics"] or ()]
    topics.sort(key=lambda t: (-(t["lag_s"] or 0), -t["pending_records"], t["topic"]))
    history = source.histories.get(name, deque())
    return ClusterStatus(
        cluster=name,
        kafka_id=c["kafka_id"],
        state=c["state"],
        reason=c["reason"],
        failing_for_s=None if c["failing_since_ms"] is None else max(0, now_ms - c["failing_since_ms"]) / 1000,
        seen_ms=c["seen_ms"],
        missing=c["missing"],
        partition_count=sum(t["partition_count"] for t in topics),
        pending_records=sum(t["pending_records"] for t in topics),
        lag_s=_greatest(t["lag_s"] for t in topics),
        emit_lag_s=source.emit_lag_s.get(name),
        records=sum(t["records"] for t in topics),
        bytes=sum(t["bytes"] for t in topics),
        records_per_s=_rates(history)[0],
        commits=c["commits"],
        topics=topics,
        clients=_clients(source, name, now_ms),
        history=_history(history),
    )


def _topic_status(
    source: SourcePart, c: ClusterReport, t: TopicReport, now_ms: int, *, partitions: bool
) -> TopicStatus:
    tallies = source.tallies.get((c["cluster"], t["topic"]), {})
    watched_ms = c["watched_since_ms"]
    pending = 0
    worst: tuple[float, int, int] | None = None
    known = False
    shown: list[PartitionStatus] = []
    columns = t["partitions"], t["current"], t["committed"], t["end"], t["behind_since_ms"]
    for partition, current, committed, end, since_ms in zip(*columns, strict=True):
        tally = tallies.get(partition)
        behind = None if end is None else max(0, end - current)
        lag_s: float | None = None
        if behind == 0:
            lag_s = 0.0
        elif behind is not None and since_ms is not None:
            began_ms = since_ms
            if (
                watched_ms is not None
                and since_ms <= watched_ms
                and tally is not None
                and tally.timestamp_ms is not None
            ):
                began_ms = min(began_ms, tally.timestamp_ms)
            lag_s = max(0, now_ms - began_ms) / 1000
        if behind is not None:
            pending += behind
            known = True
            rank = (lag_s or 0.0, behind, -partition)
            worst = rank if worst is None else max(worst, rank)
        if partitions:
            shown.append(
                PartitionStatus(
                    partition=partition,
                    current=current,
                    committed=committed,
                    end=end,
                    pending_records=behind,
                    lag_s=lag_s,
                    records=tally.records if tally is not None else 0,
                    timestamp_ms=tally.timestamp_ms if tally is not None else None,
                )
            )
    return TopicStatus(
        topic=t["topic"],
        state=t["state"],
        partition_count=len(t["partitions"]),
        pending_records=pending,
        lag_s=worst[0] if known and worst is not None else None,
        records=sum(tally.records for tally in tallies.values()),  # also of partitions that are gone: it never falls
        bytes=sum(tally.bytes for tally in tallies.values()),
        undecoded=_unread(source, "undecoded", c["cluster"], t["topic"]),
        decode_errors=_unread(source, "errors", c["cluster"], t["topic"]),
        worst_partition=-worst[2] if worst is not None and worst[1] else None,
        partitions=shown if partitions else None,
    )


def _unread(source: SourcePart, kind: UnreadKind, cluster: str, topic: str) -> int | None:
    counted = source.unread.get(kind)
    return None if counted is None else counted.get((cluster, topic), 0)


def _sink_status(sink: SinkPart, now_ms: int) -> SinkStatus:
    report = sink.report
    return SinkStatus(
        sink=report["sink"],
        guarantee=report["guarantee"],
        writers=report["writers"],
        phase=report["phase"],
        reason=report["reason"],
        reported_ms=sink.reported_ms,
        batch=report["batch"],
        batches=sink.batches,
        tasks=report["tasks"],
        errors=sink.errors,
        dead_letters=sink.dead_letters,
        records=sum(sink.records.values()),
        bytes=sum(sink.bytes.values()),
        records_per_s=_rates(sink.history)[0],
        send_time_s=report["send_time_s"],
        decide_s=report["decide_s"],
        finish_s=report["finish_s"],
        transactions=sink.transactions,
        clusters=[
            {
                "cluster": cluster,
                "records": count,
                "bytes": sink.bytes.get(cluster, 0),
                "clients": _clients(sink, cluster, now_ms),
            }
            for cluster, count in sorted(sink.records.items())
        ],
    )


def _watermark_ms(source: SourcePart, now_ms: int) -> int | None:
    known = [t for by in source.tallies.values() for t in by.values() if t.timestamp_ms is not None]
    times = [t.timestamp_ms for t in known if t.timestamp_ms is not None and now_ms - t.read_ms < IDLE_AFTER_MS]
    if not times:
        return source.watermark_ms
    return max(min(times), source.watermark_ms or min(times))


def _rates(history: deque[Sample]) -> tuple[float, float]:
    """Return records and bytes a second, over the last samples."""
    if len(history) < 2:
        return 0.0, 0.0
    first, last = history[max(0, len(history) - 1 - _RATE_SAMPLES)], history[-1]
    seconds = max(last.time_ms - first.time_ms, 1) / 1000
    return max(0, last.records - first.records) / seconds, max(0, last.bytes - first.bytes) / seconds


def _history(samples: deque[Sample]) -> History:
    rates = []
    before: Sample | None = None
    for s in samples:
        seconds = 0.0 if before is None else (s.time_ms - before.time_ms) / 1000
        rates.append(max(0, s.records - before.records) / seconds if before is not None and seconds > 0 else 0.0)
        before = s
    return History(
        times_ms=[s.time_ms for s in samples],
        records_per_s=rates,
        pending_records=[s.pending for s in samples],
        lag_s=[s.lag_s for s in samples],
    )


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _clients(part: SourcePart | SinkPart, cluster: str, now_ms: int) -> dict[str, float]:
    """Return librdkafka's numbers for a cluster: totals, the greatest of seconds, and sums of all others."""
    found = dict(part.counters.get(cluster, {}))
    for reported_ms, numbers in part.clients.get(cluster, {}).values():
        if now_ms - reported_ms < _GAUGE_MS:
            for name, value in numbers.items():
                if name.endswith("_seconds"):
                    found[name] = max(found.get(name, 0), value)
                elif not name.endswith("_total"):
                    found[name] = found.get(name, 0) + value
    return dict(sorted(found.items()))
