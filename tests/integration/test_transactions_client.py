"""A transaction whose producer is gone is ended by somebody else, who knows its ids and nothing more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError
from dynamic_kafka.kafka.transactions.client import (
    BrokerSettings,
    EndResult,
    TransactionClient,
    TransactionDescription,
    TransactionState,
)
from dynamic_kafka.testing import KafkaBroker, MockCluster, wait_until
from tests.brokers import committed, leave_open

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
Connect = Callable[..., TransactionClient]
FINISHED = {EndResult.DONE, EndResult.CONCURRENT}
TIMEOUT_MS = 20_000
STORES = Path(__file__).parents[1] / "stores"


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients of the cluster `c`, and closes them after the test."""
    with ExitStack() as stack:

        def make(properties: Mapping[str, str], timeout_ms: int = TIMEOUT_MS) -> TransactionClient:
            return stack.enter_context(closing(TransactionClient("c", properties, timeout_ms=timeout_ms)))

        yield make


@pytest.fixture
def client(cluster_a: KafkaBroker, connect: Connect) -> TransactionClient:
    """A client of the shared cluster."""
    return connect(cluster_a.client_properties())


def described(client: TransactionClient, name: str) -> TransactionDescription:
    """The description of one id that is there."""
    found = client.describe([name])[name]
    assert found is not None
    return found


def ended(client: TransactionClient, name: str) -> TransactionDescription:
    """The description of one id, when its transaction has ended."""
    over = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.EMPTY}

    def look() -> TransactionDescription | None:
        found = described(client, name)
        return found if found.state in over else None

    found = wait_until(look, 20, f"the end of {name}")
    assert found is not None
    return found


def test_a_killed_producers_transaction_is_committed(
    cluster_a: KafkaBroker, topic: Topic, client: TransactionClient
) -> None:
    """Its id, producer id and epoch are enough; read_committed then shows the rows, and repeating it is harmless."""
    name = topic(cluster_a)
    before_ms = time.time_ns() // 1_000_000
    leave_open(cluster_a, name, name)

    found = described(client, name)
    assert found.state is TransactionState.ONGOING
    assert found.timeout_ms == 60_000
    assert before_ms <= found.started_at_ms <= time.time_ns() // 1_000_000
    assert found.topics == ((name, (0,)),)
    assert name in client.list_open()

    assert client.end(name, found.producer_id, found.producer_epoch, commit=True) is EndResult.DONE
    assert client.end(name, found.producer_id, found.producer_epoch, commit=True) in FINISHED
    after = ended(client, name)
    assert committed(cluster_a, name) == [name]
    assert (after.producer_id, after.producer_epoch) == (found.producer_id, found.producer_epoch)
    assert after.state is TransactionState.COMPLETE_COMMIT
    assert client.end(name, found.producer_id, found.producer_epoch, commit=True) is EndResult.DONE
    assert client.end(name, found.producer_id, found.producer_epoch, commit=False) is EndResult.INVALID_STATE
    assert name not in client.list_open()
    assert client.list_all()[name] is TransactionState.COMPLETE_COMMIT


def test_an_aborted_transaction_stays_so(cluster_a: KafkaBroker, topic: Topic, client: TransactionClient) -> None:
    """A commit that comes after the abort is refused, and publishes nothing."""
    name = topic(cluster_a)
    leave_open(cluster_a, name, name)
    found = described(client, name)
    assert client.end(name, found.producer_id, found.producer_epoch, commit=False) is EndResult.DONE
    assert ended(client, name).state is TransactionState.COMPLETE_ABORT
    late = client.end(name, found.producer_id, found.producer_epoch, commit=True)
    assert late is EndResult.INVALID_STATE
    assert committed(cluster_a, name) == []


def test_a_newer_producer_fences(cluster_a: KafkaBroker, topic: Topic, client: TransactionClient) -> None:
    """It aborts what is open under its id and takes another epoch: a commit for the old one is refused."""
    name = topic(cluster_a)
    leave_open(cluster_a, name, name)
    found = described(client, name)
    newer = Producer({"bootstrap.servers": cluster_a.bootstrap_servers, "transactional.id": name, "log_level": 3})
    newer.init_transactions(20)
    after = described(client, name)
    assert after.state is TransactionState.EMPTY
    assert (after.producer_id, after.producer_epoch) > (found.producer_id, found.producer_epoch)
    assert client.end(name, found.producer_id, found.producer_epoch, commit=True) is EndResult.FENCED
    assert committed(cluster_a, name) == []
    assert name not in client.list_open()


def test_a_transaction_that_timed_out_is_gone(cluster_a: KafkaBroker, topic: Topic, client: TransactionClient) -> None:
    """The coordinator aborts it by itself; it is described as aborted, and a commit is refused."""
    name = topic(cluster_a)
    leave_open(cluster_a, name, name, **{"transaction.timeout.ms": "1000"})
    found = described(client, name)
    after = ended(client, name)
    assert after.state is TransactionState.COMPLETE_ABORT
    refused = client.end(name, found.producer_id, found.producer_epoch, commit=True)
    assert refused in {EndResult.FENCED, EndResult.INVALID_STATE}
    assert committed(cluster_a, name) == []


def test_many_at_once(cluster_a: KafkaBroker, topic: Topic, client: TransactionClient) -> None:
    """Several ids are described and ended by one call each, in the order they were given; unknown ones are told."""
    name = topic(cluster_a)
    ids = [f"{name}-{i}" for i in range(3)]
    for transactional_id in ids:
        leave_open(cluster_a, name, transactional_id)
    found = client.describe([*ids, "nobody"])
    assert found["nobody"] is None
    assert list(filter(None, found.values())) == [described(client, i) for i in ids]
    known = [(i, d.producer_id, d.producer_epoch) for i, d in found.items() if d is not None]
    asked = [known[2], (ids[1], 4711, 0), known[0], ("nobody", 1, 0)]
    assert client.end_all(asked, commit=True) == [
        EndResult.DONE,
        EndResult.UNKNOWN_ID,
        EndResult.DONE,
        EndResult.UNKNOWN_ID,
    ]
    assert client.end(*known[1], commit=False) is EndResult.DONE
    for transactional_id in ids:
        ended(client, transactional_id)
    assert sorted(committed(cluster_a, name)) == [ids[0], ids[2]]


def test_nothing_to_ask(client: TransactionClient) -> None:
    """No ids, no request."""
    assert client.describe([]) == {}
    assert client.end_all([], commit=True) == []


def test_settings_of_brokers(client: TransactionClient) -> None:
    """The limit of transaction.timeout.ms is 15 minutes by default, and late records are refused from 3.6 on."""
    assert client.broker_settings() == BrokerSettings(900_000, verifies_partitions=True)


def test_a_broker_that_does_not_answer(mortal: KafkaBroker, connect: Connect) -> None:
    """Silent or gone: an error within the time-out, and as soon as it is back the client works again."""
    client = connect(mortal.client_properties(), timeout_ms=1500)
    client.list_open()

    def error() -> str:
        begin = time.monotonic()
        with pytest.raises(ClusterUnavailableError) as caught:
            client.end("t", 1, 0, commit=True)
        assert time.monotonic() - begin < 3
        assert caught.value.cluster_id == "c"
        return str(caught.value)

    def answers() -> bool:
        with suppress(ClusterUnavailableError):
            return client.list_open() == []
        return False

    mortal.pause()
    try:
        assert "timed out; check that its brokers are running" in error()
        assert "timed out" in error()
    finally:
        mortal.resume()
    wait_until(answers, 20, "an answer of the resumed broker")
    mortal.kill()
    try:
        told = error()
        assert told.startswith(
            f"Cluster 'c' at {mortal.bootstrap_servers} does not answer (while requesting the commit of trans"
        )
        assert "Connection refused" in told
    finally:
        mortal.start()
    assert connect(mortal.client_properties()).list_open() == []


def test_brokers_before_3_0_are_told_apart(connect: Connect) -> None:
    """The mock cluster of librdkafka looks like one of them."""
    with MockCluster() as old:
        client = connect({"bootstrap.servers": old.bootstrap_servers})
        with pytest.raises(ConfigurationError, match=r"older than Apache Kafka 3\.0.*upgrade its brokers"):
            client.describe(["t"])


# --- security ---


@pytest.fixture(scope="module")
def tls() -> Iterator[KafkaBroker]:
    """SASL_SSL with the mechanism PLAIN, and ACLs: the user `admin` may do everything, `bob` nothing."""
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.ssl.keystore.location": str(STORES / "broker.p12"),
        "listener.name.client.ssl.keystore.password": "test1234",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with KafkaBroker(properties=properties, sasl_plain={"admin": "pass,w=rd", "bob": "b"}) as broker:
        yield broker


def secure(broker: KafkaBroker, **more: str) -> dict[str, str]:
    """Properties for PLAIN as admin, with the certificate as PEM."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": (STORES / "broker.pem").read_text(),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "${env:DK_TEST_PASSWORD}",
        **more,
    }


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The administrator's."""
    monkeypatch.setenv("DK_TEST_PASSWORD", "pass,w=rd")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sasl.password": "wrong"}, "Authentication failed: Invalid username or password"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "does not support sasl.mechanism SCRAM-SHA-512; it offers .*"),
        ({"ssl.ca.pem": ""}, "certificate is not trusted: self-signed certificate"),
        ({"bootstrap.servers": "localhost", "ssl.ca.pem": None}, "certificate is not trusted"),
    ],
)
def test_a_refused_login_is_told_at_once(
    tls: KafkaBroker, wrong: Mapping[str, str | None], told: str, connect: Connect
) -> None:
    """Trying again would not help; the error says what to check, and names no secret. The next call looks anew."""
    properties = secure(tls)
    for name, value in wrong.items():
        properties[name] = (STORES / "peer.pem").read_text() if value is None else value
    port = tls.bootstrap_servers.rpartition(":")[2]
    properties["bootstrap.servers"] = properties["bootstrap.servers"].replace("localhost", f"localhost:{port}")
    begin = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match=told) as caught:
        connect(properties).list_open()
    assert time.monotonic() - begin < TIMEOUT_MS / 2000
    assert "authentication failed" in str(caught.value)
    assert "wrong" not in str(caught.value)


@pytest.mark.slow
def test_a_new_password_is_taken_up(tls: KafkaBroker, monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    """After a refused login the reference is resolved again: nobody has to restart anything."""
    client = connect(secure(tls))
    monkeypatch.setenv("DK_TEST_PASSWORD", "old")
    with pytest.raises(ClusterUnavailableError):
        client.list_open()
    monkeypatch.setenv("DK_TEST_PASSWORD", "pass,w=rd")
    assert client.broker_settings().max_timeout_ms == 900_000


def test_a_server_of_another_protocol(tls: KafkaBroker, cluster_a: KafkaBroker, connect: Connect) -> None:
    """TLS to a listener without, and plain text to one with TLS: the error names security.protocol."""
    plain_to_tls = {"bootstrap.servers": tls.bootstrap_servers}
    tls_to_plain = secure(cluster_a)
    for properties in (plain_to_tls, tls_to_plain):
        with pytest.raises(ClusterUnavailableError, match=r"security\.protocol"):
            connect(properties, timeout_ms=3000).list_open()


def test_what_is_not_allowed_names_the_acl(tls: KafkaBroker, connect: Connect) -> None:
    """A user without ACLs learns which to grant; the broker's configuration is only unknown to them."""
    client = connect(secure(tls, **{"sasl.username": "bob", "sasl.password": "b"}))
    assert client.broker_settings().max_timeout_ms is None
    assert client.list_open() == []
    for call, operation in (
        (lambda: client.describe(["mine"]), "Describe"),
        (lambda: client.end("mine", 1, 0, commit=True), "Write"),
    ):
        with pytest.raises(ClusterUnavailableError) as caught:
            call()
        told = f"TRANSACTIONAL_ID_AUTHORIZATION_FAILED (error 53); User:bob may not {operation} transactional id 'mine'"
        assert told in str(caught.value)
