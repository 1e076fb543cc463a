"""The committed offsets of a consumer group on one cluster. They are for monitoring only, so reading never waits for them.

A thread and a client of their own commit them: without a coordinator, or without access to the group, a commit takes 45
seconds. Offsets that arrive meanwhile are committed together. A commit that fails is counted, and its offsets are committed
again with those of the next batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.kafka.pool import start_polling, stop_polling

__all__ = ["GroupCommits"]

_log = logging.getLogger(__name__)


class GroupCommits:
    """The thread that commits. It starts with the first offsets, and ends with the process or with `close`.

    Args:
        cluster_id: The cluster.
        group_id: The consumer group.
        call_timeout_ms: The time-out of a call to the cluster.

    Attributes:
        failed: The number of commits that failed.
        succeeded: The number of commits that succeeded.
        committed: The offsets that were committed last.
    """

    def __init__(self, cluster_id: str, *, group_id: str, call_timeout_ms: int) -> None:
        self.failed = self.succeeded = 0
        self.committed: dict[KafkaTopicPartition, int] = {}
        self._cluster_id, self._group_id, self._call_timeout_ms = cluster_id, group_id, call_timeout_ms
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._offsets: dict[KafkaTopicPartition, int] = {}
        self._properties: Mapping[str, str] = {}
        self._requested = self._served = 0
        self._started = self._closed = False

    def commit(self, offsets: Mapping[KafkaTopicPartition, int], properties: Mapping[str, str]) -> None:
        """Have the offsets of a finished batch committed. They replace older ones that still wait.

        Args:
            offsets: The offsets.
            properties: The current properties of the cluster.
        """
        with self._changed:
            self._offsets |= offsets
            self._properties = properties
            self._requested += 1
            self._changed.notify_all()
            if not self._started:
                self._started = True
                threading.Thread(
                    target=self._run, name=f"dynamic-kafka-commits-{self._cluster_id}", daemon=True
                ).start()

    def wait(self, deadline: float) -> bool:
        """Wait until all offsets were committed or have failed, at most until `deadline` (of `time.monotonic`)."""
        with self._changed:
            return self._changed.wait_for(lambda: self._served >= self._requested, max(0, deadline - time.monotonic()))

    def close(self) -> None:
        """Have the thread end. Do not wait for it, because it may be in a call to a dead broker."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        connection: ClusterConnection | None = None
        connected_with: Mapping[str, str] = {}
        failing = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._served < self._requested)
                if self._closed:
                    break
                ticket, properties = self._requested, self._properties
                offsets, self._offsets = self._offsets, {}
            if connection is not None and (properties != connected_with or connection.is_outdated()):
                connection.close()
                connection = None
            if connection is None:
                connection, connected_with = self._connect(properties), properties
            else:
                stop_polling(connection)
            try:
                connection.commit(offsets)
            except Exception as error:  # noqa: BLE001  whatever it is, reading goes on
                self._failed(offsets, error, first=not failing)
                failing = True
                connection.close()
                connection = None
            else:
                failing = False
                self.committed |= offsets
                self.succeeded += 1
                start_polling(connection)
            with self._changed:
                self._served = ticket
                self._changed.notify_all()
        if connection is not None:
            connection.close()

    def _connect(self, properties: Mapping[str, str]) -> ClusterConnection:
        return ClusterConnection(
            self._cluster_id, properties, group_id=self._group_id, timeout_ms=self._call_timeout_ms
        )

    def _failed(self, offsets: dict[KafkaTopicPartition, int], error: Exception, *, first: bool) -> None:
        with self._changed:
            self._offsets = offsets | self._offsets
            self.failed += 1
        level = logging.WARNING if first else logging.DEBUG
        _log.log(
            level,
            "The offsets of the consumer group '%s' were not committed (%d failures so far). Reading goes on from the "
            "checkpoint. %s",
            self._group_id,
            self.failed,
            error,
        )
