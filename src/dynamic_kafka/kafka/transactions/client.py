"""The driver's view of one cluster's transactions: their ids, their states, and their ends.

A transaction that one process began and flushed is ended by another, which knows only its transactional id, producer id
and epoch. librdkafka offers no such call; the requests go out through `brokers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from dynamic_kafka.kafka.transactions.brokers import BrokerClient, Brokers
from dynamic_kafka.kafka.transactions.connection import BrokerError

__all__ = [
    "ABORTED",
    "COMMITTED",
    "PENDING",
    "BrokerSettings",
    "EndResult",
    "TransactionClient",
    "TransactionDescription",
    "TransactionState",
]

R = TypeVar("R")
K = TypeVar("K", bound=tuple[Any, ...])
_Routed = list[tuple[int, K]]  # each with the broker to ask
_Answers = Iterable[tuple[K, R | BrokerError]]
_Transaction = tuple[str, int, int]

_NONE = 0
_COORDINATOR_NOT_AVAILABLE, _NOT_COORDINATOR = 15, 16
_CLUSTER_AUTHORIZATION_FAILED = 31
_INVALID_PRODUCER_EPOCH, _INVALID_TXN_STATE, _INVALID_PRODUCER_ID_MAPPING, _CONCURRENT_TRANSACTIONS = 47, 48, 49, 51
_PRODUCER_FENCED, _TRANSACTIONAL_ID_NOT_FOUND = 90, 105

_END_TXN_VERSION = 3  # 5 speaks transactions V2, where each end bumps the epoch (KIP-890); librdkafka speaks V1
_BROKER = 4  # DescribeConfigs' resource type
_MAX_TIMEOUT = "transaction.max.timeout.ms"
_VERIFICATION = "transaction.partition.verification.enable"  # brokers have it from 3.6 on (KIP-890)


class TransactionState(StrEnum):
    """A transactional id's state, as brokers name it (Kafka: TransactionState)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"
    """A state that this version does not know."""

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:  # noqa: ARG003
        return cls.UNKNOWN


PENDING = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)
"""Open, or ending: it holds up readers."""

COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
"""Committed, or about to be: nothing can change that."""

ABORTED = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
"""Aborted, or about to be: nothing can change that."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator describes it.

    Args:
        state: Its state.
        producer_id: The id of the producer that used it last.
        producer_epoch: The epoch of that producer.
        timeout_ms: The time after which the coordinator aborts an open transaction.
        started_at_ms: When the last transaction began, in milliseconds since 1970 by the broker's clock; -1 if none did.
        topics: The topics that the open transaction wrote to, each with its partitions; while it ends, those that do not
            know it yet. Topics that this client may not describe are left out.
    """

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at_ms: int
    topics: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What a broker's configuration says about transactions.

    Args:
        max_timeout_ms: The highest transaction.timeout.ms that it accepts; None if this client may not see it.
        verifies_partitions: True if it refuses a record whose transaction is not open, which brokers do from 3.6 on; None
            if this client may not see it.
    """

    max_timeout_ms: int | None = None
    verifies_partitions: bool | None = None


class EndResult(StrEnum):
    """A coordinator's answer to a request to end a transaction."""

    DONE = "done"
    """It ends as requested; a commit is visible soon. A repeated request is answered so, or `CONCURRENT` for a while."""
    CONCURRENT = "concurrent"
    """The broker is still writing the markers of this end, or of an earlier one: ask again."""
    FENCED = "fenced"
    """The producer id's epoch is another one: it was aborted, by its time-out or by a newer producer."""
    INVALID_STATE = "invalid-state"
    """It was ended the other way, or there is none."""
    UNKNOWN_ID = "unknown-id"
    """The transactional id belongs to another producer id, or is not known."""


_END_RESULTS = {
    _NONE: EndResult.DONE,
    _CONCURRENT_TRANSACTIONS: EndResult.CONCURRENT,
    _INVALID_PRODUCER_EPOCH: EndResult.FENCED,
    _PRODUCER_FENCED: EndResult.FENCED,
    _INVALID_TXN_STATE: EndResult.INVALID_STATE,
    _INVALID_PRODUCER_ID_MAPPING: EndResult.UNKNOWN_ID,
}


class TransactionClient:
    """Asks one cluster about its transactions, and ends them. Needs brokers from 3.0 on. For one thread at a time.

    Nothing is opened before the first call. Within the time-out a call is repeated while brokers do not answer, or
    coordinators move or load: all requests may be sent twice without harm.

    All methods raise `ClusterUnavailableError` if the cluster does not answer, refuses the login, or does not allow
    the call, and `ConfigurationError` if the properties are wrong or a broker is older than 3.0.
    """

    def __init__(self, cluster_id: str, properties: Mapping[str, str], *, timeout_ms: int) -> None:
        self._brokers = BrokerClient(cluster_id, properties, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Close what was opened; never waits for a broker. The next call opens it again."""
        self._brokers.close()

    def kafka_id(self) -> str:
        """Return Kafka's own cluster.id."""

        def attempt(brokers: Brokers, deadline: float) -> str:
            brokers.refresh(deadline)
            return brokers.kafka_id

        return self._brokers.call("its cluster.id", "Describe", attempt)

    def list_open(self) -> list[str]:
        """Return the transactional ids with an open or ending transaction, sorted.

        Brokers leave out the ids that this client may not describe. An id is missed if its coordinator moves from a
        broker not yet asked to one already asked.
        """
        return sorted(self._list(PENDING))

    def list_all(self) -> dict[str, TransactionState]:
        """Return all transactional ids that brokers remember (7 days by default), with their states; see `list_open`."""
        return self._list(())

    def describe(self, ids: Collection[str]) -> dict[str, TransactionDescription | None]:
        """Return the coordinator's description of each transactional id; None for an id that it does not know."""
        from dynamic_kafka.kafka.transactions.kafka_python import DescribeTransactionsRequest

        def ask(
            brokers: Brokers, routed: _Routed[tuple[str]], deadline: float
        ) -> _Answers[Any, TransactionDescription | None]:
            by_broker: dict[int, list[str]] = {}
            for broker, (name,) in routed:
                by_broker.setdefault(broker, []).append(name)
            requests = [(b, DescribeTransactionsRequest(transactional_ids=names)) for b, names in by_broker.items()]
            rows = [row for answer in brokers.ask(requests, deadline) for row in answer.transaction_states]
            return [((row.transactional_id,), _description(row)) for row in rows]

        found = self._ask_coordinators("the states of transactions", "Describe", [(name,) for name in ids], ask)
        return {name: description for (name,), description in found.items()}

    def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool) -> EndResult:
        """Commit or abort a transaction; see `end_all`."""
        return self.end_all([(transactional_id, producer_id, producer_epoch)], commit=commit)[0]

    def end_all(self, transactions: Sequence[tuple[str, int, int]], *, commit: bool) -> list[EndResult]:
        """Commit or abort transactions: all requests are sent before the first answer is awaited.

        Safe to repeat as long as a producer id and epoch never has a second transaction, which this could end, too.

        Args:
            transactions: Transactional id, producer id and producer epoch of each.
            commit: True commits them, False aborts them.
        """
        from dynamic_kafka.kafka.transactions.kafka_python import EndTxnRequest

        def ask(brokers: Brokers, routed: _Routed[_Transaction], deadline: float) -> _Answers[_Transaction, EndResult]:
            requests = [
                (
                    broker,
                    EndTxnRequest(
                        transactional_id=name,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        committed=commit,
                        max_version=_END_TXN_VERSION,
                    ),
                )
                for broker, (name, producer_id, epoch) in routed
            ]
            codes = [answer.error_code for answer in brokers.ask(requests, deadline)]
            return [
                (transaction, _END_RESULTS.get(code) or BrokerError(code, transaction[0]))
                for (_, transaction), code in zip(routed, codes, strict=True)
            ]

        what = f"the {'commit' if commit else 'abort'} of transactions"
        found = self._ask_coordinators(what, "Write", transactions, ask)
        return [found[transaction] for transaction in transactions]

    def broker_settings(self) -> BrokerSettings:
        """Return what the configuration of one of the brokers says about transactions."""
        from dynamic_kafka.kafka.transactions.kafka_python import DescribeConfigsRequest

        def attempt(brokers: Brokers, deadline: float) -> BrokerSettings:
            broker = brokers.refresh(deadline)[0]
            resource = (_BROKER, str(broker), [_MAX_TIMEOUT, _VERIFICATION])
            (answer,) = brokers.ask([(broker, DescribeConfigsRequest(resources=[resource]))], deadline)
            (result,) = answer.results
            if result.error_code == _CLUSTER_AUTHORIZATION_FAILED:
                return BrokerSettings()
            if result.error_code:
                raise BrokerError(result.error_code)
            found = {entry.name: entry.value for entry in result.configs}
            max_timeout = found.get(_MAX_TIMEOUT)
            return BrokerSettings(int(max_timeout) if max_timeout else None, found.get(_VERIFICATION) == "true")

        return self._brokers.call("its configuration", "DescribeConfigs", attempt)

    # --- plumbing ---

    def _list(self, states: Collection[TransactionState]) -> dict[str, TransactionState]:
        from dynamic_kafka.kafka.transactions.kafka_python import ListTransactionsRequest

        def attempt(brokers: Brokers, deadline: float) -> dict[str, TransactionState]:
            found: dict[str, TransactionState] = {}
            requests = [
                (broker, ListTransactionsRequest(state_filters=list(states), producer_id_filters=[]))
                for broker in brokers.refresh(deadline)
            ]
            # One that fails is reason to ask all again: its transactions may have moved to one that has answered.
            for answer in brokers.ask(requests, deadline):
                if answer.error_code:
                    raise BrokerError(answer.error_code)
                for row in answer.transaction_states:
                    found[row.transactional_id] = TransactionState(row.transaction_state)
            return found

        return self._brokers.call("its transactions", "Describe", attempt)

    def _ask_coordinators(
        self,
        what: str,
        operation: str,
        keys: Collection[K],
        ask: Callable[[Brokers, _Routed[K], float], _Answers[K, R]],
    ) -> dict[K, R]:
        """Ask each key's coordinator, again for those keys that it answers with an error that may pass.

        A key begins with a transactional id. `ask` sends the requests and reads the answers. See `BrokerClient.call` for
        `what` and `operation`.
        """
        found: dict[K, R] = {}

        def attempt(brokers: Brokers, deadline: float) -> None:
            left = [key for key in dict.fromkeys(keys) if key not in found]
            coordinators = brokers.coordinators([key[0] for key in left], deadline)
            errors: list[BrokerError] = []
            for key, answer in ask(brokers, [(coordinators[key[0]], key) for key in left], deadline):
                if isinstance(answer, BrokerError):
                    errors.append(answer)
                    if answer.code in (_NOT_COORDINATOR, _COORDINATOR_NOT_AVAILABLE):
                        brokers.forget_coordinator(key[0])
                else:
                    found[key] = answer
            if errors:
                raise min(errors, key=lambda error: error.retriable)

        if keys:
            self._brokers.call(what, operation, attempt)
        return found


def _description(row: Any) -> TransactionDescription | BrokerError | None:
    if row.error_code == _TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if row.error_code:
        return BrokerError(row.error_code, row.transactional_id)
    return TransactionDescription(
        state=TransactionState(row.transaction_state),
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        started_at_ms=row.transaction_start_time_ms,
        topics=tuple((topic.topic, tuple(topic.partitions)) for topic in row.topics),
    )
