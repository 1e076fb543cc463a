"""The producers: a thread that writes the flights to their clusters, in the order of the year, at an even pace."""

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
    """Writes each flight once it is due, to the cluster and topic it belongs to, and counts what was acknowledged.

    A topic's flights wait until it is opened; what is due by then follows at once.

    Args:
        departures: The flights, see `departures.load_departures`.
        per_second: How many flights, of all airports together, become due in a second.
    """

    def __init__(self, departures: pd.DataFrame, per_second: float) -> None:
        self.total = len(departures)
        self.acknowledged: Counter[str] = Counter()  # flights that their cluster has confirmed
        self._departures = departures
        self._per_second = per_second
        self._feeds: list[_Feed] = []
        self._failure: object = None
        self._started: float | None = None
        self._closing = threading.Event()
        # A thread will do: at 5,000 records per second it is busy for a tenth of the time, the rest is librdkafka's.
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def open(self, cluster: str, topic: str, bootstrap_servers: str) -> None:
        """Let the flights flow that belong to this topic on this cluster."""
        flights = self._departures.query("cluster == @cluster and topic == @topic")

        def delivered(error: KafkaError | None, _: Message) -> None:
            self.acknowledged[cluster] += error is None
            self._failure = error or self._failure

        self._feeds.append(_Feed(flights, cluster, topic, bootstrap_servers, delivered))

    def writes_to(self, cluster: str) -> bool:
        """Whether this cluster still has flights to get or to acknowledge."""
        return any(feed.cluster == cluster for feed in list(self._feeds))

    def start(self) -> None:
        """Let the year begin."""
        self._started = time.monotonic()
        self._thread.start()

    @property
    def elapsed_s(self) -> float:
        """Since the start, in seconds."""
        return time.monotonic() - self._started if self._started is not None else 0.0

    @property
    def due(self) -> int:
        """The last flight that is due."""
        return min(self.total, int(self.elapsed_s * self._per_second))

    @property
    def share(self) -> float:
        """How much of the year has gone by, from 0 to 1."""
        return self.due / self.total

    @property
    def finished(self) -> bool:
        """Whether every flight was acknowledged."""
        return self.acknowledged.total() == self.total

    def check(self) -> None:
        """See whether something went wrong.

        Raises:
            RuntimeError: If a flight could not be written.
        """
        if self._failure is not None:
            raise RuntimeError(f"A flight could not be written to Kafka: {self._failure}")

    def close(self) -> None:
        """Write no more."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing.wait(_TICK_S):
                for feed in list(self._feeds):
                    if feed.send(self.due):
                        self._feeds.remove(feed)  # and its producer with it: the cluster may be switched off
        except Exception as error:  # noqa: BLE001  # `check` raises it in the main thread
            self._failure = error


class _Feed:
    """The flights of one topic on one cluster, and how many of them were sent."""

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
                "enable.idempotence": True,  # a request sent again must not write a flight twice
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,  # a whole year fits
            }
        )

    def send(self, due: int) -> bool:
        """Send what is due and not sent yet; whether all of the year was sent and acknowledged."""
        end = int(self._numbers.searchsorted(due, side="right"))
        for i in range(self._sent, end):
            self._producer.produce(self._topic, self._values[i], self._keys[i], on_delivery=self._delivered)
        self._sent = end
        self._producer.poll(0)
        return end == len(self._numbers) and len(self._producer) == 0
