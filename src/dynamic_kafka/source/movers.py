"""The threads that compare records of two clusters, so that nothing waits for them: a few for each cluster that is moved to.

A request without a good answer is tried again as long as it is asked, because a copy may lag behind: after 2 s, and if
the answer stays the same, after 4 s and so on up to a minute.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document import ClusterOffsets
from dynamic_kafka.source.evidence import Marks, MoveRequest, Placement
from dynamic_kafka.source.placement import place
from dynamic_kafka.source.record_log import OffsetSyncs, open_log

__all__ = ["Movers", "answer"]

_AGAIN_S = 2.0
_LATEST_AGAIN_S = 60.0
_THREADS = 4


class _Log(NamedTuple):
    """A log by the ids that Kafka gave its cluster and its topic: a topic that is made again has another one."""

    cluster: str
    kafka_id: str
    topic_id: str
    partition: KafkaTopicPartition


class Movers:
    """The answers to moves, and the marks of topics that another cluster is ready to continue. Created without a thread.

    Args:
        group_id: The consumer group of the clients, which nothing joins.
        timeout_ms: The longest time without an answer of a cluster.
    """

    def __init__(self, *, group_id: str, timeout_ms: int) -> None:
        self._group_id, self._timeout_s = group_id, timeout_ms / 1000
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._answers: dict[MoveRequest, tuple[Placement, float, float]] = {}
        self._marks: dict[_Log, Marks] = {}
        self._went_back: dict[_Log, float] = {}
        self._tried: dict[str, tuple[Mapping[_Log, int], float]] = {}
        self._jobs: dict[str, Callable[[], None]] = {}
        self._busy: set[str] = set()
        self._closed = False

    def answers(self) -> Mapping[MoveRequest, Placement]:
        """Return all answers."""
        with self._changed:
            return {request: placement for request, (placement, _, _) in self._answers.items()}

    def request(
        self, requests: Iterable[MoveRequest], properties: Mapping[str, Mapping[str, str]], wait_s: float
    ) -> bool:
        """Have requests answered, wait for that, and return whether there may be new answers. Others are forgotten.

        Args:
            requests: The requests.
            properties: The properties of their clusters.
            wait_s: The longest time to wait.
        """
        asked = list(requests)
        with self._changed:
            self._answers = {request: self._answers[request] for request in asked if request in self._answers}
            now = time.monotonic()
            due = [
                request
                for request in asked
                if request not in self._answers or now - self._answers[request][1] >= self._answers[request][2]
            ]
            if not due:
                return False
            shares: dict[str, list[MoveRequest]] = {}
            for request in due:
                shares.setdefault(f"{request.cluster}-{hash(request) % _THREADS}", []).append(request)
            syncs = OffsetSyncs()
            for name, some in shares.items():
                self._start(name, partial(self._answer_all, some, properties, syncs, now))
            self._changed.wait_for(lambda: all(self._is_new(request, now) for request in due), wait_s)
            return any(self._is_new(request, now) for request in due)

    def _is_new(self, request: MoveRequest, since: float) -> bool:
        return request in self._answers and self._answers[request][1] >= since

    def marks(
        self,
        cluster: str,
        state: ClusterOffsets,
        tps: Collection[KafkaTopicPartition],
        properties: Mapping[str, str],
        wait_s: float,
    ) -> dict[KafkaTopicPartition, Marks]:
        """Return the last records before the ends of ranges, or before earlier offsets, as far as they are known.

        The answer is waited for, except if the one to an earlier question is late: then the cluster is far away.

        Args:
            cluster: The cluster.
            state: Its part of the document.
            tps: The partitions.
            properties: The properties to reach it.
            wait_s: The longest time to wait.
        """
        logs = {tp: _Log(cluster, state.kafka_id, state.topics.get(tp.topic, ""), tp) for tp in tps}
        with self._changed:
            now = time.monotonic()
            for tp, log in logs.items():
                if log in self._marks and self._marks[log].until > state.ranges[tp][0]:
                    del self._marks[log]  # the position went back: these records may not be there any more
                    self._went_back[log] = now
            ends = {log: state.ranges[tp][1] for tp, log in logs.items()}
            due = {log: end for log, end in ends.items() if log not in self._marks or self._marks[log].until != end}
            if due:
                name = f"marks of {cluster}"
                is_late = name in self._busy
                tried, tried_at = self._tried.get(cluster, ({}, -math.inf))
                if tried != due or now - tried_at >= _AGAIN_S:
                    self._tried[cluster] = due, now
                    self._start(name, partial(self._mark, cluster, properties, due))
                self._changed.wait_for(lambda: name not in self._busy, 0 if is_late else wait_s)
            known = {log.partition: self._marks[log] for log in ends if log in self._marks}
            return {tp: marks for tp, marks in known.items() if marks.until <= state.ranges[tp][1]}

    def close(self) -> None:
        """Have the threads end, without waiting for them."""
        with self._changed:
            self._closed = True
            self._jobs.clear()

    def _start(self, name: str, job: Callable[[], None]) -> None:
        """Have a thread do a job. It replaces the one that waits under the same name."""
        self._jobs[name] = job
        if name not in self._busy and not self._closed:
            self._busy.add(name)
            threading.Thread(target=self._run, args=(name,), name=f"dynamic-kafka-{name}", daemon=True).start()

    def _run(self, name: str) -> None:
        while True:
            with self._changed:
                job = self._jobs.pop(name, None)
                if job is None:
                    self._busy.discard(name)
                    self._changed.notify_all()
                    return
            job()

    def _answer_all(
        self,
        requests: Iterable[MoveRequest],
        properties: Mapping[str, Mapping[str, str]],
        syncs: OffsetSyncs,
        since: float,
    ) -> None:
        for request in requests:
            with self._changed:
                if self._closed or self._is_new(request, since):  # by the job before this one
                    continue
            placement = answer(request, properties, syncs, group_id=self._group_id, timeout_s=self._timeout_s)
            with self._changed:
                before = self._answers.get(request)
                again_s = (
                    min(2 * before[2], _LATEST_AGAIN_S) if before is not None and before[0] == placement else _AGAIN_S
                )
                self._answers[request] = placement, time.monotonic(), again_s
                self._changed.notify_all()

    def _mark(self, cluster: str, properties: Mapping[str, str], positions: Mapping[_Log, int]) -> None:
        began = time.monotonic()
        asked = {log.partition: end for log, end in positions.items()}
        try:
            with open_log(
                cluster, properties, OffsetSyncs(), group_id=self._group_id, timeout_s=self._timeout_s
            ) as records:
                found = records.marks(asked)
        except DynamicKafkaError:
            return  # the document keeps its earlier marks
        with self._changed:
            logs = (log for log in positions if log.partition in found and began > self._went_back.get(log, -math.inf))
            self._marks |= {log: found[log.partition] for log in logs}
            self._changed.notify_all()


def answer(
    request: MoveRequest,
    properties: Mapping[str, Mapping[str, str]],
    syncs: OffsetSyncs,
    *,
    group_id: str,
    timeout_s: float,
) -> Placement:
    """Ask the clusters, and return the answer; if one does not answer, why there is none.

    Args:
        request: The request.
        properties: The properties of its clusters.
        syncs: MirrorMaker's offset syncs, for all partitions of a move.
        group_id: The consumer group of the clients, which nothing joins.
        timeout_s: The longest time without an answer.
    """
    try:
        with ExitStack() as stack:
            new, old = (
                stack.enter_context(open_log(name, properties[name], syncs, group_id=group_id, timeout_s=timeout_s))
                if name == request.cluster or request.readable
                else None
                for name in (request.cluster, request.old_cluster)
            )
            assert new is not None
            return place(request, old, new)
    except Exception as error:  # noqa: BLE001  whatever it is, the partition waits, and says why
        text = str(error) if isinstance(error, DynamicKafkaError) else f"{type(error).__name__}: {error}"
        return Placement(None, "unproved", None, text)
