"""A small Kafka, two tasks and some drivers at one moment: one immutable value.

It keeps nothing that does not matter any more, so that equal futures are equal worlds: the explorer meets each only once.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.protocol import Claim

__all__ = [
    "SLOTS",
    "TASKS",
    "Checkpoint",
    "Driver",
    "Log",
    "Phase",
    "Row",
    "Slot",
    "Task",
    "World",
    "appended_by",
    "ended",
    "publish",
    "with_driver",
    "with_slot",
]

TASKS = (0, 1)
SLOTS = 2

Phase = Literal["claim", "tasks", "commit", "abandon", "log", "end"]


class Row(NamedTuple):
    """What a task writes; another attempt of the same batch writes another row.

    Args:
        query: Whose.
        batch: The batch's number.
        task: The task's number.
        generation: The claim that it is written under.
        content: Which rows the batch has: the checkpoint that planned it.
        is_whole: False if only a part of the task's rows is in the transaction.
    """

    query: int
    batch: int
    task: int
    generation: int
    content: int = 0
    is_whole: bool = True


class Slot(NamedTuple):
    """A transactional id at its coordinator, and what its worker remembers of it.

    `fenced`: it timed out, its epoch has moved on already, and it is not aborted yet.
    """

    epoch: int = 0
    status: Literal["empty", "open", "committed", "aborted", "fenced"] = "empty"
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
    content: int = 0
    started: bool = False
    """Whether it did so before."""
    slot: int = -1
    """The id that it writes with, if it is in the middle of it."""
    epoch: int = -1


class Checkpoint(NamedTuple):
    """A checkpoint of Spark.

    Args:
        query: Whose; a copy is of the same query.
        done: The number of batches that Spark takes for done.
        plans: The content of each batch that is planned; a batch that is planned in another copy has other rows.
    """

    query: int
    done: int = 0
    plans: tuple[int, ...] = ()


class Driver(NamedTuple):
    """A driver: Spark's loop over batches.

    Args:
        number: Which one.
        query: Whose; queries have checkpoints of their own.
        batch: The batch it works at.
        phase: What it does for it.
        claim: Of this batch.
        messages: The transactions that tasks have prepared for it, while it waits for them.
        at: Where the protocol stands in this phase; see `runs.Point`.
        stopped: True if the query was stopped in the middle of the tasks: its end gives its run, and not its claim.
    """

    number: int
    query: int
    batch: int
    phase: Phase
    claim: Claim | None = None
    messages: tuple[Transaction | None, ...] = (None, None)
    at: int = -1
    checkpoint: int = 0
    content: int = 0
    stopped: bool = False

    @property
    def name(self) -> str:
        """What the names of its records begin with."""
        return f"{self.number}.{self.batch}.{self.phase}"


class Log(NamedTuple):
    """The commit log, as far as it can still matter. Only records that count are kept: others change nothing but offsets.

    Args:
        length: How many records.
        head: The state of the last one, by its number.
        appended: Name and offset of records that their driver may still look for.
    """

    length: int = 0
    head: int = -1
    appended: tuple[tuple[str, int], ...] = ()


_EMPTY = Log()


class World(NamedTuple):
    """Everything there is at one moment, and nothing that does not matter any more: equal futures are equal worlds."""

    log: Log = _EMPTY
    slots: tuple[tuple[Slot, ...], ...] = ((Slot(),) * SLOTS,) * len(TASKS)
    published: tuple[Row, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = (Checkpoint(0), Checkpoint(1))
    """One for each query, and then the copies."""
    drivers: tuple[Driver, ...] = ()
    tasks: tuple[Task, ...] = ()
    late: tuple[tuple[str, Any], ...] = ()
    """Requests on their way."""
    late_tasks: int = 0
    faults: int = 0
    timeouts: int = 0
    late_timeouts: int = 0
    trims: int = 0
    aborts: int = 0


def with_slot(world: World, task: int, number: int, slot: Slot) -> World:
    """With another state of a transactional id."""
    slots = list(world.slots[task])
    slots[number] = slot
    return world._replace(slots=(*world.slots[:task], tuple(slots), *world.slots[task + 1 :]))


def ended(slot: Slot, status: Literal["committed", "aborted", "fenced"], later: int = 0) -> Slot:
    """After its transaction has ended; `later` is by how much that moves the epoch on."""
    return Slot(slot.epoch + later, status, None, slot.prepared_by)


def publish(world: World, row: Row) -> World:
    """With one more row; when a batch is whole it does not matter any more which generation has written it."""
    rows = sorted((*world.published, row))
    whole = [row._replace(task=task, is_whole=True) for task in TASKS]
    if all(rows.count(other) == 1 for other in whole):
        rows = sorted(other._replace(generation=0) if other in whole else other for other in rows)
    return world._replace(published=tuple(rows))


def with_driver(world: World, driver: Driver) -> World:
    """With another state of a driver; in another phase it does not look for what it appended before."""
    drivers = list(world.drivers)
    before, drivers[driver.number] = drivers[driver.number], driver
    if before.name == driver.name or not (stale := appended_by(driver.number, world.log)):
        return world._replace(drivers=tuple(drivers))
    log = world.log._replace(appended=tuple(some for some in world.log.appended if some not in stale))
    return world._replace(drivers=tuple(drivers), log=log)


def appended_by(number: int, log: Log) -> tuple[tuple[str, int], ...]:
    """A driver's records that it may still look for."""
    return tuple((name, offset) for name, offset in log.appended if name.startswith(f"{number}."))
