"""Every order in which drivers can look for the commit log, make it and move it: a batch is decided once, in one log.

Two clusters, and drivers with different wishes. What they see is judged by the production code (`log_place.choose`), the
chains by `chain.follow`. The steps between are those of `committer.claim_batch`, `Committer.move_to` and `log_search.seed`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from dynamic_kafka.errors import DynamicKafkaError, ProducerFencedError
from dynamic_kafka.sink.log import chain as chains
from dynamic_kafka.sink.log import place as log_place
from dynamic_kafka.sink.log.chain import Chain, Record, State, decided_state, finished_state, next_generation
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.log.place import Seen, Spot
from dynamic_kafka.sink.log.records import Pointer

A, B = Spot("a", "log"), Spot("b", "log")


class Look(NamedTuple):
    """Look at a topic; the answer is a `Seen`."""

    spot: Spot


class Add(NamedTuple):
    """Create a topic, and append a record if there is one. The answer is not trusted."""

    spot: Spot
    record: Record | Pointer | None


class Publish(NamedTuple):
    """Publish the batch: its decision counts."""


Steps = Generator[Any, Any, Any]


@dataclass(frozen=True)
class Wish:
    """What a driver is told.

    Args:
        log: `sink.commit-log.cluster`.
        active: The clusters that it writes to; the log is made on the first one.
    """

    log: Spot | None = None
    active: tuple[Spot, ...] = (A, B)


def driver(name: str, wish: Wish) -> Steps:
    """Write a batch, if it is not published yet."""
    seen: dict[Spot, Seen] = {}
    for spot in (A, B):
        seen[spot] = yield Look(spot)
    found = log_place.choose("p", seen, {}, wish.log, wish.active[0], ())
    yield Add(found.spot, None)
    if found.source is not None:
        yield from move(name, found.source, found.spot, found.places)
    head = yield from claim(name, found.spot, found.places)
    if "q" in head.state.applied:
        return
    decided = decided_state(head.state, Identity("q", 0), 1, (), {}, accepted=False)
    now = yield from read(found.spot, found.places)
    if now.state != head.state or (yield from append(f"{name}.decided", found.spot, head, decided)) is None:
        raise ProducerFencedError("")
    yield Publish()


def read(spot: Spot, places: tuple[str, ...]) -> Steps:
    """Read a log that must not have moved on."""
    head: Chain = (yield Look(spot)).chain
    if head.state.places and head.state.places[-1] != places[-1]:
        raise ProducerFencedError("")
    return head


def append(name: str, spot: Spot, head: Chain, state: State) -> Steps:
    """Append a state; return its chain, or None if it does not count."""
    yield Add(spot, Record(name, head.offset, state))
    after: Chain = (yield Look(spot)).chain
    return Chain(after.recent[name], state) if name in after.recent else None


def claim(name: str, spot: Spot, places: tuple[str, ...]) -> Steps:
    """Finish what is decided, and claim a generation."""
    head = yield from read(spot, places)
    if head.state.status == "decided":
        yield from append(f"{name}.finish", spot, head, finished_state(head.state))
        head = yield from read(spot, places)
    state = replace(next_generation(head.state, name), places=places)
    mine = yield from append(name, spot, head, state)
    if mine is None:
        raise ProducerFencedError("")
    return mine


def move(name: str, source: Spot, target: Spot, places: tuple[str, ...]) -> Steps:
    """Say in the old log that it has moved, and let the new one begin with its state."""
    head: Chain = (yield Look(source)).chain
    if head.state.places != places:
        yield from claim(f"{name}.move", source, places[:-1])
        head = (yield Look(source)).chain
        moved = replace(head.state, generation=head.state.generation + 1, places=places)
        yield Add(source, Record(f"{name}.moved", head.offset, moved))
        head = (yield Look(source)).chain
    if head.state.places != places:
        raise ProducerFencedError("")
    there: Chain = (yield Look(target)).chain
    if there.state.places != places:
        yield Add(target, Record(f"{name}.seed", there.offset, head.state))
        there = (yield Look(target)).chain
    if there.state.places != places:
        raise ProducerFencedError("")
    yield Add(source, Pointer(places[-1], target.cluster))


class Numbers:
    """Things by number, so that worlds are small, and equal if their things are."""

    def __init__(self) -> None:
        self.things: list[Any] = []
        self._numbers: dict[str, int] = {}

    def of(self, thing: Any) -> int:
        """Return the number of a thing."""
        key = repr(thing)
        if key not in self._numbers:
            self._numbers[key] = len(self.things)
            self.things.append(thing)
        return self._numbers[key]


class World(NamedTuple):
    """What is in the topics (-1: it does not exist), whether the batch is published, and each driver's answers."""

    topics: tuple[tuple[int, ...], ...]
    published: bool
    answers: tuple[tuple[int, ...], ...]


_NONE = (-1,)


class Explorer:
    """All worlds that can be reached."""

    def __init__(self, wishes: tuple[Wish, ...]) -> None:
        self.wishes = wishes
        self.records, self.answers = Numbers(), Numbers()
        self.nothing = self.answers.of(None)
        self.steps: dict[tuple[int, tuple[int, ...]], Any] = {}
        self.look = cache(self._look)
        """The number of what a reader finds."""

    def run(self, begun: tuple[Record, ...]) -> int:
        """Try every order, in which each driver may stop anywhere; return in how many worlds the batch is published."""
        log = tuple(self.records.of(record) for record in begun) or _NONE
        first = World((log, _NONE), False, ((),) * len(self.wishes))
        seen, pending, done = {first}, [first], 0
        while pending:
            world = pending.pop()
            for number in range(len(self.wishes)):
                after = self.step(world, number)
                if after is not None and after not in seen:
                    seen.add(after)
                    pending.append(after)
                    done += after.published
        return done

    def step(self, world: World, number: int) -> World | None:
        """The world after a driver's next step; None if it has ended."""
        topics, published, answer = dict(zip((A, B), world.topics, strict=True)), world.published, self.nothing
        match self.wanted(number, world.answers[number]):
            case None:
                return None
            case Look(spot):
                answer = self.look(spot, topics[spot])
            case Add(spot, record):
                more = () if record is None else (self.records.of(record),)
                topics[spot] = (*(() if topics[spot] == _NONE else topics[spot]), *more)
            case Publish():
                assert not published, "the batch is published twice"
                published = True
        answers = list(world.answers)
        answers[number] = (*answers[number], answer)
        return World(tuple(topics.values()), published, tuple(answers))

    def _look(self, spot: Spot, records: tuple[int, ...]) -> int:
        if records == _NONE:
            return self.answers.of(Seen(spot.cluster))
        head, pointer = Chain(), None
        for offset, record in enumerate(self.records.things[number] for number in records):
            if isinstance(record, Pointer):
                pointer = offset, record
            else:
                head = chains.follow(head, offset, record, start=0)
        return self.answers.of(Seen(spot.cluster, head, pointer))

    def wanted(self, number: int, answers: tuple[int, ...]) -> Any:
        """What a driver wants after these answers; None if it has ended."""
        if (number, answers) not in self.steps:
            steps = driver(f"d{number}", self.wishes[number])
            try:
                found = next(steps)
                for answer in answers:
                    found = steps.send(self.answers.things[answer])
            except (StopIteration, DynamicKafkaError):
                found = None
            self.steps[number, answers] = found
        return self.steps[number, answers]


BEGUN = (Record("before", -1, State("chain", 1, "finished", places=("a/log",))),)
CASES = [
    pytest.param((Wish(), Wish()), (), id="two first starts"),
    pytest.param((Wish(A), Wish(B)), BEGUN, id="one moves it"),
    pytest.param((Wish(B), Wish(B)), BEGUN, id="two move it", marks=pytest.mark.crash),
    pytest.param((Wish(), Wish(B)), BEGUN, id="one moves it, and one does not care"),
]


@pytest.mark.parametrize(("wishes", "begun"), CASES)
def test_a_batch_is_decided_in_one_log(wishes: tuple[Wish, ...], begun: tuple[Record, ...]) -> None:
    """Whoever looks, makes or moves the log, and wherever the others stand then."""
    assert Explorer(wishes).run(begun) > 0


def test_a_log_that_has_moved_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a driver that found it before decides a batch there that another one has decided in the new place."""
    monkeypatch.setattr("tests.model.test_log_places.read", _read_anything)
    with pytest.raises(AssertionError, match="is published twice"):
        Explorer((Wish(A), Wish(B))).run(BEGUN)


def _read_anything(spot: Spot, _: tuple[str, ...]) -> Steps:
    return (yield Look(spot)).chain
