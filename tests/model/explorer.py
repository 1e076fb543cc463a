"""Every order in which two tasks and some drivers can act on a small Kafka.

The drivers run the real protocol (`dynamic_kafka.sink.protocol`): its generators are asked what they want next, and the
answers come from a `World`. Nothing here knows what the right order is.

What the explorer tries at every point:

* any process takes its next step, or never takes one again (a crash, or a zombie that wakes up later);
* a batch is given up before its tasks are done;
* a request (append, end, abort) is executed, or lost, or executed later, at any time, or executed twice;
* a broker aborts an open transaction that timed out;
* the next driver starts, while older ones go on; a task of any generation starts, however late.

Faults (lost, late and repeated requests, time-outs, drivers) are bounded, as `Limits` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from dynamic_kafka.errors import DynamicKafkaError, LostTransactionsError
from dynamic_kafka.sink import protocol
from dynamic_kafka.sink.chain import Transaction
from dynamic_kafka.sink.protocol import (
    Abort,
    Append,
    Describe,
    End,
    ListOpen,
    ObservedTransaction,
    Outcome,
    ReadLog,
    Wait,
)
from tests.model.runs import Failure, Result, Runs
from tests.model.world import (
    SLOTS,
    TASKS,
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


@dataclass
class Explorer:
    """All states that can be reached."""

    limits: Limits
    rules: Rules
    runs: Runs = field(default_factory=Runs)
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
                if sum((r.query, r.batch) == (query, batch) for r in rows) < len(TASKS):
                    raise ViolationError(f"batch {batch} is done for Spark, and not published: {rows}")
        self.finished += self.limits.batches in world.done

    # --- moves ---

    def moves(self, world: World) -> Iterator[World]:
        """All worlds that can come next.

        What a driver does by itself commutes with all else: it comes first, and nothing is tried in its place.
        """
        for driver in world.drivers:
            if driver.phase in ("claim", "commit", "abandon") and isinstance(
                self.runs.next(driver.at), (Result, Failure, Wait)
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
                aborted = ended(slot, "aborted", later=1)
                if slot.status != "open":
                    continue
                if not slot.seen_open and world.timeouts < self.limits.timeouts:
                    yield replace(with_slot(world, worker, number, aborted), timeouts=world.timeouts + 1)
                if slot.seen_open and world.late_timeouts < self.limits.late_timeouts:
                    yield replace(with_slot(world, worker, number, aborted), late_timeouts=world.late_timeouts + 1)
        for driver in world.drivers:
            if driver.phase != "end":
                yield from self.step(world, driver)
        if len(world.drivers) < self.limits.drivers:
            yield self.start_driver(world, len(world.drivers))

    def start_driver(self, world: World, number: int) -> World:
        """A driver reads Spark's checkpoint: the first batch that is not done comes (again)."""
        query = number % self.limits.queries
        done = world.done[query]
        world = replace(world, drivers=(*world.drivers, Driver(number, query, done, "end")))
        return self.enter(world, world.drivers[number], "claim" if done < self.limits.batches else "end")

    def run_task(self, world: World, task: Task) -> World:
        """A task takes a transactional id of its worker, writes, and its message reaches the driver if that still waits."""
        tasks = {*world.tasks, task._replace(started=True)} - {task}
        if world.late_tasks == self.limits.late_tasks:
            tasks = {other for other in tasks if not other.started}
        world = replace(world, tasks=tuple(sorted(tasks)))
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
        world = with_slot(world, task.number, number, Slot(epoch, "open", row, max(slot.prepared_by, task.generation)))
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
            return
        if driver.phase == "log":
            # Two drivers may write it: Spark's own checkpoint lets the first one win, and ends the other.
            if world.done[driver.query] == driver.batch:
                driver = driver._replace(batch=driver.batch + 1)
                done = tuple(n + (query == driver.query) for query, n in enumerate(world.done))
                more = driver.batch < self.limits.batches
                yield self.enter(replace(world, done=done), driver, "claim" if more else "end")
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
                found = tuple(
                    Transaction("c", f"{task}.{number}", task * SLOTS + number, slot.epoch)
                    for task, slots in enumerate(world.slots)
                    for number, slot in enumerate(slots)
                    if slot.status == "open"
                )
                yield self.answer(world, driver, found)
            case Describe(transactions):
                seen = tuple(self.describe(world, t) for t in transactions)
                for t, (outcome, *_) in zip(transactions, seen, strict=True):
                    if outcome is Outcome.OPEN:
                        task, number = divmod(t.producer_id, SLOTS)
                        world = with_slot(world, task, number, world.slots[task][number]._replace(seen_open=True))
                yield self.answer(world, driver, seen)
            case Wait():
                yield self.answer(world, driver, None)
            case Append(record):
                yield from self.requests(world, driver, [("append", self.runs.record_number(record))])
            case End(transactions):
                yield from self.requests(world, driver, [("commit", t) for t in transactions])
            case Abort(transactions):
                yield from self.requests(world, driver, [("abort", t) for t in transactions])

    def requests(self, world: World, driver: Driver, requests: list[tuple[str, Any]]) -> Iterator[World]:
        """A request for each, executed in order; at most one of them meets a fault."""
        answered = self.answer(world, driver, None)
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
        """What the coordinator says of it; the classes are those of `kafka.transactions`."""
        task, number = divmod(transaction.producer_id, SLOTS)
        slot = world.slots[task][number]
        after = slot.epoch - transaction.producer_epoch
        if after == 0 and slot.status in ("open", "committed"):
            return ObservedTransaction(Outcome.OPEN if slot.status == "open" else Outcome.COMMITTED, 60_000, 60_000)
        return ObservedTransaction(Outcome.ABORTED if slot.status == "aborted" and after in (0, 1) else Outcome.UNKNOWN)

    # --- drivers ---

    def after(self, world: World, driver: Driver, value: Any) -> World:
        """The driver's next phase."""
        if driver.phase == "claim":
            tasks = tuple(Task(driver.number, driver.query, driver.batch, number, value.generation) for number in TASKS)
            world = replace(world, tasks=tuple(sorted((*world.tasks, *tasks))))
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
        after = Driver(driver.number, driver.query, driver.batch, phase)
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


def explore(limits: Limits, rules: Rules = Rules()) -> int:
    """Try everything within the limits.

    Returns:
        How many states there are.

    Raises:
        ViolationError: If a promise is broken.
    """
    with patch.object(protocol, "_LOOKS", 2):  # a third look finds nothing that the second one does not
        return Explorer(limits, rules).run()
