"""An enumerator that reports what it knows to the metrics server. The plain one knows nothing of it.

The report is made in the reporter's thread, once a second. It reads what the enumerator's thread and the monitors have left:
objects that are replaced and not changed. So nothing waits for anything.

While Spark runs a long batch nobody asks the clusters, and the lag would stand still. So the reporter has them looked at
again when the last look is some seconds ago. A cluster that fails is noticed earlier by it.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from dynamic_kafka.errors import may_not, plural, suggestion
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.metadata.subscriber import StreamPatternSubscriber, StreamSetSubscriber
from dynamic_kafka.observe.place import find_or_start
from dynamic_kafka.observe.reporter import Reporter, new_name
from dynamic_kafka.observe.reports import Calls, ClusterReport, Event, HistoryLeft, TopicReport
from dynamic_kafka.observe.settings import MetricsSettings
from dynamic_kafka.source.document.document import HistoryStage
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.document.stage import left_of
from dynamic_kafka.source.driver.behind import Behind
from dynamic_kafka.source.driver.enumerator import SourceEnumerator, state_word
from dynamic_kafka.source.driver.monitor import ClusterMonitor
from dynamic_kafka.source.observation import Observation
from dynamic_kafka.source.rules.model import ClusterView
from dynamic_kafka.source.rules.planning import ReadTask
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["ObservedEnumerator"]

_INTERVAL_S = 1.0
_LOOK_AGAIN_AFTER_S = 5.0
_SERVER_START_S = 3.0
_MOST_EVENTS = 50
_MOST_BATCHES = 100


class _Told(NamedTuple):
    """The topics of a cluster as they were reported, and the objects that they were made of."""

    state: ClusterOffsets
    view: ClusterView | None
    commits: int
    is_finished: bool
    topics: list[TopicReport]


class ObservedEnumerator(SourceEnumerator):
    """See `SourceEnumerator`."""

    def __init__(self, settings: SourceSettings, metrics: MetricsSettings) -> None:
        super().__init__(settings)
        self._metrics = metrics
        self._run = new_name()
        self._started_ms = _now_ms()
        self._finished: Document | None = None
        self._batches = 0
        self._last_batch_ms: int | None = None
        self._batch_since: float | None = None
        self._batches_s: deque[float] = deque(maxlen=_MOST_BATCHES)
        self._calls: dict[str, Calls] = {}
        self._ended: tuple[str, str] = "running", ""
        # Used by the reporter's thread only:
        self._waiting: dict[str, Behind] = {}
        self._watched_since_ms: dict[str, int] = {}
        self._told: dict[str, _Told] = {}
        self._told_history: tuple[HistoryStage, int, HistoryLeft] | None = None
        self._failing: dict[str, int] = {}
        self._changes: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._reporter = Reporter(partial(find_or_start, metrics), self._report, interval_s=_INTERVAL_S)

    # --- Spark's calls ---

    def latest_offset(self, start: Mapping[str, Any], *, limited: bool) -> Mapping[str, Any]:
        """See `SourceEnumerator`."""
        if self._batch_since is not None:
            self._batches_s.append(time.monotonic() - self._batch_since)
            self._batch_since = None
        with self._timed("latest_offset"):
            end = super().latest_offset(start, limited=limited)
        if end is not start:
            self._batches += 1
            self._last_batch_ms = _now_ms()
        return end

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ReadTask]:
        """See `SourceEnumerator`."""
        if self._batch_since is None:
            self._batch_since = time.monotonic()
        with self._timed("partitions"):
            return super().tasks(start, end)

    def report(self) -> dict[str, Any]:
        """See `SourceEnumerator`. Says where the metrics are."""
        with self._timed("report"):
            address = self._reporter.address
            return {**super().report(), "metrics": None if address is None else address.url}

    def close(self) -> None:
        """See `SourceEnumerator`."""
        self._reporter.close()
        super().close()

    @property
    def observation(self) -> Observation:
        """What a task needs to report. The first batch waits for the server, since nobody can tell its tasks later."""
        return Observation(self._run, self._reporter.first_address(_SERVER_START_S), self._metrics.clients)

    def _commit(self, finished: Document) -> None:
        super()._commit(finished)
        self._finished = finished
        if finished.done != finished.last_row:
            self._ended = "finished", ""

    @contextmanager
    def _timed(self, call: str) -> Iterator[None]:
        self._reporter.start()
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            self._ended = "failed", str(error)
            self._reporter.close()
            raise
        took_s = time.perf_counter() - began
        before = self._calls.get(call, Calls(count=0, total_s=0.0, last_s=0.0))
        self._calls[call] = Calls(count=before["count"] + 1, total_s=before["total_s"] + took_s, last_s=took_s)

    # --- the reporter's thread ---

    def _report(self, everything: bool) -> dict[str, Any]:  # noqa: FBT001  the contract of `Reporter`
        if everything:
            self._told.clear()
        now_ms = _now_ms()
        finished, recent = self._finished, list(self._recent)
        document = finished or (recent[-1][1] if recent else Document())
        monitors = dict(self._view.monitors)
        names = sorted({*document.clusters, *monitors})
        for known in (self._waiting, self._told, self._failing, self._watched_since_ms):
            for name in known.keys() - set(names):
                del known[name]
        clusters = [
            self._cluster(
                name, document.clusters.get(name), monitors.get(name), now_ms, is_finished=finished is not None
            )
            for name in names
        ]
        state, reason = self._ended
        return {
            "kind": "source",
            "reporter": self._run,
            "time_ms": now_ms,
            "started_ms": self._started_ms,
            "label": self._metrics.label,
            "streams": _streams(self._settings, document),
            "group_id": self._settings.group_id,
            "max_partitions": self._metrics.max_partitions,
            "state": state,
            "reason": reason,
            "batches": self._batches,
            "last_batch_ms": self._last_batch_ms,
            **self._of_batches(now_ms),
            "calls": dict(self._calls),
            "metadata": self._view.metadata.status(),
            "events": sorted([*self._last_events(), *self._changes], key=lambda e: e["time_ms"])[-_MOST_EVENTS:],
            "history_left": self._of_history(document, is_finished=finished is not None),
            "clusters": clusters,
        }

    def _of_batches(self, now_ms: int) -> dict[str, Any]:
        """Return how long batches take, as far as it is seen from here: until Spark asks for the next one."""
        since, took = self._batch_since, sorted(self._batches_s)
        return {
            "batch_since_ms": None if since is None else now_ms - int((time.monotonic() - since) * 1000),
            "batch_last_s": self._batches_s[-1] if took else None,
            "batch_p95_s": took[math.ceil(len(took) * 0.95) - 1] if took else None,
        }

    def _of_history(self, document: Document, *, is_finished: bool) -> HistoryLeft | None:
        """Return what is left of the history. It is counted anew after each batch: there may be many files."""
        stage = document.history
        if stage is None:
            return None
        read = stage.range[1 if is_finished else 0]
        if self._told_history is None or self._told_history[:2] != (stage, read):
            self._told_history = stage, read, left_of(stage, read)
        return self._told_history[2]

    def _cluster(
        self,
        name: str,
        state: ClusterOffsets | None,
        monitor: ClusterMonitor | None,
        now_ms: int,
        *,
        is_finished: bool,
    ) -> ClusterReport:
        found = ClusterReport(
            cluster=name,
            kafka_id=state.kafka_id if state is not None else "",
            brokers=monitor.servers if monitor is not None else "",
            state="starting",
            reason="",
            failing_since_ms=None,
            seen_ms=None,
            watched_since_ms=None,
            missing=[],
            unknown=0,
            commits={"succeeded": 0, "failed": 0},
            topics=[],
        )
        view: ClusterView | None = None
        commits = 0
        if monitor is not None:
            view = monitor.view
            error, failing_since, seen_at = monitor.health()
            now = time.monotonic()
            commits = monitor.commits.succeeded
            found["commits"] = {"succeeded": commits, "failed": monitor.commits.failed}
            if seen_at >= 0:
                found["seen_ms"] = now_ms - int((now - seen_at) * 1000)
            if failing_since is not None:
                found["failing_since_ms"] = now_ms - int((now - failing_since) * 1000)
                found["reason"] = str(error)
            self._note_change(name, found["failing_since_ms"], found["reason"], now_ms)
            if now - seen_at > _LOOK_AGAIN_AFTER_S:
                monitor.look_again()
            if view is not None:
                found["watched_since_ms"] = self._watched_since_ms.setdefault(name, now_ms)
                found["missing"], found["unknown"] = _missing(name, view, state or ClusterOffsets())
        failing = found["failing_since_ms"] is not None
        if state is None:
            found["state"] = "unreachable" if failing else "starting"
            return found
        found["state"] = state_word(state, failing=failing)
        if not failing and self._aligner is not None:
            found["reason"] = self._aligner.reason_of(name)
        told = self._told.get(name)
        if (
            told is not None
            and told.state is state
            and told.view is view
            and (told.commits, told.is_finished) == (commits, is_finished)
        ):
            found["topics"] = None  # as in the report before
            return found
        committed = dict(monitor.commits.committed) if commits and monitor is not None else {}
        positions = {tp: r[1 if is_finished else 0] for tp, r in state.ranges.items()}
        ends = view.ends if view is not None else {}
        behind = self._waiting.setdefault(name, Behind())
        behind.see(positions, ends, now_ms)
        topics = _topics(state, positions, ends, committed, behind)
        self._told[name] = _Told(state, view, commits, is_finished, topics)
        found["topics"] = topics
        return found

    def _note_change(self, name: str, failing_since_ms: int | None, reason: str, now_ms: int) -> None:
        since_ms = self._failing.get(name)
        if failing_since_ms is not None and since_ms is None:
            self._failing[name] = failing_since_ms
            self._changes.append(Event(time_ms=failing_since_ms, level="warning", text=reason))
        elif failing_since_ms is None and since_ms is not None:
            del self._failing[name]
            text = f"Cluster '{name}' answers again, after {(now_ms - since_ms) / 1000:.0f} s"
            self._changes.append(Event(time_ms=now_ms, level="info", text=text))


def _streams(settings: SourceSettings, document: Document) -> list[str]:
    """Return what is read, which is the label of the query: the same from the start of a run, if that can be."""
    if settings.topics or settings.pattern:
        return sorted(settings.topics) + ([settings.pattern.pattern] if settings.pattern else [])
    match settings.subscriber:
        case StreamSetSubscriber(stream_ids=ids):
            return sorted(ids)
        case StreamPatternSubscriber(pattern=pattern):
            return [pattern.pattern]
    return sorted(document.streams) or [repr(settings.subscriber)]


def _missing(cluster: str, view: ClusterView, state: ClusterOffsets) -> tuple[list[str], int]:
    """Return a sentence for each topic that is to be read and is not, and the number of those with an unknown lag."""
    known = {*state.topics, *state.retained, *view.topics}
    missing = [
        f"Topic '{topic}' does not exist on cluster '{cluster}'{suggestion(topic, known - view.missing)}"
        for topic in sorted(view.missing - state.draining)  # a topic that is drained is not wanted any more
    ]
    denied = [
        f"Topic '{topic}' of cluster '{cluster}' is not read: {may_not(view.user, ['Describe', 'Read'], 'topic', topic)}"
        for topic in sorted(view.denied)
    ]
    leaderless = [
        f"Topic '{topic}' of cluster '{cluster}' has {plural(count, 'partition')} without a leader, not read yet"
        for topic, count in sorted(Counter(tp.topic for tp in state.unresolved if tp not in view.ends).items())
    ]
    waiting = state.unseen.keys() - view.missing - view.denied
    return [*missing, *denied, *leaderless], len(view.denied) + len(state.unresolved) + len(waiting)


def _topics(
    state: ClusterOffsets,
    positions: Mapping[KafkaTopicPartition, int],
    ends: Mapping[KafkaTopicPartition, int],
    committed: Mapping[KafkaTopicPartition, int],
    behind: Behind,
) -> list[TopicReport]:
    found = []
    for topic, group in groupby(sorted(positions), lambda tp: tp.topic):
        tps = list(group)
        found.append(
            TopicReport(
                topic=topic,
                state="draining" if topic in state.draining else "reading",
                partitions=[tp.partition for tp in tps],
                current=[positions[tp] for tp in tps],
                committed=[committed.get(tp) for tp in tps],
                end=[ends.get(tp) for tp in tps],
                behind_since_ms=[behind.since_ms(tp) for tp in tps],
            )
        )
    gone = state.retained.keys() - {t["topic"] for t in found}
    found += [
        TopicReport(topic=topic, state="retained", partitions=[], current=[], committed=[], end=[], behind_since_ms=[])
        for topic in sorted(gone)
    ]
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)
