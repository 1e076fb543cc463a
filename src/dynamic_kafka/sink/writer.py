"""One task of the sink, without transactions of its own: from Arrow batches to acknowledged records.

`write` hands all rows to the producers, `flush` waits for the acknowledgements. Exactly-once does the same with producers
that are in a transaction. Rules:

1. Nothing is sent to a topic that was not looked up: librdkafka would wait minutes for one that does not exist. Looking up
   creates no topic, unless the user's `allow.auto.create.topics` says so.
2. The first delivery error fails the task, as soon as it is seen. What follows it is mostly its echo.
3. A full queue is waited for until half of it is free: enough to stay ahead of the brokers, and never a busy loop.
"""

from __future__ import annotations

import atexit
import gc
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import starmap
from operator import length_hint
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dynamic_kafka.errors import ClusterUnavailableError, DeliveryError
from dynamic_kafka.kafka.logs import CLIENT_LOG
from dynamic_kafka.kafka.properties import client_config
from dynamic_kafka.kafka.secrets import resolve
from dynamic_kafka.sink.records import by_cluster, to_records
from dynamic_kafka.sink.report import TaskReport, Volume
from dynamic_kafka.sink.settings import WriteTask

__all__ = ["ClusterProducer", "PooledProducers", "TaskProducers", "Written", "acquire", "flush", "release", "write"]

_log = logging.getLogger(__name__)

_CHUNK_ROWS = 5_000
_CHUNK_BYTES = 4 * 1024 * 1024
_POLL_S = 0.1
_FLUSH_S = 0.5
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

    def poll(self, timeout_s: float) -> None:
        """Serve callbacks: those that are there, or the first that comes.

        Raises:
            DeliveryError: If the producer failed for good, as an idempotent one does when its numbers no longer fit.
        """
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

    def close(self) -> None:
        """Let go of the producer; what it has not sent is dropped. Never waits for a broker."""
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


# --- one task -----------------------------------------------------------------------------------------------------------


@dataclass
class Written:
    """What a task has handed over, and the first thing that went wrong with it.

    Attributes:
        report: What was handed over.
        used: The producers used, by cluster.
        error: The first delivery error.
        errors: How many records were not acknowledged.
        unattended: Whether the task has ended and nobody waits for its records, as with `none`.
    """

    report: TaskReport = field(default_factory=TaskReport)
    used: dict[str, ClusterProducer] = field(default_factory=dict)
    error: DeliveryError | None = None
    errors: int = 0
    unattended: bool = False

    def delivered(self, producer: ClusterProducer, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report of librdkafka."""
        if error is None:
            return
        self.errors += 1
        if self.error is None:
            key = message.key()
            partition = message.partition()
            self.error = producer.delivery_error(
                error, message.topic() or "", -1 if partition is None else partition, key
            )
            if self.unattended:
                _log.warning("A record of an earlier batch is lost: %s", self.error)

    def check(self) -> None:
        """Raise the first delivery error, if there is one."""
        if self.error is not None:
            raise self.error


def write(
    batches: Iterator[pa.RecordBatch], task: WriteTask, producers: TaskProducers, *, task_number: int, tasks: int
) -> Written:
    """Hand all rows of a task to the producers; does not wait until they are acknowledged.

    Args:
        batches: The rows; their schema was checked.
        task: Where they may go.
        producers: One for each cluster, asked for when the first row for it comes.
        task_number: The task's number in its batch, from 0.
        tasks: How many tasks the batch has; 0 if that is not known.

    Raises:
        RowError: If a row cannot be turned into a record.
        DeliveryError: If a record is refused, or one that was sent before was not acknowledged.
        ClusterUnavailableError: If a cluster does not answer.
    """
    written = Written()
    if task.settings.partitioner is not None:
        task.settings.partitioner.open(task_number, tasks)
    volumes: dict[str, Volume] = {}
    topics: dict[str, frozenset[str]] = {}
    write_s = 0.0
    collecting = gc.isenabled()
    gc.disable()  # rows hold no cycles
    try:
        for batch in batches:
            began = time.perf_counter()
            for chunk in _chunks(batch):
                for cluster, rows in by_cluster(chunk, task):
                    producer = written.used.get(cluster) or written.used.setdefault(
                        cluster, producers.producer(cluster)
                    )
                    records = to_records(
                        rows,
                        task.destinations[cluster],
                        task.settings,
                        producer.partitions,
                        partial(written.delivered, producer),
                    )
                    _produce(producer, records.arguments, written)
                    volumes[cluster] = volumes.get(cluster, Volume()) + records.volume
                    topics[cluster] = topics.get(cluster, frozenset()) | records.topics
                    producer.poll(0)
                    written.check()
            write_s += time.perf_counter() - began
    finally:
        if collecting:
            gc.enable()
    written.unattended = True  # until somebody flushes
    written.report = TaskReport(volumes, topics, written.errors, write_s * 1000)
    return written


def flush(written: Written) -> TaskReport:
    """Wait until all records are acknowledged.

    It takes as long as the brokers need, up to the producers' `delivery.timeout.ms`.

    Args:
        written: What `write` returned.

    Returns:
        Its report, with the time this took.

    Raises:
        DeliveryError: The first one, as soon as it is seen; others may be waited for in vain.
    """
    written.unattended = False
    began = time.perf_counter()
    waiting = list(written.used.values())
    while waiting:
        waiting = [p for p in waiting if p.flush(_FLUSH_S / len(waiting))]
        written.check()
    return replace(written.report, flush_ms=(time.perf_counter() - began) * 1000)


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of a batch, small enough that its rows as Python objects take little memory."""
    n = batch.num_rows
    rows = max(1, min(_CHUNK_ROWS, n * _CHUNK_BYTES // max(1, batch.nbytes)))
    return (batch.slice(start, rows) for start in range(0, n, rows))


def _produce(producer: ClusterProducer, arguments: list[list[Any]], written: Written) -> None:
    """Produce all of it, in order, however often the queue is full."""
    while True:
        topics = iter(arguments[0])
        try:
            deque(starmap(producer.client.produce, zip(topics, *arguments[1:], strict=True)), maxlen=0)
        except BufferError as error:
            place = len(arguments[0]) - length_hint(topics) - 1
            arguments = [column[place:] for column in arguments]
            if not len(producer.client):
                raise _refused(producer, KafkaError(KafkaError._QUEUE_FULL), arguments, 0) from error
            _make_room(producer, written)
        except KafkaException as error:
            place = len(arguments[0]) - length_hint(topics) - 1
            producer.poll(0)  # after a fatal error tells which one
            raise _refused(producer, error.args[0], arguments, place) from error
        else:
            return


def _make_room(producer: ClusterProducer, written: Written) -> None:
    enough = len(producer.client) // 2
    while len(producer.client) > enough:
        producer.poll(_POLL_S)  # returns as soon as something was acknowledged
        written.check()


def _refused(producer: ClusterProducer, error: KafkaError, arguments: list[list[Any]], place: int) -> DeliveryError:
    topic, _, key, partition = [column[place] for column in arguments[:4]]
    return producer.delivery_error(error, topic, partition, key)


# --- producers between tasks --------------------------------------------------------------------------------------------

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
            producer.poll(0)  # logs what became of records that nobody waited for
        except DeliveryError as error:
            _log.warning("Records of an earlier batch may be lost: %s", error)
            producer.close()
        else:
            producer.last_error, producer.denied = "", False
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
    if len(_pool) > _CAPACITY:
        old = _pool.popitem(last=False)[1]
        _send_the_rest(old)
        old.close()


def _send_the_rest(producer: ClusterProducer) -> None:
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
