"""The records of a cluster as prints, for the comparison of two clusters: `RecordLog` over a consumer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from struct import Struct
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import QUESTIONS, ClientSettings, ClusterClients, kept_clients, with_known_leaders
from dynamic_kafka.kafka.error_codes import NO_SUCH_TOPIC
from dynamic_kafka.source.document.evidence import MARKS, Marks, RecordPrint, Sync
from dynamic_kafka.source.rules.model import KafkaRow

__all__ = ["KafkaRecordLog", "OffsetSyncs", "open_log", "parse_sync", "print_of"]

_HASH_BYTES = 6
_REACH = 64
_POLL_S = 0.1
_LENGTH = Struct(">i")
_PARTITION = Struct(">i")
_OFFSETS = Struct(">qq")
_TUNING = {**QUESTIONS, "fetch.wait.max.ms": "20", "fetch.queue.backoff.ms": "10"}


SyncsOfTopic = dict[KafkaTopicPartition, list[Sync]] | None
"""The offset syncs of each partition, in order; None if the topic does not exist."""


class OffsetSyncs:
    """MirrorMaker's offset syncs for one move: a topic has those of all partitions, and is read once for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], SyncsOfTopic | ClusterUnavailableError] = {}

    def read_once(self, topic: tuple[str, str], read: Callable[[], SyncsOfTopic]) -> SyncsOfTopic:
        """Return the syncs of a topic on a cluster, or raise the error of the first time.

        Args:
            topic: The cluster and the topic.
            read: Reads them. Others wait for it.

        Raises:
            ClusterUnavailableError: If the cluster does not answer.
        """
        with self._lock:
            if topic not in self._found:
                try:
                    self._found[topic] = read()
                except ClusterUnavailableError as error:
                    self._found[topic] = error
            found = self._found[topic]
        if isinstance(found, ClusterUnavailableError):
            raise found
        return found


@contextmanager
def open_log(
    cluster: str,
    properties: Mapping[str, str],
    *,
    group_id: str,
    timeout_s: float,
    syncs: OffsetSyncs | None = None,
) -> Iterator[KafkaRecordLog]:
    """Use the logs of a cluster for a `with` block.

    Args:
        cluster: The cluster.
        properties: The properties to reach it.
        group_id: The consumer group, which nothing joins.
        timeout_s: The longest time without an answer.
        syncs: MirrorMaker's offset syncs that were read already.
    """
    settings = ClientSettings(_TUNING, {"enable.partition.eof": "true", "group.id": group_id})
    with kept_clients("compare", cluster, properties, consumer=settings) as clients:
        yield KafkaRecordLog(cluster, clients, syncs or OffsetSyncs(), timeout_s)


class KafkaRecordLog:
    """`RecordLog` over the clients of a cluster. Only one `records` is read at a time."""

    def __init__(self, cluster: str, clients: ClusterClients, syncs: OffsetSyncs, timeout_s: float) -> None:
        self._cluster, self._clients, self._syncs, self._timeout_s = cluster, clients, syncs, timeout_s
        self._reading: object = None

    def bounds(self, tp: KafkaTopicPartition) -> tuple[int, int]:
        """See `RecordLog`."""
        found: tuple[int, int] | None = self._ask(
            tp, lambda timeout_s: self._clients.consumer.get_watermark_offsets(TopicPartition(*tp), timeout=timeout_s)
        )
        if found is None:
            raise self._no_answer(tp, "no answer to the request for its start and end")
        return found

    def offset_at(self, tp: KafkaTopicPartition, time_ms: int) -> int | None:
        """See `RecordLog`."""
        (found,) = self._offsets([tp], time_ms)
        if found.error is not None:
            raise self._no_answer(tp, found.error.str())
        return found.offset if found.offset >= 0 else None

    def records(self, tp: KafkaTopicPartition, start: int, end: int) -> Iterator[RecordPrint]:
        """See `RecordLog`."""
        for message in self._messages({tp: (start, end)}):
            yield print_of(message)

    def rows_at(self, offsets: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, KafkaRow]:
        """Return the records at offsets, without those that do not exist."""
        found = {}
        for message in self._messages({tp: (offset, offset + 1) for tp, offset in offsets.items()}):
            tp = KafkaTopicPartition(message.topic() or "", message.partition() or 0)
            found[tp] = KafkaRow(message.timestamp()[1], _as_bytes(message.key()), _as_bytes(message.value()))
        return found

    def syncs(self, topic: str, of: KafkaTopicPartition) -> list[Sync] | None:
        """See `RecordLog`."""
        found = self._syncs.read_once((self._cluster, topic), partial(self._read_syncs, topic))
        return None if found is None else found.get(of, [])

    def _read_syncs(self, topic: str) -> SyncsOfTopic:
        tp = KafkaTopicPartition(topic, 0)  # MirrorMaker writes to the first partition only
        listed = self._ask(tp, lambda timeout_s: self._clients.consumer.list_topics(topic, timeout=timeout_s))
        error = listed.topics[topic].error
        if error is not None:
            if error.code() in NO_SUCH_TOPIC:
                return None
            raise self._no_answer(tp, error.str())
        found: dict[KafkaTopicPartition, list[Sync]] = {}
        for message in self._messages({tp: self.bounds(tp)}):
            if (parsed := parse_sync(message.key(), message.value())) is not None:
                found.setdefault(parsed[0], []).append(parsed[1])
        return found

    def marks(self, positions: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, Marks]:
        """Return the last records before each position, as many as the offset document keeps.

        All starts of logs are asked for in one request. A partition that does not answer is left out.
        """
        found: dict[KafkaTopicPartition, deque[RecordPrint]] = {}
        starts = self._starts(positions) if positions else {}
        spans = {tp: (max(start, positions[tp] - _REACH), positions[tp]) for tp, start in starts.items()}
        left: dict[KafkaTopicPartition, int] = {}
        try:
            for message in self._messages(spans, left):
                tp = KafkaTopicPartition(message.topic() or "", message.partition() or 0)
                found.setdefault(tp, deque(maxlen=MARKS)).append(print_of(message))
        except ClusterUnavailableError:
            if len(left) == len(spans):
                raise
        return {tp: Marks(positions[tp], tuple(found.get(tp, ()))) for tp in spans if tp not in left}

    def _starts(self, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Return the starts of logs, without those of partitions that do not answer."""
        answers = self._offsets(tps, OFFSET_BEGINNING)
        return {
            KafkaTopicPartition(a.topic, a.partition): a.offset for a in answers if a.error is None and a.offset >= 0
        }

    def _offsets(self, tps: Collection[KafkaTopicPartition], time_ms: int) -> list[TopicPartition]:
        """Ask for the offsets of a time, of all partitions in one request."""
        consumer = self._clients.consumer
        asked = [TopicPartition(*tp, time_ms) for tp in sorted(tps)]
        found: list[TopicPartition] = self._ask(
            min(tps),
            lambda timeout_s: with_known_leaders(
                consumer,
                {tp.topic for tp in tps},
                lambda: consumer.offsets_for_times(asked, timeout=timeout_s),
                timeout_s=timeout_s,
            ),
        )
        return found

    def _messages(
        self, spans: Mapping[KafkaTopicPartition, tuple[int, int]], left: dict[KafkaTopicPartition, int] | None = None
    ) -> Iterator[Message]:
        """Yield the messages with offsets in [start, end) of each partition, in the order of each.

        Args:
            spans: The ranges.
            left: Takes the partitions that are not read to their ends yet.
        """
        spans = {tp: span for tp, span in spans.items() if span[0] < span[1]}
        if not spans:
            return
        consumer, mine = self._clients.consumer, object()
        self._reading = mine
        consumer.assign([TopicPartition(*tp, start) for tp, (start, _) in spans.items()])
        left = {} if left is None else left
        left |= {tp: end for tp, (_, end) in spans.items()}
        heard_at = time.monotonic()
        try:
            while left:
                message = consumer.poll(_POLL_S)
                if message is None:
                    if time.monotonic() - heard_at > self._timeout_s:
                        raise self._no_answer(next(iter(left)), self._clients.reason() or "nothing arrives")
                    continue
                heard_at = time.monotonic()
                tp = KafkaTopicPartition(message.topic() or "", message.partition() or 0)
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        left.pop(tp, None)
                    elif not error.retriable():
                        raise self._no_answer(tp if message.topic() else next(iter(left)), error.str())
                    continue
                end, offset = left.get(tp, -1), message.offset() or 0
                if offset < end:
                    yield message
                if offset >= end - 1:
                    left.pop(tp, None)
        finally:
            if self._reading is mine:
                consumer.unassign()

    def _ask(self, tp: KafkaTopicPartition, question: Any) -> Any:
        try:
            return self._clients.ask(question, self._timeout_s)
        except KafkaException as error:
            raise self._no_answer(tp, self._clients.reason() or error.args[0].str()) from error

    def _no_answer(self, tp: KafkaTopicPartition, why: str) -> ClusterUnavailableError:
        return ClusterUnavailableError(
            f"Cluster '{self._cluster}', topic '{tp.topic}', partition {tp.partition}: its records could not be compared: "
            f"{why}",
            cluster_id=self._cluster,
        )


def print_of(message: Message) -> RecordPrint:
    """Return what a message is recognized by."""
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]
    flat = [part for name, value in headers for part in (name.encode(), value)]
    return RecordPrint(
        message.offset() or 0,
        message.timestamp()[1],
        _hash(message.key(), message.value()),
        _hash(*flat) if flat else "",
    )


def _as_bytes(part: Any) -> bytes | None:
    return part.encode() if isinstance(part, str) else part


def _hash(*parts: Any) -> str:
    """Return a hash of bytes, of which some may be missing."""
    digest = blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        data = _as_bytes(part)
        digest.update(_LENGTH.pack(-1 if data is None else len(data)))
        digest.update(data or b"")
    return digest.hexdigest()


def parse_sync(key: Any, value: Any) -> tuple[KafkaTopicPartition, Sync] | None:
    """Return what a record of MirrorMaker's offset-syncs topic says; None for a record without a value.

    The key is a text (two bytes of length) and a partition of 4 bytes, the value two offsets of 8 bytes. See
    `org.apache.kafka.connect.mirror.OffsetSync`.
    """
    if not key or not value:
        return None
    length = int.from_bytes(key[:2], "big")
    (partition,) = _PARTITION.unpack_from(key, 2 + length)
    return KafkaTopicPartition(key[2 : 2 + length].decode(), partition), Sync(*_OFFSETS.unpack_from(value))
