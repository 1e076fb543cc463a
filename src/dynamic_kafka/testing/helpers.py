"""What tests against Kafka need again and again: records in a topic, waiting for something, a cluster without Java."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

__all__ = ["MockCluster", "produce", "wait_until"]

_T = TypeVar("_T")
_POLL_S = 0.05
_DELIVERY_TIMEOUT_MS = 30_000


def produce(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[tuple[bytes | str | None, bytes | str | None]],
    *,
    partition: int | None = None,
    timestamp_ms: int | None = None,
    headers: Sequence[tuple[str, bytes | None]] | None = None,
    transactional: Literal["commit", "abort"] | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Write records and wait until the cluster has acknowledged all of them, within 30 s.

    Args:
        bootstrap_servers: The cluster, as `host:port,...`.
        topic: An existing topic.
        records: Key and value of each record, in order.
        partition: The partition of all of them; None lets the key decide.
        timestamp_ms: The record time of all of them, in milliseconds since 1970, above 0; None is now.
        headers: The headers of all of them.
        transactional: Write them in one transaction and end it so; aborted ones are in the log all the same, as
            `read_uncommitted` shows.
        properties: More of the producer's properties, by librdkafka's names.

    Raises:
        confluent_kafka.KafkaException: If a record was not acknowledged.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "max.in.flight.requests.per.connection": 1,  # keeps the order over retries
        "log_level": 3,  # errors only: a broker just started makes librdkafka repeat requests, and tell
        "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": 3000,  # a topic that is not there is an error soon, not a time-out
        **(properties or {}),
    }
    if transactional is not None:
        config["transactional.id"] = f"testing-{uuid.uuid4()}"
    producer = Producer(config)
    if transactional is not None:
        producer.init_transactions()
        producer.begin_transaction()

    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    fixed: dict[str, Any] = {"on_delivery": delivered}
    if partition is not None:
        fixed["partition"] = partition
    if timestamp_ms is not None:
        fixed["timestamp"] = timestamp_ms
    if headers is not None:
        fixed["headers"] = list(headers)
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, **fixed)
                break
            except BufferError:
                producer.poll(_POLL_S)
        producer.poll(0)
    # Also before an abort: it would purge what has not been sent yet, and nothing aborted would be in the log.
    producer.flush()
    if failures:
        raise KafkaException(failures[0])
    if transactional == "commit":
        producer.commit_transaction()
    elif transactional == "abort":
        producer.abort_transaction()


def wait_until(condition: Callable[[], _T], timeout_s: float, what: str) -> _T:
    """Wait until a condition holds.

    Args:
        condition: Asked again and again, 50 ms apart, at least once; holds when its answer is true.
        timeout_s: How long to wait, in seconds.
        what: What is waited for, as it reads after "still waiting for".

    Returns:
        The condition's first true answer.

    Raises:
        TimeoutError: If it does not hold in time; the message names `what` and the last answer.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"After {timeout_s:g} s still waiting for {what}; the last answer was {answer!r}")
        time.sleep(_POLL_S)
    return answer


class MockCluster:
    """librdkafka's mock cluster: up in milliseconds, without Java, gone with the `with` block.

    It knows produce, fetch, metadata, groups and transactions, and creates topics (of 4 partitions) when they are
    asked for; it keeps everything in memory and knows no retention, no configuration and no security. Where Kafka's
    own behaviour matters, use `KafkaBroker`.

    Args:
        brokers: How many brokers it has.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers
        self._owner: Producer | None = None
        self._bootstrap_servers = ""

    @property
    def bootstrap_servers(self) -> str:
        """All its brokers, as `host:port,...`; only inside the `with` block."""
        return self._bootstrap_servers

    def __enter__(self) -> Self:
        self._owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": self._brokers, "log_level": 0})
        brokers = self._owner.list_topics(timeout=10).brokers.values()
        self._bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self._owner = None  # the mock cluster lives in this client
