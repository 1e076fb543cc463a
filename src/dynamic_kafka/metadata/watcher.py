"""The watcher of the metadata service: one thread calls the service, all others read the last good answer.

============================  =======================================================================================
first start, service fails    `wait_first` raises at once
resume, service fails         no snapshot yet; called again after 1, 2, 4 ... 60 s, for any number of failures
later failures in a row       the last good snapshot stays in force; one failure more than the threshold is final
interval of zero or less      called until it has answered once, later only on request; then a failure is not final
an answer without any topic   if there were topics before: accepted only if a second call at once gives the same
a wrong cluster entry         one failure, which names the cluster and the property. An entry is checked when it is new or
                              changed. A file of an unchanged entry may be missing for a moment: see `source.driver.monitor`
============================  =======================================================================================
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from dynamic_kafka.errors import DynamicKafkaError, MetadataServiceError
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.snapshot import EMPTY, Snapshot, describe_change, make_snapshot
from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber, StreamPatternSubscriber, StreamSetSubscriber
from dynamic_kafka.observe.reports import Event, MetadataStatus

__all__ = ["MetadataWatcher"]

_log = logging.getLogger(__name__)

_BACKOFF_S = (1.0, 60.0)
_ACTIVE_INTERVAL_S = 30.0
_CLOSE_S = 1.0
_MOST_EVENTS = 20


class MetadataWatcher:
    """A daemon thread that calls the metadata service at an interval and keeps the last good answer.

    All methods may be called from any thread. Only `wait_first` and `close` wait.

    Args:
        service: The service. From now on only the watcher may call it. It is closed with the watcher.
        subscriber: The subscriber, which chooses the streams.
        interval_ms: The time from the end of an attempt to the next one (`stream-metadata-discovery-interval-ms`); with
            zero or less there is exactly one successful attempt.
        failure_threshold: The number of failures in a row that are tolerated after the first answer
            (`stream-metadata-discovery-failure-threshold`).
        check: The function that raises if no client can be made of a cluster's properties.
    """

    def __init__(
        self,
        service: KafkaMetadataService,
        subscriber: KafkaStreamSubscriber,
        *,
        interval_ms: int,
        failure_threshold: int,
        check: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._service = service
        self._subscriber = subscriber
        self._interval_s = interval_ms / 1000 if interval_ms > 0 else math.inf
        self._failure_threshold = failure_threshold
        self._check = check
        self._resuming = False
        self._thread = threading.Thread(target=self._run, name="dynamic-kafka-metadata", daemon=True)

        # Guards the attributes below; notified when an attempt has ended and when the thread has something new to do.
        self._changed = threading.Condition()
        self._closed = False
        self._next_fetch = 0.0  # by the monotonic clock, like all times without a unit of their own
        self._next_active_check = math.inf
        self._last_fetch = -math.inf
        self._snapshot: Snapshot | None = None
        self._failure: MetadataServiceError | None = None
        self._had_topics = False
        self._tracked: frozenset[str] = frozenset()
        self._active: dict[str, bool] = {}
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._status = MetadataStatus(
            refreshes=0,
            failures=0,
            consecutive_failures=0,
            tolerated_failures=None,
            ends_ms=None,
            last_error=None,
            last_success_ms=None,
            asking_since_ms=None,
            changes=0,
        )

    def start(self, *, resuming: bool = False, had_topics: bool = False) -> None:
        """Start the thread.

        Args:
            resuming: True if the query can continue with the metadata in its checkpoint. Then no failure is final before
                the first answer.
            had_topics: True if that metadata contains topics. Then an answer without any topic is accepted only if a
                second call confirms it.
        """
        self._resuming = resuming
        self._had_topics = had_topics
        self._thread.start()

    def snapshot(self) -> Snapshot | None:
        """Return the last good answer; None if there is none yet."""
        return self._snapshot

    def wait_first(self, timeout_s: float) -> Snapshot | None:
        """Wait for the first good answer, and return the current snapshot; None if there is none in time.

        Raises:
            MetadataServiceError: If the service failed for good: `failure`.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._snapshot is not None or self._failure is not None or self._closed, timeout_s
            )
            if self._failure is not None:
                raise self._failure
            return self._snapshot

    def failure(self) -> MetadataServiceError | None:
        """Return the failure that has to end the query, or None. After a failure the service is not called again."""
        return self._failure

    def request_refresh(self) -> None:
        """Have the service called again at once, but not within a second after the start of the last attempt.

        For authentication errors, which new credentials may solve. `status` shows when the attempt has ended.
        """
        with self._changed:
            self._next_fetch = min(self._next_fetch, max(time.monotonic(), self._last_fetch + _BACKOFF_S[0]))
            self._changed.notify_all()

    def track(self, cluster_ids: Collection[str]) -> None:
        """Set the clusters for which `is_cluster_active` is of interest. The service is asked about new ones at once."""
        wanted = frozenset(cluster_ids)
        with self._changed:
            if wanted - self._tracked:
                self._next_active_check = 0.0
                self._changed.notify_all()
            self._tracked = wanted
            self._active = {cluster_id: active for cluster_id, active in self._active.items() if cluster_id in wanted}

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Return the service's last answer for a tracked cluster; True if there is none yet."""
        return self._active.get(cluster_id, True)

    def wait_active(self, cluster_ids: Collection[str], timeout_s: float) -> None:
        """Wait until the service has said whether these tracked clusters are active, at most `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or all(c in self._active for c in cluster_ids), timeout_s)

    def status(self) -> MetadataStatus:
        """Return counters and errors, for people and metrics."""
        with self._changed:
            return self._status.copy()

    def events(self) -> list[Event]:
        """Return the last differences, and when the service began to fail and to answer again, oldest first."""
        with self._changed:
            return list(self._events)

    def close(self) -> None:
        """End the thread, which closes the service. Waits at most a second for a call in progress."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is None:
            self._close_service()
        elif self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_for_work():
            now = time.monotonic()
            if self._next_fetch <= now:
                self._refresh()
            if self._next_active_check <= now:
                self._check_active()
        self._close_service()

    def _wait_for_work(self) -> bool:
        """Wait until something is due and return True, or return False if the thread has to end."""
        with self._changed:
            while not self._closed and self._failure is None:
                wait_s = min(self._next_fetch, self._next_active_check) - time.monotonic()
                if wait_s <= 0:
                    return True
                self._changed.wait(None if wait_s == math.inf else min(wait_s, threading.TIMEOUT_MAX))
            return False

    def _refresh(self) -> None:
        with self._changed:
            self._status["asking_since_ms"] = _now_ms()
            self._last_fetch = time.monotonic()
            # A request during this attempt sets it again: the attempt may be too early for it.
            self._next_fetch = math.inf
        try:
            snapshot = self._ask()
            if snapshot.is_empty and self._had_topics:
                _log.warning(
                    "The metadata service answered without any topic; asking again before accepting the answer"
                )
                snapshot = self._ask()
            changes = describe_change(self._snapshot or EMPTY, snapshot)
        except Exception as error:  # noqa: BLE001  # a user's service may raise anything; each is one failure
            self._failed(error)
        else:
            self._succeeded(snapshot, changes)

    def _ask(self) -> Snapshot:
        snapshot = make_snapshot(self._subscriber.get_subscribed_streams(self._service))
        known = (self._snapshot or EMPTY).clusters
        for cluster_id, cluster in snapshot.clusters.items():
            if cluster_id not in known or known[cluster_id].properties != cluster.properties:
                try:
                    self._check(cluster.properties)
                except DynamicKafkaError as error:
                    raise MetadataServiceError(f"Cluster '{cluster_id}': {error}", cluster_id=cluster_id) from error
        return snapshot

    def _succeeded(self, snapshot: Snapshot, changes: list[str]) -> None:
        before, status, now_ms = self._snapshot, self._status, _now_ms()
        with self._changed:
            status["refreshes"] += 1
            if status["consecutive_failures"]:
                self._events.append(Event(time_ms=now_ms, level="info", text="the service answers again"))
            status["consecutive_failures"], status["ends_ms"] = 0, None
            status["tolerated_failures"] = None if self._interval_s == math.inf else self._failure_threshold
            status["last_success_ms"], status["asking_since_ms"] = now_ms, None
            self._had_topics = not snapshot.is_empty
            if before is None or changes:
                # First the snapshot, then the number: a reader of the number never takes an old snapshot for a new one.
                self._snapshot = snapshot
                status["changes"] += 1
                self._events.extend(Event(time_ms=now_ms, level="info", text=text) for text in changes)
            self._schedule(self._interval_s)
            self._changed.notify_all()
        if before is None or changes:
            self._log_changes(before, snapshot, changes)

    def _log_changes(self, before: Snapshot | None, snapshot: Snapshot, changes: list[str]) -> None:
        if isinstance(self._subscriber, StreamSetSubscriber):
            unknown = self._subscriber.stream_ids - snapshot.streams.keys()
            if unknown:
                _log.warning("The metadata service does not know the streams %s", ", ".join(sorted(unknown)))
        elif not snapshot.streams and isinstance(self._subscriber, StreamPatternSubscriber):
            pattern = self._subscriber.pattern.pattern
            _log.warning(
                "The metadata service does not describe any stream that matches '%s'; check 'stream-pattern'", pattern
            )
        elif not snapshot.streams:
            _log.warning("%r did not choose any stream of the metadata service", self._subscriber)
        removed = before is not None and _topics(before) - _topics(snapshot)
        level = logging.WARNING if removed else logging.INFO
        _log.log(level, "Metadata %s: %s", "changed" if before else "read", "; ".join(changes) or "nothing to read")

    def _failed(self, error: Exception) -> None:
        last, status = self._as_metadata_error(error), self._status
        with self._changed:
            status["failures"] += 1
            status["consecutive_failures"] += 1
            status["last_error"], status["asking_since_ms"] = str(last), None
            count = status["consecutive_failures"]
            if count == 1:  # the others are counted, and would push older changes out
                self._events.append(Event(time_ms=_now_ms(), level="warning", text=f"the service fails: {last}"))
            if self._snapshot is None and self._resuming:
                delay_s = min(_BACKOFF_S[0] * 2.0 ** min(count - 1, 30), _BACKOFF_S[1])
                note = f"continuing with the checkpoint's metadata; next attempt in {delay_s:g} s"
            elif self._snapshot is None:
                self._failure = last
            elif self._interval_s == math.inf:
                delay_s, note = math.inf, "the last answer stays in force"
            elif count <= self._failure_threshold:
                delay_s = self._interval_s
                status["ends_ms"] = _now_ms() + int((self._failure_threshold + 1 - count) * self._interval_s * 1000)
                note = f"failure {count} of {self._failure_threshold} tolerated; the last answer stays in force"
            else:
                self._failure = MetadataServiceError(
                    f"The metadata service failed {count} times in a row, more than "
                    f"stream-metadata-discovery-failure-threshold={self._failure_threshold} tolerates; the last failure: "
                    f"{last}"
                )
                self._failure.__cause__ = last
            if self._failure is None:
                self._schedule(delay_s)
            self._changed.notify_all()
        if self._failure is None:
            _log.warning("The metadata could not be refreshed (%s): %s", note, last)
        else:
            _log.error("%s", self._failure)

    def _schedule(self, delay_s: float) -> None:
        self._next_fetch = min(self._next_fetch, time.monotonic() + delay_s)

    def _as_metadata_error(self, error: Exception) -> MetadataServiceError:
        if isinstance(error, MetadataServiceError):
            return error
        name = type(self._service).__name__
        what = str(error) if isinstance(error, DynamicKafkaError) else f"{type(error).__name__}: {error}"
        wrapped = MetadataServiceError(f"Metadata service {name} failed: {what}")
        wrapped.__cause__ = error
        return wrapped

    def _check_active(self) -> None:
        with self._changed:
            tracked = self._tracked
            due = min(self._interval_s, _ACTIVE_INTERVAL_S) if tracked else math.inf
            self._next_active_check = time.monotonic() + due  # track() may set an earlier time during the calls below
        for cluster_id in sorted(tracked):
            try:
                active = bool(self._service.is_cluster_active(cluster_id))
            except Exception as error:  # noqa: BLE001  # a user's service may raise anything
                _log.warning("The metadata service did not say whether cluster '%s' is active: %s", cluster_id, error)
                continue
            with self._changed:
                if cluster_id in self._tracked:
                    self._active[cluster_id] = active
                    self._changed.notify_all()

    def _close_service(self) -> None:
        try:
            self._service.close()
        except Exception as error:  # noqa: BLE001  # the query is ending anyway
            _log.warning("The metadata service could not be closed: %s: %s", type(error).__name__, error)


def _topics(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {(cluster_id, topic) for cluster_id, cluster in snapshot.clusters.items() for topic in cluster.topics}


def _now_ms() -> int:
    return int(time.time() * 1000)
