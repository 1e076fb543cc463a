"""The exactly-once protocol: the driver's requests, their order, and what follows from the answers. Pure.

The truth is a chain of states in a commit log, see `chain`: an append is a compare-and-swap.

Rules, each with what goes wrong without it (tests/model removes them one by one):

1. A batch is published only if a `decided` record names its transactions, and only after it counts. Else a zombie publishes.
2. Who writes a batch first *claims* a new generation; only the generation at the head can decide, once. Else a driver that
   wakes up decides a batch that another one has written again.
3. A decision that is not finished is finished before the next claim, by any driver. Else a decided batch is lost.
4. Abort only transactions that were seen open before a record of ours counted: they cannot belong to a later generation.
   Name them by producer id and epoch (EndTxn checks both). InitProducerId checks neither when a transaction is open: asked
   late, it would abort what another driver has decided. The end of a stopped query, which does not know its claim, takes the
   one at the head only if its own run has made it. Else it would end the batch of another run.
5. Before a decision each transaction is seen open, at its producer id and epoch, with time left on its clock. Else what
   timed out, or was aborted, is decided.
6. A transaction is published when the coordinator has it as committed, or about to be, at its producer id and epoch; an
   answer to EndTxn alone proves nothing. `finished` is written when all are. If the chain has moved on meanwhile, the batch
   is published only if the head says so and no decision on the same batch is open: it may be voided and written again.
7. One transaction for each producer id and epoch (see `transactional_ids`): a late EndTxn finds the one it was meant for,
   or none.
8. A batch that the chain has already is not published again; its new transactions are aborted. A batch that is neither
   the same, with as many rows, nor the next one of its query is an error: the checkpoint was rewound, copied, or belongs to
   another log. See `identity`. In one batch of a run each identity is written once: a second write is an error, also after a
   repetition.
9. The user's word to go on after an error names the batch, is good for that batch only, and leaves a warning.

Each function here is a generator: it yields an `Effect`, is sent the answer, and returns its result. `committer` runs it
against Kafka; the model checker runs it against every order of events.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from dynamic_kafka.errors import ConfigurationError, LostTransactionsError, ProducerFencedError, TransactionError
from dynamic_kafka.sink.log.chain import (
    REMEMBERED,
    Chain,
    Record,
    State,
    Transaction,
    decided_state,
    finished_state,
    next_generation,
    voided_state,
)
from dynamic_kafka.sink.log.identity import Identity, Place, Published, place

__all__ = [
    "Abort",
    "Append",
    "Batch",
    "Claim",
    "Describe",
    "Effect",
    "End",
    "ListOpen",
    "ObservedTransaction",
    "Outcome",
    "ReadLog",
    "TransactionPolicy",
    "Wait",
    "Warn",
    "abandon",
    "claim",
    "commit",
]

_ATTEMPTS = 10
_LOOKS = 10  # at the coordinators, with pauses of 11 s together


class Outcome(StrEnum):
    """The outcome of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    ENDING = "ending"
    """Its time-out is about to abort it, so the end is still open. Describe it again later."""
    UNKNOWN = "unknown"
    """The coordinator does not know the transactional id any more, or the id has been used again since."""


class ObservedTransaction(NamedTuple):
    """A transaction as its coordinator describes it now. `left_ms` is the time until the broker aborts an open one."""

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
    """The open transactions of the prefix, on all clusters; the answer is a tuple of `Transaction`.

    The answer may lack some: then readers wait for them longer, but nothing is lost.
    """


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


class Warn(NamedTuple):
    """Tell the user something that is no error."""

    text: str


Effect = ReadLog | Append | ListOpen | Describe | End | Abort | Wait | Warn


@dataclass(frozen=True)
class TransactionPolicy:
    """The user's choices. Each word that lets a batch go on after an error names the batch.

    Args:
        accept_gaps: The batch to publish although it is not the next one.
        skip_batch: The batch to leave out although not all of its rows may be published.
        lost_transactions: What to do with a decided batch of which transactions are gone, and which batch that is:
            `continue` takes it for published, `rewrite` for not published.
        least_left_ms: An open transaction with less time than this is not decided.
    """

    accept_gaps: int | None = None
    skip_batch: int | None = None
    lost_transactions: tuple[Literal["continue", "rewrite"], int] | None = None
    least_left_ms: int = 5_000


@dataclass(frozen=True)
class Batch:
    """A batch after its tasks.

    `rows` is their number, whether they were written or only counted. `transactions` are those that its tasks have prepared,
    and `clusters` facts to recognize their clusters by; see `State`. `run` is the run of a streaming query whose
    `foreachBatch` writes it, and the batch of that query; "" if there is none.
    """

    identity: Identity
    rows: int = 0
    transactions: tuple[Transaction, ...] = ()
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    run: str = ""


@dataclass(frozen=True)
class Claim:
    """A generation that this driver has claimed of a chain, given by its name.

    `applied` is True if the batch is already published, so that its rows need only be counted; False if its identity was not
    given. `claimed_at_ms` is by a clock of the driver's machine that nobody sets (`committer.uptime_ms`). No transaction of
    the batch is older.
    """

    chain: str
    generation: int
    applied: bool = False
    claimed_at_ms: int = field(default=0, compare=False)


# --- the three things a driver does ---


def claim(
    name: str,
    identity: Identity | None,
    policy: TransactionPolicy,
    places: tuple[str, ...] = (),
    owner: str = "",
) -> Generator[Effect, Any, Claim]:
    """Before the tasks of a batch: finish what is decided, claim a generation, abort what is left open.

    `name` is a random one for the records. The identity is given if it is known before the batch is written. `places` and
    `owner` are those of `State`.

    Raises:
        CheckpointError: If the batch is known and not the next one.
        LostTransactionsError: If decided transactions are gone.
        ProducerFencedError: If the claim kept losing races to other writers.
    """
    for attempt in range(_ATTEMPTS):
        chain: Chain = yield ReadLog()
        if chain.state.status == "decided":
            _, closed = yield from _publish(chain, policy)
            if closed is not None:
                yield from _append(chain, f"{name}.{attempt}.finish", closed)
            continue
        applied = identity is not None and _place(chain.state, identity, policy).kind == "repeated"
        left_open = yield ListOpen()  # before the claim: rule 4
        state = replace(next_generation(chain.state, name, owner), places=places or chain.state.places)
        if (yield from _append(chain, f"{name}.{attempt}", state)) is not None:
            if left_open:
                yield Abort(left_open)
            return Claim(state.chain, state.generation, applied)
    raise ProducerFencedError(
        "Another query claims the same transactional id prefix again and again; give each query a prefix of its own"
    )


def commit(
    name: str, claimed: Claim, batch: Batch, policy: TransactionPolicy
) -> Generator[Effect, Any, Literal["published", "repeated"]]:
    """After the tasks of a batch: decide, and publish. `name` is a random one for the records.

    Returns:
        "repeated" if the batch was published before, and the new transactions are aborted.

    Raises:
        ProducerFencedError: If the generation is not the last one any more. Nothing was published.
        CheckpointError: If the batch is not the next one. Nothing was published.
        TransactionError: If a transaction cannot be committed any more. Nothing was published.
        LostTransactionsError: If decided transactions were gone when they had to be published.
    """
    chain: Chain = yield ReadLog()
    head, prepared = chain.state, batch.transactions
    if (head.chain, head.generation, head.status) != (claimed.chain, claimed.generation, "owned"):
        raise _fenced(claimed, head)
    found = _place(head, batch.identity, policy, batch)
    if found.warning:
        yield Warn(found.warning)
    if found.kind == "repeated":
        # The run is noted before anything is dropped: another write of it is not taken for a repetition, too (rule 8).
        noted = _by_run(finished_state(head), batch)
        if batch.run and (yield from _append(chain, name, noted)) is None:
            overtaken: Chain = yield ReadLog()
            raise _fenced(claimed, overtaken.state)
        if prepared:
            yield Abort(prepared)
        return "repeated"
    decided, forgotten = _decided(head, batch, accepted=found.accepted)
    if forgotten:
        yield Warn(_forgets(forgotten))
    if batch.identity.consecutive and batch.identity.name not in {*head.applied, head.identity} and head.identity:
        yield Warn(_shares(batch.identity, head))
    if prepared:
        _check_open(prepared, (yield Describe(prepared)), policy)
        decision = yield from _append(chain, name, decided)
    else:
        decision = yield from _close(chain, name, _by_run(finished_state(decided), batch), ())
    if decision is None:
        again: Chain = yield ReadLog()
        raise _fenced(claimed, again.state)
    if prepared:
        fate, closed = yield from _publish(decision, policy)
        if closed is not None:
            yield from _close(decision, f"{name}.finish", _by_run(closed, batch), prepared)
        _check_fate(fate, batch.identity)
    return "published"


def abandon(name: str, claimed: Claim | str) -> Generator[Effect, Any, Claim | None]:
    """After a batch has failed or was stopped: abort what its tasks have left open, unless a decision may name it.

    A claim of its own comes in between, so that no decision of this generation can count any more.

    Args:
        name: A random name for the records.
        claimed: The claim of the batch. A process that no task has told of it gives the run instead: if that has made the
            claim at the head, it is the one.

    Returns:
        The new claim, for another call: a task that is being killed may still begin a transaction. None if another driver
        has taken over; its `claim` has aborted them, or its next one will.
    """
    chain: Chain = yield ReadLog()
    head = chain.state
    if isinstance(claimed, str):
        if not claimed or claimed != head.owner:  # a run that cannot be told from others has no claim
            return None
        claimed = Claim(head.chain, head.generation)
    if (head.chain, head.generation, head.status) != (claimed.chain, claimed.generation, "owned"):
        return None
    left_open = yield ListOpen()  # before the claim: rule 4
    if (yield from _append(chain, name, next_generation(head, name))) is None:
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


def _close(chain: Chain, name: str, state: State, ours: Sequence[Transaction]) -> Generator[Effect, Any, Chain | None]:
    """Append the state after a batch, as `_append` does, and abort what dead attempts at the batch have left open.

    Else readers would wait for it until the next claim.
    """
    left_open: Sequence[Transaction] = yield ListOpen()  # before the record: rule 4
    closed = yield from _append(chain, name, state)
    if closed is not None and (dead := tuple(t for t in left_open if t not in ours)):
        yield Abort(dead)
    return closed


_Fate = Literal["published", "voided", "unknown"]


def _publish(decision: Chain, policy: TransactionPolicy) -> Generator[Effect, Any, tuple[_Fate, State | None]]:
    """Publish what was decided.

    Returns:
        `voided` if nothing of it can be published any more, `unknown` if another driver has taken it over and the log does
        not contain that it is published; and the state that has to be appended, if no other driver has done so.
    """
    state = decision.state
    pending = state.transactions
    for attempt in range(_LOOKS):
        if pending:
            yield End(pending)
        seen: Sequence[ObservedTransaction] = yield Describe(state.transactions)
        outcomes = dict(zip(state.transactions, (s.outcome for s in seen), strict=True))
        pending = tuple(t for t, outcome in outcomes.items() if outcome is Outcome.OPEN)
        found = set(outcomes.values())
        if not found <= {Outcome.OPEN, Outcome.COMMITTED}:
            now: Chain = yield ReadLog()
            if now.offset != decision.offset:  # another driver has finished it, and its ids are in use again
                return ("published" if _is_published(state, now.state) else "unknown"), None
        if found <= {Outcome.COMMITTED, Outcome.ABORTED}:
            break
        yield Wait(attempt)  # also for what is unknown: a coordinator that was replaced may answer
    else:
        if unsettled := [t for t, outcome in outcomes.items() if outcome in (Outcome.OPEN, Outcome.ENDING)]:
            raise TransactionError(
                f"Batch {state.batch} is decided, and the coordinators have not committed {_names(unsettled)} yet; start "
                "the query again, which finishes it"
            )
    lost = {t: outcome for t, outcome in outcomes.items() if outcome is not Outcome.COMMITTED}
    if not lost:
        return "published", finished_state(state)
    if all(outcome is Outcome.ABORTED for outcome in outcomes.values()):
        return "voided", voided_state(state)
    if policy.lost_transactions is None or policy.lost_transactions[1] != state.batch:
        raise LostTransactionsError(
            state.batch, {t.transactional_id: f"{t.cluster}, {outcome}" for t, outcome in lost.items()}, len(outcomes)
        )
    word, number = policy.lost_transactions
    what = "is written again" if word == "rewrite" else "counts as published"
    yield Warn(
        f"sink.lost-transactions={word}:{number}: batch {number} {what}, although {_names(lost)} cannot be committed any "
        "more. The option is not needed any more"
    )
    return ("voided", voided_state(state)) if word == "rewrite" else ("published", finished_state(state))


def _is_published(decided: State, now: State) -> bool:
    """Return whether the log shows that another driver has published a batch that was decided before (rule 6)."""
    name = decided.identity
    is_open = now.status == "decided" and now.identity == name
    is_same = now.applied.get(name) == decided.batch and now.rows.get(name) == decided.rows.get(name)
    return bool(name) and not is_open and is_same


def _check_fate(fate: _Fate, identity: Identity) -> None:
    """Raise if a batch that was decided is not known to be published."""
    if fate == "published":
        return
    if fate == "voided":
        raise TransactionError(
            f"Batch {identity.batch} counts as not published: its transactions timed out or were aborted after the "
            "decision. Start the query again, which writes the batch again"
        )
    if identity.name:
        raise ProducerFencedError(
            f"Batch {identity.batch}: another run of this query took over after the batch was decided, and publishes it or "
            "writes it again. Let only one of the runs go on"
        )
    raise TransactionError(
        "Another query with the same transactional id prefix took over while this write was published; it is published as "
        "a whole or not at all. Give each writer a prefix of its own, and txnAppId and txnVersion so that it can be repeated"
    )


def _place(head: State, identity: Identity, policy: TransactionPolicy, batch: Batch | None = None) -> Place:
    """Return the place of a batch; `batch` is given when its tasks have run (rule 8)."""
    name, last = identity.name, None
    if name in head.applied:
        last = Published(head.applied[name], head.rows.get(name), head.runs.get(name), name in head.accepted)
    accept, skip = policy.accept_gaps, policy.skip_batch
    if batch is None:
        return place(identity, last, accept=accept, skip=skip)
    return place(identity, last, accept=accept, skip=skip, rows=batch.rows, run=batch.run)


def _decided(head: State, batch: Batch, *, accepted: bool) -> tuple[State, str]:
    """Return the state that decides a batch, and the name of the identity that it does not remember any more, or "".

    Raises:
        ConfigurationError: If the same batch of a run would forget what it has just published.
    """
    decided = decided_state(head, batch.identity, batch.rows, batch.transactions, batch.clusters, accepted=accepted)
    forgotten = next((name for name in head.applied if name not in decided.applied), "")
    if batch.run and head.runs.get(forgotten) == batch.run:
        raise ConfigurationError(
            f"A batch of the query is written with more than {REMEMBERED} identities (txnAppId and sink.name) under one "
            "prefix. The commit log does not remember more, so the batch could not be repeated. Give some of its sinks a "
            "sink.transactional-id-prefix of their own"
        )
    return decided, forgotten


def _by_run(state: State, batch: Batch) -> State:
    """Return a finished state with the run that has finished it, so that a second write of the same run is noticed."""
    if not batch.run or not batch.identity.name or state.status != "finished":
        return state
    return replace(state, runs={**state.runs, batch.identity.name: batch.run})


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


# --- words ---


def _fenced(claimed: Claim, head: State) -> ProducerFencedError:
    return ProducerFencedError(
        f"Generation {claimed.generation} of the transactional id prefix was superseded (now {head.generation}): another "
        "run of this query, another query with the same prefix, or `dynamic-kafka transactions abort` took over. This run "
        "has published nothing of the batch. Let only one run of a query go on. Give each query its own "
        "sink.transactional-id-prefix; a query with a checkpoint then needs sink.accept-gaps for its next batch, see "
        "'Queries that share a prefix' in docs/explanations/exactly-once.md"
    )


def _shares(identity: Identity, head: State) -> str:
    return (
        f"The transactional id prefix was last used by '{head.identity}' (batch {head.batch}), and is now used by "
        f"{identity}. If that query is to go on, give each of the two its own sink.transactional-id-prefix"
    )


def _forgets(name: str) -> str:
    return (
        f"The commit log remembers {REMEMBERED} identities (queries, or txnAppId and sink.name), and forgets '{name}' now. "
        "If its last batch is written again, it is published again. Use fewer identities under one prefix"
    )


def _names(transactions: Iterable[Transaction]) -> str:
    return ", ".join(f"'{t.transactional_id}' on cluster '{t.cluster}'" for t in transactions)
