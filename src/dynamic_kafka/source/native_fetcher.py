"""Fetching with the native kernel: messages become Arrow columns without a Python object for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import ClusterClients
from dynamic_kafka.source.fetching import Decoding, Fetched, FetchEvent, Span

__all__ = ["NativeFetcher"]

_LOOKUP_S = 10.0


class NativeFetcher:
    """A `Fetcher` over the native kernel.

    Args:
        clients: The clients of the cluster.
        cluster: The name of the cluster.
        schema: The columns of the batches, from `rows.arrow_schema`.
        decoding: How values are decoded, if the column `VALUE_ROW` is wanted.
    """

    def __init__(
        self,
        clients: ClusterClients,
        cluster: str,
        schema: pa.Schema,
        decoding: Decoding | None = None,
    ) -> None:
        self._clients, self._cluster, self._columns = clients, cluster, list(schema.names)
        self._decoding = decoding

    def assign(self, spans: Mapping[KafkaTopicPartition, Span]) -> None:
        """See `Fetcher`."""
        ranges = [(*tp, *span) for tp, span in sorted(spans.items())]
        decode = None if self._decoding is None else (self._decoding.columns, self._decoding.spec)
        self._clients.native_consumer.assign(ranges, self._columns, self._cluster, decode)

    def fetch(self, timeout_s: float) -> Fetched:
        """See `Fetcher`."""
        self._clients.note_reports()  # a new token may be asked for before anything arrives
        found = self._clients.native_consumer.fetch(timeout_s)
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
        """See `Fetcher`."""
        self._clients.native_consumer.seek(*tp, *span)

    def stop(self, tps: Collection[KafkaTopicPartition]) -> None:
        """See `Fetcher`."""
        self._clients.native_consumer.stop(list(tps))

    def look_up(self, topic: str) -> None:
        """See `Fetcher`."""
        with suppress(KafkaException):
            self._clients.native_consumer.look_up(topic, _LOOKUP_S)

    def _batch_of(self, found: Any) -> Callable[[Collection[str]], pa.RecordBatch | None]:
        def batch(without: Collection[str]) -> pa.RecordBatch | None:
            look_up = None if self._decoding is None else self._decoding.look_up
            if look_up is not None and (unknown := found.unknown_schemas()):
                self._clients.native_consumer.learn(list(look_up(unknown).items()))
            made = found.batch(list(without))
            return None if made is None else pa.record_batch(made)

        return batch
