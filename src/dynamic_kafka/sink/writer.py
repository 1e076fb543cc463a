"""One task of the sink, without transactions of its own: from Arrow batches to acknowledged records.

`write` hands all rows to the producers, `flush` waits for the acknowledgements. Exactly-once does the same with producers
that are in a transaction. Rules:

1. Nothing is sent to a topic that was not looked up (see `producers`).
2. The first delivery error fails the task as soon as it is reported. Later errors are mostly consequences of it.
3. If the queue is full, the task waits until half of it is free: enough to stay ahead of the brokers, without a busy loop.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap
from operator import length_hint
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from dynamic_kafka.errors import DeliveryError
from dynamic_kafka.sink.producers import ClusterProducer, TaskProducers
from dynamic_kafka.sink.records import by_cluster, to_records
from dynamic_kafka.sink.report import TaskReport, Volume
from dynamic_kafka.sink.settings import WriteTask

__all__ = ["Written", "flush", "write"]

_log = logging.getLogger(__name__)

_CHUNK_ROWS = 5_000
_CHUNK_BYTES = 4 * 1024 * 1024
_POLL_S = 0.1
_FLUSH_S = 0.5
_PURGED = KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT


@dataclass
class Written:
    """The records that a task has handed over, and their first error.

    Attributes:
        report: The metrics.
        used: The producers used, by cluster.
        error: The first delivery error.
        purged: A producer that has dropped records because its transaction failed.
        errors: The number of records that were not acknowledged.
        unattended: True while nothing waits for the records, as with `none` after the task has ended.
    """

    report: TaskReport = field(default_factory=TaskReport)
    used: dict[str, ClusterProducer] = field(default_factory=dict)
    error: DeliveryError | None = None
    purged: ClusterProducer | None = None
    errors: int = 0
    unattended: bool = False

    def delivered(self, producer: ClusterProducer, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report of librdkafka."""
        if error is None:
            return
        self.errors += 1
        if error.code() in _PURGED and not self.unattended:
            self.purged = producer
        elif self.error is None:
            key = message.key()
            partition = message.partition()
            self.error = producer.delivery_error(
                error, message.topic() or "", -1 if partition is None else partition, key
            )
            if self.unattended:
                _log.warning("A record of an earlier batch was lost: %s", self.error)

    def check(self) -> None:
        """Raise the first delivery error, if there is one."""
        if self.error is None and self.purged is not None:
            self.error = self.purged.transaction_error()
        if self.error is not None:
            raise self.error


def write(batches: Iterator[pa.RecordBatch], task: WriteTask, producers: TaskProducers, *, task_number: int) -> Written:
    """Hand all rows of a task to the producers; does not wait until they are acknowledged.

    Args:
        batches: The rows; their schema was checked.
        task: The destinations and settings.
        producers: The source of producers, one for each cluster. It is asked when the first row for a cluster comes.
        task_number: The task's number in its batch, from 0.

    Raises:
        RowError: If a row cannot be turned into a record.
        DeliveryError: If a record is refused, or one that was sent before was not acknowledged.
        ClusterUnavailableError: If a cluster does not answer.
    """
    written = Written()
    if task.settings.partitioner is not None:
        task.settings.partitioner.open(task_number, 0)  # Spark does not give a task their number
    volumes: dict[str, Volume] = {}
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
                    producer.poll(0)
                    written.check()
            write_s += time.perf_counter() - began
    finally:
        if collecting:
            gc.enable()
    written.unattended = True  # until `flush`
    written.report = TaskReport(volumes, written.errors, write_s * 1000)
    return written


def flush(written: Written) -> TaskReport:
    """Wait until all records are acknowledged, and return the task's report with the time that this took.

    It takes as long as the brokers need, up to the producers' `delivery.timeout.ms`. The first `DeliveryError` is raised as
    soon as it is reported.
    """
    written.unattended = False
    began = time.perf_counter()
    waiting = list(written.used.values())
    while waiting:
        waiting = [p for p in waiting if p.flush(_FLUSH_S / len(waiting))]
        written.check()
    return replace(written.report, flush_ms=(time.perf_counter() - began) * 1000)


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Return slices of a batch, small enough that its rows as Python objects take little memory."""
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
            producer.poll(0)  # raises the fatal error, if there was one
            if error.args[0].code() == KafkaError._STATE:
                raise producer.transaction_error() from error
            raise _refused(producer, error.args[0], arguments, place) from error
        else:
            return


def _make_room(producer: ClusterProducer, written: Written) -> None:
    enough = len(producer.client) // 2
    while len(producer.client) > enough:
        producer.poll(_POLL_S)  # returns as soon as something was acknowledged
        written.check()


def _refused(producer: ClusterProducer, error: KafkaError, arguments: list[list[Any]], place: int) -> DeliveryError:
    topic, value, key, partition = [column[place] for column in arguments[:4]]
    size = len(value or b"") + len(key or b"")
    return producer.delivery_error(error, topic, partition, key, refused_bytes=size)
