"""The fetcher of a cluster in a task: ranges in, record batches and reached positions out, by the native kernel.

`reader` has the rules: what is lost, when to ask, when to give up. `Fetcher` has what is done for each record: it fetches,
drops what lies outside of the ranges, finds their ends, and makes the batch. The kernel does that without a Python object
for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaException

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import ClusterClients

__all__ = [
    "FetchEvent",
    "Fetched",
    "Fetcher",
    "Run",
    "Span",
]

_LOOKUP_S = 10.0


Run = tuple[str, int, int, int | None]
"""Records of one partition that follow each other: topic, partition, how many there are, and the timestamp of the last one
in milliseconds; None if it has none."""


class Span(NamedTuple):
    """What is left to read of a range: the offsets [position, end)."""

    position: int
    end: int


class FetchEvent(NamedTuple):
    """An error that librdkafka reported about a partition, or about the client.

    Attributes:
        topic: The topic; "" if it is about the client.
        partition: The partition; -1 if it is about a topic or the client.
        offset: The offset it is about; below 0 if there is none.
        code: librdkafka's code of the error.
        text: The text of the error.
    """

    topic: str
    partition: int
    offset: int
    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch.

    Args:
        positions: The positions of the ranges that have moved. What lies before a position is in the records or holds none.
        records: The number of records within the ranges.
        batch: The function that turns the records into a batch, without those of some topics; None if none is left. It
            raises `RecordError`. Call it before the next fetch.
        runs: The function that returns what the records are of, for the metrics. Call it before `batch`.
        events: The errors, in order.
        is_empty: True if nothing has arrived at all, neither records (also records outside of the ranges) nor events.
    """

    positions: Mapping[KafkaTopicPartition, int]
    records: int
    batch: Callable[[Collection[str]], pa.RecordBatch | None]
    runs: Callable[[], Sequence[Run]]
    events: Sequence[FetchEvent] = field(default=())
    is_empty: bool = False


class Fetcher:
    """Fetches ranges of one cluster. What it does is seen in the positions alone: a range ends when its position is its end.

    A position passes a record when the record is returned, and it passes what is no record (transaction markers, aborted
    records, compacted gaps) when librdkafka says so by the end of the log or by its own position. Nothing after a damaged
    record is returned, and no position passes one, until `seek` is called.

    Args:
        clients: The clients of the cluster.
        cluster: The name of the cluster.
        schema: The columns of the batches, from `rows.arrow_schema`.
    """

    def __init__(self, clients: ClusterClients, cluster: str, schema: pa.Schema) -> None:
        self._clients, self._cluster, self._columns = clients, cluster, list(schema.names)

    def assign(self, spans: Mapping[KafkaTopicPartition, Span]) -> None:
        """Fetch these ranges, and nothing else, in the background.

        Raises:
            KafkaException: If no client can be made of the properties.
            ConfigurationError: The same.
            DynamicKafkaError: If the native kernel cannot be used.
        """
        ranges = [(*tp, *span) for tp, span in sorted(spans.items())]
        self._clients.fetching_consumer.assign(ranges, self._columns, self._cluster)

    def fetch(self, timeout_s: float) -> Fetched:
        """Return what has arrived; wait for the first of it up to a time.

        The batch raises `RecordError` if the headers of a record cannot be read, or if it is too large for any batch.
        """
        self._clients.note_reports()  # a new token may be asked for before anything arrives
        found = self._clients.fetching_consumer.fetch(timeout_s)
        self._clients.note_reports()
        return Fetched(
            {KafkaTopicPartition(topic, partition): position for topic, partition, position in found.positions},
            found.records,
            self._batch_of(found),
            found.runs,
            [FetchEvent(*event) for event in found.events],
            found.is_empty,
        )

    def seek(self, tp: KafkaTopicPartition, span: Span) -> None:
        """Fetch a range from a position on, again or for the first time."""
        self._clients.fetching_consumer.seek(*tp, *span)

    def stop(self, tps: Collection[KafkaTopicPartition]) -> None:
        """Fetch these ranges no more, whatever their positions are."""
        self._clients.fetching_consumer.stop(list(tps))

    def look_up(self, topic: str) -> None:
        """Ask the cluster for the partitions of a topic that the client may not know yet. Failures are not reported."""
        with suppress(KafkaException):
            self._clients.fetching_consumer.look_up(topic, _LOOKUP_S)

    def _batch_of(self, found: Any) -> Callable[[Collection[str]], pa.RecordBatch | None]:
        def batch(without: Collection[str]) -> pa.RecordBatch | None:
            made = found.batch(list(without))
            return None if made is None else pa.record_batch(made)

        return batch
