"""The commit log on Kafka: a topic of one partition that every driver reads to its end and appends to.

Its settings are made or checked before the first use: nothing may be deleted or compacted away but what its owner trims.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError
from dynamic_kafka.kafka.config.properties import client_config
from dynamic_kafka.kafka.logs import CLIENT_LOG
from dynamic_kafka.sink.protocol import Chain, Record, State, Transaction, follow

__all__ = ["CommitLog", "decode", "encode", "look"]

_log = logging.getLogger(__name__)

_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_SEGMENT_BYTES = 1024 * 1024  # trimmed records leave the disk in whole segments
_TRIM_AFTER = 300
_APPEND_S = 10.0
_PAUSE_S = 0.2
_ASK_S = 5.0

T = TypeVar("T")


def encode(record: Record) -> bytes:
    """A record as JSON."""
    return json.dumps({"version": 1, **asdict(record)}, separators=(",", ":")).encode()


def decode(text: bytes | None) -> Record | None:
    """The record; None if it is none of ours, which then does not count."""
    try:
        found = json.loads(text or b"")
        state = dict(found["state"])
        state["transactions"] = tuple(Transaction(*t) for t in state["transactions"])
        return Record(found["name"], found["follows"], State(**state)) if found["version"] == 1 else None
    except (ValueError, TypeError, KeyError):
        return None


def look(cluster_id: str, properties: Mapping[str, str], topic: str, *, timeout_ms: int) -> Chain | None:
    """What a commit log says now, for who does not write: nothing is created or checked.

    Args:
        cluster_id: See `CommitLog`; so the others.
        properties: How to reach the cluster.
        topic: The topic.
        timeout_ms: How long it may take.

    Returns:
        The head of the chain; None if there is no such topic.

    Raises:
        ClusterUnavailableError: If it does not answer.
        ConfigurationError: If the topic is no commit log.
    """
    log = CommitLog(cluster_id, properties, topic, replication=None, timeout_ms=timeout_ms, read_only=True)
    try:
        return log.read() if log.exists() else None
    finally:
        log.close()


class CommitLog:
    """One commit log, as one process sees it. For one thread.

    Args:
        cluster_id: The cluster it lives on.
        properties: How to reach it, in Java's or librdkafka's names, secrets as they were given.
        topic: The topic.
        replication: Replicas if it has to be made; None is the brokers' default.
        timeout_ms: How long a read or an append may take.
        read_only: Whether the topic is left as it is, also if it is not there, and nothing is appended; see `look`.
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
        common: dict[str, Any] = {"error_cb": self._note_error, "logger": CLIENT_LOG}
        self._client_error, self._denied = "", False
        self._admin = AdminClient({**client_config(properties, role="admin"), **common})
        self._consumer = Consumer(
            {
                **client_config(properties, role="consumer"),
                **common,
                "group.id": "dynamic-kafka-commit-log",  # not joined, nothing is committed to it
                "enable.auto.commit": "false",
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                # A fetch that waits for records holds up the questions behind it, so it does not wait.
                "fetch.wait.max.ms": "1",
            }
        )
        self._chain = Chain()
        self._next = -1
        self._low = 0
        self._producer: Producer | None = None
        if read_only:
            return
        self._producer = Producer(
            {
                **client_config(properties, role="producer"),
                **common,
                "enable.idempotence": "true",
                "acks": "all",
                "linger.ms": "0",
                "message.timeout.ms": str(int(_APPEND_S * 1000)),
            }
        )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def exists(self) -> bool:
        """Whether the topic is there.

        Raises:
            ClusterUnavailableError: If that cannot be told.
            ConfigurationError: If it is no commit log: one has one partition.
        """
        try:
            found = self._admin.list_topics(self._topic, timeout=self._timeout_s).topics[self._topic]
        except KafkaException as error:
            raise self._unavailable(f"could not be looked up ({error.args[0].str()})") from error
        if found.error is None:
            self._check_partitions(len(found.partitions))
            return True
        if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return False
        raise ClusterUnavailableError(
            f"Cluster '{self._cluster_id}': the commit log '{self._topic}' cannot be looked up ({found.error.str()}); grant "
            "Describe and Read on it, or see the log of the brokers",
            cluster_id=self._cluster_id,
        )

    def read(self) -> Chain:
        """Read to the end that the log has now.

        Raises:
            ClusterUnavailableError: If it does not answer; silence is never taken for the end.
        """
        deadline = time.monotonic() + self._timeout_s
        low, high = self._bounds()
        if not low <= self._next <= high:  # the first read, or it was trimmed beyond what was read, or made again
            self._chain, self._next, self._low = Chain(), low, low
        if self._next < high:
            self._consumer.assign([TopicPartition(self._topic, 0, self._next)])
            trimmed = self._read_to(high, deadline)
            self._consumer.unassign()
            if trimmed:
                return self.read()
        return self._chain

    def _read_to(self, high: int, deadline: float) -> bool:
        """Read on; whether somebody has trimmed meanwhile what was to be read."""
        while self._next < high:
            for message in self._consumer.consume(high - self._next, timeout=0.1):
                if (error := message.error()) is not None:
                    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                        return True
                    if error.code() != KafkaError._PARTITION_EOF:
                        self._client_error = error.str()
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
            ClusterUnavailableError: If it was never acknowledged; it may be in the log all the same.
        """
        assert self._producer is not None, "opened to read"
        value = encode(record)
        deadline = time.monotonic() + self._timeout_s
        while True:
            outcome: list[tuple[KafkaError | None, int | None]] = []

            def note(error: KafkaError | None, message: Message, outcome: list[Any] = outcome) -> None:
                outcome.append((error, message.offset()))

            self._producer.produce(self._topic, value, partition=0, on_delivery=note)
            self._producer.flush(_APPEND_S + 1)
            error, offset = outcome[0] if outcome else (None, None)
            if outcome and error is None:
                if offset == self._next:  # nothing is between what was read and this: no need to fetch it
                    self._take(offset, record)
                return
            if error is not None:
                self._client_error = error.str()
            if time.monotonic() > deadline or (error is not None and not _may_pass(error)):
                raise self._unavailable("could not be appended to")

    def _take(self, offset: int, record: Record | None) -> None:
        if record is None:
            _log.warning("The commit log '%s' has a record that is none of ours at offset %d", self._topic, offset)
        else:
            self._chain = follow(self._chain, offset, record, first=offset == self._low)
        self._next = offset + 1

    def trim(self) -> None:
        """Delete what lies before the head, now and then."""
        head = self._chain.offset
        if head - self._low < _TRIM_AFTER:
            return
        try:
            for future in self._admin.delete_records([TopicPartition(self._topic, 0, head)]).values():
                future.result(self._timeout_s)
        except KafkaException as error:
            _log.warning("The commit log '%s' could not be trimmed: %s", self._topic, error.args[0].str())
        self._low = head  # also if it failed: not again before there is as much more

    def serve(self) -> None:
        """See `kafka.idle`."""
        self._note_errors()
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Close the clients; never waits for a broker."""
        self._consumer.close()
        del self._admin, self._consumer, self._producer  # they refer back to this, so they would wait for the collector

    # --- the topic ---

    def _prepare(self) -> None:
        try:
            # Asked in short turns: a refused login is told between them only.
            found = self._patiently(lambda: self._admin.list_topics(self._topic, timeout=min(_ASK_S, self._timeout_s)))
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
                f"Cluster '{self._cluster_id}': topic '{self._topic}' has {count} partitions, and a commit log has one; "
                "name another with sink.commit-log.topic"
            )

    def _create(self) -> None:
        replication = -1 if self._replication is None else self._replication
        settings = {**_SETTINGS, "segment.bytes": str(_SEGMENT_BYTES)}
        topic = NewTopic(self._topic, num_partitions=1, replication_factor=replication, config=settings)
        try:
            self._admin.create_topics([topic], request_timeout=self._timeout_s)[self._topic].result(self._timeout_s + 1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConfigurationError(
                    f"Cluster '{self._cluster_id}': the commit log '{self._topic}' cannot be created "
                    f"({error.args[0].str()}); create it with one partition and {_shown(_SETTINGS)}, or grant Create on it"
                ) from error
        deadline = time.monotonic() + self._timeout_s
        while self._admin.list_topics(self._topic, timeout=self._timeout_s).topics[self._topic].error is not None:
            if time.monotonic() > deadline:
                raise self._unavailable("was created and does not appear")
            time.sleep(0.02)

    def _check_settings(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            found = self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            _log.warning("The settings of the commit log '%s' cannot be checked: grant DescribeConfigs", self._topic)
            return
        wrong = {key: found[key].value for key, value in _SETTINGS.items() if found[key].value != value}
        if wrong:
            raise ConfigurationError(
                f"Cluster '{self._cluster_id}': topic '{self._topic}' has {_shown(wrong)}, so that decisions could go; "
                f"set {_shown({key: _SETTINGS[key] for key in wrong})}, or name another with sink.commit-log.topic"
            )

    def _bounds(self) -> tuple[int, int]:
        partition = TopicPartition(self._topic, 0)
        try:
            bounds: tuple[int, int] | None = self._patiently(
                lambda: self._consumer.get_watermark_offsets(partition, timeout=self._timeout_s)
            )
        except KafkaException as error:
            raise self._unavailable(f"does not tell its end ({error.args[0].str()})") from error
        assert bounds is not None
        return bounds

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while brokers are away, which clients tell at once; a refused login is no such case."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except KafkaException as error:
                self._note_errors()
                if self._denied or time.monotonic() > deadline or not _may_pass(error.args[0]):
                    raise
                time.sleep(_PAUSE_S)

    def _note_errors(self) -> None:
        """Let the clients tell what they noticed in the background."""
        self._admin.poll(0)
        self._consumer.poll(0)

    def _note_error(self, error: KafkaError) -> None:
        self._denied = self._denied or error.code() == KafkaError._AUTHENTICATION
        if not (self._denied and error.code() == KafkaError._ALL_BROKERS_DOWN):
            self._client_error = error.str()

    def _unavailable(self, what: str) -> ClusterUnavailableError:
        self._note_errors()
        reason = f": {self._client_error}" if self._client_error else ""
        advice = (
            "check its user and password (sasl.*)"
            if self._denied
            else "bring the cluster back and start the query again"
        )
        return ClusterUnavailableError(
            f"Cluster '{self._cluster_id}': the commit log '{self._topic}' {what}{reason}; {advice}",
            cluster_id=self._cluster_id,
        )


def _may_pass(error: KafkaError) -> bool:
    return error.retriable() or error.code() in (
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._UNKNOWN_PARTITION,  # what a consumer calls one whose broker has just gone
    )


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
