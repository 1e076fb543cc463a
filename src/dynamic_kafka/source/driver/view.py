"""The source view: the state of the metadata service and of all clusters at one moment, from the watcher and the monitors.

Nothing here waits for a slow cluster, with three exceptions. The first call of a run waits, with a limit, for every cluster,
because an AvailableNow run would otherwise end with nothing read. Each later call waits up to `_NEWS_S` for news, which
saves a round of Spark's polling. With `isolate`, a later call also waits for a look that is under way, about as long as the
cluster's answers take, and leaves the cluster out if it is silent: what is planned must be read, and a batch waits for it
(`ClusterMonitor.answers_now`). So a view may be late, and may not show all topics: see the rules of `reconcile`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.metadata.model import ClusterMetadata
from dynamic_kafka.metadata.snapshot import Snapshot
from dynamic_kafka.source.document.evidence import MoveRequest
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.driver.current_metadata import CurrentMetadata
from dynamic_kafka.source.driver.monitor import ClusterMonitor, MonitorTarget
from dynamic_kafka.source.driver.movers import Movers
from dynamic_kafka.source.driver.record_log import open_log
from dynamic_kafka.source.rules.desired import (
    desired_cluster,
    desired_clusters,
    desired_streams,
    is_undecided,
    to_monitor,
)
from dynamic_kafka.source.rules.lasting import Lasting
from dynamic_kafka.source.rules.migration import add_marks, unmarked
from dynamic_kafka.source.rules.model import ClusterView, KafkaRow, OffsetAnswers, OffsetRequest, SourceSnapshot
from dynamic_kafka.source.rules.planning import ClusterAccess
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["SourceView"]

_log = logging.getLogger(__name__)

_NEWS_S = 0.03
_LAST_COMMITS_S = 5.0
_MARKS_S = 1.0


class SourceView:
    """The metadata watcher and the cluster monitors of a query. Created without I/O; threads start at the first call."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self.metadata = CurrentMetadata(settings)
        self._warm = False
        self.monitors: dict[str, ClusterMonitor] = {}
        self._movers = Movers(group_id=settings.consumer_group, timeout_ms=settings.call_timeout_ms)
        self._first_start = False
        self._refresh_requested: dict[str, float] = {}
        self._targets_of: tuple[Snapshot | None, Document | None] | None = None
        self._targets: dict[str, MonitorTarget] = {}
        self._last: tuple[Snapshot | None, Document | None, Collection[str], SourceSnapshot] | None = None
        self._lasting = Lasting(
            quiet_s=settings.drain_quiet_ms / 1000,
            below_s=settings.call_retries * settings.call_retry_interval_ms / 1000,
        )

    def close(self) -> None:
        """Have all threads end, without waiting for them."""
        for monitor in self.monitors.values():
            monitor.close()
        self.monitors.clear()
        self._movers.close()
        self.metadata.close()

    def access(self, clusters: Mapping[str, ClusterOffsets]) -> dict[str, ClusterAccess]:
        """Return how tasks reach clusters, and the evidence that some are not wanted any more."""
        # At a start, a repeated batch may depend on what the service says: no cluster was found to fail yet.
        return self.metadata.access(clusters, ask_first=not self._warm)

    def collect(self, previous: Document | None, *, at_once: bool) -> SourceSnapshot:
        """Collect the current state.

        Args:
            previous: The last document; None on a first start.
            at_once: For AvailableNow and batch reads, which collect only once: a draining topic without new records counts
                as quiet at once, and what only time can show is waited for: an end that moved backwards, a topic that
                is not shown any more, a removed cluster that does not answer.

        Returns:
            The same object as in the last call if nothing has changed since.

        Raises:
            ClusterUnavailableError: If a desired cluster does not answer and `cluster-failure-mode` is `fail`.
        """
        first, self._warm = not self._warm, True
        self._first_start = first and previous is None
        snapshot = self.metadata.snapshot(previous)
        clusters = desired_clusters(snapshot, previous)
        known = previous.clusters if previous is not None else {}
        if self._targets_of is None or self._targets_of[0] is not snapshot or self._targets_of[1] is not previous:
            self._targets_of = snapshot, previous
            self._targets = {n: self._target(n, clusters, known.get(n)) for n in to_monitor(clusters, previous)}
        targets = self._targets
        self._sync_monitors(targets)
        patience_s = self._settings.unavailable_after_ms / 1000 if first else _NEWS_S
        while True:
            silent = self._refresh(targets, clusters, time.monotonic() + patience_s, first=first)
            inactive = self._inactive(clusters, targets)
            views = self._views(targets, clusters, inactive, silent, first=first)
            fresh = {name: view for name, view in views.items() if self.monitors[name].failing_for_s is None}
            if not at_once and self._is_as_before(snapshot, previous, views, fresh.keys(), inactive):
                assert self._last is not None
                return self._last[-1]
            seen_at = {name: self.monitors[name].seen_at for name in fresh}
            regressed = self._lasting.regressed(known, fresh, seen_at)
            decided = self._lasting.below <= regressed.keys()
            if not at_once or (decided and not is_undecided(known, clusters, views, inactive)):
                break
            time.sleep(self._settings.call_retry_interval_ms / 1000)
        observation = SourceSnapshot(
            streams=desired_streams(snapshot, previous, clusters),
            desired={
                name: desired_cluster(cluster, known.get(name), views.get(name), self._settings)
                for name, cluster in clusters.items()
            },
            views=views,
            fresh=snapshot is not None,
            inactive=inactive,
            quiet=self._lasting.quiet(known, fresh, seen_at, at_once=at_once),
            regressed=regressed,
        )
        self._last = snapshot, previous, fresh.keys(), observation
        return observation

    def _is_as_before(
        self,
        snapshot: Snapshot | None,
        previous: Document | None,
        views: Mapping[str, ClusterView],
        fresh: Collection[str],
        inactive: frozenset[str],
    ) -> bool:
        """Return whether the last observation still holds: it was made of these very objects, and time changes nothing."""
        if self._last is None or self._lasting.is_counting:
            return False
        its_snapshot, its_previous, its_fresh, observation = self._last
        return (
            its_snapshot is snapshot
            and its_previous is previous
            and its_fresh == fresh
            and observation.sees(views, inactive)
        )

    def answers(self) -> OffsetAnswers:
        """Return all answers that are not in a document yet."""
        merged = OffsetAnswers()
        for monitor in self.monitors.values():
            merged.start |= monitor.answers.start
            merged.stop |= monitor.answers.stop
        merged.moves = self._movers.answers()
        return merged

    def request_offsets(self, requests: Iterable[OffsetRequest], *, patient: bool) -> bool:
        """Send requests to the clusters, wait, and return whether there may be new answers.

        If `patient`, wait until a cluster counts as unavailable, instead of `_NEWS_S`.
        """
        by_cluster: dict[str, list[OffsetRequest]] = {}
        for request in requests:
            by_cluster.setdefault(request.cluster, []).append(request)
        deadline = time.monotonic() + (self._settings.unavailable_after_ms / 1000 if patient else _NEWS_S)
        tickets = {name: self.monitors[name].request_offsets(some) for name, some in by_cluster.items()}
        served = [self.monitors[name].wait(ticket, deadline) for name, ticket in tickets.items()]
        for name in tickets:
            _raise_fatal(self.monitors[name])
        return any(served) and any(self.monitors[name].failing_for_s is None for name in tickets)

    def request_moves(
        self, requests: Collection[MoveRequest], clusters: Mapping[str, ClusterOffsets], *, patient: bool
    ) -> bool:
        """Have positions on other clusters looked for, wait, and return whether there may be new answers."""
        names = {name for request in requests for name in (request.cluster, request.old_cluster)}
        properties = {name: self.metadata.properties(name, clusters[name].properties) for name in names}
        wait_s = self._settings.unavailable_after_ms / 1000 if patient else _NEWS_S
        return self._movers.request(requests, properties, wait_s)

    def rows_at(
        self, cluster: str, state: ClusterOffsets, offsets: Mapping[KafkaTopicPartition, int]
    ) -> dict[KafkaTopicPartition, KafkaRow]:
        """Return the records at offsets of a cluster; nothing where there is none, such as at a marker.

        Raises:
            ClusterUnavailableError: If the cluster does not answer.
        """
        settings = self._settings
        properties = self.metadata.properties(cluster, state.properties)
        timeout_s = settings.call_timeout_ms / 1000
        with open_log(cluster, properties, group_id=settings.consumer_group, timeout_s=timeout_s) as records:
            return records.rows_at(offsets)

    def add_marks(self, document: Document, standby: Mapping[str, Collection[str]]) -> bool:
        """Add the last records before the end of each range to a document, for topics that another cluster may continue.

        Those before the start stay, in case that the batch is never finished. Without an answer in time the document keeps
        its earlier marks, or gets marks of an earlier position.

        Returns:
            Whether something was added.
        """
        added = False
        for name, topics in standby.items():
            kept = document.clusters[name]
            # Compaction may have removed records since: marks that are current are not read again.
            tps = unmarked(kept, topics)
            if name not in self.monitors or self.monitors[name].failing_for_s is not None:
                continue
            found = self._movers.marks(name, kept, tps, self.metadata.properties(name, kept.properties), _MARKS_S)
            for tp, marks in found.items():
                added |= add_marks(kept, tp, marks)
        return added

    def add_anchors(self, document: Document, comparisons: Collection[MoveRequest]) -> bool:
        """Add to a document how far logs and their copies were compared, and have that go on. Nothing is waited for.

        Returns:
            Whether there is something new that should not wait for the next batch.
        """
        names = {name for request in comparisons for name in (request.cluster, request.old_cluster)}
        properties = {name: self.metadata.properties(name, document.clusters[name].properties) for name in names}
        added = False
        for request, (anchor, is_finished) in self._movers.follow(comparisons, properties).items():
            anchors = document.clusters[request.old_cluster].anchors
            before = anchors.get(request.old_partition)
            anchors[request.old_partition] = anchor
            added |= before is None or (is_finished and before.until < anchor.until)
        return added

    def forget_answers(self, still_open: Collection[OffsetRequest]) -> None:
        """Drop all answers, because their positions are in a document now, except what is still open."""
        for name, monitor in self.monitors.items():
            monitor.forget_answers([request for request in still_open if request.cluster == name])

    def finish_commits(self) -> None:
        """Wait, with a limit, until the offsets of the last batch are committed to the group, before the process ends."""
        deadline = time.monotonic() + _LAST_COMMITS_S
        late = [name for name, monitor in self.monitors.items() if not monitor.commits.wait(deadline)]
        if late:
            _log.warning(
                "The last offsets of the consumer group were not committed within %.0f s on: %s. The next run commits them",
                _LAST_COMMITS_S,
                ", ".join(late),
            )

    def _target(self, name: str, clusters: Mapping[str, ClusterMetadata], kept: ClusterOffsets | None) -> MonitorTarget:
        topics = clusters[name].topics if name in clusters else frozenset()
        if kept is not None:
            topics |= frozenset(kept.topics)
        pattern = self._settings.pattern if name in clusters else None
        source = clusters.get(name) or kept
        return MonitorTarget(
            self.metadata.properties(name, source.properties if source is not None else {}), topics, pattern
        )

    def _sync_monitors(self, targets: Mapping[str, MonitorTarget]) -> None:
        for name in set(self.monitors) - set(targets):
            self.monitors.pop(name).close()
            self._refresh_requested.pop(name, None)
        for name in set(targets) - set(self.monitors):
            self.monitors[name] = ClusterMonitor(
                name,
                targets[name],
                group_id=self._settings.consumer_group,
                call_timeout_ms=self._settings.call_timeout_ms,
                discovery_interval_ms=self._settings.discovery_interval_ms,
            )

    def _refresh(
        self,
        targets: Mapping[str, MonitorTarget],
        clusters: Mapping[str, ClusterMetadata],
        deadline: float,
        *,
        first: bool,
    ) -> set[str]:
        """Have all monitors refresh their views, and wait for them; for failing ones only in the first call of a run.

        Returns:
            With `isolate`, the clusters of which there is no fresh evidence that they answer.
        """
        pending = set(targets)
        isolate = self._settings.cluster_failure_mode == "isolate"
        tickets: dict[str, int] = {}
        while pending:
            tickets = {name: self.monitors[name].request_view(targets[name]) for name in pending}
            for name, ticket in tickets.items():
                monitor = self.monitors[name]
                if first or monitor.failing_for_s is None:
                    monitor.wait(ticket, deadline)
                _raise_fatal(monitor)
            pending = {
                name
                for name in pending
                if first
                and self._needed(name, clusters)
                and not isolate
                and self.monitors[name].failing_for_s is not None
            }
            if time.monotonic() >= deadline or any(self._counts(self.monitors[name]) for name in pending):
                break
        if first or not isolate:
            return set()
        return {name for name, ticket in tickets.items() if not self.monitors[name].answers_now(ticket)}

    def _views(
        self,
        targets: Mapping[str, MonitorTarget],
        clusters: Mapping[str, ClusterMetadata],
        inactive: Collection[str],
        silent: Collection[str],
        *,
        first: bool,
    ) -> dict[str, ClusterView]:
        views = {}
        for name, target in targets.items():
            monitor = self.monitors[name]
            view, failing_s = monitor.view_of(target), monitor.failing_for_s
            if view is not None and failing_s is None and name not in silent:
                views[name] = view
            elif self._needed(name, clusters) and name not in inactive and (first or self._counts(monitor)):
                why = monitor.error or f"Cluster '{name}' has not answered yet"
                if monitor.error is not None and failing_s is not None and failing_s >= 1:
                    why = f"{monitor.error}. It has not answered for {failing_s:.0f} s"
                if self._settings.cluster_failure_mode == "fail":
                    remedy = (
                        "correct its user, password or certificates (sasl.*, ssl.*) in the metadata or the options"
                        if monitor.authentication_failed
                        else "bring the cluster back, remove it from the metadata"
                    )
                    raise ClusterUnavailableError(
                        f"{why}. The query stops because cluster-failure-mode=fail; {remedy}, or set "
                        "cluster-failure-mode=isolate to read the other clusters meanwhile",
                        cluster_id=name,
                    ) from monitor.error
                if first:
                    _log.warning("%s. The other clusters are read meanwhile", why)
            elif (
                view is not None
                and name in clusters.keys() - inactive
                and self._settings.cluster_failure_mode == "fail"
            ):
                # Records up to its last known ends still have to be read, and a task waits for the cluster. Otherwise Spark
                # would take records known to be unread for read (`processAllAvailable`). With `isolate` no task waits.
                views[name] = view
        return views

    def _needed(self, name: str, clusters: Mapping[str, ClusterMetadata]) -> bool:
        """Return whether there may be something to read on the cluster."""
        return name in clusters and bool(clusters[name].topics or self._settings.pattern)

    def _counts(self, monitor: ClusterMonitor) -> bool:
        """Return whether a failing cluster counts as unavailable: after the time-out, also if it refuses the login.

        New secrets may arrive a minute after the cluster's own. Meanwhile the metadata service is asked for new properties.
        Only at a first start a refused login counts at once.
        """
        failing_s = monitor.failing_for_s
        if failing_s is None:
            return False
        patience_s = self._settings.unavailable_after_ms / 1000
        if monitor.authentication_failed:
            if self._first_start:
                return True
            now = time.monotonic()
            if now - self._refresh_requested.get(monitor.cluster_id, -patience_s) >= patience_s:
                self._refresh_requested[monitor.cluster_id] = now
                self.metadata.request_refresh()
        return failing_s >= patience_s

    def _inactive(
        self, clusters: Mapping[str, ClusterMetadata], targets: Mapping[str, MonitorTarget]
    ) -> frozenset[str]:
        """Return the clusters that fail or are being removed, and that the metadata service calls inactive.

        A cluster that is being removed and has not answered for long counts too: it was shut down before it was drained.
        """
        failing_s = {name: self.monitors[name].failing_for_s for name in targets}
        doubtful = {name for name in targets if name not in clusters or failing_s[name] is not None}
        called_inactive = self.metadata.inactive(doubtful)
        gone_s = self._settings.unavailable_after_ms / 1000
        return frozenset(
            name
            for name in doubtful
            if name in called_inactive or (not self._needed(name, clusters) and (failing_s[name] or 0.0) >= gone_s)
        )


def _raise_fatal(monitor: ClusterMonitor) -> None:
    if monitor.fatal is not None:
        raise monitor.fatal
