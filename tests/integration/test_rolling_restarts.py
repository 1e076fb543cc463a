"""Exactly-once on a cluster of three brokers of which one after the other is restarted: coordinators and leaders move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink.committer import claim_batch, committer_for
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.protocol import Batch, Claim
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask
from dynamic_kafka.sink.transactional_producers import TransactionalProducers
from dynamic_kafka.sink.writer import flush, write
from dynamic_kafka.testing import KafkaBroker, KafkaCluster, wait_until
from tests.brokers import committed

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_PARTITIONS = 6
_ROWS = 12
_TASK_ATTEMPTS = 4  # Spark's spark.task.maxFailures


class Query(threading.Thread):
    """Writes batch after batch exactly once, without Spark, until it is told to stop.

    Attributes:
        log: The topic of its commit log.
        published: The number of batches that were published.
        failure: What ended it.
    """

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        super().__init__(daemon=True)
        self._destinations: Mapping[str, Destination] = {"east": Destination(cluster.client_properties(), topic=topic)}
        self._settings = SinkSettings(
            service=InMemoryMetadataService,
            stream="s",
            guarantee="exactly-once",
            prefix=topic,
            log_topic=commit_log_topic(topic),
        )
        self.log = self._settings.log_topic
        self._stop_asked = threading.Event()
        self.published = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Write; see `Thread`."""
        try:
            while not self._stop_asked.is_set():
                claim, log = claim_batch(self._settings, self._destinations, {}, None)
                transactions = self._task(claim)
                with committer_for(self._settings, self._destinations, log) as committer:
                    committer.commit(claim, Batch(Identity("q", self.published), _ROWS, transactions))
                self.published += 1
        except BaseException as error:  # noqa: BLE001  the test shows it
            self.failure = error

    def goes_on(self) -> None:
        """Wait for some more batches."""
        enough = self.published + 5
        wait_until(lambda: self.failure or self.published >= enough, 90, "more batches")
        assert self.failure is None, str(self.failure)

    def stop(self) -> None:
        """Let it finish its batch."""
        self._stop_asked.set()
        self.join(120)

    def _task(self, claim: Claim) -> tuple[Transaction, ...]:
        task = WriteTask(self._destinations, self._settings, claim.chain, claim.generation)
        values = [f"{self.published}-{number}".encode() for number in range(_ROWS)]
        partitions = pa.array([i % _PARTITIONS for i in range(_ROWS)], pa.int32())
        rows = pa.RecordBatch.from_pydict({"value": values, "partition": partitions})
        for attempt in range(_TASK_ATTEMPTS):
            try:
                with TransactionalProducers(task) as producers:
                    flush(write(iter([rows]), task, producers, task_number=0))
                    return producers.prepare()
            except (DynamicKafkaError, KafkaException):
                if attempt == _TASK_ATTEMPTS - 1:
                    raise
        raise AssertionError


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three brokers."""
    with KafkaCluster() as started:
        yield started


@pytest.fixture
def query(cluster: KafkaCluster, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    """A query that runs; after the test, each row that it has written is there once."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    name = topic()
    cluster.create_topic(name, _PARTITIONS)
    running = Query(cluster, name)
    running.start()
    wait_until(lambda: running.failure or running.published, 60, "the first batch, with the commit log")
    assert running.failure is None, str(running.failure)
    yield running
    running.stop()
    assert running.failure is None, str(running.failure)
    assert sorted(committed(cluster, name, _PARTITIONS)) == sorted(
        f"{n}-{i}" for n in range(running.published) for i in range(_ROWS)
    )


def test_brokers_are_restarted(cluster: KafkaCluster, query: Query) -> None:
    """Coordinators, and the leader of the commit log, move with each of them, in order and as in a crash."""
    for stop in (KafkaBroker.stop, KafkaBroker.kill):
        for broker in cluster.brokers:
            cluster.wait_until_in_sync()
            stop(broker)
            broker.start()
    query.goes_on()


def test_a_broker_is_frozen(cluster: KafkaCluster, query: Query) -> None:
    """Its connections stay open, and answer nothing; the other brokers take over from it."""
    cluster.wait_until_in_sync()
    leader = cluster.leader(query.log)
    leader.pause()
    try:
        query.goes_on()
    finally:
        leader.resume()
    query.goes_on()
