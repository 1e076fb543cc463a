"""Fetching with confluent-kafka's consumer: from its messages to record batches.

Each field of a message becomes a Python object once, one column after the other.
"""

from __future__ import annotations

import sys
from array import array as integers
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from dynamic_kafka.errors import RecordError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import ClusterClients
from dynamic_kafka.rows import COLUMNS, VALUE_ROW
from dynamic_kafka.source.fetching import BATCH_BYTES, BATCH_RECORDS, DAMAGED, Fetched, FetchEvent, Run, Span

__all__ = ["PythonFetcher"]

_LOOKUP_S = 10.0

Messages = Sequence[Message]
_offset = cast("Callable[[Message], int]", Message.offset)  # None only for events


class _Run(NamedTuple):
    """Messages of one partition, in order of offset; at least one."""

    topic: str
    partition: int
    messages: Messages


class PythonFetcher:
    """A `Fetcher` over confluent-kafka's consumer.

    Args:
        clients: The clients of the cluster.
        cluster: The name of the cluster.
        schema: The columns of the batches, from `rows.arrow_schema`.
    """

    def __init__(self, clients: ClusterClients, cluster: str, schema: pa.Schema) -> None:
        self._clients, self._cluster, self._schema = clients, cluster, schema
        self._spans: dict[KafkaTopicPartition, Span] = {}
        self._topic: str | None = None
        self._most_records = BATCH_RECORDS

    def assign(self, spans: Mapping[KafkaTopicPartition, Span]) -> None:
        """See `Fetcher`."""
        self._spans = dict(spans)
        topics = {tp.topic for tp in spans}
        self._topic = topics.pop() if len(topics) == 1 else None
        self._clients.consumer.assign([TopicPartition(*tp, spans[tp].position) for tp in sorted(spans)])

    def seek(self, tp: KafkaTopicPartition, span: Span) -> None:
        """See `Fetcher`."""
        self._spans[tp] = span
        self._clients.consumer.incremental_unassign([TopicPartition(*tp)])
        self._clients.consumer.incremental_assign([TopicPartition(*tp, span.position)])

    def stop(self, tps: Collection[KafkaTopicPartition]) -> None:
        """See `Fetcher`."""
        known = [tp for tp in tps if self._spans.pop(tp, None)]
        if known and self._spans:  # the assignment of the last one ends with the task
            self._clients.consumer.incremental_unassign([TopicPartition(*tp) for tp in known])

    def look_up(self, topic: str) -> None:
        """See `Fetcher`."""
        with suppress(KafkaException):
            self._clients.consumer.list_topics(topic, timeout=_LOOKUP_S)

    def fetch(self, timeout_s: float) -> Fetched:
        """See `Fetcher`."""
        # consume() waits until it has as many messages as requested: never request more than are left.
        left = sum(span.end - span.position for span in self._spans.values())
        found = self._clients.consumer.consume(min(self._most_records, left), timeout_s)
        if not found:
            return self._moved(self._positions_of_the_consumer(), [], is_empty=True)
        ends: dict[KafkaTopicPartition, int] = {}
        events: list[FetchEvent] = []
        if any(map(Message.error, found)):
            found, events, ends = _separated(found)
        positions, runs = self._in_spans(found)
        for tp, end in ends.items():  # after the records: the event for the end of a log follows its last record
            if tp in self._spans and end >= self._spans[tp].end:
                positions[tp] = self._spans[tp].end
        return self._moved(positions, runs, events)

    def _moved(
        self,
        positions: dict[KafkaTopicPartition, int],
        runs: Sequence[_Run],
        events: Sequence[FetchEvent] = (),
        *,
        is_empty: bool = False,
    ) -> Fetched:
        """Move the ranges, stop fetching those that have ended, and return the result."""
        finished = []
        for tp, position in positions.items():
            end = self._spans[tp].end
            self._spans[tp] = Span(position, end)
            if position >= end:
                finished.append(tp)
        self.stop(finished)
        records = sum(len(run.messages) for run in runs)
        return Fetched(positions, records, partial(self._batch, runs), partial(_told, runs), events, is_empty)

    def _positions_of_the_consumer(self) -> dict[KafkaTopicPartition, int]:
        """Return the ends of the ranges that the consumer has passed. The rest of a range may contain no records."""
        found = {}
        for position in self._clients.consumer.position([TopicPartition(*tp) for tp in self._spans]):
            tp = KafkaTopicPartition(position.topic, position.partition)
            if position.offset >= self._spans[tp].end:
                found[tp] = self._spans[tp].end
        return found

    def _in_spans(self, found: Messages) -> tuple[dict[KafkaTopicPartition, int], list[_Run]]:
        """Return the new positions, and the messages within the ranges by partition."""
        positions: dict[KafkaTopicPartition, int] = {}
        kept: list[_Run] = []
        if self._topic is not None:
            topic = self._topic
            partitions = cast("Iterator[int]", map(Message.partition, found))
            runs = [(KafkaTopicPartition(topic, p), len(list(run))) for p, run in groupby(partitions)]
        else:
            tps = zip(map(Message.topic, found), map(Message.partition, found), strict=True)
            grouped = groupby(cast("Iterator[tuple[str, int]]", tps))
            runs = [(KafkaTopicPartition(*tp), len(list(run))) for tp, run in grouped]
        begin = 0
        for tp, length in runs:
            run = found[begin : begin + length]
            begin += length
            if tp not in self._spans:
                continue  # fetched before the range was finished
            end = self._spans[tp].end
            position = positions.get(tp, self._spans[tp].position)
            if _offset(run[0]) < position:  # fetched again after a seek
                run = run[bisect_left(run, position, key=_offset) :]
            if run:
                last = _offset(run[-1])
                positions[tp] = min(last + 1, end)
                if last >= end:
                    run = run[: bisect_left(run, end, key=_offset)]
            if run:
                kept.append(_Run(*tp, run))
        return positions, kept

    def _batch(self, runs: Sequence[_Run], without: Collection[str]) -> pa.RecordBatch | None:
        left = [run for run in runs if run.topic not in without]
        if not left:
            return None
        batch = to_batch(self._schema, self._cluster, left)
        bytes_per_record = max(batch.nbytes / batch.num_rows, 1)
        self._most_records = max(min(BATCH_RECORDS, int(BATCH_BYTES / bytes_per_record)), 1)
        return batch


def _told(runs: Sequence[_Run]) -> list[Run]:
    """Return what `Fetched.runs` does."""
    last = [run.messages[-1].timestamp() for run in runs]
    return [
        (run.topic, run.partition, len(run.messages), time_ms if kind else None)
        for run, (kind, time_ms) in zip(runs, last, strict=True)
    ]


def _separated(found: Messages) -> tuple[list[Message], list[FetchEvent], dict[KafkaTopicPartition, int]]:
    """Return the records, the events, and the ends of the logs, without what follows damaged records.

    What follows would hide that some are missing.
    """
    damaged: set[KafkaTopicPartition] = set()
    records: list[Message] = []
    events: list[FetchEvent] = []
    ends: dict[KafkaTopicPartition, int] = {}
    for message in found:
        error, partition, offset = message.error(), message.partition(), message.offset()
        tp = KafkaTopicPartition(message.topic() or "", -1 if partition is None else partition)
        if error is None:
            if tp not in damaged:
                records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            if tp not in damaged and offset is not None:
                ends[tp] = offset
        else:
            events.append(FetchEvent(*tp, -1 if offset is None else offset, error.code(), error.str()))
            if error.code() in DAMAGED:
                damaged.add(tp)
    return records, events, ends


# --- columns ---


def to_batch(schema: pa.Schema, cluster: str, runs: Sequence[_Run]) -> pa.RecordBatch:
    """Turn messages into one batch.

    Args:
        schema: From `arrow_schema`.
        cluster: The messages' cluster.
        runs: The messages by partition: at least one, and no events.

    Raises:
        RecordError: If a record's time does not fit into Spark's timestamp, or if its headers cannot be read.
    """
    messages = runs[0].messages if len(runs) == 1 else [m for run in runs for m in run.messages]
    n = len(messages)
    times: list[tuple[int, int]] = []
    arrays = []
    for name, data_type in zip(schema.names, schema.types, strict=True):
        if name == "cluster":
            array = pa.repeat(pa.scalar(cluster), n)
        elif name == "topic" and len({run.topic for run in runs}) == 1:
            array = pa.repeat(pa.scalar(runs[0].topic), n)
        elif name == "partition":
            numbers = b"".join([run.partition.to_bytes(4, sys.byteorder) * len(run.messages) for run in runs])
            array = pa.Array.from_buffers(data_type, n, [None, pa.py_buffer(numbers)])
        elif name == "offset":
            array = pa.concat_arrays([_offsets(run.messages) for run in runs])
        elif name in ("timestamp", "timestampType"):
            times = times or list(map(Message.timestamp, messages))
            array = _timestamps(cluster, times, messages) if name == "timestamp" else _timestamp_types(times)
        elif name == VALUE_ROW:
            array = pa.nulls(n, data_type)  # all values are left to Spark
        elif name == "headers":
            array = pa.array([_headers(cluster, message) for message in messages], data_type)
        else:
            array = pa.array(list(map(_GETTERS[name], messages)), data_type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_GETTERS: Mapping[str, Callable[[Message], Any]] = {
    "key": Message.key,
    "value": Message.value,
    "topic": Message.topic,
    "leader_epoch": Message.leader_epoch,
}
# Made of a buffer, because pa.array() imports pandas for anything but numpy's arrays: 120 ms of each new worker.
_ASCENDING = pa.Array.from_buffers(pa.int64(), BATCH_RECORDS, [None, pa.py_buffer(integers("q", range(BATCH_RECORDS)))])


def _offsets(messages: Messages) -> pa.Array:
    first, last, n = messages[0].offset(), messages[-1].offset(), len(messages)
    assert first is not None
    assert last is not None
    if last - first + 1 == n <= len(_ASCENDING):  # no gap: 1 ns a record instead of 45
        return pc.add(_ASCENDING.slice(0, n), first)
    return pa.array(list(map(Message.offset, messages)), pa.int64())


def _timestamps(cluster: str, times: list[tuple[int, int]], messages: Messages) -> pa.Array:
    millis = pa.array(list(map(itemgetter(1), times)), pa.int64())
    try:
        return pc.multiply_checked(millis, 1000).cast(COLUMNS["timestamp"])
    except pa.ArrowInvalid:
        bad = next(m for m, (_, ms) in zip(messages, times, strict=True) if not -(2**63) <= ms * 1000 < 2**63)
        raise _record_error(
            f"the record's timestamp {bad.timestamp()[1]} ms does not fit into a Spark timestamp; leave the timestamp "
            "column out with a schema of your own, or start after this record",
            cluster,
            bad,
        ) from None


def _timestamp_types(times: list[tuple[int, int]]) -> pa.Array:
    # librdkafka: 0 none, 1 create time, 2 log append time; Spark and Java: -1, 0, 1.
    kinds = set(map(itemgetter(0), times))
    if len(kinds) == 1:
        return pa.repeat(pa.scalar(kinds.pop() - 1, pa.int32()), len(times))
    return pa.array([kind - 1 for kind, _ in times], pa.int32())


def _headers(cluster: str, message: Message) -> list[dict[str, Any]] | None:
    try:
        headers = message.headers()
    except SystemError:  # confluent-kafka cannot make a text of a name
        reason = "the name of a header is not UTF-8, which only the native kernel reads (pyspark-dynamic-kafka-native)"
        raise _record_error(reason, cluster, message) from None
    return (
        [{"key": key, "value": value} for key, value in cast("list[tuple[str, bytes]]", headers)] if headers else None
    )


def _record_error(reason: str, cluster: str, message: Message) -> RecordError:
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    return RecordError(reason, cluster_id=cluster, topic=topic, partition=partition, offset=offset)
