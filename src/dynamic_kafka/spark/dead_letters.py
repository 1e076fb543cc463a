"""The executor's side of `format.on-error` = `dead-letter`: messages that cannot be read go to a topic, unchanged.

Headers say why and where from: `dynamic-kafka.error`, `.cluster`, `.topic`, `.partition` and `.offset`, as text. A message
is acknowledged before its batch ends, at least once: a task that Spark repeats writes it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.options import DEAD_LETTER_PROPERTIES, DEAD_LETTER_TOPIC, ON_ERROR, only_topic
from dynamic_kafka.kafka.config.properties import to_librdkafka
from dynamic_kafka.metadata.factory import DEFAULT_CLUSTER
from dynamic_kafka.sink.producers import kept_producer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeadLetters", "letters_of", "send"]

_HEADERS = tuple(f"dynamic-kafka.{name}" for name in ("error", "cluster", "topic", "partition", "offset"))


@dataclass(frozen=True)
class DeadLetters:
    """The topic for messages that cannot be read.

    Args:
        topic: The topic.
        properties: Kafka properties of its cluster, with secrets as they were given.
    """

    topic: str
    properties: Mapping[str, str] = field(repr=False)


def letters_of(
    policy: str, topic: str | None, options: Mapping[str, str], own: Mapping[str, str]
) -> DeadLetters | None:
    """Return the topic for dead letters; None if the policy needs none.

    Args:
        policy: The value of `format.on-error`.
        topic: The topic, if it was given.
        options: Options with the properties of the query's or table's own cluster.
        own: Properties of the topic's cluster, besides those.

    Raises:
        ConfigurationError: If the topic or its cluster is missing, or a topic is given that is not used.
    """
    if policy != "dead-letter":
        if topic is not None or own:
            raise ConfigurationError(
                f"Option '{DEAD_LETTER_TOPIC.key if topic else DEAD_LETTER_PROPERTIES + min(own)}' needs "
                f"'{ON_ERROR.key}' = 'dead-letter'"
            )
        return None
    if topic is None:
        raise ConfigurationError(
            f"Option '{DEAD_LETTER_TOPIC.key}' is missing; '{ON_ERROR.key}' = 'dead-letter' needs it"
        )
    given = {
        name.partition(".")[2]: text
        for name, text in options.items()
        if name.lower().startswith(("properties.", "kafka."))
    }
    properties = {**given, **own}
    if "bootstrap.servers" not in properties:
        raise ConfigurationError(
            f"Option '{DEAD_LETTER_PROPERTIES}bootstrap.servers' is missing; it names the brokers of the cluster with the "
            "topic for dead letters"
        )
    if topic == only_topic(options) and "bootstrap.servers" not in own:
        raise ConfigurationError(
            f"Option '{DEAD_LETTER_TOPIC.key}' names '{topic}', the topic that is read, so each dead letter would be read "
            "again. Name another topic"
        )
    try:
        to_librdkafka(properties, role="producer")
    except ConfigurationError as error:  # here, and not at the first message that cannot be read
        raise ConfigurationError(f"The options '{DEAD_LETTER_PROPERTIES}*' are wrong: {error}") from None
    return DeadLetters(topic, properties)


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
    import pyarrow as pa

    from dynamic_kafka.sink.records import HEADERS, Records
    from dynamic_kafka.sink.report import Volume
    from dynamic_kafka.sink.writer import Written, flush, hand_over

    why, key, value, *place = (column.filter(broken) for column in columns)
    texts = zip(*(column.to_pylist() for column in (why, *place)), strict=True)
    headers = [
        [{"key": name, "value": str(text).encode()} for name, text in zip(_HEADERS, row, strict=True)] for row in texts
    ]
    rows = pa.record_batch({"value": value, "key": key, "headers": pa.array(headers, HEADERS)})
    with kept_producer(DEFAULT_CLUSTER, letters.properties) as producer:
        producer.partitions(letters.topic)  # an unknown topic is an error at once
        written = Written(used={DEFAULT_CLUSTER: producer})
        hand_over(Records([letters.topic], rows, Volume()), producer, written)
        flush(written)
