"""What the commit log says of a transaction, and what may be done about that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dynamic_kafka.cli.connection import ADDRESSES
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.transactions.client import (
    ABORTED,
    COMMITTED,
    PENDING,
    TransactionDescription,
    TransactionState,
)
from dynamic_kafka.sink.committer import outcome
from dynamic_kafka.sink.protocol import Chain, Outcome, State, Transaction

__all__ = ["Found", "LogView", "Step", "Verdict", "plan_abort", "plan_commit", "this_cluster"]


class Verdict(StrEnum):
    """What the commit log says of a transaction."""

    DECIDED = "decided"
    """Its batch is decided: it has to be committed, and nothing but that."""
    UNDECIDED = "not decided"
    """Nobody will ever commit it, unless its batch is still being written."""
    LOST = "decided and lost"
    """A decided transaction had this id, and is gone: it timed out, or was aborted."""
    UNKNOWN = "not known"
    """There is no commit log, or nothing in it; or it cannot be told which cluster a decision means."""
    OTHER_PREFIX = "other prefix"
    """It is none of the prefix that the log belongs to."""


@dataclass(frozen=True)
class LogView:
    """A commit log, as one cluster's transactions are compared with it.

    Args:
        topic: The topic.
        chain: Its head; None if there is no such topic.
        cluster: Which of the decision's clusters this one is; None if that cannot be told.
    """

    topic: str
    chain: Chain | None
    cluster: str | None = None

    @property
    def state(self) -> State | None:
        """What its head says; None if it says nothing."""
        return None if self.chain is None or self.chain.offset < 0 else self.chain.state

    @property
    def decided(self) -> tuple[Transaction, ...]:
        """The transactions that are decided and not finished, on all clusters."""
        state = self.state
        return state.transactions if state is not None and state.status == "decided" else ()

    @property
    def decided_here(self) -> tuple[Transaction, ...]:
        """Those of them that are on this cluster, as far as that can be told."""
        return tuple(t for t in self.decided if t.cluster == self.cluster)

    def verdict(self, transactional_id: str, description: TransactionDescription | None) -> Verdict:
        """What it says of an id's transaction.

        Args:
            transactional_id: An id of the log's prefix.
            description: What its coordinator says.
        """
        if self.state is None:
            return Verdict.UNKNOWN
        if self.cluster is None and any(t.transactional_id == transactional_id for t in self.decided):
            return Verdict.UNKNOWN
        outcomes = {outcome(t, description) for t in self.decided_here if t.transactional_id == transactional_id}
        if not outcomes:
            return Verdict.UNDECIDED
        return Verdict.DECIDED if outcomes & {Outcome.OPEN, Outcome.COMMITTED} else Verdict.LOST


@dataclass(frozen=True)
class Found:
    """A transactional id, and all that is known of it.

    Args:
        transactional_id: The id.
        description: What its coordinator says; None if it does not know it.
        verdict: What the commit log says.
    """

    transactional_id: str
    description: TransactionDescription | None
    verdict: Verdict

    @property
    def is_open(self) -> bool:
        """Whether it can still be ended one way or the other."""
        return self.description is not None and self.description.state is TransactionState.ONGOING

    @property
    def is_pending(self) -> bool:
        """Whether it is open, or its end is not written everywhere yet: it holds up readers."""
        return self.description is not None and self.description.state in PENDING


@dataclass(frozen=True)
class Step:
    """What becomes of a transaction.

    Args:
        kind: `end`: it is ended, or has been; `none`: nothing has to be done; `refused`: it cannot, or must not, be done.
        text: In words, as it reads after the id.
    """

    kind: Literal["end", "none", "refused"]
    text: str


_NOT_KNOWN = (
    "refused: its coordinator does not know it; check the id, or it was forgotten (transactional.id.expiration.ms)"
)


def plan_commit(found: Found, *, force: bool) -> Step:
    """What `commit` does with an id.

    Args:
        found: What is known of it.
        force: Whether to commit what the commit log has not decided.
    """
    if found.verdict is Verdict.LOST and not (force and found.is_open):
        return Step("refused", "refused: the decided transaction timed out or was aborted, its rows are lost")
    if found.description is None:
        return Step("refused", _NOT_KNOWN)
    if found.description.state in COMMITTED:
        return Step("none", "is committed already")
    if found.description.state in ABORTED:
        return Step("refused", "refused: it was aborted, or timed out")
    if not found.is_open:
        return Step("refused", "refused: nothing is open under this id")
    if found.verdict is Verdict.DECIDED or force:
        return Step("end", "commit")
    return Step("refused", f"refused: {found.verdict}, as far as the commit log tells")


def plan_abort(found: Found, *, force: bool) -> Step:
    """What `abort` does with an id.

    Args:
        found: What is known of it.
        force: Whether to abort what the commit log has decided, or may have.
    """
    if found.description is None:
        return Step("refused", _NOT_KNOWN)
    if found.description.state in COMMITTED:
        return Step("refused", "refused: it is committed already")
    if not found.is_open:
        return Step("none", "is not open any more")
    if found.verdict in (Verdict.UNDECIDED, Verdict.LOST) or force:
        return Step("end", "abort")
    if found.verdict is Verdict.DECIDED:
        return Step("refused", "refused: decided; commit it instead, or start its query again")
    return Step("refused", f"refused: {found.verdict} whether it is decided")


def this_cluster(
    properties: Mapping[str, str], clusters: Mapping[str, Mapping[str, str]], given: str | None
) -> str | None:
    """Which of a decision's clusters is the one that these properties lead to.

    It is the one with a broker in common: names are the metadata service's, and unknown to brokers.

    Args:
        properties: How this cluster is reached.
        clusters: The decision's clusters, as the commit log has them.
        given: The name that the user gave, for a cluster that is reached by other addresses here.

    Returns:
        Its name; None if it cannot be told.

    Raises:
        ConfigurationError: If the user's name is another cluster's.
    """
    here = _addresses(properties)
    by_address = sorted(name for name, others in clusters.items() if here & _addresses(others))
    if given is not None and by_address and given not in by_address:
        raise ConfigurationError(
            f"--cluster {given} is not the cluster at these brokers: the commit log calls it '{by_address[0]}'; leave "
            "--cluster out, or give the brokers of the other one"
        )
    if given is not None:
        return given if given in clusters else None
    return by_address[0] if len(by_address) == 1 else None


def _addresses(properties: Mapping[str, str]) -> frozenset[str]:
    text = ",".join(properties.get(name, "") for name in ADDRESSES)
    servers = (server.strip().rpartition("://")[2].lower() for server in text.split(","))
    return frozenset(server if ":" in server else f"{server}:9092" for server in servers if server)
