"""A small Kafka, two tasks and two or three drivers, and every order in which they can act.

The drivers run the real protocol (`dynamic_kafka.sink.protocol`): its generators are asked what they want next, and the
answers come from a world that is one immutable value. Nothing here knows what the right order is.

What the explorer tries at every point:

* any process takes its next step, or never takes one again (a crash, or a zombie that wakes up later);
* a request (append, end, abort) is executed, or lost, or executed later, at any time, or executed twice;
* a broker aborts an open transaction that timed out;
* the next driver starts, while older ones go on; a task of any generation starts, however late.

Faults (lost, late and repeated requests, time-outs, drivers) are bounded, as `Limits` says.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, NamedTuple

from dynamic_kafka.errors import DynamicKafkaError, LostTransactionsError
from dynamic_kafka.sink import protocol
from dynamic_kafka.sink.protocol import (
    Abort,
    Append,
    Chain,
    Claim,
    Describe,
    End,
    Identity,
    ListOpen,
    Outcome,
    Policy,
    ReadLog,
    Record,
    Seen,
    Transaction,
    Wait,
)

__all__ = ["Limits", "Rules", "ViolationError", "explore"]

_POLICY = Policy()
_TASKS = (0, 1)
_SLOTS = 2


class ViolationError(AssertionError):
    """The protocol broke a promise; the message tells how."""


@dataclass(frozen=True)
class Limits:
    """How far the explorer goes.

    Args:
        batches: Of the query.
        drivers: That may be started, one after the other; older ones go on.
        queries: That have the same prefix, by mistake; the drivers are theirs by turns.
        late_tasks: Tasks that start once more, at any time later (a retry, speculation, a zombie).
        faults: Requests that are lost, late or repeated.
        timeouts: Transactions that the broker aborts before they were seen open with time left.
        late_timeouts: The same after that, so that a decided batch may be gone in part; it has to end loudly.
    """

    batches: int = 3
    drivers: int = 2
    queries: int = 1
    late_tasks: int = 0
    faults: int = 0
    timeouts: int = 0
    late_timeouts: int = 0


@dataclass(frozen=True)
class Rules:
    """What the world's other half keeps to; tests break these one by one.

    Args:
        one_transaction_per_epoch: A task's producer takes a new epoch for each transaction (rule 7).
        slots_by_generation: A task leaves transactional ids alone that its own or a later generation has prepared.
        abort_by_epoch: Aborts name producer id and epoch, and are not InitProducerId by name (rule 4).
    """

    one_transaction_per_epoch: bool = True
    slots_by_generation: bool = True
    abort_by_epoch: bool = True


class Row(NamedTuple):
    """What a task writes; another attempt of the same batch writes another row."""

    query: int
    batch: int
    task: int
    generation: int


class Slot(NamedTuple):
    """A transactional id at its coordinator, and what its worker remembers of it."""

    epoch: int = 0
    status: Literal["empty", "open", "committed", "aborted"] = "empty"
    row: Row | None = None
    prepared_by: int = 0
    seen_open: bool = False


class Task(NamedTuple):
    """A task that can start."""

    driver: int
    query: int
    batch: int
    number: int
    generation: int
    started: bool = False
    """Whether it did so before."""


class Driver(NamedTuple):
    """A driver: Spark's loop over batches.

    Args:
        number: Which one.
        query: Whose; queries have checkpoints of their own.
        batch: The batch it works at.
        phase: What it does for it.
        claim: Of this batch.
        answers: What the protocol was answered in this phase.
    """

    number: int
    query: int
    batch: int
    phase: Literal["claim", "tasks", "commit", "abandon", "log", "end"]
    claim: Claim | None = None
    messages: tuple[Transaction | None, ...] = (None, None)
    answers: tuple[Any, ...] = ()


@dataclass(frozen=True)
class World:
    """Everything there is at one moment."""

    log: tuple[int, ...] = ()
    slots: tuple[tuple[Slot, ...], ...] = ((Slot(),) * _SLOTS,) * len(_TASKS)
    published: tuple[Row, ...] = ()
    done: tuple[int, ...] = (0, 0)
    """Batches in each query's own commit log, Spark's."""
    drivers: tuple[Driver, ...] = ()
    tasks: tuple[Task, ...] = ()
    late: tuple[tuple[str, Any], ...] = ()
    """Requests on their way."""
    late_tasks: int = 0
    faults: int = 0
    timeouts: int = 0
    late_timeouts: int = 0


@dataclass
class Explorer:
    """All states that can be reached."""

    limits: Limits
    rules: Rules
    records: list[Record] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)
    finished: int = 0

    def run(self) -> int:
        """Visit them; returns how many there are."""
        first = self.start_driver(World(), 0)
        seen, pending = {hash(first)}, [first]
        while pending:
            world = pending.pop()
            for after in self.moves(world):
                if hash(after) not in seen:  # 64 bits; whole worlds would need gigabytes
                    seen.add(hash(after))
                    self.check(after)
                    pending.append(after)
        assert self.finished, "no run came to its end: the model is of no use"
        return len(seen)

    # --- promises ---

    def check(self, world: World) -> None:
        """Nothing twice, nothing half, nothing lost."""
        rows = world.published
        if len({(r.query, r.batch, r.task) for r in rows}) < len(rows):
            raise ViolationError(f"a row is published twice: {rows}")
        if len({(r.query, r.batch, r.generation) for r in rows}) > len({(r.query, r.batch) for r in rows}):
            raise ViolationError(f"rows of two attempts at one batch are published: {rows}")
        for query, done in enumerate(world.done):
            for batch in range(done):
                if sum((r.query, r.batch) == (query, batch) for r in rows) < len(_TASKS):
                    raise ViolationError(f"batch {batch} is done for Spark, and not published: {rows}")
        self.finished += self.limits.batches in world.done

    # --- moves ---

    def moves(self, world: World) -> Iterator[World]:
        """All worlds that can come next.

        What a driver concludes by itself commutes with all else: it comes first, and nothing is tried in its place.
        """
        for driver in world.drivers:
            if driver.phase in ("claim", "commit", "abandon") and isinstance(
                self.next_effect(driver), (_Result, _Failure)
            ):
                yield from self.step(world, driver)
                return
        for i, request in enumerate(world.late):
            rest = world.late[:i] + world.late[i + 1 :]
            yield self.execute(replace(world, late=rest), *request)
        for task in world.tasks:
            late = world.late_tasks + task.started
            # The two tasks of a batch have nothing in common: the second one starts after the first.
            if late <= self.limits.late_tasks and (task.number == 0 or task._replace(number=0) not in world.tasks):
                yield self.run_task(replace(world, late_tasks=late), task)
        for worker, slots in enumerate(world.slots):
            for number, slot in enumerate(slots):
                aborted = slot._replace(epoch=slot.epoch + 1, status="aborted")
                if slot.status != "open":
                    continue
                if not slot.seen_open and world.timeouts < self.limits.timeouts:
                    yield replace(_with_slot(world, worker, number, aborted), timeouts=world.timeouts + 1)
                if slot.seen_open and world.late_timeouts < self.limits.late_timeouts:
                    yield replace(_with_slot(world, worker, number, aborted), late_timeouts=world.late_timeouts + 1)
        for driver in world.drivers:
            if driver.phase != "end":
                yield from self.step(world, driver)
        if len(world.drivers) < self.limits.drivers:
            yield self.start_driver(world, len(world.drivers))

    def start_driver(self, world: World, number: int) -> World:
        """A driver reads Spark's checkpoint: the first batch that is not done comes (again)."""
        query = number % self.limits.queries
        done = world.done[query]
        driver = Driver(number, query, done, "claim" if done < self.limits.batches else "end")
        return replace(world, drivers=(*world.drivers, driver))

    def run_task(self, world: World, task: Task) -> World:
        """A task takes a transactional id of its worker, writes, and its message reaches the driver if that still waits."""
        others = tuple(other for other in world.tasks if other != task)
        again = () if task.started else (task._replace(started=True),)
        world = replace(world, tasks=tuple(sorted((*others, *again))))
        free = [
            number
            for number, slot in enumerate(world.slots[task.number])
            if slot.prepared_by < task.generation or not self.rules.slots_by_generation
        ]
        if not free:
            return world  # too late for all ids: it fails
        number, slot = free[0], world.slots[task.number][free[0]]
        epoch = slot.epoch + 1 if self.rules.one_transaction_per_epoch or slot.status != "committed" else slot.epoch
        row = Row(task.query, task.batch, task.number, task.generation)
        world = _with_slot(world, task.number, number, Slot(epoch, "open", row, max(slot.prepared_by, task.generation)))
        driver = world.drivers[task.driver]
        if driver.phase == "tasks" and driver.claim is not None and driver.claim.generation == task.generation:
            messages = list(driver.messages)
            messages[task.number] = Transaction("c", f"{task.number}.{number}", task.number * _SLOTS + number, epoch)
            phase: Any = "tasks" if None in messages else "commit"
            world = _with_driver(world, driver._replace(messages=tuple(messages), phase=phase))
        return world

    def step(self, world: World, driver: Driver) -> Iterator[World]:
        """The next step of a driver, with all that can happen to it."""
        if driver.phase == "tasks":
            return
        if driver.phase == "log":
            # Two drivers may write it: Spark's own checkpoint lets the first one win, and ends the other.
            if world.done[driver.query] == driver.batch:
                following = driver.batch + 1
                phase: Any = "claim" if following < self.limits.batches else "end"
                done = tuple(n + (query == driver.query) for query, n in enumerate(world.done))
                world = replace(world, done=done)
                yield _with_driver(world, Driver(driver.number, driver.query, following, phase))
            else:
                yield _with_driver(world, driver._replace(phase="end"))
            return
        effect = self.next_effect(driver)
        match effect:
            case _Result(value):
                yield self.after(world, driver, value)
            case _Failure(error):
                yield from self.fail(world, driver, error)
            case ReadLog():
                yield _with_driver(world, driver._replace(answers=(*driver.answers, world.log)))
            case ListOpen():
                found = tuple(
                    Transaction("c", f"{task}.{number}", task * _SLOTS + number, slot.epoch)
                    for task, slots in enumerate(world.slots)
                    for number, slot in enumerate(slots)
                    if slot.status == "open"
                )
                yield _with_driver(world, driver._replace(answers=(*driver.answers, found)))
            case Describe(transactions):
                seen = tuple(self.describe(world, t) for t in transactions)
                for t, (outcome, *_) in zip(transactions, seen, strict=True):
                    if outcome is Outcome.OPEN:
                        task, number = divmod(t.producer_id, _SLOTS)
                        world = _with_slot(world, task, number, world.slots[task][number]._replace(seen_open=True))
                yield _with_driver(world, driver._replace(answers=(*driver.answers, seen)))
            case Wait(attempt):
                if attempt < 1:
                    yield _with_driver(world, driver._replace(answers=(*driver.answers, None)))
                else:
                    yield from self.fail(world, driver, DynamicKafkaError("gave up"))
            case Append(record):
                yield from self.requests(world, driver, [("append", self.number_of(record))])
            case End(transactions):
                yield from self.requests(world, driver, [("commit", t) for t in transactions])
            case Abort(transactions):
                yield from self.requests(world, driver, [("abort", t) for t in transactions])

    def requests(self, world: World, driver: Driver, requests: list[tuple[str, Any]]) -> Iterator[World]:
        """A request for each, executed in order; at most one of them meets a fault."""
        answered = _with_driver(world, driver._replace(answers=(*driver.answers, None)))
        done = answered
        for request in requests:
            done = self.execute(done, *request)
        yield done
        if world.faults < self.limits.faults:
            for i, faulty in enumerate(requests):
                partly = replace(answered, faults=world.faults + 1)
                for request in requests[:i] + requests[i + 1 :]:
                    partly = self.execute(partly, *request)
                yield partly  # lost
                yield replace(partly, late=tuple(sorted((*partly.late, faulty), key=repr)))
                yield replace(
                    done, faults=world.faults + 1, late=tuple(sorted((*done.late, faulty), key=repr))
                )  # twice
        if len(requests) > 1:  # the driver dies between two of them: the rest is never sent
            yield self.execute(_with_driver(world, driver._replace(phase="end")), *requests[0])

    def execute(self, world: World, kind: str, what: Any) -> World:
        """What a broker does with a request."""
        if kind == "append":
            # Only records that count are kept: the others change nothing but offsets, and a head is known by its place.
            counts = self.chain((*world.log, what)).offset == len(world.log)
            return replace(world, log=(*world.log, what)) if counts else world
        task, number = divmod(what.producer_id, _SLOTS)
        slot = world.slots[task][number]
        if kind == "abort" and not self.rules.abort_by_epoch:
            return _with_slot(world, task, number, slot._replace(epoch=slot.epoch + 1, status="aborted"))
        if slot.epoch != what.producer_epoch or slot.status != "open":
            return world  # fenced, or repeated
        if kind == "abort":
            return _with_slot(world, task, number, slot._replace(status="aborted"))
        assert slot.row is not None
        world = replace(world, published=tuple(sorted((*world.published, slot.row))))
        return _with_slot(world, task, number, slot._replace(status="committed"))

    def describe(self, world: World, transaction: Transaction) -> Seen:
        """What the coordinator says of it; the classes are those of `kafka.transactions`."""
        task, number = divmod(transaction.producer_id, _SLOTS)
        slot = world.slots[task][number]
        after = slot.epoch - transaction.producer_epoch
        if after == 0 and slot.status in ("open", "committed"):
            return Seen(Outcome.OPEN if slot.status == "open" else Outcome.COMMITTED, 60_000, 60_000)
        return Seen(Outcome.ABORTED if slot.status == "aborted" and after in (0, 1) else Outcome.UNKNOWN)

    # --- drivers ---

    def after(self, world: World, driver: Driver, value: Any) -> World:
        """The driver's next phase."""
        if driver.phase == "claim":
            tasks = tuple(
                Task(driver.number, driver.query, driver.batch, number, value.generation) for number in _TASKS
            )
            world = replace(world, tasks=tuple(sorted((*world.tasks, *tasks))))
            return _with_driver(world, driver._replace(phase="tasks", claim=value, answers=()))
        if driver.phase == "commit":
            return _with_driver(world, driver._replace(phase="log", answers=()))
        return _with_driver(world, driver._replace(phase="end", answers=()))

    def fail(self, world: World, driver: Driver, error: DynamicKafkaError) -> Iterator[World]:
        """Spark calls `abort` when `commit` failed; the query has ended."""
        if isinstance(error, LostTransactionsError):
            if not world.late_timeouts:
                raise ViolationError(f"decided transactions are gone: {error}")
            return  # loud, as promised: a part is published, and somebody has to look at it
        phase: Any = "abandon" if driver.phase == "commit" else "end"
        yield _with_driver(world, driver._replace(phase=phase, answers=()))

    def next_effect(self, driver: Driver) -> Any:
        """Run the protocol with the answers so far."""
        return self._next(
            driver.number, driver.query, driver.batch, driver.phase, driver.claim, driver.messages, driver.answers
        )

    def __post_init__(self) -> None:
        self._next: Callable[..., Any] = cache(self._run_protocol)

    def _run_protocol(
        self,
        number: int,
        query: int,
        batch: int,
        phase: str,
        claimed: Claim,
        messages: tuple[Transaction, ...],
        answers: Any,
    ) -> Any:
        name = f"{number}.{batch}.{phase}"
        identity = Identity(f"query {query}", batch)
        steps: Generator[Any, Any, Any]
        if phase == "claim":
            steps = protocol.claim(name, None, _POLICY)
        elif phase == "commit":
            steps = protocol.commit(name, claimed, identity, messages, {}, _POLICY)
        else:
            steps = protocol.abandon(name, claimed)
        try:
            effect = next(steps)
            for answer in answers:
                effect = steps.send(self.chain(answer) if isinstance(effect, ReadLog) else answer)
        except StopIteration as stop:
            return _Result(stop.value)
        except DynamicKafkaError as error:
            return _Failure(error)
        return effect

    # --- the log ---

    def number_of(self, record: Record) -> int:
        """Records as numbers: worlds have to be hashed by the million."""
        state = record.state
        key = (record.name, record.follows, state.status, state.generation, state.transactions, *state.applied.items())
        if key not in self.numbers:
            self.numbers[key] = len(self.records)
            self.records.append(record)
        return self.numbers[key]

    def chain(self, log: tuple[int, ...]) -> Chain:
        """The chain that a reader finds."""
        chain = Chain()
        for offset, number in enumerate(log):
            chain = protocol.follow(chain, offset, self.records[number], first=offset == 0)
        return chain


class _Result(NamedTuple):
    value: Any


class _Failure(NamedTuple):
    error: DynamicKafkaError


def _with_slot(world: World, task: int, number: int, slot: Slot) -> World:
    slots = list(world.slots[task])
    slots[number] = slot
    return replace(world, slots=(*world.slots[:task], tuple(slots), *world.slots[task + 1 :]))


def _with_driver(world: World, driver: Driver) -> World:
    if driver.phase == "end":
        driver = Driver(driver.number, 0, 0, "end")  # nothing else of it matters any more
    drivers = list(world.drivers)
    drivers[driver.number] = driver
    return replace(world, drivers=tuple(drivers))


def explore(limits: Limits, rules: Rules = Rules()) -> int:
    """Try everything within the limits.

    Returns:
        How many states there are.

    Raises:
        ViolationError: If a promise is broken.
    """
    return Explorer(limits, rules).run()
