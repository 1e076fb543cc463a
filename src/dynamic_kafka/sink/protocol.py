"""The exactly-once protocol: the driver's requests, their order, and what follows from the answers. Pure.

The truth is a *commit log*, a topic of one partition. Its records form a chain: each one carries the whole state and the
offset of the record it follows, and counts only if that one is the chain's head where it stands in the log. So every reader
comes to the same chain, an append is a compare-and-swap, and repeating one is harmless.

Rules, each with what goes wrong without it (tests/model removes them one by one):

1. A batch is published only if a `decided` record names its transactions, and only after it counts. Else a zombie publishes.
2. Who writes a batch first *claims* a new generation; only the generation at the head can decide, once. Else a driver that
   wakes up decides a batch that another one has written again.
3. A decision that is not finished is finished before the next claim, by any driver. Else a decided batch is lost.
4. Abort only transactions that were seen open before our claim counted: they cannot belong to a later generation. Name them
   by producer id and epoch (EndTxn checks both).
   InitProducerId checks neither when a transaction is open: asked late, it would abort what another driver has decided.
5. Before a decision each transaction is seen open, at its producer id and epoch, with time left on its clock. Else what
   timed out, or was aborted, is decided.
6. A transaction is published when the coordinator has it as committed, or about to be, at its producer id and epoch; an
   answer to EndTxn alone proves nothing. `finished` is written when all are.
7. One transaction for each producer id and epoch (see `transactional_ids`): a late EndTxn finds the one it was meant for,
   or none.
8. A batch that the chain has already is not published again; its new transactions are aborted. A batch that is neither
   the same nor the next one of its query is an error: the checkpoint was rewound, copied, or belongs to another log.

Each function here is a generator: it yields an `Effect`, is sent the answer, and returns its result. `committer` runs it
against Kafka; the model checker runs it against every order of events.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from dynamic_kafka.errors import CheckpointError, LostTransactionsError, ProducerFencedError, TransactionError

__all__ = [
    "Abort",
    "Append",
    "Chain",
    "Claim",
    "Describe",
    "Effect",
    "End",
    "Identity",
    "ListOpen",
    "ObservedTransaction",
    "Outcome",
    "ReadLog",
    "Record",
    "State",
    "Transaction",
    "TransactionPolicy",
    "Wait",
    "abandon",
    "claim",
    "commit",
    "follow",
]

_APPLIED = 100  # batch identities that a state remembers
_RECENT = 100  # records that a chain remembers by name, for those who appended them
_ATTEMPTS = 10


class Transaction(NamedTuple):
    """The full name of a transaction in Kafka."""

    cluster: str
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class State:
    """The state of the chain at one record.

    Args:
        chain: A random name, given with the first claim: another log is another chain.
        generation: The number of claims so far.
        status: The status of the last batch. `owned`: claimed, nothing decided since.
        identity: The name of the identity of the batch that was decided last; see `Identity`.
        batch: The number of that batch.
        transactions: Its transactions, while they are not finished.
        clusters: The properties to reach their clusters, without secrets.
        applied: The last published batch of each identity, the most recent one last.
    """

    chain: str = ""
    generation: int = 0
    status: Literal["owned", "decided", "finished", "voided"] = "finished"
    identity: str = ""
    batch: int = -1
    transactions: tuple[Transaction, ...] = ()
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    applied: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """A record of the commit log.

    Args:
        name: Random; a repeated append has the same one.
        follows: The offset of the record it follows; -1 for the first one.
        state: The state from here on, if the record counts.
    """

    name: str
    follows: int
    state: State


@dataclass(frozen=True)
class Chain:
    """The head of the chain.

    Args:
        offset: Its offset in the log; -1 if the log is empty.
        state: Its state.
        recent: The offsets of the last records that counted, by name, as far as they were read.
    """

    offset: int = -1
    state: State = field(default_factory=State)
    recent: Mapping[str, int] = field(default_factory=dict)


def follow(chain: Chain, offset: int, record: Record, *, first: bool) -> Chain:
    """Return the chain after one more record of the log.

    Args:
        chain: The chain before.
        offset: The record's offset.
        record: The record.
        first: True for the first record left in the log. Trimming ends at a head, so that one always counts.
    """
    if record.follows != chain.offset and not (first and offset > 0):
        return chain
    return Chain(offset, record.state, dict([*chain.recent.items(), (record.name, offset)][-_RECENT:]))


class Outcome(StrEnum):
    """The outcome of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The coordinator does not know the transactional id any more, or the id has been used again since."""


class ObservedTransaction(NamedTuple):
    """A transaction as its coordinator describes it now.

    Args:
        outcome: Its outcome.
        left_ms: For an open one, the time until the broker aborts it.
        timeout_ms: Its time-out.
    """

    outcome: Outcome
    left_ms: int = 0
    timeout_ms: int = 0


# --- effects: what is asked of the world ---


class ReadLog(NamedTuple):
    """Read the log to its end; the answer is a `Chain`. A log that does not answer is an error, never an empty one."""


class Append(NamedTuple):
    """Append a record; no answer is trusted, the log is read again."""

    record: Record


class ListOpen(NamedTuple):
    """All open transactions of the prefix, on all clusters; the answer is a tuple of `Transaction`."""


class Describe(NamedTuple):
    """Look at transactions; the answer is a `ObservedTransaction` for each."""

    transactions: tuple[Transaction, ...]


class End(NamedTuple):
    """Ask for commits, by producer id and epoch; the answers are not trusted."""

    transactions: tuple[Transaction, ...]


class Abort(NamedTuple):
    """Ask for aborts, by producer id and epoch."""

    transactions: tuple[Transaction, ...]


class Wait(NamedTuple):
    """Give a coordinator a moment; an error if there were too many."""

    attempt: int


Effect = ReadLog | Append | ListOpen | Describe | End | Abort | Wait


@dataclass(frozen=True)
class TransactionPolicy:
    """The user's choices.

    Args:
        accept_gaps: Publish a batch although the chain does not know the one before it.
        lost_transactions: `fail` if decided transactions that are gone are an error, `continue` for a warning.
        least_left_ms: An open transaction with less time than this is not decided.
    """

    accept_gaps: bool = False
    lost_transactions: Literal["fail", "continue"] = "fail"
    least_left_ms: int = 5_000


@dataclass(frozen=True)
class Identity:
    """The identity of a batch.

    Args:
        name: The query's id, or `txnAppId`; "" for a batch write without one, which is never a repetition.
        batch: The batch's number, or `txnVersion`.
        consecutive: True if the numbers have no gaps, as those of a streaming query.
    """

    name: str
    batch: int
    consecutive: bool = True


@dataclass(frozen=True)
class Claim:
    """A generation that this driver has claimed.

    Args:
        chain: The chain's name.
        generation: The generation; 0 if nothing has to be written.
        applied: True if the batch is already published; False if its identity was not given.
    """

    chain: str
    generation: int
    applied: bool = False


# --- the three things a driver does ---


def claim(name: str, identity: Identity | None, policy: TransactionPolicy) -> Generator[Effect, Any, Claim]:
    """Before the tasks of a batch: finish what is decided, claim a generation, abort what is left open.

    Args:
        name: A random name for the records.
        identity: The batch, if that is known before it is written.
        policy: The user's choices.

    Raises:
        LostTransactionsError: If decided transactions are gone.
        ProducerFencedError: If the claim kept losing races to other writers.
    """
    for attempt in range(_ATTEMPTS):
        chain: Chain = yield ReadLog()
        if chain.state.status == "decided":
            yield from _finish(chain, f"{name}.{attempt}.finish", policy)
            continue
        if identity is not None and not identity.consecutive and _is_applied(chain.state, identity):
            return Claim(chain.state.chain, 0, applied=True)
        left_open = yield ListOpen()  # before the claim: rule 4
        state = replace(
            chain.state,
            chain=chain.state.chain or name,
            generation=chain.state.generation + 1,
            status="owned",
            transactions=(),
            clusters={},
        )
        if (yield from _append(chain, f"{name}.{attempt}", state)) is not None:
            if left_open:
                yield Abort(left_open)
            return Claim(state.chain, state.generation)
    raise ProducerFencedError(
        "Another query claims the same transactional id prefix again and again; give each query a prefix of its own"
    )


def commit(  # noqa: PLR0917
    name: str,
    claimed: Claim,
    identity: Identity,
    transactions: Sequence[Transaction],
    clusters: Mapping[str, Mapping[str, str]],
    policy: TransactionPolicy,
) -> Generator[Effect, Any, Literal["published", "repeated"]]:
    """After the tasks of a batch: decide, and publish.

    Args:
        name: A random name for the records.
        claimed: The claim made before the tasks began.
        identity: The batch.
        transactions: The transactions that the tasks have prepared.
        clusters: The properties to reach their clusters, without secrets; kept in the log until they are finished.
        policy: The user's choices.

    Returns:
        "repeated" if the batch was published before, and the new transactions are aborted.

    Raises:
        ProducerFencedError: If the generation is not the last one any more. Nothing was published.
        CheckpointError: If the batch is not the next one. Nothing was published.
        TransactionError: If a transaction cannot be committed any more. Nothing was published.
        LostTransactionsError: If decided transactions were gone when they had to be published.
    """
    chain: Chain = yield ReadLog()
    head = chain.state
    if (head.chain, head.generation, head.status) != (claimed.chain, claimed.generation, "owned"):
        raise _fenced(claimed, head)
    if _is_applied(head, identity):
        if transactions:
            yield Abort(tuple(transactions))
        return "repeated"
    _check_next(head, identity, policy)
    prepared = tuple(transactions)
    decided = replace(
        head,
        status="decided" if prepared else "finished",
        identity=identity.name,
        batch=identity.batch,
        transactions=prepared,
        clusters=clusters if prepared else {},
        applied=_with_applied(head.applied, identity),
    )
    if prepared:
        _check_open(prepared, (yield Describe(prepared)), policy)
    left_open = yield ListOpen()  # by attempts that died; before the decision: rule 4
    decision = yield from _append(chain, name, decided)
    if decision is None:
        again: Chain = yield ReadLog()
        raise _fenced(claimed, again.state)
    if prepared:
        voided = yield from _finish(decision, f"{name}.finish", policy)
        if voided is None:
            raise TransactionError(
                "Another query with the same transactional id prefix took over while this write was published; it is "
                "published as a whole or not at all. Give each writer a prefix of its own, and txnAppId and txnVersion so "
                "that it can be repeated"
            )
        if voided:
            raise TransactionError(
                f"Batch {identity.batch}: all its transactions timed out or were aborted after the decision; nothing of it "
                "is published. Start the query again: the batch is written again"
            )
    if dead := tuple(t for t in left_open if t not in prepared):
        yield Abort(dead)  # readers would wait for them until the next claim
    return "published"


def abandon(name: str, claimed: Claim) -> Generator[Effect, Any, Claim | None]:
    """After a batch has failed: abort what its tasks have left open, unless a decision may name it.

    A claim of its own comes in between, so that no decision of this generation can count any more.

    Returns:
        The new claim, for another call: a task that is being killed may still begin a transaction. None if another driver
        has taken over; its `claim` has aborted them, or its next one will.
    """
    chain: Chain = yield ReadLog()
    head = chain.state
    if (head.chain, head.generation, head.status) != (claimed.chain, claimed.generation, "owned"):
        return None
    left_open = yield ListOpen()  # before the claim: rule 4
    if (yield from _append(chain, name, replace(head, generation=head.generation + 1))) is None:
        return None
    if left_open:
        yield Abort(left_open)
    return Claim(head.chain, head.generation + 1)


# --- their parts ---


def _append(chain: Chain, name: str, state: State) -> Generator[Effect, Any, Chain | None]:
    """Append a state. Return the chain with it at its head; None if it does not count. More records may follow already."""
    yield Append(Record(name, chain.offset, state))
    after: Chain = yield ReadLog()
    return Chain(after.recent[name], state) if name in after.recent else None


def _finish(decision: Chain, name: str, policy: TransactionPolicy) -> Generator[Effect, Any, bool | None]:
    """Publish what was decided.

    Returns:
        True if it was voided instead, because nothing of it can be published any more. None if that is not known: another
        driver has finished it, and it has no identity to recognize it by.
    """
    state = decision.state
    pending = state.transactions
    for attempt in range(_ATTEMPTS):
        yield End(pending)
        seen: Sequence[ObservedTransaction] = yield Describe(state.transactions)
        outcomes = dict(zip(state.transactions, (s.outcome for s in seen), strict=True))
        pending = tuple(t for t, outcome in outcomes.items() if outcome is Outcome.OPEN)
        if not pending:
            break
        yield Wait(attempt)
    else:
        raise TransactionError(
            f"Batch {state.batch} is decided, and the coordinators have not committed {_names(pending)} yet; start the "
            "query again, which finishes it"
        )
    lost = {t: outcome for t, outcome in outcomes.items() if outcome is not Outcome.COMMITTED}
    if lost:
        now: Chain = yield ReadLog()
        if now.offset != decision.offset:  # another driver has finished it, and its ids are in use again
            return _was_voided(state, now.state)
    voided = bool(lost) and all(outcome is Outcome.ABORTED for outcome in outcomes.values())
    if lost and not voided and policy.lost_transactions == "fail":
        raise LostTransactionsError(
            state.batch, {t.transactional_id: f"{t.cluster}, {outcome}" for t, outcome in lost.items()}, len(outcomes)
        )
    after = replace(state, status="voided" if voided else "finished", transactions=(), clusters={})
    if voided:
        after = replace(after, applied=_without(state))
    yield from _append(decision, name, after)  # if it does not count, another driver has finished it
    return voided


def _was_voided(decided: State, now: State) -> bool | None:
    return now.applied.get(decided.identity, -1) < decided.batch if decided.identity else None


def _is_applied(state: State, identity: Identity) -> bool:
    last = state.applied.get(identity.name) if identity.name else None
    if last is None:
        return False
    return identity.batch == last if identity.consecutive else identity.batch <= last


def _check_next(state: State, identity: Identity, policy: TransactionPolicy) -> None:
    """Raise if the batch is not the next one (rule 8)."""
    if not identity.consecutive or policy.accept_gaps:
        return
    last = state.applied.get(identity.name, -1)
    if identity.batch == last + 1:
        return
    if identity.name not in state.applied:
        what = (
            "and the commit log does not contain an earlier batch of this query: the prefix, the log or its cluster was "
            "changed"
        )
    elif identity.batch < last:
        what = f"and batch {last} is published already: the checkpoint was rewound, or is a copy of another query's"
    else:
        what = f"and the last one published is {last}: batches between them were written somewhere else"
    raise CheckpointError(
        f"Batch {identity.batch} of query {identity.name} cannot be published exactly once, {what}. Nothing of it is "
        "published; use the right checkpoint and prefix, or set sink.accept-gaps=true for one start to go on from here"
    )


def _check_open(
    transactions: Iterable[Transaction], seen: Iterable[ObservedTransaction], policy: TransactionPolicy
) -> None:
    """Raise if a transaction is not open or has too little time left (rule 5)."""
    for transaction, now in zip(transactions, seen, strict=True):
        if now.outcome is not Outcome.OPEN:
            raise TransactionError(
                f"Cluster '{transaction.cluster}': transaction '{transaction.transactional_id}' is {now.outcome} before the "
                "batch was decided: it timed out, or another program aborted it. Nothing of the batch is published; start "
                "the query again, with a longer transaction.timeout.ms or smaller batches",
                cluster_id=transaction.cluster,
            )
        if now.left_ms < policy.least_left_ms:
            raise TransactionError(
                f"Cluster '{transaction.cluster}': transaction '{transaction.transactional_id}' has {now.left_ms} ms left "
                f"of its {now.timeout_ms} ms (transaction.timeout.ms), too little to commit it safely. Nothing of the batch "
                "is published; use a longer transaction.timeout.ms (and transaction.max.timeout.ms of the brokers) or "
                "smaller batches, and start the query again",
                cluster_id=transaction.cluster,
            )


def _with_applied(applied: Mapping[str, int], identity: Identity) -> dict[str, int]:
    if not identity.name:
        return dict(applied)
    kept = {name: batch for name, batch in applied.items() if name != identity.name}
    return dict(list(kept.items())[-(_APPLIED - 1) :]) | {identity.name: identity.batch}


def _without(state: State) -> dict[str, int]:
    """Return the published batches without the one that is voided now."""
    others = {name: batch for name, batch in state.applied.items() if name != state.identity}
    return others | ({state.identity: state.batch - 1} if state.identity and state.batch > 0 else {})


def _fenced(claimed: Claim, head: State) -> ProducerFencedError:
    return ProducerFencedError(
        f"Generation {claimed.generation} of the transactional id prefix was superseded (now {head.generation}): another "
        "run of this query, or a query with the same prefix, took over; give each query its own "
        "sink.transactional-id-prefix. This run has published nothing of the batch"
    )


def _names(transactions: Iterable[Transaction]) -> str:
    return ", ".join(f"'{t.transactional_id}' on cluster '{t.cluster}'" for t in transactions)
