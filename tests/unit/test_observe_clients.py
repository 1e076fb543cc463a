"""librdkafka's own numbers: what its statistics become, and what becomes of the totals of a client that is replaced."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, Producer

from dynamic_kafka.observe.clients import ClientTotals, client_numbers
from dynamic_kafka.observe.series import CLIENTS
from dynamic_kafka.testing import MockCluster


@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_the_statistics_of_a_client_have_all_numbers(role: str) -> None:
    """As this version of librdkafka gives them."""
    texts: list[str] = []
    with MockCluster() as cluster:
        config = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "statistics.interval.ms": 20,
            "stats_cb": texts.append,
        }
        client = Consumer({**config, "group.id": "g"}) if role == "consumer" else Producer(config)
        deadline = time.monotonic() + 10
        while not texts or not client_numbers(texts[-1])[1]["responses_total"]:
            client.poll(0.05)
            assert time.monotonic() < deadline
        if isinstance(client, Consumer):
            client.close()
    name, numbers = client_numbers(texts[-1])
    assert role in name
    assert numbers.keys() == CLIENTS.keys()
    assert numbers["round_trip_seconds"] < 1
    assert numbers["received_bytes_total"] > 0


def test_the_totals_of_all_clients_are_added_up() -> None:
    """A new one counts from 0, and a task may take one that was used before."""
    totals = ClientTotals()
    numbers = [
        totals.take(_statistics(name, sent)) for name, sent in (("a", 5), ("a", 7), ("b", 2), ("b", 3), ("a", 8))
    ]
    assert [n["requests_total"] for n in numbers] == [5, 7, 9, 10, 11]
    assert [n["queued_messages"] for n in numbers] == [5, 7, 2, 3, 8]


def _statistics(name: str, sent: int) -> str:
    fields = dict.fromkeys(
        ("tx_bytes", "rx", "rx_bytes", "txmsgs", "rxmsgs", "txmsg_bytes", "rxmsg_bytes", "msg_size"), 0
    )
    return json.dumps({"name": name, "tx": sent, "msg_cnt": sent, **fields})
