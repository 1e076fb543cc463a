"""The producers: a thread that writes the flights to their clusters, in the order of the year, at an even rate."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pandas as pd
from confluent_kafka import KafkaError, Message, Producer

__all__ = ["Replay"]

_TICK_S = 0.02
_CLOSE_S = 5.0


class Replay:
    """A writer of flights: each one is written when it is due, to its cluster and topic, and counted when acknowledged.

    The flights of a topic wait until the topic is opened. Flights that are due by then are written at once.

    Args:
        departures: The flights, see `departures.load_departures`.
        per_second: The number of flights, of all airports together, that become due in a second.
    """

    def __init__(self, departures: pd.DataFrame, per_second: float) -> None:
        self.total = len(departures)
        self.acknowledged: Counter[str] = Counter()  # flights that their cluster has acknowledged
        self._departures = departures
        self._per_second = per_second
        self._feeds: list[_Feed] = []
        self._failure: object = None
        self._started: float | None = None
        self._closing = threading.Event()
        # One thread is enough: at 5,000 records per second it is busy a tenth of the time. librdkafka does the rest.
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def open(self, cluster: str, topic: str, bootstrap_servers: str) -> None:
        """Start to write the flights of this topic on this cluster."""
        flights = self._departures.query("cluster == @cluster and topic == @topic")

        def delivered(error: KafkaError | None, _: Message) -> None:
            self.acknowledged[cluster] += error is None
            self._failure = error or self._failure

        self._feeds.append(_Feed(flights, cluster, topic, bootstrap_servers, delivered))

    def writes_to(self, cluster: str) -> bool:
        """Return whether this cluster still has flights to receive or to acknowledge."""
        return any(feed.cluster == cluster for feed in list(self._feeds))

    def start(self) -> None:
        """Start the year."""
        self._started = time.monotonic()
        self._thread.start()

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started if self._started is not None else 0.0

    @property
    def due(self) -> int:
        """Return the number of the last flight that is due."""
        return min(self.total, int(self.elapsed_s * self._per_second))

    @property
    def share(self) -> float:
        """Return the share of the year that has passed, from 0 to 1."""
        return self.due / self.total

    @property
    def finished(self) -> bool:
        """Return whether every flight was acknowledged."""
        return self.acknowledged.total() == self.total

    def check(self) -> None:
        """Check for failures.

        Raises:
            RuntimeError: If a flight could not be written.
        """
        if self._failure is not None:
            raise RuntimeError(f"A flight could not be written to Kafka: {self._failure}")

    def close(self) -> None:
        """Stop writing."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing.wait(_TICK_S):
                for feed in list(self._feeds):
                    if feed.send(self.due):
                        self._feeds.remove(feed)  # and its producer too, so that the cluster can be switched off
        except Exception as error:  # noqa: BLE001  # `check` raises it in the main thread
            self._failure = error


class _Feed:
    """The flights of one topic on one cluster, and the number of sent flights."""

    def __init__(
        self,
        flights: pd.DataFrame,
        cluster: str,
        topic: str,
        bootstrap_servers: str,
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> None:
        self.cluster = cluster
        self._numbers = flights["number"].to_numpy()
        self._keys = (flights["carrier"] + flights["flight"].astype(str)).tolist()
        self._values = flights.drop(columns=["cluster", "topic"]).to_json(orient="records", lines=True).splitlines()
        self._topic = topic
        self._delivered = delivered
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,  # a repeated request must not write a flight twice
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,  # enough for a whole year
            }
        )

    def send(self, due: int) -> bool:
        """Send the due flights that were not sent yet. Return whether the whole year was sent and acknowledged."""
        end = int(self._numbers.searchsorted(due, side="right"))
        for i in range(self._sent, end):
            self._producer.produce(self._topic, self._values[i], self._keys[i], on_delivery=self._delivered)
        self._sent = end
        self._producer.poll(0)
        return end == len(self._numbers) and len(self._producer) == 0
