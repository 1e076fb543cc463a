"""The commit log on a real broker: who appends, who counts, and what is left of it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, TransactionError
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink import committer
from dynamic_kafka.sink.committer import claim_batch
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log import commit_log as module
from dynamic_kafka.sink.log.chain import Chain, Record, State, Transaction
from dynamic_kafka.sink.log.commit_log import CommitLog
from dynamic_kafka.sink.log.records import encode
from dynamic_kafka.sink.settings import Destination, LogPlace, SinkSettings
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.brokers import bounds

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
Open = Callable[..., CommitLog]
TIMEOUT_MS = 20_000
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
PLACES = ("c/log",)


@pytest.fixture
def connect() -> Iterator[Open]:
    """Opens logs, and closes them after the test."""
    with ExitStack() as stack:

        def make(
            broker: KafkaBroker | Mapping[str, str],
            topic: str,
            *,
            replication: int | None = None,
            timeout_ms: int = TIMEOUT_MS,
        ) -> CommitLog:
            properties = broker.client_properties() if isinstance(broker, KafkaBroker) else broker
            log = stack.enter_context(closing(CommitLog("c", properties, topic, timeout_ms=timeout_ms)))
            if not log.topic.exists():
                log.topic.create(replication)
            log.topic.check()
            return log

        yield make


def after(chain: Chain, name: str) -> Record:
    """The next claim."""
    return Record(
        name, chain.offset, replace(chain.state, chain="x", generation=chain.state.generation + 1, places=PLACES)
    )


# --- the topic ----------------------------------------------------------------------------------------------------------


def test_the_topic_is_made(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """One partition, nothing is ever deleted but by its owner, small segments; a second log finds it in order."""
    name = topic()
    connect(cluster_a, name, replication=1)
    resource = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    found = admin.describe_configs([resource])[resource].result(20)
    assert {key: found[key].value for key in SETTINGS} == SETTINGS
    assert found["segment.bytes"].value == str(1024 * 1024)
    assert found["unclean.leader.election.enable"].value == "false"
    assert found["max.message.bytes"].value == str(16 * 1024 * 1024)
    assert len(admin.list_topics(name, timeout=20).topics[name].partitions) == 1
    assert connect(cluster_a, name).read() == Chain()


def test_a_topic_that_was_made_by_hand(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """It is taken, if its settings are right; other settings are its owner's business."""
    log = connect(cluster_a, topic(cluster_a, config=SETTINGS | {"max.message.bytes": "2000000"}))
    log.append(after(Chain(), "a"))
    assert log.read().offset == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete"},
        {"retention.ms": "604800000"},
        {"retention.bytes": "1000000"},
        {"cleanup.policy": "compact", "retention.ms": "1000"},
    ],
)
def test_wrong_settings_are_named(cluster_a: KafkaBroker, topic: Topic, connect: Open, wrong: dict[str, str]) -> None:
    """With what is there, and what has to be."""
    name = topic(cluster_a, config=SETTINGS | wrong)
    with pytest.raises(ConfigurationError) as caught:
        connect(cluster_a, name)
    shown = [
        ", ".join(f"{key}={value}" for key, value in some.items()) for some in (wrong, {k: SETTINGS[k] for k in wrong})
    ]
    assert str(caught.value) == (
        f"Cluster 'c': topic '{name}' has {shown[0]}, so Kafka could delete decisions; set {shown[1]}, or name another "
        "topic with sink.commit-log.topic"
    )


def test_two_partitions(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """They have no order."""
    name = topic(cluster_a, partitions=2, config=SETTINGS)
    with pytest.raises(
        ConfigurationError, match=f"topic '{name}' has 2 partitions, but a commit log must have one; name anoth"
    ):
        connect(cluster_a, name)


def test_a_topic_that_cannot_be_made(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """Two replicas on one broker: the error has the broker's reason, and what to create instead."""
    name = topic()
    with pytest.raises(ConfigurationError) as caught:
        connect(cluster_a, name, replication=2)
    assert str(caught.value).startswith(f"Cluster 'c': the commit log '{name}' cannot be created (")
    assert "eplication factor" in str(caught.value)
    assert "create it with one partition and cleanup.policy=delete, retention.ms=-1, ret" in str(caught.value)


# --- appending ----------------------------------------------------------------------------------------------------------


def test_processes_that_race_for_each_generation(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """Each append that its process saw counting is in the chain, and nothing else is: one for each generation."""
    name = topic()
    connect(cluster_a, name)
    script = textwrap.dedent("""
        import json, sys
        from dataclasses import replace
        from dynamic_kafka.sink.log.commit_log import CommitLog
        from dynamic_kafka.sink.log.chain import Record

        who, topic, servers = sys.argv[1:]
        log = CommitLog("c", {"bootstrap.servers": servers}, topic, timeout_ms=20_000)
        won = []
        for i in range(25):
            head = log.read()
            name = f"{who}{i}"
            state = replace(head.state, generation=head.state.generation + 1, places=("c/log",))
            log.append(Record(name, head.offset, state))
            if name in log.read().recent:
                won.append([name, state.generation])
        print(json.dumps(won))
    """)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, who, name, cluster_a.bootstrap_servers], stdout=subprocess.PIPE, text=True
        )
        for who in "abc"
    ]
    won = [winner for child in children for winner in json.loads(child.communicate(timeout=60)[0])]
    chain = connect(cluster_a, name).read()
    assert sorted(generation for _, generation in won) == list(range(1, chain.state.generation + 1))
    assert {who for who, _ in won} == set(chain.recent)
    assert chain.state.generation >= 25


def test_records_from_elsewhere_do_not_count(
    cluster_a: KafkaBroker, topic: Topic, connect: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever they are: a warning names the place, and the chain goes on."""
    name = topic()
    log = connect(cluster_a, name)
    bad = [None, b"", b"\xff", b"{}", b"[]", b"1", b'{"version": "2"}']
    produce(cluster_a.bootstrap_servers, name, [(None, value) for value in bad])
    with caplog.at_level(logging.WARNING):
        assert log.read() == Chain()
    assert f"'{name}' has a record of another program at offset {len(bad) - 1}" in caplog.text
    log.append(after(log.read(), "a"))
    produce(cluster_a.bootstrap_servers, name, [(None, b"x")])
    log.append(after(log.read(), "b"))
    for reader in (log, connect(cluster_a, name)):
        assert (reader.read().offset, reader.read().state.generation) == (len(bad) + 2, 2)


def test_a_record_of_a_newer_version_stops_us(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """It may count for that version: the error names its place and what to do."""
    name = topic()
    log = connect(cluster_a, name)
    produce(cluster_a.bootstrap_servers, name, [(None, b'{"version":2}')])
    with pytest.raises(
        TransactionError, match=rf"'{name}' has a record at offset 0 that this version of the package cannot read"
    ):
        log.read()


def test_a_decision_of_many_transactions(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """Sixty thousand are more than two megabytes of text, and a fraction of that compressed."""
    name = topic()
    log = connect(cluster_a, name)
    some = tuple(Transaction("east", f"p.dk-{n % 9:012x}-{n}", 4711 + 7 * n, n % 5) for n in range(60_000))
    record = Record("r", -1, State("x", 1, "decided", transactions=some, places=PLACES))
    assert len(encode(record)) > 2_000_000
    log.append(record)
    assert connect(cluster_a, name).read().state.transactions == some


# --- its place ----------------------------------------------------------------------------------------------------------


def test_the_log_is_found_while_clusters_come_and_go(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic
) -> None:
    """Under other names, too; it is never made again, and it is moved when the user says so."""
    prefix = topic()

    def place(wished: str | None = None, **clusters: KafkaBroker) -> LogPlace:
        """The place of the log for a new driver."""
        committer._found_logs.clear()
        committer._committers.close()
        settings = SinkSettings(
            service=InMemoryMetadataService,
            stream="s",
            guarantee="exactly-once",
            prefix=prefix,
            log_topic=commit_log_topic(prefix),
            log_cluster=wished,
        )
        found = {name: Destination(broker.client_properties()) for name, broker in clusters.items()}
        return claim_batch(settings, found, {}, None)[1]

    first = place(m=cluster_a)
    assert place(b=cluster_b, m=cluster_a) == first
    assert place(b=cluster_b, c=cluster_a) == replace(first, cluster="c")
    kafka_id = first.places[0].partition("/")[0]
    with pytest.raises(TransactionError, match=rf"on cluster 'm' \(cluster\.id {kafka_id}\).*according to cluster 'b'"):
        place(b=cluster_b)
    moved = place("b", b=cluster_b, c=cluster_a)
    assert (moved.cluster, len(moved.places)) == ("b", 2)
    assert place(b=cluster_b) == moved
    assert place(a=cluster_a, b=cluster_b) == moved
    with pytest.raises(TransactionError, match=r"on cluster 'b'.*according to cluster 'a'"):
        place(a=cluster_a)


# --- trimming -----------------------------------------------------------------------------------------------------------


def batches(broker: KafkaBroker, topic: str, head: Chain, count: int) -> Chain:
    """Append what so many batches append, and quickly: claimed, decided, finished."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "log_level": 3})
    transactions = tuple(Transaction("c", f"p.dk-0123456789ab-{n}", 4711, n) for n in range(4))
    for _ in range(count):
        state = replace(
            head.state, chain="x", generation=head.state.generation + 1, status="owned", transactions=(), places=PLACES
        )
        decided = replace(state, status="decided", transactions=transactions, batch=state.batch + 1)
        for step in (state, decided, replace(decided, status="finished", transactions=())):
            record = Record(f"r{head.offset + 1}", head.offset, step)
            producer.produce(topic, encode(record), partition=0)
            head = Chain(head.offset + 1, step)
            producer.poll(0)
    assert producer.flush(30) == 0
    return head


@pytest.mark.slow
def test_the_log_stays_small_over_ten_thousand_batches(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """What lies before the head goes; a reader that starts then, and one that was far behind, see the same state."""
    name = topic()
    log, behind = connect(cluster_a, name), connect(cluster_a, name)
    behind.read()
    head, most = Chain(), 0
    for _ in range(20):
        head = batches(cluster_a, name, head, 500)
        assert log.read().state == head.state
        log.trim()
        low, high = bounds(cluster_a, name)
        assert low == head.offset
        most = max(most, high - low)
    assert head.state.generation == 10_000
    assert most == 1
    readers = [connect(cluster_a, name), behind, log]
    assert [(reader.read().offset, reader.read().state) for reader in readers] == [(head.offset, head.state)] * 3
    for reader in readers:
        reader.append(after(reader.read(), f"more-{reader.read().offset}"))
    assert [reader.read().state.generation for reader in readers] == [10_003] * 3


def test_an_append_that_lost_before_the_log_was_trimmed(cluster_a: KafkaBroker, topic: Topic, connect: Open) -> None:
    """Repeated after that, it stays lost: also to readers who never saw the head that it follows."""
    name = topic()
    log, slow = connect(cluster_a, name), connect(cluster_a, name)
    batches(cluster_a, name, Chain(), 50)
    late = after(slow.read(), "late")
    head = batches(cluster_a, name, log.read(), 100)
    log.read()
    log.trim()
    slow.append(late)
    for reader in (log, slow, connect(cluster_a, name)):
        assert reader.read().offset == head.offset


# --- brokers that come and go -------------------------------------------------------------------------------------------


def silence(log: CommitLog) -> str:
    """The error of a read; "" if there is none: a process that is paused does not stop at one moment."""
    try:
        log.read()
    except ClusterUnavailableError as error:
        return str(error)
    return ""


def test_nobody_answers(topic: Topic, connect: Open) -> None:
    """An error in time, with what the client heard."""
    begin = time.monotonic()
    with pytest.raises(ClusterUnavailableError) as caught:
        connect({"bootstrap.servers": "127.0.0.1:1"}, "log", timeout_ms=1500)
    assert time.monotonic() - begin < 5
    assert str(caught.value).startswith("Cluster 'c': the commit log 'log' could not be looked up (")
    assert "127.0.0.1:1" in str(caught.value)
    assert caught.value.cluster_id == "c"


@pytest.mark.slow
def test_a_restart_between_calls_goes_unnoticed(mortal: KafkaBroker, topic: Topic, connect: Open) -> None:
    """The chain goes on where it was."""
    name = topic()
    log = connect(mortal, name)
    log.append(after(log.read(), "a"))
    mortal.restart()
    assert log.read().state.generation == 1
    mortal.kill()
    mortal.start()
    log.append(after(log.read(), "b"))
    assert log.read().state.generation == 2
    assert connect(mortal, name).read().state.generation == 2


@pytest.mark.slow
def test_a_broker_that_falls_silent(
    mortal: KafkaBroker, topic: Topic, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading and appending are errors within their time, never an empty log; when it is back, both work again."""
    name = topic()
    monkeypatch.setattr(module, "_APPEND_S", 1.5)
    # Patient at first: a broker that has just restarted needs seconds for its first producer.
    log = connect(mortal, name)
    log.append(after(log.read(), "a"))
    head = log.read()
    log.topic.timeout_s = 1.5
    mortal.pause()
    try:
        assert f"'{name}' did not report its end" in wait_until(lambda: silence(log), 20, "silence")
        begin = time.monotonic()
        with pytest.raises(ClusterUnavailableError, match=f"'{name}' could not be appended to"):
            log.append(after(head, "b"))
        assert time.monotonic() - begin < 12
    finally:
        mortal.resume()
    monkeypatch.undo()  # a broker that has just come back may need longer
    patient = connect(mortal, name)
    chain = patient.read()
    assert chain.state.generation in {1, 2}  # whether "b" came through nobody was told
    patient.append(after(chain, "c"))
    assert patient.read().state.generation == chain.state.generation + 1
