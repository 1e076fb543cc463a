"""The driver's side of exactly-once: it runs the protocol against real clusters.

A process keeps one `Committer` for each prefix between batches, because connections are expensive: Spark's driver plans and
commits in Python processes that live on.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, InvalidOptionError
from dynamic_kafka.kafka.clients import pool_key
from dynamic_kafka.kafka.config.properties import whole_number
from dynamic_kafka.kafka.config.secrets import storable
from dynamic_kafka.kafka.pool import ClientPool
from dynamic_kafka.kafka.transactions.client import TransactionClient, TransactionState
from dynamic_kafka.sink import protocol
from dynamic_kafka.sink.chain import Chain, Transaction
from dynamic_kafka.sink.commit_log import CommitLog
from dynamic_kafka.sink.identity import Identity
from dynamic_kafka.sink.outcome import outcome
from dynamic_kafka.sink.protocol import Batch, Claim, Effect, ObservedTransaction, Outcome
from dynamic_kafka.sink.report import PublishReport
from dynamic_kafka.sink.settings import DEFAULT_TRANSACTION_TIMEOUT_MS, Destination, SinkSettings
from dynamic_kafka.sink.transactional_ids import belongs_to

__all__ = ["Committer", "committer_for"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 60_000
_LONGEST_WAIT_S = 2.0


class Committer:
    """Claims, decides and publishes the batches of one prefix."""

    def __init__(self, settings: SinkSettings, destinations: Mapping[str, Destination]) -> None:
        self._settings = settings
        self._properties = {name: destination.properties for name, destination in destinations.items()}
        self._clients: dict[str, TransactionClient] = {}
        self._ended_at = 0.0
        self._policy = protocol.TransactionPolicy(settings.accept_gaps, settings.skip_batch, settings.lost_transactions)
        cluster = settings.log_cluster or min(self._properties)
        if cluster not in self._properties:
            raise InvalidOptionError(
                "sink.commit-log.cluster", cluster, f"one of {', '.join(sorted(self._properties))}"
            )
        timeouts_ms = {
            name: whole_number(
                properties,
                "transaction.timeout.ms",
                DEFAULT_TRANSACTION_TIMEOUT_MS,
                f"a whole number of milliseconds (property of cluster '{name}')",
            )
            for name, properties in self._properties.items()
        }
        self._log = CommitLog(
            cluster,
            self._properties[cluster],
            settings.log_topic,
            replication=settings.log_replication,
            timeout_ms=_TIMEOUT_MS,
        )
        try:
            self._check_timeouts(timeouts_ms)
        except BaseException:
            self.close()
            raise

    def claim(self, identity: Identity | None) -> Claim:
        """Claim a generation, before the tasks; see `protocol.claim`."""
        claimed: Claim = self._run(protocol.claim(uuid.uuid4().hex, identity, self._policy))
        self._log.trim()
        return claimed

    def commit(self, claimed: Claim, batch: Batch) -> PublishReport:
        """Decide and publish a batch, after the tasks; see `protocol.commit`."""
        clusters = {name: storable(self._properties[name]) for name in {t.cluster for t in batch.transactions}}
        began, self._ended_at = time.perf_counter(), 0.0
        batch = replace(batch, clusters=clusters)
        outcome = self._run(protocol.commit(uuid.uuid4().hex, claimed, batch, self._policy))
        done = time.perf_counter()
        decided = self._ended_at or done
        return PublishReport(
            outcome == "repeated", len(batch.transactions), (decided - began) * 1000, (done - decided) * 1000
        )

    def abandon(self, claimed: Claim) -> Claim | None:
        """Abort the open transactions of a failed batch; see `protocol.abandon`."""
        now: Claim | None = self._run(protocol.abandon(uuid.uuid4().hex, claimed))
        return now

    def poll_idle(self) -> bool:
        """See `ClientPool`."""
        return self._log.poll_idle()

    def close(self) -> None:
        """Close all clients."""
        self._log.close()
        for client in self._clients.values():
            client.close()

    # --- effects ---

    def _run(self, steps: Generator[Effect, Any, T]) -> T:
        try:
            effect = next(steps)
            while True:
                effect = steps.send(self._do(effect))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _do(self, effect: Effect) -> Any:
        match effect:
            case protocol.ReadLog():
                return self._read_log()
            case protocol.Append(record):
                return self._log.append(record)
            case protocol.ListOpen():
                return self._list_open()
            case protocol.Describe(transactions):
                return self._describe(transactions)
            case protocol.End(transactions):
                self._ended_at = self._ended_at or time.perf_counter()
                return self._end(transactions, commit=True)
            case protocol.Abort(transactions):
                return self._abort(transactions)
            case protocol.Warn(text):
                return _log.warning("%s", text)
            case protocol.Wait(attempt):
                return time.sleep(min(0.01 * 3**attempt, _LONGEST_WAIT_S))

    def _read_log(self) -> Chain:
        chain = self._log.read()
        for name, properties in chain.state.clusters.items():  # of a decision that is to be finished
            self._properties.setdefault(name, properties)
        return chain

    def _list_open(self) -> tuple[Transaction, ...]:
        found = []
        for cluster in sorted(self._properties):
            try:
                client = self._client(cluster)
                names = [name for name in client.list_open() if belongs_to(self._settings.prefix, name)]
                described = client.describe(names) if names else {}
            except ClusterUnavailableError as error:  # the batch may have no rows for it
                _log.warning(
                    "Open transactions cannot be listed, and readers may have to wait for their end: %s", error
                )
                continue
            for name, seen in described.items():
                if seen is not None and seen.state is TransactionState.ONGOING:
                    found.append(Transaction(cluster, name, seen.producer_id, seen.producer_epoch))
        return tuple(found)

    def _abort(self, transactions: Sequence[Transaction]) -> None:
        names = ", ".join(t.transactional_id for t in transactions)
        _log.info("Aborting transactions that are left open: %s", names)
        try:
            self._end(transactions, commit=False)
        except ClusterUnavailableError as error:  # nothing depends on it, and the batch may be published
            _log.warning("Transactions stay open until the next batch or until they time out (%s): %s", names, error)

    def _describe(self, transactions: Sequence[Transaction]) -> list[ObservedTransaction]:
        found: dict[Transaction, ObservedTransaction] = {}
        now_ms = time.time() * 1000
        for cluster, some in _by_cluster(transactions).items():
            described = self._client(cluster).describe([t.transactional_id for t in some])
            for t in some:
                seen = described.get(t.transactional_id)
                left_ms = 0 if seen is None else int(seen.started_at_ms + seen.timeout_ms - now_ms)
                found[t] = ObservedTransaction(outcome(t, seen), left_ms, 0 if seen is None else seen.timeout_ms)
                if found[t].outcome is Outcome.OPEN and left_ms < found[t].timeout_ms / 2:
                    _log.warning(
                        "Transaction '%s' has used more than half of its %d ms (transaction.timeout.ms)",
                        t.transactional_id,
                        found[t].timeout_ms,
                    )
        return [found[t] for t in transactions]

    def _end(self, transactions: Sequence[Transaction], *, commit: bool) -> None:
        # All at once: a cluster that is down does not keep the readers of the others waiting.
        with ThreadPoolExecutor(max(1, len(self._properties))) as pool:
            ends = []
            for cluster, some in _by_cluster(transactions).items():
                ids = [(t.transactional_id, t.producer_id, t.producer_epoch) for t in some]
                ends.append(pool.submit(self._client(cluster).end_all, ids, commit=commit))
        for end in ends:
            end.result()

    def _client(self, cluster: str) -> TransactionClient:
        if cluster not in self._clients:
            self._clients[cluster] = TransactionClient(cluster, self._properties[cluster], timeout_ms=_TIMEOUT_MS)
        return self._clients[cluster]

    def _check_timeouts(self, timeouts_ms: Mapping[str, int]) -> None:
        for cluster, wanted_ms in sorted(timeouts_ms.items()):
            most_ms = self._client(cluster).max_timeout_ms()
            if most_ms is not None and wanted_ms > most_ms:
                raise ConfigurationError(
                    f"Option 'properties.transaction.timeout.ms' is {wanted_ms}, but cluster '{cluster}' allows at most "
                    f"{most_ms} (transaction.max.timeout.ms of its brokers); lower the option, or raise the brokers' limit"
                )


def _by_cluster(transactions: Sequence[Transaction]) -> dict[str, list[Transaction]]:
    found: dict[str, list[Transaction]] = {}
    for transaction in transactions:
        found.setdefault(transaction.cluster, []).append(transaction)
    return found


_committers = ClientPool[Committer]()


@contextmanager
def committer_for(settings: SinkSettings, destinations: Mapping[str, Destination]) -> Iterator[Committer]:
    """Use this process's committer for a prefix; a new one if its clusters or properties have changed, or after an error."""
    policy = settings.log_cluster, settings.accept_gaps, settings.skip_batch, settings.lost_transactions
    key = (
        settings.prefix,
        settings.log_topic,
        policy,
        frozenset(pool_key("commit", name, found.properties) for name, found in destinations.items()),
    )
    with _committers.lease(key, lambda: Committer(settings, destinations)) as committer:
        yield committer
