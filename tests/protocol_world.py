"""A commit log and transactions in memory, against which the code of the exactly-once protocol runs step by step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dynamic_kafka.sink.log.chain import Chain, Record, State, Transaction, follow
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.protocol import (
    Abort,
    Append,
    Batch,
    Claim,
    Describe,
    Effect,
    End,
    ListOpen,
    ObservedTransaction,
    Outcome,
    ReadLog,
    TransactionPolicy,
    Warn,
    claim,
    commit,
)

__all__ = ["OPEN", "World"]

T = TypeVar("T")

OPEN = ObservedTransaction(Outcome.OPEN, left_ms=60_000, timeout_ms=60_000)


@dataclass
class World:
    """A log and transactions, for one driver at a time.

    Args:
        log: The records, from offset 0 on.
        seen: What coordinators say of each transaction.
        effects: What was asked, in order.
        before: Called before each effect: what others do meanwhile.
    """

    log: list[Record] = field(default_factory=list)
    seen: dict[Transaction, ObservedTransaction] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    before: Callable[[Effect], None] = lambda _: None
    names: int = 0

    def run(self, steps: Generator[Effect, Any, T]) -> T:
        """Run to the end; keeps the effects of this run only."""
        self.effects = []
        answer: Any = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            self.before(effect)
            self.effects.append(effect)
            answer = self.do(effect)

    def do(self, effect: Effect) -> Any:
        """The answer to an effect."""
        match effect:
            case ReadLog():
                return self.chain
            case Append(record):
                self.log.append(record)
            case ListOpen():
                return tuple(t for t, seen in self.seen.items() if seen.outcome is Outcome.OPEN)
            case Describe(transactions):
                return [self.seen.get(t, ObservedTransaction(Outcome.UNKNOWN)) for t in transactions]
            case End(transactions):
                self._end(transactions, Outcome.COMMITTED)
            case Abort(transactions):
                self._end(transactions, Outcome.ABORTED)
        return None

    def _end(self, transactions: Sequence[Transaction], outcome: Outcome) -> None:
        for t in transactions:
            if self.seen.get(t, ObservedTransaction(Outcome.UNKNOWN)).outcome is Outcome.OPEN:
                self.seen[t] = ObservedTransaction(outcome)

    @property
    def chain(self) -> Chain:
        """The log's chain."""
        found = Chain()
        for offset, record in enumerate(self.log):
            found = follow(found, offset, record, start=0)
        return found

    @property
    def state(self) -> State:
        """What its head says."""
        return self.chain.state

    def see(self, outcome: Outcome, *transactions: Transaction) -> None:
        """Let coordinators say this of transactions."""
        self.seen |= dict.fromkeys(transactions, ObservedTransaction(outcome))

    def append(self, **changes: Any) -> None:
        """Append a record of another driver: the state at the head, with changes."""
        self.log.append(Record("other", self.chain.offset, replace(self.state, **changes)))

    def meanwhile(self, kind: type[Effect], act: Callable[[], object]) -> None:
        """Let others act once: right before the next effect of a kind."""

        def before(effect: Effect) -> None:
            if isinstance(effect, kind):
                self.before = lambda _: None
                act()

        self.before = before

    def asked(self) -> list[type[Effect]]:
        """The kinds of effects of the last run."""
        return [type(effect) for effect in self.effects]

    def name(self) -> str:
        """A new name."""
        self.names += 1
        return f"n{self.names}"

    # --- what drivers do ---

    def claim(self, identity: Identity | None = None, policy: TransactionPolicy | None = None) -> Claim:
        """Claim."""
        return self.run(claim(self.name(), identity, policy or TransactionPolicy()))

    def prepare(self, *names: str) -> tuple[Transaction, ...]:
        """Open transactions on cluster `c`, with new producer ids."""
        found = tuple(Transaction("c", name, self.names + i, 0) for i, name in enumerate(names))
        self.names += len(names)
        self.seen |= dict.fromkeys(found, OPEN)
        return found

    def commit(
        self,
        claimed: Claim,
        identity: Identity,
        transactions: Sequence[Transaction] = (),
        policy: TransactionPolicy | None = None,
        *,
        rows: int = 1,
        run: str = "",
    ) -> str:
        """Commit."""
        clusters = {t.cluster: {"bootstrap.servers": "h:1"} for t in transactions}
        batch = Batch(identity, rows, tuple(transactions), clusters, run)
        return self.run(commit(self.name(), claimed, batch, policy or TransactionPolicy()))

    def write(
        self, identity: Identity, *names: str, policy: TransactionPolicy | None = None, rows: int = 1, run: str = ""
    ) -> str:
        """A whole batch; "applied" if its tasks only count its rows and the batch is not published again."""
        claimed = self.claim(identity, policy)
        transactions = () if claimed.applied else self.prepare(*names)
        done = self.commit(claimed, identity, transactions, policy, rows=rows, run=run)
        assert done == "repeated" or not claimed.applied
        return "applied" if claimed.applied else done

    def warnings(self) -> list[str]:
        """What the user was told in the last run."""
        return [effect.text for effect in self.effects if isinstance(effect, Warn)]

    def outcomes(self) -> list[str]:
        """What became of all transactions, in the order they were made."""
        return [str(seen.outcome) for seen in self.seen.values()]
