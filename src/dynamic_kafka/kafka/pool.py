"""Consumers kept in a Spark worker between tasks, because a connection costs more than a small range.

A worker process is reused for any task, without affinity, and is gone after a minute without work. So the pool is a cache
and never the truth: it is keyed by cluster and properties, holds connections and never positions, and is small.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient

from dynamic_kafka.kafka.config.properties import client_config
from dynamic_kafka.kafka.config.secrets import resolve
from dynamic_kafka.kafka.idle import park, unpark
from dynamic_kafka.kafka.logs import CLIENT_LOG

__all__ = ["PooledClients", "acquire", "release"]

_CAPACITY = 16
_pool: OrderedDict[tuple[str, frozenset[tuple[str, str]]], PooledClients] = OrderedDict()

# Ranges are known and mostly small: answer an empty fetch soon (it is what shows the end of a range whose tail holds no
# record), and look again soon after a full queue. The queue bounds a task's memory.
_TUNING = {
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "10",
    "queued.min.messages": "100000",
    "queued.max.messages.kbytes": "32768",
}
_FORCED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
}


@dataclass
class PooledClients:
    """The clients of one cluster in this worker; `last_error` is what the client noticed in the background."""

    key: tuple[str, frozenset[tuple[str, str]]] = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    group_id: str
    last_error: str = ""

    @cached_property
    def consumer(self) -> Consumer:
        """Reads; its assignment is empty between tasks."""
        config = client_config(self.properties, role="consumer")
        config = {**_TUNING, **config, **_FORCED, "group.id": self.group_id}
        options: dict[str, Any] = {**config, "error_cb": self._note_error, "logger": CLIENT_LOG}
        return Consumer(options)

    @cached_property
    def admin(self) -> AdminClient:
        """Looks up topic ids."""
        options: dict[str, Any] = {**client_config(self.properties, role="admin"), "logger": CLIENT_LOG}
        return AdminClient(options)

    def serve(self) -> None:
        """See `idle`; a consumer without an assignment has no records that this could take."""
        for name in ("consumer", "admin"):
            if name in self.__dict__:
                self.__dict__[name].poll(0)

    def close(self) -> None:
        """Let go of the clients; never waits for a broker."""
        unpark(self)
        consumer = self.__dict__.pop("consumer", None)
        self.__dict__.pop("admin", None)
        if consumer is not None:
            consumer.close()

    def _note_error(self, error: KafkaError) -> None:
        self.last_error = error.str()


def acquire(cluster: str, properties: Mapping[str, str], group_id: str) -> PooledClients:
    """Take the cluster's clients out of the pool, or make new ones (they connect when first used).

    References to secrets are looked up each time: a secret that was changed makes new clients.
    """
    key = (cluster, frozenset({**resolve(properties), "group.id": group_id}.items()))
    clients = _pool.pop(key, None)
    if clients is None:
        return PooledClients(key, dict(properties), group_id)
    unpark(clients)
    clients.last_error = ""
    return clients


def release(clients: PooledClients, *, healthy: bool) -> None:
    """Give clients back; unhealthy ones are closed, and so is the one unused for longest when the pool is full."""
    if not healthy:
        clients.close()
        return
    clients.consumer.unassign()
    _pool[clients.key] = clients
    park(clients)
    if len(_pool) > _CAPACITY:
        _pool.popitem(last=False)[1].close()
