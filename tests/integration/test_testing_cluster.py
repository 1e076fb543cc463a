"""A cluster of several brokers survives the loss of one of them, and each can be treated by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dynamic_kafka.testing import KafkaCluster, produce
from tests.brokers import committed

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three brokers."""
    with KafkaCluster() as started:
        yield started


def test_another_broker_leads_when_the_leader_is_killed(cluster: KafkaCluster) -> None:
    """What was acknowledged is still there, and the killed broker comes back as a replica."""
    cluster.create_topic("survives")
    produce(cluster.bootstrap_servers, "survives", [(None, "before")])
    first = cluster.leader("survives")
    first.kill()
    produce(cluster.bootstrap_servers, "survives", [(None, "after")], transactional="commit")
    assert cluster.leader("survives") is not first
    assert committed(cluster, "survives") == ["before", "after"]
    first.start()
    cluster.wait_until_in_sync()


def test_a_rolling_restart_keeps_addresses_and_records(cluster: KafkaCluster) -> None:
    """Each broker is restarted, and clients with the old addresses find all records."""
    cluster.create_topic("rolls")
    produce(cluster.bootstrap_servers, "rolls", [(None, "v")])
    addresses = cluster.bootstrap_servers
    cluster.rolling_restart()
    assert cluster.bootstrap_servers == addresses
    assert committed(cluster, "rolls") == ["v"]
