"""The commit log on Kafka: a topic of one partition that every driver reads to its end and appends to.

The topic is created, or its settings are checked, before the first use: Kafka must not delete or compact any record. Only
the log's owner deletes records, by trimming.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients
from dynamic_kafka.sink.chain import Chain, Record, State, Transaction, follow, next_generation

__all__ = ["CommitLog", "decode", "encode", "read_commit_log", "supersede"]

_log = logging.getLogger(__name__)

_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_SEGMENT_BYTES = 1024 * 1024  # trimmed records leave the disk in whole segments
_TRIM_AFTER = 300
_CONSUMER = {
    "group.id": "dynamic-kafka-commit-log",  # not joined, nothing is committed to it
    "isolation.level": "read_uncommitted",
    # A fetch that waits for records holds up the questions behind it, so it does not wait.
    "fetch.wait.max.ms": "1",
}
_PRODUCER = {"enable.idempotence": "true", "acks": "all", "linger.ms": "0"}
_APPEND_S = 10.0
_PAUSE_S = 0.2
_ASK_S = 5.0

_OPTIONAL = ("rows", "runs", "accepted")

# librdkafka calls hardly any error of a request retriable.
_MAY_PASS = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._UNKNOWN_PARTITION,  # what a consumer calls one whose broker has just gone
        # While the partition gets another leader, or its brokers start:
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)

T = TypeVar("T")


def encode(record: Record) -> bytes:
    """Return a record as JSON. A state's fields that the first version did not have are left out if they are empty."""
    fields = asdict(record)
    fields["state"] = {name: value for name, value in fields["state"].items() if value or name not in _OPTIONAL}
    return json.dumps({"version": 1, **fields}, separators=(",", ":")).encode()


def decode(text: bytes | None) -> Record | None:
    """Return the record; None if the text is not a record of a commit log. Such a text does not count."""
    try:
        found = json.loads(text or b"")
        state = dict(found["state"])
        state["transactions"] = tuple(Transaction(*t) for t in state["transactions"])
        return Record(found["name"], found["follows"], State(**state)) if found["version"] == 1 else None
    except (ValueError, TypeError, KeyError):
        return None


def read_commit_log(cluster_id: str, properties: Mapping[str, str], topic: str, *, timeout_ms: int) -> Chain | None:
    """Return the head of a commit log's chain now; None if its topic does not exist.

    Nothing is written: the topic is neither created nor checked nor appended to.

    Raises:
        ClusterUnavailableError: If the cluster does not answer.
        ConfigurationError: If the topic is not a commit log.
    """
    log = CommitLog(cluster_id, properties, topic, replication=None, timeout_ms=timeout_ms, read_only=True)
    try:
        return log.read() if log.exists() else None
    finally:
        log.close()


def supersede(cluster_id: str, properties: Mapping[str, str], topic: str, chain: Chain, *, timeout_ms: int) -> bool:
    """Claim the next generation for nothing, so that the one at a chain's head cannot decide any more.

    Returns:
        True if the claim counts; False if the chain has moved on since it was read.

    Raises:
        ClusterUnavailableError: If the cluster does not answer, or refuses the record.
    """
    name = uuid.uuid4().hex
    log = CommitLog(cluster_id, properties, topic, replication=None, timeout_ms=timeout_ms)
    try:
        log.append(Record(name, chain.offset, next_generation(chain.state, name)))
        return name in log.read().recent
    finally:
        log.close()


class CommitLog:
    """One commit log, as one process sees it. For one thread.

    Args:
        cluster_id: The cluster of the topic.
        properties: The properties to reach it.
        topic: The topic.
        replication: The number of replicas if the topic has to be created; None is the brokers' default.
        timeout_ms: The longest time that a read or an append may take.
        read_only: If true, the topic is neither created nor checked, because nothing will be appended.
    """

    def __init__(
        self,
        cluster_id: str,
        properties: Mapping[str, str],
        topic: str,
        *,
        replication: int | None,
        timeout_ms: int,
        read_only: bool = False,
    ) -> None:
        self._cluster_id, self._topic = cluster_id, topic
        self._replication = replication
        self._timeout_s = timeout_ms / 1000
        producer = {**_PRODUCER, "message.timeout.ms": str(int(_APPEND_S * 1000))}
        self._clients = ClusterClients(
            properties, consumer=ClientSettings(fixed=_CONSUMER), producer=ClientSettings(fixed=producer)
        )
        self._chain = Chain()
        self._next = -1
        self._low = 0
        if read_only:
            return
        try:
            _ = self._clients.consumer, self._clients.producer  # they connect while the topic is looked up
            self._prepare()
        except BaseException:
            self.close()
            raise

    def exists(self) -> bool:
        """Return whether the topic exists.

        Raises:
            ClusterUnavailableError: If the topic cannot be looked up.
            ConfigurationError: If the topic is not a commit log, which has one partition.
        """
        try:
            found = self._clients.admin.list_topics(self._topic, timeout=self._timeout_s).topics[self._topic]
        except KafkaException as error:
            raise self._unavailable(f"could not be looked up ({error.args[0].str()})") from error
        if found.error is None:
            self._check_partitions(len(found.partitions))
            return True
        if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return False
        raise ClusterUnavailableError(
            f"Cluster '{self._cluster_id}': the commit log '{self._topic}' cannot be looked up ({found.error.str()}); grant "
            "Describe and Read on it, or check the log of the brokers",
            cluster_id=self._cluster_id,
        )

    def read(self) -> Chain:
        """Read to the end that the log has now, and return the head of the chain.

        Raises:
            ClusterUnavailableError: If the cluster does not answer; silence is never taken for the end.
        """
        deadline = time.monotonic() + self._timeout_s
        low, high = self._bounds()
        if not low <= self._next <= high:  # the first read, or it was trimmed beyond what was read, or made again
            self._chain, self._next, self._low = Chain(), low, low
        if self._next < high:
            self._clients.consumer.assign([TopicPartition(self._topic, 0, self._next)])
            trimmed = self._read_to(high, deadline)
            self._clients.consumer.unassign()
            if trimmed:
                return self.read()
        return self._chain

    def _read_to(self, high: int, deadline: float) -> bool:
        """Read to an offset. Return whether records that were to be read have been trimmed meanwhile."""
        while self._next < high:
            for message in self._clients.consumer.consume(high - self._next, timeout=0.1):
                if (error := message.error()) is not None:
                    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                        return True
                    if error.code() != KafkaError._PARTITION_EOF:
                        self._clients.errors.note(error)
                    continue
                offset = message.offset()
                assert offset is not None
                self._take(offset, decode(message.value()))
            if time.monotonic() > deadline:
                raise self._unavailable(f"could not be read beyond offset {self._next} of {high}")
        return False

    def append(self, record: Record) -> None:
        """Append, and repeat it while the outcome is not known: a second copy cannot count.

        Raises:
            ClusterUnavailableError: If it was never acknowledged. It may still be in the log.
        """
        value = encode(record)
        deadline = time.monotonic() + self._timeout_s
        while True:
            outcome: list[tuple[KafkaError | None, int | None]] = []

            def note(error: KafkaError | None, message: Message, outcome: list[Any] = outcome) -> None:
                outcome.append((error, message.offset()))

            self._clients.producer.produce(self._topic, value, partition=0, on_delivery=note)
            self._clients.producer.flush(_APPEND_S + 1)
            error, offset = outcome[0] if outcome else (None, None)
            if outcome and error is None:
                self._clients.errors.clear()
                if offset == self._next:  # nothing is between what was read and this: no need to fetch it
                    self._take(offset, record)
                return
            if error is not None:
                self._clients.errors.note(error)
            if time.monotonic() > deadline or (error is not None and not _may_pass(error)):
                raise self._unavailable("could not be appended to")

    def _take(self, offset: int, record: Record | None) -> None:
        if record is None:
            _log.warning(
                "The commit log '%s' has a record of another program at offset %d, which does not count",
                self._topic,
                offset,
            )
        else:
            self._chain = follow(self._chain, offset, record, first=offset == self._low)
        self._next = offset + 1

    def trim(self) -> None:
        """Delete the records before the head, if they are many."""
        head = self._chain.offset
        if head - self._low < _TRIM_AFTER:
            return
        try:
            for future in self._clients.admin.delete_records([TopicPartition(self._topic, 0, head)]).values():
                future.result(self._timeout_s)
        except KafkaException as error:
            _log.warning("The commit log '%s' could not be trimmed: %s", self._topic, error.args[0].str())
        self._low = head  # also if it failed: the next try is after as many records more

    def poll_idle(self) -> bool:
        """See `ClientPool`."""
        return self._clients.poll_idle()

    def close(self) -> None:
        """Close the clients; never waits for a broker."""
        self._clients.close()

    # --- the topic ---

    def _prepare(self) -> None:
        try:
            # Asked in short turns: a refused login is noticed between them only.
            found = self._patiently(
                lambda: self._clients.admin.list_topics(self._topic, timeout=min(_ASK_S, self._timeout_s))
            )
            if found.topics[self._topic].error is not None:
                self._create()
            else:
                self._check_partitions(len(found.topics[self._topic].partitions))
            self._check_settings()
        except KafkaException as error:
            raise self._unavailable(f"could not be prepared ({error.args[0].str()})") from error

    def _check_partitions(self, count: int) -> None:
        if count != 1:
            raise ConfigurationError(
                f"Cluster '{self._cluster_id}': topic '{self._topic}' has {count} partitions, but a commit log must have "
                "one; name another topic with sink.commit-log.topic"
            )

    def _create(self) -> None:
        replication = -1 if self._replication is None else self._replication
        settings = {**_SETTINGS, "segment.bytes": str(_SEGMENT_BYTES)}
        topic = NewTopic(self._topic, num_partitions=1, replication_factor=replication, config=settings)
        try:
            self._clients.admin.create_topics([topic], request_timeout=self._timeout_s)[self._topic].result(
                self._timeout_s + 1
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConfigurationError(
                    f"Cluster '{self._cluster_id}': the commit log '{self._topic}' cannot be created "
                    f"({error.args[0].str()}); create it with one partition and {_shown(_SETTINGS)}, or grant Create on it"
                ) from error
        deadline = time.monotonic() + self._timeout_s
        while (
            self._clients.admin.list_topics(self._topic, timeout=self._timeout_s).topics[self._topic].error is not None
        ):
            if time.monotonic() > deadline:
                raise self._unavailable("was created, but the brokers do not list it yet")
            time.sleep(0.02)

    def _check_settings(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            found = self._clients.admin.describe_configs([resource], request_timeout=self._timeout_s)[resource].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            _log.warning("The settings of the commit log '%s' cannot be checked: grant DescribeConfigs", self._topic)
            return
        wrong = {key: found[key].value for key, value in _SETTINGS.items() if found[key].value != value}
        if wrong:
            raise ConfigurationError(
                f"Cluster '{self._cluster_id}': topic '{self._topic}' has {_shown(wrong)}, so Kafka could delete decisions; "
                f"set {_shown({key: _SETTINGS[key] for key in wrong})}, or name another topic with sink.commit-log.topic"
            )

    def _bounds(self) -> tuple[int, int]:
        partition = TopicPartition(self._topic, 0)
        try:
            bounds: tuple[int, int] | None = self._patiently(
                lambda: self._clients.consumer.get_watermark_offsets(partition, timeout=min(_ASK_S, self._timeout_s))
            )
        except KafkaException as error:
            raise self._unavailable(f"did not report its end ({error.args[0].str()})") from error
        assert bounds is not None
        return bounds

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while brokers are away, which clients report at once; but not after a refused login."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                found = ask()
            except KafkaException as error:
                self._clients.poll()  # brings the errors that were noticed in the background
                denied = self._clients.errors.authentication_failed
                if denied or time.monotonic() > deadline or not _may_pass(error.args[0]):
                    raise
                time.sleep(_PAUSE_S)
            else:
                self._clients.errors.clear()
                return found

    def _unavailable(self, what: str) -> ClusterUnavailableError:
        self._clients.poll()
        errors = self._clients.errors
        reason = f": {errors.last}" if errors.last else ""
        advice = (
            "check its user and password (sasl.*)"
            if errors.authentication_failed
            else "bring the cluster back and start the query again"
        )
        return ClusterUnavailableError(
            f"Cluster '{self._cluster_id}': the commit log '{self._topic}' {what}{reason}; {advice}",
            cluster_id=self._cluster_id,
        )


def _may_pass(error: KafkaError) -> bool:
    return error.retriable() or error.code() in _MAY_PASS


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
