"""Every order in which two tasks and some drivers can act on a small Kafka.

The drivers run the real protocol (`dynamic_kafka.sink.protocol`): its generators are asked what they want next, and the
answers come from a `World`. Nothing here knows what the right order is.

What the explorer tries at every point:

* any process takes its next step, or never takes one again (a crash, or a zombie that wakes up later);
* the next driver starts with a checkpoint that was restored from a copy, so that batches have other rows than before;
* a batch is given up before its tasks are done, or the query is stopped then;
* a request (append, end, abort) is executed, or lost, or executed later, at any time, or executed twice;
* a broker aborts an open transaction that timed out, at once or in two steps;
* somebody aborts open transactions by hand; the log is trimmed;
* the next driver starts, while older ones go on; a task of any generation starts, however late.

Faults (lost, late and repeated requests, time-outs, drivers) are bounded, as `Limits` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from dynamic_kafka.errors import CheckpointError, DynamicKafkaError, LostTransactionsError
from dynamic_kafka.kafka.transactions.client import TransactionDescription, TransactionState
from dynamic_kafka.sink import protocol
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.outcome import outcome
from dynamic_kafka.sink.protocol import (
    Abort,
    Append,
    Claim,
    Describe,
    End,
    ListOpen,
    ObservedTransaction,
    Outcome,
    ReadLog,
    Wait,
    Warn,
)
from dynamic_kafka.sink.transactional_ids import TransactionalId
from tests.model.runs import CHAIN, Failure, Result, Runs
from tests.model.world import (
    SLOTS,
    TASKS,
    Checkpoint,
    Driver,
    Phase,
    Row,
    Slot,
    Task,
    World,
    appended_by,
    ended,
    publish,
    with_driver,
    with_slot,
)

__all__ = ["Limits", "Rules", "ViolationError", "explore"]


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
        epoch_steps: By how much a time-out moves the epoch on.
        fences: A time-out first moves the epoch, and aborts later.
        copies: Checkpoints that are restored from a copy, which is any number of batches behind.
        named: Batches have a `txnAppId` and a `txnVersion`, instead of a stream's numbers.
        two_steps: A task writes in two steps, so that its transaction can end between them.
        aborts: Times that somebody aborts all open transactions by hand, as the command line does.
        trims: Times that the log is trimmed to its head.
        stops: Queries are stopped in the middle of their tasks, and their end knows no claim.
    """

    batches: int = 3
    drivers: int = 2
    queries: int = 1
    late_tasks: int = 0
    faults: int = 0
    timeouts: int = 0
    late_timeouts: int = 0
    epoch_steps: tuple[int, ...] = (1,)
    fences: bool = False
    copies: int = 0
    named: bool = False
    two_steps: bool = False
    aborts: int = 0
    trims: int = 0
    stops: bool = False


@dataclass(frozen=True)
class Rules:
    """What the world's other half keeps to; tests break these one by one.

    Args:
        one_transaction_per_epoch: A task's producer takes a new epoch for each transaction (rule 7).
        slots_by_generation: A task leaves transactional ids alone that its own or a later generation has prepared.
        abort_by_epoch: Aborts name producer id and epoch, and are not InitProducerId by name (rule 4).
        aborts_claim: Who aborts by hand claims a generation first.
    """

    one_transaction_per_epoch: bool = True
    slots_by_generation: bool = True
    abort_by_epoch: bool = True
    aborts_claim: bool = True


_STATES = {
    "empty": TransactionState.EMPTY,
    "open": TransactionState.ONGOING,
    "fenced": TransactionState.ONGOING,
    "committed": TransactionState.COMPLETE_COMMIT,
    "aborted": TransactionState.COMPLETE_ABORT,
}


@dataclass
class Explorer:
    """All states that can be reached."""

    limits: Limits
    rules: Rules
    finished: int = 0
    kept: set[Any] = field(default_factory=set)
    """What was seen to keep the promises."""
    alive: set[Any] = field(default_factory=set)
    """What a new driver was seen to go on from."""

    def __post_init__(self) -> None:
        self.runs = Runs(named=self.limits.named, owned=self.limits.stops)

    def run(self) -> int:
        """Visit them; returns how many there are."""
        first = self.start_driver(World(), 0, 0)
        seen, pending = {hash(first)}, [first]  # 64 bits; whole worlds would need gigabytes
        while pending:
            for after in self.moves(pending.pop()):
                before = len(seen)
                seen.add(hash(after))
                if len(seen) > before:
                    self.check(after)
                    pending.append(after)
        assert self.finished, "no run came to its end: the model is of no use"
        return len(seen)

    # --- promises ---

    def check(self, world: World) -> None:
        """Nothing twice, nothing half, nothing lost, nothing stuck."""
        if (world.published, world.checkpoints) not in self.kept:
            self.check_published(world.published, world.checkpoints)
            self.kept.add((world.published, world.checkpoints))
        for number in range(self.limits.queries):
            self.check_alive(world, number)

    def check_published(self, rows: tuple[Row, ...], checkpoints: tuple[Checkpoint, ...]) -> None:
        """The rows are whole batches, each once, and those of all batches that are done."""
        if len({(r.query, r.batch, r.task) for r in rows}) < len(rows):
            raise ViolationError(f"a row is published twice: {rows}")
        if len({(r.query, r.batch, r.generation) for r in rows}) > len({(r.query, r.batch) for r in rows}):
            raise ViolationError(f"rows of two attempts at one batch are published: {rows}")
        if not all(r.is_whole for r in rows):
            raise ViolationError(f"a part of a task's rows is published: {rows}")
        for query, done, plans in checkpoints:
            for batch in range(done):
                if sum((r.query, r.batch, r.content) == (query, batch, plans[batch]) for r in rows) < len(TASKS):
                    raise ViolationError(f"batch {batch} is done for Spark, and not published: {rows}")
            self.finished += done == self.limits.batches

    def check_alive(self, world: World, checkpoint: int) -> None:
        """A driver that starts now, when all others are dead and no request is lost, publishes the next batch."""
        done = world.checkpoints[checkpoint].done
        key = world.log.length, world.log.head, world.slots, world.checkpoints, checkpoint, bool(world.late_timeouts)
        if done == self.limits.batches or key in self.alive:
            return
        self.alive.add(key)
        slots = tuple(  # brokers go on with what they have begun
            tuple(ended(slot, "aborted") if slot.status == "fenced" else slot for slot in some) for some in world.slots
        )
        world = world._replace(drivers=(), tasks=(), late=(), slots=slots, log=world.log._replace(appended=()))
        world = self.start_driver(world, 0, checkpoint)
        while world.checkpoints[checkpoint].done == done:
            driver = world.drivers[0]
            if driver.phase == "tasks":
                (task, *_) = [t for t in world.tasks if not t.started or t.slot >= 0]
                world = self.run_task(world, task)
                continue
            if driver.phase in ("abandon", "end"):
                raise ViolationError(f"no new driver can go on: {world}")
            found = self.runs.next(driver.at) if driver.phase != "log" else None
            if isinstance(found, Failure):
                words: list[type[DynamicKafkaError]] = [LostTransactionsError] if world.late_timeouts else []
                words += [CheckpointError] if self.limits.copies else []
                if type(found.error) in words:
                    return  # it needs the user's word
                raise ViolationError(f"no new driver can go on: {found.error}")
            world = next(iter(self.step(world, driver)))

    # --- moves ---

    def moves(self, world: World) -> Iterator[World]:
        """All worlds that can come next.

        What a driver does by itself commutes with all else: it comes first, and nothing is tried in its place.
        """
        for driver in world.drivers:
            if driver.phase in ("claim", "commit", "abandon") and isinstance(
                self.runs.next(driver.at), (Result, Failure, Wait, Warn)
            ):
                yield from self.step(world, driver)
                return
        for i, request in enumerate(world.late):
            rest = world.late[:i] + world.late[i + 1 :]
            yield self.execute(world._replace(late=rest), *request)
        for task in world.tasks:
            late = world.late_tasks + (task.started and task.slot < 0)
            # The two tasks of a batch have nothing in common: the second one starts after the first.
            if late <= self.limits.late_tasks and (task.number == 0 or task._replace(number=0) not in world.tasks):
                yield self.run_task(world._replace(late_tasks=late), task)
        for worker, slots in enumerate(world.slots):
            for number, slot in enumerate(slots):
                if slot.status == "fenced":
                    yield with_slot(world, worker, number, ended(slot, "aborted"))
                if slot.status != "open":
                    continue
                for later in self.limits.epoch_steps:
                    aborted = ended(slot, "fenced" if self.limits.fences else "aborted", later)
                    if not slot.seen_open and world.timeouts < self.limits.timeouts:
                        yield with_slot(world, worker, number, aborted)._replace(timeouts=world.timeouts + 1)
                    if slot.seen_open and world.late_timeouts < self.limits.late_timeouts:
                        yield with_slot(world, worker, number, aborted)._replace(late_timeouts=world.late_timeouts + 1)
        for driver in world.drivers:
            if driver.phase != "end":
                yield from self.step(world, driver)
        if world.trims < self.limits.trims and (left := self.trimmed(world)) != world:
            yield left
        if world.aborts < self.limits.aborts and world.log.length:
            yield self.abort_by_hand(world)
        number = len(world.drivers)
        if number - world.aborts < self.limits.drivers:
            for checkpoint, (query, *_) in enumerate(world.checkpoints):
                if query == number % self.limits.queries:
                    yield self.start_driver(world, number, checkpoint)
                    yield from self.restored(world, number, checkpoint)

    def restored(self, world: World, number: int, checkpoint: int) -> Iterator[World]:
        """A driver starts with an older copy of a checkpoint, in which the last batches are not even planned."""
        if len(world.checkpoints) < len(World().checkpoints) + self.limits.copies:
            query, done, plans = world.checkpoints[checkpoint]
            for left in range(done + 1):
                copied = (*world.checkpoints, Checkpoint(query, min(done, left), plans[:left]))
                yield self.start_driver(world._replace(checkpoints=copied), number, len(world.checkpoints))

    def start_driver(self, world: World, number: int, checkpoint: int) -> World:
        """A driver reads Spark's checkpoint: the first batch that is not done comes (again)."""
        query, done, _ = world.checkpoints[checkpoint]
        world = world._replace(drivers=(*world.drivers, Driver(number, query, done, "end", checkpoint=checkpoint)))
        return self.enter(world, world.drivers[number], "claim" if done < self.limits.batches else "end")

    def trimmed(self, world: World) -> World:
        """Who reads the log from its new start on finds the head, and nothing from before it."""
        log, last = world.log, world.log.length - 1
        appended = tuple((name, offset) for name, offset in log.appended if offset == last)
        if appended == log.appended:
            return world
        return world._replace(log=log._replace(appended=appended), trims=world.trims + 1)

    def abort_by_hand(self, world: World) -> World:
        """Abort everything that is open, as if the batch at the head had failed."""
        number = len(world.drivers)
        claim = Claim(CHAIN, self.runs.chain(world.log).state.generation)
        by_hand = Driver(number, 0, 0, "end", claim)
        world = world._replace(drivers=(*world.drivers, by_hand), aborts=world.aborts + 1)
        if self.rules.aborts_claim:
            return self.enter(world, by_hand, "abandon")
        for transaction in self.list_open(world):
            world = self.execute(world, "abort", transaction)
        return world

    def run_task(self, world: World, task: Task) -> World:
        """A task takes a transactional id of its worker, writes, and its message reaches the driver if that still waits."""
        if task.slot >= 0:
            return self.end_task(world, task)
        free = [
            number
            for number, slot in enumerate(world.slots[task.number])
            if not self.rules.slots_by_generation or _is_free(slot, task.generation)
        ]
        if not free:
            return self.without_task(world, task)  # too late for all ids: it fails
        number, slot = free[0], world.slots[task.number][free[0]]
        epoch = slot.epoch + 1 if self.rules.one_transaction_per_epoch or slot.status != "committed" else slot.epoch
        row = Row(task.query, task.batch, task.number, task.generation, task.content, not self.limits.two_steps)
        world = with_slot(world, task.number, number, Slot(epoch, "open", row, max(slot.prepared_by, task.generation)))
        if self.limits.two_steps:
            tasks = {*world.tasks, task._replace(slot=number, epoch=epoch)} - {task}
            return world._replace(tasks=tuple(sorted(tasks)))
        return self.report(self.without_task(world, task), task, number, epoch)

    def end_task(self, world: World, task: Task) -> World:
        """The second half of a task's rows. Kafka opens a transaction again that was aborted at the same epoch."""
        left = self.without_task(world, task)
        slot = world.slots[task.number][task.slot]
        if slot.epoch != task.epoch or slot.status not in ("open", "aborted"):
            return left  # its producer is fenced: it fails
        row = Row(task.query, task.batch, task.number, task.generation, task.content, slot.status == "open")
        left = with_slot(left, task.number, task.slot, slot._replace(status="open", row=row))
        return self.report(left, task, task.slot, task.epoch)

    def without_task(self, world: World, task: Task) -> World:
        """A task that has ended may start once more."""
        tasks = {*world.tasks, task._replace(started=True, slot=-1, epoch=-1)} - {task}
        if world.late_tasks == self.limits.late_tasks:
            tasks = {other for other in tasks if not other.started or other.slot >= 0}
        return world._replace(tasks=tuple(sorted(tasks)))

    def report(self, world: World, task: Task, number: int, epoch: int) -> World:
        """A task's message reaches the driver if that still waits."""
        driver = world.drivers[task.driver]
        if driver.phase == "tasks" and driver.claim is not None and driver.claim.generation == task.generation:
            messages = list(driver.messages)
            messages[task.number] = Transaction("c", f"{task.number}.{number}", task.number * SLOTS + number, epoch)
            driver = driver._replace(messages=tuple(messages))
            if None in messages:
                return with_driver(world, driver)
            return self.enter(world, driver, "commit")
        return world

    def step(self, world: World, driver: Driver) -> Iterator[World]:
        """The next step of a driver, with all that can happen to it."""
        if driver.phase == "tasks":
            yield self.enter(world, driver, "abandon")  # a task has failed too often
            if self.limits.stops:
                yield self.enter(world, driver._replace(stopped=True), "abandon")
            return
        if driver.phase == "log":
            # Two drivers may write it: Spark's own checkpoint lets the first one win, and ends the other.
            checkpoints = list(world.checkpoints)
            found = checkpoints[driver.checkpoint]
            if found.done == driver.batch:
                driver = driver._replace(batch=driver.batch + 1)
                checkpoints[driver.checkpoint] = found._replace(done=driver.batch)
                more = driver.batch < self.limits.batches
                world = world._replace(checkpoints=tuple(checkpoints))
                yield self.enter(world, driver, "claim" if more else "end")
            else:
                yield self.enter(world, driver, "end")
            return
        effect = self.runs.next(driver.at)
        match effect:
            case Result(value):
                yield self.after(world, driver, value)
            case Failure(error):
                yield from self.fail(world, driver, error)
            case ReadLog():
                log = world.log._replace(appended=appended_by(driver.number, world.log))
                yield self.answer(world, driver, log)
            case ListOpen():
                listed = self.list_open(world)
                yield self.answer(world, driver, listed)
                if listed and world.faults < self.limits.faults:  # a cluster does not answer
                    yield self.answer(world._replace(faults=world.faults + 1), driver, ())
            case Describe(transactions):
                seen = tuple(self.describe(world, t) for t in transactions)
                for t, (found_outcome, *_) in zip(transactions, seen, strict=True):
                    if found_outcome is Outcome.OPEN:
                        task, number = divmod(t.producer_id, SLOTS)
                        world = with_slot(world, task, number, world.slots[task][number]._replace(seen_open=True))
                yield self.answer(world, driver, seen)
            case Wait() | Warn():
                yield self.answer(world, driver, None)
            case Append(record):
                yield from self.requests(world, driver, [("append", self.runs.record_number(record))])
            case End(transactions):
                yield from self.requests(world, driver, [("commit", t) for t in transactions])
            case Abort(transactions):
                self.check_abandoned(world, driver, transactions)
                yield from self.requests(world, driver, [("abort", t) for t in transactions])

    def check_abandoned(self, world: World, driver: Driver, transactions: tuple[Transaction, ...]) -> None:
        """A query that is stopped ends no transaction of another one that has taken over."""
        if not driver.stopped or driver.claim is None:
            return
        for t in transactions:
            task, number = divmod(t.producer_id, SLOTS)
            slot = world.slots[task][number]
            is_open = slot.status == "open" and slot.epoch == t.producer_epoch
            if is_open and slot.row is not None and slot.row.generation > driver.claim.generation:
                raise ViolationError(f"a query that was stopped ends the transaction of a later claim: {slot.row}")

    def requests(self, world: World, driver: Driver, requests: list[tuple[str, Any]]) -> Iterator[World]:
        """A request for each, executed in order; at most one of them meets a fault."""
        answered = self.answer(world, driver, None)
        done = answered
        for request in requests:
            done = self.execute(done, *request)
        yield done
        if world.faults < self.limits.faults:
            for i, faulty in enumerate(requests):
                partly = answered._replace(faults=world.faults + 1)
                for request in requests[:i] + requests[i + 1 :]:
                    partly = self.execute(partly, *request)
                yield partly  # lost
                yield partly._replace(late=tuple(sorted((*partly.late, faulty), key=repr)))
                yield done._replace(
                    faults=world.faults + 1, late=tuple(sorted((*done.late, faulty), key=repr))
                )  # twice
        if len(requests) > 1:  # the driver dies between two of them: the rest is never sent
            yield self.execute(self.enter(world, driver, "end"), *requests[0])

    def execute(self, world: World, kind: str, what: Any) -> World:
        """What a broker does with a request."""
        if kind == "append":
            return self.runs.append(world, what)
        task, number = divmod(what.producer_id, SLOTS)
        slot = world.slots[task][number]
        if kind == "abort" and not self.rules.abort_by_epoch:
            return with_slot(world, task, number, ended(slot, "aborted", later=1))
        if slot.epoch != what.producer_epoch or slot.status != "open":
            return world  # fenced, or repeated
        if kind == "abort":
            return with_slot(world, task, number, ended(slot, "aborted"))
        assert slot.row is not None
        return with_slot(publish(world, slot.row), task, number, ended(slot, "committed"))

    def describe(self, world: World, transaction: Transaction) -> ObservedTransaction:
        """What the production code makes of the coordinator's answer."""
        task, number = divmod(transaction.producer_id, SLOTS)
        slot = world.slots[task][number]
        found = TransactionDescription(_STATES[slot.status], transaction.producer_id, slot.epoch, 60_000, 0)
        return ObservedTransaction(outcome(transaction, found), 60_000, 60_000)

    def list_open(self, world: World) -> tuple[Transaction, ...]:
        """The transactions that are open."""
        return tuple(
            Transaction("c", f"{task}.{number}", task * SLOTS + number, slot.epoch)
            for task, slots in enumerate(world.slots)
            for number, slot in enumerate(slots)
            if slot.status == "open"
        )

    # --- drivers ---

    def after(self, world: World, driver: Driver, value: Any) -> World:
        """The driver's next phase."""
        if driver.phase == "claim":
            if value.applied:  # its tasks only count
                return self.enter(world, driver._replace(claim=value, messages=(None, None)), "commit")
            tasks = tuple(
                Task(driver.number, driver.query, driver.batch, number, value.generation, driver.content)
                for number in TASKS
            )
            world = world._replace(tasks=tuple(sorted((*world.tasks, *tasks))))
            return self.enter(world, driver._replace(claim=value), "tasks")
        return self.enter(world, driver, "log" if driver.phase == "commit" else "end")

    def fail(self, world: World, driver: Driver, error: DynamicKafkaError) -> Iterator[World]:
        """Spark calls `abort` when `commit` failed; the query has ended."""
        if isinstance(error, LostTransactionsError):
            if not world.late_timeouts:
                raise ViolationError(f"decided transactions are gone: {error}")
            return  # loud, as promised: a part is published, and somebody has to look at it
        yield self.enter(world, driver, "abandon" if driver.phase == "commit" else "end")

    def enter(self, world: World, driver: Driver, phase: Phase) -> World:
        """A driver's next phase; what it does not need any more is forgotten."""
        content = driver.content
        if phase == "claim":
            checkpoints = list(world.checkpoints)
            found = checkpoints[driver.checkpoint]
            if len(found.plans) == driver.batch:  # Spark plans it
                checkpoints[driver.checkpoint] = found._replace(plans=(*found.plans, driver.checkpoint))
                world = world._replace(checkpoints=tuple(checkpoints))
            content = world.checkpoints[driver.checkpoint].plans[driver.batch]
        after = Driver(driver.number, driver.query, driver.batch, phase, checkpoint=driver.checkpoint, content=content)
        if phase == "abandon" and driver.stopped:
            after = after._replace(claim=driver.claim, stopped=True)
        if phase in ("tasks", "commit"):
            after = after._replace(claim=driver.claim)
        if phase in ("claim", "commit", "abandon"):
            start = after._replace(claim=driver.claim, messages=driver.messages)
            after = after._replace(at=self.runs.start(start))
        if phase == "end":
            after = Driver(driver.number, 0, 0, "end")
        return with_driver(world, after)

    def answer(self, world: World, driver: Driver, answer: Any) -> World:
        """The protocol gets its answer."""
        return with_driver(world, driver._replace(at=self.runs.resume(driver.at, answer)))


def _is_free(slot: Slot, generation: int) -> bool:
    """Whether the production code would take an id for a task of a generation."""
    known = TransactionalId("", -1, "used" if slot.prepared_by else "free", CHAIN, slot.prepared_by)
    return known.is_free_for(CHAIN, generation)


def explore(limits: Limits, rules: Rules = Rules()) -> int:
    """Try everything within the limits.

    Returns:
        How many states there are.

    Raises:
        ViolationError: If a promise is broken.
    """
    with patch.object(protocol, "_LOOKS", 2):  # a third look finds nothing that the second one does not
        return Explorer(limits, rules).run()
