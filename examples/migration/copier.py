"""A copy of a topic on another cluster, as mirrors make it: same partition, key, value and time, other offsets."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 3


class Copier:
    """Copies in the background until it is stopped.

    Args:
        source: The address of the cluster to copy from.
        target: The address of the cluster to copy to.
        topic: The topic.
        start: The first offset of each partition to copy.
    """

    def __init__(self, source: str, target: str, topic: str, start: Mapping[int, int]) -> None:
        self.copied = 0
        self._source, self._target, self._topic = source, target, topic
        self._consumer = Consumer({"bootstrap.servers": source, "group.id": "copier", "log_level": 0})
        self._consumer.assign([TopicPartition(topic, p, start.get(p, 0)) for p in range(PARTITIONS)])
        self._producer = Producer({"bootstrap.servers": target, "log_level": 0})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self._producer.produce(
                        self._topic,
                        key=message.key(),
                        value=message.value(),
                        partition=message.partition() or 0,
                        timestamp=message.timestamp()[1],
                    )
                    self.copied += 1
            self._producer.flush()

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._thread.join(10)
        self._consumer.close()


def ends(address: str, topic: str) -> dict[int, int]:
    """Return the ends of a topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends", "log_level": 0})
    try:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(PARTITIONS)}
    finally:
        consumer.close()
