"""What each word of the status says, and what was seen for it. Pure.

What was not seen within the last 15 seconds is not of now: it has the word `unknown`, or null in place of a number, on the
page, in `/status.json` and in the series alike. A counter keeps its total: it says what was counted so far.

| word | of | what was seen |
|---|---|---|
| `running` | query | its reader reported within 15 s, has planned a batch or has positions on a cluster |
| | | a query of which only a sink is known: the sink reported within a minute |
| `degraded` | query | as `running`, and something does not work (`_problems`) |
| `starting` | query | its reader reported within 15 s, and neither a batch nor a position |
| `silent` | query | the connection to its reader is open, and there was no report for 15 s |
| `failed` | query | its reader said so, or it has ended after a batch that was not written |
| `finished` | query | its reader said that all stopping offsets are reached by a finished batch |
| `ended` | query | the connection to its reader was closed for 5 s, without a last word |
| `unknown` | query | only a sink is known, and it has not reported for a minute |
| `reading`, `draining` | cluster | it answered within 15 s, and has positions in the last report |
| `unreachable` | cluster | its last look failed (`reason`) |
| `retained`, `starting` | cluster | the last report says so, whether or not the cluster answers |
| `unknown` | cluster | none of these, or the last report of the reader is not of now |
| records to read, lag | partition | its cluster is `reading` or `draining`, and its end was answered |
| records read, rates | source | a worker has reported, or no batch was planned |
| `answered`, `fails`, `waits` | metadata | its last answer, failures since, or a question without an answer for 15 s |
| `unknown` | metadata | it has not answered yet, or the last report of the reader is not of now |
| `committing`, `done`, `failed` | sink | its last report, with its time; `last_batch_failed` keeps the last outcome |
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_kafka.observe.parts import QueryParts, SourcePart
from dynamic_kafka.observe.reports import ClusterReport, MetadataStatus
from dynamic_kafka.observe.status import ClusterWord, MetadataWord, QueryState, SinkStatus, SourceStatus

__all__ = ["cluster_word", "is_now", "knows_reading", "metadata_word", "query_word"]

FRESH_MS = 15_000
"""What was seen longer ago is not of now. A source reports every second, and looks at each cluster every few seconds."""
_SINK_MS = 60_000
_ENDED = "it was stopped, or failed where its source cannot see it: the log of the driver says which"


def is_now(source: SourcePart, now_ms: int) -> bool:
    """Return whether the last report of a source is of now."""
    return source.report is not None and not source.has_ended(now_ms) and now_ms - source.reported_ms < FRESH_MS


def cluster_word(source: SourcePart, c: ClusterReport, now_ms: int) -> ClusterWord:
    """Return the state of a cluster."""
    if not is_now(source, now_ms):
        return "unknown"
    if c["state"] in ("reading", "draining") and (c["seen_ms"] is None or now_ms - c["seen_ms"] >= FRESH_MS):
        return "unknown"
    return c["state"]


def metadata_word(source: SourcePart, metadata: MetadataStatus, now_ms: int) -> MetadataWord:
    """Return the state of the metadata service."""
    if not is_now(source, now_ms):
        return "unknown"
    if metadata["consecutive_failures"]:
        return "fails"
    asking_ms = metadata["asking_since_ms"]
    if asking_ms is not None and now_ms - asking_ms >= FRESH_MS:
        return "waits"
    return "unknown" if metadata["last_success_ms"] is None else "answered"


def knows_reading(source: SourcePart) -> bool:
    """Return whether it is known what was read: nothing before the first batch, then what a worker reports."""
    return source.tasks > 0 or (source.report is not None and not source.report["batches"])


def query_word(
    query: QueryParts, sources: Sequence[SourceStatus], sinks: Sequence[SinkStatus], now_ms: int
) -> tuple[QueryState, str]:
    """Return the state of a query, and why it is in it; "" if nothing is to be said."""
    reports = [s.report for s in query.sources if s.report is not None]
    if failed := [r["reason"] for r in reports if r["state"] == "failed"]:
        return "failed", failed[0]
    if reports and all(r["state"] == "finished" for r in reports):
        return "finished", ""
    unwritten = [f"the last batch was not written: {s['reason']}" for s in sinks if s["last_batch_failed"]]
    problems = _problems(query, now_ms)
    if query.sources and all(s.has_ended(now_ms) for s in query.sources):
        state: QueryState = "failed" if unwritten else "ended"
        # Most likely the reason: a task that waits for a dead cluster fails, and then its batch is not written.
        known = f". When it ended: {'; '.join(problems)}" if problems else ""
        return state, (unwritten[0] if unwritten else _ENDED) + known
    silent_ms = max((now_ms - s.reported_ms for s in query.sources if not s.has_ended(now_ms)), default=0)
    if silent_ms >= FRESH_MS:
        return "silent", f"the reader process has not reported for {silent_ms // 1000} s"
    quiet_ms = min((now_ms - s["reported_ms"] for s in sinks), default=0)
    if not sources and quiet_ms >= _SINK_MS:
        reason = f"its sink has not committed for {quiet_ms // 1000} s, and nothing else of it reports here"
        return "unknown", "; ".join([reason, *unwritten])
    problems += unwritten
    if problems:
        return "degraded", "; ".join(problems)
    if sinks or any(s["batches"] or s["tasks"] or any(c["partition_count"] for c in s["clusters"]) for s in sources):
        return "running", ""
    return "starting", ""


def _problems(query: QueryParts, now_ms: int) -> list[str]:
    """Return what does not work, or did not when a source reported last."""
    reported = [(s, s.report) for s in query.sources if s.report is not None]
    found = []
    for source, c in ((s, c) for s, report in reported for c in report["clusters"]):
        if c["state"] == "unreachable":
            found.append(c["reason"])
        elif is_now(source, now_ms) and cluster_word(source, c, now_ms) == "unknown":
            since = "yet" if c["seen_ms"] is None else f"for {(now_ms - c['seen_ms']) // 1000} s"
            found.append(f"cluster '{c['cluster']}' has not answered {since}")
        found += c["missing"]
    found += [
        f"the metadata service fails: {m['last_error']}"
        for _, report in reported
        if (m := report["metadata"]) is not None and m["consecutive_failures"]
    ]
    return found
