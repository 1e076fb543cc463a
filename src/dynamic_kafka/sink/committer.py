"""The driver's side of exactly-once: it runs the protocol against real clusters.

A process keeps one `Committer` for each prefix between batches, because connections are expensive: Spark's driver plans and
commits in Python processes that live on. The process that plans finds the commit log. The others get its place from the
tasks.

Whoever can write to the commit log must not be able to send the driver anywhere. So a decision names its clusters, and they
are looked up among those that today's metadata names, by Kafka's cluster.id, with today's properties.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Generator, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, ProducerFencedError, TransactionError
from dynamic_kafka.kafka.clients import pool_key
from dynamic_kafka.kafka.config.properties import whole_number
from dynamic_kafka.kafka.config.secrets import storable
from dynamic_kafka.kafka.pool import ClientPool
from dynamic_kafka.kafka.transactions.client import TransactionClient, TransactionState
from dynamic_kafka.sink import protocol
from dynamic_kafka.sink.log.chain import Chain, Record, State, Transaction
from dynamic_kafka.sink.log.commit_log import CommitLog
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.log_search import OTHERS_TIMEOUT_MS, FoundLog, check_moved, find_log, seed, write_pointers
from dynamic_kafka.sink.outcome import outcome, time_left_ms
from dynamic_kafka.sink.protocol import Batch, Claim, Effect, ObservedTransaction, Outcome
from dynamic_kafka.sink.report import PublishReport
from dynamic_kafka.sink.settings import DEFAULT_TRANSACTION_TIMEOUT_MS, Destination, LogPlace, SinkSettings
from dynamic_kafka.sink.transactional_ids import belongs_to

__all__ = ["Committer", "claim_batch", "committer_for"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 60_000
_LONGEST_WAIT_S = 2.0
_EMPTY_S = 10.0


def uptime_ms() -> int:
    """Return the milliseconds since the machine was started. Processes of the machine agree on it, and nobody can set it."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the former goes on while the machine sleeps
    return time.clock_gettime_ns(clock) // 1_000_000


class Committer:
    """Claims, decides and publishes the batches of one prefix, on the clusters that rows may go to."""

    def __init__(self, settings: SinkSettings, destinations: Mapping[str, Destination], place: LogPlace) -> None:
        self._settings, self._place = settings, place
        self._properties = {name: destination.properties for name, destination in destinations.items()}
        self._destinations = sorted(destinations)
        self._clients: dict[str, TransactionClient] = {}
        self._kafka_ids: dict[str, str] = {}
        self._begun = False
        self._head = State()
        self._meant: dict[str, str | None] = {}
        self._ended_at = 0.0
        self._claimed_at_ms = 0
        self._unverified: list[str] = []
        self._others: dict[str, TransactionClient] = {}
        """Clusters that are no destinations now, and that were not asked for open transactions yet."""
        self._policy = protocol.TransactionPolicy(settings.accept_gaps, settings.skip_batch, settings.lost_transactions)
        timeouts_ms = {
            name: whole_number(
                properties,
                "transaction.timeout.ms",
                DEFAULT_TRANSACTION_TIMEOUT_MS,
                f"a whole number of milliseconds (property of cluster '{name}')",
            )
            for name, properties in self._properties.items()
        }
        self._log = CommitLog(place.cluster, place.properties, place.topic, timeout_ms=_TIMEOUT_MS)
        try:
            self._check_brokers(timeouts_ms)
        except BaseException:
            self.close()
            raise

    def claim(
        self, identity: Identity | None, others: Mapping[str, Mapping[str, str]], *, begun: bool, owner: str = ""
    ) -> Claim:
        """Claim a generation, before the tasks; see `protocol.claim`.

        `others` are the properties of more clusters that the metadata names: an earlier batch may have written to them.
        `begun` says that the log had records when it was looked at before.
        """
        self._begun = begun
        for name, properties in others.items():
            if name not in self._destinations and self._properties.get(name) != properties:
                self._properties[name] = properties
                self._kafka_ids.pop(name, None)
                if (client := self._clients.pop(name, None)) is not None:
                    client.close()
                self._others[name] = TransactionClient(name, properties, timeout_ms=OTHERS_TIMEOUT_MS)
        claimed: Claim = self._run(protocol.claim(uuid.uuid4().hex, identity, self._policy, self._place.places, owner))
        self._log.trim()
        return replace(claimed, claimed_at_ms=uptime_ms())

    def move_to(self, target: LogPlace, others: Mapping[str, Mapping[str, str]]) -> None:
        """Move the log, after everything that is decided in it is finished. Nothing counts in the old place from then on."""
        head = self._log.read()
        if head.state.places != target.places:
            self.claim(None, others, begun=True)
            head = self._log.read()
            moved = replace(head.state, generation=head.state.generation + 1, places=target.places)
            self._log.append(Record(uuid.uuid4().hex, head.offset, moved))
            head = self._log.read()
        check_moved(head.state, target)
        seed(self._place, target, head.state)

    def commit(self, claimed: Claim, batch: Batch) -> PublishReport:
        """Decide and publish a batch, after the tasks; see `protocol.commit`."""
        clusters = {name: self._facts(name) for name in sorted({t.cluster for t in batch.transactions})}
        began, self._ended_at = time.perf_counter(), 0.0
        batch = replace(batch, clusters=clusters)
        self._claimed_at_ms = claimed.claimed_at_ms
        result = self._run(protocol.commit(uuid.uuid4().hex, claimed, batch, self._policy))
        done = time.perf_counter()
        decided = self._ended_at or done
        return PublishReport(
            result == "repeated", len(batch.transactions), (decided - began) * 1000, (done - decided) * 1000
        )

    def abandon(self, claimed: Claim | str) -> Claim | None:
        """Abort the open transactions of a batch that failed or was stopped; see `protocol.abandon`."""
        now: Claim | None = self._run(protocol.abandon(uuid.uuid4().hex, claimed))
        return now

    def warn_of_hanging_transactions(self) -> None:
        """Warn of the clusters where a record that arrives late can begin a transaction that nobody ends."""
        for cluster in self._unverified:
            _log.warning(
                "Cluster '%s': its brokers are older than Kafka 3.6, or transaction.partition.verification.enable is false "
                "there. After a network fault a transaction may stay open for ever, and readers with read_committed wait "
                "for its end. Upgrade the brokers, or enable the setting. kafka-transactions.sh find-hanging shows such "
                "transactions",
                cluster,
            )

    def poll_idle(self) -> bool:
        """See `ClientPool`."""
        return self._log.poll_idle()

    def close(self) -> None:
        """Close all clients."""
        self._log.close()
        for client in [*self._clients.values(), *self._others.values()]:
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
                # All at once: clusters that are far away or down take their time together, and not one after the other.
                clients = {name: self._client(name) for name in self._destinations} | self._others
                with ThreadPoolExecutor(max(1, len(clients))) as pool:
                    found = tuple(t for some in pool.map(self._open_on, clients, clients.values()) for t in some)
                for client in self._others.values():  # asked once: such a cluster may be dead for good
                    client.close()
                self._others = {}
                return found
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
        deadline = time.monotonic() + _EMPTY_S
        while self._begun and chain.offset < 0 and time.monotonic() < deadline:  # a new leader may not know its end yet
            time.sleep(_LONGEST_WAIT_S / 10)
            chain = self._log.read()
        if self._begun and chain.offset < 0:
            raise self._log.deleted()
        if chain.state.places and chain.state.places[-1] != self._place.places[-1]:
            raise ProducerFencedError(
                f"The commit log of prefix '{self._settings.prefix}' was moved away from cluster '{self._place.cluster}' by "
                "another run with another sink.commit-log.cluster or sink.commit-log.topic. Nothing of the batch is "
                "published; start the query again, with the same options everywhere"
            )
        if chain.state != self._head:
            self._head, self._meant = chain.state, {}
        return chain

    def _open_on(self, cluster: str, client: TransactionClient) -> list[Transaction]:
        try:
            names = [name for name in client.list_open() if belongs_to(self._settings.prefix, name)]
            described = client.describe(names) if names else {}
        except ClusterUnavailableError as error:  # the batch may have no rows for it
            _log.warning("Open transactions cannot be listed, and readers may have to wait for their end: %s", error)
            return []
        return [
            Transaction(cluster, name, seen.producer_id, seen.producer_epoch)
            for name, seen in described.items()
            if seen is not None and seen.state is TransactionState.ONGOING
        ]

    def _abort(self, transactions: Sequence[Transaction]) -> None:
        names = ", ".join(t.transactional_id for t in transactions)
        _log.info("Aborting transactions that are left open: %s", names)
        try:
            self._end(transactions, commit=False)
        except ClusterUnavailableError as error:  # nothing depends on it, and the batch may be published
            _log.warning("Transactions stay open until the next batch or until they time out (%s): %s", names, error)

    def _describe(self, transactions: Sequence[Transaction]) -> list[ObservedTransaction]:
        found: dict[Transaction, ObservedTransaction] = {}
        now_ms, since_claim_ms = int(time.time() * 1000), uptime_ms() - self._claimed_at_ms
        for cluster, some in self._by_cluster(transactions).items():
            if cluster is None:
                found |= dict.fromkeys(some, ObservedTransaction(Outcome.UNKNOWN))
                continue
            described = self._client(cluster).describe([t.transactional_id for t in some])
            for t in some:
                seen = described.get(t.transactional_id)
                left_ms = 0 if seen is None else time_left_ms(seen, now_ms, since_claim_ms)
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
            for cluster, some in self._by_cluster(transactions).items():
                if cluster is None:
                    continue
                ids = [(t.transactional_id, t.producer_id, t.producer_epoch) for t in some]
                ends.append(pool.submit(self._client(cluster).end_all, ids, commit=commit))
        for end in ends:
            end.result()

    def _client(self, cluster: str) -> TransactionClient:
        if cluster not in self._clients:
            self._clients[cluster] = TransactionClient(cluster, self._properties[cluster], timeout_ms=_TIMEOUT_MS)
        return self._clients[cluster]

    def _check_brokers(self, timeouts_ms: Mapping[str, int]) -> None:
        for cluster, wanted_ms in sorted(timeouts_ms.items()):
            found = self._client(cluster).broker_settings()
            if found.verifies_partitions is False:
                self._unverified.append(cluster)
            most_ms = found.max_timeout_ms
            if most_ms is not None and wanted_ms > most_ms:
                raise ConfigurationError(
                    f"Option 'properties.transaction.timeout.ms' is {wanted_ms}, but cluster '{cluster}' allows at most "
                    f"{most_ms} (transaction.max.timeout.ms of its brokers); lower the option, or raise the brokers' limit"
                )

    # --- the clusters of a decision ---

    def _by_cluster(self, transactions: Sequence[Transaction]) -> dict[str | None, list[Transaction]]:
        """Return the transactions by today's name of their cluster; None stands for those that are lost for good."""
        found: dict[str | None, list[Transaction]] = {}
        decided = frozenset(self._head.transactions)
        for transaction in transactions:
            cluster: str | None = transaction.cluster
            if transaction in decided:
                if transaction.cluster not in self._meant:
                    self._meant[transaction.cluster] = self._recognize(transaction.cluster, self._head)
                cluster = self._meant[transaction.cluster]
            found.setdefault(cluster, []).append(transaction)
        return found

    def _facts(self, cluster: str) -> dict[str, str]:
        """Return what the log says of a cluster: enough to recognize it, and nothing to reach it with."""
        addresses = storable({key: v for key, v in self._properties[cluster].items() if key == "bootstrap.servers"})
        return {"cluster.id": self._kafka_id(cluster), **addresses}

    def _recognize(self, name: str, decided: State) -> str | None:
        """Return today's name of a cluster of a decision; None if the user calls it lost.

        Raises:
            TransactionError: If the metadata does not name the cluster any more, or gives its name to another one.
            ClusterUnavailableError: If a cluster that may be meant does not answer.
        """
        kafka_id = decided.clusters.get(name, {}).get("cluster.id", "")
        if {name, kafka_id} & set(self._settings.lost_clusters or ()):
            _log.warning("Batch %d: cluster '%s' is not asked, because of sink.lost-clusters", decided.batch, name)
            return None
        failed: ClusterUnavailableError | None = None
        for other in sorted(self._properties, key=lambda other: (other != name, other)):
            try:
                if self._kafka_id(other) == kafka_id:
                    return other
            except ClusterUnavailableError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        known = f" (cluster.id {kafka_id})" if kafka_id else ""
        now = f" The metadata now means another cluster by '{name}'." if name in self._properties else ""
        raise TransactionError(
            f"Batch {decided.batch} of prefix '{self._settings.prefix}' is decided, and partly on cluster '{name}'{known}, "
            f"which the stream's metadata does not name any more.{now} Add it to the metadata again (it may be inactive) "
            f"until the batch is finished. If it is lost for good, set sink.lost-clusters={kafka_id or name} for one start"
        )

    def _kafka_id(self, cluster: str) -> str:
        if cluster not in self._kafka_ids:
            self._kafka_ids[cluster] = self._client(cluster).kafka_id()
        return self._kafka_ids[cluster]


_committers = ClientPool[Committer]()
_found_logs: dict[Hashable, FoundLog] = {}
_MOST_FOUND = 100


def committer_for(
    settings: SinkSettings, destinations: Mapping[str, Destination], place: LogPlace
) -> AbstractContextManager[Committer]:
    """Use this process's committer for a prefix; a new one if its clusters or properties have changed, or after an error."""
    policy = settings.accept_gaps, settings.skip_batch, settings.lost_transactions, settings.lost_clusters
    key = (
        settings.prefix,
        place.places,
        pool_key("commit log", place.cluster, place.properties),
        policy,
        frozenset(pool_key("commit", name, found.properties) for name, found in destinations.items()),
    )
    return _committers.lease(key, lambda: Committer(settings, destinations, place))


def claim_batch(
    settings: SinkSettings,
    destinations: Mapping[str, Destination],
    others: Mapping[str, Mapping[str, str]],
    identity: Identity | None,
    owner: str = "",
) -> tuple[Claim, LogPlace]:
    """Find the commit log, and claim a generation in it.

    `others` are the properties of the other clusters that the metadata names for the stream. The identity is given if it is
    known before the batch is written, and the owner is the run; see `chain.State`.

    Returns:
        The claim, and the place of the log, for the process that commits.
    """
    clusters = {name: found.properties for name, found in destinations.items()} | dict(others)
    wishes = settings.log_cluster, settings.log_topic, settings.lost_clusters
    key = settings.prefix, wishes, frozenset(pool_key("find", name, found) for name, found in clusters.items())
    # Searched once in a process: nobody else may move the log without claiming it, and the claim then fails.
    found = _found_logs.pop(key, None)
    is_first = found is None
    if found is None:
        found = find_log(settings, clusters, destinations)
        if found.source is not None:
            with committer_for(settings, destinations, found.source) as committer:
                committer.move_to(found.log, others)
    with committer_for(settings, destinations, found.log) as committer:
        claim = committer.claim(identity, others, begun=found.begun, owner=owner)
        if is_first:
            committer.warn_of_hanging_transactions()
    if is_first:
        write_pointers(settings, clusters, found)
    _found_logs[key] = replace(found, begun=True)
    for oldest in list(_found_logs)[:-_MOST_FOUND]:
        del _found_logs[oldest]
    return claim, found.log
