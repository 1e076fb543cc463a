"""A full queue of the producer, whenever brokers acknowledge: what is refused, and what is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.sink import record_producer
from dynamic_kafka.sink.record_producer import RecordProducer
from dynamic_kafka.sink.records import Records
from dynamic_kafka.sink.report import Volume


class Queue:
    """The queue of a producer, bounded in bytes. Any part of it may be acknowledged around each call.

    Args:
        most: The most bytes in it.
        acknowledged: How many records are acknowledged at each such moment; none when they are used up.
    """

    def __init__(self, most: int, acknowledged: Sequence[int]) -> None:
        self.most, self.acknowledged = most, iter(acknowledged)
        self.waiting: list[int] = []
        self.taken: list[int] = []

    def acknowledge(self) -> None:
        """Let the brokers acknowledge some."""
        del self.waiting[: next(self.acknowledged, 0)]

    def produce(self, rows: list[int], _: int) -> tuple[int, int] | None:
        """Take rows until there is no room, as the kernel does."""
        try:
            while len(self.taken) < len(rows):
                self.acknowledge()
                size = rows[len(self.taken)]
                if sum(self.waiting) + size > self.most:
                    return len(self.taken), KafkaError._QUEUE_FULL
                self.waiting.append(size)
                self.taken.append(size)
            return None
        finally:
            self.acknowledge()

    def __len__(self) -> int:
        self.acknowledge()
        return len(self.waiting)


@given(
    st.lists(st.integers(1, 12), max_size=20),
    st.integers(1, 10),
    st.lists(st.integers(0, 30), max_size=60),
)
def test_only_a_record_that_an_empty_queue_has_no_room_for_is_refused(
    sizes: list[int], most: int, acknowledged: list[int]
) -> None:
    """Whatever the brokers acknowledge between two calls; all rows before it are taken."""
    queue = Queue(most, acknowledged)
    clients: Any = SimpleNamespace(record_producer=queue)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_producer, "kernel", lambda: SimpleNamespace(Rows=lambda *_: sizes))
        rows = Records(["t"], pa.record_batch({"value": pa.array([b""] * len(sizes))}), Volume())
        refused = RecordProducer(clients).produce(rows, 1, queue.waiting.clear)
    too_large = next((row for row, size in enumerate(sizes) if size > most), None)
    assert (None if refused is None else refused.row) == too_large
    assert queue.taken == sizes[:too_large]
