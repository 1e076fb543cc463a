"""A task of the sink against real brokers: what arrives, where, in which order, and what is said if it does not."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from dynamic_kafka.errors import ClusterUnavailableError, DeliveryError, RowError
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink import producers as pooling
from dynamic_kafka.sink.dead_letters import record_sizes
from dynamic_kafka.sink.partitioners import FixedPartitioner, KafkaPartitioner, RoundRobinPartitioner
from dynamic_kafka.sink.producers import ClusterProducer, PooledProducers
from dynamic_kafka.sink.report import TaskReport, Volume
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask
from dynamic_kafka.sink.writer import flush, write
from dynamic_kafka.testing import KafkaBroker, MockCluster, wait_until
from tests.brokers import to_the_end
from tests.unit.sink.test_sink_records import TYPES
from tests.unit.sink.test_sink_records import batch as batch_of

pytestmark = pytest.mark.broker

CREATE = {"allow.auto.create.topics": "true"}  # how topics come to be on a mock cluster


@pytest.fixture(autouse=True)
def pool() -> Iterator[None]:
    """Every test begins and ends with an empty pool."""
    assert not pooling._pool
    yield
    pooling._pool.close()


def rows(**columns: Sequence[Any]) -> pa.RecordBatch:
    """A batch, given by columns; its values are bytes."""
    return batch_of({**TYPES, "value": pa.binary()}, **columns)


def task_to(destinations: Mapping[str, Destination], **wishes: Any) -> WriteTask:
    """What a task is told."""
    settings = SinkSettings(service=InMemoryMetadataService, stream="s", **wishes)
    return WriteTask(destinations, settings)


def one_cluster(
    servers: str, topic: str | None = None, properties: Mapping[str, str] | None = None, **wishes: Any
) -> WriteTask:
    """A task with one cluster."""
    return task_to({"east": Destination({"bootstrap.servers": servers, **(properties or {})}, topic)}, **wishes)


def run(task: WriteTask, *batches: pa.RecordBatch, task_number: int = 0) -> TaskReport:
    """A whole task, at least once."""
    with PooledProducers(task) as producers:
        return flush(write(iter(batches), task, producers, task_number=task_number))


def stored(servers: str, topic: str, partition: int = 0) -> list[Message]:
    """All records of a partition."""
    return list(to_the_end(servers, [TopicPartition(topic, partition, 0)]))


def values(servers: str, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values of a partition's records."""
    return [message.value() for message in stored(servers, topic, partition)]


# --- what arrives -------------------------------------------------------------------------------------------------------


def test_every_column_arrives(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Keys, values, tombstones, empty values, partitions, headers and times; a time that is null is now."""
    name = topic(cluster_a, partitions=2, config={"retention.ms": "-1"})
    batch = rows(
        key=[b"k", None, b"", b"t"],
        value=[b"v", None, b"", b"t"],
        partition=[1, 1, 1, 0],
        headers=[[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], [], None, None],
        timestamp=[1_700_000_000_123_456, None, None, 1_000],
    )
    began_ms = time.time() * 1000
    report = run(one_cluster(cluster_a.bootstrap_servers, name), batch)
    first, second, third = stored(cluster_a.bootstrap_servers, name, 1)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", [("a", b"1"), ("a", None)])
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    assert (third.key(), third.value()) == (b"", b"")
    assert first.timestamp()[1] == 1_700_000_000_123
    assert began_ms - 1 <= second.timestamp()[1] <= time.time() * 1000
    assert began_ms - 1 <= third.timestamp()[1] <= time.time() * 1000
    (fourth,) = stored(cluster_a.bootstrap_servers, name, 0)
    assert fourth.timestamp()[1] == 1
    assert report.clusters == {"east": Volume(4, 4)}


@pytest.mark.parametrize("bound", [{"buffer.memory": "100000"}, {"queue.buffering.max.messages": "100"}])
def test_a_full_queue_ends_lingering(
    cluster_a: KafkaBroker, topic: Callable[..., str], bound: Mapping[str, str]
) -> None:
    """A small queue costs no linger.ms each time it is full, in bytes or in records: 3,000 rows are many queues full."""
    name = topic(cluster_a)
    task = one_cluster(cluster_a.bootstrap_servers, name, {"linger.ms": "5000", **bound})
    began = time.monotonic()
    run(task, rows(value=[b"%d" % i + bytes(100) for i in range(3_000)]))
    assert time.monotonic() - began < 5
    assert [int((value or b"").rstrip(b"\0")) for value in values(cluster_a.bootstrap_servers, name)] == list(
        range(3_000)
    )


def test_two_clusters_and_several_topics_in_one_batch(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Callable[..., str]
) -> None:
    """Each row goes to its cluster and topic, in order, and each cluster is reported."""
    first, second = topic(cluster_a, cluster_b), topic(cluster_a, cluster_b)
    task = task_to(
        {
            "east": Destination(cluster_a.client_properties(), first),
            "west": Destination(cluster_b.client_properties(), first),
        }
    )
    n = 6_000
    batch = rows(
        value=[b"%d" % i for i in range(n)],
        topic=[(None, second)[i % 2] for i in range(n)],
        cluster=[("east", "west")[i // 2 % 2] for i in range(n)],
    )
    report = run(task, batch)
    for place, (servers, name) in enumerate(
        (cluster.bootstrap_servers, name) for cluster in (cluster_a, cluster_b) for name in (first, second)
    ):
        assert values(servers, name) == [b"%d" % i for i in range(place, n, 4)]
    assert {cluster: volume.records for cluster, volume in report.clusters.items()} == {"east": n / 2, "west": n / 2}
    assert report.total.records == n
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [
        (FixedPartitioner(), {0: [], 1: [b"0", b"1", b"2", b"3", b"4"], 2: []}),
        (RoundRobinPartitioner(), {0: [b"2"], 1: [b"0", b"3"], 2: [b"1", b"4"]}),
    ],
)
def test_partitioners(
    cluster_a: KafkaBroker,
    topic: Callable[..., str],
    partitioner: KafkaPartitioner,
    expected: Mapping[int, list[bytes]],
) -> None:
    """They know the task's number and the topic's partitions."""
    name = topic(cluster_a, partitions=3)
    task = one_cluster(cluster_a.bootstrap_servers, name, partitioner=partitioner)
    run(task, rows(value=[b"%d" % i for i in range(5)]), task_number=4)
    assert {partition: values(cluster_a.bootstrap_servers, name, partition) for partition in range(3)} == expected


def test_a_topic_that_grows(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """A partition that was added since the producer last looked is found."""
    name = topic(cluster_a)
    task = one_cluster(cluster_a.bootstrap_servers, name)
    run(task, rows(value=[b"1"], partition=[0]))
    with pytest.raises(RowError, match=f"'partition' is 1; the topic '{name}' has the partitions 0 to 0"):
        run(task, rows(value=[b"2"], partition=[1]))
    run(task, rows(value=[b"1"], partition=[0]))
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(15)
    wait_until(lambda: len(admin.list_topics(name, timeout=5).topics[name].partitions) == 2, 15, "the new partition")
    run(task, rows(value=[b"2"], partition=[1]))
    assert values(cluster_a.bootstrap_servers, name, 1) == [b"2"]


# --- what does not ------------------------------------------------------------------------------------------------------


def undelivered(task: WriteTask, *batches: pa.RecordBatch) -> DeliveryError:
    """The error of a task that fails."""
    with pytest.raises(DeliveryError) as raised:
        run(task, *batches)
    assert not pooling._pool  # a producer that saw an error is not used again
    return raised.value


@pytest.fixture(scope="module")
def creating() -> Iterator[str]:
    """A broker that makes a topic when somebody asks for it."""
    with KafkaBroker(properties={"auto.create.topics.enable": "true"}) as broker:
        yield broker.bootstrap_servers


def test_an_unknown_topic(creating: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, soon, and not created, although the broker would; on request it is."""
    typo, new = topic(), topic()
    with monkeypatch.context() as soon:
        soon.setattr(pooling, "_APPEARS_S", 0.5)
        error = undelivered(one_cluster(creating, typo), rows(value=[b"v"]))
    assert str(error) == (
        f"Cluster 'east', topic '{typo}': the topic or partition does not exist; create it first (UNKNOWN_TOPIC_OR_PART)"
    )
    assert typo not in AdminClient({"bootstrap.servers": creating}).list_topics(timeout=10).topics
    run(one_cluster(creating, new, {"allow.auto.create.topics": "true"}), rows(value=[b"v"]))
    assert values(creating, new) == [b"v"]


def test_a_record_that_the_broker_refuses(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Too large for the topic: known only after it was sent."""
    name = topic(cluster_a, config={"max.message.bytes": "1000"})
    error = undelivered(one_cluster(cluster_a.bootstrap_servers, name), rows(key=[b"abc"], value=[bytes(2000)]))
    assert (error.code, error.topic, error.partition, error.key_bytes) == ("MSG_SIZE_TOO_LARGE", name, 0, 3)
    assert not error.retriable
    assert "raise max.message.bytes of the topic" in str(error)


def test_a_record_that_the_client_refuses(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Too large for the client, or for its whole queue; the records before it do not matter."""
    name = topic(cluster_a)
    batch = rows(key=[None, b"ab"], value=[b"v", bytes(100_000)])
    error = undelivered(one_cluster(cluster_a.bootstrap_servers, name, {"max.request.size": "50000"}), batch)
    assert (error.code, error.key_bytes) == ("MSG_SIZE_TOO_LARGE", 2)
    assert "the record has 100,002 bytes, more than max.request.size=50000 of the producer" in str(error)
    error = undelivered(one_cluster(cluster_a.bootstrap_servers, name, {"buffer.memory": "50000"}), batch)
    assert (error.code, error.key_bytes) == ("_QUEUE_FULL", 2)
    assert "raise buffer.memory" in str(error)


def test_records_that_nobody_takes_are_dead_letters(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """The limit of the topic, to the byte, and that of the producer. A letter that is too large for one record has parts."""
    name, letters = topic(cluster_a, config={"max.message.bytes": "1000"}), topic(cluster_a)
    task = one_cluster(cluster_a.bootstrap_servers, name, {"max.request.size": "2000"}, dead_letter_topic=letters)
    for key, least, headers in ((None, 800, None), (b"k" * 70, 700, [{"key": "h" * 64, "value": None}])):
        sizes = range(least, least + 200)
        alone = [rows(value=[bytes(size)], key=[key], headers=[headers]) for size in sizes]
        limit = next(s for s, r in zip(sizes, alone, strict=True) if record_sizes(r)[1][0] > 1000)
        fits, not_any_more = alone[limit - least - 1], alone[limit - least]
        assert run(task, fits).dead_letters == 0
        assert run(task, not_any_more).dead_letters == 1
        with pytest.raises(DeliveryError, match="MSG_SIZE_TOO_LARGE"):
            run(one_cluster(cluster_a.bootstrap_servers, name), not_any_more)
    assert len(values(cluster_a.bootstrap_servers, name)) == 2
    first, second = stored(cluster_a.bootstrap_servers, letters)
    assert (first.key(), second.key(), next(iter(second.headers() or ()))) == (None, b"k" * 70, ("h" * 64, None))

    value = bytes(range(250)) * 20
    report = run(task, rows(value=[b"a", value], key=[b"k", b"k"]))
    assert (report.clusters, report.dead_letters, report.rows) == ({"east": Volume(1, 2)}, 1, 2)
    parts = stored(cluster_a.bootstrap_servers, letters)[2:]
    assert b"".join(part.value() or b"" for part in parts) == value
    headers_of = [dict(part.headers() or []) for part in parts]
    assert [found["dynamic-kafka.part"] for found in headers_of] == [b"%d/4" % (i + 1) for i in range(4)]
    assert headers_of[0]["dynamic-kafka.topic"] == name.encode()


def test_a_topic_that_is_deleted(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Its records are given up after delivery.timeout.ms at the latest, although it was there when it was looked up."""
    name = topic(cluster_a)
    task = one_cluster(cluster_a.bootstrap_servers, name, {"delivery.timeout.ms": "3000", "linger.ms": "0"})
    run(task, rows(value=[b"1"]))
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    admin.delete_topics([name])[name].result(15)
    error = undelivered(task, *(rows(value=[b"2"], key=[b"k"]) for _ in range(10)))
    assert error.code in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_MSG_TIMED_OUT")
    assert error.topic == name


def test_a_broker_that_stops_answering(mortal: KafkaBroker, topic: Callable[..., str]) -> None:
    """After delivery.timeout.ms the records are given up; the client is let go of at once, and the next task's is new."""
    name = topic(mortal)
    task = one_cluster(mortal.bootstrap_servers, name, {"delivery.timeout.ms": "1500", "linger.ms": "0"})
    run(task, rows(value=[b"1"]))
    mortal.pause()
    began = time.monotonic()
    error = undelivered(task, rows(value=[b"2"] * 10, key=[b"kk"] * 10))
    assert (error.code, error.topic, error.key_bytes, error.retriable) == ("_MSG_TIMED_OUT", name, 2, True)
    assert time.monotonic() - began < 10
    mortal.resume()
    run(task, rows(value=[b"3"]))
    mortal.kill()
    error = undelivered(task, rows(value=[b"4"]))
    assert error.code == "_MSG_TIMED_OUT"
    assert "the last error of the client" in str(error)


def test_a_cluster_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent: an error that names cluster and cause."""
    monkeypatch.setattr(pooling, "_LOOKUP_S", 0.5)
    monkeypatch.setattr(pooling, "_LOOKUP_ATTEMPT_S", 0.3)
    with pytest.raises(ClusterUnavailableError, match=r"'east' does not answer, so topic 't'.*refused"):
        run(one_cluster("127.0.0.1:1", "t"), rows(value=[b"v"]))


def test_an_error_ends_the_writing(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Rows are not taken from Spark until the end of a task that has failed long ago."""
    name = topic(cluster_a, config={"max.message.bytes": "1000"})
    taken = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        while True:
            taken += 1
            yield rows(value=[bytes(2000)])

    task = one_cluster(cluster_a.bootstrap_servers, name, {"linger.ms": "0"})
    with pytest.raises(DeliveryError), PooledProducers(task) as producers:
        write(endless(), task, producers, task_number=0)
    assert taken > 1


# --- the pool, and writing without waiting ------------------------------------------------------------------------------


def test_the_pool_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one unused for longest goes; what it still had to send is sent."""
    monkeypatch.setattr(pooling._pool, "_capacity", 2)
    with MockCluster() as cluster:
        for linger_ms in ("30000", "1", "2"):
            task = one_cluster(cluster.bootstrap_servers, "t", CREATE | {"linger.ms": linger_ms}, guarantee="none")
            with PooledProducers(task) as producers:
                write(iter([rows(value=[b"v"], partition=[0])]), task, producers, task_number=0)
        assert len(pooling._pool) == 2
        wait_until(lambda: len(values(cluster.bootstrap_servers, "t")) == 3, 10, "all three records")


def test_none_waits_for_nothing(
    mortal: KafkaBroker, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """The task ends while the broker sleeps; records that are lost later are logged, once, also if no task comes."""
    name = topic(mortal)
    task = one_cluster(
        mortal.bootstrap_servers, name, {"delivery.timeout.ms": "1500", "linger.ms": "0"}, guarantee="none"
    )

    def unattended(value: bytes) -> ClusterProducer:
        with PooledProducers(task) as producers:
            report = write(iter([rows(value=[value] * 3)]), task, producers, task_number=0).report
            assert (report.total.records, report.errors, report.flush_ms) == (3, 0, 0)
            return producers.producer("east")

    producer = unattended(b"1")
    wait_until(lambda: values(mortal.bootstrap_servers, name) == [b"1"] * 3, 10, "records that nobody waits for")
    mortal.pause()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="dynamic_kafka"):
        assert unattended(b"2") is producer
        assert time.monotonic() - began < 1.4
        wait_until(lambda: name in caplog.text, 15, "the lost records")
    # Clients of other tests are kept in this process, and may warn as well.
    (told,) = [text for text in caplog.messages if name in text]
    assert f"A record of an earlier batch was lost: Cluster 'east', topic '{name}', partition 0" in told
    mortal.resume()
    assert unattended(b"3") is producer


def test_the_end_of_the_process_sends_the_rest() -> None:
    """An interpreter that ends orderly sends what nobody waited for."""
    with MockCluster() as cluster:
        code = f"""
            import pyarrow as pa
            from dynamic_kafka.metadata.services import InMemoryMetadataService
            from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask
            from dynamic_kafka.sink.producers import PooledProducers
            from dynamic_kafka.sink.writer import write

            properties = {{"bootstrap.servers": "{cluster.bootstrap_servers}", "linger.ms": "60000", **{CREATE}}}
            settings = SinkSettings(service=InMemoryMetadataService, stream="s", guarantee="none")
            task = WriteTask({{"east": Destination(properties, "t")}}, settings)
            rows = pa.RecordBatch.from_pydict({{"value": [b"v"], "partition": pa.array([0], pa.int32())}})
            with PooledProducers(task) as producers:
                write(iter([rows]), task, producers, task_number=0)
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
        assert values(cluster.bootstrap_servers, "t") == [b"v"]
