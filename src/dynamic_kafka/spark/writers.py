"""The writers of `format("dynamic-kafka")`, and the messages that their tasks send to the driver.

Spark creates a data source and its writer in the process that plans a batch, and pickles the writer for the tasks. For a
stream it then creates another writer from the pickled data source, in a process that only commits. That writer gets all
its knowledge from the tasks' messages.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from dynamic_kafka.errors import ConfigurationError, TransactionError
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.protocol import Batch, Claim
from dynamic_kafka.sink.report import PublishReport, TaskReport
from dynamic_kafka.sink.settings import Destination, LogPlace, SinkSettings, WriteTask
from dynamic_kafka.spark.foreach_batch import identity_and_run
from dynamic_kafka.spark.identity import OfOneVersion, query_of
from dynamic_kafka.spark.tcp_quickack import acknowledge_at_once
from dynamic_kafka.spark_versions import DataSourceStreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from dynamic_kafka.sink.destinations import Clusters
    from dynamic_kafka.sink.producers import ClusterProducer
    from dynamic_kafka.sink.tally import TaskObservation

__all__ = ["KafkaBatchWriter", "KafkaCommitMessage", "KafkaStreamWriter", "batch_writer", "stream_writer"]

_log = logging.getLogger(__name__)

_KILLED_AFTER_S = 3.0
"""Spark gives a killed task two seconds (`spark.python.task.killTimeout`), in which it can still begin a transaction."""
_STOPPING_MS = 10_000
"""How long the end of a stream waits for a cluster that does not answer: `query.stop()` waits, too."""


@dataclass
class KafkaCommitMessage(WriterCommitMessage):
    """The message of a finished task to the driver.

    Args:
        report: The number of records written, and the time it took.
        identity: The batch, for exactly-once; None for a batch write without an identity of its own.
        claim: The claim under which the batch was written, for exactly-once.
        transactions: The transactions that the task prepared.
        rows: The number of the task's rows, for exactly-once; counted only, if the batch is published already.
        run: The run of a streaming query whose `foreachBatch` writes the batch; see `protocol.Batch`.
        destinations: The batch's destinations, for exactly-once. The stream may have moved since.
        log: The commit log, for exactly-once.
        observed: What the task says of itself, for the metrics; None without them.
    """

    report: TaskReport
    identity: Identity | None = None
    claim: Claim | None = None
    transactions: tuple[Transaction, ...] = ()
    rows: int = 0
    run: str = ""
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    log: LogPlace | None = None
    observed: TaskObservation | None = None

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "observed" or value is not None}


class _Writer(OfOneVersion):
    """The part that both writers share: a task in `write`, and the end of the batch on the driver."""

    def __init__(
        self,
        settings: SinkSettings,
        task: WriteTask | None,
        claim: Claim | None,
        specs: Mapping[str, str] | None = None,
        run: str = "",
    ) -> None:
        self._settings, self._task, self._claim, self._specs, self._run = settings, task, claim, specs or {}, run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task. Spark calls it on an executor."""
        used: list[ClusterProducer] = []
        message = self._write(iterator, used)
        if self._settings.metrics is not None:
            from dynamic_kafka.sink.tally import TaskObservation, client_numbers_of

            message.observed = TaskObservation(*query_of(TaskContext.get()), client_numbers_of(used))
        return message

    def _write(self, iterator: Iterator[pa.RecordBatch], used: list[ClusterProducer]) -> KafkaCommitMessage:
        """Write the rows of a task, and tell the producers that were used."""
        from dynamic_kafka.sink.producers import PooledProducers
        from dynamic_kafka.sink.records import encoded
        from dynamic_kafka.sink.transactional_producers import TransactionalProducers
        from dynamic_kafka.sink.writer import flush, write

        acknowledge_at_once()
        context = TaskContext.get()
        assert self._task is not None
        assert context is not None
        number = context.partitionId()
        if self._settings.guarantee != "exactly-once":
            with PooledProducers(self._task) as producers:
                written = write(encoded(iterator, self._specs), self._task, producers, task_number=number)
                used += written.used.values()
                waits = self._settings.guarantee == "at-least-once"
                return KafkaCommitMessage(flush(written) if waits else written.report)
        assert self._claim is not None
        identity, run = self._identity_and_run(context)
        destinations, log = self._task.destinations, self._task.log
        if self._claim.applied:  # its rows are counted, because a batch with more rows is another one
            rows = sum(batch.num_rows for batch in iterator)
            return KafkaCommitMessage(TaskReport(), identity, self._claim, (), rows, run, destinations, log)
        with TransactionalProducers(self._task) as transactional:
            written = write(encoded(iterator, self._specs), self._task, transactional, task_number=number)
            used += written.used.values()
            report = flush(written)
            rows, transactions = report.rows, transactional.prepare()
            return KafkaCommitMessage(report, identity, self._claim, transactions, rows, run, destinations, log)

    def _identity_and_run(self, context: TaskContext) -> tuple[Identity | None, str]:
        """Return the identity of the batch, and the run of a stream in whose `foreachBatch` it is written."""
        return identity_and_run(self._settings, context.getLocalProperty)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803
        """Publish a batch. Spark calls it when all tasks of the batch are done, with a number only for streams."""
        found = [m for m in messages if isinstance(m, KafkaCommitMessage)]
        if len(found) < len(messages):
            raise TransactionError(
                f"Spark asks to commit a batch, but reports only {len(found)} of its {len(messages)} tasks as finished. "
                "Start the query again. If this persists, report it with your Spark version"
            )
        exactly_once = self._settings.guarantee == "exactly-once"
        with self._observed(found, batchId) as publications:
            published = self._publish(found) if exactly_once and found else None
            publications.extend([published] if published is not None else [])
        _log.info(
            "Wrote %d records (%d bytes) in %d tasks, of which the slowest took %.0f ms to write and %.0f ms to flush; %s",
            sum(m.report.total.records for m in found),
            sum(m.report.total.bytes for m in found),
            len(found),
            max((m.report.write_ms for m in found), default=0),
            max((m.report.flush_ms for m in found), default=0),
            published or f"{sum(m.report.errors for m in found)} errors",
        )

        if letters := sum(m.report.dead_letters for m in found):
            _log.warning(
                "%d rows could not be written and are in the topic '%s'", letters, self._settings.dead_letter_topic
            )

    @contextmanager
    def _observed(self, found: Sequence[KafkaCommitMessage], batch: int) -> Iterator[list[PublishReport]]:
        """Report the commit of a batch, if metrics are on."""
        if self._settings.metrics is None or not found:
            yield []
            return
        from dynamic_kafka.sink.tally import sink_tally

        tally = sink_tally(self._settings, self._settings.metrics)
        transactions = sum(len(m.transactions) for m in found)
        with tally.committing(batch, [m.report for m in found], _observed_by(found), transactions) as publications:
            yield publications

    def _publish(self, found: Sequence[KafkaCommitMessage]) -> PublishReport:
        from dynamic_kafka.sink.committer import committer_for

        first = found[0]
        assert first.claim is not None
        assert first.log is not None
        batch = Batch(
            # A write without an identity needs a number, too: the user's word to give up lost transactions names it.
            first.identity or Identity("", first.claim.generation),
            sum(m.rows for m in found),
            tuple(t for m in found for t in m.transactions),
            run=first.run,
        )
        with committer_for(self._settings, first.destinations, first.log) as committer:
            return committer.commit(first.claim, batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803
        """Abort the transactions of a failed batch if possible, so that readers do not wait for them.

        Spark calls it for a batch that `query.stop()` has ended, too.
        """
        if batchId >= 0:
            _log.info("Batch %d failed", batchId)
        found = [m for m in messages if isinstance(m, KafkaCommitMessage)]
        if self._settings.metrics is not None and None in messages:  # else `commit` has failed, and has reported why
            from dynamic_kafka.sink.tally import sink_tally

            # Spark does not tell why the batch has failed.
            reason = f"{messages.count(None)} of {len(messages)} tasks failed; the driver's log says why"
            aborted = sum(len(m.transactions) for m in found)
            sink_tally(self._settings, self._settings.metrics).failed(batchId, _observed_by(found), reason, aborted)
        if self._settings.guarantee != "exactly-once":
            return
        from dynamic_kafka.sink.committer import committer_for

        try:
            claim, destinations, log = self._claimed(found)
            with committer_for(self._settings, destinations, log) as committer:
                now = committer.abandon(claim)
                if now is not None and None in messages:  # a task that sent no message may have been killed
                    time.sleep(_KILLED_AFTER_S)
                    committer.abandon(now)
        except Exception as error:  # noqa: BLE001  Spark would report this error instead of the batch's own
            _log.warning(
                "Transactions of the failed or stopped batch stay open until the query starts again, until they time out, "
                "or until `dynamic-kafka transactions abort --prefix %s --all-open --execute`; readers with read_committed "
                "wait for that: %s",
                self._settings.prefix,
                error,
            )

    def _claimed(self, found: Sequence[KafkaCommitMessage]) -> tuple[Claim | str, Mapping[str, Destination], LogPlace]:
        """Return the claim of a batch, or the run that made it, the batch's destinations, and where the commit log is.

        A batch write ends in the object that planned it. A stream ends in a process that knows what the tasks report:
        nothing, if all of them failed or were killed.
        """
        if found:
            assert found[0].claim is not None
            assert found[0].log is not None
            return found[0].claim, found[0].destinations, found[0].log
        if self._claim is not None and self._task is not None and self._task.log is not None:
            return self._claim, self._task.destinations, self._task.log
        if not self._run:
            raise TransactionError("Spark does not say which run this is (SPARK_LOCAL_DIRS is not set)")
        from dynamic_kafka.sink.log_search import find_log

        clusters = _clusters(self._settings)
        properties = {name: destination.properties for name, destination in clusters.destinations.items()}
        place = find_log(self._settings, properties | dict(clusters.others), properties, _STOPPING_MS).log
        return self._run, clusters.destinations, place


class KafkaBatchWriter(_Writer, DataSourceArrowWriter):
    """The writer for `df.write`."""


class KafkaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer for `df.writeStream`."""

    def _identity_and_run(self, context: TaskContext) -> tuple[Identity | None, str]:
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if not query or not batch:
            raise TransactionError(
                "Spark did not provide the query's id and the batch's number, so the batch cannot be written exactly once. "
                "Report this with your Spark version, or use at-least-once"
            )
        return Identity(query, int(batch)), ""  # Spark writes a batch of a stream once in a run


def stream_writer(settings: SinkSettings, specs: Mapping[str, str], run: str, *, plans: bool) -> KafkaStreamWriter:
    """Return the writer of a stream.

    Args:
        settings: The settings.
        specs: The specs of the columns whose rows the sink encodes.
        run: The run; see `run_of`.
        plans: True in the process that plans batches, false in one that only commits them.

    Raises:
        ConfigurationError: If the settings are those of a batch write.
    """
    if settings.identity is not None or settings.name:
        raise ConfigurationError(
            "Options 'txnAppId', 'txnVersion' and 'sink.name' identify a batch write; a stream has its own identity, so "
            "leave them out"
        )
    task, claim = _plan(settings, run) if plans else (None, None)
    return KafkaStreamWriter(settings, task, claim, specs, run)


def batch_writer(settings: SinkSettings, specs: Mapping[str, str]) -> KafkaBatchWriter:
    """Return the writer of a batch write; `specs` are those of the columns whose rows the sink encodes."""
    return KafkaBatchWriter(settings, *_plan(settings), specs)


def _observed_by(found: Sequence[KafkaCommitMessage]) -> list[TaskObservation]:
    return [m.observed for m in found if m.observed is not None]


def _plan(settings: SinkSettings, run: str = "") -> tuple[WriteTask, Claim | None]:
    clusters = _clusters(settings)
    destinations = clusters.destinations
    if settings.guarantee != "exactly-once":
        return WriteTask(destinations, settings), None
    from dynamic_kafka.sink.committer import claim_batch

    claim, log = claim_batch(settings, destinations, clusters.others, settings.identity, run)
    return WriteTask(destinations, settings, claim.chain, claim.generation, log), claim


def _clusters(settings: SinkSettings) -> Clusters:
    from dynamic_kafka.sink.destinations import current_clusters

    # Settings are made anew for each batch, and a user's service may lack an `__eq__`: pickles are compared. They are of
    # cloudpickle, as Spark's, because a class may be one of a notebook. A call may change a service, so the key comes first.
    given = settings.properties, settings.document_rules
    decisive = settings.service, settings.stream, settings.topic, given, settings.guarantee
    key = hashlib.sha256(cloudpickle.dumps(decisive)).digest()  # type: ignore[no-untyped-call]
    return current_clusters(settings, key)
