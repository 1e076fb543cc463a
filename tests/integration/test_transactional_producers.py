"""Tasks that write in transactions, without Spark: what they prepare, and what is said when a transaction fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from dynamic_kafka.errors import DeliveryError
from dynamic_kafka.kafka.transactions.client import EndResult, TransactionClient
from dynamic_kafka.metadata.in_memory import InMemoryMetadataService
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask
from dynamic_kafka.sink.transactional_producers import TransactionalProducers
from dynamic_kafka.sink.writer import flush, write
from dynamic_kafka.testing import KafkaBroker, wait_until

pytestmark = pytest.mark.broker

_numbers = itertools.count(1)


def task_to(broker: KafkaBroker, user: str | None = None) -> WriteTask:
    """A task that may write to any topic, with a prefix of its own."""
    prefix = f"transactional-{next(_numbers)}"
    settings = SinkSettings(service=InMemoryMetadataService, stream="s", guarantee="exactly-once", prefix=prefix)
    return WriteTask({"east": Destination(broker.client_properties(user))}, settings, "chain", 1)


def batch(*topics: str) -> pa.RecordBatch:
    """A row for each topic."""
    return pa.RecordBatch.from_pydict({"topic": list(topics), "value": [b"v"] * len(topics)})


def open_transactions(broker: KafkaBroker) -> list[str]:
    """The transactional ids with an open transaction."""
    client = TransactionClient("east", broker.client_properties(), timeout_ms=20_000)
    try:
        return client.list_open()
    finally:
        client.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaBroker]:
    """A cluster where the user `writer` may use all transactional ids, see all topics, and write to `a` and `b`."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with KafkaBroker(sasl_plain={"admin": "a-secret", "writer": "w-secret"}, properties=properties) as broker:
        for name in ("a", "b", "forbidden"):
            broker.create_topic(name, 3)
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin"}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **login, "sasl.password": "a-secret"})
        rules = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:writer", "*", may, AclPermissionType.ALLOW)
            for kind, name, may in (
                (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.WRITE),
                (ResourceType.TOPIC, "*", AclOperation.DESCRIBE),
                (ResourceType.TOPIC, "a", AclOperation.WRITE),
                (ResourceType.TOPIC, "b", AclOperation.WRITE),
            )
        ]
        for future in admin.create_acls(rules).values():
            future.result(15)
        yield broker


@pytest.mark.parametrize("when", ["flushing", "writing"])
def test_a_topic_that_may_not_be_written_to(guarded: KafkaBroker, when: str) -> None:
    """The error names it, though the transaction fails as a whole, whoever sees it first; it is aborted."""
    task = task_to(guarded, "writer")

    def run() -> None:
        with TransactionalProducers(task) as producers:
            producer = producers.producer("east")

            def batches() -> Iterator[pa.RecordBatch]:
                yield batch("a", "b", "forbidden", "a")
                if when == "writing":  # nobody has served callbacks when the next rows are produced
                    wait_until(lambda: producer.transaction_error().code != "_STATE", 20, "the failure")
                    yield batch("a", "b")

            flush(write(batches(), task, producers, task_number=0, tasks=1))

    with pytest.raises(DeliveryError) as raised:
        run()
    assert (raised.value.code, raised.value.topic) == ("TOPIC_AUTHORIZATION_FAILED", "forbidden")
    assert str(raised.value).startswith(
        "Cluster 'east', topic 'forbidden': not authorized; grant Describe and Write on"
    )
    wait_until(lambda: open_transactions(guarded) == [], 20, "the abort")


def test_producers_that_wait_are_served(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Their statistics do not pile up, neither those of an open transaction's producer."""
    task = task_to(cluster_a)
    with TransactionalProducers(task) as producers:
        producer = producers.producer("east")
        flush(write(iter([batch(topic(cluster_a))]), task, producers, task_number=0, tasks=1))
        producers.prepare()
    waiting = [0]

    def served() -> bool:
        waiting.append(len(producer.client))
        return waiting[-1] < max(waiting) / 2

    wait_until(served, 20, "fewer statistics")


def test_producers_of_earlier_batches_are_let_go(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Their transactions are settled when a later batch runs; a worker keeps one open and one ready."""
    name, task = topic(cluster_a), task_to(cluster_a)
    client = TransactionClient("east", cluster_a.client_properties(), timeout_ms=20_000)
    before = _clients()
    for generation in range(1, 9):
        task = replace(task, generation=generation)
        with TransactionalProducers(task) as producers:
            flush(write(iter([batch(name)]), task, producers, task_number=0, tasks=1))
            (prepared,) = producers.prepare()
        ended = client.end(prepared.transactional_id, prepared.producer_id, prepared.producer_epoch, commit=True)
        assert ended in (EndResult.DONE, EndResult.CONCURRENT)
    client.close()
    wait_until(lambda: _clients() - before <= 2, 20, "the end of the others")


def _clients() -> int:
    """How many clients of librdkafka this process has: each has one such thread."""
    return sum(task.read_text() == "rdk:main\n" for task in Path("/proc/self/task").glob("*/comm"))
