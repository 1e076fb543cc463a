"""The end of a batch on Spark's driver, without Spark."""

from __future__ import annotations

import pytest

from dynamic_kafka.errors import TransactionError
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.report import TaskReport
from dynamic_kafka.spark.writers import KafkaBatchWriter, KafkaCommitMessage

OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


@pytest.mark.parametrize("guarantee", ["none", "at-least-once", "exactly-once"])
def test_a_task_without_a_message_is_not_committed(guarantee: str) -> None:
    """Its rows are lost otherwise, whatever the reason is that Spark does not know it."""
    more = {"sink.delivery-guarantee": guarantee, "sink.transactional-id-prefix": "p"}
    writer = KafkaBatchWriter(configure_sink(OPTIONS | more), None, None)
    with pytest.raises(TransactionError, match="reports only 1 of its 2 tasks as finished"):
        writer.commit([KafkaCommitMessage(TaskReport()), None])
