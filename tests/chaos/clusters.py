"""The Kafka clusters of the campaign: brokers whose clients all come through a proxy, and what an operator does to them.

`a` has three brokers, which replicate everything. `b` has one; it wants a password, and has a small disk of its own
where that is permitted. `c` has one of an older line of Kafka, which speaks TLS. The campaign itself comes past the
proxies, by the listener INTERNAL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from dynamic_kafka.testing import KafkaBroker, KafkaCluster, wait_until
from dynamic_kafka.testing.broker import admin_client
from dynamic_kafka.testing.configuration import HOST, Node, free_ports, nodes
from tests.chaos.proxy import Condition, Link

__all__ = ["OLDER_KAFKA", "Cluster", "make_clusters", "mounted"]

OLDER_KAFKA = "3.9.1"
STORES = Path(__file__).parents[1] / "stores"
_ADMIN_S = 20
_READY_S = 60
_STORE_PASSWORD = "test1234"
_BROKER = {
    "message.max.bytes": "16000000",
    "replica.fetch.max.bytes": "16000000",
    "socket.request.max.bytes": "40000000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "log.index.size.max.bytes": "65536",  # preallocated for each segment, which a small disk would feel
}


class Cluster(KafkaCluster):
    """One Kafka cluster behind proxies.

    Args:
        name: Its name in the metadata.
        brokers: Its brokers, not started yet; their nodes say where they listen.
        properties: What clients need besides the addresses, by Java's names.
    """

    def __init__(self, name: str, brokers: Sequence[KafkaBroker], properties: Mapping[str, str]) -> None:
        # Without KafkaCluster's own brokers, which are all alike.
        self.name = name
        self.brokers = list(brokers)
        self.properties = dict(properties)
        ports = free_ports()
        self.links: list[Link] = []
        for broker in self.brokers:
            node = _node(broker)
            link = Link(next(ports), (HOST, node.client))
            broker._properties["advertised.listeners"] = (
                f"CLIENT://{HOST}:{link.port},INTERNAL://{HOST}:{node.internal}"
            )
            self.links.append(link)

    @property
    def servers(self) -> str:
        """The addresses for clients: those of the proxies."""
        return ",".join(f"{HOST}:{link.port}" for link in self.links)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for the campaign itself."""
        return ",".join(broker.internal_address for broker in self.brokers)

    def start(self) -> Self:
        """Start what does not run, and wait until it answers and all replicas are in sync."""
        for link in self.links:
            link.open()
        super().start()
        self.wait_until_in_sync()
        return self

    def close(self) -> None:
        """Stop everything for good."""
        for link in self.links:
            link.close()
        for broker in self.brokers:
            broker.resume()
        super().close()

    # --- links ---

    def condition(self, condition: Condition) -> None:
        """Set the condition of all links."""
        for link in self.links:
            link.set(condition)

    def cut(self) -> None:
        """Cut all links."""
        for link in self.links:
            link.cut()

    def half_open(self) -> None:
        """Let the connections of now be dead without a word."""
        for link in self.links:
            link.half_open()

    def restore(self) -> None:
        """Make all links whole."""
        for link in self.links:
            link.restore()

    # --- topics ---

    def admin(self) -> AdminClient:
        """A new client: one that is kept would log errors whenever a broker is down. Its requests end with it."""
        return admin_client(self.bootstrap_servers)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.brokers[0].delete_topic(name)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that have a leader and all their replicas."""
        found = self.admin().list_topics(topic, timeout=_ADMIN_S).topics[topic].partitions
        return [p for p, state in found.items() if state.leader >= 0 and len(state.isrs) == len(state.replicas)]

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions."""
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(_ADMIN_S)
        wait_until(lambda: len(self.partitions(topic)) == total, _READY_S, f"partitions of '{topic}'")

    def delete_records(self, topic: str) -> None:
        """Delete all records that are in a topic now, as its retention would."""
        at = [TopicPartition(topic, p, -1) for p in self.partitions(topic)]
        admin = self.admin()
        for future in admin.delete_records(at).values():
            future.result(_ADMIN_S)

    def configure_topic(self, topic: str, name: str, value: str) -> None:
        """Set a topic's configuration."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(_ADMIN_S)

    def elect_preferred_leaders(self) -> None:
        """Let each partition be led by the first of its replicas."""
        admin = self.admin()
        admin.elect_leaders(ElectionType.PREFERRED, None).result(_ADMIN_S)


def make_clusters(folder: Path, names: str = "abc") -> dict[str, Cluster]:
    """Make some of the clusters `a`, `b` and `c`, and start them.

    Args:
        folder: For the brokers' data, and the secrets of the clients.
        names: Which ones, a letter each.
    """
    makers = {"a": _three_brokers, "b": _with_password, "c": _older_with_tls}
    found = {name: makers[name](folder) for name in names}
    with ThreadPoolExecutor(len(found)) as pool:
        list(pool.map(Cluster.start, found.values()))
    return found


def _three_brokers(_: Path) -> Cluster:
    return Cluster("a", KafkaCluster(properties=_BROKER).brokers, {})


def _with_password(folder: Path) -> Cluster:
    (node,) = nodes(1, free_ports())
    (folder / "password").write_text("first-secret")
    log_dir = folder / "b"
    log_dir.mkdir()
    mounted(log_dir, megabytes=300)
    broker = KafkaBroker(node=node, properties=_BROKER, log_dir=log_dir, sasl_plain={"app": "first-secret"})
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": f"${{file:{folder / 'password'}}}",
    }
    return Cluster("b", [broker], login)


def _older_with_tls(folder: Path) -> Cluster:
    (node,) = nodes(1, free_ports())
    store, trust = folder / "c.p12", folder / "c.pem"
    shutil.copy(STORES / "broker.p12", store)
    shutil.copy(STORES / "broker.pem", trust)
    tls = {
        "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.ssl.keystore.location": str(store),
        "listener.name.client.ssl.keystore.type": "PKCS12",
        "listener.name.client.ssl.keystore.password": _STORE_PASSWORD,
        "listener.name.client.ssl.key.password": _STORE_PASSWORD,
    }
    broker = KafkaBroker(node=node, properties=_BROKER | tls, version=OLDER_KAFKA)
    client = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
    return Cluster("c", [broker], client)


def mounted(folder: Path, megabytes: int) -> bool:
    """Mount a small disk in memory on a folder, if that is permitted; `unmount` ends it."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    """Unmount what `mounted` has mounted."""
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


def _node(broker: KafkaBroker) -> Node:
    assert broker._node is not None
    return broker._node
