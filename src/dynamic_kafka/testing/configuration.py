"""The server.properties of a test broker: small and quick, with security on the client listener only."""

from __future__ import annotations

import random
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "HOST",
    "Node",
    "as_properties",
    "broker_configuration",
    "free_ports",
    "is_free",
    "kafka_uuid",
    "nodes",
    "plain_login_module",
]

HOST = "127.0.0.1"  # not localhost: some clients then try ::1 first, and log an error
# Below the ports that systems use for outgoing connections: none of those can take a broker's port while it is down.
_PORTS = range(20_000, 32_000)
_handed_out: set[int] = set()

_SMALL_BROKER = {
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker's session must end before it may register again: 9 s by default, most of a restart.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "metadata.max.idle.interval.ms": "5000",  # with 500, an idle broker uses a twenty-fifth of a core
    # Retention, compaction and deletion within seconds, not minutes.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "4194304",  # 128 MB by default: half of the heap
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@dataclass(frozen=True)
class Node:
    """A broker's place in its cluster.

    Args:
        node_id: Kafka's `node.id`.
        client: The port of its listener CLIENT.
        internal: The port of its listener INTERNAL.
        controller: The port of its listener CONTROLLER.
        voters: Kafka's `controller.quorum.voters`.
        cluster_id: Kafka's `cluster.id`, for folders that no broker used before.
    """

    node_id: int
    client: int
    internal: int
    controller: int
    voters: str
    cluster_id: str


def nodes(count: int, ports: Iterator[int], client: int | None = None) -> list[Node]:
    """Return the nodes of a cluster, numbered from 1; `client` is the first one's port for clients if that is given."""
    taken = [(client or next(ports), next(ports), next(ports)) for client in [client, *[None] * (count - 1)]]
    cluster_id = kafka_uuid()
    voters = ",".join(f"{i}@{HOST}:{controller}" for i, (_, _, controller) in enumerate(taken, 1))
    return [Node(i, *three, voters, cluster_id) for i, three in enumerate(taken, 1)]


def kafka_uuid() -> str:
    """Return a new id in Kafka's form, which may begin with a dash."""
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def broker_configuration(data: Path, node: Node, *, sasl_plain: Mapping[str, str]) -> dict[str, str]:
    """Return the broker's properties, without the user's own.

    `data` is the folder of its data. `sasl_plain` are users and passwords for CLIENT; if it is empty, CLIENT is in plain
    text without a login, as INTERNAL always is.
    """
    client_security = "SASL_PLAINTEXT" if sasl_plain else "PLAINTEXT"
    configuration = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "log.dirs": str(data.absolute()),
        "listeners": f"CLIENT://{HOST}:{node.client},INTERNAL://{HOST}:{node.internal},"
        f"CONTROLLER://{HOST}:{node.controller}",
        "listener.security.protocol.map": f"CLIENT:{client_security},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": node.voters,
        **_SMALL_BROKER,
    }
    if sasl_plain:
        users = {f"user_{user}": password for user, password in sasl_plain.items()}
        configuration["listener.name.client.sasl.enabled.mechanisms"] = "PLAIN"
        configuration["listener.name.client.plain.sasl.jaas.config"] = plain_login_module(users)
    return configuration


def plain_login_module(options: Mapping[str, str]) -> str:
    """Return the JAAS text for the SASL mechanism PLAIN with these options. It contains the passwords."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    pairs = " ".join(f"{quoted(name)}={quoted(value)}" for name, value in options.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {pairs};"


def as_properties(configuration: Mapping[str, str]) -> str:
    r"""Return the text of a Java properties file: backslashes doubled, line ends and non-ASCII as UTF-16 \u escapes."""

    def escaped(text: str) -> str:
        units = text.replace("\\", "\\\\").encode("utf-16-be")
        codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
        return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)

    return "".join(f"{name}={escaped(value)}\n" for name, value in configuration.items())


def free_ports() -> Iterator[int]:
    """Yield ports on which no process listens, in random order, each port once in this process."""
    # Not the generator of `random` itself: two test runs with the same seed would choose the same ports.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        # A port that was handed out may have no listener yet, or none for the moment.
        if port not in _handed_out and is_free(port):
            _handed_out.add(port)
            yield port


def is_free(port: int) -> bool:
    """Return whether a broker could listen on the port."""
    with socket.socket() as probe:
        # As Kafka does: a port whose last connections are still winding down is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
