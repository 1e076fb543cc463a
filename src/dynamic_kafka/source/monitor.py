"""The cluster monitor: a daemon thread for each cluster that keeps a view of it, so that no call waits for a slow cluster.

The enumerator's thread sends requests (`request_view`, `request_offsets`), waits with `wait` as long as it likes, and reads
the results (`view_of`, `answers`, `failing_for_s`). All these calls to the cluster happen in the monitor's thread, one after
the other. Offsets of a consumer group are committed by another thread (`commits`).

Topics and their ids are looked up at the discovery interval, when the target changes, when an end moves backwards (the topic
may have been recreated), and every few seconds while a topic is missing or a partition has no leader.

Whatever keeps the monitor from looking at the cluster makes it a failing cluster: no answer, a refused login, a secret or a
key store that is missing for a moment, a wrong property. The caller decides how long to wait. A failed connection is made
again if its login was refused, or if a secret or a file behind its properties was replaced meanwhile. Only an error of the
offsets initializer is `fatal`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from dynamic_kafka.errors import ClusterUnavailableError, DynamicKafkaError
from dynamic_kafka.initializer import KafkaTopicPartition, checked_offsets
from dynamic_kafka.kafka.cluster import ClusterConnection, TopicInfo
from dynamic_kafka.kafka.pool import start_polling, stop_polling
from dynamic_kafka.source.group_commits import GroupCommits
from dynamic_kafka.source.offsets import topic_id_text
from dynamic_kafka.source.reconcile import ClusterView, OffsetAnswers, OffsetRequest

__all__ = ["ClusterMonitor", "MonitorTarget"]

_log = logging.getLogger(__name__)

_INCOMPLETE_RETRY_S = 2.0
_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0)
# Each refused login may count against the account. So the next one waits longer, unless the secret is replaced meanwhile.
_REFUSED_BACKOFF_S = 10.0
# Spark may call a hundred times a second. After each refresh the thread rests in proportion to the refresh's duration, so
# that a cluster with thousands of partitions keeps neither a core nor its brokers busy. A few partitions take 1 ms: they are
# refreshed at each call.
_IDLE_SHARE = 4
_LONGEST_REST_S = 1.0


@dataclass(frozen=True)
class MonitorTarget:
    """The target of a monitor; a new target replaces the old one.

    Args:
        properties: The client properties of the cluster.
        topics: The topics to monitor.
        pattern: If given, topics are monitored too if the whole name matches.
    """

    properties: Mapping[str, str] = field(repr=False)
    topics: frozenset[str]
    pattern: re.Pattern[str] | None = None


class ClusterMonitor:
    """The monitor of a cluster.

    Args:
        cluster_id: The cluster.
        target: The topics to monitor, and the properties.
        group_id: The consumer group for committed offsets.
        call_timeout_ms: The time-out of a call to the cluster.
        discovery_interval_ms: The interval at which topics and partitions are looked up; 0 or less looks them up once.
    """

    def __init__(
        self, cluster_id: str, target: MonitorTarget, *, group_id: str, call_timeout_ms: int, discovery_interval_ms: int
    ) -> None:
        self.cluster_id = cluster_id
        self.commits = GroupCommits(cluster_id, group_id=group_id, call_timeout_ms=call_timeout_ms)
        self._group_id = group_id
        self._call_timeout_ms = call_timeout_ms
        self._interval_s = discovery_interval_ms / 1000 if discovery_interval_ms > 0 else float("inf")
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._target = target
        self._requested = self._served = 0
        self._requests: list[OffsetRequest] = []
        self._closed = False
        self.view: ClusterView | None = None
        self._view_target: MonitorTarget | None = None
        self.answers = OffsetAnswers()
        self.error: DynamicKafkaError | None = None
        self.fatal: DynamicKafkaError | None = None
        self.authentication_failed = False
        self._failing_since: float | None = None
        self._failures = 0
        # Used by the monitor's thread only:
        self._infos: dict[str, TopicInfo] = {}
        self._kafka_id = ""
        self._discovered_at = -float("inf")
        self._discovered_for: MonitorTarget | None = None
        threading.Thread(target=self._run, name=f"dynamic-kafka-{cluster_id}", daemon=True).start()

    # --- for the enumerator ---

    def request_view(self, target: MonitorTarget) -> int:
        """Request a new view of `target` and return the ticket to wait for."""
        with self._changed:
            if self._failures and target.properties != self._target.properties:
                # These have not failed yet: they get patience and quick attempts of their own.
                self._failures, self._failing_since, self.authentication_failed = 1, time.monotonic(), False
            self._target = target
            return self._next_ticket()

    def request_offsets(self, requests: Collection[OffsetRequest]) -> int:
        """Request offsets and return the ticket to wait for. The offsets appear in `answers`."""
        with self._changed:
            self._requests = list(requests)
            return self._next_ticket()

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Have the group's offsets committed, without waiting."""
        self.commits.commit(offsets, self._target.properties)

    def _next_ticket(self) -> int:
        self._requested += 1
        self._changed.notify_all()
        return self._requested

    def wait(self, ticket: int, deadline: float) -> bool:
        """Wait for a ticket until `deadline` (of `time.monotonic`), and return whether it was served."""
        with self._changed:
            while self._served < ticket and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._served >= ticket

    def view_of(self, target: MonitorTarget) -> ClusterView | None:
        """Return the last view if it covers the target, else None. Other servers may be another cluster."""
        with self._changed:
            seen = self._view_target
            covers = (
                seen is not None
                and seen.topics >= target.topics
                and seen.pattern == target.pattern
                and seen.properties.get("bootstrap.servers") == target.properties.get("bootstrap.servers")
            )
            return self.view if covers else None

    @property
    def failing_for_s(self) -> float | None:
        """The seconds since the cluster stopped answering; None if it answers."""
        since = self._failing_since
        return None if since is None else time.monotonic() - since

    def forget_answers(self) -> None:
        """Drop the answers, because their positions are in a document now."""
        with self._changed:
            self.answers = OffsetAnswers()

    def close(self) -> None:
        """Have the threads end. Do not wait for them, because they may be in a call to a dead broker."""
        self.commits.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- the thread ---

    def _run(self) -> None:
        connection: ClusterConnection | None = None
        properties: Mapping[str, str] | None = None
        while True:
            with self._changed:
                while not self._closed and self._served >= self._requested:
                    self._changed.wait()
                if self._closed:
                    break
                ticket, target = self._requested, self._target
                requests, self._requests = self._requests, []
            if connection is not None and target.properties != properties:
                connection.close()
                connection = None
            if connection is None:
                if properties is not None:
                    _log.info("Cluster '%s': connecting again with its current properties", self.cluster_id)
                properties = target.properties
                connection = ClusterConnection(
                    self.cluster_id, properties, group_id=self._group_id, timeout_ms=self._call_timeout_ms
                )
            else:
                stop_polling(connection)
            started = time.monotonic()
            self._serve(connection, target, requests)
            if self._failures and connection.authentication_failed:
                connection.close()  # else it would try the same login again and again
            else:
                start_polling(connection)
            rest_s = _IDLE_SHARE * (time.monotonic() - started)
            with self._changed:
                self._served = ticket
                self._changed.notify_all()
                self._changed.wait_for(partial(self._is_urgent, target), min(rest_s, _LONGEST_REST_S))
            if self._failures:
                self._pause(connection, target)
                if connection.authentication_failed or connection.is_outdated():
                    connection.close()
                    connection = None
        if connection is not None:
            connection.close()

    def _pause(self, connection: ClusterConnection, target: MonitorTarget) -> None:
        """Wait before the next attempt, until there is a new target at most; after a refused login until a new secret."""
        pause_s = _BACKOFF_S[min(self._failures, len(_BACKOFF_S)) - 1]
        deadline = time.monotonic() + (_REFUSED_BACKOFF_S if connection.authentication_failed else 0)
        while True:
            with self._changed:
                new_target = self._changed.wait_for(partial(self._has_new_target, target), pause_s)
            if new_target or time.monotonic() >= deadline or connection.is_outdated():
                return

    def _has_new_target(self, old: MonitorTarget) -> bool:
        return self._closed or self._target != old

    def _is_urgent(self, old: MonitorTarget) -> bool:
        return bool(self._requests) or self._has_new_target(old)

    def _serve(self, connection: ClusterConnection, target: MonitorTarget, requests: list[OffsetRequest]) -> None:
        try:
            view = self._look(connection, target)
        except Exception as error:  # noqa: BLE001  also a wrong property, or a missing file: other clusters are read
            self._failed(connection, target, error)
            return
        try:
            answers = OffsetAnswers(dict(self.answers.start), dict(self.answers.stop))
            for request in requests:
                found = checked_offsets(request.initializer, request.partitions, connection)
                kept = answers.start if request.purpose == "start" else answers.stop
                kept |= {(self.cluster_id, tp): found[tp] for tp in request.partitions}
        except ClusterUnavailableError as error:
            self._failed(connection, target, error)
        except Exception as error:  # noqa: BLE001  a user's initializer may raise anything; `view` raises it
            with self._changed:
                self.fatal = (
                    error
                    if isinstance(error, DynamicKafkaError)
                    else _told(self.cluster_id, error, "the offsets initializer failed: ")
                )
        else:
            if self._failures:
                _log.info("Cluster '%s' answers again", self.cluster_id)
            with self._changed:
                self.view, self._view_target, self.answers = view, target, answers
                self.error, self.authentication_failed = None, False
                self._failures, self._failing_since = 0, None

    def _failed(self, connection: ClusterConnection, target: MonitorTarget, error: Exception) -> None:
        with self._changed:
            self.error = _told(self.cluster_id, error)
            self._failures += 1
            self._failing_since = self._failing_since or time.monotonic()
            self.authentication_failed = (
                connection.authentication_failed and target.properties == self._target.properties
            )
        if self._failures == 1:
            _log.warning("%s. It is tried again", self.error)

    def _look(self, connection: ClusterConnection, target: MonitorTarget) -> ClusterView:
        if self._discovery_is_due(target):
            self._discover(connection, target)
        ends = self._ends(connection)
        before = self.view.ends if self.view is not None else {}
        if any(end < before.get(tp, 0) for tp, end in ends.items()):
            self._discover(connection, target)
            ends = self._ends(connection)
        view = ClusterView(
            kafka_id=self._kafka_id,
            topics={name: topic_id_text(info.topic_id) for name, info in self._infos.items()},
            partitions={name: len(info.leaders) for name, info in self._infos.items()},
            ends=ends,
        )
        return view if view != self.view else self.view  # the same object means that nothing is new

    def _discovery_is_due(self, target: MonitorTarget) -> bool:
        if self._discovered_for is None or self._discovered_for != target:
            return True
        age_s = time.monotonic() - self._discovered_at
        incomplete = any(name not in self._infos for name in target.topics) or any(
            -1 in info.leaders for info in self._infos.values()
        )
        return age_s >= (min(_INCOMPLETE_RETRY_S, self._interval_s) if incomplete else self._interval_s)

    def _discover(self, connection: ClusterConnection, target: MonitorTarget) -> None:
        matching = connection.matching_topics(target.pattern) if target.pattern is not None else frozenset()
        self._infos = connection.topics(target.topics | matching)
        self._kafka_id = connection.kafka_id()
        self._discovered_for, self._discovered_at = target, time.monotonic()

    def _ends(self, connection: ClusterConnection) -> Mapping[KafkaTopicPartition, int]:
        tps = [
            KafkaTopicPartition(name, partition)
            for name, info in self._infos.items()
            for partition, leader in enumerate(info.leaders)
            if leader >= 0
        ]
        ends = connection.available_ends(tps, self._infos)
        if len(ends) < len(tps):
            self._discovered_for = None  # a leader has changed: look topics up again next time
        return ends


def _told(cluster_id: str, error: Exception, what: str = "") -> DynamicKafkaError:
    """Return the error as one that names the cluster."""
    if isinstance(error, DynamicKafkaError) and error.cluster_id is not None:
        return error
    text = str(error) if isinstance(error, DynamicKafkaError) else f"{type(error).__name__}: {error}"
    told = DynamicKafkaError(f"Cluster '{cluster_id}': {what}{text}", cluster_id=cluster_id)
    told.__cause__ = error
    return told
