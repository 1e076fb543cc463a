"""A transaction whose producer is gone is ended by somebody else, who knows its ids and nothing more."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError
from dynamic_kafka.kafka.transactions.client import (
    BrokerSettings,
    EndResult,
    TransactionClient,
    TransactionDescription,
    TransactionState,
)
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink.producers import PooledProducers
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask
from dynamic_kafka.sink.writer import flush, write
from dynamic_kafka.testing import KafkaBroker, MockCluster, wait_until
from tests.brokers import committed, leave_open
from tests.engine import read_batch
from tests.web import Answer, Request, WebServer

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
Connect = Callable[..., TransactionClient]
FINISHED = {EndResult.DONE, EndResult.CONCURRENT}
TIMEOUT_MS = 20_000
STORES = Path(__file__).parents[1] / "stores"


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients of the cluster `c`, and closes them after the test."""
    clients: list[TransactionClient] = []

    def make(properties: Mapping[str, str], timeout_ms: int = TIMEOUT_MS) -> TransactionClient:
        clients.append(TransactionClient("c", properties, timeout_ms=timeout_ms))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


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
    """SASL_SSL with several mechanisms, and ACLs: the user `admin` may do everything, `bob` nothing."""
    jaas = "org.apache.kafka.common.security"
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.ssl.keystore.location": str(STORES / "broker.p12"),
        "listener.name.client.ssl.keystore.password": "test1234",
        "listener.name.client.ssl.truststore.location": str(STORES / "trust-peer.p12"),
        "listener.name.client.ssl.truststore.password": "test1234",
        "listener.name.client.ssl.client.auth": "requested",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.client.scram-sha-256.sasl.jaas.config": f"{jaas}.scram.ScramLoginModule required;",
        "listener.name.client.oauthbearer.sasl.jaas.config": f"{jaas}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with KafkaBroker(properties=properties, sasl_plain={"admin": "pass,w=rd", "bob": "b"}) as broker:
        broker.create_topic("t")
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


def test_plain_over_tls_with_a_pem_ca(tls: KafkaBroker, connect: Connect) -> None:
    """Everything works as without security, with the authority's certificate as PEM text and the password by reference."""
    properties = secure(tls)
    leave_open(tls, "t", "tls", **{**properties, "sasl.password": "pass,w=rd"})
    client = connect(properties)
    found = described(client, "tls")
    assert client.list_open() == ["tls"]
    assert client.end("tls", found.producer_id, found.producer_epoch, commit=True) is EndResult.DONE
    assert ended(client, "tls").state is TransactionState.COMPLETE_COMMIT


def test_java_key_stores_and_a_client_certificate(tls: KafkaBroker, connect: Connect) -> None:
    """Java's names for the client's own key store work, too."""
    properties = secure(
        tls,
        **{"ssl.keystore.location": str(STORES / "peer.p12"), "ssl.keystore.password": "test1234"},
    )
    client = connect(properties)
    assert client.broker_settings().max_timeout_ms == 900_000


def test_scram(tls: KafkaBroker, connect: Connect) -> None:
    """A user whose name has to be escaped logs in by SCRAM."""
    login = secure(tls, **{"sasl.password": "pass,w=rd"})
    user = UserScramCredentialUpsertion("a=b,c", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"s=,1")
    options: dict[str, Any] = login
    admin = AdminClient(options)
    admin.alter_user_scram_credentials([user])["a=b,c"].result(20)
    scram = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "a=b,c", "sasl.password": "s=,1"}
    client = connect({**login, **scram})
    wait_until(lambda: client.list_open() == [], 20, "the user to be known")


@contextmanager
def token_endpoint() -> Iterator[tuple[dict[str, str], set[tuple[str, bytes]]]]:
    """Issues tokens of `admin`: the properties of a login with them, and the logins and forms of those who ask."""
    asked: set[tuple[str, bytes]] = set()

    def answer(request: Request) -> Answer:
        asked.add((request.headers["authorization"], request.body))
        now = int(time.time())
        parts = ({"alg": "none"}, {"sub": "admin", "iat": now, "exp": now + 600, "scope": "kafka"})
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
        body = json.dumps({"access_token": ".".join([*encoded, ""])}).encode()
        return 200, {"Content-Type": "application/json"}, body

    with WebServer(answer) as server:
        yield (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "secret",
                "sasl.oauthbearer.scope": "kafka",
            },
            asked,
        )


def test_oauthbearer_with_tokens_from_an_endpoint(tls: KafkaBroker, connect: Connect) -> None:
    """The token is fetched with the client's id and secret, for the scope."""
    with token_endpoint() as (login, asked):
        assert connect(secure(tls, **login)).broker_settings().max_timeout_ms == 900_000
    assert asked == {("Basic bWU6c2VjcmV0", b"grant_type=client_credentials&scope=kafka")}


def test_tokens_from_an_endpoint_are_used_for_records(tls: KafkaBroker, topic: Topic) -> None:
    """Librdkafka asks for them itself."""
    name = topic(tls)
    with token_endpoint() as (login, asked):
        properties = secure(tls, **login)
        sink = SinkSettings(service=InMemoryMetadataService, stream="s")
        task = WriteTask({"c": Destination(properties, name)}, sink)
        with PooledProducers(task) as producers:
            flush(write(iter([pa.RecordBatch.from_pydict({"value": [b"v"]})]), task, producers, task_number=0))
        options = {f"kafka.{key}": value for key, value in properties.items()}
        rows = read_batch({"subscribe": name, **options})
        assert [row["value"] for row in rows] == [b"v"]
    assert {login for login, _ in asked} == {"Basic bWU6c2VjcmV0"}


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
