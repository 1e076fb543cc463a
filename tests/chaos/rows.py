"""The rows of a campaign: a feeder that writes numbered ones, and an auditor that reads what is published.

Both go past the proxies and the passwords, so that no fault touches them but those of the brokers themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.ledger import Ledger, Place

__all__ = ["Auditor", "Feeder"]

_TICK_S = 0.4
_ROWS = 6
_REFRESH_S = 2.0
_FLUSH_S = 60.0
_DELIVERY_MS = 300_000  # longer than any fault: what was handed over is delivered once, or known as not delivered


class Feeder:
    """Writes some numbered rows to each of its targets, all the while.

    Args:
        ledger: Learns of each row that a broker has acknowledged.
        lock: Held while the ledger is used.
        addresses: Of the clusters, by name.

    Attributes:
        targets: The topic written to, by cluster; change it as the metadata change.
        next: The number of the next row.
    """

    def __init__(self, ledger: Ledger, lock: threading.Lock, addresses: Mapping[str, str]) -> None:
        self.targets: dict[str, str] = {}
        self.next = 0
        self._ledger, self._ledger_lock = ledger, lock
        self._addresses = addresses
        self._producers: dict[str, Producer] = {}
        self._on_the_way: set[int] = set()
        self._lock = threading.RLock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._done.set()
        self._thread.join(10)
        for producer in self._producers.values():
            producer.purge()

    def write(
        self,
        cluster: str,
        rows: int,
        *,
        topic: str = "",
        payload: bytes = b"",
        headers: int = 0,
        header_bytes: int = 1,
    ) -> None:
        """Write some rows at once.

        Args:
            cluster: One of the targets.
            rows: How many.
            topic: Another topic than the target's.
            payload: What comes behind the number.
            headers: How many headers each row has.
            header_bytes: The size of a header's value.
        """
        with self._lock:
            topic = topic or self.targets[cluster]
            producer = self._producer(cluster)
            more: dict[str, Any] = (
                {"headers": [(f"h{i}", b"v" * header_bytes) for i in range(headers)]} if headers else {}
            )
            for _ in range(rows):
                number = self.next
                self.next += 1
                self._on_the_way.add(number)

                def delivered(error: KafkaError | None, message: Message, number: int = number) -> None:
                    if error is None:
                        place = Place(cluster, topic, int(message.partition() or 0), int(message.offset() or 0))
                        with self._ledger_lock:
                            self._ledger.write(number, place)
                    self._on_the_way.discard(number)

                value = b"%d %s" % (number, payload) if payload else b"%d" % number
                try:
                    producer.produce(topic, value, on_delivery=delivered, **more)
                except (BufferError, KafkaException):
                    self._on_the_way.discard(number)
            producer.poll(0)

    def on_the_way(self, before: int) -> bool:
        """Whether rows with lower numbers than `before` are not acknowledged yet."""
        return any(number < before for number in self._on_the_way.copy())

    @contextmanager
    def quiet(self, *clusters: str) -> Iterator[None]:
        """Write nothing to some clusters in the block; what is on the way has arrived before it."""
        with self._lock:
            targets = {cluster: self.targets.pop(cluster) for cluster in clusters if cluster in self.targets}
        try:
            for cluster in targets:
                self.flush(cluster)
            yield
        finally:
            with self._lock:
                self.targets = {**targets, **self.targets}

    def flush(self, cluster: str) -> None:
        """Wait until all rows for a cluster have arrived."""
        self._producer(cluster).flush(_FLUSH_S)

    def renew(self, cluster: str) -> None:
        """Forget what is known of a cluster's topics, after one was made again."""
        with self._lock:
            self._producers.pop(cluster, None)

    def _producer(self, cluster: str) -> Producer:
        if cluster not in self._producers:
            self._producers[cluster] = Producer(
                {
                    "bootstrap.servers": self._addresses[cluster],
                    "enable.idempotence": True,
                    "message.timeout.ms": _DELIVERY_MS,
                    "message.max.bytes": 15_000_000,
                    "topic.metadata.refresh.interval.ms": 3000,
                    "topic.metadata.propagation.max.ms": 10_000,
                    "linger.ms": 5,
                    "log_level": 0,
                }
            )
        return self._producers[cluster]

    def _run(self) -> None:
        while not self._done.wait(_TICK_S):
            with self._lock:
                for cluster in list(self.targets):
                    self.write(cluster, _ROWS)
                for producer in self._producers.values():
                    producer.poll(0)


class Auditor:
    """Reads what readers with `read_committed` see in the output topics.

    Args:
        ledger: Learns of each published row.
        lock: Held while the ledger is used.
        addresses: Of the clusters, by name.

    Attributes:
        topic: The output topic, on each cluster; call `renew` after a change.
    """

    def __init__(self, ledger: Ledger, lock: threading.Lock, addresses: Mapping[str, str]) -> None:
        self.topic = ""
        self._ledger, self._lock = ledger, lock
        self._done = threading.Event()
        self._renew = {cluster: threading.Event() for cluster in addresses}
        self._threads = [
            threading.Thread(target=self._run, args=item, name=f"auditor of {item[0]}", daemon=True)
            for item in addresses.items()
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End."""
        self._done.set()
        for thread in self._threads:
            thread.join(10)

    def renew(self, *clusters: str) -> None:
        """Read the topic of some clusters, or of all, from its start: it is another one."""
        for cluster in clusters or self._renew:
            self._renew[cluster].set()

    def _run(self, cluster: str, address: str) -> None:
        config = {
            "bootstrap.servers": address,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
        consumer = Consumer(config)
        known: set[int] = set()
        looked = 0.0
        while not self._done.is_set():
            if self._renew[cluster].is_set():
                self._renew[cluster].clear()
                consumer.unassign()
                known.clear()
                looked = 0.0
            if time.monotonic() - looked > _REFRESH_S:
                looked = time.monotonic()
                new = _partitions(consumer, self.topic) - known
                if new:
                    consumer.incremental_assign([TopicPartition(self.topic, p, 0) for p in sorted(new)])
                    known |= new
            values = [m.value() for m in consumer.consume(1000, timeout=0.3) if m.error() is None] if known else []
            if not known:
                self._done.wait(0.3)
            with self._lock:
                for value in values:
                    if value:
                        self._ledger.publish(int(value.partition(b" ")[0]))
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> set[int]:
    try:
        return set(consumer.list_topics(topic, timeout=2).topics[topic].partitions)
    except KafkaException:
        return set()
