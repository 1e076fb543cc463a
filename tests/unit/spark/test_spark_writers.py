"""The end of a batch on Spark's driver, without Spark: what is reported, and clusters that do not answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.errors import ClusterUnavailableError, TransactionError
from dynamic_kafka.kafka.transactions.client import TransactionDescription, TransactionState
from dynamic_kafka.sink.committer import Committer
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.protocol import ListOpen
from dynamic_kafka.sink.report import TaskReport
from dynamic_kafka.spark.writers import KafkaBatchWriter, KafkaCommitMessage

OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
LEFT = Transaction("b", "p.dk-0123456789ab-0", 7, 3)


@pytest.mark.parametrize("guarantee", ["none", "at-least-once", "exactly-once"])
def test_a_task_without_a_message_is_not_committed(guarantee: str) -> None:
    """Its rows are lost otherwise, whatever the reason is that Spark does not know it."""
    more = {"sink.delivery-guarantee": guarantee, "sink.transactional-id-prefix": "p"}
    writer = KafkaBatchWriter(configure_sink(OPTIONS | more), None, None)
    with pytest.raises(TransactionError, match="reports only 1 of its 2 tasks as finished"):
        writer.commit([KafkaCommitMessage(TaskReport()), None])


def committer(down: str, wait: Callable[[], Any] = lambda: None) -> Any:
    """A committer of the clusters `a` and `b`, of which one is down; `b` has an open transaction, and `c` is inactive."""

    class Client:
        def __init__(self, name: str) -> None:
            self.name = name

        def _check(self) -> None:
            if self.name == down:
                raise ClusterUnavailableError(f"Cluster '{down}' is down", cluster_id=down)

        def list_open(self) -> list[str]:
            wait()
            self._check()
            return [LEFT.transactional_id] if self.name == "b" else []

        def describe(self, _: Any) -> Any:
            found = TransactionDescription(TransactionState.ONGOING, 7, 3, 60_000, 0)
            return {LEFT.transactional_id: found}

        def end_all(self, *_: Any, **__: Any) -> None:
            self._check()

        def close(self) -> None:
            """Of those that are asked once."""

    made: Any = object.__new__(Committer)
    made._settings, made._destinations, made._properties = SimpleNamespace(prefix="p"), ["a", "b"], {"a": {}, "b": {}}
    made._head = SimpleNamespace(transactions=())
    made._client, made._others = Client, {}
    return made


def test_a_cluster_that_does_not_answer_keeps_its_open_transactions(caplog: pytest.LogCaptureFixture) -> None:
    """The batch may have no rows for it: a warning says that its readers may have to wait, and the others are looked at."""
    assert committer(down="a")._do(ListOpen()) == (LEFT,)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Open transactions cannot be listed, and readers may have to wait for their end: Cluster 'a' is down" in (
        record.getMessage()
    )


def test_clusters_are_asked_for_open_transactions_at_once() -> None:
    """One that is far away or down does not let the others wait: each is asked before any of them has answered."""
    both = threading.Barrier(2)
    assert committer("", lambda: both.wait(timeout=30))._do(ListOpen()) == (LEFT,)


def test_a_cluster_that_was_left_is_asked_once_for_open_transactions() -> None:
    """The batch before may have written to it. Later batches do not wait for one that may be dead for good."""
    made = committer(down="")
    made._destinations, made._others = ["a"], {"b": made._client("b")}
    assert made._do(ListOpen()) == (LEFT,)
    assert made._do(ListOpen()) == ()


def test_aborts_that_fail_do_not_fail_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    """It may be published already; what is left open ends by its time-out, or with the next batch."""
    committer(down="b")._abort((LEFT,))
    assert "Transactions stay open until the next batch or until they time out (p.dk-0123456789ab-0)" in caplog.text
    with pytest.raises(ClusterUnavailableError):
        committer(down="b")._end((LEFT,), commit=True)
