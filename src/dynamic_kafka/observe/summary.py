"""From the parts of a query to its status. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, cast

from dynamic_kafka.observe.parts import QueryParts, Sample, SinkPart, SourcePart
from dynamic_kafka.observe.reports import (
    ClusterFacts,
    ClusterReport,
    Event,
    SinkFacts,
    SourceFacts,
    SourceReport,
    TopicReport,
)
from dynamic_kafka.observe.status import (
    ClusterStatus,
    History,
    MetadataStatus,
    PartitionStatus,
    QueryStatus,
    SinkStatus,
    SourceStatus,
    TopicStatus,
)
from dynamic_kafka.observe.words import cluster_word, is_now, knows_reading, metadata_word, query_word

__all__ = ["GAUGE_MS", "Detail", "query_status", "source_status"]

_Facts = TypeVar("_Facts")

IDLE_AFTER_MS = 60_000
"""A partition without records for so long does not hold the watermark back."""
GAUGE_MS = 60_000
"""A number of a client that was reported longer ago is not of now."""
_MOST_EVENTS = 50
_RATE_SAMPLES = 3

Detail = Callable[[str, str], bool]
"""Takes a cluster and a topic, and returns whether the status shows its partitions."""


def query_status(query: QueryParts, label: str, now_ms: int, detail: Detail | None) -> QueryStatus:
    """Return the status of a query."""
    sources = [source_status(s, now_ms, detail) for s in query.sources]
    sinks = [_sink_status(s, now_ms) for s in query.sinks]
    state, reason = query_word(query, sources, sinks, now_ms)
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


def source_status(source: SourcePart, now_ms: int, detail: Detail | None) -> SourceStatus:
    """Return the status of a source. It keeps the watermark, which never goes back."""
    report = source.report
    if detail is None:
        is_small = report is not None and _partitions(report) <= report["max_partitions"]
        detail = lambda _cluster, _topic: is_small  # noqa: E731
    clusters = [_cluster_status(source, c, now_ms, detail) for c in report["clusters"]] if report else []
    clusters.sort(key=_cluster_rank)
    facts = _facts(SourceFacts, report) if report else _nothing(source)
    source.watermark_ms = watermark_ms = _watermark_ms(source, now_ms)
    records_per_s, bytes_per_s = _rates(source.history)
    # Of all partitions, also of those that are gone: a total never falls.
    tallies = [t for by_partition in source.tallies.values() for t in by_partition.values()]
    known = knows_reading(source)
    metadata = report["metadata"] if report else None
    read = [c for c in clusters if c["state"] != "retained"]
    batch_since_ms = report["batch_since_ms"] if report and is_now(source, now_ms) else None
    return SourceStatus(
        **facts,
        run=source.run,
        reported_ms=source.reported_ms,
        live=is_now(source, now_ms),
        batch_running_s=None if batch_since_ms is None else max(0, now_ms - batch_since_ms) / 1000,
        records=sum(t.records for t in tallies) if known else None,
        bytes=sum(t.bytes for t in tallies) if known else None,
        records_per_s=records_per_s if is_now(source, now_ms) else None,
        bytes_per_s=bytes_per_s if is_now(source, now_ms) else None,
        tasks=source.tasks if known else None,
        task_errors=source.errors if known else None,
        given_up=source.given_up if known else None,
        partition_count=sum(c["partition_count"] for c in clusters),
        pending_records=_sum(c["pending_records"] for c in clusters),
        lag_s=_greatest(c["lag_s"] for c in clusters),
        lag_known=bool(read) and all(c["lag_known"] for c in read),
        emit_lag_s=_greatest(source.emit_lag_s.values()),
        watermark_ms=watermark_ms,
        watermark_lag_s=None if watermark_ms is None or not is_now(source, now_ms) else (now_ms - watermark_ms) / 1000,
        idle_s=max(0, now_ms - (source.last_read_ms or facts["started_ms"])) / 1000
        if known and is_now(source, now_ms)
        else None,
        commits={
            "succeeded": sum(c["commits"]["succeeded"] for c in clusters),
            "failed": sum(c["commits"]["failed"] for c in clusters),
        },
        metadata=metadata and MetadataStatus(**metadata, state=metadata_word(source, metadata, now_ms)),
        history_read=source.history_read,
        clusters=clusters,
        history=_history(source.history),
    )


def _facts(kind: type[_Facts], report: Mapping[str, object]) -> _Facts:
    """Return what the status says as the report does."""
    return cast("_Facts", {name: report[name] for name in kind.__annotations__})


def _nothing(source: SourcePart) -> SourceFacts:
    """Return what is known of a source before its first report."""
    return SourceFacts(
        started_ms=source.first_ms,
        streams=[],
        group_id=None,
        batches=0,
        last_batch_ms=None,
        batch_last_s=None,
        batch_p95_s=None,
        calls={},
        max_partitions=0,
        history_left=None,
    )


def _partitions(report: SourceReport) -> int:
    return sum(len(t["partitions"]) for c in report["clusters"] for t in c["topics"] or ())


def _cluster_rank(c: ClusterStatus) -> tuple[int, float, int, str]:
    """Return the place of a cluster: those of which nothing is known come first, then the late ones."""
    states = {"unreachable": 0, "unknown": 1}
    return states.get(c["state"], 2), -(c["lag_s"] or 0), -(c["pending_records"] or 0), c["cluster"]


def _cluster_status(source: SourcePart, c: ClusterReport, now_ms: int, detail: Detail) -> ClusterStatus:
    name = c["cluster"]
    state = cluster_word(source, c, now_ms)
    answers = state in ("reading", "draining")
    topics = [
        _topic_status(source, c, t, now_ms, answers=answers, partitions=detail(name, t["topic"]))
        for t in c["topics"] or ()
    ]
    topics.sort(key=lambda t: (-(t["lag_s"] or 0), -(t["pending_records"] or 0), t["topic"]))
    read = [t for t in topics if t["state"] != "retained"]
    history = source.histories.get(name, deque())
    return ClusterStatus(
        **_facts(ClusterFacts, c),
        state=state,
        failing_for_s=None if c["failing_since_ms"] is None else max(0, now_ms - c["failing_since_ms"]) / 1000,
        partition_count=sum(t["partition_count"] for t in topics),
        pending_records=_sum(t["pending_records"] for t in topics),
        lag_s=_greatest(t["lag_s"] for t in topics),
        lag_known=answers and not c["unknown"] and bool(read) and all(t["lag_known"] for t in read),
        emit_lag_s=source.emit_lag_s.get(name),
        records=_sum(t["records"] for t in topics),
        bytes=_sum(t["bytes"] for t in topics),
        records_per_s=_rates(history)[0] if is_now(source, now_ms) else None,
        topics=topics,
        clients=_clients(source, name, now_ms),
        history=_history(history),
    )


def _topic_status(
    source: SourcePart, c: ClusterReport, t: TopicReport, now_ms: int, *, answers: bool, partitions: bool
) -> TopicStatus:
    tallies = source.tallies.get((c["cluster"], t["topic"]), {})
    watched_ms = c["watched_since_ms"]
    pending: list[int] = []
    worst: tuple[float, int, int] | None = None
    is_read_known = knows_reading(source)
    shown: list[PartitionStatus] = []
    columns = t["partitions"], t["current"], t["committed"], t["end"], t["behind_since_ms"]
    for partition, current, committed, end, since_ms in zip(*columns, strict=True):
        tally = tallies.get(partition)
        behind = None if end is None or not answers else max(0, end - current)
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
            pending.append(behind)
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
        pending_records=sum(pending) if pending else None,
        lag_s=worst[0] if worst is not None else None,
        lag_known=bool(pending) and len(pending) == len(t["partitions"]),
        # Also of partitions that are gone: a total never falls.
        records=sum(tally.records for tally in tallies.values()) if is_read_known else None,
        bytes=sum(tally.bytes for tally in tallies.values()) if is_read_known else None,
        decode_errors=None if source.decode_errors is None else source.decode_errors.get((c["cluster"], t["topic"]), 0),
        worst_partition=-worst[2] if worst is not None and worst[1] else None,
        partitions=shown if partitions else None,
    )


def _sink_status(sink: SinkPart, now_ms: int) -> SinkStatus:
    return SinkStatus(
        **_facts(SinkFacts, sink.report),
        reported_ms=sink.reported_ms,
        last_batch_failed=sink.last_failed,
        batches=sink.batches,
        errors=sink.errors,
        dead_letters=sink.dead_letters,
        records=sum(sink.records.values()),
        bytes=sum(sink.bytes.values()),
        records_per_s=_rates(sink.history)[0],
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


def _rates(history: deque[Sample]) -> tuple[float | None, float | None]:
    """Return records and bytes a second, over the last samples; None for what is not known."""
    if len(history) < 2:
        return None, None
    return _rate(history, lambda s: s.records), _rate(history, lambda s: s.bytes)


def _rate(history: Sequence[Sample], number: Callable[[Sample], int | None]) -> float | None:
    first, last = history[max(0, len(history) - 1 - _RATE_SAMPLES)], history[-1]
    before, now = number(first), number(last)
    if before is None or now is None or last.time_ms <= first.time_ms:
        return None
    return max(0, now - before) * 1000 / (last.time_ms - first.time_ms)


def _history(samples: deque[Sample]) -> History:
    past = list(samples)
    return History(
        times_ms=[s.time_ms for s in past],
        records_per_s=[_rate(past[max(0, i - 1) : i + 1], lambda s: s.records) for i in range(len(past))],
        pending_records=[s.pending for s in past],
        lag_s=[s.lag_s for s in past],
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of what is known; None if nothing is."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _clients(part: SourcePart | SinkPart, cluster: str, now_ms: int) -> dict[str, float]:
    """Return librdkafka's numbers for a cluster: totals, the greatest of seconds, and sums of all others."""
    found = dict(part.counters.get(cluster, {}))
    for reported_ms, numbers in part.clients.get(cluster, {}).values():
        if now_ms - reported_ms < GAUGE_MS:
            for name, value in numbers.items():
                if name.endswith("_seconds"):
                    found[name] = max(found.get(name, 0), value)
                elif not name.endswith("_total"):
                    found[name] = found.get(name, 0) + value
    return dict(sorted(found.items()))
