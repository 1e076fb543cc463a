"""Writing through Spark: the writers that `format("dynamic-kafka")` gives, and what their tasks send back.

Spark makes a data source and its writer in the process that plans a batch, and pickles the writer for the tasks. For a
stream it then makes another writer, in a process that only commits, from the pickled data source; what that one knows
comes with the tasks' messages.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.sink.protocol import Claim, Identity, Transaction
from dynamic_kafka.sink.report import TaskReport
from dynamic_kafka.sink.settings import SinkSettings, WriteTask
from dynamic_kafka.spark.handover import acknowledge_at_once

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaBatchWriter", "KafkaCommitMessage", "KafkaStreamWriter", "batch_writer", "stream_writer"]

_log = logging.getLogger(__name__)


@dataclass
class KafkaCommitMessage(WriterCommitMessage):
    """What a task tells the driver.

    Args:
        report: How much it wrote, and how long that took.
        identity: The batch, for exactly-once; None for a batch write without an identity of its own.
        claim: Under which it was written, for exactly-once.
        transactions: What it has prepared.
    """

    report: TaskReport
    identity: Identity | None = None
    claim: Claim | None = None
    transactions: tuple[Transaction, ...] = ()


class _Writer:
    """What both writers do: a task in `write`, and the end of the batch on the driver."""

    def __init__(self, settings: SinkSettings, task: WriteTask | None, claim: Claim | None) -> None:
        self._settings, self._task, self._claim = settings, task, claim

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task; Spark calls it on an executor."""
        from dynamic_kafka.sink.transactional import TransactionalProducers
        from dynamic_kafka.sink.writer import PooledProducers, flush, write

        acknowledge_at_once()
        context = TaskContext.get()
        assert self._task is not None
        assert context is not None
        number = context.partitionId()
        if self._settings.guarantee != "exactly-once":
            with PooledProducers(self._task) as producers:
                written = write(iterator, self._task, producers, task_number=number, tasks=0)
                waits = self._settings.guarantee == "at-least-once"
                return KafkaCommitMessage(flush(written) if waits else written.report)
        assert self._claim is not None
        identity = self._identity(context)
        if self._claim.applied:
            return KafkaCommitMessage(TaskReport(), identity, self._claim)
        with TransactionalProducers(self._task) as transactional:
            written = write(iterator, self._task, transactional, task_number=number, tasks=0)
            report = flush(written)
            return KafkaCommitMessage(report, identity, self._claim, transactional.prepare())

    def _identity(self, context: TaskContext) -> Identity | None:
        """The batch, as a task sees it."""
        if self._settings.app is not None:
            name, version = self._settings.app
            return Identity(name, version, consecutive=False)
        query, batch = (
            context.getLocalProperty("sql.streaming.queryId"),
            context.getLocalProperty("streaming.sql.batchId"),
        )
        return Identity(query, int(batch)) if query and batch else None

    def _commit(self, messages: Sequence[WriterCommitMessage | None], identity: Identity | None) -> None:
        """The end of a batch whose tasks are all done."""
        found = [m for m in messages if isinstance(m, KafkaCommitMessage)]
        began = time.perf_counter()
        if self._settings.guarantee == "exactly-once" and found and not all(m.claim and m.claim.applied for m in found):
            self._publish(found, identity)
        volume = sum((m.report.total.records for m in found), 0)
        _log.info(
            "Wrote %d records (%d bytes) in %d tasks; slowest task: write %.0f ms, flush %.0f ms; publish %.0f ms",
            *(volume, sum(m.report.total.bytes for m in found), len(found)),
            *(max((m.report.write_ms for m in found), default=0), max((m.report.flush_ms for m in found), default=0)),
            (time.perf_counter() - began) * 1000,
        )

    def _publish(self, found: Sequence[KafkaCommitMessage], identity: Identity | None) -> None:
        from dynamic_kafka.sink.committer import committer_for, forget
        from dynamic_kafka.sink.route import route

        first = found[0]
        assert first.claim is not None
        known = identity or first.identity or Identity("", 0)
        transactions = [t for m in found for t in m.transactions]
        try:
            committer = committer_for(self._settings, route(self._settings))
            outcome = committer.commit(first.claim, known, transactions)
        except BaseException:
            forget(self._settings)
            raise
        if outcome == "repeated":
            _log.warning(
                "Batch %d of %s is published already; what was written again is dropped", known.batch, known.name
            )

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The end of a batch that has failed: do not leave readers waiting, if that is possible."""
        found = [m for m in messages if isinstance(m, KafkaCommitMessage) and m.claim is not None]
        transactions = [t for m in found for t in m.transactions]
        if not transactions:
            return
        from dynamic_kafka.sink.committer import committer_for, forget
        from dynamic_kafka.sink.route import route

        assert found[0].claim is not None
        try:
            committer = committer_for(self._settings, route(self._settings))
            committer.abandon(found[0].claim, transactions)
        except DynamicKafkaError as error:
            forget(self._settings)
            _log.warning(
                "Transactions of the failed batch stay open until the next start, or their time-out: %s", error
            )


class KafkaBatchWriter(_Writer, DataSourceArrowWriter):
    """For `df.write`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        self._commit(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task, or the commit, has failed."""
        self._abort(messages)


class KafkaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """For `df.writeStream`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """All tasks of a batch are done."""
        self._commit(messages, None)
        _log.debug("Batch %d is written", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task, or the commit, has failed."""
        _log.info("Batch %d has failed", batchId)
        self._abort(messages)


def stream_writer(settings: SinkSettings, *, plans: bool) -> KafkaStreamWriter:
    """The writer of a stream.

    Args:
        settings: The sink's.
        plans: Whether this process plans a batch; another one only commits it.
    """
    return KafkaStreamWriter(settings, *(_plan(settings) if plans else (None, None)))


def batch_writer(settings: SinkSettings) -> KafkaBatchWriter:
    """The writer of a batch write."""
    return KafkaBatchWriter(settings, *_plan(settings))


def _plan(settings: SinkSettings) -> tuple[WriteTask, Claim | None]:
    from dynamic_kafka.sink.route import route

    destinations = route(settings)
    if settings.guarantee != "exactly-once":
        return WriteTask(destinations, settings), None
    from dynamic_kafka.sink.committer import committer_for, forget

    identity = None if settings.app is None else Identity(*settings.app, consecutive=False)
    try:
        claim = committer_for(settings, destinations).claim(identity)
    except BaseException:
        forget(settings)
        raise
    return WriteTask(destinations, settings, claim.chain or uuid.uuid4().hex, claim.generation), claim
