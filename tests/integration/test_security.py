"""Reading with logins, groups and certificates that change or are refused, on real brokers."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.testing import KafkaBroker, produce
from tests.brokers import SECURED_USERS, grant
from tests.engine import Query, read_all
from tests.security.tries import read_values, sink, write_value

pytestmark = pytest.mark.broker

STORES = Path(__file__).parent.parent / "stores"
Topic = Callable[..., str]


@pytest.mark.slow
def test_a_key_store_replaced_in_place_is_used_within_seconds(tmp_path: Path) -> None:
    """The broker stops trusting the old certificate. Driver and tasks use the new one, without a restart."""
    trusted, keys = tmp_path / "trusted.p12", tmp_path / "keys.p12"
    shutil.copy(STORES / "trust-peer.p12", trusted)
    shutil.copy(STORES / "peer.p12", keys)
    properties = {
        "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.ssl.keystore.location": str(STORES / "broker.p12"),
        "listener.name.client.ssl.keystore.password": "test1234",
        "listener.name.client.ssl.truststore.location": str(trusted),
        "listener.name.client.ssl.truststore.password": "test1234",
        "listener.name.client.ssl.client.auth": "required",
    }
    with KafkaBroker(properties=properties) as broker:
        broker.create_topic("t")
        produce(broker.internal_address, "t", [(None, b"1")])
        query = Query(
            {
                "subscribe": "t",
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": str(STORES / "broker.pem"),
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.keystore.location": str(keys),
                "kafka.ssl.keystore.password": "test1234",
                "kafkaConsumer.pollTimeoutMs": "15 s",
            }
        )
        query.run_until_rows(1)

        produce(broker.internal_address, "t", [(None, b"2")])
        start = end = query.document
        while end == start:
            end = json.loads(json.dumps(query.enumerator.latest_offset(start, limited=True)))
        tasks = query.enumerator.tasks(start, end)
        shutil.copy(STORES / "trust.p12", trusted)
        broker.restart()
        produce(broker.internal_address, "t", [(None, b"3")])
        replaced = threading.Timer(2, shutil.copy, (STORES / "client.p12", keys))
        replaced.start()
        began = time.monotonic()

        assert [row["value"] for row in read_all(tasks, query.settings)] == [b"2"], "in a task that has begun"
        query.log.append(json.dumps(end))
        query.run_until_rows(2, 30)

        assert time.monotonic() - began < 20
        assert query.values() == ["1", "3"]
        query.close()
        replaced.join()


def test_a_group_without_access_delays_nothing(secured: KafkaBroker, topic: Topic) -> None:
    """Its commits fail after 45 seconds each; batches go on meanwhile."""
    name = topic(secured)
    grant(secured, "reader", ResourceType.TOPIC, name, AclOperation.READ, AclOperation.DESCRIBE)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin"}
    login |= {"sasl.password": SECURED_USERS["admin"]}
    query = Query(
        {
            "subscribe": name,
            "properties.group.id": "of-somebody-else",
            **{f"properties.{key}": value for key, value in secured.client_properties("reader").items()},
        }
    )
    began = time.monotonic()
    for count in range(1, 6):
        produce(secured.bootstrap_servers, name, [(None, b"v")], properties=login)
        query.run_until_rows(count)
    assert time.monotonic() - began < 20
    assert query.enumerator.report()["clusters"]["kafka"]["error"] is None
    query.close()


def test_a_wrong_password_is_told_at_once_and_tried_once_or_twice(secured: KafkaBroker, topic: Topic) -> None:
    """Reading and writing end within seconds: each further try could lock the account."""
    name = topic(secured)
    wrong = {**secured.client_properties("reader")}
    wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace(SECURED_USERS["reader"], "hunter2")
    attempts: list[Callable[[], object]] = [
        lambda: read_values(name, wrong),
        lambda: write_value(name, wrong, "1", sink()),
        lambda: write_value(name, wrong, "1", sink("exactly-once")),
    ]
    for attempt in attempts:
        began = time.monotonic()
        with pytest.raises(ClusterUnavailableError, match=r"refuses the login.*Invalid username or password") as caught:
            attempt()
        assert time.monotonic() - began < 5
        assert "hunter2" not in str(caught.value)


def test_the_last_batch_of_available_now_is_committed(cluster_a: KafkaBroker, topic: Topic) -> None:
    """Spark ends the process as soon as nothing more can be read: the commit is done by then."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 7)
    options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    query = Query({**options, "properties.group.id": f"now-{name}"})
    assert query.available_now() == 7
    consumer = Consumer({"bootstrap.servers": cluster_a.bootstrap_servers, "group.id": f"now-{name}"})
    assert consumer.committed([TopicPartition(name, 0)], timeout=10)[0].offset == 7
    consumer.close()
    query.close()
