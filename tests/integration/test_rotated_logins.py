"""A password that is replaced under a running sink: on the cluster first, or in the file of the reference first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dynamic_kafka.kafka import logins
from dynamic_kafka.kafka.transactions.client import TransactionClient
from dynamic_kafka.sink import transactional_producers
from dynamic_kafka.sink.log.commit_log import CommitLog
from dynamic_kafka.sink.log.records import Pointer
from dynamic_kafka.sink.producers import ClusterProducer
from dynamic_kafka.sink.settings import Destination, WriteTask
from dynamic_kafka.sink.transactional_producers import TransactionalProducers
from dynamic_kafka.testing import KafkaBroker
from tests.security.tries import sink

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TIMEOUT_MS = 30_000
LATE_S = 1.5


class Rotated:
    """A broker with one user, and the properties of a client that reads the password from a file."""

    def __init__(self, broker: KafkaBroker, file: Path) -> None:
        self.broker, self.file, self._number = broker, file, 1
        broker.create_topic("out")
        self.file.write_text("secret-1")
        self.properties = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "app",
            "sasl.password": f"${{file:{file}}}",
        }

    def rotate(self) -> str:
        """Restart the broker with a new password, and return that; the file keeps the old one."""
        self._number += 1
        self.broker.restart(sasl_plain={"app": f"secret-{self._number}"})
        return f"secret-{self._number}"

    def rotate_and_write_late(self) -> threading.Thread:
        """As `rotate`, and write the new password to the file in 1.5 s."""
        timer = threading.Timer(LATE_S, self.file.write_text, [self.rotate()])
        timer.start()
        return timer


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotated]:
    """One for all tests."""
    with KafkaBroker(sasl_plain={"app": "secret-1"}) as broker:
        yield Rotated(broker, tmp_path_factory.mktemp("secrets") / "password")


def log_of(rotated: Rotated) -> CommitLog:
    """A commit log, whose topic exists."""
    log = CommitLog("c", rotated.properties, "log", timeout_ms=TIMEOUT_MS)
    if not log.topic.exists():
        log.topic.create(1)
    return log


def ask_log(rotated: Rotated) -> tuple[Callable[[], object], Callable[[], None]]:
    """Read a commit log."""
    log = log_of(rotated)
    return log.read, log.close


def append_to_log(rotated: Rotated) -> tuple[Callable[[], object], Callable[[], None]]:
    """Append to a commit log."""
    log = log_of(rotated)
    return lambda: log.append(Pointer("cluster-id,log", "c")), log.close


def read_known_part_of_log(rotated: Rotated) -> tuple[Callable[[], object], Callable[[], None]]:
    """Read a commit log whose end was reported before."""
    log = log_of(rotated)
    log.append(Pointer("cluster-id,log", "c"))
    bounds = log._bounds()
    log._bounds = lambda: bounds  # type: ignore[method-assign]

    def read() -> None:
        log._next = -1
        assert log.read() is not None
        assert log.pointer is not None

    return read, log.close


def ask_transactions(rotated: Rotated) -> tuple[Callable[[], object], Callable[[], None]]:
    """List transactions."""
    client = TransactionClient("c", rotated.properties, timeout_ms=TIMEOUT_MS)
    return client.list_open, client.close


def ask_topic(rotated: Rotated) -> tuple[Callable[[], object], Callable[[], None]]:
    """Look a topic up, as a task does before its first record."""
    producer = ClusterProducer("c", rotated.properties)
    return lambda: producer.partitions("out", at_least=2), producer.close  # more than there are, so it asks


def begin_transaction(rotated: Rotated) -> tuple[Callable[[], object], Callable[[], None]]:
    """Begin and abort a transaction with a new producer."""
    task = WriteTask({"c": Destination(rotated.properties)}, sink("exactly-once"), "chain", 1)

    def begin() -> None:
        with TransactionalProducers(task) as producers:
            producers.producer("c")

    return begin, lambda: None


def goes_on(rotated: Rotated, ask: Callable[[], object], close: Callable[[], None]) -> None:
    """Ask, replace the password on the cluster and late in the file, and ask again."""
    try:
        ask()
        timer = rotated.rotate_and_write_late()
        ask()
        timer.join()
    finally:
        close()


@pytest.mark.parametrize("questions", [ask_log, append_to_log, read_known_part_of_log, ask_transactions])
def test_the_file_is_late(rotated: Rotated, questions: Callable[[Rotated], Any]) -> None:
    """A driver that was let in before waits for the new password, and goes on."""
    goes_on(rotated, *questions(rotated))


def test_the_file_is_late_for_a_task(rotated: Rotated) -> None:
    """The same before its first record."""
    goes_on(rotated, *ask_topic(rotated))


@pytest.mark.parametrize("connect_s", [5.0, 0.001], ids=["a broker answers", "no broker answers yet"])
def test_the_file_is_late_for_a_transaction(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch, connect_s: float
) -> None:
    """Whether the first connection meets the refusal, or `init_transactions`, as while the broker starts."""
    monkeypatch.setattr(transactional_producers, "_CONNECT_S", connect_s)
    goes_on(rotated, *begin_transaction(rotated))


def test_the_cluster_is_late(rotated: Rotated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same password is tried again, after a rest."""
    monkeypatch.setattr(logins, "_REST_S", 1.0)
    ask, close = ask_log(rotated)
    try:
        ask()
        old = rotated.file.read_text()
        rotated.rotate()
        timer = threading.Timer(LATE_S, rotated.broker.restart, kwargs={"sasl_plain": {"app": old}})
        timer.start()
        ask()
        timer.join()
    finally:
        close()
