"""Tasks that write in transactions, without Spark: what they prepare, and what is said when a transaction fails."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourceType

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, DeliveryError
from dynamic_kafka.kafka.transactions.client import EndResult, TransactionClient
from dynamic_kafka.observe.settings import MetricsSettings
from dynamic_kafka.sink import transactional_producers as module
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.producers import ClusterProducer
from dynamic_kafka.sink.settings import Destination, WriteTask
from dynamic_kafka.sink.tally import client_numbers_of
from dynamic_kafka.sink.transactional_ids import belongs_to
from dynamic_kafka.sink.transactional_producers import TransactionalProducers
from dynamic_kafka.sink.writer import flush, write
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.brokers import committed, grant, open_transactions
from tests.security.tries import sink

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that Spark uses for more tasks."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")


def task_to(broker: KafkaBroker, user: str | None = None) -> WriteTask:
    """A task that may write to any topic, with a prefix of its own."""
    return WriteTask({"east": Destination(broker.client_properties(user))}, sink("exactly-once"), "chain", 1)


def batch(*topics: str) -> pa.RecordBatch:
    """A row for each topic."""
    return pa.RecordBatch.from_pydict({"topic": list(topics), "value": [b"v"] * len(topics)})


def prepare(task: WriteTask, topic: str) -> Transaction:
    """A task that writes a row: its transaction, which is open."""
    with TransactionalProducers(task) as producers:
        flush(write(iter([batch(topic)]), task, producers, task_number=0))
        (prepared,) = producers.prepare()
    return prepared


def end(broker: KafkaBroker, *prepared: Transaction) -> None:
    """Commit transactions, as the driver does."""
    ends = [(t.transactional_id, t.producer_id, t.producer_epoch) for t in prepared]
    with closing(TransactionClient("east", broker.client_properties(), timeout_ms=20_000)) as client:
        assert set(client.end_all(ends, commit=True)) <= {EndResult.DONE, EndResult.CONCURRENT}


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
        "Cluster 'east', topic 'forbidden': User:writer may not Describe and Write topic 'forbidden'; grant it"
    )
    wait_until(lambda: not open_transactions(guarded, task.settings.prefix), 20, "the abort")


@pytest.mark.slow
def test_a_refused_login_is_an_error_in_seconds(guarded: KafkaBroker) -> None:
    """A password that was replaced is looked up by the next attempt of the task, so this one does not wait for a minute."""
    task = task_to(guarded, "writer")
    wrong = {name: value.replace("w-secret", "wrong") for name, value in task.destinations["east"].properties.items()}
    assert wrong != task.destinations["east"].properties
    task = replace(task, destinations={"east": Destination(wrong)})
    began = time.monotonic()
    with (
        pytest.raises(ClusterUnavailableError, match=r"SASL authentication error"),
        TransactionalProducers(task) as producers,
    ):
        producers.producer("east")
    assert time.monotonic() - began < 30


def test_producers_of_earlier_batches_are_let_go(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Their transactions are settled when a later batch runs; a worker keeps one that is ready."""
    name, task = topic(cluster_a), task_to(cluster_a)
    before = _clients()
    for generation in range(1, 9):
        end(cluster_a, prepare(replace(task, generation=generation), name))
    wait_until(lambda: _clients() - before <= 2, 20, "the end of the others")


def test_the_numbers_of_a_producer_that_lives_for_one_task_are_told(
    cluster_a: KafkaBroker, topic: Callable[..., str]
) -> None:
    """With a later task: its last statistics come after its transaction was prepared."""
    name, task = topic(cluster_a), task_to(cluster_a)
    task = replace(task, settings=replace(task.settings, metrics=MetricsSettings("127.0.0.1", 0)))
    found: list[float] = []
    for generation in range(1, 5):
        with TransactionalProducers(replace(task, generation=generation)) as producers:
            written = write(iter([batch(name)] * (generation < 4)), task, producers, task_number=0)
            flush(written)
            used = [producers.producer("east")]
            producers.prepare()
        found.append(client_numbers_of(used).get("east", {}).get("messages_total", 0))
        wait_until(lambda: not any(thread.is_alive() for thread in module._finishing), 20, "the last statistics")
    assert sum(found) == 3


def test_dead_letters_are_in_the_transaction(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Those of a task that fails are never visible, so a second attempt of it does not write them twice."""
    name, letters = topic(cluster_a), topic(cluster_a)
    task = task_to(cluster_a)
    task = replace(task, settings=replace(task.settings, dead_letter_topic=letters))
    rows = pa.RecordBatch.from_pydict({"topic": [name] * 2, "value": [b"v", bytes(2_000_000)]})

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), TransactionalProducers(task) as producers:
        write(failing(), task, producers, task_number=0)
    with TransactionalProducers(task) as producers:
        report = flush(write(iter([rows]), task, producers, task_number=0))
        (prepared,) = producers.prepare()
    assert (report.dead_letters, report.rows) == (1, 2)
    wait_until(
        lambda: open_transactions(cluster_a, task.settings.prefix) == [prepared.transactional_id], 20, "the abort"
    )
    assert (committed(cluster_a, name), committed(cluster_a, letters)) == ([], [])
    end(cluster_a, prepared)
    wait_until(lambda: len(committed(cluster_a, name)) == 1, 20, "the commit")
    assert "".join(committed(cluster_a, letters)) == "\0" * 2_000_000


def test_a_task_that_fails_leaves_no_open_transaction(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Also if it fails while the cluster adds its first partition: librdkafka ends only about six of seven of these."""
    name, task = topic(cluster_a), task_to(cluster_a)

    def failing(after_s: float) -> Iterator[pa.RecordBatch]:
        yield batch(name)
        time.sleep(after_s)
        raise ZeroDivisionError

    for number in range(40):
        with pytest.raises(ZeroDivisionError), TransactionalProducers(task) as producers:
            write(failing(number / 20_000), task, producers, task_number=0)
    wait_until(lambda: not open_transactions(cluster_a, task.settings.prefix), 20, "the aborts")


def test_an_abort_that_fails_hides_no_error_and_no_cluster(
    cluster_a: KafkaBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task's own error is raised, and the producers of all clusters are closed, whatever a library raises."""
    name, task = topic(cluster_a), task_to(cluster_a)
    task = replace(task, destinations=dict.fromkeys(("east", "west"), task.destinations["east"]))
    before = _clients()

    def fail(*_: object, **__: object) -> None:
        raise LookupError("an error of some library")

    monkeypatch.setattr(TransactionClient, "end", fail)

    def failing() -> Iterator[pa.RecordBatch]:
        for place in ("east", "west"):
            yield pa.RecordBatch.from_pydict({"topic": [name], "value": [b"v"], "cluster": [place]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), TransactionalProducers(task) as producers:
        write(failing(), task, producers, task_number=0)
    assert caplog.text.count("may stay open until the next batch aborts it") == 2
    wait_until(lambda: _clients() <= before, 20, "the end of both producers")


def test_a_timeout_that_the_cluster_does_not_allow(cluster_a: KafkaBroker) -> None:
    """Without the right to see the brokers' limit it is noticed here, and the error names the option."""
    task = task_to(cluster_a)
    properties = {**task.destinations["east"].properties, "transaction.timeout.ms": "3600000"}
    task = replace(task, destinations={"east": Destination(properties)})
    with (
        pytest.raises(
            ConfigurationError, match=r"'properties.transaction.timeout.ms' is 3600000, and cluster 'east' allows"
        ),
        TransactionalProducers(task) as producers,
    ):
        producers.producer("east")


def test_many_tasks_of_a_batch_in_one_worker(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Its producers and open files stay as few, and the transactions of those that are closed can all be committed."""
    name, task = topic(cluster_a), task_to(cluster_a)
    clients, files = _clients(), _open_files()
    prepared: list[Transaction] = []
    for _ in range(30):
        prepared.append(prepare(task, name))
        assert _clients() - clients <= 4
    assert _open_files() - files < 60
    assert sorted(t.transactional_id for t in prepared) == sorted(open_transactions(cluster_a, task.settings.prefix))
    end(cluster_a, *prepared)
    wait_until(lambda: len(committed(cluster_a, name)) == 30, 20, "the markers of all transactions")


def test_a_producer_that_no_task_needs_is_closed(
    cluster_a: KafkaBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is ready, after a while: its id is given back, and the prepared transaction stays open."""
    module._ready.close()
    monkeypatch.setattr(module._ready, "_idle_limit_s", 0.5)
    name, task = topic(cluster_a), task_to(cluster_a)
    before = _clients()
    prepared = prepare(task, name)
    # Clients of earlier tests may still have been closing at the first count, so the count alone says nothing.
    wait_until(lambda: not module._preparing and not len(module._ready) and _clients() <= before, 30, "the end of both")
    assert prepared.transactional_id in open_transactions(cluster_a, task.settings.prefix)
    assert prepare(replace(task, generation=2), name).transactional_id == prepared.transactional_id


def test_a_worker_of_one_task_makes_nothing_ready(
    cluster_a: KafkaBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end in the middle of a request, and its next id would be left alone for ten minutes."""
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    name, task = topic(cluster_a), task_to(cluster_a)
    before = _clients()
    for number in range(3):
        assert prepare(task, name).transactional_id.endswith(f"-{number}")
        assert not module._preparing
        assert _clients() <= before


def test_an_id_whose_file_is_deleted_is_not_used(
    cluster_a: KafkaBroker, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process could have the same id then; a ready producer is replaced by one with a file that exists."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name, task = topic(cluster_a), task_to(cluster_a)
    taken: list[str] = []
    for _ in range(2):
        taken.append(prepare(task, name).transactional_id)
        wait_until(lambda: not module._preparing, 20, "the next producer")
        for folder in tmp_path.iterdir():
            shutil.rmtree(folder)
    assert len({name.rpartition("-")[0] for name in taken}) == 2


def test_a_worker_without_descriptors_says_so(cluster_a: KafkaBroker) -> None:
    """Its error is not about rights."""
    script = textwrap.dedent("""
        import os, resource, sys, threading
        from dynamic_kafka.sink import transactional_producers as module
        from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask

        module._READY_S = module._CONNECT_S = 1.0
        settings = SinkSettings(
            service=None,
            stream="s",
            guarantee="exactly-once",
            prefix="descriptors",
        )
        task = WriteTask({"east": Destination({"bootstrap.servers": sys.argv[1]})}, settings, "chain", 1)
        module._id_pool("descriptors", "east")
        limit = len(os.listdir("/proc/self/fd")) + int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        try:
            module._make_ready("east", task)
        except Exception as error:
            print(error)
    """)
    for spare in (0, 2):
        command = [sys.executable, "-c", script, cluster_a.bootstrap_servers, str(spare)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
        assert re.search("ulimit -n|Too many open files", said), (spare, said)


def test_a_fenced_producer(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """A newer producer of its id ends it: the task fails, whatever it still has to send, and no later call is accepted."""
    name, transactional_id = topic(cluster_a), uuid.uuid4().hex
    task = task_to(cluster_a)

    def opened() -> ClusterProducer:
        properties = task.destinations["east"].properties
        producer = ClusterProducer("east", properties, {"transactional.id": transactional_id})
        producer.client.init_transactions(30)
        return producer

    class Old:
        def producer(self, _: str) -> ClusterProducer:
            """The one that is fenced."""
            return old

    old = opened()
    old.client.begin_transaction()
    flush(write(iter([batch(name)]), task, Old(), task_number=0))
    new = opened()
    with pytest.raises(DeliveryError) as raised:
        flush(write(iter([batch(name)]), task, Old(), task_number=0))
    assert raised.value.code in ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    with pytest.raises(KafkaException) as refused:
        old.client.begin_transaction()
    assert refused.value.args[0].fatal()
    with pytest.raises(KafkaException):
        old.client.abort_transaction(5)
    old.close()
    new.client.begin_transaction()
    new.close()


def test_librdkafka_speaks_transactions_v1(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Its EndTxn leaves the epoch as it is (below version 5), also on a cluster with transactions V2.

    If this fails with a newer librdkafka (its issue 5423, KIP-890), then `sink.outcome`, the version of EndTxn in
    `kafka.transactions.client` and rule 7 of `sink.protocol` are wrong with it: keep the upper bound in pyproject.toml.
    """
    lines: list[str] = []

    class Log:
        def log(self, _: int, __: str, *details: str) -> None:
            lines.append(details[-1])

    producer = Producer(
        {**cluster_a.client_properties(), "transactional.id": uuid.uuid4().hex, "debug": "protocol", "logger": Log()}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic(cluster_a), b"v")
    producer.flush(20)
    producer.abort_transaction(20)
    producer.poll(0)
    versions = [int(found[1]) for line in lines if (found := re.search(r"Sent EndTxnRequest \(v(\d+)", line))]
    assert versions
    assert max(versions) < 5


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


def _clients() -> int:
    """How many clients of librdkafka this process has: each has one such thread."""
    count = 0
    for task in Path("/proc/self/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            count += task.read_text() == "rdk:main\n"
    return count


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
