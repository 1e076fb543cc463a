"""The contract between a task of the sink and what produces its records: columns in, failures out.

`writer`, `producers` and `transactional_producers` have the rules: what may be written where, how long to wait, what a
failure means. A `RecordProducer` has what is done for each record. There are two of them, `python_producer` over
confluent-kafka's producer and `native_producer` over the native kernel. Both pass the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError

from dynamic_kafka.sink.records import Records

__all__ = ["Failure", "Failures", "RecordProducer", "Refusal"]


class Refusal(NamedTuple):
    """A record that the producer itself did not take.

    Attributes:
        row: Its row.
        error: The reason.
    """

    row: int
    error: KafkaError


class Failure(NamedTuple):
    """A record that was not acknowledged.

    Attributes:
        topic: The topic.
        partition: The partition; -1 if it is not known.
        key_bytes: The size of the key; None if it has none.
        error: The reason.
    """

    topic: str
    partition: int
    key_bytes: int | None
    error: KafkaError


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


class RecordProducer(Protocol):
    """The producer of one cluster. Records of one topic and partition keep their order.

    The methods that make a request raise `KafkaException`; `poll` and `flush` do if the producer has failed for good. Errors
    that belong to no call are noted in `BackgroundErrors`. They come with `poll` and `flush`.

    Attributes:
        implementation: What it is, "native" or "python".
    """

    implementation: str

    def produce(self, records: Records, task: int, make_room: Callable[[], None]) -> Refusal | None:
        """Put records into the queue, and return the first that is refused. None of the rows after that one is written.

        Args:
            records: The records.
            task: A number for `failures`.
            make_room: Waits until the queue has room; returns at once if the queue is empty. A record is refused if an empty
                queue has no room for it.
        """

    def __len__(self) -> int:
        """Return how many records and reports are waiting."""

    def poll(self, timeout_s: float) -> None:
        """Take what librdkafka reports; wait for it up to a time."""

    def flush(self, timeout_s: float) -> int:
        """Wait for acknowledgements up to a time, and return how many are missing."""

    def failures(self) -> Sequence[Failures]:
        """Return what was not acknowledged, by task, as far as `poll` and `flush` took it since the last call."""

    def look_up(self, topic: str, timeout_s: float) -> tuple[int, KafkaError | None]:
        """Ask the cluster for the number of a topic's partitions, and for its error about the topic."""

    def purge(self) -> None:
        """Drop all records that are not acknowledged; they are failures."""

    def init_transactions(self, timeout_s: float) -> None:
        """Have the cluster fence earlier producers of the transactional id."""

    def begin_transaction(self) -> None:
        """Begin a transaction. Within one it is refused, with the reason why that has failed if it has."""

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort the transaction."""
