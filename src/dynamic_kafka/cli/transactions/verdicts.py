"""A transaction as the commit log sees it, and whether it may be committed or aborted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dynamic_kafka.cli.connection import addresses_of
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.transactions.client import (
    ABORTED,
    COMMITTED,
    PENDING,
    TransactionDescription,
    TransactionState,
)
from dynamic_kafka.sink.log.chain import Chain, State, Transaction
from dynamic_kafka.sink.outcome import outcome
from dynamic_kafka.sink.protocol import Outcome

__all__ = ["CommitLogView", "Result", "TransactionView", "Verdict", "plan_abort", "plan_commit", "this_cluster"]


class Verdict(StrEnum):
    """The state of a transaction according to the commit log."""

    DECIDED = "decided"
    """Its batch is decided: it has to be committed."""
    UNDECIDED = "not decided"
    """It will never be committed, unless its batch is still being written."""
    LOST = "decided and lost"
    """The decided transaction of this id does not exist any more: it timed out or was aborted."""
    UNKNOWN = "not known"
    """There is no commit log, it is empty, or it is not clear which cluster a decision means."""
    OTHER_PREFIX = "other prefix"
    """The id does not belong to the prefix of the commit log."""
    NOT_ASKED = "no prefix given"
    """No commit log was read."""


@dataclass(frozen=True)
class CommitLogView:
    """A commit log, for comparison with the transactions of one cluster.

    `chain` is its head, and None if the topic does not exist. `cluster` is this cluster's name in the decision, and None if
    it is not clear.
    """

    topic: str
    chain: Chain | None
    cluster: str | None = None

    @property
    def state(self) -> State | None:
        """Return the state at its head; None if it has no records."""
        return None if self.chain is None or self.chain.offset < 0 else self.chain.state

    @property
    def decided(self) -> tuple[Transaction, ...]:
        """Return the transactions that are decided and not finished, on all clusters."""
        state = self.state
        return state.transactions if state is not None and state.status == "decided" else ()

    @property
    def decided_here(self) -> tuple[Transaction, ...]:
        """Return the decided transactions on this cluster, as far as it is known."""
        return tuple(t for t in self.decided if t.cluster == self.cluster)

    def verdict(self, transactional_id: str, description: TransactionDescription | None) -> Verdict:
        """Return the verdict on a transaction."""
        if self.state is None:
            return Verdict.UNKNOWN
        if self.cluster is None and any(t.transactional_id == transactional_id for t in self.decided):
            return Verdict.UNKNOWN
        outcomes = {outcome(t, description) for t in self.decided_here if t.transactional_id == transactional_id}
        if not outcomes:
            return Verdict.UNDECIDED
        return Verdict.DECIDED if outcomes & {Outcome.OPEN, Outcome.COMMITTED} else Verdict.LOST


@dataclass(frozen=True)
class TransactionView:
    """A transactional id with what its coordinator says, None if that does not know it, and the commit log's verdict."""

    transactional_id: str
    description: TransactionDescription | None
    verdict: Verdict

    @property
    def is_open(self) -> bool:
        """Return whether it can still be committed or aborted."""
        return self.description is not None and self.description.state is TransactionState.ONGOING

    @property
    def is_pending(self) -> bool:
        """Return whether it blocks readers: it is open, or its end is not yet written to all partitions."""
        return self.description is not None and self.description.state in PENDING


@dataclass(frozen=True)
class Result:
    """The result of `commit` or `abort` for one transaction.

    `end`: it is or will be ended; `none`: there is nothing to do; `refused`: it cannot or must not be ended.
    """

    kind: Literal["end", "none", "refused"]
    text: str


_NOT_KNOWN = Result(
    "refused", "refused: its coordinator does not know it; check the id (or transactional.id.expiration.ms has passed)"
)
_UNCLEAR = Result(
    "refused",
    "refused: the commit log is missing or empty, or does not show which cluster this is; check --commit-log and --cluster",
)


def plan_commit(transaction: TransactionView, *, force: bool) -> Result:
    """Return the result that `commit` aims at for a transaction; `force` also commits one that the log has not decided."""
    if transaction.verdict is Verdict.LOST and not (force and transaction.is_open):
        return Result("refused", "refused: the decided transaction timed out or was aborted, its rows are lost")
    if transaction.description is None:
        return _NOT_KNOWN
    if transaction.description.state in COMMITTED:
        return Result("none", "is committed already")
    if transaction.description.state in ABORTED:
        return Result("refused", "refused: it was aborted, or timed out")
    if not transaction.is_open:
        return Result("refused", "refused: there is no open transaction with this id")
    if transaction.verdict is Verdict.DECIDED or force:
        return Result("end", "commit")
    return (
        _UNCLEAR
        if transaction.verdict is Verdict.UNKNOWN
        else Result("refused", f"refused: {transaction.verdict}, according to the commit log")
    )


def plan_abort(transaction: TransactionView, *, force: bool) -> Result:
    """Return the result that `abort` aims at for a transaction; `force` also aborts one that the log may have decided."""
    if transaction.description is None:
        return _NOT_KNOWN
    if transaction.description.state in COMMITTED:
        return Result("refused", "refused: it is committed already")
    if not transaction.is_open:
        return Result("none", "is not open any more")
    if transaction.verdict in (Verdict.UNDECIDED, Verdict.LOST) or force:
        return Result("end", "abort")
    if transaction.verdict is Verdict.DECIDED:
        return Result("refused", "refused: decided; commit it instead, or start its query again")
    return _UNCLEAR


def this_cluster(
    properties: Mapping[str, str], clusters: Mapping[str, Mapping[str, str]], given: str | None
) -> str | None:
    """Return the name of this cluster in a decision.

    Names are the metadata service's, and brokers do not know them: it is the cluster with a broker in common.

    Returns:
        Its name; None if it is not clear.

    Raises:
        ConfigurationError: If the user's name belongs to another cluster.
    """
    here = addresses_of(properties)
    by_address = sorted(name for name, others in clusters.items() if here & addresses_of(others))
    if given is not None and by_address and given not in by_address:
        raise ConfigurationError(
            f"--cluster {given} is not the cluster at these brokers: the commit log calls it '{by_address[0]}'. Leave "
            "--cluster out, or give the brokers of the other cluster"
        )
    if given is not None:
        return given if given in clusters else None
    return by_address[0] if len(by_address) == 1 else None
