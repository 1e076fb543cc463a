"""From librdkafka's statistics to the numbers of `series.CLIENTS`. Pure."""

from __future__ import annotations

import json

_MOST_CLIENTS = 64

__all__ = ["ClientTotals", "client_numbers"]


def client_numbers(text: str) -> tuple[str, dict[str, float]]:
    """Return the name of a client and its numbers, from the JSON text of its statistics.

    There is no round trip if no broker has answered since the last statistics.
    """
    found = json.loads(text)
    brokers = list(found.get("brokers", {}).values())
    partitions = [p for topic in found.get("topics", {}).values() for p in topic.get("partitions", {}).values()]
    round_trips_us = [b["rtt"]["avg"] for b in brokers if b["rtt"]["cnt"]]
    return found["name"], {
        "requests_total": found["tx"],
        "request_errors_total": sum(b["txerrs"] for b in brokers),
        "request_timeouts_total": sum(b["req_timeouts"] for b in brokers),
        "responses_total": found["rx"],
        "sent_bytes_total": found["tx_bytes"],
        "received_bytes_total": found["rx_bytes"],
        "messages_total": found["txmsgs"] + found["rxmsgs"],
        "message_bytes_total": found["txmsg_bytes"] + found["rxmsg_bytes"],
        "connects_total": sum(b["connects"] for b in brokers),
        "disconnects_total": sum(b["disconnects"] for b in brokers),
        "queued_messages": found["msg_cnt"] + sum(p["fetchq_cnt"] for p in partitions),
        "queued_bytes": found["msg_size"] + sum(p["fetchq_size"] for p in partitions),
        "throttle_seconds": max((b["throttle"]["avg"] for b in brokers), default=0) / 1e3,
    } | ({"round_trip_seconds": max(round_trips_us) / 1e6} if round_trips_us else {})


class ClientTotals:
    """The numbers of the clients that a process has had for a cluster. Its totals never fall."""

    def __init__(self) -> None:
        self._totals: dict[str, dict[str, float]] = {}
        self._before: dict[str, float] = {}

    def take(self, text: str) -> dict[str, float]:
        """Take the statistics of the client that was used last, and return its numbers with the totals of all."""
        client, numbers = client_numbers(text)
        self._totals.pop(client, None)  # the one that was used last comes last
        self._totals[client] = {name: value for name, value in numbers.items() if name.endswith("_total")}
        if len(self._totals) > _MOST_CLIENTS:  # the first one was closed long ago
            for name, value in self._totals.pop(next(iter(self._totals))).items():
                self._before[name] = self._before.get(name, 0) + value
        for name in self._totals[client]:
            numbers[name] = self._before.get(name, 0) + sum(totals[name] for totals in self._totals.values())
        return numbers
