"""The test broker is a real broker: what it does when it starts, stops, dies, and is asked for a password."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from dynamic_kafka.testing import BrokerError, KafkaBroker, broker, produce, wait_until
from dynamic_kafka.testing.configuration import free_ports
from tests.brokers import bounds, committed, to_the_end
from tests.spark.tables import FOR_EVER

pytestmark = pytest.mark.broker


def _accepts(bootstrap_servers: str) -> bool:
    host, _, port = bootstrap_servers.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(bootstrap_servers: str, **login: str) -> bool:
    client = AdminClient({"bootstrap.servers": bootstrap_servers, **login, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


def test_two_clusters_at_once_keep_their_records_apart(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Callable[..., str]
) -> None:
    """Two brokers run side by side, and a topic of the same name has on each only what was written there."""
    name = topic(cluster_a, cluster_b)
    produce(cluster_a.bootstrap_servers, name, [(None, "a1"), (None, "a2")])
    produce(cluster_b.bootstrap_servers, name, [(None, "b1")])
    assert committed(cluster_a, name) == ["a1", "a2"]
    assert committed(cluster_b, name) == ["b1"]


def test_produce_sets_partition_time_and_headers(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """`produce` writes null keys and values, the partition, the record time and the headers it is given."""
    name = topic(cluster_a, partitions=2, config=FOR_EVER)
    produce(
        cluster_a.bootstrap_servers,
        name,
        [("k", None), (None, b"v")],
        partition=0,
        timestamp_ms=1_657_256_176_000,
        headers=[("h", b"1"), ("none", None)],
    )
    first, second = to_the_end(cluster_a.bootstrap_servers, [TopicPartition(name, 0, 0)])
    assert [(m.key(), m.value()) for m in (first, second)] == [(b"k", None), (None, b"v")]
    assert first.timestamp()[1] == 1_657_256_176_000
    assert first.headers() == [("h", b"1"), ("none", None)]


def test_produce_in_a_transaction(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Aborted records are in the log, and a reader of committed ones does not see them."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, "gone")], transactional="abort")
    produce(cluster_a.bootstrap_servers, name, [(None, "here")], transactional="commit")
    assert committed(cluster_a, name) == ["here"]
    all_of_it = {"isolation.level": "read_uncommitted"}
    everything = to_the_end(cluster_a.bootstrap_servers, [TopicPartition(name, 0, 0)], **all_of_it)
    assert [m.value() for m in everything] == [b"gone", b"here"]


def test_produce_raises_what_the_cluster_refuses(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """A record that is not acknowledged is an error, never silence."""
    name = topic(cluster_a, config={"max.message.bytes": "100"})
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        produce(cluster_a.bootstrap_servers, name, [(None, "small"), (None, os.urandom(1000))])


def test_topics_are_created_with_their_configuration_and_deleted(
    cluster_a: KafkaBroker, topic: Callable[..., str]
) -> None:
    """A created topic has its leaders at once, a deleted one is gone at once and can be made again."""
    name = topic(cluster_a, partitions=3, config={"retention.ms": "12345"})
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    assert len(admin.list_topics(name, timeout=10).topics[name].partitions) == 3
    with pytest.raises(KafkaException, match="already exists"):
        cluster_a.create_topic(name)
    cluster_a.delete_topic(name)
    assert name not in admin.list_topics(timeout=10).topics
    cluster_a.create_topic(name)


def test_retention_takes_seconds(cluster_a: KafkaBroker, topic: Callable[..., str]) -> None:
    """Records past their retention are gone within seconds, so that tests can wait for it."""
    name = topic(cluster_a, config={"retention.ms": "1"})
    produce(cluster_a.bootstrap_servers, name, [(None, "old")], timestamp_ms=1)
    wait_until(lambda: bounds(cluster_a, name) == (1, 1), 20, "the record's deletion by retention")


@pytest.mark.parametrize("end", [KafkaBroker.kill, KafkaBroker.stop])
def test_records_survive_a_crash_and_a_stop(
    mortal: KafkaBroker, topic: Callable[..., str], end: Callable[[KafkaBroker], None]
) -> None:
    """A broker that was killed or stopped does not answer; started again it has the same address and the records."""
    name, address = topic(mortal), mortal.bootstrap_servers
    produce(address, name, [(None, "kept")])
    end(mortal)
    assert not mortal.is_running
    assert not _accepts(address)
    mortal.restart()
    assert mortal.is_running
    assert mortal.bootstrap_servers == address
    assert committed(mortal, name) == ["kept"]


def test_a_paused_broker_is_silent_until_resumed(mortal: KafkaBroker) -> None:
    """A paused broker still takes connections but answers none; resumed, it answers again."""
    mortal.pause()
    try:
        assert mortal.is_running
        assert _accepts(mortal.bootstrap_servers)
        assert not _answers(mortal.bootstrap_servers)
    finally:
        mortal.resume()
    wait_until(lambda: _answers(mortal.bootstrap_servers), 20, "an answer of the resumed broker")


@pytest.mark.slow
def test_a_paused_broker_can_be_restarted(mortal: KafkaBroker) -> None:
    """Stopping does not hang on a process that is paused."""
    mortal.pause()
    begin = time.monotonic()
    mortal.stop()
    assert time.monotonic() - begin < 15
    mortal.start()
    assert _answers(mortal.bootstrap_servers)


@pytest.mark.slow
def test_a_port_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """If somebody else takes a port between the look for a free one and the start, another one is tried."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        lists = iter([iter([taken, *(next(free_ports()) for _ in range(2))])])
        monkeypatch.setattr(broker, "free_ports", lambda: next(lists, None) or free_ports())
        with KafkaBroker() as started:
            assert not started.bootstrap_servers.endswith(f":{taken}")
            assert _answers(started.bootstrap_servers)


def test_a_given_port_in_use_is_named(cluster_a: KafkaBroker) -> None:
    """A port that the user chose is never replaced: if it is taken, the error names it."""
    port = int(cluster_a.bootstrap_servers.partition(":")[2])
    with pytest.raises(BrokerError, match=f"port {port} is in use"):
        KafkaBroker(port=port).start()


def test_a_broker_that_cannot_start_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error ends with what Kafka had to say, and no temporary folder stays behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerError, match=r"Invalid value many for configuration num\.io\.threads"):
        KafkaBroker(properties={"num.io.threads": "many"}).start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_given_folder_is_kept_and_used_again(tmp_path: Path) -> None:
    """With a folder of the user's, the next broker object goes on with the data of the one before, once that has ended."""
    with KafkaBroker(log_dir=tmp_path / "kafka") as first:
        with pytest.raises(BrokerError, match=r"kafka is used by another broker; stop that one"):
            KafkaBroker(log_dir=tmp_path / "kafka").start()
        first.restart()
        first.create_topic("t")
        produce(first.bootstrap_servers, "t", [(None, "kept")])
    with KafkaBroker(log_dir=tmp_path / "kafka", heap="128m") as second:
        assert committed(second, "t") == ["kept"]


@pytest.mark.slow
def test_passwords_are_asked_for_and_change_with_a_restart(topic: Callable[..., str]) -> None:
    """With `sasl_plain` only its users get in, whatever their passwords hold; a restart can change them."""
    old, new = 'p"a\\ss= é$x', "new"

    def login(password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann@x",
            "sasl.password": password,
        }

    def gets_in(password: str) -> bool:
        return _answers(secured.bootstrap_servers, **login(password))

    with KafkaBroker(sasl_plain={"ann@x": old, "bob": "b"}) as secured:
        assert not _answers(secured.bootstrap_servers)
        assert gets_in(old)
        assert not gets_in(new)
        name = topic(secured)
        produce(secured.bootstrap_servers, name, [(None, "v")], properties=login(old), transactional="commit")

        java = secured.client_properties("bob")
        assert java["security.protocol"] == "SASL_PLAINTEXT"
        assert java["sasl.jaas.config"].endswith('PlainLoginModule required "username"="bob" "password"="b";')

        secured.restart(sasl_plain={"ann@x": new})
        assert gets_in(new)
        assert not gets_in(old)
        assert "new" not in repr(secured)


def test_no_broker_outlives_its_process(tmp_path: Path) -> None:
    """Killing the process kills its broker and removes the temporary data; the end of the starting thread does not.

    Also if a fork of the process lives on and holds its pipes.
    """
    script = textwrap.dedent("""
        import os, sys, threading, time
        from dynamic_kafka.testing import KafkaBroker

        broker = KafkaBroker()
        thread = threading.Thread(target=broker.start)
        thread.start()
        thread.join()
        fork = os.fork()
        if fork == 0:
            time.sleep(60)
            os._exit(0)
        print(broker.bootstrap_servers, fork, flush=True)
        sys.stdin.read()
    """)
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        address, fork = process.stdout.readline().split()
        try:
            assert _answers(address)
            assert len(list(tmp_path.iterdir())) == 1
            process.kill()
            wait_until(lambda: not _accepts(address), 10, "the broker's end")
            wait_until(lambda: not list(tmp_path.iterdir()), 10, "the removal of its data")
        finally:
            os.kill(int(fork), signal.SIGKILL)
