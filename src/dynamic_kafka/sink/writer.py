"""One task of the sink, without transactions of its own: from Arrow batches to acknowledged records.

`write` hands all rows to the producers, `flush` waits for the acknowledgements. Exactly-once does the same with producers
that are in a transaction. Rules:

1. Nothing is sent to a topic that was not looked up (see `producers`).
2. The first delivery error fails the task as soon as it is reported. Later errors are mostly consequences of it.
3. If the queue is full, its records are sent at once, whatever linger.ms is, as by Java's client. The task waits until half
   of it is free: enough to stay ahead of the brokers, without a busy loop.

What is done for each record is in `record_producer.RecordProducer`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import pyarrow as pa
from confluent_kafka import KafkaError

from dynamic_kafka.errors import DeliveryError
from dynamic_kafka.sink.dead_letters import with_letters
from dynamic_kafka.sink.producers import ClusterProducer, TaskProducers
from dynamic_kafka.sink.record_producer import Refusal
from dynamic_kafka.sink.records import UNASSIGNED, Records, by_cluster, to_records
from dynamic_kafka.sink.report import TaskReport, Volume
from dynamic_kafka.sink.settings import WriteTask

__all__ = ["Written", "flush", "hand_over", "write"]

_CHUNK_ROWS = 5_000
_CHUNK_BYTES = 4 * 1024 * 1024
_ROOM_S = 0.005  # an acknowledgement is not reported, so nothing returns for it
_FLUSH_S = 0.5
_PURGED = KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT

_numbers = count(1)


@dataclass
class Written:
    """The records that a task has handed over, and their first error.

    `used` are the producers by cluster, and `task` is a number of the task in this process. `errors` counts the records that
    were not acknowledged.
    """

    report: TaskReport = field(default_factory=TaskReport)
    used: dict[str, ClusterProducer] = field(default_factory=dict)
    task: int = field(default_factory=partial(next, _numbers))
    error: DeliveryError | None = None
    errors: int = 0

    def check(self) -> None:
        """Raise the first delivery error, if there is one, or if a cluster has come to refuse the login."""
        for producer in self.used.values():
            failed = producer.failures(self.task)
            if failed is None:
                continue
            self.errors += failed.records
            if self.error is None:
                if failed.first.error.code() in _PURGED:  # with the other records of a transaction that has failed
                    self.error = producer.transaction_error()
                else:
                    self.error = producer.delivery_error(*failed.first)
        if self.error is not None:
            raise self.error
        for producer in self.used.values():
            if producer.errors.authentication_failed and len(producer.client) > 0:
                # A secret was replaced, or is about to be. librdkafka would log in with the old one again and again.
                raise producer.unavailable("records cannot be written")


def write(batches: Iterator[pa.RecordBatch], task: WriteTask, producers: TaskProducers, *, task_number: int) -> Written:
    """Hand all rows of a task to the producers; does not wait until they are acknowledged.

    The schema of the rows was checked. A producer is asked for when the first row for its cluster comes. The numbers of
    tasks are from 0 on.

    Raises:
        RowError: If a row cannot be turned into a record.
        DeliveryError: If a record is refused, or one that was sent before was not acknowledged.
        ClusterUnavailableError: If a cluster does not answer.
    """
    written = Written()
    if task.settings.partitioner is not None:
        task.settings.partitioner.open(task_number, 0)  # Spark does not give a task their number
    volumes: dict[str, Volume] = {}
    write_s, dead_letters = 0.0, 0
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
                    destination = task.destinations[cluster]
                    records: Records | None
                    if task.settings.dead_letter_topic is None:
                        records = to_records(rows, destination, task.settings, producer.partitions)
                    else:
                        records, letters, bad = with_letters(rows, destination, task.settings, producer)
                        if letters is not None:
                            hand_over(letters, producer, written)
                            dead_letters += bad
                    if records is not None:
                        hand_over(records, producer, written)
                        volumes[cluster] = volumes.get(cluster, Volume()) + records.volume
                    producer.poll(0)
                    written.check()
            write_s += time.perf_counter() - began
    finally:
        if collecting:
            gc.enable()
    written.report = TaskReport(volumes, written.errors, dead_letters, write_s * 1000)
    return written


def flush(written: Written) -> TaskReport:
    """Wait until all records are acknowledged, and return the task's report with the time that this took.

    It takes as long as the brokers need, up to the producers' `delivery.timeout.ms`. The first `DeliveryError` is raised as
    soon as it is reported.
    """
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


def hand_over(records: Records, producer: ClusterProducer, written: Written) -> None:
    """Put records into the producer's queue, in order, however often it is full.

    Raises:
        DeliveryError: If a record is refused, or one that was sent before was not acknowledged.
    """
    refused = producer.client.produce(records, written.task, partial(_make_room, producer, written))
    if refused is not None:
        producer.poll(0)  # raises the fatal error, if there was one
        if refused.error.code() == KafkaError._STATE:
            raise producer.transaction_error()
        raise _refused(producer, refused, records)


def _make_room(producer: ClusterProducer, written: Written) -> None:
    enough = len(producer.client) // 2
    while len(producer.client) > enough:
        producer.flush(_ROOM_S)
        written.check()


def _refused(producer: ClusterProducer, refused: Refusal, records: Records) -> DeliveryError:
    row = records.rows.slice(refused.row, 1).to_pylist()[0]
    key, value, partition = row.get("key"), row["value"], row.get("partition")
    return producer.delivery_error(
        refused.error,
        records.topics[row.get("topic", 0)],
        UNASSIGNED if partition is None else partition,
        None if key is None else len(key),
        refused_bytes=len(value or b"") + len(key or b""),
    )
