"""The driver's side of watermark alignment: who holds the others back and for how long, and the questions to the clusters.

The rules are in `alignment`. This module says which partitions are holders, by what the clusters show and how long ago:

* A partition with a backlog, until it is read.
* A partition that was read to its end, until no record has come for `scan.watermark.idle-timeout`. The same after a
  restart, if the last batch has read it. A partition that brought nothing for so long, or nothing at all in this run, is
  idle.
* A cluster or partition that does not answer, so that nothing is known of it. It holds for the same time. Then the others
  are released, with a warning, and it is read up to the bound when it is back.

A run of `Trigger.AvailableNow` (or `Trigger.Once`) has only what it saw at its start, and nobody waits for more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ClusterUnavailableError, listed
from dynamic_kafka.source.document.collector import without_collector
from dynamic_kafka.source.document.offsets import Document
from dynamic_kafka.source.rules.alignment import Alignment, Backlog, Decision, Key, Span, TimeRequest
from dynamic_kafka.source.rules.model import ClusterView, Event

if TYPE_CHECKING:
    from dynamic_kafka.source.driver.monitor import ClusterMonitor
    from dynamic_kafka.source.driver.view import SourceView
    from dynamic_kafka.source.settings import SourceSettings

__all__ = ["Aligner"]

_PATIENCE_S = 1.0
"""How long a call waits for times. A cluster that takes longer counts as one of which nothing is known, until it answers."""


class Aligner:
    """The alignment of a query. Made without I/O; used by the enumerator's thread only."""

    def __init__(self, settings: SourceSettings, view: SourceView) -> None:
        assert settings.alignment_max_drift_ms is not None
        self._settings, self._view = settings, view
        self._alignment = Alignment(settings.alignment_max_drift_ms)
        # When a partition was last seen to have a backlog, by Kafka's cluster.id: a cluster may get another name.
        self._read_at: dict[Key, float] | None = None
        self._silent_since: dict[str | Key, float] = {}
        self._released: set[str | Key] = set()
        self._mute: set[str | Key] = (
            set()
        )  # the clusters and partitions that did not answer a question of the last call
        self._asked: dict[str, tuple[ClusterMonitor, int]] = {}
        self._logs: dict[str, tuple[str, Mapping[str, str]]] = {}
        self._decided_at = -float("inf")
        self._decision: Decision | None = None
        self.reason = ""
        """Why something is held back; "" if nothing is."""
        self._events: list[Event] = []

    def rests(self) -> bool:
        """Return whether all is held back, and no time has come to look again although the clusters show nothing new."""
        decision = self._decision
        interval_s = self._settings.alignment_update_interval_ms / 1000
        return (
            decision is not None
            and bool(decision.held)
            and not decision.backlog
            and not self._asked
            and time.monotonic() - self._decided_at < interval_s
        )

    def admit(
        self,
        previous: Document | None,
        document: Document,
        views: Mapping[str, ClusterView],
        backlog: Backlog,
        load: Callable[[Backlog], float],
        *,
        at_once: bool,
    ) -> Backlog:
        """Return the part of the backlog that may be read by its times, and put the frontier into the document.

        Args:
            previous: The document of the last batch; None at a first start.
            document: The document of the next one.
            views: What the clusters show.
            backlog: What can be read.
            load: See `Alignment.decide`.
            at_once: True for a run that reads what is there at its start: nothing new is waited for.

        Raises:
            ClusterUnavailableError: If such a run gets no answer, and `cluster-failure-mode` is `fail`.
        """
        now = time.monotonic()
        if self._read_at is None:
            ranges = _ranges(previous) if previous is not None else ()
            self._read_at = {key: now for key, (start, end) in ranges if end > start}
        self._forget_other_logs(document)
        document.frontier_ms = previous.frontier_ms if previous is not None else None
        spans = {
            (name, tp): Span((position := document.clusters[name].ranges[tp][1]), position + count)
            for name, tps in backlog.items()
            for tp, count in tps.items()
        }
        waiting, silent = self._holders(document, views, spans, now, at_once=at_once)
        deadline = now + (self._settings.unavailable_after_ms / 1000 if at_once else _PATIENCE_S)
        mute: set[str | Key] = {*self._still_asked()}
        while True:
            decision = self._alignment.decide(
                document.frontier_ms,
                {key: span for key, span in spans.items() if mute.isdisjoint((key, key[0]))},
                {key: end for key, end in waiting.items() if mute.isdisjoint((key, key[0]))},
                load,
                blocked=bool({who for who in mute if self._holds(who, now, at_once=at_once)} or silent),
            )
            if decision.backlog is not None:
                break
            mute |= self._ask(decision.requests, deadline, at_once=at_once)
        for who in self._mute - mute - silent:
            self._answers_again(who)
        self._mute = mute
        self._note(decision, spans, waiting, silent | {who if isinstance(who, str) else who[0] for who in mute}, now)
        document.frontier_ms = decision.frontier_ms
        return decision.backlog

    def take_events(self) -> list[Event]:
        """Return what has happened since the last call."""
        taken, self._events = self._events, []
        return taken

    def status(self) -> dict[str, Any]:
        """Return the state of the alignment for Spark's progress."""
        decision = self._decision
        frontier_ms = decision.frontier_ms if decision is not None else None
        return {
            "group": self._settings.alignment_group,
            "frontier": None if frontier_ms is None else _time_text(frontier_ms),
            "watermarkLag": None if frontier_ms is None else int(time.time() * 1000) - frontier_ms,
            "heldPartitions": len(decision.held) if decision is not None else 0,
            "reason": self.reason,
        }

    def reason_of(self, cluster: str) -> str:
        """Return why something of a cluster is held back; "" if nothing is. Other threads may call it."""
        decision = self._decision
        return self.reason if decision is not None and any(name == cluster for name, _ in decision.held) else ""

    # --- the holders ---

    @without_collector
    def _holders(
        self,
        document: Document,
        views: Mapping[str, ClusterView],
        spans: Mapping[Key, Span],
        now: float,
        *,
        at_once: bool,
    ) -> tuple[dict[Key, int], set[str]]:
        """Return the partitions that were read to their ends lately, and the clusters of which something is not known."""
        assert self._read_at is not None
        idle_s = self._settings.idle_timeout_ms / 1000
        waiting: dict[Key, int] = {}
        silent: set[str] = set()
        for name, cluster in document.clusters.items():
            if not cluster.topics and cluster.discovered:
                continue  # nothing of it is read
            monitor = self._view.monitors.get(name)
            failing_s = monitor.failing_for_s if monitor is not None else None
            if name not in views or failing_s is not None:
                if self._holds(name, now, failing_s, at_once=at_once):
                    silent.add(name)
                continue
            if name not in self._mute:
                self._answers_again(name)
            ends = views[name].ends
            for tp, (_, position) in cluster.ranges.items():
                key, log = (name, tp), (cluster.kafka_id, tp)
                if tp not in ends:
                    if self._holds(key, now, at_once=at_once):
                        silent.add(name)
                    continue
                if key not in self._mute:
                    self._answers_again(key)
                if key in spans:
                    self._read_at[log] = now
                elif log in self._read_at:
                    if at_once or now - self._read_at[log] >= idle_s or position >= cluster.stops.get(tp, position + 1):
                        del self._read_at[log]
                    else:
                        waiting[key] = position
            if any(self._holds((name, tp), now, at_once=at_once) for tp in cluster.unresolved):
                silent.add(name)
        return waiting, silent

    def _holds(self, who: str | Key, now: float, silent_s: float | None = None, *, at_once: bool) -> bool:
        """Return whether a cluster or partition of which nothing is known still holds the others; else say so once."""
        since = self._silent_since.setdefault(who, now)
        if not at_once and (now - since if silent_s is None else silent_s) < self._settings.idle_timeout_ms / 1000:
            return True
        if who not in self._released:
            self._released.add(who)
            timeout = _duration(self._settings.idle_timeout_ms)
            for_how_long = "in this run" if at_once else f"for {timeout} (scan.watermark.idle-timeout)"
            text = (
                f"{_named(who)} does not answer {for_how_long}, so the other partitions do not wait for its times any more. "
                "Its rows may be late when it answers again"
            )
            self._events.append(Event("warning", text))
        return False

    def _answers_again(self, who: str | Key) -> None:
        if self._silent_since.pop(who, None) is not None and who in self._released:
            self._released.discard(who)
            self._events.append(Event("info", f"{_named(who)} answers again, and the others wait for it again"))

    def _forget_other_logs(self, document: Document) -> None:
        """Forget the times of a cluster that is another one now, and of topics that were made again."""
        for name, cluster in document.clusters.items():
            kafka_id, topics = self._logs.get(name, ("", {}))
            if (kafka_id, topics) == (cluster.kafka_id, cluster.topics):
                continue
            self._logs[name] = cluster.kafka_id, dict(cluster.topics)
            if kafka_id != cluster.kafka_id:
                self._alignment.forget((name, tp) for tp in cluster.ranges)
            else:
                other = {topic for topic, found in topics.items() if cluster.topics.get(topic) != found}
                self._alignment.forget((name, tp) for tp in cluster.ranges if tp.topic in other)

    # --- questions ---

    def _ask(self, requests: list[TimeRequest], deadline: float, *, at_once: bool) -> set[str | Key]:
        """Ask, wait and learn; return the clusters that have not answered, or only partitions of them."""
        for request in requests:
            monitor = self._view.monitors.get(request.cluster)
            if monitor is not None and (at_once or monitor.failing_for_s is None):
                self._asked[request.cluster] = monitor, monitor.request_times(request)
        for request in requests:
            if request.cluster in self._asked:
                monitor, ticket = self._asked[request.cluster]
                monitor.wait(ticket, deadline)
        late = self._still_asked()
        mute: set[str | Key] = set()
        for request in requests:
            name, unanswered = request.cluster, self._alignment.unanswered(request)
            all_of_it = name in late or unanswered >= {*request.ends, *request.newest}
            mute |= ({name} if all_of_it else {(name, tp) for tp in unanswered}) if unanswered else set()
        if mute and at_once and self._settings.cluster_failure_mode == "fail":
            name = min(who if isinstance(who, str) else who[0] for who in mute)
            monitor = self._view.monitors.get(name)
            raise ClusterUnavailableError(
                f"Cluster '{name}' did not return the times of its records, by which its partitions are aligned: "
                f"{monitor.error if monitor is not None else None}. Bring the cluster back and start the query again",
                cluster_id=name,
            )
        return mute

    def _still_asked(self) -> set[str]:
        """Take the answers that have come, and return the clusters that are still being asked."""
        for name, (monitor, ticket) in [*self._asked.items()]:
            if self._view.monitors.get(name) is not monitor:
                del self._asked[name]
                continue
            is_served = monitor.wait(ticket, 0)
            for request, answer in monitor.take_times():
                self._alignment.learn(request, answer)
            if is_served:
                del self._asked[name]
        return set(self._asked)

    # --- what is reported ---

    def _note(
        self,
        decision: Decision,
        spans: Mapping[Key, Span],
        waiting: Mapping[Key, int],
        silent: set[str],
        now: float,
    ) -> None:
        self._decision, self._decided_at = decision, now
        for key in spans:
            if self._alignment.is_free(key, spans[key].position):
                newest = self._alignment.newest(key)
                offset = newest.future if newest is not None else None
                if offset is None:
                    what = "its newest record has no time, or one before 1990. The partition is not aligned"
                    text = f"{_named(key)}: {what}. Correct the producer's times, which are in milliseconds since 1970"
                else:
                    text = (
                        f"{_named(key)}: offset {offset} has a time more than a day in the future. From there on the "
                        "partition is not aligned. Correct the producer's clock"
                    )
                self._events.append(Event("warning", text))
        self.reason = self._reason(decision, waiting, silent) if decision.held else ""

    def _reason(self, decision: Decision, waiting: Mapping[Key, int], silent: set[str]) -> str:
        """Return who waits for whom, and why, in one sentence."""
        held, slowest = decision.held, decision.slowest
        waiters = sorted({name for name, _ in held})
        who = f"Cluster{'s' if len(waiters) > 1 else ''} " + listed([f"'{name}'" for name in waiters], 5)
        verb = "wait" if len(waiters) > 1 else "waits"
        if silent:
            names = listed([f"'{name}'" for name in sorted(silent)], 5)
            return f"{who} {verb} for cluster {names}, of which not all times are known now"
        if slowest is None:
            return ""
        if {name for name, _ in held} == {slowest[0]}:
            who, verb = f"{len(held)} partition{'s' if len(held) > 1 else ''} of cluster '{slowest[0]}'", "wait"
            verb += "s" if len(held) == 1 else ""
        whom = f"cluster '{slowest[0]}'" if slowest[0] not in waiters else _named(slowest, capital=False)
        behind_ms = self._behind_ms(held, slowest)
        if behind_ms > self._alignment.max_drift_ms:
            text = f"{who} {verb} for {whom}, which is {_duration(behind_ms)} behind"
        else:
            text = f"{who} {verb} until {whom} is read up to {_time_text(decision.bound_ms or 0)}"
        if slowest in waiting:
            text += ". It was read to its end, and may bring more"
        return text

    def _behind_ms(self, held: Collection[Key], slowest: Key) -> int:
        times = [newest.time_ms for key in held if (newest := self._alignment.newest(key)) is not None]
        last = self._alignment.newest(slowest)
        return max(times, default=0) - last.time_ms if last is not None else 0


def _ranges(document: Document) -> Iterator[tuple[Key, tuple[int, int]]]:
    """Yield the ranges of a document by Kafka's cluster.id."""
    for cluster in document.clusters.values():
        for tp, found in cluster.ranges.items():
            yield (cluster.kafka_id, tp), found


def _named(who: str | Key, *, capital: bool = True) -> str:
    cluster = "Cluster" if capital else "cluster"
    if isinstance(who, str):
        return f"{cluster} '{who}'"
    name, tp = who
    return f"{cluster} '{name}', topic '{tp.topic}', partition {tp.partition}"


def _time_text(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def _duration(duration_ms: int) -> str:
    """Return a duration for people."""
    for unit, length_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if duration_ms >= length_ms:
            count = round(duration_ms / length_ms)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{duration_ms} ms"
