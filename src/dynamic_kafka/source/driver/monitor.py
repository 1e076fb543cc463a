"""The cluster monitor: a daemon thread for each cluster that keeps a view of it, so that no call waits for a slow cluster.

The enumerator's thread sends requests (`request_view`, `request_offsets`), waits with `wait` as long as it likes, and reads
the results (`view_of`, `answers`, `failing_for_s`). All these calls to the cluster happen in the monitor's thread, one after
the other. Offsets of a consumer group are committed by another thread (`commits`).

All topics and their ids are looked up at the discovery interval and when an end moves backwards (a topic may have been
recreated). In between, only what is new in the target or not known well is looked up: every few seconds the topics that do
not exist or have a partition without a leader, and at once those with an end that was not answered.

A view shows what is known, which may be less than the target: see `ClusterView`. A topic counts as missing only if the
brokers have said so more than once, for `_MISSING_AFTER_S`.

Whatever keeps the monitor from looking at the cluster makes it a failing cluster: no answer, a refused login, a secret or a
key store that is missing for a moment, a wrong property. The caller decides how long to wait. After each failure the
connection is made again: it may be dead without a word, or have a secret that was replaced. Only an error of the offsets
initializer is `fatal`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter

from dynamic_kafka.errors import ClusterUnavailableError, DynamicKafkaError
from dynamic_kafka.initializer import KafkaTopicPartition, checked_offsets
from dynamic_kafka.kafka.cluster import ClusterConnection, TopicInfo
from dynamic_kafka.kafka.logins import principal
from dynamic_kafka.kafka.pool import start_polling, stop_polling
from dynamic_kafka.source.document.offsets import topic_id_text
from dynamic_kafka.source.driver.group_commits import GroupCommits
from dynamic_kafka.source.rules.alignment import TimeAnswer, TimeRequest
from dynamic_kafka.source.rules.model import ClusterView, OffsetAnswers, OffsetRequest
from dynamic_kafka.source.rules.record_times import look_up

__all__ = ["ClusterMonitor", "MonitorTarget"]

_log = logging.getLogger(__name__)

_INCOMPLETE_RETRY_S = 2.0
# A broker that has just started may not know its topics for a moment. "Missing" may end a query, so it can wait a little.
_MISSING_AFTER_S = 10.0
_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0)
# Each refused login may count against the account. So the next one waits longer, unless the secret is replaced meanwhile.
_REFUSED_BACKOFF_S = (10.0, 20.0, 30.0, 60.0, 300.0)
# Spark may call a hundred times a second. After each refresh the thread rests in proportion to the refresh's duration, so
# that a cluster with thousands of partitions keeps neither a core nor its brokers busy. A few partitions take 1 ms: they are
# refreshed at each call.
_IDLE_SHARE = 4
_LONGEST_REST_S = 1.0
# How long a look may take until the cluster counts as silent: this, or this multiple of the last one.
_LOOK_S = 0.3
_LOOK_SHARE = 3
# While nothing changes, thousands of partitions are asked less often: a record is noticed after this rest at the latest, and
# the next ones at the pace of above. It does not depend on how long a refresh took, which a busy machine changes.
_UNCHANGED_REST_S = 1.5
_UNCHANGED_REST_FROM = 1_000
_UNCHANGED_REST_FULL_AT = 8_000


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
        self._open: Collection[OffsetRequest] = ()
        self._time_requests: list[TimeRequest] = []
        self._times: list[tuple[TimeRequest, TimeAnswer]] = []
        self._look_wanted = True  # else only times of records are asked for
        self._closed = False
        self.view: ClusterView | None = None
        self._view_servers: str | None = None
        self.seen_at = -float("inf")  # the start of the last successful look, by `time.monotonic`
        self._answered_at = -float("inf")  # its end
        self._looking_since: float | None = None
        self.answers = OffsetAnswers()
        self.error: DynamicKafkaError | None = None
        self.fatal: DynamicKafkaError | None = None
        self.authentication_failed = False
        self._failing_since: float | None = None
        self._failed_at = 0.0
        self._failures = 0
        # Used by the monitor's thread only:
        self._infos: dict[str, TopicInfo] = {}
        self._asked_for: dict[str, TopicInfo] | None = None  # the infos that `_asked` was made from
        self._asked: list[KafkaTopicPartition] = []
        self._denied: frozenset[str] = frozenset()
        self._absent: dict[str, tuple[float, float]] = {}  # since when, and when last, a topic was said not to exist
        self._doubtful: frozenset[str] = frozenset()  # topics with an end that was not answered
        self._kafka_id = ""
        self._discovered_at = self._retried_at = -float("inf")
        self._discovered_for: tuple[Mapping[str, str], re.Pattern[str] | None] | None = None
        threading.Thread(target=self._run, name=f"dynamic-kafka-{cluster_id}", daemon=True).start()

    # --- for the enumerator ---

    def request_view(self, target: MonitorTarget) -> int:
        """Request a new view of `target` and return the ticket to wait for."""
        with self._changed:
            if self._failures and target.properties != self._target.properties:
                # These have not failed yet: they get patience and quick attempts of their own.
                self._failures, self.authentication_failed = 1, False
                self._failing_since = self._failed_at = time.monotonic()
            self._target = target
            return self._next_ticket()

    def request_offsets(self, requests: Collection[OffsetRequest]) -> int:
        """Request offsets and return the ticket to wait for. The offsets appear in `answers`."""
        with self._changed:
            self._requests = list(requests)
            self._open = self._requests
            return self._next_ticket()

    def request_times(self, request: TimeRequest) -> int:
        """Request times of records and return the ticket to wait for. `take_times` has the answer, if there is one."""
        with self._changed:
            self._time_requests = [request]
            return self._next_ticket(look=False)

    def take_times(self) -> list[tuple[TimeRequest, TimeAnswer]]:
        """Return the answers to requests for times that have come since the last call."""
        with self._changed:
            found, self._times = self._times, []
            return found

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Have the group's offsets committed, without waiting."""
        self.commits.commit(offsets, self._target.properties)

    def _next_ticket(self, *, look: bool = True) -> int:
        self._look_wanted |= look
        self._requested += 1
        self._changed.notify_all()
        return self._requested

    def wait(self, ticket: int, deadline: float) -> bool:
        """Wait for a ticket until `deadline` (of `time.monotonic`), and return whether it was served."""
        with self._changed:
            return self._changed.wait_for(lambda: self._served >= ticket, deadline - time.monotonic())

    def view_of(self, target: MonitorTarget) -> ClusterView | None:
        """Return the last view, which may be late; None if it is of other servers, which may be another cluster."""
        with self._changed:
            return self.view if self._view_servers == target.properties.get("bootstrap.servers") else None

    @property
    def servers(self) -> str:
        """Return the addresses of the brokers, as in the metadata."""
        return self._target.properties.get("bootstrap.servers", "")

    @property
    def failing_for_s(self) -> float | None:
        """The seconds between the first and the last look that the cluster did not answer; None if it answers.

        While Spark runs a long batch nobody looks, and nothing is known of that time.
        """
        with self._changed:
            return None if self._failing_since is None else self._failed_at - self._failing_since

    def answers_now(self, ticket: int) -> bool:
        """Return whether there is fresh evidence that the cluster answers: it has answered, or rests after an answer.

        A look that is under way is waited for, but not much longer than looks take.

        Args:
            ticket: The ticket of a view that was requested a moment ago.
        """
        with self._changed:
            if self._failing_since is not None or self._looking_since is None:
                return self._failing_since is None
            deadline = self._looking_since + max(_LOOK_S, _LOOK_SHARE * (self._answered_at - self.seen_at))
        return self.wait(ticket, deadline) and self.failing_for_s is None

    def look_again(self) -> None:
        """Have the same target looked at once more, unless that is under way, because nobody has asked for a while."""
        with self._changed:
            if self._served >= self._requested:
                self._next_ticket()

    def health(self) -> tuple[DynamicKafkaError | None, float | None, float]:
        """Return the error, the first look that failed since, and the last one that did not, by `time.monotonic`."""
        with self._changed:
            return self.error, self._failing_since, self.seen_at

    def forget_answers(self, still_open: Collection[OffsetRequest]) -> None:
        """Drop the answers, because their positions are in a document now; answers to what is still open may come yet."""
        with self._changed:
            self.answers = OffsetAnswers()
            self._open = still_open

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
                self._looking_since = time.monotonic()
                requests, self._requests = self._requests, []
                time_requests, self._time_requests = self._time_requests, []
                look, self._look_wanted = self._look_wanted, False
            if connection is not None and target.properties != properties:
                connection.close()
                connection = None
            if connection is None:
                if properties is not None and not self._failures:
                    _log.info("Cluster '%s': connecting again with its new properties", self.cluster_id)
                properties = target.properties
                connection = ClusterConnection(
                    self.cluster_id, properties, group_id=self._group_id, timeout_ms=self._call_timeout_ms
                )
            else:
                stop_polling(connection)
            started, before = time.monotonic(), self.view
            if look or self._failures:
                self._serve(connection, target, requests)
            if not self._failures:
                self._look_up_times(connection, time_requests)
            if self._failures and connection.authentication_failed:
                connection.close()  # else it would try the same login again and again
            elif not self._failures:
                start_polling(connection)
            rest_s = min(_IDLE_SHARE * (time.monotonic() - started), _LONGEST_REST_S)
            if not look:
                rest_s = 0.0
            elif self.view is before:
                rest_s = max(rest_s, _rest_unchanged_s(len(self._asked)))
            with self._changed:
                self._served, self._looking_since = ticket, None
                self._changed.notify_all()
                self._changed.wait_for(partial(self._is_urgent, target), rest_s)
            if self._failures:
                self._pause(connection, target)
                connection.close()  # it may be dead without a word, or have old secrets
                connection = None
        if connection is not None:
            connection.close()

    def _pause(self, connection: ClusterConnection, target: MonitorTarget) -> None:
        """Wait before the next attempt, until there is a new target at most; after a refused login until a new secret."""
        pause_s = _BACKOFF_S[min(self._failures, len(_BACKOFF_S)) - 1]
        refused_s = _REFUSED_BACKOFF_S[min(self._failures, len(_REFUSED_BACKOFF_S)) - 1]
        deadline = time.monotonic() + (refused_s if connection.authentication_failed else 0)
        while True:
            with self._changed:
                new_target = self._changed.wait_for(partial(self._has_new_target, target), pause_s)
            if new_target or time.monotonic() >= deadline or connection.is_outdated():
                return

    def _has_new_target(self, old: MonitorTarget) -> bool:
        return self._closed or self._target != old

    def _is_urgent(self, old: MonitorTarget) -> bool:
        return bool(self._requests or self._time_requests) or self._has_new_target(old)

    def _serve(self, connection: ClusterConnection, target: MonitorTarget, requests: list[OffsetRequest]) -> None:
        try:
            started = time.monotonic()
            view = self._look(connection, target)
        except Exception as error:  # noqa: BLE001  also a wrong property, or a missing file: other clusters are read
            self._failed(connection, target, error)
            return
        try:
            found = [(r, checked_offsets(r.initializer, r.partitions, connection)) for r in requests]
        except ClusterUnavailableError as error:
            self._failed(connection, target, error)
        except Exception as error:  # noqa: BLE001  a user's initializer may raise anything; `view` raises it
            with self._changed:
                self.fatal = (
                    error
                    if isinstance(error, DynamicKafkaError)
                    else _naming_cluster(self.cluster_id, error, "the offsets initializer failed: ")
                )
        else:
            if self._failures:
                _log.info("Cluster '%s' answers again", self.cluster_id)
            with self._changed:
                self.view, self._view_servers = view, target.properties.get("bootstrap.servers")
                self.seen_at, self._answered_at = started, time.monotonic()
                self._keep_answers(found)
                self.error, self.authentication_failed = None, False
                self._failures, self._failing_since = 0, None

    def _look_up_times(self, connection: ClusterConnection, requests: Iterable[TimeRequest]) -> None:
        """Look up times of records. Without an answer the caller waits no longer than it wants; the offsets are known."""
        for request in requests:
            try:
                answer = look_up(connection.first_offsets, request, now_ms=int(time.time() * 1000))
            except ClusterUnavailableError as error:
                _log.info("Cluster '%s': the times of its records are not known: %s", self.cluster_id, error)
            else:
                with self._changed:
                    self._times.append((request, answer))

    def _failed(self, connection: ClusterConnection, target: MonitorTarget, error: Exception) -> None:
        with self._changed:
            self.error = _naming_cluster(self.cluster_id, error)
            self._failures += 1
            self._failed_at = time.monotonic()
            self._failing_since = self._failing_since or self._failed_at
            self.authentication_failed = (
                connection.authentication_failed and target.properties == self._target.properties
            )
        if self._failures == 1:
            _log.warning("%s. It is tried again", self.error)

    def _keep_answers(self, found: Iterable[tuple[OffsetRequest, Mapping[KafkaTopicPartition, int]]]) -> None:
        """Keep the answers to the questions that are still open. A late answer must not become a position of later."""
        still_open = {(r.purpose, tp): r.initializer for r in self._open for tp in r.partitions}
        for request, offsets in found:
            kept = self.answers.start if request.purpose == "start" else self.answers.stop
            for tp in request.partitions:
                if still_open.get((request.purpose, tp)) == request.initializer:
                    kept[self.cluster_id, tp] = offsets[tp]

    def _look(self, connection: ClusterConnection, target: MonitorTarget) -> ClusterView:
        self._discover(connection, target)
        ends = self._ends(connection)
        before = self.view
        known = before.ends if before is not None else {}
        if ends is not known and any(end < known.get(tp, 0) for tp, end in ends.items()):
            self._discovered_for = None
            self._discover(connection, target)
            ends = self._ends(connection)
        last_ends = before.last_ends if before is not None else {}
        unanswered = (known.keys() | last_ends.keys()) - ends.keys() if ends is not known or last_ends else ()
        missing = frozenset(
            name
            for name, (since, last) in self._absent.items()
            if name in target.topics and last - since >= _MISSING_AFTER_S
        )
        log_ends = None
        if target.properties.get("isolation.level") == "read_committed":
            kept = (before.log_ends if before is not None else None) or {}
            log_ends = {tp: kept[tp] for tp in unanswered if tp in kept} | connection.log_ends(ends.keys())
        view = ClusterView(
            kafka_id=self._kafka_id,
            topics={name: topic_id_text(info.topic_id) for name, info in self._infos.items()},
            partitions={name: len(info.leaders) for name, info in self._infos.items()},
            ends=ends,
            missing=missing,
            denied=self._denied & target.topics,
            user=principal(target.properties) if self._denied & target.topics else "",
            last_ends={tp: known.get(tp, last_ends.get(tp, 0)) for tp in unanswered if tp.topic in target.topics},
            unconfirmed=(target.topics & self._absent.keys()) - missing,
            log_ends=log_ends,
        )
        return view if before is None or not _equal(view, before) else before  # the same object: nothing is new

    def _discover(self, connection: ClusterConnection, target: MonitorTarget) -> None:
        """Look up all topics if it is time, else those that are new or not known well."""
        now = time.monotonic()
        asked_for = target.properties, target.pattern
        if self._discovered_for != asked_for or now - self._discovered_at >= self._interval_s:
            matching = connection.matching_topics(target.pattern) if target.pattern is not None else frozenset()
            names = target.topics | matching
            self._describe(connection, names, now)
            self._infos = {name: info for name, info in self._infos.items() if name in names}
            self._denied &= names
            self._absent = {name: times for name, times in self._absent.items() if name in names}
            self._discovered_for, self._discovered_at, self._retried_at = asked_for, now, now
            return
        unknown = target.topics - self._infos.keys()
        names = (unknown - self._absent.keys() - self._denied) | self._doubtful
        if now - self._retried_at >= min(_INCOMPLETE_RETRY_S, self._interval_s):
            names |= unknown | {name for name, info in self._infos.items() if -1 in info.leaders}
            self._retried_at = now
        if names:
            self._describe(connection, names, now)

    def _describe(self, connection: ClusterConnection, names: frozenset[str], now: float) -> None:
        infos, denied = connection.topics(names)
        # With the cluster's own id: the address may lead to another cluster by now, which has other topics.
        self._kafka_id = connection.kafka_id()
        absent = {name: (self._absent.get(name, (now, now))[0], now) for name in names - infos.keys() - denied}
        self._infos = {name: info for name, info in self._infos.items() if name not in names} | infos
        self._denied = (self._denied - names) | denied
        self._absent = {name: times for name, times in self._absent.items() if name not in names} | absent

    def _ends(self, connection: ClusterConnection) -> Mapping[KafkaTopicPartition, int]:
        """Return all ends: the very object of the last view if none has changed."""
        if self._asked_for is not self._infos:
            by_leader = [
                (leader, KafkaTopicPartition(name, partition))
                for name, info in self._infos.items()
                for partition, leader in enumerate(info.leaders)
                if leader >= 0
            ]
            by_leader.sort(key=itemgetter(0))
            self._asked_for, self._asked = self._infos, [tp for _, tp in by_leader]
        asked = self._asked
        self._doubtful = frozenset(self._infos)  # also if this fails: the topic may be gone, not the cluster
        ends = connection.available_ends(asked, self._infos)
        # A leader has changed, or the topic is gone: it is looked up again next time.
        self._doubtful = (
            frozenset(tp.topic for tp in asked if tp not in ends) if len(ends) < len(asked) else frozenset()
        )
        return self.view.ends if self.view is not None and ends == self.view.ends else ends


def _rest_unchanged_s(partitions: int) -> float:
    """Return the rest while nothing changes; 0 for a cluster of usual size, which is refreshed at each call."""
    share = (partitions - _UNCHANGED_REST_FROM) / (_UNCHANGED_REST_FULL_AT - _UNCHANGED_REST_FROM)
    return _UNCHANGED_REST_S * min(max(share, 0.0), 1.0)


def _equal(one: ClusterView, other: ClusterView) -> bool:
    """Return whether two views are equal. Their ends are mostly one object, which `==` would compare entry by entry."""
    if one.ends is other.ends:
        one, other = replace(one, ends={}), replace(other, ends={})
    return one == other


def _naming_cluster(cluster_id: str, error: Exception, what: str = "") -> DynamicKafkaError:
    """Return the error as one that names the cluster."""
    if isinstance(error, DynamicKafkaError) and error.cluster_id is not None:
        return error
    text = str(error) if isinstance(error, DynamicKafkaError) else f"{type(error).__name__}: {error}"
    named = DynamicKafkaError(f"Cluster '{cluster_id}': {what}{text}", cluster_id=cluster_id)
    named.__cause__ = error
    return named
