"""The login by Kerberos, with a real KDC and broker, and with a confluent-kafka that is built as the documentation says."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.brokers import committed
from tests.security.document import check_row, normal, shown
from tests.security.kerberos import Realm, realm
from tests.security.ways import KERBEROS, NO_TICKET, Way

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(1200),  # the first time librdkafka is built
    pytest.mark.skipif(
        shutil.which("apt-get") is None, reason="The KDC and libsasl2 are brought on Debian and Ubuntu only"
    ),
]


@pytest.fixture(scope="module", name="given")
def _realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with realm(tmp_path_factory.mktemp("kerberos")) as given:
        yield given


@pytest.mark.parametrize("way", KERBEROS, ids=lambda way: way.name)
def test_a_stream_is_copied_exactly_once(given: Realm, tmp_path: Path, way: Way) -> None:
    """By a keytab, and by the ticket that `kinit` has put into the cache: every row, and the transaction is committed."""
    (given.folder / "tickets").unlink(missing_ok=True)
    if "keyTab" not in way.properties["sasl.jaas.config"]:
        given.run("kinit", "-k", "-t", str(given.folder / "alice.keytab"), "alice")
    source, copy = f"from-{tmp_path.name}", f"to-{tmp_path.name}"
    for topic in (source, copy):
        given.broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": given.broker.bootstrap_servers})
    for value in ("1", "2", "3"):
        producer.produce(source, value)
    assert producer.flush(20) == 0
    login = {f"kafka.{key}": value for key, value in given.properties(way).items()}
    job = {
        "source": {**login, "subscribe": source, "startingOffsets": "earliest"},
        "sink": {
            **login,
            "topic": copy,
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": copy,
            "checkpointLocation": str(tmp_path / "checkpoint"),
        },
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    driver = Path(__file__).with_name("kerberos_driver.py")
    assert "confluent-kafka" in given.run(sys.executable, str(driver), str(tmp_path / "job.json"))
    assert committed(given.broker, copy) == ["1", "2", "3"]
    check_row("ways", way.name, shown(way.properties))


def test_a_missing_ticket_is_named(given: Realm) -> None:
    """The error of a read says that the broker's login failed, and which cache has no ticket."""
    (given.folder / "tickets").unlink(missing_ok=True)
    properties = given.properties(KERBEROS[-1])
    program = f"""
from dynamic_kafka.errors import ClusterUnavailableError
from tests.security.tries import read_values

try:
    read_values("t", {properties})
except ClusterUnavailableError as error:
    print(error)
"""
    said = given.run(sys.executable, "-c", program)
    assert "refuses the login" in said
    assert "No Kerberos credentials available" in said
    check_row("wrong", NO_TICKET, normal(said.replace(f"{given.folder}/", "/tmp/")))
