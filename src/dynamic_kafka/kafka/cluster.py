"""The driver's connection to one cluster: its topics, and the offsets where their partitions start and end.

It has one consumer (positions and group offsets) and one admin client (topic ids) of librdkafka. Every call blocks up to the
time-out, so only the thread that owns the connection calls (see `source.driver.monitor`).
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition

from dynamic_kafka.errors import ClusterUnavailableError, may_not
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import (
    LOG_END,
    QUESTIONS,
    ClientSettings,
    ClusterClients,
    log_offsets,
    with_known_leaders,
)
from dynamic_kafka.kafka.error_codes import NO_SUCH_TOPIC
from dynamic_kafka.kafka.logins import principal
from dynamic_kafka.kafka.pool import stop_polling

__all__ = ["ClusterConnection", "TopicInfo"]

T = TypeVar("T")
Item = TypeVar("Item")

_log = logging.getLogger(__name__)

_EARLIEST, _LATEST = -2, -1  # the timestamps that stand for the two ends in Kafka's ListOffsets request
# librdkafka's time for a list of partitions grows with the square of its length (measured: 445 ms for 10,000, 1 ms for 250).
_PARTITIONS_PER_QUESTION = 250
_QUESTIONS_AT_ONCE = 4
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # brokers before 2.8


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as a broker describes it.

    Args:
        topic_id: Kafka's topic id; "" if the broker has none.
        leaders: For each partition the broker that leads it; -1 if none does.
    """

    topic_id: str
    leaders: tuple[int, ...]


class ClusterConnection:
    """The calls to one cluster. It implements `PartitionOffsetsRetriever`. Nothing joins the consumer group `group_id`."""

    def __init__(self, cluster_id: str, properties: Mapping[str, str], *, group_id: str, timeout_ms: int) -> None:
        self.cluster_id = cluster_id
        self._properties, self._group_id = dict(properties), group_id
        self._timeout_s = timeout_ms / 1000
        self._clients = ClusterClients(properties, consumer=ClientSettings(QUESTIONS, {"group.id": group_id}))

    @property
    def authentication_failed(self) -> bool:
        """Return whether the cluster has refused the login since it last answered."""
        return self._clients.errors.authentication_failed

    def is_outdated(self) -> bool:
        """Return whether a secret or a file behind the properties was replaced since the connection was made."""
        return self._clients.is_outdated()

    def poll_idle(self) -> bool:
        """See `start_polling`."""
        return self._clients.poll_idle()

    def close(self) -> None:
        """Close the clients; never waits for a broker."""
        stop_polling(self)
        self._clients.close()

    # --- what is there ---

    def kafka_id(self) -> str:
        """Return Kafka's own cluster.id; "" if the broker does not report it."""
        return self._call("cluster id", lambda: self._clients.kafka_id(self._timeout_s))

    def matching_topics(self, pattern: re.Pattern[str]) -> frozenset[str]:
        """Return the topics with a name that matches as a whole, without Kafka's internal ones."""
        found = self._ask("topic names", lambda timeout_s: self._clients.consumer.list_topics(timeout=timeout_s))
        return frozenset(name for name in found.topics if not name.startswith("__") and pattern.fullmatch(name))

    def topics(self, names: Collection[str]) -> tuple[dict[str, TopicInfo], frozenset[str]]:
        """Return the topics among `names` that exist, and the names of those that the user may not see.

        A broker says that the others do not exist. It can be wrong for a moment after its start.
        """
        if not names:
            return {}, frozenset()
        futures = self._call(
            "topics",
            lambda: self._clients.admin.describe_topics(
                TopicCollection(sorted(names)), request_timeout=self._timeout_s
            ),
        )
        infos: dict[str, TopicInfo] = {}
        denied = set()
        for name, future in futures.items():
            try:
                infos[name] = self._topic_info(name, self._call("topics", partial(self._clients.result, future)))
            except ClusterUnavailableError as error:
                cause = error.__cause__
                code = cause.args[0].code() if isinstance(cause, KafkaException) else None
                if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    denied.add(name)
                elif code not in NO_SUCH_TOPIC:
                    raise
        return infos, frozenset(denied)

    # --- where it starts and ends (PartitionOffsetsRetriever) ---

    def beginning_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """See `PartitionOffsetsRetriever`."""
        return self._all(dict.fromkeys(partitions, _EARLIEST))

    def end_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """See `PartitionOffsetsRetriever`."""
        return self._all(dict.fromkeys(partitions, _LATEST))

    def offsets_for_times(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """See `PartitionOffsetsRetriever`."""
        found = self._all(times_ms)
        return {tp: None if offset < 0 else offset for tp, offset in found.items()}

    def first_offsets(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """Return the same, without the partitions that do not answer."""
        return {tp: None if offset < 0 else offset for tp, offset in self._known(times_ms).items()}

    def committed_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """See `PartitionOffsetsRetriever`."""
        asked = [TopicPartition(topic, partition) for topic, partition in partitions]
        answer = self._ask(
            "committed offsets", lambda timeout_s: self._clients.consumer.committed(asked, timeout=timeout_s)
        )
        self._raise_first_error(answer)
        return {
            KafkaTopicPartition(tp.topic, tp.partition): tp.offset
            for tp in answer
            if tp.offset > OFFSET_INVALID and tp.offset >= 0
        }

    def available_ends(
        self, partitions: Iterable[KafkaTopicPartition], leaders: Mapping[str, TopicInfo]
    ) -> dict[KafkaTopicPartition, int]:
        """Return the ends of the partitions that have a leader which answers.

        All leaders are asked at once. If that fails, each leader is asked by itself, so that a broker that is down takes
        only its own partitions out. Have partitions of one leader beside each other: a request goes to fewer brokers.

        Raises:
            ClusterUnavailableError: If no leader answers.
        """
        wanted = list(partitions)
        try:
            return self._known(dict.fromkeys(wanted, _LATEST))
        except ClusterUnavailableError as error:
            by_leader: dict[int, list[KafkaTopicPartition]] = {}
            for tp in wanted:
                by_leader.setdefault(leaders[tp.topic].leaders[tp.partition], []).append(tp)
            if len(by_leader) < 2:
                raise
            ends: dict[KafkaTopicPartition, int] = {}
            for some in by_leader.values():
                try:
                    ends |= self._known(dict.fromkeys(some, _LATEST))
                except ClusterUnavailableError:
                    _log.info("Cluster '%s': a broker does not answer: %s", self.cluster_id, error)
            if not ends:
                raise
            return ends

    def log_ends(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Return where logs end for the partitions whose leader answers; see `clients.log_offsets`.

        Raises:
            ClusterUnavailableError: If no leader answers.
        """
        ends = log_offsets(self._clients, partitions, LOG_END, self._timeout_s)
        if partitions and not ends:
            raise ClusterUnavailableError(
                f"Cluster '{self.cluster_id}': the ends of logs with open transactions could not be fetched",
                cluster_id=self.cluster_id,
            )
        return ends

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Write the group's committed offsets. Without a coordinator this takes `session.timeout.ms` (45 s).

        Raises:
            ClusterUnavailableError: If that fails.
        """
        asked = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._raise_first_error(
            self._call("commit", lambda: self._clients.consumer.commit(offsets=asked, asynchronous=False)) or []
        )

    # --- plumbing ---

    def _topic_info(self, name: str, description: Any) -> TopicInfo:
        topic_id = str(description.topic_id)
        leaders = {p.id: -1 if p.leader is None or p.leader.id is None else p.leader.id for p in description.partitions}
        if not leaders:  # every topic has a partition: the broker does not know them yet
            raise ClusterUnavailableError(
                f"Cluster '{self.cluster_id}', topic '{name}': the broker describes the topic without its partitions",
                cluster_id=self.cluster_id,
            )
        return TopicInfo(
            "" if topic_id == _NO_TOPIC_ID else topic_id, tuple(leaders.get(i, -1) for i in range(max(leaders) + 1))
        )

    def _all(self, timestamps: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int]:
        return {
            KafkaTopicPartition(tp.topic, tp.partition): tp.offset
            for tp in self._raise_first_error(self._offsets_for_times(timestamps))
        }

    def _known(self, timestamps: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int]:
        answer = self._offsets_for_times(timestamps)
        if all(tp.error is None for tp in answer):  # as nearly always
            topics, partitions = zip(*timestamps, strict=True) if timestamps else ((), ())
            if tuple([tp.topic for tp in answer]) == topics and tuple([tp.partition for tp in answer]) == partitions:
                return dict(zip(timestamps, [tp.offset for tp in answer], strict=True))  # quicker than new keys
        stale = {tp.topic for tp in answer if tp.error is not None}
        if stale:  # the client's own metadata is older than ours: partitions were added, or a leader moved
            for topic in sorted(stale):
                self._ask("topic", partial(self._clients.consumer.list_topics, topic))
            answer = self._offsets_for_times(timestamps)
        return {KafkaTopicPartition(tp.topic, tp.partition): tp.offset for tp in answer if tp.error is None}

    def _offsets_for_times(self, timestamps: Mapping[KafkaTopicPartition, int]) -> list[TopicPartition]:
        if not timestamps:
            return []
        asked = [TopicPartition(topic, partition, ts) for (topic, partition), ts in timestamps.items()]
        return self._ask(
            "offsets",
            lambda timeout_s: with_known_leaders(
                self._clients.consumer,
                {tp.topic for tp in timestamps},
                lambda: self._ask_in_parts(asked, timeout_s),
                timeout_s=timeout_s,
            ),
        )

    def _ask_in_parts(self, asked: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        consumer, deadline = self._clients.consumer, time.monotonic() + timeout_s
        if len(asked) <= _PARTITIONS_PER_QUESTION:
            return consumer.offsets_for_times(asked, timeout=timeout_s)
        parts = [asked[i : i + _PARTITIONS_PER_QUESTION] for i in range(0, len(asked), _PARTITIONS_PER_QUESTION)]

        def ask(part: list[TopicPartition]) -> list[TopicPartition]:
            return consumer.offsets_for_times(part, timeout=max(0.001, deadline - time.monotonic()))

        return list(chain.from_iterable(_in_threads(ask, parts)))

    def _raise_first_error(self, answer: list[TopicPartition]) -> list[TopicPartition]:
        for tp in answer:
            if tp.error is not None:
                why = self._missing_right(tp.error, tp.topic) or tp.error.str()
                raise ClusterUnavailableError(
                    f"Cluster '{self.cluster_id}', topic '{tp.topic}', partition {tp.partition}: {why}",
                    cluster_id=self.cluster_id,
                )
        return answer

    def _missing_right(self, error: KafkaError, topic: str = "<topic>") -> str:
        """Return who may not do what; "" if the error is about something else."""
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return may_not(principal(self._properties), ["Describe", "Read"], "group", self._group_id)
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return may_not(principal(self._properties), ["Describe", "Read"], "topic", topic)
        return ""

    def _ask(self, what: str, question: Callable[[float], T]) -> T:
        return self._call(what, lambda: self._clients.ask(question, self._timeout_s))

    def _call(self, what: str, function: Callable[[], T]) -> T:
        started = time.monotonic()
        errors = self._clients.errors
        try:
            result = function()
        except KafkaException as error:
            self._clients.poll()  # brings the background errors, which say more than "timed out"
            kafka_error: KafkaError = error.args[0]
            if missing := self._missing_right(kafka_error):
                raise ClusterUnavailableError(
                    f"Cluster '{self.cluster_id}' refuses the request for {what}: {missing}", cluster_id=self.cluster_id
                ) from error
            reason = kafka_error.str()
            if (heard := self._clients.reason()) and kafka_error.code() not in NO_SUCH_TOPIC:
                reason = heard if errors.authentication_failed else f"{reason} ({heard})"
            raise ClusterUnavailableError(
                f"Cluster '{self.cluster_id}' at {self._properties.get('bootstrap.servers')} {errors.verdict} "
                f"(while requesting {what}, {time.monotonic() - started:.1f} s): {reason}",
                cluster_id=self.cluster_id,
            ) from error
        else:
            errors.clear()
            return result


def _in_threads(function: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
    """Return the results in order, or raise the first error. Daemon threads do not keep a process that wants to end."""
    todo, results, errors = deque(enumerate(items)), dict[int, T](), list[Exception]()

    def work() -> None:
        while todo and not errors:
            try:
                i, item = todo.popleft()
            except IndexError:
                return  # another thread has taken the last one
            try:
                results[i] = function(item)
            except Exception as error:  # noqa: BLE001  raised below
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_QUESTIONS_AT_ONCE, len(todo)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [result for _, result in sorted(results.items(), key=itemgetter(0))]
