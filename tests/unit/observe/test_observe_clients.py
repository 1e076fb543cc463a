"""librdkafka's own numbers: what its statistics become, and what becomes of the totals of a client that is replaced."""

from __future__ import annotations

import json

import pytest

from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients
from dynamic_kafka.observe.clients import ClientTotals, client_numbers
from dynamic_kafka.observe.series import CLIENTS
from dynamic_kafka.testing import MockCluster, wait_until


@pytest.mark.parametrize("name", ["consumer", "fetching_consumer", "record_producer"])
def test_the_statistics_of_a_client_have_all_numbers(name: str) -> None:
    """As this version of librdkafka gives them, of confluent-kafka's client and of the kernel's."""
    role = name.rpartition("_")[2]
    asked = ClientSettings({}, {"group.id": "g"} if role == "consumer" else {}, statistics_ms=20)
    with MockCluster() as cluster:
        clients = ClusterClients({"bootstrap.servers": cluster.bootstrap_servers}, **{role: asked})
        client = getattr(clients, name)

        def told() -> tuple[str, dict[str, float]] | None:
            if role == "producer":
                client.poll(0.05)
            clients.poll()
            found = client_numbers(text) if (text := clients.statistics.take()) else None
            return found if found and found[1]["responses_total"] else None

        found = wait_until(told, 10, "the statistics")
        assert clients.statistics.take() == ""
        clients.close()
    assert found is not None
    client_name, numbers = found
    assert role in client_name
    assert {*numbers, "round_trip_seconds"} == CLIENTS.keys()
    assert numbers.get("round_trip_seconds", 0.1) < 1
    assert numbers["received_bytes_total"] > 0


def test_the_totals_of_all_clients_are_added_up() -> None:
    """A new one counts from 0, and a task may take one that was used before."""
    totals = ClientTotals()
    numbers = [
        totals.take(_statistics(name, sent)) for name, sent in (("a", 5), ("a", 7), ("b", 2), ("b", 3), ("a", 8))
    ]
    assert [n["requests_total"] for n in numbers] == [5, 7, 9, 10, 11]
    assert [n["queued_messages"] for n in numbers] == [5, 7, 2, 3, 8]


def test_without_an_answer_there_is_no_round_trip() -> None:
    """0 would be the best one."""
    idle, busy = ({"rtt": {"avg": ms, "cnt": cnt}, "throttle": {"avg": 0}} for ms, cnt in ((0, 0), (2000, 3)))
    counts = dict.fromkeys(("txerrs", "req_timeouts", "connects", "disconnects"), 0)
    for brokers, expected in (([], None), ([idle], None), ([idle, busy], 0.002)):
        found = json.loads(_statistics("a", 1)) | {"brokers": {str(i): b | counts for i, b in enumerate(brokers)}}
        assert client_numbers(json.dumps(found))[1].get("round_trip_seconds") == expected


def test_the_totals_of_many_clients_are_kept() -> None:
    """Each task of an exactly-once sink has one of its own. One that goes on is not counted twice."""
    totals = ClientTotals()
    for i in range(200):
        totals.take(_statistics("kept", i + 1))
        numbers = totals.take(_statistics(f"client {i}", 2))
    assert numbers["requests_total"] == 600


def _statistics(name: str, sent: int) -> str:
    fields = dict.fromkeys(
        ("tx_bytes", "rx", "rx_bytes", "txmsgs", "rxmsgs", "txmsg_bytes", "rxmsg_bytes", "msg_size"), 0
    )
    return json.dumps({"name": name, "tx": sent, "msg_cnt": sent, **fields})
