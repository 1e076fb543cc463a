"""Every way in, on a real broker: reading, writing, and exactly-once, with both kernels; and what is said if it is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.kafka.clients import calls_python
from dynamic_kafka.native import Implementation
from dynamic_kafka.testing import KafkaBroker
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


class GoogleCredentials:
    """Google's credentials, without Google."""

    service_account_email = "me@project.iam.gserviceaccount.com"
    token = ""
    expiry = datetime(1970, 1, 1)  # noqa: DTZ001  # Google's are naive, in UTC

    def refresh(self, _: object) -> None:
        """Make an access token for half an hour."""
        self.token = f"access-token-of-{self.service_account_email}"
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(minutes=30)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_ways_in(secured: Secured, topic: Topic, way: Way, implementation: Implementation) -> None:
    """A record is read, and others are written and read, at least once and exactly once, within seconds."""
    if way.listener not in secured.addresses:
        pytest.skip("javac is not installed (a JDK has it): the broker's check of cloud tokens cannot be compiled")
    given = properties(way, secured)
    name = topic(secured.broker)
    began = time.monotonic()
    write_value(name, given, "1", sink(implementation))
    write_value(name, given, "2", sink(implementation, "exactly-once"))
    assert read_values(name, given, implementation) == ["1", "2"]
    assert time.monotonic() - began < 20
    who = "Python" if calls_python(given) else "Python, native kernel"
    check_row("ways", way.name, shown(way.properties), f"read, written at least once and exactly once ({who})")


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_wrong_ways(secured: Secured, topic: Topic, wrong: Wrong) -> None:
    """Whatever is tried first says what is wrong, within seconds, and with few refused logins; no secret is shown."""
    if wrong.listener not in secured.addresses:
        pytest.skip("javac is not installed (a JDK has it): the broker's check of cloud tokens cannot be compiled")
    name, given = topic(secured.broker), properties(wrong, secured)
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: read_values(name, given, "auto"),
        "stream": lambda: read_stream(name, given),
        "write": lambda: write_value(name, given, "1", sink("auto")),
        "exactly-once": lambda: write_value(name, given, "1", sink("auto", "exactly-once")),
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
    secured: Secured, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, implementation: Implementation
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
            write_value(name, given, cluster, sink(implementation))
            own = {key: value for key, value in given.items() if key != "bootstrap.servers"}
            described[cluster] = {"bootstrapServers": given["bootstrap.servers"], "topics": [name], "properties": own}
        file = MetadataFile(tmp_path / "streams.yaml")
        file.write(s=described)
        stores = Path(mutual["ssl.truststore.location"]).parent
        allowed = {"metadata-service.allowed-references": f"file:{stores}/*"}
        query = Query({**file.options(**allowed), "reader-implementation": implementation})
        query.run_until_rows(3)
        query.close()
    assert query.values() == ["mutual", "password", "plain"]
