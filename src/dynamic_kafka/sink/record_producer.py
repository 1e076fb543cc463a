"""The producer of a cluster in a task of the sink: columns in, failures out, by the native kernel.

`writer`, `producers` and `transactional_producers` have the rules: what may be written where, how long to wait, what a
failure means. `RecordProducer` has what is done for each record. The kernel does that without a Python object for each
record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaError

from dynamic_kafka.kafka.clients import ClusterClients
from dynamic_kafka.native import kernel
from dynamic_kafka.sink.records import Records

__all__ = ["Failure", "Failures", "RecordProducer", "Refusal"]

T = TypeVar("T")


class Refusal(NamedTuple):
    """A record that the producer itself did not take: its row, and the reason."""

    row: int
    error: KafkaError


class Failure(NamedTuple):
    """A record that was not acknowledged, and the reason.

    The partition is -1 if it is not known, and the size of the key is None if it has none.
    """

    error: KafkaError
    topic: str
    partition: int
    key_bytes: int | None


class Failures(NamedTuple):
    """The records of one task that were not acknowledged.

    Attributes:
        task: The number that `produce` was called with.
        records: How many they are.
        first: The first of them. One that was dropped with others because of another error is the first only if there is
            no other.
    """

    task: int
    records: int
    first: Failure


class RecordProducer:
    """The producer of one cluster. Records of one topic and partition keep their order.

    The methods that make a request raise `KafkaException`; `poll` and `flush` do if the producer has failed for good. Errors
    that belong to no call are noted in `BackgroundErrors`. They come with `poll` and `flush`.

    Raises:
        KafkaException: If no client can be made of the properties.
        ConfigurationError: The same.
        DynamicKafkaError: If the native kernel cannot be used.
    """

    def __init__(self, clients: ClusterClients) -> None:
        self._clients, self._producer = clients, clients.record_producer

    def produce(self, records: Records, task: int, make_room: Callable[[], None]) -> Refusal | None:
        """Put records into the queue, and return the first that is refused. None of the rows after that one is written.

        Args:
            records: The records.
            task: A number for `failures`.
            make_room: Waits until the queue has room; returns at once if the queue is empty. A record is refused if an empty
                queue has no room for it.
        """
        rows = kernel().Rows(records.rows, records.topics)
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
        """Return how many records and reports are waiting."""
        return len(self._producer)

    def poll(self, timeout_s: float) -> None:
        """Take what librdkafka reports; wait for it up to a time."""
        self._noted(self._producer.poll, timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait for acknowledgements up to a time, and return how many are missing."""
        left: int = self._noted(self._producer.flush, timeout_s)
        return left

    def failures(self) -> Sequence[Failures]:
        """Return what was not acknowledged, by task, as far as `poll` and `flush` took it since the last call."""
        return [
            Failures(task, count, Failure(KafkaError(code), topic, partition, key_bytes))
            for task, count, code, topic, partition, key_bytes in self._producer.failures()
        ]

    def look_up(self, topic: str, timeout_s: float) -> tuple[int, KafkaError | None]:
        """Ask the cluster for the number of a topic's partitions, and for its error about the topic."""
        count, code = self._noted(lambda seconds: self._producer.look_up(topic, seconds), timeout_s)
        return count, KafkaError(code) if code else None

    def purge(self) -> None:
        """Drop all records that are not acknowledged; they are failures."""
        self._producer.purge()

    def init_transactions(self, timeout_s: float) -> None:
        """Have the cluster fence earlier producers of the transactional id."""
        self._producer.init_transactions(timeout_s)

    def begin_transaction(self) -> None:
        """Begin a transaction. Within one it is refused, with the reason why that has failed if it has."""
        self._producer.begin_transaction()

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort the transaction."""
        self._noted(self._producer.abort_transaction, timeout_s)

    def _noted(self, call: Callable[[float], T], timeout_s: float) -> T:
        try:
            return call(timeout_s)
        finally:
            self._clients.note_reports()
