"""What the fetcher of `source/executor/fetcher.py` promises. On librdkafka's mock cluster, apart from damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from dynamic_kafka.errors import RecordError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients, kept_clients
from dynamic_kafka.native import kernel
from dynamic_kafka.rows import COLUMNS, arrow_schema
from dynamic_kafka.source.executor.fetcher import (
    Fetched,
    Fetcher,
    FetchEvent,
    Run,
    Span,
)
from dynamic_kafka.testing import KafkaBroker, MockCluster, produce, wait_until

T0, T1 = KafkaTopicPartition("t", 0), KafkaTopicPartition("t", 1)
SETTINGS = ClientSettings(
    {"fetch.wait.max.ms": "20", "topic.metadata.propagation.max.ms": "500"},
    {"enable.partition.eof": "true", "group.id": "g"},
)


class Fetching:
    """A fetcher, and what it has returned so far."""

    def __init__(self, fetcher: Fetcher, clients: ClusterClients) -> None:
        self.fetcher, self.clients = fetcher, clients
        self.rows: list[dict[str, Any]] = []
        self.runs: list[Run] = []
        self.sizes: list[int] = []
        self.events: list[FetchEvent] = []
        self.positions: dict[KafkaTopicPartition, int] = {}

    def fetch(self, without: Sequence[str] = (), timeout_s: float = 0.2) -> Fetched:
        """Fetch once."""
        fetched = self.fetcher.fetch(timeout_s)
        self.positions |= fetched.positions
        self.events += fetched.events
        self.runs += fetched.runs()
        batch = fetched.batch(without)
        if batch is not None:
            batch.validate(full=True)
            self.rows += batch.to_pylist()
            self.sizes.append(batch.num_rows)
        return fetched

    def fetch_until(self, condition: Callable[[], object], what: str, without: Sequence[str] = ()) -> None:
        """Fetch until a condition holds."""

        def holds() -> bool:
            self.fetch(without)
            return bool(condition())

        wait_until(holds, 20, what)

    def until(self, **positions: int) -> list[tuple[int, int]]:
        """Fetch until the positions of some partitions of `t` (`p0=...`) are reached; the rows by partition and offset."""
        self.until_moved(**positions)
        return sorted((row["partition"], row["offset"]) for row in self.rows)

    def until_moved(self, **positions: int) -> None:
        """The same, whichever columns are fetched."""
        wanted = {KafkaTopicPartition("t", int(name[1:])): position for name, position in positions.items()}
        self.fetch_until(lambda: wanted.items() <= self.positions.items(), str(positions))


Open = Callable[..., Fetching]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """A cluster without topics."""
    with MockCluster() as running:
        yield running


@pytest.fixture
def open_at() -> Iterator[Callable[..., Fetching]]:
    """A function that opens a fetcher at a cluster: `open_at(servers, {T0: Span(0, 10)})`."""
    opened: list[ClusterClients] = []

    def at(
        servers: str,
        spans: dict[KafkaTopicPartition, Span],
        columns: Sequence[str] = tuple(COLUMNS),
    ) -> Fetching:
        clients = ClusterClients({"bootstrap.servers": servers}, consumer=SETTINGS)
        opened.append(clients)
        fetcher = Fetcher(clients, "c", arrow_schema(columns))
        fetcher.assign(spans)
        return Fetching(fetcher, clients)

    yield at
    for clients in opened:
        clients.close()


def test_a_range_is_fetched_and_nothing_else(cluster: MockCluster, open_at: Open) -> None:
    """From its position to its end, in order of offset, each record once."""
    for partition in (0, 1, 2):
        produce(cluster.bootstrap_servers, "t", [(None, b"v")] * 100, partition=partition)
    fetching = open_at(cluster.bootstrap_servers, {T0: Span(10, 60), T1: Span(0, 100)})
    found = fetching.until(p0=60, p1=100)
    assert found == [*((0, offset) for offset in range(10, 60)), *((1, offset) for offset in range(100))]
    of_first = [row["offset"] for row in fetching.rows if row["partition"] == 0]
    assert of_first == sorted(of_first)
    assert fetching.events == []
    assert fetching.fetch().records == 0


def test_all_columns_of_odd_records(cluster: MockCluster, open_at: Open) -> None:
    """No key, no value, empty ones, headers with and without values, and a time before 1970 or after 9999."""
    servers = cluster.bootstrap_servers
    produce(servers, "t", [(b"k", b"v"), (None, None), (b"", b"")], partition=0, timestamp_ms=1_700_000_000_123)
    produce(servers, "t", [(None, b"h")], partition=0, headers=[("a", b"1"), ("a", None), ("", b"")], timestamp_ms=1)
    produce(servers, "t", [(None, b"late")], partition=0, timestamp_ms=2**63 // 1000 - 1)
    fetching = open_at(servers, {T0: Span(0, 5)}, [name for name in COLUMNS if name != "timestamp"])
    fetching.until(p0=5)
    shown = [(row["key"], row["value"], row["headers"]) for row in fetching.rows]
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "", "value": b""}]
    assert shown == [
        (b"k", b"v", None),
        (None, None, None),
        (b"", b"", None),
        (None, b"h", headers),
        (None, b"late", None),
    ]
    assert {(row["topic"], row["cluster"], row["timestampType"]) for row in fetching.rows} == {("t", "c", 0)}

    def late() -> pa.RecordBatch | None:
        return only_times.fetcher.fetch(0.2).batch(())

    only_times = open_at(servers, {T0: Span(4, 5)}, ["timestamp"])
    batch = wait_until(late, 20, "the late record")
    assert batch is not None
    assert batch.schema == arrow_schema(["timestamp"])
    assert batch.column(0).cast(pa.int64()).to_pylist() == [(2**63 // 1000 - 1) * 1000]


def test_runs_say_what_the_records_are_of(cluster: MockCluster, open_at: Open) -> None:
    """For the metrics: with the time of the last record within the range, whichever columns are wanted."""
    for times_ms in ((5, 0), (9, 0), (7, 0), (8, 1), (11, 0)):
        produce(cluster.bootstrap_servers, "t", [(None, b"v")] * 2, partition=times_ms[1], timestamp_ms=times_ms[0])
    fetching = open_at(cluster.bootstrap_servers, {T0: Span(1, 6), T1: Span(0, 2)}, ["value"])
    fetching.until_moved(p0=6, p1=2)
    counts = {p: sum(run[2] for run in fetching.runs if run[:2] == ("t", p)) for p in (0, 1)}
    last_ms = {p: [run[3] for run in fetching.runs if run[1] == p][-1] for p in (0, 1)}
    assert (counts, last_ms) == ({0: 5, 1: 2}, {0: 7, 1: 8})


def test_a_time_that_does_not_fit_is_an_error_of_that_record(cluster: MockCluster, open_at: Open) -> None:
    """It names the record. If the time is not wanted, or the topic left out, it is none."""
    servers = cluster.bootstrap_servers
    produce(servers, "t", [(None, b"v")] * 3, partition=0)
    produce(servers, "t", [(None, b"v")], partition=0, timestamp_ms=2**63 // 1000 + 1)
    fetching = open_at(servers, {T0: Span(0, 4)}, ["timestamp"])
    with pytest.raises(RecordError, match=r"Cluster 'c', topic 't', partition 0, offset 3: the record's timestamp"):
        fetching.until(p0=4)
    assert open_at(servers, {T0: Span(0, 4)}, ["partition", "offset"]).until(p0=4)[-1] == (0, 3)
    left_out = open_at(servers, {T0: Span(0, 4)}, ["timestamp"])
    left_out.fetch_until(lambda: left_out.positions == {T0: 4}, "the end", without=["t"])
    assert left_out.rows == []


def test_topics_are_left_out_of_a_batch(cluster: MockCluster, open_at: Open) -> None:
    """The positions move all the same."""
    other = KafkaTopicPartition("u", 0)
    for topic in ("t", "u"):
        produce(cluster.bootstrap_servers, topic, [(None, topic.encode())] * 50, partition=0)
    fetching = open_at(cluster.bootstrap_servers, {T0: Span(0, 50), other: Span(0, 50)})
    fetching.fetch_until(lambda: fetching.positions == {T0: 50, other: 50}, "the end", without=["u"])
    assert [row["value"] for row in fetching.rows] == [b"t"] * 50


def test_nothing_arrives(cluster: MockCluster, open_at: Open) -> None:
    """Within the time-out, and it says so."""
    produce(cluster.bootstrap_servers, "t", [(None, b"v")], partition=0)
    fetching = open_at(cluster.bootstrap_servers, {T0: Span(0, 5)})
    wait_until(lambda: fetching.fetch().records, 20, "the record")
    wait_until(lambda: fetching.fetch(timeout_s=0.05).is_empty, 20, "a fetch with nothing in it")
    assert fetching.positions == {T0: 1}


def test_ranges_are_fetched_again_stopped_and_changed(cluster: MockCluster, open_at: Open) -> None:
    """`seek` goes anywhere and takes a new end; `stop` ends a range that is not finished."""
    for partition in (0, 1):
        produce(cluster.bootstrap_servers, "t", [(None, b"v")] * 100, partition=partition)
    fetching = open_at(cluster.bootstrap_servers, {T0: Span(0, 1000), T1: Span(0, 100)})
    fetching.until(p0=100)
    fetching.fetcher.seek(T0, Span(95, 98))
    fetching.rows.clear()
    assert set(fetching.until(p0=98)) >= {(0, 95), (0, 96), (0, 97)}
    assert (0, 98) not in fetching.until(p1=100)
    fetching.fetcher.assign({T0: Span(0, 50), T1: Span(90, 200)})
    fetching.fetcher.stop([T1])
    fetching.rows.clear()
    assert fetching.until(p0=50) == [(0, offset) for offset in range(50)]
    fetching.fetcher.look_up("t")


def test_the_size_of_a_batch_is_bounded(cluster: MockCluster, open_at: Open) -> None:
    """By its records, and soon after it has 16 MiB."""
    produce(cluster.bootstrap_servers, "t", [(None, b"v")] * (kernel().BATCH_RECORDS + 5000), partition=0)
    small = open_at(cluster.bootstrap_servers, {T0: Span(0, kernel().BATCH_RECORDS + 5000)}, ["partition", "offset"])
    small.until(p0=kernel().BATCH_RECORDS + 5000)
    assert max(small.sizes) <= kernel().BATCH_RECORDS

    value, spans = b"v" * 500_000, {KafkaTopicPartition("u", partition): Span(0, 9) for partition in range(4)}
    for partition in range(4):  # the mock cluster keeps 5 MB of a partition
        produce(cluster.bootstrap_servers, "u", [(None, value)] * 9, partition=partition)
    large = open_at(cluster.bootstrap_servers, spans)
    for _ in range(2):  # it learns the size of records from the batch before
        large.sizes, large.positions = [], {}
        large.fetcher.assign(spans)
        large.fetch_until(lambda: len(large.positions) == 4 and set(large.positions.values()) == {9}, "all of them")
    assert sum(large.sizes) == 36
    assert max(large.sizes) <= kernel().BATCH_BYTES / len(value) + 1


def test_headers_count_for_the_size_of_a_batch(cluster: MockCluster, open_at: Open) -> None:
    """As keys and values do, from the first batch on: a batch of the kernel has 16 MiB at most, whatever its values are."""
    headers, spans = (
        [("h", b"x" * 240_000)] * 4,
        {KafkaTopicPartition(t, p): Span(0, 4) for t in "tuv" for p in range(4)},
    )
    for tp in spans:  # the mock cluster keeps 5 MB of a partition
        produce(cluster.bootstrap_servers, tp.topic, [(None, b"v")] * 4, partition=tp.partition, headers=headers)
    for columns, most in ((["headers"], kernel().BATCH_BYTES // 960_000), (["value"], 48)):
        fetching = open_at(cluster.bootstrap_servers, spans, columns)
        fetching.fetch_until(lambda: sum(fetching.sizes) == 48, "all of them")  # noqa: B023
        assert max(fetching.sizes) <= most
        assert fetching.positions == dict.fromkeys(spans, 4)


@pytest.mark.broker
def test_large_records_are_batches(cluster_a: KafkaBroker, topic: Callable[..., str], open_at: Open) -> None:
    """Also one that has more bytes than a batch should, in its value or in its headers. What follows it is not lost."""
    name, servers, large = topic(), cluster_a.bootstrap_servers, kernel().BATCH_BYTES + 1
    cluster_a.create_topic(name, config={"max.message.bytes": "60000000"})
    properties, tp = {"message.max.bytes": "60000000"}, KafkaTopicPartition(name, 0)
    produce(servers, name, [(None, b"v"), (None, b"v" * large)], partition=0, properties=properties)
    megabytes = [("h", b"x" * 1_000_000)] * (kernel().BATCH_BYTES // 1_000_000 + 1)
    produce(servers, name, [(None, b"v")] * 2, partition=0, headers=megabytes, properties=properties)
    produce(servers, name, [(None, b"v")] * 2, partition=0)
    fetching = open_at(servers, {tp: Span(0, 6)}, ["offset", "value", "headers"])
    fetching.fetch_until(lambda: fetching.positions.get(tp) == 6, "the end")
    assert [(r["offset"], len(r["value"]), len(r["headers"] or ())) for r in fetching.rows] == [
        (0, 1, 0), (1, large, 0), (2, 1, len(megabytes)), (3, 1, len(megabytes)), (4, 1, 0), (5, 1, 0)
    ]  # fmt: skip
    assert max(fetching.sizes) <= 2


def test_what_waits_for_the_next_batch_is_forgotten_by_a_seek(cluster: MockCluster, open_at: Open) -> None:
    """No record is returned twice or left out, wherever it goes."""
    for partition in range(4):  # more than a batch; of the first chunks nobody could guess the size of the next ones
        records: list[tuple[None, bytes]] = [*[(None, b"v")] * 300, *[(None, b"v" * 100_000)] * 45]
        produce(cluster.bootstrap_servers, "t", records, partition=partition)
    spans = {KafkaTopicPartition("t", partition): Span(0, 345) for partition in range(4)}
    fetching = open_at(cluster.bootstrap_servers, spans, ["partition", "offset", "value"])
    for span in (Span(7, 300), Span(290, 345), Span(0, 345)):
        fetching.positions = {}
        fetching.fetcher.assign(spans)
        wait_until(lambda: fetching.fetch().records, 20, "a batch")
        if fetching.positions.get(T0) == 345:
            continue  # a range that has ended is not sought
        fetching.fetcher.seek(T0, span)
        fetching.rows, fetching.positions = [], {}
        fetching.until_moved(p0=span.end)
        assert [row["offset"] for row in fetching.rows if row["partition"] == 0] == list(range(*span))


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), 1e-300])
def test_no_time_is_enough_to_fetch_what_is_there(cluster: MockCluster, open_at: Open, timeout_s: float) -> None:
    """A time may be any number; a long one, which may be infinite, ends with the range."""
    produce(cluster.bootstrap_servers, "t", [(None, b"v")], partition=0)
    clients = open_at(cluster.bootstrap_servers, {T0: Span(0, 1)}, ["offset"]).clients
    wait_until(lambda: clients.fetching_consumer.fetch(timeout_s).records, 20, "the record")
    clients.fetching_consumer.assign([("t", 0, 0, 1)], ["offset"], "c")
    assert clients.fetching_consumer.fetch(float("inf")).records == 1
    clients.fetching_consumer.look_up("t", 1e300)


def test_nothing_is_fetched_without_ranges(cluster: MockCluster, open_at: Open) -> None:
    """A fetch returns at once, and is empty."""
    clients = open_at(cluster.bootstrap_servers, {}).clients
    assert clients.fetching_consumer.fetch(0).is_empty


def test_headers_that_cannot_be_read_name_their_record(cluster: MockCluster, open_at: Open) -> None:
    """The limit of librdkafka is 100,000 headers of a record. Without the column `headers` that is no error."""
    produce(cluster.bootstrap_servers, "t", [(None, b"v")], partition=0)
    produce(cluster.bootstrap_servers, "t", [(None, b"v")], partition=0, headers=[("", b"")] * 100_001)
    with pytest.raises(
        RecordError, match=r"Cluster 'c', topic 't', partition 0, offset 1: its headers cannot be read \("
    ):
        open_at(cluster.bootstrap_servers, {T0: Span(0, 2)}, ["headers"]).until_moved(p0=2)
    fetching = open_at(cluster.bootstrap_servers, {T0: Span(0, 2)}, ["offset"])
    fetching.until_moved(p0=2)
    assert len(fetching.rows) == 2


def test_an_offset_out_of_range_is_an_event(cluster: MockCluster, open_at: Open) -> None:
    """No position is reset in silence."""
    produce(cluster.bootstrap_servers, "t", [(None, b"v")] * 3, partition=0)
    fetching = open_at(cluster.bootstrap_servers, {T0: Span(100, 200)})
    fetching.fetch_until(lambda: fetching.events, "the event")
    assert fetching.events[0][:2] == T0
    assert fetching.events[0].code == KafkaError._AUTO_OFFSET_RESET
    assert fetching.rows == []


def test_what_a_client_reports_is_noted(open_at: Open) -> None:
    """A broker that is down is the reason that the reader gives."""
    fetching = open_at("127.0.0.1:1", {T0: Span(0, 5)})
    fetching.fetch_until(lambda: fetching.clients.errors.last, "an error")
    assert "127.0.0.1:1" in fetching.clients.errors.last or "brokers" in fetching.clients.errors.last


def test_a_wrong_property_is_an_error_of_the_client() -> None:
    """As the reader expects it."""
    clients = ClusterClients({"bootstrap.servers": "h:1", "fetch.max.bytes": "-7"}, consumer=SETTINGS)
    fetcher = Fetcher(clients, "c", arrow_schema(["value"]))
    with pytest.raises(KafkaException) as caught:
        fetcher.assign({T0: Span(0, 1)})
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert "fetch.max.bytes" in caught.value.args[0].str()


def test_kept_clients_fetch_nothing(cluster: MockCluster) -> None:
    """What they fetched for one task does not reach the next one."""
    servers = cluster.bootstrap_servers
    produce(servers, "t", [(None, b"v")] * 100, partition=0)
    properties, seen = {"bootstrap.servers": servers}, []
    for _ in range(2):
        with kept_clients("read", "c", properties, consumer=SETTINGS) as clients:
            seen.append(clients)
            fetching = Fetching(Fetcher(clients, "c", arrow_schema(COLUMNS)), clients)
            fetching.fetcher.assign({T0: Span(40, 50)})
            assert fetching.until(p0=50) == [(0, offset) for offset in range(40, 50)]
        assert clients.poll_idle()
    assert seen[0] is seen[1]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with ten records in `t`, of which the seventh is damaged."""
    folder = tmp_path_factory.mktemp("damaged")
    with KafkaBroker(log_dir=folder) as broker:
        broker.create_topic("t")
        for i in range(10):
            produce(broker.bootstrap_servers, "t", [(None, b"record-%d" % i)])
        broker.stop()
        (segment,) = folder.rglob("t-0/00000000000000000000.log")
        segment.write_bytes(segment.read_bytes().replace(b"record-6", b"damaged!"))
        broker.start()
        yield broker.bootstrap_servers


@pytest.mark.broker
def test_nothing_behind_damaged_records_is_returned(open_at: Open, damaged: str) -> None:
    """Neither records nor the end of the log hide that some are missing."""
    fetching = open_at(damaged, {T0: Span(0, 10)})
    fetching.fetch_until(lambda: fetching.events, "the event")
    fetching.fetch()
    assert fetching.events[0].code in kernel().DAMAGED
    assert fetching.events[0][:3] == (*T0, 6)
    assert [row["offset"] for row in fetching.rows if row["offset"] < 6] == list(range(6))
    assert fetching.positions == {T0: 6}
