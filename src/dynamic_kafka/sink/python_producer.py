"""Producing with confluent-kafka's producer: columns become lists of Python objects, and each record is a call.

Nothing is grouped by topic or partition: measured, one call of `Producer.produce` with ready-made positional arguments costs
less than its part of `produce_batch`, which wants a dict for each record, and knows neither headers nor timestamps, nor more
than one partition.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, starmap
from operator import length_hint
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message

from dynamic_kafka.kafka.clients import ClusterClients
from dynamic_kafka.sink.producing import Failure, Failures, Refusal
from dynamic_kafka.sink.records import UNASSIGNED, Records

__all__ = ["PythonProducer", "arguments"]

# From 0.2 s on, confluent-kafka flushes in steps of its own. It goes on after a step in which a fatal error was raised, and
# may then lose the error ("returned NULL without setting an exception").
_FLUSH_STEP_S = 0.15
_PURGED = KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT


class _Failed:
    """The failures since they were last taken."""

    def __init__(self) -> None:
        self.found: dict[int, Failures] = {}

    def note(self, task: int, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report of librdkafka."""
        if error is None:
            return
        known = self.found.get(task)
        if known is None or (known.first.error.code() in _PURGED and error.code() not in _PURGED):
            partition, key = message.partition(), message.key()
            key_bytes = None if key is None else len(key)
            first = Failure(message.topic() or "", -1 if partition is None else partition, key_bytes, error)
        else:
            first = known.first
        self.found[task] = Failures(task, 1 if known is None else known.records + 1, first)


class PythonProducer:
    """A `RecordProducer` over confluent-kafka's producer.

    Args:
        clients: The clients of the cluster.
    """

    implementation = "python"

    def __init__(self, clients: ClusterClients) -> None:
        self._producer = clients.producer
        self._failed = _Failed()

    def produce(self, records: Records, task: int, make_room: Callable[[], None]) -> Refusal | None:
        """See `RecordProducer`."""
        columns = arguments(records, partial(self._failed.note, task))
        n = len(columns[0])
        while True:
            topics = iter(columns[0])
            try:
                deque(starmap(self._producer.produce, zip(topics, *columns[1:], strict=True)), maxlen=0)
            except (BufferError, KafkaException) as error:
                left = length_hint(topics) + 1
                if isinstance(error, KafkaException):
                    return Refusal(n - left, error.args[0])
                if not len(self._producer):
                    return Refusal(n - left, KafkaError(KafkaError._QUEUE_FULL))
                columns = [column[-left:] for column in columns]
            else:
                return None
            make_room()

    def __len__(self) -> int:
        return len(self._producer)

    def poll(self, timeout_s: float) -> None:
        """See `RecordProducer`."""
        _call(self._producer.poll, timeout_s)

    def flush(self, timeout_s: float) -> int:
        """See `RecordProducer`."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(deadline - time.monotonic(), 0.0)
            missing = _call(self._producer.flush, min(left_s, _FLUSH_STEP_S))
            if not missing or left_s <= _FLUSH_STEP_S:
                return missing

    def failures(self) -> Sequence[Failures]:
        """See `RecordProducer`."""
        found = list(self._failed.found.values())
        self._failed.found.clear()
        return found

    def look_up(self, topic: str, timeout_s: float) -> tuple[int, KafkaError | None]:
        """See `RecordProducer`."""
        found = self._producer.list_topics(topic, timeout=timeout_s).topics[topic]
        return len(found.partitions), found.error

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
        self._producer.abort_transaction(timeout_s)


def _call(call: Callable[[float], int], timeout_s: float) -> int:
    try:
        return call(timeout_s)
    except SystemError as error:
        # confluent-kafka raises fatal errors instead of calling error_cb, and stumbles when reports come with one.
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


# --- columns ---


def arguments(records: Records, on_delivery: Callable[..., None]) -> list[list[Any]]:
    """Return for each of produce()'s positional arguments a list with one element for each row.

    They are topic, value, key, partition, callback, on_delivery, timestamp and headers; the last ones may be left out. Each
    column becomes Python objects once.

    Args:
        records: The records.
        on_delivery: The receiver of librdkafka's delivery reports.
    """
    rows, topics = records.rows, records.topics
    n = rows.num_rows

    def column(name: str) -> pa.Array | None:
        return rows.column(name) if name in rows.schema.names else None

    def listed(name: str, default: Any) -> list[Any]:
        found = column(name)
        return [default] * n if found is None else found.to_pylist()

    numbers, partitions, timestamps, headers = map(column, ("topic", "partition", "timestamp", "headers"))
    made = [
        [topics[0]] * n if numbers is None else [topics[i] for i in numbers.to_pylist()],
        listed("value", None),
        listed("key", None),
        [UNASSIGNED] * n if partitions is None else partitions.fill_null(UNASSIGNED).to_pylist(),
        [on_delivery] * n,
    ]
    if timestamps is not None or headers is not None:
        made += [[None] * n, listed("timestamp", 0)]
    if headers is not None:
        made.append(_headers(headers))
    return made


def _headers(column: pa.Array) -> list[list[tuple[str, bytes | None]] | None]:
    flat = column.flatten()
    names, values = (pc.struct_field(flat, name).to_pylist() for name in ("key", "value"))
    pairs = zip(names, values, strict=True)
    return [list(islice(pairs, length)) or None for length in column.value_lengths().fill_null(0).to_pylist()]
