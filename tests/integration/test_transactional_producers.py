"""Tasks that write in transactions, without Spark: what they prepare, and what is said when a transaction fails."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType

from dynamic_kafka.errors import DeliveryError
from dynamic_kafka.kafka.transactions.client import EndResult, TransactionClient, TransactionState
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink import transactional_producers as module
from dynamic_kafka.sink.chain import Transaction
from dynamic_kafka.sink.producers import ClusterProducer
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask
from dynamic_kafka.sink.transactional_ids import belongs_to
from dynamic_kafka.sink.transactional_producers import TransactionalProducers
from dynamic_kafka.sink.writer import flush, write
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.brokers import grant

pytestmark = pytest.mark.broker


def task_to(broker: KafkaBroker, user: str | None = None) -> WriteTask:
    """A task that may write to any topic, with a prefix of its own."""
    prefix = f"transactional-{uuid.uuid4().hex}"
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
def guarded(secured: KafkaBroker) -> KafkaBroker:
    """A cluster where the user `writer` may use all transactional ids, see all topics, and write to `a` and `b`."""
    for name in ("a", "b", "forbidden"):
        secured.create_topic(name, 3)
    grant(secured, "writer", ResourceType.TRANSACTIONAL_ID, "*", AclOperation.WRITE)
    grant(secured, "writer", ResourceType.TOPIC, "*", AclOperation.DESCRIBE)
    grant(secured, "writer", ResourceType.TOPIC, "a", AclOperation.WRITE)
    grant(secured, "writer", ResourceType.TOPIC, "b", AclOperation.WRITE)
    return secured


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

            flush(write(batches(), task, producers, task_number=0))

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
        flush(write(iter([batch(topic(cluster_a))]), task, producers, task_number=0))
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
            flush(write(iter([batch(name)]), task, producers, task_number=0))
            (prepared,) = producers.prepare()
        ended = client.end(prepared.transactional_id, prepared.producer_id, prepared.producer_epoch, commit=True)
        assert ended in (EndResult.DONE, EndResult.CONCURRENT)
    client.close()
    wait_until(lambda: _clients() - before <= 2, 20, "the end of the others")


def test_more_tasks_in_a_batch_than_producers_are_kept(
    cluster_a: KafkaBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction of a producer that was closed stays open, and is committed like any other."""
    monkeypatch.setattr(module._prepared, "_capacity", 2)
    name, task = topic(cluster_a), task_to(cluster_a)
    before = _clients()
    prepared: list[Transaction] = []
    for _ in range(6):
        with TransactionalProducers(task) as producers:
            flush(write(iter([batch(name)]), task, producers, task_number=0))
            prepared += producers.prepare()
    assert len({transaction.transactional_id for transaction in prepared}) == 6
    wait_until(lambda: _clients() - before <= 3, 20, "the end of the others")
    client = TransactionClient("east", cluster_a.client_properties(), timeout_ms=20_000)
    ids = [transaction.transactional_id for transaction in prepared]
    assert {found.state for found in client.describe(ids).values() if found} == {TransactionState.ONGOING}
    ends = [(t.transactional_id, t.producer_id, t.producer_epoch) for t in prepared]
    assert set(client.end_all(ends, commit=True)) <= {EndResult.DONE, EndResult.CONCURRENT}
    client.close()
    assert len(committed(cluster_a, name)) == 6


def test_a_producer_that_no_task_needs_is_closed(
    cluster_a: KafkaBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ready one, and that of a transaction which nobody has ended: both after a while, and their ids are given back."""
    for pool in (module._ready, module._prepared):
        pool.close()
        monkeypatch.setattr(pool, "_idle_limit_s", 0.5)
    name, task = topic(cluster_a), task_to(cluster_a)
    before = _clients()
    with TransactionalProducers(task) as producers:
        flush(write(iter([batch(name)]), task, producers, task_number=0))
        (prepared,) = producers.prepare()
    wait_until(lambda: _clients() <= before and not module._preparing, 30, "the end of both")
    assert (len(module._ready), len(module._prepared)) == (0, 0)
    assert prepared.transactional_id in open_transactions(cluster_a)
    with TransactionalProducers(replace(task, generation=2)) as producers:
        flush(write(iter([batch(name)]), task, producers, task_number=0))
        (again,) = producers.prepare()
    assert again.transactional_id == prepared.transactional_id


def test_a_changed_secret_makes_another_producer(guarded: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """References are looked up for each task, also for a producer that is ready."""
    task = task_to(guarded, "writer")
    properties = dict(task.destinations["east"].properties)
    secret = properties["sasl.jaas.config"]
    properties["sasl.jaas.config"] = "${env:KAFKA_JAAS}"
    task = replace(task, destinations={"east": Destination(properties)})
    used: list[ClusterProducer] = []
    ready: list[ClusterProducer] = []
    for jaas in (secret, secret, secret.replace(" required", "  required")):
        monkeypatch.setenv("KAFKA_JAAS", jaas)
        with TransactionalProducers(task) as producers:
            used.append(producers.producer("east"))
            flush(write(iter([batch("a")]), task, producers, task_number=0))
            producers.prepare()
        wait_until(lambda: not module._preparing, 20, "the next producer")
        prefix = task.settings.prefix
        ours = [k.client for k in module._ready._kept if belongs_to(prefix, k.client.transactional_id.name)]
        ready.append(ours[-1].producer)
    assert used[1] is ready[0]
    assert used[2] not in ready


def committed(broker: KafkaBroker, topic: str) -> list[Message]:
    """What read_committed shows of a topic with one partition."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "enable.partition.eof": True}
    consumer = Consumer(config | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "no end of the topic"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()


def _clients() -> int:
    """How many clients of librdkafka this process has: each has one such thread."""
    return sum(task.read_text() == "rdk:main\n" for task in Path("/proc/self/task").glob("*/comm"))
