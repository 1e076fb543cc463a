"""Views that are late, partial or absent: what the enumerator does with a cluster behind a slow link, or with none.

The connection to the cluster is a stand-in; everything above it is the code that runs in production, with its threads.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests import engine
from tests.engine import StandIn

from dynamic_kafka.errors import ClusterUnavailableError, DataLossError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.kafka.cluster import TopicInfo
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.source.configure import SourceObjects
from dynamic_kafka.source.document.offsets import ClusterOffsets, decode
from dynamic_kafka.source.driver import monitor as monitor_module
from dynamic_kafka.source.driver.monitor import ClusterMonitor, MonitorTarget
from dynamic_kafka.source.rules.desired import is_undecided
from dynamic_kafka.source.rules.model import ClusterView, OffsetRequest

TP = KafkaTopicPartition
LATEST = KafkaOffsetsInitializer.latest()
ISOLATE = {"cluster-failure-mode": "isolate"}
FORGET = {"stream-metadata-removed-cluster-retention-ms": "0"}


@dataclass
class Cluster:
    """A cluster behind a link: its topics (id, ends), the time of a round trip, and what it refuses."""

    topics: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    delay_s: float = 0.0
    gate: threading.Event = field(default_factory=threading.Event)
    """Not set, the cluster hangs."""
    dead: bool = False
    unknown: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    leaderless: set[TP] = field(default_factory=set)
    described: list[int] = field(default_factory=list)


CLUSTERS: dict[str, Cluster] = {}


class Connection(StandIn):
    """Each call is a round trip."""

    def __init__(self, cluster_id: str, properties: Mapping[str, str], **_: object) -> None:
        super().__init__(cluster_id, properties)
        self.cluster = CLUSTERS[cluster_id]

    def _trip(self) -> None:
        time.sleep(self.cluster.delay_s)
        self.cluster.gate.wait(20)
        if self.cluster.dead:
            raise ClusterUnavailableError(f"Cluster '{self.cluster_id}' does not answer", cluster_id=self.cluster_id)

    def matching_topics(self, pattern: re.Pattern[str]) -> frozenset[str]:
        """The topics with a matching name."""
        self._trip()
        return frozenset(t for t in self.cluster.topics if pattern.fullmatch(t) and t not in self.cluster.unknown)

    def topics(self, names: Collection[str]) -> tuple[dict[str, TopicInfo], frozenset[str]]:
        """As `ClusterConnection.topics`."""
        self._trip()
        self.cluster.described.append(len(names))
        denied = self.cluster.denied & set(names)
        infos = {
            name: TopicInfo(
                topic_id, tuple(-1 if TP(name, p) in self.cluster.leaderless else 1 for p in range(len(ends)))
            )
            for name, (topic_id, ends) in self.cluster.topics.items()
            if name in set(names) - denied - self.cluster.unknown
        }
        return infos, frozenset(denied)

    def available_ends(self, tps: Collection[TP], _: object) -> dict[TP, int]:
        """The ends of the partitions that are still there."""
        self._trip()
        there = self.cluster.topics.keys() - self.cluster.unknown
        return {tp: self.cluster.topics[tp.topic][1][tp.partition] for tp in tps if tp.topic in there}

    def offsets_for_times(self, times_ms: Mapping[TP, int]) -> dict[TP, int | None]:
        """All records are younger than any time."""
        self._trip()
        return dict.fromkeys(times_ms, 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The only cluster of the query; ids are those of `kafka.bootstrap.servers`."""
    CLUSTERS.clear()
    CLUSTERS["kafka"] = Cluster({"orders-1": ("id1", [100, 100]), "orders-2": ("id2", [100])})
    CLUSTERS["kafka"].gate.set()
    monkeypatch.setattr(monitor_module, "ClusterConnection", Connection)
    monkeypatch.setattr(monitor_module, "start_polling", lambda _: None)
    monkeypatch.setattr(monitor_module, "stop_polling", lambda _: None)
    monkeypatch.setattr(monitor_module, "_INCOMPLETE_RETRY_S", 0.05)
    monkeypatch.setattr(monitor_module, "_MISSING_AFTER_S", 0.3)
    return CLUSTERS["kafka"]


class Query(engine.Query):
    """A query, and how often it has read each offset."""

    def __init__(self, service: InMemoryMetadataService | None = None, **options: str) -> None:
        defaults = {"startingOffsets": "earliest", "partition.discovery.interval.ms": "50"}
        if service is None:
            defaults["kafka.bootstrap.servers"] = "b:1"
        super().__init__(defaults | options, SourceObjects(metadata_service=service))
        self.read: Counter[tuple[str, int, int]] = Counter()

    def step(self, *, limited: bool = True) -> bool:
        """One trigger; whether there was a batch."""
        before = len(self.log)
        super().step(limited=limited)
        return len(self.log) > before

    def _run(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> int:
        for task in self.enumerator.tasks(start, end):
            for r in task.ranges:
                self.read.update((r.topic, r.partition, offset) for offset in range(r.start, r.end))
        return 0

    def cluster(self) -> ClusterOffsets:
        """The cluster in the last document."""
        return decode(self.document).clusters["kafka"]

    def events(self) -> list[str]:
        """What was said."""
        events = [event for event in self.enumerator.report()["events"] if not event["text"].startswith("metadata: ")]
        return [f"{event['level']}: {event['text']}" for event in events]


@pytest.fixture
def start() -> Iterator[Callable[..., Query]]:
    """Start queries that are closed after the test."""
    queries: list[Query] = []

    def make(service: InMemoryMetadataService | None = None, **options: str) -> Query:
        queries.append(Query(service, **options))
        return queries[-1]

    yield make
    for query in queries:
        query.close()


# --- slow links ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay_s", "extra"),
    [(0.04, {}), (0.04, FORGET), (0.08, ISOLATE | FORGET), (0.08, {"endingOffsets": "latest"} | FORGET)],
    ids=["40 ms", "40 ms, forget", "80 ms, isolate, forget", "80 ms, bounded, forget"],
)
def test_a_pattern_behind_a_slow_link_reads_each_record_once(
    cluster: Cluster, start: Callable[..., Query], delay_s: float, extra: Mapping[str, str]
) -> None:
    """The view is late whenever the pattern has found something; nothing is removed because of that."""
    cluster.delay_s = delay_s
    query = start(subscribePattern="orders-.*", **extra)
    query.run_until(lambda: len(query.read) == 300)
    stops = query.cluster().stops
    cluster.topics["orders-3"] = ("id3", [50])
    if "endingOffsets" not in extra:
        query.run_until(lambda: len(query.read) == 350)
    cluster.topics["orders-1"][1][0] = 120
    query.run_for(7 * delay_s)

    assert set(query.read.values()) == {1}
    assert not [event for event in query.events() if event.startswith("warning")]
    if "endingOffsets" in extra:
        assert stops.items() <= query.cluster().stops.items()
        assert query.read["orders-1", 0, 100] == 0
    else:
        assert len(query.read) == 370


def test_a_listed_topic_that_is_new_does_not_hold_up_the_others(cluster: Cluster, start: Callable[..., Query]) -> None:
    """The last view shows them, although it does not show the new one yet."""
    service = InMemoryMetadataService([stream("orders-1")])
    query = start(service, **{"stream-ids": "s", "stream-metadata-discovery-interval-ms": "20"})
    query.run_until(lambda: len(query.read) == 200)
    gate = threading.Event()
    described, Connection.topics = Connection.topics, lambda self, names: (gate.wait(), described(self, names))[1]  # type: ignore[method-assign]
    try:
        service.set_streams([stream("orders-1", "orders-2")])
        query.run_for(0.3)
        assert set(query.cluster().topics) == {"orders-1"}
        assert not [event for event in query.events() if event.startswith("warning")]
    finally:
        gate.set()
        Connection.topics = described  # type: ignore[method-assign]
    query.run_until(lambda: len(query.read) == 300)


def stream(*topics: str) -> KafkaStream:
    """The stream `s`, on the only cluster."""
    return KafkaStream("s", {"kafka": ClusterMetadata(frozenset(topics), {"bootstrap.servers": "b:1"})})


# --- clusters that do not answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", [{}, FORGET], ids=["7 d", "0"])
def test_an_outage_of_an_isolated_cluster_removes_nothing(
    cluster: Cluster, start: Callable[..., Query], retention: Mapping[str, str]
) -> None:
    """By a pattern, the topics of the document are wanted also while nobody can say which topics there are."""
    query = start(subscribePattern="orders-.*", **ISOLATE, **retention)
    query.run_until(lambda: len(query.read) == 300)
    batches = len(query.log)
    cluster.dead = True
    query.run_for(0.5)
    assert len(query.log) == batches
    cluster.dead = False
    cluster.topics["orders-2"][1][0] = 110
    query.run_until(lambda: len(query.read) == 310)
    assert set(query.read.values()) == {1}


def test_nothing_is_planned_of_an_isolated_cluster_that_is_silent(
    cluster: Cluster, start: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs without any error, and the last view knows unread records: a batch that has them would wait for it."""
    monkeypatch.setattr(monitor_module, "_LOOK_S", 0.1)
    limited = {"subscribe": "orders-1", "maxOffsetsPerTrigger": "10"}
    isolating, failing = start(**limited, **ISOLATE), start(**limited)
    for query in (isolating, failing):
        query.step()
    cluster.gate.clear()
    isolating.run_for(0.5)  # its look at the cluster may rest after an answer, for longer the busier the machine is
    batches = len(isolating.log), len(failing.log)
    isolating.run_for(0.5)
    failing.run_until(lambda: len(failing.log) > batches[1])
    assert len(isolating.log) == batches[0]
    cluster.gate.set()
    isolating.run_until(lambda: len(isolating.read) == 200)
    assert set(isolating.read.values()) == {1}


def test_a_restart_during_an_outage_removes_nothing(cluster: Cluster, start: Callable[..., Query]) -> None:
    """The new process has no view at all."""
    options = {"subscribePattern": "orders-.*", "kafka.default.api.timeout.ms": "500"} | ISOLATE | FORGET
    first = start(**options)
    first.run_until(lambda: len(first.read) == 300)
    cluster.dead = True
    second = start(**options)
    second.log = [*first.log]
    second.enumerator.prepare_available_now()
    assert not second.step()


def test_a_pattern_that_was_changed_removes_what_does_not_match(cluster: Cluster, start: Callable[..., Query]) -> None:
    """The name decides, not the view."""
    first = start(subscribePattern="orders-.*")
    first.run_until(lambda: len(first.read) == 300)
    second = start(subscribePattern="orders-1")
    second.log = [*first.log]
    second.run_until(lambda: set(second.cluster().topics) == {"orders-1"})
    assert second.events() == ["info: Cluster 'kafka', topic 'orders-2' was removed; 0 records are left unread"]


# --- topics that are gone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [{"subscribe": "orders-1,orders-2"}, {"subscribePattern": "orders-.*"}], ids=str)
def test_a_deleted_topic_with_unread_records_is_data_loss(
    cluster: Cluster, start: Callable[..., Query], by: Mapping[str, str]
) -> None:
    """The error names the partition and the records; with failOnDataLoss=false, a warning does, and reading goes on."""
    limited = {"maxOffsetsPerTrigger": "60"}
    strict, lenient = start(**by, **limited), start(**by, **limited, failOnDataLoss="false")
    for query in (strict, lenient):
        query.step()
    del cluster.topics["orders-2"]
    with pytest.raises(DataLossError, match=r"'kafka', topic 'orders-2', partition 0, offsets .*deleted") as caught:
        strict.run_until(lambda: False)
    # Batches may be planned before the end of the topic is noticed.
    assert (caught.value.start, caught.value.end) in {(start, 100) for start in range(20, 100, 20)}
    assert f"{caught.value.end - caught.value.start} records are left unread" in str(caught.value)
    lenient.run_until(lambda: "orders-2" not in lenient.cluster().topics)
    (left,) = re.findall(
        r"warning: Cluster 'kafka', topic 'orders-2' was deleted; (\d+) rec", "\n".join(lenient.events())
    )
    lenient.run_until(lambda: len(lenient.read) == 300 - int(left))
    assert int(left) in {20, 80}


def test_a_topic_that_was_deleted_while_the_query_was_down_may_be_a_loss(
    cluster: Cluster, start: Callable[..., Query]
) -> None:
    """Nobody knows where it ended. Also AvailableNow finds out, although it looks only once."""
    first = start(subscribePattern="orders-.*")
    first.run_until(lambda: len(first.read) == 300)
    del cluster.topics["orders-2"]
    second = start(subscribePattern="orders-.*")
    second.log = [*first.log]
    second.enumerator.prepare_available_now()
    with pytest.raises(DataLossError, match="an unknown number of records are left unread"):
        second.step()


def test_a_topic_that_is_unknown_for_a_moment_is_not_deleted(cluster: Cluster, start: Callable[..., Query]) -> None:
    """A broker that has just started says so."""
    query = start(subscribePattern="orders-.*")
    query.step()
    cluster.unknown = {"orders-1", "orders-2"}
    query.run_for(0.15)
    cluster.unknown = set()
    cluster.topics["orders-2"][1][0] = 110
    query.run_until(lambda: len(query.read) == 310)
    assert set(query.read.values()) == {1}


def test_a_topic_that_may_not_be_seen_is_not_deleted(cluster: Cluster, start: Callable[..., Query]) -> None:
    """A refusal says nothing about the topic; a warning says what to do."""
    query = start(subscribe="orders-1,orders-2")
    query.step()
    cluster.denied = {"orders-2"}
    query.run_for(0.6)
    assert any("'orders-2' is not visible to this user" in event for event in query.events())
    cluster.denied = set()
    cluster.topics["orders-2"][1][0] = 110
    query.run_until(lambda: len(query.read) == 310)
    assert set(query.read.values()) == {1}


# --- the first look -------------------------------------------------------------------------------------------------


def test_a_topic_that_the_first_look_misses_starts_at_the_time_of_the_first_start(
    cluster: Cluster, start: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `latest`, what was written before is not read; and a topic that did not exist is read from its start."""
    monkeypatch.setattr(Connection, "offsets_for_times", lambda _, times_ms: dict.fromkeys(times_ms, 99))
    cluster.unknown = {"orders-1"}
    query = start(subscribe="orders-1,orders-2,orders-3", startingOffsets="latest")
    query.step()
    cluster.unknown = set()
    query.run_until(lambda: "orders-1" in query.cluster().topics)
    query.run_until(lambda: not query.cluster().unseen)
    cluster.topics["orders-3"] = ("id3", [5])
    query.run_until(lambda: len(query.read) == 7)
    assert sorted(query.read) == [("orders-1", 0, 99), ("orders-1", 1, 99), *(("orders-3", 0, n) for n in range(5))]


# --- one description of what is known well --------------------------------------------------------------------------


def test_a_missing_topic_does_not_have_all_others_described(cluster: Cluster, start: Callable[..., Query]) -> None:
    """Only what is missing or without a leader is asked for again, every few seconds."""
    cluster.topics = {f"t{i}": (f"id{i}", [1]) for i in range(50)}
    cluster.leaderless = {TP("t0", 0)}
    names = ",".join([*cluster.topics, "missing"])
    query = start(subscribe=names, **{"partition.discovery.interval.ms": "300000"})
    query.run_for(0.4)
    assert cluster.described[0] == 51
    assert len(cluster.described) > 3
    assert set(cluster.described[1:]) == {2}


# --- AvailableNow ---------------------------------------------------------------------------------------------------


def test_available_now_ends_although_its_metadata_service_fails_meanwhile(
    cluster: Cluster, start: Callable[..., Query]
) -> None:
    """After its first look it needs no metadata any more."""
    service = FailingService([stream("orders-1")])
    options = {"stream-ids": "s", "stream-metadata-discovery-interval-ms": "10", "maxOffsetsPerTrigger": "50"}
    query = start(service, **options)
    query.enumerator.prepare_available_now()
    assert query.step()
    service.down = True
    while query.step():
        time.sleep(0.05)
    assert len(query.read) == 200


def test_available_now_warns_of_a_topic_that_may_not_exist(
    cluster: Cluster, start: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    """It ends before that is certain, and a typing error in the metadata must not be a run without a word."""
    query = start(subscribe="orders-1,order-2")
    query.enumerator.prepare_available_now()
    while query.step():
        pass
    assert len(query.read) == 200
    assert (
        "Cluster 'kafka', topic 'order-2' does not exist, say its brokers. This run reads nothing of it" in caplog.text
    )
    assert caplog.text.count("order-2") == 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize("why", ["denied", "unknown"])
def test_available_now_does_not_wait_for_a_topic_that_was_never_seen_and_is_removed(
    cluster: Cluster, start: Callable[..., Query], why: str
) -> None:
    """The document of the last run still names it, but no look at the cluster asks for it any more."""
    setattr(cluster, why, {"orders-2"})
    before = start(subscribe="orders-1,orders-2")
    before.step()
    assert "orders-2" in before.cluster().unseen
    cluster.topics["orders-1"][1][0] = 110
    query = start(subscribe="orders-1")
    query.log = before.log
    query.enumerator.prepare_available_now()
    while query.step():
        pass
    assert len(query.read) == 10
    assert not query.cluster().unseen


@pytest.mark.parametrize(
    ("kept", "wanted", "shown", "is_open"),
    [
        (ClusterOffsets(unseen={"t": 0}), {"t"}, {}, True),
        (ClusterOffsets(unseen={"t": 0}), {"t"}, {"missing": frozenset({"t"})}, False),
        (ClusterOffsets(unseen={"t": 0}), {"t"}, {"denied": frozenset({"t"})}, False),
        (ClusterOffsets(unseen={"t": 0}), {"other"}, {}, False),
        (ClusterOffsets(unseen={"t": 0}), None, {}, False),
        (ClusterOffsets(topics={"t": "id"}), {"other"}, {}, True),
        (ClusterOffsets(topics={"t": "id"}), None, {}, True),
    ],
)
def test_a_look_waits_for_what_was_read_and_for_what_is_wanted(
    kept: ClusterOffsets, wanted: set[str] | None, shown: dict[str, Any], *, is_open: bool
) -> None:
    """A topic that was never seen, and is not wanted any more, has nothing to wait for."""
    clusters = {} if wanted is None else {"c": ClusterMetadata(frozenset(wanted), {})}
    assert is_undecided({"c": kept}, clusters, {"c": ClusterView("", {}, {}, {}, **shown)}, ()) is is_open


class FailingService(InMemoryMetadataService):
    """Fails when it is told to."""

    down = False

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """As the base class, if it is up."""
        if self.down:
            raise OSError("503")
        return super().get_all_streams()


# --- answers --------------------------------------------------------------------------------------------------------


def test_an_answer_that_comes_after_its_document_is_dropped(cluster: Cluster) -> None:
    """Its question is not open any more; as a position of a later document it would be stale."""
    monitor = ClusterMonitor(
        "kafka", MonitorTarget({}, frozenset()), group_id="g", call_timeout_ms=1000, discovery_interval_ms=0
    )
    asked, still = (OffsetRequest("kafka", "start", LATEST, (TP("orders-1", p),)) for p in (0, 1))
    cluster.delay_s = 0.1
    ticket = monitor.request_offsets([asked, still])
    monitor.wait(ticket, time.monotonic() + 0.05)
    monitor.forget_answers([still])
    assert monitor.wait(ticket, time.monotonic() + 5)
    assert monitor.answers.start == {("kafka", TP("orders-1", 1)): 100}
    monitor.close()
