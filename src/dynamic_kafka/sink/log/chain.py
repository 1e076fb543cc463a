"""The chain of states in a commit log, a topic of one partition, and the steps from one state to the next. Pure.

Each record of the log carries a whole state and the offset of the record it follows, and counts only if that one is the
chain's head where it stands in the log. So every reader comes to the same chain, an append is a compare-and-swap, and
repeating one is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from dynamic_kafka.sink.log.identity import Identity

__all__ = [
    "REMEMBERED",
    "Chain",
    "Record",
    "State",
    "Transaction",
    "decided_state",
    "finished_state",
    "follow",
    "next_generation",
    "voided_state",
]

REMEMBERED = 100
"""The number of identities that a state remembers."""

_RECENT = 100  # records that a chain remembers by name, for those who appended them


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
        owner: The run of a stream that made the last claim, where its end may have to find it again; else "".
        status: The status of the last batch. `owned`: claimed, nothing decided since.
        identity: The name of the identity of the batch that was decided last; see `Identity`.
        batch: The number of that batch.
        transactions: Its transactions, while they are not finished.
        clusters: Their clusters as the driver that decided knew them, by name: `cluster.id` and `bootstrap.servers`. They
            serve to find the clusters in today's metadata; no connection is made from them.
        applied: The last published batch of each identity, the most recent one last.
        rows: The number of its rows, by identity; absent after the batch that followed it was voided.
        runs: The run of a streaming query that published it, by identity; see `Batch`.
        accepted: The identities of which the last batch was published because of `sink.accept-gaps`.
        places: Where the log has been, the last one is where it is now: Kafka's cluster.id, `/` and the topic. Each record
            has one at least.
        before: While a batch is decided: the batch of its identity that was published last, -1 if there is none. None says
            that it is the number before, as in a streaming query.
    """

    chain: str = ""
    generation: int = 0
    status: Literal["owned", "decided", "finished", "voided"] = "finished"
    identity: str = ""
    batch: int = -1
    transactions: tuple[Transaction, ...] = ()
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    applied: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    before: int | None = None
    owner: str = ""


@dataclass(frozen=True)
class Record:
    """A record of the commit log.

    The name is random, and a repeated append has the same one. `follows` is the offset of the record it follows, -1 for the
    first one. The state is that from here on, if the record counts.
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
        base: The offset of the trimmed record that the chain begins after; -1 if it begins with the log.
    """

    offset: int = -1
    state: State = field(default_factory=State)
    recent: Mapping[str, int] = field(default_factory=dict)
    base: int = -1


def follow(chain: Chain, offset: int, record: Record, *, start: int) -> Chain:
    """Return the chain after one more record of the log, which begins at the offset `start`.

    Trimming leaves no record that follows another one, so a chain begins with a record that follows a trimmed one. Normally
    that is the first record left. But a broker that dies right after trimming may begin the log anywhere later: then records
    that lost against others are left, too. Of all that follow trimmed records, the one after the latest of them counts.
    """
    begins = chain.base < record.follows < start
    if record.follows != chain.offset and not begins:
        return chain
    recent = dict([*chain.recent.items(), (record.name, offset)][-_RECENT:])
    return Chain(offset, record.state, recent, record.follows if begins else chain.base)


def next_generation(state: State, name: str, owner: str = "") -> State:
    """Return the state that claims the next generation; `name` is the chain's, if it has none."""
    return replace(
        state,
        owner=owner,
        chain=state.chain or name,
        generation=state.generation + 1,
        status="owned",
        transactions=(),
        clusters={},
    )


def decided_state(
    state: State,
    identity: Identity,
    rows: int,
    transactions: tuple[Transaction, ...],
    clusters: Mapping[str, Mapping[str, str]],
    *,
    accepted: bool,
) -> State:
    """Return the state that decides a batch. It forgets the identity that was used longest ago, if there are too many."""
    name = identity.name
    applied = {other: last for other, last in state.applied.items() if other != name}
    if name:
        applied = dict(list(applied.items())[-(REMEMBERED - 1) :]) | {name: identity.batch}
    known = {other: number for other, number in state.rows.items() if other in applied}
    before = None
    if name and not identity.consecutive and not accepted:
        last = state.applied.get(name, -1)
        before = last if last != identity.batch - 1 else None
    return replace(
        state,
        status="decided",
        identity=name,
        batch=identity.batch,
        transactions=transactions,
        clusters=clusters,
        applied=applied,
        rows=known | {name: rows} if name else known,
        runs={other: run for other, run in state.runs.items() if other in applied and other != name},
        accepted=(*(other for other in state.accepted if other in applied and other != name), *((name,) * accepted)),
        before=before,
    )


def finished_state(state: State) -> State:
    """Return the state after a decision that is published."""
    return replace(state, status="finished", transactions=(), clusters={}, before=None)


def voided_state(state: State) -> State:
    """Return the state after a decision of which nothing is published: its batch is the next one again."""
    applied, rows = ({n: v for n, v in known.items() if n != state.identity} for known in (state.applied, state.rows))
    last = state.batch - 1 if state.before is None else state.before
    if state.identity and last >= 0:
        applied[state.identity] = last
    return replace(
        state,
        status="voided",
        transactions=(),
        clusters={},
        applied=applied,
        rows=rows,
        accepted=tuple(name for name in state.accepted if name != state.identity),
        before=None,
    )
