"""A worker's producers: one for each cluster, what it says when something fails, and the pool where they wait for tasks.

A topic is looked up before anything is sent to it: librdkafka would wait minutes for one that does not exist. Looking up
creates no topic, unless the user's `allow.auto.create.topics` says so.
"""

from __future__ import annotations

import atexit
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from types import TracebackType
from typing import Any, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from dynamic_kafka.errors import ClusterUnavailableError, DeliveryError
from dynamic_kafka.kafka.config.properties import client_config
from dynamic_kafka.kafka.config.secrets import resolve
from dynamic_kafka.kafka.idle import park, unpark
from dynamic_kafka.kafka.logs import CLIENT_LOG
from dynamic_kafka.sink.settings import WriteTask

__all__ = ["ClusterProducer", "PooledProducers", "TaskProducers", "acquire", "release"]

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_LOOKUP_S = 60.0  # Java's max.block.ms
_LOOKUP_ATTEMPT_S = 5.0
_APPEARS_S = 5.0  # a topic just created is not known to every broker at once
_LOOKUP_AGE_S = 300.0  # Java's metadata.max.age.ms
_CAPACITY = 16
_LAST_FLUSH_S = 5.0

_PoolKey = tuple[str, frozenset[tuple[str, str]]]

_TUNING = {
    "allow.auto.create.topics": "false",  # Java's default is true; a typing error must not become a topic
    # Java's buffer.memory: librdkafka's own default is 1 GiB, for each task.
    "queue.buffering.max.kbytes": "32768",
}
_ADVICE = {
    # The topic's limit is one of batches. Java splits a batch that is over it, librdkafka does not.
    KafkaError.MSG_SIZE_TOO_LARGE: "the record, or the batch it was in, is too large; raise max.request.size and the "
    "topic's max.message.bytes, or lower batch.size to the latter",
    KafkaError._MSG_TIMED_OUT: "not acknowledged within delivery.timeout.ms; see whether the brokers are up",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not authorized; grant Describe and Write on the topic to this principal",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "not authorized; grant Write on the topic (before Kafka 2.8 also "
    "IdempotentWrite on the cluster) to this principal",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "there is no such topic or partition; create it first",
    KafkaError._UNKNOWN_TOPIC: "there is no such topic; create it first",
    KafkaError._UNKNOWN_PARTITION: "there is no such partition",
    KafkaError._QUEUE_FULL: "the record is larger than the producer's whole queue; raise buffer.memory",
}
_MAY_APPEAR = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE)


class ClusterProducer:
    """The producer of one cluster in this worker, and what is known by it.

    Args:
        cluster: The cluster's name in the metadata.
        properties: How to reach it, in Java's or librdkafka's names, secrets as they were given.
        config: More of librdkafka's properties, such as `transactional.id`; they win.

    Attributes:
        last_error: What the client noticed in the background; "" if nothing.
        denied: Whether that was a failed login.
        pool_key: Its place in the pool; None if it belongs to none.
    """

    def __init__(self, cluster: str, properties: Mapping[str, str], config: Mapping[str, Any] | None = None) -> None:
        self.cluster = cluster
        self.last_error = ""
        self.pool_key: _PoolKey | None = None
        self._properties = dict(properties)
        self._config = dict(config or {})
        self.denied = False
        self._partitions: dict[str, tuple[int, float]] = {}
        self._failed: DeliveryError | None = None

    @cached_property
    def client(self) -> Producer:
        """The producer of librdkafka; made on first use."""
        options: dict[str, Any] = {
            **_TUNING,
            **client_config(self._properties, role="producer"),
            "delivery.report.only.error": True,  # no call into Python for each record
            "error_cb": self._note_error,
            "logger": CLIENT_LOG,
            **self._config,
        }
        return Producer(options)

    def _note_error(self, error: KafkaError) -> None:
        self.last_error = error.str()
        self.denied = self.denied or error.code() == KafkaError._AUTHENTICATION

    def partitions(self, topic: str, at_least: int = 0) -> int:
        """How many partitions a topic has; remembered for five minutes.

        Args:
            topic: The topic.
            at_least: A remembered number below this one is not trusted: partitions may have been added.

        Raises:
            DeliveryError: If there is no such topic, or it may not be seen.
            ClusterUnavailableError: If the cluster does not answer within a minute.
        """
        count, asked_at = self._partitions.get(topic, (0, 0.0))
        if count < max(at_least, 1) or time.monotonic() - asked_at > _LOOKUP_AGE_S:
            count = self._look_up(topic)
            self._partitions[topic] = count, time.monotonic()
        return count

    def _look_up(self, topic: str) -> int:
        began = time.monotonic()
        while True:
            try:
                found = self.client.list_topics(topic, timeout=_LOOKUP_ATTEMPT_S).topics[topic]
            except KafkaException as error:
                self.poll(_POLL_S)  # tells what went wrong in the background
                if self.denied or time.monotonic() - began > _LOOKUP_S:
                    why = self.last_error or error.args[0].str()
                    raise ClusterUnavailableError(
                        f"Cluster '{self.cluster}' does not answer, so topic '{topic}' cannot be written to: {why}; see "
                        "whether its brokers are up and its properties are right",
                        cluster_id=self.cluster,
                    ) from error
                continue
            if found.error is None and found.partitions:
                return len(found.partitions)
            error_found = found.error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            if error_found.code() not in _MAY_APPEAR or time.monotonic() - began > _APPEARS_S:
                raise self.delivery_error(error_found, topic)
            self.poll(_POLL_S)

    def delivery_error(
        self, error: KafkaError, topic: str | None, partition: int = -1, key: bytes | str | None = None
    ) -> DeliveryError:
        """What librdkafka says of a record, or of a topic, as our error."""
        reason = _ADVICE.get(error.code(), error.str())
        if error.code() == KafkaError._MSG_TIMED_OUT and self.last_error:
            reason += f"; the last thing heard: {self.last_error}"
        return DeliveryError(
            reason,
            cluster_id=self.cluster,
            topic=topic,
            partition=partition,
            key_bytes=None if key is None else len(key),
            code=error.name(),
            retriable=error.retriable() or error.code() == KafkaError._MSG_TIMED_OUT,
        )

    def transaction_error(self) -> DeliveryError:
        """Why the transaction has failed as a whole: librdkafka then drops all its records, whatever is wrong with which.

        Not to be called in a callback.
        """
        cause = KafkaError(KafkaError._PURGE_QUEUE)
        try:
            self.client.begin_transaction()  # refused within a transaction, and tells why that has failed
        except KafkaException as error:
            cause = error.args[0]
        denied = cause.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        return self.delivery_error(cause, self._read_only_topic() if denied else None)

    def _read_only_topic(self) -> str | None:
        """The first of the topics looked up that may not be written to; None if that cannot be told."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AclOperation, AdminClient

        options: dict[str, Any] = {**client_config(self._properties, role="admin"), "logger": CLIENT_LOG}
        admin = AdminClient(options)
        with suppress(KafkaException):
            asked = admin.describe_topics(
                TopicCollection(list(self._partitions)),
                include_authorized_operations=True,
                request_timeout=_LOOKUP_ATTEMPT_S,
            )
            for topic, described in asked.items():
                if AclOperation.WRITE not in described.result().authorized_operations:
                    return topic
        return None

    def poll(self, timeout_s: float) -> None:
        """Serve callbacks: those that are there, or the first that comes.

        Raises:
            DeliveryError: If the producer failed for good, as an idempotent one does when its numbers no longer fit.
        """
        if self._failed is not None:
            raise self._failed
        self._serve(self.client.poll, timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait for acknowledgements; how many are missing still. Raises as `poll` does."""
        return self._serve(self.client.flush, timeout_s)

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        try:
            return call(timeout_s)
        except (KafkaException, SystemError) as error:
            # confluent-kafka raises fatal errors instead of calling error_cb, and stumbles when reports come with one.
            cause = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(cause, KafkaException):
                raise
            raise self.delivery_error(cause.args[0], None) from error

    def resume(self) -> None:
        """Take it back after it was parked: what it noticed meanwhile may be over. Raises as `poll` does."""
        unpark(self)
        self.poll(0)
        self.last_error, self.denied = "", False

    def serve(self) -> None:
        """See `kafka.idle`; the next `poll` raises what this meets."""
        if "client" in self.__dict__:
            try:
                self.poll(0)
            except DeliveryError as error:
                self._failed = error

    def close(self) -> None:
        """Let go of the producer; what it has not sent is dropped. Never waits for a broker."""
        unpark(self)
        client = self.__dict__.pop("client", None)
        if client is not None:
            with suppress(KafkaException, SystemError):
                client.purge()
                client.poll(0)


class TaskProducers(Protocol):
    """Where a task gets its producers from."""

    def producer(self, cluster: str) -> ClusterProducer:
        """The task's producer for a cluster, ready to produce; the same one each time."""
        ...


# --- the pool ---

_pool: OrderedDict[_PoolKey, ClusterProducer] = OrderedDict()
"""As `kafka.pool` has consumers: a cache of connections. With `none` it also holds records that are still to be sent."""


def acquire(cluster: str, properties: Mapping[str, str]) -> ClusterProducer:
    """Take the cluster's producer out of the pool, or make a new one (it connects when first used).

    References to secrets are looked up each time: a secret that was changed makes a new producer.
    """
    key = cluster, frozenset(resolve(properties).items())
    producer = _pool.pop(key, None)
    if producer is not None:
        try:
            producer.resume()  # logs what became of records that nobody waited for
        except DeliveryError as error:
            _log.warning("Records of an earlier batch may be lost: %s", error)
            producer.close()
        else:
            return producer
    producer = ClusterProducer(cluster, properties)
    producer.pool_key = key
    return producer


def release(producer: ClusterProducer, *, healthy: bool) -> None:
    """Give a producer back; an unhealthy one is closed, and so is the one unused for longest when the pool is full."""
    if not healthy or producer.pool_key is None:
        producer.close()
        return
    _pool[producer.pool_key] = producer
    park(producer)
    if len(_pool) > _CAPACITY:
        old = _pool.popitem(last=False)[1]
        _send_the_rest(old)
        old.close()


def _send_the_rest(producer: ClusterProducer) -> None:
    unpark(producer)
    with suppress(DeliveryError):
        if left := producer.flush(_LAST_FLUSH_S):
            _log.warning("Cluster '%s': %d records that nobody waited for are dropped", producer.cluster, left)


@atexit.register
def _end() -> None:
    # Spark's daemon ends its workers without this; their last records were sent long before, if the brokers are up.
    for producer in _pool.values():
        _send_the_rest(producer)


class PooledProducers:
    """A task's producers, from the pool and back to it: all of them if the `with` block ends well, else none."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task
        self._taken: dict[str, ClusterProducer] = {}

    def producer(self, cluster: str) -> ClusterProducer:
        """As `TaskProducers` says."""
        if cluster not in self._taken:
            self._taken[cluster] = acquire(cluster, self._task.destinations[cluster].properties)
        return self._taken[cluster]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for producer in self._taken.values():
            release(producer, healthy=kind is None)
