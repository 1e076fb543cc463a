"""Producing with the native kernel: columns become records of librdkafka without a Python object for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import KafkaError

from dynamic_kafka.kafka.clients import ClusterClients
from dynamic_kafka.native import kernel
from dynamic_kafka.sink.producing import Failure, Failures, Refusal
from dynamic_kafka.sink.records import Records

__all__ = ["NativeProducer"]

T = TypeVar("T")


class NativeProducer:
    """A `RecordProducer` over the native kernel.

    Args:
        clients: The clients of the cluster.
    """

    implementation = "native"

    def __init__(self, clients: ClusterClients) -> None:
        self._clients, self._producer = clients, clients.native_producer

    def produce(self, records: Records, task: int, make_room: Callable[[], None]) -> Refusal | None:
        """See `RecordProducer`."""
        rows = kernel().module.Rows(records.rows, records.topics)
        first: int | None = None
        while True:
            # Acknowledged records leave the queue at any moment: if it is empty after a call, it may still have been full.
            was_empty = not len(self)
            stop = self._producer.produce(rows, task)
            if stop is None:
                return None
            row, code = stop
            took_none = row == first
            if code != KafkaError._QUEUE_FULL or (was_empty and took_none):
                return Refusal(row, KafkaError(code))
            first = row
            make_room()

    def __len__(self) -> int:
        return len(self._producer)

    def poll(self, timeout_s: float) -> None:
        """See `RecordProducer`."""
        self._noted(self._producer.poll, timeout_s)

    def flush(self, timeout_s: float) -> int:
        """See `RecordProducer`."""
        left: int = self._noted(self._producer.flush, timeout_s)
        return left

    def failures(self) -> Sequence[Failures]:
        """See `RecordProducer`."""
        return [
            Failures(task, count, Failure(topic, partition, key_bytes, KafkaError(code)))
            for task, count, code, topic, partition, key_bytes in self._producer.failures()
        ]

    def look_up(self, topic: str, timeout_s: float) -> tuple[int, KafkaError | None]:
        """See `RecordProducer`."""
        count, code = self._noted(lambda seconds: self._producer.look_up(topic, seconds), timeout_s)
        return count, KafkaError(code) if code else None

    def purge(self) -> None:
        """See `RecordProducer`."""
        self._producer.purge()

    def init_transactions(self, timeout_s: float) -> None:
        """See `RecordProducer`."""
        self._producer.init_transactions(timeout_s)

    def begin_transaction(self) -> None:
        """See `RecordProducer`."""
        self._producer.begin_transaction()

    def abort_transaction(self, timeout_s: float) -> None:
        """See `RecordProducer`."""
        self._noted(self._producer.abort_transaction, timeout_s)

    def _noted(self, call: Callable[[float], T], timeout_s: float) -> T:
        try:
            return call(timeout_s)
        finally:
            self._clients.note_reports()
