"""A worker's producers: one for each cluster, the errors they report, and the pool that keeps them between tasks.

A topic is looked up before anything is sent to it: librdkafka would wait minutes for one that does not exist. The look-up
creates no topic, unless the user's `allow.auto.create.topics` says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from dynamic_kafka.errors import ClusterUnavailableError, DeliveryError, may_not
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients, pool_key
from dynamic_kafka.kafka.config.properties import whole_number
from dynamic_kafka.kafka.error_codes import NO_SUCH_TOPIC
from dynamic_kafka.kafka.logins import principal
from dynamic_kafka.kafka.pool import ClientPool
from dynamic_kafka.sink.record_producer import Failures, RecordProducer
from dynamic_kafka.sink.settings import SinkSettings, WriteTask

__all__ = ["ClusterProducer", "PooledProducers", "TaskProducers", "kept_producer", "statistics_ms"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_S = 0.1
_LOOKUP_S = 60.0  # Java's max.block.ms
_LOOKUP_ATTEMPT_S = 5.0
_FIRST_LOOKUP_S = 0.3  # so that a refused login is noticed soon: librdkafka repeats it three times a second
_APPEARS_S = 5.0  # a topic just created is not known to every broker at once
_LOOKUP_AGE_S = 300.0  # Java's metadata.max.age.ms
_LAST_FLUSH_S = 5.0
_LIMITS_S = 5.0
_LIMITS_AGE_S = 60.0

_TUNING = {
    "allow.auto.create.topics": "false",  # Java's default is true; a typing error must not become a topic
    # Java's buffer.memory: librdkafka's own default is 1 GiB, for each task.
    "queue.buffering.max.kbytes": "32768",
}
_ADVICE = {
    # The topic's limit is one of batches. Java splits a batch that is over it, librdkafka does not.
    KafkaError.MSG_SIZE_TOO_LARGE: "the record, or the batch of records it was in, is larger than the topic allows; raise "
    "max.message.bytes of the topic (kafka-configs.sh), or keep batch.size below it",
    KafkaError._MSG_TIMED_OUT: "not acknowledged within delivery.timeout.ms; check that the brokers are running",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic or partition does not exist; create it first",
    KafkaError._UNKNOWN_TOPIC: "the topic does not exist; create it first",
    KafkaError._UNKNOWN_PARTITION: "the partition does not exist",
    KafkaError.INVALID_PRODUCER_ID_MAPPING: "the cluster has forgotten the transactional id, which was not used for "
    "a while; raise transactional.id.expiration.ms of its brokers to more than a minute (default: 7 days)",
    KafkaError._QUEUE_FULL: "the record is larger than the producer's whole queue; raise buffer.memory",
}
_MAY_APPEAR = (*NO_SUCH_TOPIC, KafkaError.LEADER_NOT_AVAILABLE)


class ClusterProducer:
    """The producer of one cluster in this worker, and what it knows of the cluster's topics.

    Args:
        cluster: The cluster.
        properties: The properties to reach it.
        config: More of librdkafka's properties, such as `transactional.id`; they win.
        statistics_ms: If above 0, the time between two statistics.

    Attributes:
        errors: The errors that it reported in the background.
    """

    def __init__(
        self,
        cluster: str,
        properties: Mapping[str, str],
        config: Mapping[str, Any] | None = None,
        *,
        statistics_ms: int = 0,
    ) -> None:
        self.cluster = cluster
        self._properties = properties
        # The delivery report of errors only: no call into Python for each record.
        fixed = {"delivery.report.only.error": True, **(config or {})}
        self._is_transactional = "transactional.id" in fixed
        self._clients = ClusterClients(properties, producer=ClientSettings(_TUNING, fixed, statistics_ms))
        self.errors = self._clients.errors
        self._partitions: dict[str, tuple[int, float]] = {}
        self._told = 0

    def statistics(self) -> str:
        """Return the last statistics; "" if there are none since the last call."""
        return self._clients.statistics.take()

    @cached_property
    def client(self) -> RecordProducer:
        """The producer of librdkafka; made on first use."""
        return RecordProducer(self._clients)

    def partitions(self, topic: str, at_least: int = 0) -> int:
        """Return the number of a topic's partitions; remembered for five minutes.

        A remembered number below `at_least` is not trusted: partitions may have been added.

        Raises:
            DeliveryError: If the topic does not exist, or this principal may not see it.
            ClusterUnavailableError: If the cluster does not answer within a minute.
        """
        count, asked_at = self._partitions.get(topic, (0, 0.0))
        if count < max(at_least, 1) or time.monotonic() - asked_at > _LOOKUP_AGE_S:
            count = self._look_up(topic)
            self._partitions[topic] = count, time.monotonic()
        return count

    def _look_up(self, topic: str) -> int:
        began, attempt_s = time.monotonic(), _FIRST_LOOKUP_S
        while True:
            try:
                count, refused = self.client.look_up(topic, attempt_s)
            except KafkaException as error:
                self.poll(_POLL_S)  # brings the errors that were noticed in the background
                # Within a transaction, or with records of a task before, the client cannot be replaced.
                is_free = not self._is_transactional and len(self.client) == 0
                if is_free and self.is_renewed_after_refusal(began + _LOOKUP_S):
                    continue
                if self.errors.authentication_failed or time.monotonic() - began > _LOOKUP_S:
                    raise self.unavailable(f"topic '{topic}' cannot be written to", error.args[0].str()) from error
                attempt_s = min(3 * attempt_s, _LOOKUP_ATTEMPT_S)
                continue
            self._clients.note_answer()
            if refused is None and count:
                return count
            refused = refused or KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            if refused.code() not in _MAY_APPEAR or time.monotonic() - began > _APPEARS_S:
                raise self.delivery_error(refused, topic)
            self.poll(_POLL_S)

    @cached_property
    def largest_bytes(self) -> int:
        """The largest size of a record that it takes, as librdkafka counts it."""
        default = whole_number(self._properties, "message.max.bytes", 1_000_000)
        return whole_number(self._properties, "max.request.size", default)

    def topic_limits(self, topics: Sequence[str]) -> list[int | None]:
        """Return the largest size of a batch of records for each topic (`max.message.bytes`); None where it is not known.

        It is not known if the producer compresses, because the limit is for what remains then. Nor is it if the cluster
        does not answer within five seconds, or this principal may not see the topic's settings. Answers are remembered for
        a minute.
        """
        compression = (self._properties.get(f"compression.{name}", "none") for name in ("type", "codec"))
        if any(codec.strip().lower() != "none" for codec in compression):
            return [None] * len(topics)
        keys = {topic: (self.cluster, self._properties.get("bootstrap.servers", ""), topic) for topic in topics}
        now = time.monotonic()
        missing = [t for t, key in keys.items() if key not in _limits or now - _limits[key][1] > _LIMITS_AGE_S]
        if missing:
            _limits.update((keys[topic], (limit, now)) for topic, limit in self._ask_limits(missing))
        return [_limits[keys[topic]][0] for topic in topics]

    def _ask_limits(self, topics: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
        try:
            asked = self._clients.admin.describe_configs([*resources.values()], request_timeout=_LIMITS_S)
        except KafkaException as error:
            _log.info("The largest messages of topics are not known: %s", error)
            asked = {}
        for topic, resource in resources.items():
            entry = None
            try:
                entry = self._clients.result(asked[resource]).get("max.message.bytes") if asked else None
            except KafkaException as error:
                _log.info("The largest message of topic '%s' is not known: %s", topic, error)
            yield topic, None if entry is None or entry.value is None else int(entry.value)

    def connect(self, topic: str, timeout_s: float) -> None:
        """Wait until a broker has answered a question about a topic. Call it before anything is produced.

        Raises:
            KafkaException: If none answers in time, or if the login was refused and is not to be tried again.
        """
        deadline = time.monotonic() + _LOOKUP_S
        while True:
            try:
                self._clients.ask(lambda s: self.client.look_up(topic, s), timeout_s)
            except KafkaException:
                if not self.is_renewed_after_refusal(deadline):
                    raise
            else:
                return

    def is_renewed_after_refusal(self, deadline: float) -> bool:
        """Wait after a refused login, and let go of the client if the login is to be tried again."""
        if not self.errors.authentication_failed or not self._clients.rest_after_refusal(deadline):
            return False
        del self.client  # the next use makes a new one
        return True

    def unavailable(self, consequence: str, said: str = "") -> ClusterUnavailableError:
        """Return the error for a cluster that does not answer, or does not let this client in. The consequence is a clause.

        What was heard in the background says more than what the call `said`.
        """
        advice = (
            "correct its user, password or certificates (sasl.*, ssl.*)"
            if self.errors.authentication_failed
            else "check that its brokers are running and that its properties are right"
        )
        return ClusterUnavailableError(
            f"Cluster '{self.cluster}' {self.errors.verdict}, so {consequence}: {self._clients.reason() or said}; {advice}",
            cluster_id=self.cluster,
        )

    def delivery_error(
        self,
        error: KafkaError,
        topic: str | None,
        partition: int = -1,
        key_bytes: int | None = None,
        *,
        refused_bytes: int | None = None,
    ) -> DeliveryError:
        """Return our error for librdkafka's about a record or a topic. What is not known is None, or -1 for the partition.

        `refused_bytes` is the size of a record that the producer itself has refused; None if a broker did.
        """
        reason = self._missing_right(error.code(), topic) or _ADVICE.get(error.code(), error.str())
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and refused_bytes is not None:
            reason = (
                f"the record has {refused_bytes:,} bytes, more than max.request.size={self.largest_bytes} of the producer; "
                "raise max.request.size, and max.message.bytes of the topic if that is smaller"
            )
        if error.code() == KafkaError._MSG_TIMED_OUT and self.errors.last:
            reason += f"; the last error of the client: {self.errors.last}"
        return DeliveryError(
            reason,
            cluster_id=self.cluster,
            topic=topic,
            partition=partition,
            key_bytes=key_bytes,
            code=error.name(),
            retriable=error.retriable() or error.code() == KafkaError._MSG_TIMED_OUT,
        )

    def _missing_right(self, code: int, topic: str | None) -> str:
        """Return who may not do what; "" if the error is about something else."""
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return may_not(principal(self._properties), ["Describe", "Write"], "topic", topic or "<topic>")
        if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            # Who may write to any topic may do so idempotently, from Kafka 2.8 on.
            why = may_not(principal(self._properties), ["Write"], "topic", topic or "<topic>")
            return f"{why} (brokers before Kafka 2.8 need IdempotentWrite on the cluster, too)"
        return ""

    def transaction_error(self) -> DeliveryError:
        """Return the reason why the transaction has failed. librdkafka then drops all its records, not only the bad ones."""
        cause = KafkaError(KafkaError._PURGE_QUEUE)
        try:
            self.client.begin_transaction()  # refused within a transaction, with the reason why that has failed
        except KafkaException as error:
            cause = error.args[0]
        denied = cause.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        return self.delivery_error(cause, self._read_only_topic() if denied else None)

    def _read_only_topic(self) -> str | None:
        """Return the first of the topics looked up that may not be written to; None if that is not known."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AclOperation

        with suppress(KafkaException):
            asked = self._clients.admin.describe_topics(
                TopicCollection(list(self._partitions)),
                include_authorized_operations=True,
                request_timeout=_LOOKUP_ATTEMPT_S,
            )
            for topic, described in asked.items():
                if AclOperation.WRITE not in described.result().authorized_operations:
                    return topic
        return None

    def poll(self, timeout_s: float) -> None:
        """Take what librdkafka reports; wait for it up to a time.

        Raise `DeliveryError` if the producer failed for good, as an idempotent one does when its numbers no longer fit.
        """
        self._call(self.client.poll, timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait for acknowledgements, and return how many are still missing. Raises as `poll` does."""
        return self._call(self.client.flush, timeout_s)

    def failures(self, task: int | None = None) -> Failures | None:
        """Return the records of a task that were not acknowledged, since the last call.

        Those of other tasks are logged, once for each: nobody waited for them (guarantee `none`).
        """
        own = None
        for failed in self.client.failures():
            if failed.task == task:
                own = failed
            elif failed.task != self._told:
                self._told = failed.task
                _log.warning("A record of an earlier batch was lost: %s", self.delivery_error(*failed.first))
        return own

    def _call(self, call: Callable[[float], T], timeout_s: float) -> T:
        try:
            return call(timeout_s)
        except KafkaException as error:
            raise self.delivery_error(error.args[0], None) from error

    def poll_idle(self) -> bool:
        """See `ClientPool`. With a refused login it is used on while it has records to send (guarantee `none`)."""
        if "client" not in self.__dict__:
            return True
        try:
            self.poll(0)
            self.failures()
        except DeliveryError as error:
            _log.warning("Records of an earlier batch may be lost: %s", error)
            return False
        return not self.errors.authentication_failed or len(self.client) > 0

    def close(self) -> None:
        """Close the producer; wait up to five seconds for records that no task waited for (guarantee `none`)."""
        if "client" in self.__dict__:
            with suppress(DeliveryError):
                left = self.flush(_LAST_FLUSH_S)
                self.failures()
                if left:
                    _log.warning("Cluster '%s': %d records that no task waited for are dropped", self.cluster, left)
        self.drop()

    def drop(self) -> None:
        """Close the producer and drop what it has not sent. Never waits for a broker."""
        client = self.__dict__.pop("client", None)
        if client is not None:
            with suppress(KafkaException, SystemError):
                client.purge()
                client.poll(0)
        self._clients.close()


class TaskProducers(Protocol):
    """The source of a task's producers."""

    def producer(self, cluster: str) -> ClusterProducer:
        """Return the task's producer for a cluster, ready to produce; the same one each time."""
        ...


def statistics_ms(settings: SinkSettings) -> int:
    """Return the time between two statistics of a producer; 0 for none."""
    return settings.metrics.statistics_ms if settings.metrics is not None else 0


_pool = ClientPool[ClusterProducer]()
_limits: dict[tuple[str, str, str], tuple[int | None, float]] = {}  # of topics, with the time of the answer


@contextmanager
def kept_producer(cluster: str, properties: Mapping[str, str], *, statistics_ms: int = 0) -> Iterator[ClusterProducer]:
    """Use a cluster's producer for a `with` block. It is kept for the next one if the block ends well."""
    key = pool_key("write", cluster, properties, statistics_ms)
    with _pool.lease(key, lambda: ClusterProducer(cluster, properties, statistics_ms=statistics_ms)) as producer:
        producer.errors.clear()  # errors from the time without use may be over
        try:
            yield producer
        except BaseException:
            producer.drop()
            raise


class PooledProducers(ExitStack):
    """A task's producers, from the pool and back to it. Use it in a `with` block."""

    def __init__(self, task: WriteTask) -> None:
        super().__init__()
        self._task = task
        self._taken: dict[str, ClusterProducer] = {}

    def producer(self, cluster: str) -> ClusterProducer:
        """As `TaskProducers` says."""
        if cluster not in self._taken:
            properties, settings = self._task.destinations[cluster].properties, self._task.settings
            kept = kept_producer(cluster, properties, statistics_ms=statistics_ms(settings))
            self._taken[cluster] = self.enter_context(kept)
        return self._taken[cluster]
