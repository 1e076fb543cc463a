"""Every way in, on a real broker: reading, writing, and exactly-once, and what is said if it is wrong."""

from __future__ import annotations

import json
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError
from dynamic_kafka.kafka import clients as clients_module
from dynamic_kafka.kafka.clients import BackgroundErrors, ClientSettings, ClusterClients
from dynamic_kafka.kafka.config.tokens import Token, token_source
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.engine import MetadataFile, Query
from tests.security.brokers import Secured, secured_broker
from tests.security.document import check_row, clear, normal, shown
from tests.security.tries import read_stream, read_values, sink, write_value
from tests.security.ways import WAYS, WRONG, Way, Wrong, properties

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Topic = Callable[..., str]


@pytest.fixture(scope="module", name="secured")
def _secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    clear("ways")
    clear("wrong")
    with secured_broker(tmp_path_factory.mktemp("stores")) as secured:
        yield secured


@pytest.fixture(autouse=True)
def _clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that the libraries of the clouds find, and that no cloud knows."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    monkeypatch.setattr("google.auth.default", lambda **_: (GoogleCredentials(), "project"))
    monkeypatch.setattr("boto3.Session.client", lambda *_, **__: Sts())


class GoogleCredentials:
    """Google's credentials, without Google."""

    service_account_email = "me@project.iam.gserviceaccount.com"
    token = ""
    expiry = datetime(1970, 1, 1)  # noqa: DTZ001  # Google's are naive, in UTC

    def refresh(self, _: object) -> None:
        """Make an access token for half an hour."""
        self.token = f"access-token-of-{self.service_account_email}"
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(minutes=30)


class Sts:
    """AWS's service that vouches for a machine, without AWS."""

    def get_web_identity_token(self, **asked: Any) -> dict[str, object]:
        """Return a token for ten minutes."""
        claims = {"aud": asked["Audience"][0], "sub": "arn:aws:iam::1:role/reader"}
        parts = (b'{"alg": "ES384"}', json.dumps(claims).encode(), b"signature")
        token = ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
        return {"WebIdentityToken": token, "Expiration": datetime.now(UTC) + timedelta(minutes=10)}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_ways_in(secured: Secured, topic: Topic, way: Way) -> None:
    """A record is read, and others are written and read, at least once and exactly once, within seconds."""
    if way.listener not in secured.addresses:
        pytest.skip("javac is not installed (a JDK has it): the broker's check of cloud tokens cannot be compiled")
    given = properties(way, secured)
    name = topic(secured.broker)
    began = time.monotonic()
    write_value(name, given, "1", sink())
    write_value(name, given, "2", sink("exactly-once"))
    assert read_values(name, given) == ["1", "2"]
    assert time.monotonic() - began < 20
    check_row("ways", way.name, shown(way.properties))


def test_tokens_of_a_function_of_the_user(secured: Secured, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named in the query's options: records are read and written with its tokens, at least once and exactly once."""
    if "CLOUD" not in secured.addresses:
        pytest.skip("javac is not installed (a JDK has it): the broker's check of cloud tokens cannot be compiled")

    def make() -> tuple[str, float]:
        found = Sts().get_web_identity_token(Audience=["https://kafka"])
        return str(found["WebIdentityToken"]), time.time() + 600

    monkeypatch.setitem(sys.modules, "my_tokens", SimpleNamespace(make=make))
    given = properties(next(way for way in WAYS if "Google" in way.name), secured)
    given["sasl.login.callback.handler.class"] = "my_tokens:make"
    name = topic(secured.broker)
    write_value(name, given, "1", sink())
    write_value(name, given, "2", sink("exactly-once"))
    assert read_values(name, given) == ["1", "2"]


@pytest.mark.parametrize("name", ["fetching_consumer", "record_producer"])
def test_a_token_is_replaced_before_it_expires(secured: Secured, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stays asks for the next one, and a failure is reported until there is one again."""
    way = next(way for way in WAYS if "Google" in way.name)
    if way.listener not in secured.addresses:
        pytest.skip("javac is not installed (a JDK has it): the broker's check of cloud tokens cannot be compiled")
    given, made, fails = properties(way, secured), [], False
    real = token_source(given)
    assert real is not None

    def short_lived() -> Token:
        if fails:
            raise ConfigurationError("the cloud is down")
        made.append(real()._replace(expires_at_s=time.time() + 2))
        return made[-1]

    monkeypatch.setattr(clients_module, "token_source", lambda _: short_lived)
    group = ClientSettings(fixed={"group.id": "g"})
    clients = ClusterClients(given, consumer=group)
    client = getattr(clients, name)

    def noted() -> BackgroundErrors:
        if name == "record_producer":
            client.poll(0.1)
        clients.note_reports()
        return clients.errors

    clients.ask(lambda s: client.look_up(topic_of(secured), s), 10)
    wait_until(lambda: noted().last == "" and len(made) >= 3, 20, "new tokens")
    fails = True
    wait_until(lambda: noted().last == "the cloud is down", 20, "the failure")
    assert noted().authentication_failed
    clients.close()


def topic_of(secured: Secured) -> str:
    """A topic that any of these tests may look up."""
    with suppress(KafkaException):
        secured.broker.create_topic("tokens")
    return "tokens"


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_wrong_ways(secured: Secured, topic: Topic, wrong: Wrong) -> None:
    """Whatever is tried first says what is wrong, within seconds, and with few refused logins; no secret is shown."""
    if wrong.listener not in secured.addresses:
        pytest.skip("javac is not installed (a JDK has it): the broker's check of cloud tokens cannot be compiled")
    name, given = topic(secured.broker), properties(wrong, secured)
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: read_values(name, given),
        "stream": lambda: read_stream(name, given),
        "write": lambda: write_value(name, given, "1", sink()),
        "exactly-once": lambda: write_value(name, given, "1", sink("exactly-once")),
    }
    if wrong.is_silent:  # it looks like a cluster that is down, for which is waited: here 3 s
        attempts = {what: attempts[what] for what in ("read", "stream")}
        given["default.api.timeout.ms"] = "3000"
    for what, attempt in attempts.items():
        before, began = secured.failed_logins() + secured.tokens.asked, time.monotonic()
        with pytest.raises(DynamicKafkaError, match=wrong.expected) as caught:
            attempt()
        took_s = time.monotonic() - began
        assert "hunter2" not in str(caught.value)
        assert took_s < 8, what
        refused = secured.failed_logins() + secured.tokens.asked - before
        if not wrong.is_silent:
            assert refused <= (8 if "sasl.mechanism" in given else 40), what
        if what == "read":
            check_row("wrong", wrong.name, normal(str(caught.value), secured))


def test_one_stream_over_clusters_with_different_security(
    secured: Secured, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Plain text, a certificate of the client, and a login by password on three clusters: one stream."""
    name = topic(secured.broker, cluster_a)
    ways = {way.name: way for way in WAYS}
    mutual = properties(ways["mutual TLS, key store PKCS12 (keytool)"], secured)
    with KafkaBroker(sasl_plain={"bob": "builder"}) as third:
        third.create_topic(name)
        clusters = {
            "mutual": mutual,
            "plain": {"bootstrap.servers": cluster_a.bootstrap_servers},
            "password": third.client_properties("bob"),
        }
        described = {}
        for cluster, given in clusters.items():
            write_value(name, given, cluster, sink())
            own = {key: value for key, value in given.items() if key != "bootstrap.servers"}
            described[cluster] = {"bootstrapServers": given["bootstrap.servers"], "topics": [name], "properties": own}
        file = MetadataFile(tmp_path / "streams.yaml")
        file.write(s=described)
        stores = Path(mutual["ssl.truststore.location"]).parent
        allowed = {"metadata-service.allowed-references": f"file:{stores}/*"}
        query = Query(file.options(**allowed))
        query.run_until_rows(3)
        query.close()
    assert query.values() == ["mutual", "password", "plain"]
