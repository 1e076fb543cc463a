"""`dynamic-kafka doctor` against brokers: what is fit, and each thing that is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourcePatternType, ResourceType

from dynamic_kafka.cli.main import main
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.testing import KafkaBroker, produce
from tests.brokers import SECURED_USERS, grant, revoke_all

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
Found = dict[str, list[tuple[str, str]]]
Doctor = Callable[..., tuple[int, Found]]
STORES = Path(__file__).parent.parent / "stores"


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the command: its exit code, and for each check of a cluster the results and what was found."""

    def call(*arguments: str) -> tuple[int, Found]:
        code = main(["doctor", *arguments, "--output", "json"])
        written = capsys.readouterr()
        for password in SECURED_USERS.values():
            assert password not in written.out + written.err
        found: Found = {}
        for finding in json.loads(written.out)["findings"]:
            if finding["cluster"] is not None:
                found.setdefault(finding["check"], []).append((finding["result"], finding["what"]))
        return code, found

    return call


def login(broker: KafkaBroker, user: str) -> list[str]:
    """The arguments to reach a broker as a user."""
    pairs = broker.client_properties(user).items()
    return [word for key, value in pairs for word in ("--property", f"{key}={value}")]


def test_a_cluster_that_is_fit(cluster_a: KafkaBroker, topic: Topic, doctor: Doctor) -> None:
    """All is well for all purposes, and nothing was made on the cluster."""
    name = topic(cluster_a, partitions=2)
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    code, found = doctor(
        *("--bootstrap-servers", f"{cluster_a.bootstrap_servers},127.0.0.1:1"),
        *("--topic", name, "--prefix", name, "--group", name),
    )
    assert code == 0
    (good, bad) = found.pop("address")
    assert good[0] == "ok"
    assert good[1].startswith(f"{cluster_a.bootstrap_servers}: DNS, TCP, ApiVersions in ")
    assert bad == ("warning", "127.0.0.1:1: TCP fails: Connection refused")
    assert {result for findings in found.values() for result, _ in findings} == {"ok"}
    assert found["topics"] == [("ok", "topics: 1, with partitions: 2")]
    assert found["clock"][0][1].startswith("the clock of controller 1 is at most ")
    assert len(found["rights"]) == 3
    assert commit_log_topic(name) not in admin.list_topics(timeout=10).topics


def test_a_reader_of_what_transactions_have_aborted(cluster_a: KafkaBroker, topic: Topic, doctor: Doctor) -> None:
    """A topic that a transaction has written last, if it is read uncommitted; other topics are not named."""
    plain, aborted = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, plain, [(None, b"row")])
    produce(cluster_a.bootstrap_servers, aborted, [(None, b"row")], transactional="abort")
    options = ["-o", f"kafka.bootstrap.servers={cluster_a.bootstrap_servers}", "-o", f"subscribe={plain},{aborted}"]
    code, found = doctor(*options)
    assert code == 0
    ((result, what),) = found["isolation"]
    assert result == "warning"
    assert what.startswith(f"{aborted}: written in transactions, and read with isolation.level=read_uncommitted")
    assert "isolation" not in doctor(*options, "-o", "kafka.isolation.level=read_committed")[1]


def test_a_sink_that_is_not_fit(cluster_a: KafkaBroker, topic: Topic, doctor: Doctor) -> None:
    """A time-out above the brokers' limit, and a commit log that Kafka would clean up."""
    name = topic(cluster_a)
    cluster_a.create_topic(commit_log_topic(name), 1, {"cleanup.policy": "compact"})
    code, found = doctor(
        *("-o", f"kafka.bootstrap.servers={cluster_a.bootstrap_servers}", "-o", f"topic={name}"),
        *("-o", "sink.delivery-guarantee=exactly-once", "-o", f"sink.transactional-id-prefix={name}"),
        *("-o", "kafka.transaction.timeout.ms=1000000"),
    )
    assert code == 1
    limit = "transaction.timeout.ms is 1000000, but the brokers allow at most 900000 (transaction.max.timeout.ms)"
    assert ("error", limit) in found["transactions"]
    ((result, what),) = found["commit log"]
    assert result == "error"
    assert "has cleanup.policy=compact, retention.ms=604800000, so Kafka could delete decisions" in what
    assert found["rights"][0][0] == "ok"


def test_a_typing_error_in_a_topic_is_seen(cluster_a: KafkaBroker, topic: Topic, doctor: Doctor) -> None:
    """Its rights are unknown, and the others are named."""
    name = topic(cluster_a)
    options = ["-o", f"kafka.bootstrap.servers={cluster_a.bootstrap_servers}"]
    code, found = doctor(*options, "-o", f"subscribe={name},{name}-typo")
    assert code == 0
    assert ("warning", f"these topics do not exist: {name}-typo") in found["topics"]
    assert found["rights"][0][0] == "unknown"
    _, found = doctor(*options, "-o", f"subscribePattern={name}-none.*")
    assert found["topics"] == [("warning", "no topic matches the pattern")]


def test_rights_that_are_missing(secured: KafkaBroker, topic: Topic, doctor: Doctor) -> None:
    """Each is named with its resource, for reading, writing and exactly-once; with all of them it is enough."""
    name = topic(secured)
    log = commit_log_topic(name)
    arguments = [*login(secured, "clerk"), "--topic", name, "--group", name, "--prefix", name]
    code, found = doctor(*arguments, "--for", "reading")
    assert code == 1
    missing = f"not enough for reading: missing is Describe, Read on Topic '{name}'; Read on Group '{name}'"
    assert found["rights"] == [("error", missing)]
    assert found["clock"] == [("unknown", "the time of the brokers is not known: this user may not ask for it")]
    grant(secured, "clerk", ResourceType.TOPIC, name, AclOperation.READ, AclOperation.WRITE)
    grant(secured, "clerk", ResourceType.GROUP, name, AclOperation.READ)
    code, found = doctor(*arguments)
    assert code == 0, f"exactly-once is not asked for: {found}"
    assert [result for result, _ in found["rights"]] == ["ok", "ok", "warning"], found["rights"]
    assert found["rights"][2][1] == (
        f"not enough for writing exactly once: missing is Describe, Write on TransactionalId '{name}.dk-*'; "
        "DescribeConfigs on the Cluster; "
        f"Create, Delete, Describe, DescribeConfigs, Read, Write on Topic '{log}'"
    )
    assert found["transactions"][0][0] == "unknown"
    grant(
        *(secured, "clerk", ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE, AclOperation.DESCRIBE),
        pattern=ResourcePatternType.PREFIXED,
    )
    of_log = ("CREATE", "DELETE", "DESCRIBE_CONFIGS", "READ", "WRITE")
    grant(secured, "clerk", ResourceType.TOPIC, log, *(AclOperation[operation] for operation in of_log))
    grant(
        *(secured, "clerk", ResourceType.BROKER, "kafka-cluster"),
        *(AclOperation.DESCRIBE_CONFIGS, AclOperation.DESCRIBE),
    )
    code, found = doctor(*arguments, "--for", "exactly-once")
    assert (code, found["rights"][0][0]) == (0, "ok"), found["rights"]
    assert found["clock"][0][0] == found["transactions"][0][0] == found["commit log"][0][0] == "ok"
    revoke_all(secured, "clerk")


def test_a_wrong_password_is_tried_once(secured: KafkaBroker, doctor: Doctor) -> None:
    """At one address, although there are two: some servers lock an account after a few tries."""
    properties = {**secured.client_properties("clerk"), "bootstrap.servers": f"{secured.bootstrap_servers}," * 2}
    pairs = [(key, value.replace(SECURED_USERS["clerk"], "wrong")) for key, value in properties.items()]
    code, found = doctor(*(word for key, value in pairs for word in ("--property", f"{key}={value}")))
    assert code == 1
    refused, other = found["address"]
    assert refused[0] == "error"
    assert "login fails: Authentication failed" in refused[1]
    assert other[0] == "ok"
    assert "login" not in other[1]
    skipped = (
        "not asked, because the login was refused: listeners, answer, clock, topics, rights, isolation, transactions, "
        "commit log"
    )
    assert found["listeners"] == [("unknown", skipped)]


def test_tls_and_advertised_listeners(doctor: Doctor) -> None:
    """The step that fails is the certificate; then it is the address that the broker wants to be reached at."""
    properties: dict[str, Any] = {
        "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.ssl.keystore.location": str(STORES / "broker.p12"),
        "listener.name.client.ssl.keystore.password": "test1234",
    }
    with KafkaBroker(properties=properties) as broker:
        connect = ["--bootstrap-servers", broker.bootstrap_servers]
        tls = [*connect, "--property", "security.protocol=SSL"]
        _, found = doctor(*connect)
        assert found["address"][0][0] == "error"
        assert "ApiVersions fails" in found["address"][0][1]
        _, found = doctor(*tls)
        assert found["address"][0][0] == "error"
        assert "TLS fails: the broker's certificate is not trusted" in found["address"][0][1]
        trusted = [*tls, "--property", f"ssl.truststore.location={STORES / 'broker.pem'}"]
        code, found = doctor(*trusted, "--property", "ssl.truststore.type=PEM")
        assert code == 0
        assert "DNS, TCP, TLS, ApiVersions in" in found["address"][0][1]
        assert found["listeners"][0][0] == "ok"


@pytest.mark.slow
def test_a_broker_that_advertises_another_address(doctor: Doctor) -> None:
    """Bootstrapping works, and the brokers cannot be reached."""
    with KafkaBroker() as inner:
        port = inner.bootstrap_servers.rpartition(":")[2]
        internal = inner.internal_address
        inner.stop()
        advertised = f"CLIENT://no-such-host.invalid:{port},INTERNAL://{internal}"
        inner._properties["advertised.listeners"] = advertised
        inner.start()
        code, found = doctor("--bootstrap-servers", inner.bootstrap_servers, "--timeout", "4")
    assert code == 1
    assert found["address"][0][0] == "ok"
    ((result, what),) = found["listeners"]
    assert result == "error"
    assert f"broker 1 is advertised as no-such-host.invalid:{port}, where DNS fails" in what
    assert found["answer"][0][0] == "error"
