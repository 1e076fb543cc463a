"""A cluster is known by Kafka's cluster.id: the real enumerator, view and monitors, over a stand-in for the connection."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import pytest
from tests import engine
from tests.engine import StandIn

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.cluster import TopicInfo
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.source.configure import SourceObjects
from dynamic_kafka.source.document.offsets import MARKER, Document, check_chain, decode, encode
from dynamic_kafka.source.driver import monitor
from dynamic_kafka.source.rules.planning import ReadTask

TP = KafkaTopicPartition


class Connection(StandIn):
    """One server is one cluster, and the answer takes a while."""

    ends: ClassVar[dict[str, dict[str, int]]] = {}
    answer_s: ClassVar[float] = 0.0

    @property
    def _server(self) -> str:
        return min(self.properties["bootstrap.servers"].split(","))

    def kafka_id(self) -> str:
        """Kafka's cluster.id."""
        time.sleep(self.answer_s)
        return f"id-of-{self._server}"

    def topics(self, names: Collection[str]) -> tuple[dict[str, TopicInfo], frozenset[str]]:
        """Topics of one partition."""
        return {t: TopicInfo(f"topic-id-of-{t}", (1,)) for t in names if t in self.ends[self._server]}, frozenset()

    def available_ends(self, tps: Collection[TP], _: object) -> dict[TP, int]:
        """The ends."""
        return {tp: self.ends[self._server][tp.topic] for tp in tps}


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> type[Connection]:
    """No broker is needed."""
    monkeypatch.setattr(monitor, "ClusterConnection", Connection)
    monkeypatch.setattr(monitor, "start_polling", lambda _: None)
    monkeypatch.setattr(monitor, "stop_polling", lambda _: None)
    monkeypatch.setattr(Connection, "ends", {"a:1": {"t": 100}, "b:1": {"t": 200}})
    monkeypatch.setattr(Connection, "answer_s", 0.0)
    return Connection


class Run(engine.Query):
    """A run of a query: from a checkpoint's last document until it has nothing to read."""

    def __init__(
        self, start: Mapping[str, Any] = MARKER, service: InMemoryMetadataService | None = None, **options: str
    ) -> None:
        given = {"stream-metadata-discovery-interval-ms": "20", **{k.replace("_", "."): v for k, v in options.items()}}
        super().__init__(given, SourceObjects(metadata_service=service))
        self.log = [] if start == MARKER else [json.dumps(start)]
        self.read: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.idle = False

    def step(self, *, limited: bool = False) -> bool:
        """One trigger without a limit; whether there was a batch."""
        before = len(self.log)
        super().step(limited=limited)
        self.idle = len(self.log) == before
        return not self.idle

    def _run(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> int:
        for task in self.enumerator.tasks(start, end):
            for r in task.ranges:
                self.read.setdefault((r.cluster, r.topic), []).append((r.start, r.end))
        return 0

    def until(self, done: Callable[[], bool]) -> Run:
        """Ask for batches until something is true, and there is no batch more."""
        self.run_until(lambda: self.idle and done())
        return self

    def answer(self, streams: list[KafkaStream]) -> None:
        """Change the answer of the metadata service, of which the process has a copy."""
        watcher: Any = self.enumerator._view.metadata._watcher
        watcher._service.set_streams(streams)

    def until_read(self, count: int) -> Run:
        """Until this many offsets have been read."""
        return self.until(lambda: sum(end - start for some in self.read.values() for start, end in some) >= count)

    def heard(self, part: str) -> bool:
        """Whether an event holds this text."""
        return any(part in text for text in self.events())

    def end(self) -> Mapping[str, Any]:
        """The process ends; its last document stays, and what it has told."""
        self.enumerator.close()
        return self.document


def stream(**servers: str) -> list[KafkaStream]:
    """A stream with topic `t` on these clusters."""
    return [
        KafkaStream("s", {n: ClusterMetadata(frozenset({"t"}), {"bootstrap.servers": s}) for n, s in servers.items()})
    ]


DIRECT: Any = {"subscribe": "t", "kafka_bootstrap_servers": "a:1"}
STREAM: Any = {"stream-ids": "s"}


def test_a_query_by_topic_moves_to_a_stream(connection: type[Connection]) -> None:
    """The same checkpoint, with other options: the cluster was called 'kafka', and now has a name in the metadata."""
    last = Run(**DIRECT).until_read(100).end()
    connection.ends["a:1"]["t"] = 130
    run = Run(last, InMemoryMetadataService(stream(east="a:1")), **STREAM).until_read(30)
    run.end()
    assert run.read == {("east", "t"): [(100, 130)]}
    assert run.heard("'east' is the cluster that was 'kafka'")


@pytest.mark.parametrize("answer_s", [0.04, 0.2])
def test_a_renamed_cluster_behind_a_slow_link(connection: type[Connection], answer_s: float) -> None:
    """While the query runs, with no retention: nothing is cut before the new name has answered."""
    service = InMemoryMetadataService(stream(east="a:1"))
    connection.answer_s = answer_s
    run = Run(MARKER, service, **STREAM, **{"stream-metadata-removed-cluster-retention-ms": "0"}).until_read(100)
    run.answer(stream(west="a:1"))
    run.until(lambda: run.heard("'west' is the cluster that was 'east'"))
    connection.ends["a:1"]["t"] = 130
    run.until_read(130).end()
    assert run.read == {("east", "t"): [(0, 100)], ("west", "t"): [(100, 130)]}
    assert not run.heard("was removed")


def test_two_clusters_exchange_their_names_while_a_query_runs(connection: type[Connection]) -> None:
    """A view of the old servers says nothing about the new ones."""
    connection.answer_s = 0.1
    run = Run(MARKER, InMemoryMetadataService(stream(x="a:1", y="b:1")), **STREAM).until_read(300)
    run.answer(stream(x="b:1", y="a:1"))
    run.until(lambda: run.heard("'x' is the cluster that was 'y'"))
    connection.ends["a:1"]["t"], connection.ends["b:1"]["t"] = 130, 260
    run.until_read(390).end()
    assert run.read == {("x", "t"): [(0, 100), (200, 260)], ("y", "t"): [(0, 200), (100, 130)]}


def test_a_batch_planned_under_an_old_name_is_read_with_the_login_of_the_new_one() -> None:
    """The document has no password. The metadata has it, under the name that the same server has now."""
    properties = {"bootstrap.servers": "a:1,a:2", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    properties |= {"sasl.username": "reader", "sasl.password": "secret"}

    def service(name: str) -> InMemoryMetadataService:
        return InMemoryMetadataService([KafkaStream("s", {name: ClusterMetadata(frozenset({"t"}), properties)})])

    last = Run(MARKER, service("old"), **STREAM).until(lambda: True).end()
    again = Run(last, service("new"), **STREAM)
    tasks: list[ReadTask] = again.enumerator.tasks(MARKER, last)
    again.end()
    assert [task.clusters["old"].properties["sasl.password"] for task in tasks] == ["secret"]


def test_a_batch_planned_before_names_were_exchanged_is_read_from_its_own_cluster() -> None:
    """The name leads to another cluster now; the servers in the document do not."""
    last = Run(MARKER, InMemoryMetadataService(stream(x="a:1", y="b:1")), **STREAM).until(lambda: True).end()
    again = Run(last, InMemoryMetadataService(stream(x="b:1", y="a:1")), **STREAM)
    (task,) = again.enumerator.tasks(MARKER, last)
    again.end()
    assert {name: a.properties["bootstrap.servers"] for name, a in task.clusters.items()} == {"x": "a:1", "y": "b:1"}


def test_the_chain_of_ranges_is_checked_across_names(connection: type[Connection]) -> None:
    """A name that changed is no hole in the check."""
    last = Run(**DIRECT).until(lambda: True).end()
    connection.ends["a:1"]["t"] = 130
    end = Run(last, InMemoryMetadataService(stream(east="a:1")), **STREAM).until(lambda: True).end()
    before, after = decode(last), decode(end)
    check_chain(before, after)
    after.clusters["east"].ranges[TP("t", 0)] = (90, 130)
    with pytest.raises(Exception, match="ends one batch at offset 100"):
        check_chain(before, after)
    assert decode(json.loads(json.dumps(encode(Document())))) == Document()


# --- what differs from the checkpoint -------------------------------------------------------------------------------


def told(run: Run) -> list[str]:
    """The events that compare the checkpoint with today."""
    return [text for text in run.events() if text.startswith("Not as in the checkpoint")]


def test_differences_from_the_checkpoint_are_told_once_at_start(connection: type[Connection]) -> None:
    """In one event, and only if there are any; where to start is ignored, and the event says so."""
    last = Run(startingOffsets="earliest", endingOffsets="latest", **DIRECT).until_read(100).end()
    same = Run(last, startingOffsets="earliest", endingOffsets="latest", **DIRECT).until(lambda: True)
    same.end()
    assert told(same) == []
    connection.ends["a:1"]["t"] = 130
    options: Any = {"kafka_bootstrap_servers": "a:1,a:2", "subscribe": "t", "minPartitions": "2"}
    run = Run(last, startingOffsets="latest", **options).until_read(30)
    run.end()
    (text,) = told(run)
    assert text.partition(": ")[2].split("; ") == [
        "the starting offsets were earliest and are latest, which changes nothing where reading has begun",
        "the stopping offsets of cluster 'kafka' were latest and are not set",
        "cluster 'kafka' has other properties (bootstrap.servers)",
        "minPartitions was 1 and is 2",
    ]


def test_names_that_come_and_go_over_a_restart_are_told(connection: type[Connection]) -> None:
    """Before any of them has answered."""
    last = Run(**DIRECT).until_read(100).end()
    run = Run(last, InMemoryMetadataService(stream(east="a:1", west="b:1")), **STREAM).until_read(200)
    run.end()
    assert connection.ends["b:1"] == {"t": 200}
    (text,) = told(run)
    assert text.endswith(
        "the metadata does not name cluster 'kafka' any more; the metadata newly names clusters 'east', 'west'"
    )


def test_an_end_by_timestamps_that_changes_makes_new_stops() -> None:
    """Also where each partition has a time of its own."""
    last = Run(endingOffsetsByTimestamp='{"t": {"0": 7}}', **DIRECT).until(lambda: True).end()
    again = Run(last, endingOffsetsByTimestamp='{"t": {"0": 8}}', **DIRECT).until(lambda: True)
    again.end()
    assert again.heard("the stopping offsets have changed")


def test_settings_that_have_no_effect_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A limit of a cluster by its old name, and a group of its own in the metadata."""
    properties = {"bootstrap.servers": "a:1", "group.id": "own"}
    service = InMemoryMetadataService([KafkaStream("s", {"new": ClusterMetadata(frozenset({"t"}), properties)})])
    Run(MARKER, service, maxOffsetsPerTriggerPerCluster='{"old": 5}', **STREAM).until_read(100).end()
    texts = [record.getMessage() for record in caplog.records]
    assert sum("limits 'old', which the metadata does not name" in text for text in texts) == 1
    assert sum("Cluster 'new': group.id in its metadata is not used" in text for text in texts) == 1
