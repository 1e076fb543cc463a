"""The source view: the state of the metadata service and of all clusters at one moment, from the watcher and the monitors.

Nothing here waits for a slow cluster, with three exceptions. The first call of a run waits, with a limit, for every cluster,
because an AvailableNow run would otherwise end with nothing read. Each later call waits up to `_NEWS_S` for news, which
saves a round of Spark's polling. With `isolate`, a later call also waits for a look that is under way, about as long as the
cluster's answers take, and leaves the cluster out if it is silent: what is planned must be read, and a batch waits for it
(`ClusterMonitor.answers_now`). So a view may be late, and may not show all topics: see the rules of `reconcile`.

What depends on time (an end that stays below the position, a topic that stays quiet) counts from look to look, not from
call to call: a cluster that hangs shows nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from dynamic_kafka.continuation import continues_from_json
from dynamic_kafka.errors import ClusterUnavailableError, MetadataServiceError, listed
from dynamic_kafka.initializer import KafkaTopicPartition, initializer_from_json, without_group
from dynamic_kafka.kafka.clients import check_properties
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.kafka.config.secrets import storable
from dynamic_kafka.metadata.model import ClusterMetadata
from dynamic_kafka.metadata.snapshot import Snapshot
from dynamic_kafka.metadata.watcher import MetadataWatcher
from dynamic_kafka.source.evidence import MoveRequest
from dynamic_kafka.source.kept_marks import add_marks
from dynamic_kafka.source.model import ClusterView, DesiredCluster, OffsetAnswers, OffsetRequest
from dynamic_kafka.source.monitor import ClusterMonitor, MonitorTarget
from dynamic_kafka.source.movers import Movers, answer
from dynamic_kafka.source.offsets import ClusterOffsets, Document
from dynamic_kafka.source.planning import ClusterAccess, Range
from dynamic_kafka.source.settings import SourceSettings
from dynamic_kafka.source.stand_in import stand_in

__all__ = ["SourceSnapshot", "SourceView"]

_log = logging.getLogger(__name__)

_NEWS_S = 0.03
_FIRST_METADATA_S = 30.0
_RESUMED_METADATA_S = 10.0
_LAST_COMMITS_S = 5.0
_ACTIVITY_S = 2.0
_MARKS_S = 1.0


@dataclass(slots=True)
class SourceSnapshot:
    """The state at one moment; the fields are arguments of `reconcile`."""

    streams: Mapping[str, Mapping[str, frozenset[str]]]
    desired: Mapping[str, DesiredCluster]
    views: Mapping[str, ClusterView]
    fresh: bool
    inactive: frozenset[str] = frozenset()
    quiet: Collection[tuple[str, str]] = ()
    regressed: Mapping[tuple[str, KafkaTopicPartition], int] = field(default_factory=dict)

    def sees(self, views: Mapping[str, ClusterView], inactive: frozenset[str]) -> bool:
        """Return whether the snapshot was made of these very objects."""
        mine = self.views
        return inactive == self.inactive and len(views) == len(mine) and all(mine.get(n) is v for n, v in views.items())


class SourceView:
    """The metadata watcher and the cluster monitors of a query. Created without I/O; threads start at the first call."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._watcher: MetadataWatcher | None = None
        self._warm = False
        self.monitors: dict[str, ClusterMonitor] = {}
        self._movers = Movers(group_id=settings.consumer_group, timeout_ms=settings.call_timeout_ms)
        self._own_properties: dict[str, Mapping[str, str]] = {}
        self._checked: Snapshot | None = None
        self._first_start = False
        self._refresh_requested: dict[str, float] = {}
        self._targets_of: tuple[Snapshot | None, Document | None] | None = None
        self._targets: dict[str, MonitorTarget] = {}
        self._names_of_server: dict[str, list[str]] = {}
        self._last: tuple[Snapshot | None, Document | None, Collection[str], SourceSnapshot] | None = None
        self._quiet_since: dict[tuple[str, str], tuple[list[int], float]] = {}
        self._regressed_since: dict[tuple[str, KafkaTopicPartition], tuple[float, int]] = {}

    def close(self) -> None:
        """Have all threads end, without waiting for them."""
        for monitor in self.monitors.values():
            monitor.close()
        self.monitors.clear()
        self._movers.close()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    # --- the metadata ---

    def snapshot(self, previous: Document | None) -> Snapshot | None:
        """Return the last good answer of the metadata service; None if a resumed query has none yet.

        The first call starts the watcher and waits for an answer, with a limit.

        Raises:
            MetadataServiceError: If the service failed more often than tolerated, or at a first start.
        """
        snapshot = self._current(previous)
        assert self._watcher is not None
        if (failure := self._watcher.failure()) is not None:
            raise failure
        if snapshot is None and previous is None:
            raise MetadataServiceError(
                f"The metadata service did not answer within {_FIRST_METADATA_S:.0f} s, and there is no checkpoint to "
                "continue from; make sure that the service is reachable, then start the query again"
            )
        return snapshot

    def resume(self, document: Document) -> None:
        """Take the current properties, for the tasks of a batch that is decided. A service that fails does not matter."""
        self._current(document)

    def _current(self, previous: Document | None) -> Snapshot | None:
        if self._watcher is None:
            settings = self._settings
            self._watcher = MetadataWatcher(
                settings.service(),
                settings.subscriber,
                interval_ms=settings.metadata_interval_ms,
                failure_threshold=settings.metadata_failure_threshold,
                check=lambda own: check_properties(settings.cluster_properties(own)),
            )
            had_topics = previous is not None and any(c.topics for c in previous.clusters.values())
            self._watcher.start(resuming=previous is not None, had_topics=had_topics)
            self._watcher.wait_first(_FIRST_METADATA_S if previous is None else _RESUMED_METADATA_S)
        snapshot = self._watcher.snapshot()
        if snapshot is not None and snapshot is not self._checked:
            self._checked = snapshot
            self._own_properties |= {name: c.properties for name, c in snapshot.clusters.items()}
            self._names_of_server = {}
            for name, properties in self._own_properties.items():
                for server in _servers(properties):
                    self._names_of_server.setdefault(server, []).append(name)
            self._warn_of_unused(snapshot)
        return snapshot

    def _warn_of_unused(self, snapshot: Snapshot) -> None:
        for name, cluster in snapshot.clusters.items():
            if "group.id" in cluster.properties:
                _log.warning(
                    "Cluster '%s': group.id in its metadata is not used; set the option 'properties.group.id', which holds "
                    "for all clusters",
                    name,
                )
        if unknown := sorted(self._settings.cluster_limits.keys() - snapshot.clusters.keys()):
            _log.warning(
                "maxOffsetsPerTriggerPerCluster limits %s, which the metadata does not name: the limit has no effect now",
                listed([f"'{name}'" for name in unknown], 5),
            )

    def properties(self, name: str, stored: Mapping[str, str]) -> dict[str, str]:
        """Return a cluster's client properties: those of the last metadata, else those stored in the document.

        The metadata may have the login under another name: a cluster with one of the same servers is the same.
        """
        today = self._name_today(name, stored)
        return self._settings.cluster_properties(stored if today is None else self._own_properties[today])

    def _name_today(self, name: str, stored: Mapping[str, str]) -> str | None:
        """Return the name that the metadata has for a cluster of the document; None if the metadata does not have it."""
        own = self._own_properties
        same = {other for server in _servers(stored) for other in self._names_of_server.get(server, ())}
        if name in own and (name in same or not same):
            return name
        return next(other for other in own if other in same) if same else None

    def access(self, clusters: Mapping[str, ClusterOffsets]) -> dict[str, ClusterAccess]:
        """Return how tasks reach clusters, and the evidence that some are not wanted any more. Call `snapshot` first."""
        assert self._watcher is not None
        snapshot = self._watcher.snapshot()
        today = {name: self._name_today(name, kept.properties) for name, kept in clusters.items()}
        named = frozenset() if snapshot is None else snapshot.clusters.keys() & set(today.values())
        if named and not self._warm:  # a repeated batch may depend on the answer, and no cluster was found to fail yet
            self._watcher.track(named)
            self._watcher.wait_active(named, _ACTIVITY_S)
        found = {}
        for name, kept in clusters.items():
            now, removed = today[name], ""
            if snapshot is not None and now not in named:
                removed = "the metadata does not name this cluster any more"
            elif now is not None and not self._watcher.is_cluster_active(now):
                removed = "the metadata service calls this cluster inactive"
            found[name] = ClusterAccess(
                self.properties(name, kept.properties), kept.kafka_id, removed, from_checkpoint=now is None
            )
        return found

    def with_stand_ins(self, groups: list[list[Range]], document: Document) -> tuple[list[list[Range]], list[str]]:
        """Return the ranges of each task, and what to tell: those of a dead cluster are read from one that continues it.

        Call `resume` first.
        """
        snapshot = self._watcher.snapshot() if self._watcher is not None else None
        found = groups
        said: list[str] = []
        for new, cluster in snapshot.clusters.items() if snapshot is not None else ():
            old = cluster.continues.cluster if cluster.continues is not None else ""
            if cluster.continues is None or not any(r.cluster == old for group in groups for r in group):
                continue
            kept, named = document.clusters[old], snapshot.clusters.get(old) if snapshot is not None else None
            if (named is not None and named.topics) or self._answers(old, kept):
                continue
            settings = self._settings
            properties = {new: settings.cluster_properties(cluster.properties), old: {}}
            timeout_s = settings.call_timeout_ms / 1000
            ask = partial(answer, properties=properties, group_id=settings.consumer_group, timeout_s=timeout_s)
            found, more = stand_in(found, document, new, topics=cluster.topics, continues=cluster.continues, ask=ask)
            said += more
        return found, said

    def _answers(self, name: str, kept: ClusterOffsets) -> bool:
        """Return whether the very cluster of the document answers now."""
        connection = ClusterConnection(
            name,
            self.properties(name, kept.properties),
            group_id=self._settings.consumer_group,
            timeout_ms=self._settings.call_timeout_ms,
        )
        with closing(connection):
            try:
                return connection.kafka_id() in ("", kept.kafka_id) or not kept.kafka_id
            except ClusterUnavailableError:
                return False

    def metadata_status(self) -> Mapping[str, object]:
        """Return the watcher's counters and errors."""
        return self._watcher.status() if self._watcher is not None else {}

    # --- the clusters ---

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
        snapshot = self.snapshot(previous)
        assert self._watcher is not None
        clusters = _clusters(snapshot, previous)
        known = previous.clusters if previous is not None else {}
        if self._targets_of is None or self._targets_of[0] is not snapshot or self._targets_of[1] is not previous:
            self._targets_of = snapshot, previous
            self._targets = {n: self._target(n, clusters, known.get(n)) for n in _to_monitor(clusters, previous)}
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
            regressed = self._regressed(known, fresh)
            decided = self._regressed_since.keys() <= regressed.keys()
            if not at_once or (decided and not _is_undecided(known, clusters, views, inactive)):
                break
            time.sleep(self._settings.call_retry_interval_ms / 1000)
        observation = SourceSnapshot(
            streams=_streams(snapshot, previous, clusters),
            desired={
                name: desired_cluster(cluster, known.get(name), views.get(name), self._settings)
                for name, cluster in clusters.items()
            },
            views=views,
            fresh=snapshot is not None,
            inactive=inactive,
            quiet=self._quiet(known, fresh, at_once=at_once),
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
        if self._last is None or self._regressed_since or self._quiet_since:
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
        properties = {name: self.properties(name, clusters[name].properties) for name in names}
        wait_s = self._settings.unavailable_after_ms / 1000 if patient else _NEWS_S
        return self._movers.request(requests, properties, wait_s)

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
            ends = {tp: end for tp, (_, end) in kept.ranges.items() if tp.topic in topics and end > 0}
            if name not in self.monitors or self.monitors[name].failing_for_s is not None:
                continue
            found = self._movers.marks(name, self.properties(name, kept.properties), ends, _MARKS_S)
            for tp, marks in found.items():
                added |= add_marks(kept, tp, marks)
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
        return MonitorTarget(self.properties(name, source.properties if source is not None else {}), topics, pattern)

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
                assert self._watcher is not None
                self._watcher.request_refresh()
        return failing_s >= patience_s

    def _inactive(
        self, clusters: Mapping[str, ClusterMetadata], targets: Mapping[str, MonitorTarget]
    ) -> frozenset[str]:
        """Return the clusters that fail or are being removed, and that the metadata service calls inactive.

        A cluster that is being removed and has not answered for long counts too: it was shut down before it was drained.
        """
        assert self._watcher is not None
        failing_s = {name: self.monitors[name].failing_for_s for name in targets}
        doubtful = {name for name in targets if name not in clusters or failing_s[name] is not None}
        self._watcher.track(doubtful)
        gone_s = self._settings.unavailable_after_ms / 1000
        return frozenset(
            name
            for name in doubtful
            if not self._watcher.is_cluster_active(name)
            or (not self._needed(name, clusters) and (failing_s[name] or 0.0) >= gone_s)
        )

    # --- what depends on time ---

    def _quiet(
        self, known: Mapping[str, ClusterOffsets], views: Mapping[str, ClusterView], *, at_once: bool
    ) -> set[tuple[str, str]]:
        """Return the draining topics that were read to their ends, if the ends have not moved for the quiet time."""
        quiet = set()
        draining = {(name, topic) for name, c in known.items() if name in views for topic in c.draining}
        for key in set(self._quiet_since) - draining:
            del self._quiet_since[key]
        partitions = {name: known[name].partitions_by_topic() for name in {name for name, _ in draining}}
        for name, topic in draining:
            ranges = known[name].ranges
            tps = [tp for tp in partitions[name].get(topic, ()) if tp in ranges]
            ends = [views[name].ends.get(tp, -1) for tp in tps]
            caught_up = all(ranges[tp][1] >= end >= 0 for tp, end in zip(tps, ends, strict=True))
            now = self.monitors[name].seen_at
            before, since = self._quiet_since.get((name, topic), ([], now))
            if not caught_up or ends != before:
                since = now
            self._quiet_since[name, topic] = ends, since
            if caught_up and (at_once or now - since >= self._settings.drain_quiet_ms / 1000):
                quiet.add((name, topic))
        return quiet

    def _regressed(
        self, known: Mapping[str, ClusterOffsets], views: Mapping[str, ClusterView]
    ) -> dict[tuple[str, KafkaTopicPartition], int]:
        """Return partitions with an end that was below the position for longer than a leader change takes: the lowest."""
        below: dict[tuple[str, KafkaTopicPartition], tuple[float, int]] = {}
        for name, c in known.items():
            if name not in views:
                continue
            seen_at = self.monitors[name].seen_at
            for tp, (_, position) in c.ranges.items():
                end = views[name].ends.get(tp, position)
                if end < position:
                    since, lowest = self._regressed_since.get((name, tp), (seen_at, end))
                    below[name, tp] = since, min(lowest, end)
        self._regressed_since = below
        believed_s = self._settings.call_retries * self._settings.call_retry_interval_ms / 1000
        return {
            (name, tp): lowest
            for (name, tp), (since, lowest) in below.items()
            if self.monitors[name].seen_at - since >= believed_s
        }


def _raise_fatal(monitor: ClusterMonitor) -> None:
    if monitor.fatal is not None:
        raise monitor.fatal


def _servers(properties: Mapping[str, str]) -> set[str]:
    return {server.strip() for server in properties.get("bootstrap.servers", "").split(",")} - {""}


def _clusters(snapshot: Snapshot | None, previous: Document | None) -> Mapping[str, ClusterMetadata]:
    """Return the desired clusters: those of the metadata or, until it has answered, those of the document."""
    if snapshot is not None:
        return snapshot.clusters
    assert previous is not None
    clusters = {}
    for name, c in previous.clusters.items():
        topics = frozenset(c.topics) - c.draining
        for parts in previous.streams.values():
            topics |= parts.get(name) or frozenset()
        if topics:
            clusters[name] = ClusterMetadata(
                topics,
                c.properties,
                None if c.starting is None else initializer_from_json(c.starting),
                None if c.stopping is None else initializer_from_json(c.stopping),
                None if c.continues is None else continues_from_json(c.continues),
            )
    return clusters


def desired_cluster(
    cluster: ClusterMetadata, known: ClusterOffsets | None, view: ClusterView | None, settings: SourceSettings
) -> DesiredCluster:
    """Return what has to be read on a cluster.

    By a pattern, that is each topic with a name that matches, if the view or the document knows it: a topic that no
    view shows is not removed.
    """
    topics = cluster.topics
    if settings.pattern is not None:
        found = {*(view.topics if view is not None else ()), *(known.topics if known is not None else ())}
        topics |= {topic for topic in found if settings.pattern.fullmatch(topic)}
    starting, stopping = cluster.starting_offsets, cluster.stopping_offsets
    if settings.group_id is None:
        starting, stopping = starting and without_group(starting), stopping and without_group(stopping)
    return DesiredCluster(
        topics, storable(cluster.properties), starting, stopping, settings.partitions, cluster.continues
    )


def _is_undecided(
    known: Mapping[str, ClusterOffsets],
    clusters: Mapping[str, ClusterMetadata],
    views: Mapping[str, ClusterView],
    inactive: Collection[str],
) -> bool:
    """Return whether a topic of the document is neither shown nor missing, or a removed cluster may still answer."""
    return any(
        bool({*c.topics, *c.unseen} - views[name].topics.keys() - views[name].missing - views[name].denied)
        if name in views
        else bool(c.topics) and name not in clusters and name not in inactive
        for name, c in known.items()
    )


def _to_monitor(clusters: Mapping[str, ClusterMetadata], previous: Document | None) -> list[str]:
    active = [n for n, c in previous.clusters.items() if c.topics] if previous is not None else []
    return sorted({*clusters, *active})


def _streams(
    snapshot: Snapshot | None, previous: Document | None, clusters: Mapping[str, ClusterMetadata]
) -> Mapping[str, Mapping[str, frozenset[str]]]:
    if snapshot is not None:
        return snapshot.streams
    assert previous is not None
    return {
        stream: {
            name: clusters[name].topics if topics is None else topics
            for name, topics in parts.items()
            if name in clusters
        }
        for stream, parts in previous.streams.items()
    }
