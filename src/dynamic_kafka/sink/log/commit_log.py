"""The commit log on Kafka: a topic of one partition that every driver reads to its end and appends to.

Only the log's owner deletes records, by trimming. A start reads whatever was left in pieces, however much it is. A record
is compressed, because a decision names each transaction.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from dynamic_kafka.errors import ConfigurationError, TransactionError
from dynamic_kafka.kafka.clients import QUESTIONS, ClientSettings, ClusterClients, with_known_leaders
from dynamic_kafka.kafka.error_codes import may_pass
from dynamic_kafka.sink.log.chain import Chain, Record, follow, next_generation
from dynamic_kafka.sink.log.place import place
from dynamic_kafka.sink.log.records import Pointer, UnreadableRecordError, decode, encode
from dynamic_kafka.sink.log.topic import ASK_S, LogTopic

__all__ = ["CommitLog", "read_commit_log", "supersede"]

_log = logging.getLogger(__name__)

_TRIM_AFTER = 300
_TRIM_S = 5.0
_MOST_RECORDS = 10_000  # in one piece; confluent-kafka allows a million
_CONSUMER = {
    "group.id": "dynamic-kafka-commit-log",  # not joined, nothing is committed to it
    "isolation.level": "read_uncommitted",
    # A fetch that waits for records holds up the questions behind it, so it does not wait.
    "fetch.wait.max.ms": "1",
}
_PRODUCER = {
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": "0",
    "compression.type": "gzip",
    "message.max.bytes": str(100 * 1000 * 1000),  # before compression; the topic's limit is for what remains
}
_APPEND_S = 10.0
_TURN_S = 0.5  # a refused login is noticed between two turns
_APPEARS_S = 10.0


def read_commit_log(cluster_id: str, properties: Mapping[str, str], topic: str, *, timeout_ms: int) -> Chain | None:
    """Return the head of a commit log's chain now; None if its topic does not exist.

    Nothing is written: the topic is neither created nor checked nor appended to.

    Raises:
        ClusterUnavailableError: If the cluster does not answer.
        ConfigurationError: If the topic is not a commit log, or says that the log is somewhere else.
        TransactionError: If it has a record that only a newer version can read.
    """
    with closing(CommitLog(cluster_id, properties, topic, timeout_ms=timeout_ms)) as log:
        if not log.topic.exists():
            return None
        chain = log.read()
        pointed = None if log.pointer is None or chain.offset >= 0 else log.pointer[1].place
        there = chain.state.places[-1] if chain.state.places else pointed
        if there is not None and there != place(log.topic.kafka_id(), topic):
            kafka_id, _, name = there.partition("/")
            raise ConfigurationError(
                f"Cluster '{cluster_id}': topic '{topic}' says that the commit log is on another cluster or in another "
                f"topic: cluster.id {kafka_id}, topic '{name}'. Give the command that cluster's bootstrap.servers with "
                "--commit-log-property, and the topic with --commit-log"
            )
        return chain


def supersede(cluster_id: str, properties: Mapping[str, str], topic: str, chain: Chain, *, timeout_ms: int) -> bool:
    """Claim the next generation for nothing, so that the one at a chain's head cannot decide any more.

    Returns:
        True if the claim counts; False if the chain has moved on since it was read.

    Raises:
        ClusterUnavailableError: If the cluster does not answer, or refuses the record.
    """
    name = uuid.uuid4().hex
    with closing(CommitLog(cluster_id, properties, topic, timeout_ms=timeout_ms)) as log:
        log.append(Record(name, chain.offset, next_generation(chain.state, name)))
        return name in log.read().recent


class CommitLog:
    """One commit log, as one process sees it. For one thread.

    Args:
        cluster_id: The cluster of the topic.
        properties: The properties to reach it.
        topic: The topic.
        timeout_ms: The longest time that an append may take, and that a read may take without progress.

    Attributes:
        topic: The topic, for its making and its settings.
        pointer: The offset and the content of the last pointer in the topic; None if it has none. A pointer is a record with
            the place of the log, for topics on other clusters and for a log that was moved.
    """

    def __init__(self, cluster_id: str, properties: Mapping[str, str], topic: str, *, timeout_ms: int) -> None:
        producer = {**_PRODUCER, "message.timeout.ms": str(int(_APPEND_S * 1000))}
        self._clients = ClusterClients(
            properties,
            # A broker that hangs keeps its connections open. With a short time-out the new leader is asked soon instead.
            consumer=ClientSettings(QUESTIONS, _CONSUMER),
            producer=ClientSettings(QUESTIONS, producer),
        )
        self.topic = LogTopic(cluster_id, topic, self._clients, timeout_ms=timeout_ms)
        self.pointer: tuple[int, Pointer] | None = None
        self._chain = Chain()
        self._next = -1
        self._start = self._low = 0

    def read(self) -> Chain:
        """Read to the end that the log has now, and return the head of the chain.

        Raises:
            ClusterUnavailableError: If the cluster does not answer; silence is never taken for the end.
            TransactionError: If it has a record that only a newer version can read.
        """
        low, high = self._bounds()
        if not low <= self._next <= high:  # the first read, or it was trimmed beyond what was read, or made again
            self._chain, self.pointer = Chain(), None
            self._next = self._start = self._low = low
        if self._next < high:
            self._assign()
            trimmed = self._read_to(high)
            self._clients.consumer.unassign()
            if trimmed:
                return self.read()
        return self._chain

    def _assign(self) -> None:
        self._clients.consumer.assign([TopicPartition(self.topic.name, 0, self._next)])

    def _read_to(self, high: int) -> bool:
        """Read to an offset. Return whether records that were to be read have been trimmed meanwhile."""
        deadline = time.monotonic() + self.topic.timeout_s
        while self._next < high:
            if self._clients.errors.authentication_failed:  # `consume` has brought it; a poll could lose a record
                if not self._clients.rest_after_refusal(deadline):
                    raise self.topic.unavailable(f"could not be read beyond offset {self._next} of {high}")
                self._assign()
            for message in self._clients.consumer.consume(min(high - self._next, _MOST_RECORDS), timeout=0.1):
                if (error := message.error()) is not None:
                    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                        return True
                    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise self.topic.denied("Read")
                    if error.code() != KafkaError._PARTITION_EOF:
                        self._clients.errors.note(error)
                    continue
                offset = message.offset()
                assert offset is not None
                self._take_text(offset, message.value())
                deadline = time.monotonic() + self.topic.timeout_s
            if time.monotonic() > deadline:
                raise self.topic.unavailable(f"could not be read beyond offset {self._next} of {high}")
        return False

    def append(self, record: Record | Pointer) -> None:
        """Append, and repeat it while the outcome is not known: a second copy cannot count.

        Raises:
            ClusterUnavailableError: If it was never acknowledged. It may still be in the log.
            TransactionError: If it is too large.
        """
        value = encode(record)
        deadline = time.monotonic() + self.topic.timeout_s
        while True:
            outcome: list[tuple[KafkaError | None, int | None]] = []

            def note(error: KafkaError | None, message: Message, outcome: list[Any] = outcome) -> None:
                outcome.append((error, message.offset()))

            self._clients.errors.clear()
            try:
                self._clients.producer.produce(self.topic.name, value, partition=0, on_delivery=note)
            except KafkaException as failed:  # at once, for what is too large even for the client
                outcome.append((failed.args[0], None))
            until = time.monotonic() + _APPEND_S + 1
            while self._clients.producer.flush(_TURN_S) and time.monotonic() < until and not self.topic.is_refused():
                pass
            error, offset = outcome[0] if outcome else (None, None)
            if outcome and error is None:
                if offset == self._next:  # nothing is between what was read and this: no need to fetch it
                    self._take(offset, record)
                return
            if error is not None:
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self._too_large(record, len(value))
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self.topic.denied("Write")
                self._clients.errors.note(error)
            refused = self.topic.is_refused()
            if refused and self._clients.rest_after_refusal(deadline):
                continue
            if refused or time.monotonic() > deadline or (error is not None and not may_pass(error)):
                raise self.topic.unavailable("could not be appended to")

    def _take_text(self, offset: int, text: bytes | None) -> None:
        try:
            self._take(offset, decode(text))
        except UnreadableRecordError as error:
            raise TransactionError(
                f"Cluster '{self.topic.cluster}': the commit log '{self.topic.name}' has a record at offset {offset} that "
                f"this version of the package cannot read ({error}). Nothing is written, because it is not known what was "
                "decided; use the newest version for all writers of this prefix",
                cluster_id=self.topic.cluster,
            ) from error

    def _take(self, offset: int, record: Record | Pointer | None) -> None:
        match record:
            case Record():
                self._chain = follow(self._chain, offset, record, start=self._start)
            case Pointer():
                self.pointer = offset, record
            case None:
                _log.warning(
                    "The commit log '%s' has a record of another program at offset %d, which does not count",
                    self.topic.name,
                    offset,
                )
        self._next = offset + 1

    def trim(self) -> None:
        """Delete the records before the head, if they are many. A failure is a warning: it is tried again later."""
        head = self._chain.offset
        if head - self._low < _TRIM_AFTER:
            return
        try:
            deleted = self._clients.admin.delete_records(
                [TopicPartition(self.topic.name, 0, head)], request_timeout=_TRIM_S, operation_timeout=_TRIM_S
            )
            for future in deleted.values():
                future.result(_TRIM_S + 1)
        except (KafkaException, FutureTimeoutError) as error:
            why = error.args[0].str() if isinstance(error, KafkaException) else "the brokers do not answer"
            _log.warning("The commit log '%s' could not be trimmed: %s", self.topic.name, why)
        self._low = head  # also if it failed: the next try is after as many records more

    def deleted(self) -> TransactionError:
        """Return the error for a log that was there a moment ago."""
        return TransactionError(
            f"Cluster '{self.topic.cluster}': the commit log '{self.topic.name}' or its records were deleted while it was "
            "in use, so it is not known any more what was published. Start the query again: the error then says how to go "
            "on",
            cluster_id=self.topic.cluster,
        )

    def poll_idle(self) -> bool:
        """See `ClientPool`."""
        return self._clients.poll_idle()

    def close(self) -> None:
        """Close the clients; never waits for a broker."""
        self._clients.close()

    def _bounds(self) -> tuple[int, int]:
        name, ask_s = self.topic.name, min(ASK_S, self.topic.timeout_s)
        began = time.monotonic()

        def ask() -> tuple[int, int] | None:
            try:
                return self._clients.ask(
                    lambda s: self._clients.consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=s), ask_s
                )
            except KafkaException as error:
                # A broker that starts does not know all topics at once.
                unknown = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if unknown and time.monotonic() - began > _APPEARS_S and not self.topic.exists():
                    raise self.deleted() from error
                raise

        try:
            bounds = self.topic.patiently(
                lambda: with_known_leaders(self._clients.consumer, [name], ask, timeout_s=ask_s)
            )
        except KafkaException as error:
            raise self.topic.unavailable(f"did not report its end ({error.args[0].str()})") from error
        assert bounds is not None
        return bounds

    def _too_large(self, record: Record | Pointer, size: int) -> TransactionError:
        count = len(record.state.transactions) if isinstance(record, Record) else 0
        return TransactionError(
            f"Cluster '{self.topic.cluster}': a decision about {count} transactions ({size} bytes before compression) is "
            f"larger than the commit log '{self.topic.name}' allows. Nothing of the batch is published; raise the topic's "
            "max.message.bytes, or write with fewer tasks (df.coalesce, sink.parallelism)",
            cluster_id=self.topic.cluster,
        )
