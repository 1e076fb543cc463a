"""A Kafka cluster of several brokers: each one can be stopped, killed, restarted and paused by itself."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import PartitionMetadata

from dynamic_kafka.testing.broker import KafkaBroker, admin_client
from dynamic_kafka.testing.configuration import free_ports, nodes
from dynamic_kafka.testing.helpers import wait_until

__all__ = ["KafkaCluster"]

_REGISTERED_S = 60
_IN_SYNC_S = 90
_ASK_S = 5


class KafkaCluster:
    """A Kafka cluster of several brokers, each a child process that never outlives this one.

    Each broker is a controller too, so more than half of them must be up. A new topic has three replicas (fewer if there are
    fewer brokers), of which two must be in sync for `acks=all`; so do Kafka's own topics. It starts in about 8 s.

    The brokers are in `brokers`: stop, kill, start, restart, pause and resume them there.

    Args:
        brokers: The number of brokers; three of them survive the loss of one.
        properties: The properties of each broker. They win over the defaults, which suit small and quick brokers.
        version: As for `KafkaBroker`.

    Attributes:
        brokers: The brokers, in the order of their node ids, which begin at 1.

    Examples:
        >>> with KafkaCluster() as cluster:  # doctest: +SKIP
        ...     cluster.create_topic("orders", partitions=4)
        ...     cluster.leader("orders").kill()
    """

    def __init__(
        self, brokers: int = 3, *, properties: Mapping[str, str] | None = None, version: str | None = None
    ) -> None:
        replicas, in_sync = str(min(brokers, 3)), str(min(brokers, 2))
        replicated = {
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": str(2 * brokers),  # so that each broker is a coordinator
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }
        self.brokers = [
            KafkaBroker(properties=replicated | dict(properties or {}), version=version, node=node)
            for node in nodes(brokers, free_ports())
        ]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers for clients; restarts keep them."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def client_properties(self) -> dict[str, str]:
        """Return the properties that a client needs to connect, by Java's names."""
        return {"bootstrap.servers": self.bootstrap_servers}

    def start(self) -> Self:
        """Start the brokers that are not running, all at once, and wait until each knows all the others.

        Raises:
            BrokerError: As `KafkaBroker.start`.
        """
        try:
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(KafkaBroker.start, self.brokers))
            wait_until(self._is_complete, _REGISTERED_S, "all brokers in the answers of each")
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop all brokers for good, and remove their data."""
        for broker in self.brokers:
            broker.close()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until each partition has a leader and all its replicas; see `KafkaBroker`."""
        next(broker for broker in self.brokers if broker.is_running).create_topic(name, partitions, config)
        self.wait_until_in_sync()

    def leader(self, topic: str, partition: int = 0) -> KafkaBroker:
        """Return the broker that leads a partition; wait for one."""

        def found() -> int:
            running = ",".join(broker.internal_address for broker in self.brokers if broker.is_running)
            return next((p.leader for p in _partitions(running, topic) or [] if p.id == partition), 0)

        return self.brokers[wait_until(lambda: max(found(), 0), _IN_SYNC_S, f"a leader of topic '{topic}'") - 1]

    def wait_until_in_sync(self) -> None:
        """Wait until all brokers run, and each partition has all its replicas in sync.

        Do so before the next broker is stopped: a broker that is killed as the last one in sync may not lead again.

        Raises:
            TimeoutError: If they are not within 90 s.
        """
        # All brokers are asked: right after a restart, another one may not know yet that a replica is behind.
        wait_until(lambda: all(map(_is_in_sync, self.brokers)), _IN_SYNC_S, "all replicas in sync")

    def rolling_restart(self) -> None:
        """Restart one broker after the other, each in order (SIGTERM) and after all replicas are in sync."""
        for broker in self.brokers:
            self.wait_until_in_sync()
            broker.restart()

    def _is_complete(self) -> bool:
        known = [admin_client(b.internal_address).list_topics(timeout=_ASK_S).brokers for b in self.brokers]
        return all(len(found) == len(self.brokers) for found in known)


def _is_in_sync(broker: KafkaBroker) -> bool:
    found = _partitions(broker.internal_address) if broker.is_running else None
    return found is not None and all(len(p.isrs) == len(p.replicas) and p.leader > 0 for p in found)


def _partitions(address: str, topic: str | None = None) -> list[PartitionMetadata] | None:
    """Return the partitions of a topic, or of all topics; None while no broker answers."""
    try:
        topics = admin_client(address).list_topics(*filter(None, [topic]), timeout=_ASK_S).topics.values()
    except KafkaException:
        return None
    return [partition for found in topics for partition in found.partitions.values()]
