"""A planned range is read whole, or an error or a counted warning says what is lost; with a cluster made of lists."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dynamic_kafka.errors import CheckpointError, ClusterUnavailableError, DataLossError, DynamicKafkaError
from dynamic_kafka.kafka.clients import LOG_START, ClientSettings
from dynamic_kafka.native import kernel
from dynamic_kafka.rows import COLUMNS, arrow_schema
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.executor import reader
from dynamic_kafka.source.rules.planning import ClusterAccess, Range, ReadTask
from dynamic_kafka.spark.datasource import DynamicKafkaInputPartition

OLD, NEW = "old-topic-i", "new-topic-i"
Arrival = tuple[int, int, int | None, str]
"""A partition and an offset with a record, or with the code and the text of an event."""


@dataclass
class Log:
    """A partition: the offsets [start, end), and those that are damaged."""

    start: int
    end: int
    damaged: set[int] = field(default_factory=set)


class Cluster:
    """A cluster with the topic `t`, and the clients of a task."""

    def __init__(self, *logs: Log, topic_id: str = OLD) -> None:
        self.leads_to, self.topic_id = "K", topic_id
        self.logs = list(logs)
        self.exists = self.reachable = True
        self.refuses_login, self.has_login = False, True
        self.before_fetch: Callable[[], None] = lambda: None
        self.before_batch: Callable[[], None] = lambda: None
        self.events: list[Arrival] = []
        self.closed = self.outdated = False
        self.topics: set[str] = set()
        self.looked_up: list[str] = []
        self.lags_at: int | None = None  # the end that the broker knows from which records are fetched
        self.dead_links = 0
        """How many connections in a row carry no records, while the admin client's answers arrive."""
        self._columns: list[str] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._fetching: dict[int, int] = {}
        self._at_end: set[int] = set()
        self._damaged: set[int] = set()
        self.admin = SimpleNamespace(
            describe_topics=self._describe_topics,
            list_offsets=self._list_offsets,
        )

    # --- the clients ---

    @property
    def errors(self) -> Any:
        """As `BackgroundErrors`."""
        return SimpleNamespace(
            last="SASL failed" if self.refuses_login else "", authentication_failed=self.refuses_login
        )

    def reason(self) -> str:
        """As that of `ClusterClients`."""
        return str(self.errors.last)

    def result(self, future: Future[Any]) -> Any:
        """As that of `ClusterClients`."""
        return future.result()

    def is_outdated(self) -> bool:
        """Return whether a secret was replaced."""
        return self.outdated

    def close(self) -> None:
        """Close nothing."""

    @property
    def fetching_consumer(self) -> Any:
        """The kernel's consumer, which cannot be made without a login."""
        if not self.has_login:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "sasl.username and sasl.password must be set"))
        return self

    def kafka_id(self, timeout_s: float) -> str:
        """As that of `ClusterClients`."""
        found: str = self._answer(lambda: self.leads_to).result(timeout_s)
        return found

    def note_reports(self) -> None:
        """Note nothing."""

    def renew_if_outdated(self) -> bool:
        """Make new clients, which the cluster answers, if a secret was replaced."""
        outdated, self.outdated = self.outdated, False
        if outdated:
            self.reachable = True
            self.renew()
        return outdated

    def renew(self) -> None:
        """Make new clients."""
        self.dead_links = max(0, self.dead_links - 1)
        self._fetching, self._at_end = {}, set()

    def _answer(self, value: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        if not self.reachable:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        else:
            try:
                future.set_result(value())
            except KafkaException as error:
                future.set_exception(error)
        return future

    def _describe_topics(self, _topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        def described() -> Any:
            if not self.exists:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            return SimpleNamespace(topic_id=self.topic_id, partitions=self.logs)

        return {"t": self._answer(described)}

    def _list_offsets(self, asked: dict[TopicPartition, Any], request_timeout: float) -> dict[TopicPartition, Any]:
        def listed(tp: TopicPartition, spec: Any) -> Any:
            log = self.logs[tp.partition]
            return SimpleNamespace(offset=log.start if spec is LOG_START else log.end)

        return {tp: self._answer(partial(listed, tp, spec)) for tp, spec in asked.items()}

    def look_up(self, topic: str, _timeout_s: float) -> None:
        """Refresh nothing."""
        self.looked_up.append(topic)

    def assign(self, ranges: list[tuple[str, int, int, int]], columns: list[str], *_: Any) -> None:
        """Fetch these."""
        self._columns, self._damaged = columns, set()
        self._spans = {partition: (position, end) for _, partition, position, end in ranges}
        self._fetching = {partition: position for partition, (position, _) in self._spans.items()}

    def seek(self, _: str, partition: int, position: int, end: int) -> None:
        """Fetch this from there on."""
        self._spans[partition], self._fetching[partition] = (position, end), position
        self._at_end.discard(partition)
        self._damaged.discard(partition)

    def stop(self, tps: list[tuple[str, int]]) -> None:
        """Fetch these no more."""
        for _, partition in tps:
            self._spans.pop(partition, None)
            self._fetching.pop(partition, None)

    def fetch(self, _timeout_s: float) -> Any:
        """Return what has arrived, as the kernel does: nothing after a damaged record."""
        arrived = self._arrived()
        rows, events = [], []
        positions: dict[int, int] = {}
        for partition, offset, code, text in arrived:
            position, end = self._spans.get(partition, (0, 0))
            if code in (None, KafkaError._PARTITION_EOF):
                if partition in self._damaged or offset < position:
                    continue
                if code is None:
                    rows += [(partition, offset)] * (offset < end)
                    positions[partition] = min(offset + 1, end)
                elif offset >= end:
                    positions[partition] = end
            else:
                events.append(("t", partition, offset, code, text))
                self._damaged |= {partition} if code in kernel().DAMAGED else set()
        for partition, position in positions.items():
            if partition in self._spans:
                self._spans[partition] = (position, self._spans[partition][1])
        done = [("t", partition) for partition, (position, end) in self._spans.items() if position >= end]
        reached = [("t", partition, position) for partition, position in positions.items() if partition in self._spans]
        self.stop(done)

        def batch(without: list[str]) -> pa.RecordBatch | None:
            self.before_batch()
            if not rows or "t" in without:
                return None
            values = {"partition": [p for p, _ in rows], "offset": [offset for _, offset in rows]}
            return pa.record_batch([pa.array(values[c], COLUMNS[c]) for c in self._columns], self._columns)

        return SimpleNamespace(
            positions=reached,
            records=len(rows),
            batch=batch,
            runs=list,
            events=events,
            is_empty=not arrived,
            unknown_schemas=[],
        )

    def _arrived(self) -> list[Arrival]:
        """Return records up to the first damaged one, then the next ones, as librdkafka does; and events."""
        self.before_fetch()
        found, self.events = self.events, []
        if not self.reachable or self.dead_links:
            time.sleep(0.01)
            return []
        count = sum(end - position for position, end in self._spans.values())
        for partition, position in list(self._fetching.items()):
            if not self.exists or partition >= len(self.logs):
                del self._fetching[partition]
                found.append(event(KafkaError._UNKNOWN_PARTITION, partition))
                continue
            log = self.logs[partition]
            if not log.start <= position <= (log.end if self.lags_at is None else self.lags_at):
                del self._fetching[partition]
                found.append(event(KafkaError._AUTO_OFFSET_RESET, partition, position))
                continue
            last = min(log.end, position + count)
            for offset in range(position, last):
                bad = offset in log.damaged
                found.append(event(KafkaError._BAD_MSG, partition, offset) if bad else record(partition, offset))
            self._fetching[partition] = last
            if last == log.end and partition not in self._at_end:
                self._at_end.add(partition)
                found.append(event(KafkaError._PARTITION_EOF, partition, last))
        if not found:
            time.sleep(0.01)
        return found


def record(partition: int, offset: int) -> Arrival:
    """A record of `t`."""
    return partition, offset, None, ""


def event(code: int, partition: int, offset: int = -1001, text: str = "") -> Arrival:
    """An event of `t`."""
    return partition, offset, code, text or KafkaError(code).str()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_STALL_S", 0.03)
    monkeypatch.setattr(reader, "_PAUSE_S", 0.01)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, int]]]:
    """Read `t`-0 [50, 100) unless told otherwise; the rows as (partition, offset)."""

    def read_rows(
        cluster: Cluster,
        *ranges: Range,
        tolerant: bool = False,
        access: ClusterAccess | None = None,
        rows: list[tuple[int, int]] | None = None,
        **options: str,
    ) -> list[tuple[int, int]]:
        @contextmanager
        def clients(*_: Any, **__: Any) -> Iterator[Cluster]:
            yield cluster
            cluster.closed = True

        monkeypatch.setattr(reader, "kept_clients", clients)
        monkeypatch.setattr(reader, "_record_bytes", {})
        settings = configure_source(
            {
                "kafka.bootstrap.servers": "b:1",
                "subscribe": "t",
                "failOnDataLoss": str(not tolerant).lower(),
                "kafkaConsumer.pollTimeoutMs": "60 s",
                "fetchOffset.retryIntervalMs": "20",
                **options,
            }
        )
        task = ReadTask(list(ranges or [planned()]), {"c": access or ClusterAccess({}, kafka_id="K")})
        found = [] if rows is None else rows
        for batch in reader.read(task, arrow_schema(["partition", "offset"]), settings):
            found += [(row["partition"], row["offset"]) for row in batch.to_pylist()]
        return found

    return read_rows


Read = Callable[..., list[tuple[int, int]]]
IMPATIENT = {"kafkaConsumer.pollTimeoutMs": "400 ms"}
PATIENT = {"fetchOffset.retryIntervalMs": "10 s"}
REMOVED = ClusterAccess({}, "K", removed="the metadata does not name this cluster any more", from_checkpoint=True)


def planned(start: int = 50, end: int = 100, partition: int = 0) -> Range:
    """A range of the old topic."""
    return Range("c", "t", OLD, partition, start, end)


def offsets(first: int, end: int) -> list[tuple[int, int]]:
    """The rows of a range."""
    return [(0, offset) for offset in range(first, end)]


def test_a_range_is_read_whole(read: Read) -> None:
    """And nothing beyond it."""
    assert read(Cluster(Log(0, 200))) == offsets(50, 100)
    assert read(Cluster(Log(0, 100))) == offsets(50, 100)


def test_a_topic_that_the_client_reads_for_the_first_time_is_looked_up(read: Read) -> None:
    """As soon as a fetch brings nothing; not again, also not when later ones bring nothing."""
    cluster = Cluster(Log(0, 200))
    for looked_up in (["t"], ["t"]):
        empty = iter([True, True])
        cluster.dead_links = 1

        def arrive(empty: Iterator[bool] = empty) -> None:
            cluster.dead_links = int(next(empty, False))

        cluster.before_fetch = arrive
        assert read(cluster) == offsets(50, 100)
        assert cluster.looked_up == looked_up
    quick = Cluster(Log(0, 200))
    assert read(quick) == offsets(50, 100)
    assert (quick.looked_up, quick.topics) == ([], {"t"})


def test_a_few_records_are_read_with_a_client_that_fetches_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """If records of the size of the last batch fit into its fetches, for each of the task's partitions of the cluster."""
    used: list[tuple[str, Any]] = []

    @contextmanager
    def clients(purpose: str, name: str, *_: Any, consumer: ClientSettings) -> Iterator[Cluster]:
        used.append((f"{name}: {purpose}", consumer.defaults.get("max.partition.fetch.bytes")))
        yield Cluster(Log(0, 200_000), Log(0, 200_000))

    monkeypatch.setattr(reader, "kept_clients", clients)
    monkeypatch.setattr(reader, "_record_bytes", {})
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    settings = configure_source(options)
    access = {"c": ClusterAccess({}, kafka_id="K"), "d": ClusterAccess({}, kafka_id="K")}
    schema = arrow_schema(["partition", "offset"])  # of 12 bytes
    for ranges in (
        [planned()],
        [planned()],
        [planned(0, 10), planned(0, 100_000, partition=1)],
        [planned(), planned()._replace(cluster="d")],
    ):
        assert sum(b.num_rows for b in reader.read(ReadTask(ranges, access), schema, settings)) == sum(
            r.end - r.start for r in ranges
        )
    little = ("c: read a little", "131072")
    assert used == [("c: read", None), little, ("c: read", None), little, ("d: read", None)]


def test_a_connection_that_is_dead_without_a_word_is_made_again(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster answers questions, and no record arrives. The second new connection gets twice the time of the first."""
    monkeypatch.setattr(reader, "_SILENCE_S", 0.05)
    cluster = Cluster(Log(0, 200))
    cluster.dead_links = 2
    began = time.monotonic()
    assert read(cluster) == offsets(50, 100)
    assert time.monotonic() - began >= 0.05 + 0.1


@pytest.mark.parametrize("first_end", [50, 70], ids=["before the first row", "in the middle"])
def test_a_secret_that_arrives_during_the_task_is_used(read: Read, first_end: int) -> None:
    """The login is refused until the secret is replaced: new clients go on where the old ones were."""
    cluster = Cluster(Log(0, first_end))
    polls = 0

    def pass_time() -> None:
        nonlocal polls
        polls += 1
        if polls == 3:
            cluster.reachable = False
        elif polls == 6:
            cluster.outdated, cluster.logs = True, [Log(0, 200)]

    cluster.before_fetch = pass_time
    assert read(cluster) == offsets(50, 100)


# --- what can never be read any more ---


LOST = [
    pytest.param(Cluster(topic_id=NEW), "recreated", (50, 100), [], id="recreated with fewer partitions"),
    pytest.param(Cluster(), "has only 0 partitions", (50, 100), [], id="fewer partitions, no topic ids"),
    pytest.param(Cluster(Log(0, 80), topic_id=NEW), "recreated", (50, 100), [], id="recreated, ends within the range"),
    pytest.param(Cluster(Log(0, 20), topic_id=NEW), "recreated", (50, 100), [], id="recreated, ends before it"),
    pytest.param(Cluster(Log(0, 500), topic_id=NEW), "recreated", (50, 100), [], id="recreated, longer than before"),
    pytest.param(Cluster(Log(0, 80)), "the log ends at offset 80", (80, 100), offsets(50, 80), id="truncated"),
    pytest.param(Cluster(Log(0, 20)), "the log ends at offset 20", (50, 100), [], id="truncated below the range"),
    pytest.param(Cluster(Log(70, 200)), "up to 70 were deleted", (50, 70), offsets(70, 100), id="head deleted"),
    pytest.param(Cluster(Log(300, 300)), "up to 300 were deleted", (50, 100), [], id="all deleted"),
]


@pytest.mark.parametrize(("cluster", "reason", "lost", "left"), LOST)
def test_lost_offsets_are_recognised(
    read: Read,
    caplog: pytest.LogCaptureFixture,
    cluster: Cluster,
    reason: str,
    lost: tuple[int, int],
    left: list[tuple[int, int]],
) -> None:
    """Within moments, long before `pollTimeoutMs`: an error with the way on, or a warning that counts, and the rest."""
    start, end = lost
    started = time.monotonic()
    with pytest.raises(DataLossError, match=reason) as caught:
        read(cluster)
    assert (caught.value.start, caught.value.end) == lost
    assert f"start the query once with skip-offsets=c/t/0:{start}-{end} to give up only these offsets" in str(
        caught.value
    )

    assert read(cluster, tolerant=True) == left
    assert time.monotonic() - started < 5
    assert f"offsets [{start}, {end}): " in caplog.text
    assert f"{end - start} offsets are given up, because failOnDataLoss=false" in caplog.text


def test_a_deleted_topic_is_recognised(read: Read) -> None:
    """But not from one answer: a broker that has just started does not know its topics yet."""
    cluster = Cluster(Log(0, 100))
    cluster.exists = False
    with pytest.raises(DataLossError, match="the topic was deleted"):
        read(cluster)
    assert read(cluster, tolerant=True) == []
    with pytest.raises(DataLossError, match="the topic was deleted"):  # what is certain only after the time-out
        read(cluster, **IMPATIENT, **{"fetchOffset.retryIntervalMs": "200 ms"})

    polls = itertools.count()

    def wake_up() -> None:
        if next(polls) == 5:
            cluster.exists = True
            cluster._fetching[0] = 50

    cluster.before_fetch = wake_up
    assert read(cluster, **PATIENT) == offsets(50, 100)


def test_a_broker_that_lags_behind_proves_nothing(read: Read) -> None:
    """Another topic id or an older end is believed only if the answer stays."""
    cluster = Cluster(Log(0, 80), topic_id=NEW)
    answers = itertools.count()
    late = cluster.admin.describe_topics

    def describe_topics(*args: Any, **more: Any) -> Any:
        count = next(answers)
        if count == 2:
            cluster.topic_id = OLD
        elif count == 5:
            cluster.logs[0].end = 100
        return late(*args, **more)

    cluster.admin.describe_topics = describe_topics
    assert read(cluster, **PATIENT) == offsets(50, 100)


def test_another_cluster_proves_nothing(read: Read) -> None:
    """A cluster id that leads to another physical cluster is an error, whatever that one says; also if it tolerates loss."""
    cluster = Cluster(Log(0, 20), topic_id=NEW)
    cluster.leads_to = "another"
    for tolerant in (False, True):
        with pytest.raises(CheckpointError, match=r"cluster.id another.*planned on K"):
            read(cluster, tolerant=tolerant)


def test_all_ranges_that_retention_has_passed_are_named_at_once(read: Read) -> None:
    """One start with the option is enough, not one for each partition."""
    cluster = Cluster(Log(70, 200), Log(0, 200), Log(300, 300))
    with pytest.raises(DataLossError, match=r"skip-offsets=c/t/0:50-70;c/t/2:10-20 to give up only these offsets"):
        read(cluster, planned(), planned(partition=1), planned(10, 20, 2))


# --- a topic that is made again ---


def test_all_lost_ranges_of_a_recreated_topic_are_named_at_once(read: Read) -> None:
    """One start with the option gives up the whole batch of the topic, not one partition after the other."""
    cluster = Cluster(Log(0, 10), Log(0, 10), topic_id=NEW)
    with pytest.raises(DataLossError, match=r"skip-offsets=c/t/0:50-100;c/t/1:7-9 to give up only these offsets"):
        read(cluster, planned(), planned(7, 9, 1))


def test_no_row_of_a_recreated_topic_is_returned(read: Read) -> None:
    """With `failOnDataLoss=false` either: the id is compared before the first row."""
    rows: list[tuple[int, int]] = []
    with pytest.raises(DataLossError):
        read(Cluster(Log(0, 500), topic_id=NEW), rows=rows)
    assert rows == []
    assert read(Cluster(Log(0, 500), topic_id=NEW), tolerant=True) == []


def test_a_topic_that_is_recreated_while_it_is_read_fails_the_task(read: Read) -> None:
    """Spark drops the rows of a task that fails; the next attempt finds the new topic before its first row."""
    cluster = Cluster(Log(0, 60))
    polls: list[int] = []

    def recreate() -> None:
        polls.append(1)
        if len(polls) == 2:
            cluster.topic_id, cluster.logs[0].end = NEW, 500

    cluster.before_fetch = recreate
    with pytest.raises(DynamicKafkaError, match=r"recreated.*while it was read\. No row of this task is used"):
        read(cluster, tolerant=True)
    assert read(cluster, tolerant=True) == []


# --- no answer ---


@pytest.mark.parametrize("tolerant", [False, True])
def test_no_answer_is_no_proof(read: Read, *, tolerant: bool) -> None:
    """The task waits for `pollTimeoutMs`, and the error says how to give up the range; also if losses are tolerated."""
    cluster = Cluster(Log(0, 100))
    cluster.reachable = False
    started = time.monotonic()
    with pytest.raises(ClusterUnavailableError) as caught:
        read(cluster, planned(), planned(0, 9, partition=1), tolerant=tolerant, **IMPATIENT)
    assert time.monotonic() - started > 0.4
    assert "Bring the cluster back" in str(caught.value)
    assert "skip-offsets=c/t/0:50-100;c/t/1:0-9" in str(caught.value)
    assert "failOnDataLoss" not in str(caught.value)


def test_brokers_that_go_on_to_disagree(read: Read) -> None:
    """One says that the range is out of its log, and the leader that it is not: that proves no loss, and ends some time."""
    cluster = Cluster(Log(0, 100))
    cluster.lags_at = 40
    with pytest.raises(ClusterUnavailableError, match=r"nothing could be read for \d+ s"):
        read(cluster, tolerant=True, **IMPATIENT)


@pytest.mark.parametrize(("mode", "said"), [("isolate", True), ("fail", False)])
def test_a_query_that_isolates_can_postpone_its_cluster(read: Read, mode: str, *, said: bool) -> None:
    """The error of a dead cluster names the command that loses nothing."""
    cluster = Cluster(Log(0, 100))
    cluster.reachable = False
    with pytest.raises(ClusterUnavailableError) as caught:
        read(cluster, **IMPATIENT, **{"cluster-failure-mode": mode})
    assert ("dynamic-kafka offsets postpone CHECKPOINT c" in str(caught.value)) is said


def test_a_cluster_that_comes_back_in_time_is_read(read: Read) -> None:
    """Nothing is lost by an outage."""
    cluster = Cluster(Log(0, 100))
    started = time.monotonic()

    def come_back() -> None:
        cluster.reachable = time.monotonic() - started > 0.2

    cluster.before_fetch = come_back
    assert read(cluster, tolerant=True) == offsets(50, 100)


def test_a_cluster_that_is_removed_and_silent(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    """The metadata is the evidence: given up with its count, or an error that names both ways on."""
    cluster = Cluster(Log(0, 100))
    cluster.reachable = False
    patience = {"kafka.default.api.timeout.ms": "200"}
    with pytest.raises(ClusterUnavailableError, match="any more") as caught:
        read(cluster, access=REMOVED, **patience)
    assert "once with skip-offsets=c/t/0:50-100 or failOnDataLoss=false" in str(caught.value)
    assert "the checkpoint, which holds no passwords" in str(caught.value)

    assert read(cluster, access=REMOVED, tolerant=True, **patience) == []
    assert "offsets [50, 100): nothing could be read" in caplog.text
    assert "50 offsets are given up" in caplog.text

    cluster.reachable = True
    assert read(cluster, access=REMOVED, tolerant=True, **patience) == offsets(50, 100)


@pytest.mark.parametrize("login", ["refused", "gone"])
def test_a_removed_cluster_whose_login_is_gone(read: Read, caplog: pytest.LogCaptureFixture, login: str) -> None:
    """The document holds no password: nothing is waited for."""
    cluster = Cluster(Log(0, 100))
    cluster.reachable, cluster.refuses_login, cluster.has_login = False, login == "refused", login != "gone"
    with pytest.raises(ClusterUnavailableError, match=r"give passwords as \$\{env:...\} or \$\{file:...\}"):
        read(cluster, access=REMOVED)
    assert read(cluster, access=REMOVED, tolerant=True) == []
    assert "50 offsets are given up" in caplog.text


def test_a_login_that_is_gone_says_so(read: Read) -> None:
    """Also while the metadata service is down, so that nobody knows whether the cluster was removed."""
    cluster = Cluster(Log(0, 100))
    cluster.has_login = False
    with pytest.raises(ClusterUnavailableError, match=r"sasl.username.*the checkpoint, which holds no passwords"):
        read(cluster, access=ClusterAccess({}, "K", from_checkpoint=True), tolerant=True)


# --- damaged records, truncated logs ---


def test_damaged_records_are_never_passed_in_silence(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    """A broken checksum does not stop librdkafka; the records that follow must not hide the gap."""
    cluster = Cluster(Log(0, 200, damaged={80}))
    with pytest.raises(DataLossError, match=r"offsets \[80, 100\): the records cannot be decoded.*c/t/0:80-100"):
        read(cluster)
    assert read(cluster, tolerant=True) == offsets(50, 80)
    assert "20 offsets are given up" in caplog.text


def test_the_end_of_the_log_does_not_hide_damage_before_it(read: Read) -> None:
    """Both arrive at once: the range is not at its end before the damaged records are given up."""
    with pytest.raises(DataLossError, match=r"offsets \[80, 100\): the records cannot be decoded"):
        read(Cluster(Log(0, 100, damaged={80})))


def test_damage_behind_the_range_is_not_its_loss(read: Read) -> None:
    """The last record of a range may have been compacted away, and the next one be damaged."""
    cluster = Cluster(Log(0, 200))

    def damage() -> None:
        if cluster._fetching:
            cluster.events = [*(record(0, offset) for offset in range(50, 95)), event(KafkaError._BAD_MSG, 0, 120)]
            cluster._fetching.clear()

    cluster.before_fetch = damage
    assert read(cluster) == offsets(50, 95)


def test_records_that_are_damaged_on_the_way_are_fetched_again(read: Read) -> None:
    """The next answer of the broker may be whole."""
    cluster = Cluster(Log(0, 200, damaged={80}))
    polls: list[int] = []

    def heal() -> None:
        polls.append(1)
        if len(polls) == 3:
            cluster.logs[0].damaged.clear()

    cluster.before_fetch = heal
    assert read(cluster, **PATIENT) == offsets(50, 100)  # with time for three answers


def test_a_truncation_that_librdkafka_finds_is_told(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    """It comes as a failed reset, although the position is within the log again."""
    text = "Partition log truncation detected at 50: broker end offset is 40: Local: Partition log truncation detected"
    cluster = Cluster(Log(0, 100))

    def truncate() -> None:
        if cluster._fetching and not found:
            found.append(text)
            cluster._fetching.clear()
            cluster.events = [event(KafkaError._AUTO_OFFSET_RESET, 0, 50, text)]

    found: list[str] = []
    cluster.before_fetch = truncate
    with pytest.raises(DataLossError, match="truncated and written again"):
        read(cluster)
    found.clear()
    assert read(cluster, tolerant=True) == offsets(50, 100)
    assert "the records that are there now are read instead" in caplog.text


# --- around it ---


def test_rows_that_take_long_downstream_are_no_stall(read: Read) -> None:
    """The time without progress begins when the reader goes on, not when it handed over its rows."""
    cluster = Cluster(Log(0, 60))

    def slowly() -> None:
        time.sleep(1.2)
        cluster.before_fetch = more

    def more() -> None:
        if more_at and time.monotonic() > more_at[0]:
            cluster.logs[0].end = 100
        elif not more_at:
            more_at.append(time.monotonic() + 0.05)

    more_at: list[float] = []
    cluster.before_batch = slowly
    assert read(cluster, **PATIENT, **{"kafkaConsumer.pollTimeoutMs": "1 s"}) == offsets(50, 100)


def test_a_cluster_that_is_silent_lets_the_others_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows do not wait for it, and the time of the others is no stall of its own."""
    clusters = {"a": Cluster(Log(0, 100)), "b": Cluster(Log(0, 10))}
    clusters["a"].reachable = False

    @contextmanager
    def clients(_purpose: str, cluster: str, *_: Any, **__: Any) -> Iterator[Cluster]:
        yield clusters[cluster]

    monkeypatch.setattr(reader, "kept_clients", clients)
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    settings = configure_source(options | {"kafkaConsumer.pollTimeoutMs": "1 s"})
    task = ReadTask(
        [planned()._replace(cluster="a"), planned(0, 10)._replace(cluster="b")],
        dict.fromkeys("ab", ClusterAccess({}, kafka_id="K")),
    )
    batches = reader.read(task, arrow_schema(["offset"]), settings)
    assert next(batches).num_rows == 10
    time.sleep(1.2)
    clusters["a"].reachable = True
    assert sum(batch.num_rows for batch in batches) == 50


def test_clients_are_given_back_if_another_cluster_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of two clusters, of which the second cannot be reached at all."""
    given_back = []

    @contextmanager
    def clients(_purpose: str, cluster: str, *_: Any, **__: Any) -> Iterator[Cluster]:
        if cluster == "b":
            raise DynamicKafkaError("no client")
        try:
            yield Cluster()
        finally:
            given_back.append(cluster)

    monkeypatch.setattr(reader, "kept_clients", clients)
    settings = configure_source({"kafka.bootstrap.servers": "b:1", "subscribe": "t"})
    task = ReadTask([planned()._replace(cluster=c) for c in "ab"], dict.fromkeys("ab", ClusterAccess({})))
    with pytest.raises(DynamicKafkaError, match="no client"):
        list(reader.read(task, arrow_schema(["offset"]), settings))
    assert given_back == ["a"]


def test_a_task_shows_no_secret() -> None:
    """In a log or an error of Spark's; and it survives pickling."""
    task = ReadTask([planned()], {"c": ClusterAccess({"sasl.password": "hunter2"}, "K")})
    assert "hunter2" not in repr(DynamicKafkaInputPartition(task))
    assert pickle.loads(pickle.dumps(task)) == task
    assert pickle.loads(pickle.dumps(task)).clusters["c"].properties == {"sasl.password": "hunter2"}
