"""Helpers for tests with Kafka: write records, wait for a condition, and a mock cluster that needs no Java."""

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
        transactional: Write them in one transaction and end it this way. Aborted records are in the log too;
            `read_uncommitted` shows them.
        properties: Further producer properties, by librdkafka's names.

    Raises:
        confluent_kafka.KafkaException: If a record was not acknowledged.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "max.in.flight.requests.per.connection": 1,  # keeps the order over retries
        "log_level": 3,  # errors only: with a broker just started, librdkafka repeats requests and logs that
        "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": 3000,  # a topic that does not exist is an error soon, not a time-out
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

    arguments = {"partition": partition, "timestamp": timestamp_ms, "headers": headers and list(headers)}
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=delivered, **given)
                break
            except BufferError:
                producer.poll(_POLL_S)
        producer.poll(0)
    # Also before an abort, which would drop records that were not sent yet: then no aborted record would be in the log.
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
        condition: A function that is called every 50 ms, at least once, until it returns a true value.
        timeout_s: The longest wait, in seconds.
        what: The thing waited for, as it reads after "still waiting for".

    Returns:
        The first true value that the condition returned.

    Raises:
        TimeoutError: If the condition does not hold in time. The message names `what` and the last value returned.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"After {timeout_s:g} s still waiting for {what}; the last answer was {answer!r}")
        time.sleep(_POLL_S)
    return answer


class MockCluster:
    """librdkafka's mock cluster: starts in milliseconds, needs no Java, and ends with the `with` block.

    It supports produce, fetch, metadata, groups and transactions, and creates topics (with 4 partitions) on their first
    use. It keeps everything in memory and has no retention, no configuration and no security. Its brokers name no
    controller, so the source and `read_arrow` do not read from it. Where Kafka's own behaviour matters, use `KafkaBroker`.

    Args:
        brokers: The number of brokers.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers
        self._owner: Producer | None = None
        self._bootstrap_servers = ""

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, as `host:port,...`; only inside the `with` block."""
        return self._bootstrap_servers

    def __enter__(self) -> Self:
        self._owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": self._brokers, "log_level": 0})
        brokers = self._owner.list_topics(timeout=10).brokers.values()
        self._bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self._owner = None  # the mock cluster lives in this client
