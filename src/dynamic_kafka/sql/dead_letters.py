"""The executor's side of `format.on-error` = `dead-letter`: messages that cannot be read go to a topic, unchanged.

Headers say why and where from: `dynamic-kafka.error`, `.cluster`, `.topic`, `.partition` and `.offset`, as text. A message
is acknowledged before its batch ends, at least once: a task that Spark repeats writes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message

from dynamic_kafka.errors import DeliveryError
from dynamic_kafka.metadata.factory import DEFAULT_CLUSTER
from dynamic_kafka.sink.producers import kept_producer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["DeadLetters", "send", "set_aside"]

_HEADERS = tuple(f"dynamic-kafka.{name}" for name in ("error", "cluster", "topic", "partition", "offset"))
_FLUSH_S = 0.5

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True)
class DeadLetters:
    """The topic for messages that cannot be read.

    Args:
        topic: The topic.
        properties: Kafka properties of its cluster, with secrets as they were given.
    """

    topic: str
    properties: Mapping[str, str] = field(repr=False)


def set_aside(letters: DeadLetters) -> Callable[..., Column]:
    """Return the function that `formats.on_error.apply_error_policy` calls for `dead-letter`."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def send_broken(*columns: pa.Array) -> pa.Array:
        """Send the messages with an error; return true for each message."""
        send(letters, columns)
        return pa.repeat(pa.scalar(True), len(columns[0]))

    send_broken.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    make: Callable[..., Any] = arrow_udf
    udf: Any = make(send_broken, returnType="boolean")
    return udf.asNondeterministic()  # type: ignore[no-any-return]


def send(letters: DeadLetters, columns: Sequence[pa.Array]) -> None:
    """Send the messages that have an error, and wait until they are acknowledged.

    Args:
        letters: The topic for dead letters.
        columns: Error, key, value, cluster, topic, partition and offset; all null for a message without an error.

    Raises:
        DeliveryError: If one is not acknowledged.
        ClusterUnavailableError: If the cluster does not answer.
    """
    broken = columns[0].is_valid()
    if not broken.true_count:
        return
    errors: list[DeliveryError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(producer.delivery_error(error, letters.topic, key=message.key()))

    with kept_producer(DEFAULT_CLUSTER, letters.properties) as producer:
        producer.partitions(letters.topic)  # an unknown topic is an error at once
        for why, key, value, *place in zip(*(column.filter(broken).to_pylist() for column in columns), strict=True):
            headers: Headers = [(name, str(text).encode()) for name, text in zip(_HEADERS, (why, *place), strict=True)]
            produce = partial(producer.client.produce, letters.topic, value, key, headers=headers, on_delivery=note)
            while not _has_room_for(produce):
                producer.poll(_FLUSH_S)
        while producer.flush(_FLUSH_S) and not errors:
            pass
        if errors:
            raise errors[0]


def _has_room_for(produce: Callable[[], None]) -> bool:
    try:
        produce()
    except BufferError:
        return False
    return True
