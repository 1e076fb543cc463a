"""What the producer of `sink/record_producer.py` promises. On librdkafka's mock cluster."""

from __future__ import annotations

import gc
import itertools
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients
from dynamic_kafka.native import kernel
from dynamic_kafka.sink.record_producer import Failures, RecordProducer
from dynamic_kafka.sink.records import HEADERS, Records
from dynamic_kafka.sink.report import Volume
from dynamic_kafka.testing import MockCluster, wait_until
from tests.brokers import to_the_end

Open = Callable[..., tuple[RecordProducer, ClusterClients]]

LARGE_HEADERS = pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())]))
_names = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    """A cluster that makes a topic when somebody asks for it, with four partitions."""
    with MockCluster() as running:
        yield running


@pytest.fixture
def open_at() -> Iterator[Open]:
    """A function that opens a producer at a cluster, with librdkafka's properties."""
    with ExitStack() as stack:

        def at(servers: str, **config: str) -> tuple[RecordProducer, ClusterClients]:
            properties = {"bootstrap.servers": servers, "allow.auto.create.topics": "true"}
            fixed = {"delivery.report.only.error": True, "queue.buffering.max.ms": "0"}
            fixed |= {name.replace("_", "."): value for name, value in config.items()}
            clients = stack.enter_context(closing(ClusterClients(properties, producer=ClientSettings({}, fixed))))
            return RecordProducer(clients), clients

        yield at


def no_room() -> None:
    """Stands for a wait that is not expected."""
    raise AssertionError("the queue is full")


def records(columns: Mapping[str, pa.Array], *topics: str) -> Records:
    """Records of topics."""
    return Records(list(topics), pa.record_batch(dict(columns)), Volume())


def plain(topic: str, *values: bytes) -> Records:
    """Records of one topic, of which only the values are given."""
    return records({"value": pa.array(values, pa.binary())}, topic)


def new_topic(producer: RecordProducer) -> str:
    """A topic that exists."""
    name = f"t{next(_names)}"
    wait_until(lambda: producer.look_up(name, 5)[0] == 4, 10, "the topic")
    return name


def flushed(producer: RecordProducer) -> None:
    """Wait until everything is acknowledged."""
    wait_until(lambda: producer.flush(0.5) == 0, 20, "the acknowledgements")
    assert not producer.failures()


def stored(cluster: MockCluster, topic: str, seen: dict[int, int] | None = None) -> dict[int, list[Message]]:
    """All records of a topic with four partitions, or those behind the offsets that were seen."""
    found: dict[int, list[Message]] = {p: [] for p in range(4)}
    parts = [TopicPartition(topic, p, (seen or {}).get(p, 0)) for p in found]
    for message in to_the_end(cluster.bootstrap_servers, parts):
        found[message.partition() or 0].append(message)
    return found


# --- what arrives -------------------------------------------------------------------------------------------------------

_payloads = st.none() | st.binary(max_size=5)
_headers = st.fixed_dictionaries({"key": st.text("aä", max_size=2), "value": _payloads})
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.integers(0, 2),
            "value": _payloads,
            "key": _payloads,
            "partition": st.integers(0, 3),
            "timestamp": st.integers(1, 2**41),
            "headers": st.none() | st.lists(_headers, max_size=2),
        }
    ),
    min_size=1,
    max_size=20,
)
_types = st.fixed_dictionaries(
    {
        "topic": st.just(pa.int32()),
        "value": st.sampled_from([pa.binary(), pa.large_binary()]),
        "key": st.sampled_from([pa.binary(), pa.large_binary()]),
        "partition": st.just(pa.int32()),
        "timestamp": st.just(pa.int64()),
        "headers": st.sampled_from([HEADERS, LARGE_HEADERS]),
    }
)


@pytest.fixture
def opened() -> dict[str, Any]:
    """What all examples of a test share."""
    return {}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(_rows, _types, st.sets(st.sampled_from(["topic", "key", "timestamp", "headers"])), st.data())
def test_rows_arrive_as_they_are(
    cluster: MockCluster,
    open_at: Open,
    opened: dict[str, Any],
    rows: list[dict[str, Any]],
    types: dict[str, pa.DataType],
    some: set[str],
    data: st.DataObject,
) -> None:
    """Each in its topic and partition, in order, whatever columns there are, nulls among them, and slices of batches."""
    if not opened:
        producer = opened["producer"] = open_at(cluster.bootstrap_servers)[0]
        opened["topics"] = {new_topic(producer): dict.fromkeys(range(4), 0) for _ in range(3)}
    producer, topics = opened["producer"], opened["topics"]
    names = ["value", "partition", *sorted(some)]
    first = data.draw(st.integers(0, len(rows) - 1))
    whole = pa.record_batch({name: pa.array([row[name] for row in rows], types[name]) for name in names})
    assert producer.produce(Records(list(topics), whole.slice(first), Volume()), 1, no_room) is None
    flushed(producer)
    for number, (topic, seen) in enumerate(topics.items()):
        if number and "topic" not in some:
            continue
        for partition, messages in stored(cluster, topic, seen).items():
            seen[partition] += len(messages)
            expected = [
                (
                    row["key"] if "key" in some else None,
                    row["value"],
                    [(h["key"], h["value"]) for h in row["headers"] or []] if "headers" in some else [],
                    row["timestamp"] if "timestamp" in some else None,
                )
                for row in rows[first:]
                if row["partition"] == partition and ("topic" not in some or row["topic"] == number)
            ]
            assert [
                (m.key(), m.value(), m.headers() or [], m.timestamp()[1] if "timestamp" in some else None)
                for m in messages
            ] == expected


def test_without_a_partition_the_key_decides(cluster: MockCluster, open_at: Open) -> None:
    """As in Java: `Utils.toPositive(Utils.murmur2(key)) % 4`; with and without columns that need a call for each record."""
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    producer, _ = open_at(cluster.bootstrap_servers)
    topic = new_topic(producer)
    keys, n = list(hashes), len(hashes)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.nulls(n, pa.binary())}
    for more in ({}, {"timestamp": pa.array([0] * n, pa.int64())}, {"partition": pa.nulls(n, pa.int32())}):
        assert producer.produce(records(columns | more, topic), 1, no_room) is None
    flushed(producer)
    for partition, messages in stored(cluster, topic).items():
        expected = [key for key, hashed in hashes.items() if (hashed & 0x7FFFFFFF) % 4 == partition]
        assert [m.key() for m in messages] == expected * 3


@pytest.mark.parametrize("unknown", ["none", "key", "partition", "both", "none, with headers"])
def test_rows_of_a_partition_keep_their_order(cluster: MockCluster, open_at: Open, unknown: str) -> None:
    """Whether the row, its key or librdkafka chooses the partition, also one after the other, and when the queue is full.

    Each row arrives once.
    """
    producer, _ = open_at(cluster.bootstrap_servers, queue_buffering_max_messages="37")
    topics, n = [new_topic(producer) for _ in range(2)], 500
    keys = [None if i % 3 == 0 and unknown in ("key", "both") else b"%d" % (i % 11) for i in range(n)]
    given = [None if i % 5 < 3 and unknown in ("partition", "both") else i % 4 for i in range(n)]
    columns = {
        "value": pa.array([b"%d" % i for i in range(n)], pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "topic": pa.array([i % 2 for i in range(n)], pa.int32()),
    }
    if unknown != "key":
        columns["partition"] = pa.array(given, pa.int32())
    if unknown == "none, with headers":
        columns["headers"] = pa.array([[{"key": "n", "value": b"%d" % i}] for i in range(n)], HEADERS)
    waits = 0

    def make_room() -> None:
        nonlocal waits
        waits += 1
        wait_until(lambda: producer.flush(0.1) < 20, 20, "room")

    assert producer.produce(records(columns, *topics), 1, make_room) is None
    flushed(producer)
    assert waits > 3  # fewer than 13 if acknowledgements come meanwhile
    for number, topic in enumerate(topics):
        found = {p: [int(m.value() or b"") for m in messages] for p, messages in stored(cluster, topic).items()}
        assert all(rows == sorted(rows) for rows in found.values())
        assert sorted(itertools.chain(*found.values())) == list(range(number, n, 2))
        of_key: dict[bytes, set[int]] = {}
        for partition, row in ((p, row) for p, rows in found.items() for row in rows):
            key, chosen = keys[row], given[row] if unknown != "key" else None
            if chosen is not None:
                assert partition == chosen
            elif key is not None:
                of_key.setdefault(key, set()).add(partition)
        assert all(len(partitions) == 1 for partitions in of_key.values())


def test_large_records_wait_for_bytes(cluster: MockCluster, open_at: Open) -> None:
    """The queue is bounded in bytes: of 30 records of 10 MB at most four are in it."""
    producer, _ = open_at(cluster.bootstrap_servers, message_max_bytes="20000000", queue_buffering_max_kbytes="40000")
    topic, most = new_topic(producer), 0

    def make_room() -> None:
        nonlocal most
        producer.poll(0)  # reports count, too
        most = max(most, len(producer))
        wait_until(lambda: producer.flush(0.1) < 2, 30, "room")

    one = plain(topic, bytes(10_000_000))
    for _ in range(30):
        assert producer.produce(one, 1, make_room) is None
    flushed(producer)
    assert 0 < most <= 4


def test_no_python_object_for_each_record(cluster: MockCluster, open_at: Open) -> None:
    """The producer makes a few objects for a whole batch."""
    producer, _ = open_at(cluster.bootstrap_servers)
    topic, n = new_topic(producer), 10_000
    batch = plain(topic, *[b"value %d" % i for i in range(n)])
    producer.produce(batch, 1, no_room)
    most = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal most
        most = max(most, sys.getallocatedblocks())

    gc.collect()
    before = sys.getallocatedblocks()
    sys.setprofile(note)
    try:
        producer.produce(batch, 1, no_room)
    finally:
        sys.setprofile(None)
    flushed(producer)
    assert most - before < 500


# --- what does not ------------------------------------------------------------------------------------------------------


def test_a_refused_record_is_named(cluster: MockCluster, open_at: Open) -> None:
    """By its row, also among rows of other topics; too large for the producer, or for its whole queue."""
    producer, _ = open_at(cluster.bootstrap_servers, message_max_bytes="1000")
    topics = [new_topic(producer) for _ in range(2)]
    columns = {
        "value": pa.array([b"a", b"b", bytes(2000), b"c"], pa.binary()),
        "topic": pa.array([1, 0, 1, 0], pa.int32()),
    }
    for more in ({}, {"timestamp": pa.array([5] * 4, pa.int64())}):
        refused = producer.produce(records(columns | more, *topics), 1, no_room)
        assert refused is not None
        assert (refused.row, refused.error.code()) == (2, KafkaError.MSG_SIZE_TOO_LARGE)
    flushed(producer)
    small, _ = open_at(cluster.bootstrap_servers, queue_buffering_max_kbytes="1")
    refused = small.produce(plain(topics[0], b"a", bytes(5000), b"b"), 1, lambda: flushed(small))
    assert refused is not None
    assert (refused.row, refused.error.code()) == (1, KafkaError._QUEUE_FULL)


_sized = st.tuples(st.sampled_from([0, 500, 890, 930, 960, 963, 964, 965, 966, 1000, 2000]), st.integers(0, 1))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(_sized, min_size=1, max_size=30),
    st.sets(st.sampled_from(["topic", "key", "timestamp", "headers", "partition"])),
)
def test_no_row_after_a_refused_one_is_written(
    cluster: MockCluster, open_at: Open, opened: dict[str, Any], rows: list[tuple[int, int]], some: set[str]
) -> None:
    """Of any topic and partition. All rows before it are, whichever columns there are, and sizes around the limit."""
    if not opened:
        opened["producer"] = open_at(cluster.bootstrap_servers, message_max_bytes="1000")[0]
        opened["topics"] = {new_topic(opened["producer"]): dict.fromkeys(range(4), 0) for _ in range(2)}
    producer, topics = opened["producer"], opened["topics"]
    n = len(rows)
    columns = {
        "value": pa.array([b"%02d" % i + bytes(size) for i, (size, _) in enumerate(rows)], pa.binary()),
        "topic": pa.array([topic for _, topic in rows], pa.int32()),
        "key": pa.array([b"%d" % (i % 7) for i in range(n)], pa.binary()),
        "partition": pa.array([i % 4 for i in range(n)], pa.int32()),
        "timestamp": pa.array([5] * n, pa.int64()),
        "headers": pa.array([[{"key": "h", "value": bytes(20 * (i % 3))}] for i in range(n)], HEADERS),
    }
    columns = {name: column for name, column in columns.items() if name == "value" or name in some}
    refused = producer.produce(records(columns, *topics), 1, no_room)
    flushed(producer)
    found = []
    for topic, seen in topics.items():
        for partition, messages in stored(cluster, topic, seen).items():
            seen[partition] += len(messages)
            found += [int((m.value() or b"")[:2]) for m in messages]
    assert refused is None or refused.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert sorted(found) == list(range(n if refused is None else refused.row))


def test_no_row_after_one_that_no_queue_holds_is_written(cluster: MockCluster, open_at: Open) -> None:
    """Rows are sorted by partition before they are written. A small queue limits a record, too."""
    producer, _ = open_at(cluster.bootstrap_servers, queue_buffering_max_kbytes="100")
    topic = new_topic(producer)
    values = [b"a", bytes(200_000), b"b", b"c"]
    columns = {"value": pa.array(values, pa.binary()), "partition": pa.array([2, 1, 0, 3], pa.int32())}
    refused = producer.produce(records(columns, topic), 1, lambda: flushed(producer))
    assert refused is not None
    assert (refused.row, refused.error.code()) == (1, KafkaError._QUEUE_FULL)
    flushed(producer)
    assert [m.value() for messages in stored(cluster, topic).values() for m in messages] == [b"a"]


@pytest.mark.parametrize("most", [37, 53, 100])
def test_a_full_queue_refuses_nothing_while_other_threads_are_busy(
    cluster: MockCluster, open_at: Open, most: int
) -> None:
    """The brokers acknowledge while the task waits for Python's lock, so that the full queue is empty when it goes on."""
    producer, _ = open_at(cluster.bootstrap_servers, queue_buffering_max_messages=str(most))
    topic = new_topic(producer)
    is_over = threading.Event()

    def burn() -> None:
        while not is_over.is_set():
            sum(range(1_000))

    burning = [threading.Thread(target=burn) for _ in range(2)]
    for thread in burning:
        thread.start()

    def make_room() -> None:
        wait_until(lambda: producer.flush(0.01) < most // 2, 20, "room")

    try:
        for _ in range(5):
            assert producer.produce(plain(topic, *[b"v"] * 300), 1, make_room) is None
    finally:
        is_over.set()
        for thread in burning:
            thread.join()
    flushed(producer)


def test_failures_are_counted_by_task(cluster: MockCluster, open_at: Open) -> None:
    """They are many records, but few objects; a second call returns what is new. Nothing else is reported."""
    producer, _ = open_at(cluster.bootstrap_servers, queue_buffering_max_ms="60000")
    topic = new_topic(producer)
    keyed = {"key": pa.array([b"abc"] * 3, pa.binary()), "value": pa.array([b"v"] * 3, pa.binary())}
    for task in (7, 8):
        producer.produce(records(keyed, topic), task, no_room)
    producer.produce(plain(topic, b"v"), 8, no_room)
    assert len(producer) == 7
    assert producer.failures() == []
    producer.purge()
    wait_until(lambda: producer.flush(0.1) == 0, 10, "the reports")
    found = sorted(producer.failures(), key=lambda failures: failures.task)
    assert [(f.task, f.records) for f in found] == [(7, 3), (8, 4)]
    error, topic_of_it, partition, key_bytes = found[0].first
    assert (topic_of_it, key_bytes, error.code()) == (topic, 3, KafkaError._PURGE_QUEUE)
    assert partition in range(4)
    assert producer.failures() == []


def test_a_record_that_times_out(open_at: Open) -> None:
    """It is a failure when its time is over. The client reports why."""
    with MockCluster() as cluster:
        producer, clients = open_at(cluster.bootstrap_servers, message_timeout_ms="1000")
        topic = new_topic(producer)
        host, _, port = cluster.bootstrap_servers.partition(":")
    found: list[Failures] = []

    def failed() -> int:
        producer.poll(0.1)
        found.extend(producer.failures())
        return sum(failures.records for failures in found)

    with socket.socket() as held:  # a test in another process may not take the port, and acknowledge the records
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, int(port)))
        assert producer.produce(plain(topic, b"a", b"b"), 3, no_room) is None
        wait_until(lambda: failed() == 2, 20, "the failures")
    assert {failures.task for failures in found} == {3}
    assert found[0].first.error.code() == KafkaError._MSG_TIMED_OUT
    assert found[0].first.key_bytes is None

    def told() -> str:
        producer.poll(0.1)
        return clients.errors.last

    wait_until(told, 10, "the error")
    with pytest.raises(KafkaException):
        producer.look_up("other", 0.2)


def test_a_wrong_property_is_an_error() -> None:
    """Of the client that is made."""
    clients = ClusterClients({"bootstrap.servers": "h:1"}, producer=ClientSettings({}, {"batch.size": "many"}))
    with pytest.raises(KafkaException, match=r"batch\.size"):
        RecordProducer(clients)


# --- transactions -------------------------------------------------------------------------------------------------------


def test_transactions(cluster: MockCluster, open_at: Open) -> None:
    """Without one nothing is produced; one that is aborted is not seen; another one may follow."""
    producer, _ = open_at(cluster.bootstrap_servers, transactional_id=f"id-{next(_names)}")
    with pytest.raises(KafkaException) as raised:
        producer.begin_transaction()
    assert raised.value.args[0].code() == KafkaError._STATE
    topic = new_topic(producer)
    producer.init_transactions(10)
    for more in ({}, {"timestamp": pa.array([5], pa.int64())}):
        refused = producer.produce(records({"value": pa.array([b"v"], pa.binary())} | more, topic), 1, no_room)
        assert refused is not None
        assert (refused.row, refused.error.code()) == (0, KafkaError._STATE)
        producer.begin_transaction()
        assert producer.produce(plain(topic, b"aborted"), 1, no_room) is None
        flushed(producer)
        with pytest.raises(KafkaException):
            producer.begin_transaction()  # it is open
        producer.abort_transaction(10)


# --- the client of the kernel ----------------------------------------------------------------------------------


def test_closing_does_not_wait_for_a_poll(cluster: MockCluster) -> None:
    """A poll of another thread ends by itself; a call on a closed producer is an error."""
    clients = ClusterClients({"bootstrap.servers": cluster.bootstrap_servers})
    producer = RecordProducer(clients)

    def poll() -> None:
        with suppress(KafkaException):  # it may begin when the producer is closed already
            producer._producer.poll(3.0)

    polling = threading.Thread(target=poll)
    polling.start()
    began = time.monotonic()
    clients.close()
    assert time.monotonic() - began < 2.5
    polling.join()
    with pytest.raises(KafkaException, match="the producer is closed"):
        producer._producer.poll(0)


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.array([1])},
        {"value": pa.array([b"v"]), "topic": pa.array([1], pa.int32())},
        {"value": pa.array([b"v"]), "topic": pa.array([-1], pa.int32())},
        {"value": pa.array([b"v"]), "topic": pa.array([None], pa.int32())},
        {"value": pa.array([b"v"]), "partition": pa.array([1])},
        {"value": pa.array([b"v"]), "headers": pa.array([[1]])},
        {"value": pa.array([b"v"]), "timestamp": pa.array([1.5])},
    ],
)
def test_the_kernel_refuses_wrong_columns(columns: dict[str, pa.Array]) -> None:
    """With an error; whatever it gets, it does not end the process."""
    with pytest.raises(ValueError, match=r"no |not |names"):
        kernel().Rows(pa.record_batch(columns), ["t"])
