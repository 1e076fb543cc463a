"""Clusters that fail, refuse the login or do not take commits, while a query runs; with a stand-in for the connection."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests import engine
from tests.engine import StandIn

import dynamic_kafka.source.driver.group_commits as commits_module
import dynamic_kafka.source.driver.monitor as monitor_module
import dynamic_kafka.source.driver.view as view_module
from dynamic_kafka.errors import (
    ClusterUnavailableError,
    ConfigurationError,
    DynamicKafkaError,
    MetadataServiceError,
    OffsetResolutionError,
)
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients
from dynamic_kafka.kafka.cluster import ClusterConnection, TopicInfo
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.metadata.watcher import MetadataWatcher
from dynamic_kafka.source.configure import SourceObjects
from dynamic_kafka.source.document.offsets import MARKER, decode

TP = KafkaTopicPartition("t", 0)


class Cluster:
    """A cluster with one partition, as its connections show it."""

    def __init__(self) -> None:
        self.end = 100
        self.fails_with: Exception | None = None
        self.refuses_login = False
        self.answer_s = 0.0
        self.commit_s = 0.0
        self.commit_error: DynamicKafkaError | None = None
        self.committed: dict[KafkaTopicPartition, int] = {}
        self.commits = 0
        self.connections: list[Mapping[str, str]] = []


class Connection(StandIn):
    """It resolves secrets when it is made, as the real one does."""

    def __init__(self, clusters: Mapping[str, Cluster], cluster_id: str, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, properties)
        self.cluster = clusters[cluster_id]
        self._clients, self._made = ClusterClients(properties), False
        self.cluster.connections.append(properties)

    def _trip(self) -> None:
        time.sleep(self.cluster.answer_s)
        if not self._made:
            self._clients._config("admin", ClientSettings())
            self._made = True
        if self.cluster.refuses_login:
            self.authentication_failed = True
            raise ClusterUnavailableError(f"Cluster '{self.cluster_id}' refuses the login", cluster_id=self.cluster_id)
        if self.cluster.fails_with is not None:
            raise self.cluster.fails_with
        self.authentication_failed = False

    def is_outdated(self) -> bool:
        """Ask the real clients."""
        return self._clients.is_outdated()

    def topics(self, names: Collection[str]) -> tuple[dict[str, TopicInfo], frozenset[str]]:
        """Return each topic with one partition."""
        self._trip()
        return {name: TopicInfo("topic id", (1,)) for name in names}, frozenset()

    def available_ends(self, tps: Collection[KafkaTopicPartition], _: object) -> dict[KafkaTopicPartition, int]:
        """Return the end."""
        self._trip()
        return dict.fromkeys(tps, self.cluster.end)

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Take the offsets after a while, or raise."""
        time.sleep(self.cluster.commit_s)
        self.cluster.commits += 1
        if self.cluster.commit_error is not None:
            raise self.cluster.commit_error
        self.cluster.committed |= offsets


class Query(engine.Query):
    """A query over clusters that exist in this test only."""

    def __init__(self, options: Mapping[str, str], **properties: Mapping[str, str]) -> None:
        self.service = InMemoryMetadataService()
        self.describe(**(properties or {"a": {}}))
        given = {"stream-ids": "s", "stream-metadata-discovery-interval-ms": "20", **options}
        super().__init__(given, SourceObjects(metadata_service=self.service))

    def describe(self, **properties: Mapping[str, str]) -> None:
        """Set the clusters in the metadata, with their properties."""
        parts = {
            name: ClusterMetadata(frozenset({"t"}), {"bootstrap.servers": "127.0.0.1:1", **own})
            for name, own in properties.items()
        }
        self.service.set_streams([KafkaStream("s", parts)])

    def _run(self, _: Mapping[str, Any], end: Mapping[str, Any]) -> int:
        """Return the number of records of a batch."""
        return sum(end - start for c in decode(end).clusters.values() for start, end in c.ranges.values())

    def run_to(self, cluster: str, end: int) -> None:
        """Step until a batch ends at this offset."""
        self.run_until(
            lambda: (
                self.document != MARKER
                and cluster in (clusters := decode(self.document).clusters)
                and clusters[cluster].ranges[TP][1] == end
            )
        )

    def error(self, cluster: str) -> str | None:
        """Return the cluster's error in the progress report."""
        state = self.enumerator.report()["clusters"].get(cluster)
        return None if state is None else state["error"]


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Cluster]:
    """Return the clusters `a` and `b`."""
    made = {"a": Cluster(), "b": Cluster()}

    def connect(cluster_id: str, properties: Mapping[str, str], **_: Any) -> Connection:
        return Connection(made, cluster_id, properties)

    monkeypatch.setattr(monitor_module, "ClusterConnection", connect)
    monkeypatch.setattr(commits_module, "ClusterConnection", connect)
    return made


@pytest.fixture
def start(clusters: Mapping[str, Cluster]) -> Iterator[Callable[..., Query]]:
    """Start queries, and close them."""
    made: list[Query] = []

    def start(options: Mapping[str, str] = {}, **properties: Mapping[str, str]) -> Query:
        made.append(Query(options, **properties))
        return made[-1]

    yield start
    for query in made:
        query.close()


# --- one wrong entry ----------------------------------------------------------------------------------------------------

WRONG = [
    ({"security.protocl": "SASL_SSL"}, "Unknown Kafka property 'security.protocl'; did you mean 'security.protocol'"),
    ({"security.protocol": "TLS"}, "'security.protocol' has the value 'TLS'"),
    ({"ssl.key.password": "${env:NOT_SET_HERE}"}, r"'ssl.key.password' refers to \$\{env:NOT_SET_HERE\}"),
    (
        {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.jks"},
        "Property 'ssl.truststore.location', key store '/nowhere.jks': it cannot be read",
    ),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG, ids=["name", "value", "secret", "key store"])
def test_a_wrong_entry_in_the_metadata_is_a_failed_refresh(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], wrong: Mapping[str, str], text: str
) -> None:
    """The last good answer stays in force, the error names cluster and property, and a corrected entry is read."""
    query = start({"stream-metadata-discovery-failure-threshold": "1000"})
    query.run_to("a", 100)
    query.describe(a={}, b=wrong)

    def metadata() -> Any:
        return query.enumerator.report()["metadata"]

    query.run_until(lambda: metadata()["consecutive_failures"] > 1)
    assert re.match(f"Cluster 'b': .*{text}", metadata()["last_error"])
    clusters["a"].end = 200
    query.run_to("a", 200)
    assert not clusters["b"].connections, "no client is made of a wrong entry"
    query.describe(a={}, b={})
    query.run_until(lambda: "b" in decode(query.document).clusters)


@pytest.mark.parametrize(("wrong", "text"), WRONG, ids=["name", "value", "secret", "key store"])
def test_a_wrong_entry_at_the_first_start_is_an_error_at_once(
    start: Callable[..., Query], wrong: Mapping[str, str], text: str
) -> None:
    """There is no last good answer, and the user is there to correct it."""
    query = start({"cluster-failure-mode": "isolate"}, a={}, b=wrong)
    with pytest.raises(MetadataServiceError, match=f"^Cluster 'b': .*{text}"):
        query.step()


@pytest.mark.parametrize("mode", ["fail", "isolate"])
def test_a_secret_that_is_missing_for_a_moment_stops_nothing(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], tmp_path: Path, mode: str
) -> None:
    """The connection of a running query is made again while the file is replaced: it waits for the file."""
    secret = tmp_path / "secret"
    secret.write_text("old")
    query = start({"cluster-failure-mode": mode}, a={}, b={"ssl.key.password": f"${{file:{secret}}}"})
    query.run_to("b", 100)
    clusters["b"].fails_with = ClusterUnavailableError("gone", cluster_id="b")
    query.run_until(lambda: query.error("b"))
    secret.write_text("new")
    time.sleep(0.3)
    secret.unlink()
    clusters["b"].fails_with = None
    query.run_for(0.5)
    secret.write_text("newest")
    clusters["b"].end = 300
    query.run_to("b", 300)
    assert query.error("b") is None


@pytest.mark.parametrize("error", [ConfigurationError("wrong"), ValueError("max() arg is an empty sequence")])
def test_whatever_one_cluster_raises_the_others_are_read(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], error: Exception
) -> None:
    """With `isolate` a cluster that cannot be looked at is a failing cluster, whatever the reason."""
    query = start({"cluster-failure-mode": "isolate"}, a={}, b={})
    query.run_to("b", 100)
    clusters["b"].fails_with = error
    query.run_until(lambda: query.error("b"))
    clusters["a"].end = 200
    query.run_to("a", 200)
    assert str(error) in (query.error("b") or "")
    clusters["b"].fails_with = None
    query.run_until(lambda: query.error("b") is None)


def test_an_error_of_the_users_initializer_still_ends_the_query(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a cluster is waited for: an offset that cannot be determined stays an error of its own kind."""
    del clusters

    def fail(*_: Any) -> Any:
        raise OffsetResolutionError("there is no such offset")

    query = start()
    monkeypatch.setattr(type(KafkaOffsetsInitializer.earliest()), "get_partition_offsets", fail)
    with pytest.raises(OffsetResolutionError, match="no such offset"):
        query.run_for(1)


def test_a_topic_without_partitions_is_not_taken_for_a_topic() -> None:
    """A broker that does not know the partitions yet has not answered; it is not an empty topic."""
    connection = ClusterConnection("a", {"bootstrap.servers": "127.0.0.1:1"}, group_id="g", timeout_ms=100)
    try:
        with pytest.raises(ClusterUnavailableError, match="'a', topic 't': the broker describes the topic without"):
            connection._topic_info("t", SimpleNamespace(topic_id="x", partitions=[]))
    finally:
        connection.close()


# --- logins -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pause after a refused login."""
    monkeypatch.setattr(monitor_module, "_REFUSED_BACKOFF_S", (0.1,))


@pytest.mark.usefixtures("patience")
def test_a_refused_login_ends_a_running_query_after_the_time_out(
    start: Callable[..., Query], clusters: Mapping[str, Cluster]
) -> None:
    """Mounted secrets arrive later than the cluster's own: a refused login gets the time of a cluster that is down."""
    query = start({"properties.default.api.timeout.ms": "1200"})
    query.run_to("a", 100)
    clusters["a"].refuses_login = True
    query.run_until(lambda: query.error("a"))
    began = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match=r"refuses the login.*not answered for [12] s"):
        query.run_for(5)
    assert time.monotonic() - began > 1
    assert len(clusters["a"].connections) > 2, "each attempt reads the secrets again"


@pytest.mark.usefixtures("patience")
def test_a_refused_login_never_ends_a_query_that_isolates(
    start: Callable[..., Query], clusters: Mapping[str, Cluster]
) -> None:
    """The other clusters are read, and the cluster is read again once it takes the login."""
    query = start({"properties.default.api.timeout.ms": "300", "cluster-failure-mode": "isolate"}, a={}, b={})
    query.run_to("b", 100)
    clusters["b"].refuses_login = True
    query.run_for(1.0)
    clusters["b"].refuses_login, clusters["b"].end = False, 200
    query.run_to("b", 200)


def test_a_refused_login_at_the_first_start_is_an_error_at_once(
    start: Callable[..., Query], clusters: Mapping[str, Cluster]
) -> None:
    """The user is there to correct it."""
    clusters["a"].refuses_login = True
    began = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match="refuses the login"):
        start().step()
    assert time.monotonic() - began < 5


def test_a_replaced_secret_is_used_at_once(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], tmp_path: Path
) -> None:
    """After a refused login nothing is tried for a while, but a new secret is."""
    secret = tmp_path / "secret"
    secret.write_text("old")
    query = start({}, a={"ssl.key.password": f"${{file:{secret}}}"})
    query.run_to("a", 100)
    clusters["a"].refuses_login = True
    query.run_until(lambda: query.error("a"))
    clusters["a"].refuses_login, clusters["a"].end = False, 200
    secret.write_text("the new one")
    began = time.monotonic()
    query.run_to("a", 200)
    assert time.monotonic() - began < 5


@pytest.mark.usefixtures("patience")
def test_new_properties_get_a_time_of_their_own(start: Callable[..., Query], clusters: Mapping[str, Cluster]) -> None:
    """What the old login did does not count against the new one of the metadata service."""
    query = start({"properties.default.api.timeout.ms": "800"})
    query.run_to("a", 100)
    clusters["a"].refuses_login = True
    query.run_for(0.6)
    query.describe(a={"client.id": "new"})
    query.run_for(0.6)
    clusters["a"].refuses_login, clusters["a"].end = False, 200
    query.run_to("a", 200)


# --- a cluster that is down at the first start --------------------------------------------------------------------------


def test_a_cluster_that_is_down_at_the_first_start_ends_the_query(
    start: Callable[..., Query], clusters: Mapping[str, Cluster]
) -> None:
    """After the time-out, with the ways to go on. No offset was written, so the next start is a first one again."""
    clusters["b"].fails_with = ClusterUnavailableError("Cluster 'b' does not answer", cluster_id="b")
    query = start({"properties.default.api.timeout.ms": "500"}, a={}, b={})
    began = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match=r"Cluster 'b' does not answer.*cluster-failure-mode=isolate"):
        query.step()
    assert 0.4 < time.monotonic() - began < 5
    assert query.document == MARKER
    clusters["b"].fails_with = None
    query.restart()
    assert query.step() == 200


def test_a_cluster_that_is_down_at_the_first_start_is_read_later(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """With `isolate` the other one is read, and a warning says so."""
    clusters["b"].fails_with = ClusterUnavailableError("Cluster 'b' does not answer", cluster_id="b")
    query = start({"properties.default.api.timeout.ms": "500", "cluster-failure-mode": "isolate"}, a={}, b={})
    assert query.step() == 100
    assert "Cluster 'b' does not answer" in caplog.text
    assert "The other clusters are read meanwhile" in caplog.text
    clusters["b"].fails_with = None
    query.run_until(lambda: TP in decode(query.document).clusters["b"].ranges)
    query.run_to("b", 100)


# --- clusters that do not matter any more -------------------------------------------------------------------------------


def test_a_removed_cluster_is_not_asked_about_for_ever(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the service calls it active is of interest until it is cut."""
    asked: list[str] = []

    def is_active(_: object, name: str) -> bool:
        asked.append(name)
        return name != "b"

    monkeypatch.setattr(InMemoryMetadataService, "is_cluster_active", is_active)
    query = start({"cluster-failure-mode": "isolate"}, a={}, b={})
    query.run_to("b", 100)
    clusters["b"].fails_with = ClusterUnavailableError("down", cluster_id="b")
    query.run_until(lambda: "b" in asked)
    query.describe(a={})
    query.run_until(lambda: "b" not in query.enumerator._view.monitors)
    query.run_for(0.1)
    asked.clear()
    query.run_for(0.3)
    assert asked == []


@pytest.mark.usefixtures("patience")
def test_a_cluster_that_comes_back_asks_for_new_properties_again(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a refused login the service is asked once a minute for new ones, and at once if the cluster was away."""
    requests: list[float] = []
    monkeypatch.setattr(MetadataWatcher, "request_refresh", lambda _: requests.append(time.monotonic()))
    query = start({"cluster-failure-mode": "isolate"}, a={}, b={})
    query.run_to("b", 100)
    clusters["b"].refuses_login = True
    query.run_until(lambda: requests)
    query.run_for(0.3)
    assert len(requests) == 1
    query.service.set_active("b", False)
    query.describe(a={})
    query.run_until(lambda: "b" not in query.enumerator._view.monitors)
    query.service.set_active("b", True)
    query.describe(a={}, b={})
    query.run_until(lambda: len(requests) == 2)


def test_a_cluster_without_topics_ends_no_query(start: Callable[..., Query], clusters: Mapping[str, Cluster]) -> None:
    """There is nothing to read on it, so it does not matter that it is down."""
    clusters["b"].fails_with = ClusterUnavailableError("down", cluster_id="b")
    query = start({"properties.default.api.timeout.ms": "200"})
    own = {"bootstrap.servers": "127.0.0.1:1"}
    parts = {"a": ClusterMetadata(frozenset({"t"}), own), "b": ClusterMetadata(frozenset(), own)}
    query.service.set_streams([KafkaStream("s", parts)])
    query.run_to("a", 100)
    query.run_for(0.6)
    clusters["a"].end = 200
    query.run_to("a", 200)


def test_time_in_which_nobody_looked_does_not_count(
    start: Callable[..., Query], clusters: Mapping[str, Cluster]
) -> None:
    """After a batch that took longer than the time-out, a failure from before it ends nothing: the cluster may be back."""
    query = start({"properties.default.api.timeout.ms": "300"})
    query.run_to("a", 100)
    clusters["a"].fails_with = ClusterUnavailableError("down", cluster_id="a")
    query.run_until(lambda: query.error("a"))
    clusters["a"].fails_with = None
    clusters["a"].answer_s, clusters["a"].end = 0.1, 200
    time.sleep(0.5)  # Spark runs a batch
    query.run_to("a", 200)


def test_after_each_failure_a_new_connection_is_made(
    start: Callable[..., Query], clusters: Mapping[str, Cluster]
) -> None:
    """The old one may be dead without a word, or have a certificate that was replaced in place."""
    query = start({})
    query.run_to("a", 100)
    assert len(clusters["a"].connections) == 1
    clusters["a"].fails_with = ClusterUnavailableError("SSL handshake failed", cluster_id="a")
    query.run_until(lambda: query.error("a"))
    query.run_until(lambda: len(clusters["a"].connections) >= 3, 5)
    clusters["a"].fails_with = None
    clusters["a"].end = 200
    query.run_to("a", 200)


# --- offsets of the consumer group --------------------------------------------------------------------------------------

GROUP = {"properties.group.id": "g"}


def test_commits_do_not_delay_reading(start: Callable[..., Query], clusters: Mapping[str, Cluster]) -> None:
    """Without a coordinator a commit takes 45 s: batches go on, and their offsets are committed together."""
    clusters["a"].commit_s = 0.6
    query = start(GROUP)
    for end in range(200, 1200, 100):
        clusters["a"].end = end
        query.run_to("a", end)
    assert clusters["a"].commits <= 1, "reading has waited"
    query.run_until(lambda: clusters["a"].committed.get(TP) == 1100)
    assert clusters["a"].commits <= 3


def test_a_failed_commit_is_counted_and_made_up_for(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """A commit's failure changes nothing: it is counted, told once, and the next batch's commit includes its offsets."""
    clusters["a"].commit_error = ClusterUnavailableError("Group authorization failed", cluster_id="a")
    query = start(GROUP)

    def failures(number: int) -> bool:
        return bool(query.enumerator.report()["commitsFailed"] >= number)

    for number, end in enumerate((200, 300, 400), 1):
        clusters["a"].end = end
        query.run_to("a", end)
        query.run_until(partial(failures, number))
    assert query.error("a") is None
    told = [record for record in caplog.records if record.levelno == logging.WARNING and "group 'g'" in record.message]
    assert len(told) == 1
    clusters["a"].commit_error, clusters["a"].end = None, 500
    query.run_until(lambda: clusters["a"].committed.get(TP) == 500)


def test_available_now_commits_its_last_batch(start: Callable[..., Query], clusters: Mapping[str, Cluster]) -> None:
    """Spark ends the process as soon as there is nothing more to read: the last call waits for the commit."""
    clusters["a"].commit_s = 0.3
    query = start(GROUP)
    query.enumerator.prepare_available_now()
    while query.step():
        pass
    assert clusters["a"].committed == {TP: 100}


def test_available_now_ends_without_the_commit_after_a_while(
    start: Callable[..., Query],
    clusters: Mapping[str, Cluster],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The wait has a limit, with a warning that says what is not committed."""
    monkeypatch.setattr(view_module, "_LAST_COMMITS_S", 0.2)
    clusters["a"].commit_s = 2.0
    query = start(GROUP)
    query.enumerator.prepare_available_now()
    began = time.monotonic()
    while query.step():
        pass
    assert time.monotonic() - began < 1.5
    assert "last offsets of the consumer group were not committed" in caplog.text


# --- the clock ----------------------------------------------------------------------------------------------------------


def test_a_jump_of_the_clock_expires_no_position(
    start: Callable[..., Query], clusters: Mapping[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention counts the time that has passed, not what the clock of the machine shows after a jump."""
    query = start({"stream-metadata-removed-cluster-retention-ms": "1 h"}, a={}, b={})
    query.run_to("b", 100)
    query.describe(a={})
    query.run_until(lambda: decode(query.document).clusters["b"].retained)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    clusters["a"].end = 200
    query.run_to("a", 200)
    assert decode(query.document).clusters["b"].retained


def test_a_leader_that_moved_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer keeps metadata without a leader for minutes, unless it is told to ask again."""
    calls: list[str] = []

    class Stale:
        """A consumer that learns of the leader when the topic is listed."""

        poll = close = print

        def offsets_for_times(self, asked: list[TopicPartition], **_: Any) -> list[TopicPartition]:
            calls.append("offsets")
            if calls.count("topic") == 0:
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
            return [TopicPartition(tp.topic, tp.partition, 7) for tp in asked]

        def list_topics(self, *_: Any, **__: Any) -> None:
            calls.append("topic")

    connection = ClusterConnection("a", {"bootstrap.servers": "127.0.0.1:1"}, group_id="g", timeout_ms=100)
    monkeypatch.setitem(connection._clients.__dict__, "consumer", Stale())
    assert connection.end_offsets([KafkaTopicPartition("t", 0)]) == {KafkaTopicPartition("t", 0): 7}
    assert calls == ["offsets", "topic", "offsets"]


def test_thousands_of_partitions_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka's time grows with the square of the number of partitions in one question."""
    parts: list[int] = []
    failing: set[int] = set()

    class Many:
        """A consumer that knows all partitions except `failing`."""

        poll = close = print

        def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            assert 0 < timeout <= 0.1
            parts.append(len(asked))
            if failing & {tp.partition for tp in asked}:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return [TopicPartition(tp.topic, tp.partition, 7 * tp.partition) for tp in asked]

    connection = ClusterConnection("a", {"bootstrap.servers": "127.0.0.1:1"}, group_id="g", timeout_ms=100)
    monkeypatch.setitem(connection._clients.__dict__, "consumer", Many())
    tps = [KafkaTopicPartition("t", partition) for partition in range(2_001)]
    infos = {"t": TopicInfo("", (1,) * 2_001)}
    assert connection.available_ends(tps, infos) == {tp: 7 * tp.partition for tp in tps}
    assert sorted(parts) == [1] + [250] * 8
    failing.add(700)
    with pytest.raises(ClusterUnavailableError, match="offsets"):
        connection.available_ends(tps, infos)
    assert connection.available_ends(tps[:500], infos)[tps[499]] == 7 * 499
