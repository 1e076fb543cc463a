"""Runs of the real protocol (`dynamic_kafka.sink.protocol`), and what they write into the log, as numbers.

Worlds have to be hashed by the million. And numbers are equal where futures are: two runs that stand at the same line with
the same variables are at the same point, however they came there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.sink import protocol
from dynamic_kafka.sink.log import chain
from dynamic_kafka.sink.log.chain import Chain, Record, State
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.protocol import Claim, ReadLog, TransactionPolicy
from tests.model.world import TASKS, Driver, Log, World

__all__ = ["CHAIN", "Failure", "Result", "Runs"]

_POLICY = TransactionPolicy()
CHAIN = "chain"  # there is only one log


class Result(NamedTuple):
    """The end of a run."""

    value: Any


class Failure(NamedTuple):
    """The other end of a run."""

    error: DynamicKafkaError


class Point(NamedTuple):
    """A point in a run.

    Args:
        driver: Who runs it, as it was at the beginning.
        answers: What it was answered since, or something that leads to the same point.
        next: The effect that it wants, or its end.
    """

    driver: Driver
    answers: tuple[Any, ...]
    next: Any


class Runs:
    """All that were seen.

    Args:
        named: True if batches have a `txnAppId`, which their claims know, and no consecutive numbers.
        owned: True if claims say which driver has made them.
    """

    def __init__(self, *, named: bool, owned: bool) -> None:
        self._named, self._owned = named, owned
        self._points: list[Point] = []
        self._point_numbers: dict[Any, int] = {}
        self._records: list[Record] = []
        self._record_numbers: dict[Any, int] = {}
        self._states: list[State] = []
        self._state_numbers: dict[Any, int] = {}
        self.resume: Callable[[int, Any], int] = cache(self._resume)
        """The point that an answer leads to."""
        self.appended: Callable[[Log, int, bool], Log] = cache(self._appended)
        """The log with one more record, by number, if that counts; True if its driver may still look for it."""

    def start(self, driver: Driver) -> int:
        """The point at which a driver's phase begins."""
        return self._run(driver, ())

    def next(self, at: int) -> Any:
        """What the run at a point wants."""
        return self._points[at].next

    def _owner(self, driver: Driver) -> str:
        return f"run {driver.number}" if self._owned else ""

    def _resume(self, at: int, answer: Any) -> int:
        return self._run(self._points[at].driver, (*self._points[at].answers, answer))

    def _run(self, driver: Driver, answers: tuple[Any, ...]) -> int:
        name, claimed = driver.name, driver.claim
        steps: Generator[Any, Any, Any]
        identity = Identity(f"query {driver.query}", driver.batch, consecutive=not self._named)
        if driver.phase == "claim":
            steps = protocol.claim(name, identity if self._named else None, _POLICY, owner=self._owner(driver))
        elif driver.phase == "commit":
            assert claimed is not None
            prepared = tuple(t for t in driver.messages if t is not None)
            batch = protocol.Batch(identity, len(TASKS) * (driver.content + 1), prepared)
            steps = protocol.commit(name, claimed, batch, _POLICY)
        else:
            assert claimed is not None
            steps = protocol.abandon(name, self._owner(driver) if driver.stopped else claimed)
        wanted: Any
        try:
            wanted = next(steps)
            for answer in answers:
                wanted = steps.send(self.chain(answer) if isinstance(wanted, ReadLog) else answer)
        except StopIteration as stop:
            wanted = Result(replace(stop.value, chain=CHAIN) if isinstance(stop.value, Claim) else stop.value)
        except DynamicKafkaError as error:
            wanted = Failure(error)
        point = Point(driver, answers, wanted)
        return _number(self._points, self._point_numbers, (repr(wanted), _place(steps)), point)

    # --- the log ---

    def record_number(self, record: Record) -> int:
        """A record's number."""
        key = record.name, record.follows, self._state_number(record.state)
        return _number(self._records, self._record_numbers, key, record)

    def _state_number(self, state: State) -> int:
        # The rest follows from these.
        key = (
            state.status,
            state.generation,
            state.owner,
            state.transactions,
            *state.applied.items(),
            *state.rows.items(),
        )
        if key in self._state_numbers:
            return self._state_numbers[key]
        return _number(self._states, self._state_numbers, key, replace(state, chain=CHAIN))

    def chain(self, log: Log) -> Chain:
        """The chain that a reader finds."""
        return Chain(log.length - 1, self._states[log.head], dict(log.appended)) if log.length else Chain()

    def append(self, world: World, number: int) -> World:
        """With one more record in the log, if that counts."""
        name = self._records[number].name
        driver = world.drivers[int(name.partition(".")[0])]
        return world._replace(log=self.appended(world.log, number, f"{name}.".startswith(f"{driver.name}.")))

    def _appended(self, log: Log, number: int, is_looked_for: bool) -> Log:  # noqa: FBT001
        record = self._records[number]
        if chain.follow(self.chain(log), log.length, record, start=0).offset != log.length:
            return log
        more = ((record.name, log.length),) if is_looked_for else ()
        return Log(log.length + 1, self._state_number(record.state), tuple(sorted((*log.appended, *more))))


def _number(found: list[Any], numbers: dict[Any, int], key: Any, value: Any) -> int:
    if key not in numbers:
        numbers[key] = len(found)
        found.append(value)
    return numbers[key]


def _place(steps: Any) -> tuple[Any, ...]:
    """Where a generator stands, and those that it waits for."""
    places = []
    while steps is not None and steps.gi_frame is not None:
        places.append((steps.gi_code, steps.gi_frame.f_lasti, repr(sorted(steps.gi_frame.f_locals.items()))))
        steps = steps.gi_yieldfrom
    return tuple(places)
