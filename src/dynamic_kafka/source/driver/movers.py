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
from dynamic_kafka.source.document.document import ClusterOffsets
from dynamic_kafka.source.document.evidence import Anchor, Marks, MoveRequest, Placement
from dynamic_kafka.source.driver.record_log import OffsetSyncs, open_log
from dynamic_kafka.source.rules.comparison import ALL
from dynamic_kafka.source.rules.placement import follow, place

__all__ = ["Movers", "answer"]

_AGAIN_S = 2.0
_LATEST_AGAIN_S = 60.0
_THREADS = 4
_MOST = 200_000
"""The number of records of a partition to compare at a time, so that others have their turn and words are current."""
_ROUND_S = 2.0


class _Log(NamedTuple):
    """A log by the ids that Kafka gave its cluster and its topic: a topic that is made again has another one."""

    cluster: str
    kafka_id: str
    topic_id: str
    partition: KafkaTopicPartition


class _Pair(NamedTuple):
    """A log and its copy."""

    old_cluster: str
    old_partition: KafkaTopicPartition
    kafka_id: str
    topic_id: str
    partition: KafkaTopicPartition

    @classmethod
    def of(cls, request: MoveRequest) -> _Pair:
        return cls(request.old_cluster, request.old_partition, request.kafka_id, request.topic_id, request.partition)


class _Followed(NamedTuple):
    """How far a copy was compared, when, and after how many seconds to look again."""

    anchor: Anchor | None
    position: int
    is_finished: bool
    at: float
    again_s: float


class Movers:
    """The answers to moves, and marks and anchors of topics that another cluster is ready to continue.

    Created without a thread.

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
        self._followed: dict[_Pair, _Followed] = {}
        self._forgotten: dict[_Pair, float] = {}
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

    def follow(
        self, requests: Iterable[MoveRequest], properties: Mapping[str, Mapping[str, str]]
    ) -> dict[MoveRequest, tuple[Anchor, bool]]:
        """Have logs compared with their copies, and return how far they are by now, and whether that is all for now.

        Nothing is waited for.

        Args:
            requests: The positions, with the anchors that are known.
            properties: The properties of their clusters.
        """
        asked = list(requests)
        with self._changed:
            now = time.monotonic()
            due: dict[str, list[MoveRequest]] = {}
            for request in asked:
                pair = _Pair.of(request)
                known = self._followed.get(pair)
                if known is not None and known.anchor is not None and known.anchor.until > request.position:
                    del self._followed[pair]  # the position went back: these records may not be there any more
                    self._forgotten[pair], known = now, None
                if known is None or not known.is_finished or now - known.at >= known.again_s:
                    due.setdefault(f"copy of {request.old_cluster} on {request.cluster}", []).append(request)
            for name, some in due.items():
                if name not in self._busy:
                    # Those that were not compared for the longest time come first.
                    some.sort(
                        key=lambda r: self._followed[_Pair.of(r)].at if _Pair.of(r) in self._followed else -math.inf
                    )
                    self._start(name, partial(self._follow_all, some, properties))
            known_now = {request: self._followed.get(_Pair.of(request)) for request in asked}
            return {
                request: (known.anchor, known.is_finished)
                for request, known in known_now.items()
                if known is not None and known.anchor is not None
            }

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
            with self._changed:
                best = self._with_best_anchor(request)
            placement = answer(best, properties, syncs, group_id=self._group_id, timeout_s=self._timeout_s, most=_MOST)
            with self._changed:
                before = self._answers.get(request)
                again_s = (
                    min(2 * before[2], _LATEST_AGAIN_S) if before is not None and before[0] == placement else _AGAIN_S
                )
                if placement.anchor is not None and placement.anchor != best.anchor:
                    if since > self._forgotten.get(_Pair.of(request), -math.inf):
                        self._keep(request, placement.anchor, is_finished=False)
                    again_s = 0 if placement.position is None else again_s
                self._answers[request] = placement, time.monotonic(), again_s
                self._changed.notify_all()

    def _with_best_anchor(self, request: MoveRequest) -> MoveRequest:
        """Return a request with the anchor that is known from comparing, if that leads further than the document's."""
        known = self._followed.get(_Pair.of(request))
        usable = known.anchor if known is not None else None
        if usable is None or usable.until > request.position:
            return request
        mine = request.anchor
        is_further = mine is not None and usable.until < mine.until <= request.position
        return request if is_further else request._replace(anchor=usable)

    def _keep(self, request: MoveRequest, anchor: Anchor | None, *, is_finished: bool) -> None:
        pair, now = _Pair.of(request), time.monotonic()
        known = self._followed.get(pair)
        is_same = known is not None and (known.anchor, known.position) == (anchor, request.position)
        again_s = min(2 * known.again_s, _LATEST_AGAIN_S) if known is not None and is_same else _AGAIN_S
        self._followed[pair] = _Followed(anchor, request.position, is_finished, now, again_s)

    def _follow_all(self, requests: Iterable[MoveRequest], properties: Mapping[str, Mapping[str, str]]) -> None:
        """Compare for a short time."""
        began = time.monotonic()
        for request in requests:
            with self._changed:
                if self._closed:
                    return
                best = self._with_best_anchor(request)
            try:
                with ExitStack() as stack:
                    old, new = (
                        stack.enter_context(
                            open_log(name, properties[name], group_id=self._group_id, timeout_s=self._timeout_s)
                        )
                        for name in (request.old_cluster, request.cluster)
                    )
                    anchor, is_finished = follow(best, old, new, _MOST)
            except DynamicKafkaError:
                return  # the document keeps its earlier anchors
            with self._changed:
                if began > self._forgotten.get(_Pair.of(request), -math.inf):
                    self._keep(request, anchor, is_finished=is_finished)
            if time.monotonic() - began > _ROUND_S:
                return

    def _mark(self, cluster: str, properties: Mapping[str, str], positions: Mapping[_Log, int]) -> None:
        began = time.monotonic()
        asked = {log.partition: end for log, end in positions.items()}
        try:
            with open_log(cluster, properties, group_id=self._group_id, timeout_s=self._timeout_s) as records:
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
    most: int = ALL,
) -> Placement:
    """Ask the clusters, and return the answer; if one does not answer, why there is none.

    Args:
        request: The request.
        properties: The properties of its clusters.
        syncs: MirrorMaker's offset syncs, for all partitions of a move.
        group_id: The consumer group of the clients, which nothing joins.
        timeout_s: The longest time without an answer.
        most: The largest number of records to compare.
    """
    try:
        with ExitStack() as stack:
            new, old = (
                stack.enter_context(
                    open_log(name, properties[name], group_id=group_id, timeout_s=timeout_s, syncs=syncs)
                )
                if name == request.cluster or request.readable
                else None
                for name in (request.cluster, request.old_cluster)
            )
            assert new is not None
            return place(request, old, new, most)
    except Exception as error:  # noqa: BLE001  whatever it is, the partition waits, and says why
        text = str(error) if isinstance(error, DynamicKafkaError) else f"{type(error).__name__}: {error}"
        return Placement(None, "unproved", None, text)
