"""What tests of several folders do to a broker: leave transactions open, look at what is committed, grant rights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from dynamic_kafka.kafka.transactions.client import PENDING, TransactionClient, TransactionState
from dynamic_kafka.sink.transactional_ids import belongs_to
from dynamic_kafka.testing import KafkaBroker, KafkaCluster, wait_until

SECURED_USERS = {
    "admin": "a-secret",
    "alice": "wonder-land",
    "reader": "r-secret",
    "writer": "w-secret",
    "clerk": "c-secret",
}
"""Users and passwords of the fixture `secured`; `admin` and `alice` may do everything, the others what is granted."""


def leave_open(broker: KafkaBroker | KafkaCluster, topic: str, transactional_id: str, **config: str) -> None:
    """Begin a transaction with one record in a child process, and kill that as soon as the record is acknowledged."""
    script = textwrap.dedent("""
        import json, sys
        from confluent_kafka import Producer

        config, topic = json.loads(sys.argv[1]), sys.argv[2]
        producer = Producer(config)
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, config["transactional.id"])
        assert producer.flush(20) == 0
        print("flushed", flush=True)
        sys.stdin.read()
    """)
    properties = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, "log_level": "3"}
    with subprocess.Popen(
        [sys.executable, "-c", script, json.dumps({**properties, **config}), topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"flushed\n"
        os.kill(child.pid, signal.SIGKILL)


@contextmanager
def repeating(*writes: Callable[[], object]) -> Iterator[None]:
    """Make each of these calls every now and then, in a thread of its own, until the block ends."""
    done = threading.Event()

    def run(write: Callable[[], object]) -> None:
        while not done.wait(0.2):
            write()

    threads = [threading.Thread(target=run, args=(write,)) for write in writes]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def to_the_end(servers: str, partitions: Iterable[TopicPartition], **config: object) -> Iterator[Message]:
    """The records that read_committed shows, or as configured, from the partitions' offsets up to the ends of the logs."""
    partitions = list(partitions)
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "t",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # which the end would wait for
        "log_level": 3,
    }
    consumer = Consumer(settings | config)
    left: set[tuple[str | None, int | None]] = {(tp.topic, tp.partition) for tp in partitions}
    try:
        consumer.assign(partitions)
        while left:
            if (message := consumer.poll(30)) is None:
                raise TimeoutError(f"no end of {left}")
            if (error := message.error()) is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # other errors pass, such as a lost connection
                left.discard((message.topic(), message.partition()))
    finally:
        consumer.close()


def committed(broker: KafkaBroker | KafkaCluster, topic: str, partitions: int = 1) -> list[str]:
    """The values that read_committed shows, up to the first open transaction; waits for those that are ending."""
    wait_until(lambda: not ending(broker), 20, "the ends of transactions")
    parts = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    return [(message.value() or b"").decode() for message in to_the_end(broker.bootstrap_servers, parts)]


def bounds(broker: KafkaBroker, topic: str, partition: int = 0) -> tuple[int, int]:
    """The first offset that a partition holds, and its end."""
    with closing(
        Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "log_level": 3})
    ) as consumer:
        found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    return found


def delete_records(broker: KafkaBroker, topic: str, *partitions: int, before: int) -> None:
    """Delete the records of partitions before an offset."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, partition, before) for partition in partitions]).values():
        done.result(30)


def transactions(broker: KafkaBroker | KafkaCluster, prefix: str) -> dict[str, TransactionState]:
    """The transactional ids of a prefix of our sink that a cluster knows, with their states."""
    with closing(TransactionClient("c", broker.client_properties(), timeout_ms=20_000)) as client:
        return {name: state for name, state in client.list_all().items() if belongs_to(prefix, name)}


def open_transactions(broker: KafkaBroker | KafkaCluster, prefix: str) -> list[str]:
    """Those of them with a transaction that is open, or is ending."""
    return sorted(name for name, state in transactions(broker, prefix).items() if state in PENDING)


def ending(broker: KafkaBroker | KafkaCluster) -> list[str]:
    """All transactions whose end is decided, and not all of their partitions know of it yet."""
    with closing(TransactionClient("c", broker.client_properties(), timeout_ms=20_000)) as client:
        return [
            name for name, state in client.list_all().items() if state in PENDING and state != TransactionState.ONGOING
        ]


def grant(
    broker: KafkaBroker,
    user: str,
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    """Allow operations on a resource of `secured` to one of its users."""
    admin = _admin(broker)
    rules = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for future in admin.create_acls(rules).values():
        future.result(15)


def revoke_all(broker: KafkaBroker, user: str) -> None:
    """Take back all rights that were granted to a user of the fixture `secured`."""
    filtered: Any = AclBindingFilter  # None is any name, and any host
    everything = filtered(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = _admin(broker)
    for done in admin.delete_acls([everything]).values():
        done.result(15)


def _admin(broker: KafkaBroker) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": SECURED_USERS["admin"],
        }
    )
