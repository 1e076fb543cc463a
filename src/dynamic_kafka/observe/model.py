"""The model of what the queries of one driver are doing: reports in, status out. Pure.

Truth is in several processes: the source's reader process (positions, ends, clusters, metadata), Spark's workers (records
read), and the processes that commit the sink's batches (records written, transactions). Each of them reports its
part to one server (`server`), and the model joins the parts.

Rules:

1. A report is everything that its reporter knows, never a difference. So a report that is lost does no harm.
2. Counters are kept by the reporters. The model adds what a reporter's counter has grown by, so a total never falls when
   a reporter ends. A report that was overtaken by a newer one is dropped (`sequence`).
3. What a source reports no more is gone: partitions, topics, clusters. A source has ended when it says so, or when its
   process is gone for some seconds. It is shown for a while, or until its query runs again, because it may have failed where
   the source cannot see it. The sinks of a query go with its source.
4. The parts of one query are joined by Spark's query id, or by the option `metrics.query`. Workers tell the id; a source
   does not know it before its first batch.
5. The label of a query is the option `metrics.query`, else the query's name in Spark, else what it reads or writes
   (`orders,payments`). Once given, it belongs to the query's id as long as the server runs (`Labels`).
6. What a process says of its own clients is of now only. It is forgotten after a minute, because processes come and go.
7. Texts are cut where they are taken: an error may be as long as whoever caused it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from dynamic_kafka.observe.parts import HISTORY_LENGTH, Labels, QueryParts, Sample, SinkPart, SourcePart, Tally
from dynamic_kafka.observe.reports import DecodeErrors, Report, SinkReport, SourceReport, Transactions, WorkerReport
from dynamic_kafka.observe.status import VERSION, QueryStatus, Status
from dynamic_kafka.observe.summary import GAUGE_MS, Detail, query_status, source_status

__all__ = ["HISTORY_INTERVAL_MS", "Model"]

KEPT_AFTER_END_MS = 15 * 60_000
"""A query that has ended is shown for so long. So is a sink after its last batch, if no source of its query is known."""
HISTORY_INTERVAL_MS = 5_000
"""The time between two calls of `Model.tick`."""
_FORGOTTEN_AFTER_MS = 60 * 60_000
_LONGEST_TEXT = 4_000
_LATE_S = 60
_Before = Mapping[str, Any]
"""The last report of the same reporter; empty if there was none."""
_WORST_FIRST = ("failed", "silent", "degraded", "ended", "unknown", "running", "starting", "finished")


class Model:
    """The model. Its methods are called with the time, in milliseconds since 1970; one at a time.

    Args:
        now_ms: The time.
        package: The version of the package.
    """

    def __init__(self, now_ms: int, package: str = "") -> None:
        self._package = package
        self._labels = Labels()
        self._started_ms = now_ms
        self._sources: dict[str, SourcePart] = {}
        self._sinks: list[SinkPart] = []
        self._last: dict[str, tuple[int, Report]] = {}

    # --- reports ---

    def report(self, report: Report, now_ms: int) -> bool:
        """Take a report. Return False if it refers to an earlier one that the model does not have: send all of it then."""
        reporter = report["reporter"]
        before: _Before = self._last[reporter][1] if reporter in self._last else {}
        if before and report["sequence"] <= before["sequence"]:
            return True
        if before and report["kind"] != before["kind"]:
            before = {}
        if report["kind"] == "source" and not _completed(report, before):
            return False
        _cut_texts(report)
        self._last[reporter] = now_ms, report
        match report["kind"]:
            case "source":
                self._take_source(report, before, now_ms)
            case "worker":
                self._take_worker(report, before, now_ms)
            case "sink":
                self._take_sink(report, before, now_ms)
        return True

    def gone(self, reporter: str, now_ms: int) -> None:
        """Note that the connection to a source's process was closed. It may connect again within some seconds."""
        if (source := self._sources.get(reporter)) is not None:
            source.gone_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Forget what is gone, and add to the history. To be called every `HISTORY_INTERVAL_MS`."""
        known = {s.query_id for s in self._sources.values() if s.query_id}
        self._sources = {run: source for run, source in self._sources.items() if not _is_over(source, now_ms)}
        live = {s.query_id for s in self._sources.values() if s.query_id}
        self._sinks = [
            s
            for s in self._sinks
            if s.query_id in live or (s.query_id not in known and now_ms - s.reported_ms < KEPT_AFTER_END_MS)
        ]
        self._last = {name: last for name, last in self._last.items() if now_ms - last[0] < _FORGOTTEN_AFTER_MS}
        parts: list[SourcePart | SinkPart] = [*self._sources.values(), *self._sinks]
        for part in parts:
            for cluster, of in part.clients.items():
                part.clients[cluster] = {name: c for name, c in of.items() if now_ms - c[0] < GAUGE_MS}
        for source in self._sources.values():
            seen = source_status(source, now_ms, lambda _cluster, _topic: False)
            past = seen["history_read"]
            records = None if seen["records"] is None else seen["records"] + past["rows"]
            size = None if seen["bytes"] is None else seen["bytes"] + past["bytes"]
            total = Sample(now_ms, records, size, seen["pending_records"], seen["lag_s"])
            source.history.append(total)
            for c in seen["clusters"]:
                history = source.histories.setdefault(c["cluster"], deque(maxlen=HISTORY_LENGTH))
                history.append(Sample(now_ms, c["records"], c["bytes"], c["pending_records"], c["lag_s"]))
            for name in source.histories.keys() - {c["cluster"] for c in seen["clusters"]}:
                del source.histories[name]
        for sink in self._sinks:
            sink.history.append(Sample(now_ms, sum(sink.records.values()), sum(sink.bytes.values()), 0, None))

    def _take_source(self, report: SourceReport, before: _Before, now_ms: int) -> None:
        source = self._source(report["reporter"], now_ms)
        source.report, source.reported_ms, source.gone_ms = report, now_ms, None
        _count(source, report, before, "dropped")

    def _source(self, run: str, now_ms: int) -> SourcePart:
        if run not in self._sources:
            self._sources[run] = SourcePart(run, first_ms=now_ms, reported_ms=now_ms)
        return self._sources[run]

    def _take_worker(self, report: WorkerReport, before: _Before, now_ms: int) -> None:
        source = self._source(report["run"], now_ms)
        source.query_id, source.name = report["query_id"] or source.query_id, report["name"] or source.name
        _count(source, report, before, "tasks", "dropped", "errors", "given_up")
        source.emit_lag_s |= report["emit_lag_s"]
        _take_history(source, report, before)
        known = {(r["cluster"], r["topic"]): r for r in before.get("read", ())}
        for read in report["read"]:
            key = read["cluster"], read["topic"]
            tallies = source.tallies.setdefault(key, {})
            earlier: dict[int, tuple[int, int]] = {}
            if key in known:
                of = known[key]
                earlier = dict(zip(of["partitions"], zip(of["records"], of["bytes"], strict=True), strict=True))
            columns = read["partitions"], read["records"], read["bytes"], read["timestamp_ms"], read["read_ms"]
            for partition, records, size, timestamp_ms, read_ms in zip(*columns, strict=True):
                tally = tallies.setdefault(partition, Tally())
                was = earlier.get(partition, (0, 0))
                tally.records += records - was[0]
                tally.bytes += size - was[1]
                tally.read_ms = max(tally.read_ms, read_ms)
                if timestamp_ms is not None:
                    tally.timestamp_ms = max(timestamp_ms, tally.timestamp_ms or timestamp_ms)
                source.last_read_ms = max(read_ms, source.last_read_ms or 0)
        if report["decode_errors"] is not None:
            source.decode_errors = source.decode_errors or {}
            now, were = _by_topic(report["decode_errors"]), _by_topic(before.get("decode_errors") or ())
            _grow(source.decode_errors, now, were)
        _take_clients(source, report, before, now_ms)

    def _take_sink(self, report: SinkReport, before: _Before, now_ms: int) -> None:
        sink = next((s for s in self._sinks if _is_of(report, s)), None)
        if sink is None:
            self._sinks.append(sink := SinkPart(report, first_ms=now_ms, reported_ms=now_ms))
        sink.query_id, sink.name = report["query_id"] or sink.query_id, report["name"] or sink.name
        _count(sink, report, before, "batches", "dropped", "errors", "dead_letters")
        if report["phase"] != "committing":
            sink.last_failed = report["phase"] == "failed"
        _grow(sink.records, report["records"], before.get("records", {}))
        _grow(sink.bytes, report["bytes"], before.get("bytes", {}))
        if (found := report["transactions"]) is not None:
            total: Any = {**(sink.transactions or Transactions(open=0, decided=0, published=0, aborted=0))}
            _grow(total, found, before.get("transactions") or {})
            total["open"] = found["open"]  # the only one that is of now
            sink.transactions = total
        _take_clients(sink, report, before, now_ms)
        sink.report, sink.reported_ms = report, now_ms

    # --- status ---

    def status(self, now_ms: int, detail: Detail | None = None) -> Status:
        """Return the status of all queries.

        Args:
            now_ms: The time.
            detail: Which partitions it shows. None: those of the sources with at most `metrics.max-partitions`, which have
                series of their own.
        """
        queries: list[QueryParts] = []
        parts: list[SourcePart | SinkPart] = [s for s in self._sources.values() if not _is_over(s, now_ms)]
        parts += self._sinks
        for part in sorted(parts, key=lambda p: p.first_ms):
            query = next((q for q in queries if q.has(part)), None)
            if query is None:
                queries.append(query := QueryParts())
            if isinstance(part, SourcePart):
                query.sources.append(part)
            else:
                query.sinks.append(part)
        for query in queries:  # what has ended is of no interest once it runs again
            live = [s for s in query.sources if not s.has_ended(now_ms)]
            query.sources = live or query.sources[-1:]
        shown = [query_status(q, self._labels.of(q), now_ms, detail) for q in queries]
        return Status(
            version=VERSION,
            package=self._package,
            time_ms=now_ms,
            started_ms=self._started_ms,
            queries=sorted(shown, key=_rank),
        )


def _rank(query: QueryStatus) -> tuple[int, bool, int]:
    """Return the place of a query, worst first. Among those that are not late nothing changes from look to look."""
    is_late = any((source["lag_s"] or 0) > _LATE_S for source in query["sources"])
    return _WORST_FIRST.index(query["state"]), not is_late, query["started_ms"]


def _is_over(source: SourcePart, now_ms: int) -> bool:
    """Return whether a source is shown no more (rule 3)."""
    return now_ms - source.reported_ms >= KEPT_AFTER_END_MS


def _is_of(report: SinkReport, sink: SinkPart) -> bool:
    """Return whether a report is about a sink. A batch of which all tasks failed does not tell Spark's id and name."""
    if (report["sink"], report["label"]) != (sink.report["sink"], sink.label):
        return False
    return all(
        "" in pair or pair[0] == pair[1] for pair in ((report["query_id"], sink.query_id), (report["name"], sink.name))
    )


def _completed(report: SourceReport, before: _Before) -> bool:
    """Put the topics that have not changed into a report, and return whether they are known."""
    known = {c["cluster"]: c["topics"] for c in before.get("clusters", ())}
    for c in report["clusters"]:
        if c["topics"] is None:
            c["topics"] = known.get(c["cluster"])
    return all(c["topics"] is not None for c in report["clusters"])


def _cut_texts(report: Report) -> None:
    """Cut the texts of a report that come from errors and documents (rule 7)."""
    if report["kind"] == "worker":
        return
    report["reason"] = _cut(report["reason"])
    if report["kind"] == "sink":
        return
    for event in report["events"]:
        event["text"] = _cut(event["text"])
    if (metadata := report["metadata"]) is not None and metadata["last_error"] is not None:
        metadata["last_error"] = _cut(metadata["last_error"])
    for c in report["clusters"]:
        c["reason"], c["missing"] = _cut(c["reason"]), [_cut(text) for text in c["missing"]]


def _cut(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    end = f"... ({len(text)} characters; the log of the driver has them all)"
    return text[: _LONGEST_TEXT - len(end)] + end


def _count(part: SourcePart | SinkPart, report: Mapping[str, Any], before: _Before, *counters: str) -> None:
    """Add to a part what counters of a reporter have grown by (rule 2)."""
    for name in counters:
        setattr(part, name, getattr(part, name) + report[name] - before.get(name, 0))


def _grow(totals: Any, now: Mapping[Any, Any], before: Mapping[Any, Any]) -> None:
    """Add to totals what a reporter's counters have grown by (rule 2)."""
    for name, count in now.items():
        totals[name] = totals.get(name, 0) + count - before.get(name, 0)


def _by_topic(errors: Iterable[DecodeErrors]) -> dict[tuple[str, str], int]:
    return {(e["cluster"], e["topic"]): e["records"] for e in errors}


def _take_history(source: SourcePart, report: WorkerReport, before: _Before) -> None:
    total, now, was = source.history_read, report["history_read"], before.get("history_read", {})
    total["rows"] += now["rows"] - was.get("rows", 0)
    total["bytes"] += now["bytes"] - was.get("bytes", 0)
    if now["read_ms"] is not None:
        total["read_ms"] = max(now["read_ms"], total["read_ms"] or 0)
        source.last_read_ms = max(now["read_ms"], source.last_read_ms or 0)


def _take_clients(part: SourcePart | SinkPart, report: WorkerReport | SinkReport, before: _Before, now_ms: int) -> None:
    for cluster, numbers in report["clients"].items():
        part.clients.setdefault(cluster, {})[report["reporter"]] = now_ms, numbers
        counters = {name: value for name, value in numbers.items() if name.endswith("_total")}
        _grow(part.counters.setdefault(cluster, {}), counters, before.get("clients", {}).get(cluster, {}))
