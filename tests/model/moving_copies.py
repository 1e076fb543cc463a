"""Random worlds in which a query moves between copies, there and back: no promise is wrong in any of them.

A world is two clusters, a copier between them and a query that reads one of them. Records are produced, copied and read in
any order. With `honest` the copier and the producers do what they should. Else the copier leaves records out, repeats them,
changes their order or keeps one for later, and producers write to the copy before the query has moved there. In both kinds
the copier may lag behind, and logs have markers, retention, compaction, equal times, times out of order or records that
are identical. The old cluster may be dead when the query moves, and it comes back with what nobody has read. Of identical
records, none is on one cluster only: with another one, it looks like a record and its copy (docs/guides/migration.md). So
they are not deleted, none is older than the copy or the same before and after a move, and one that was not copied before a
move gets another content.

`python -m tests.model.moving_copies 1000000` tries a million worlds on all cores, and prints the first ones that are wrong.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from os import cpu_count
from random import Random
from typing import NamedTuple

from dynamic_kafka.continuation import Way
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.evidence import (
    MARKS,
    Anchor,
    Marks,
    MoveRequest,
    Placement,
    RecordPrint,
    Sync,
    anchors_of,
    anchors_text,
)
from dynamic_kafka.source.rules.placement import follow, place, way_back

TP = KafkaTopicPartition("t", 0)
_FEW = 5


class Record(NamedTuple):
    """A record: its number, its time and what is in it. Copies have the number of what they are copies of."""

    number: int
    time_ms: int
    content: str


class Log:
    """The log of one partition. None is an offset without a record."""

    def __init__(self) -> None:
        self.start = 0
        self.entries: list[Record | None] = []
        self.copied: list[Sync] = []
        self._readings = 0

    @property
    def end(self) -> int:
        """The end."""
        return len(self.entries)

    def bounds(self, tp: KafkaTopicPartition) -> tuple[int, int]:
        """See `RecordLog`."""
        assert tp == TP
        return self.start, self.end

    def offset_at(self, tp: KafkaTopicPartition, time_ms: int) -> int | None:
        """See `RecordLog`."""
        assert tp == TP
        kept = enumerate(self.entries[self.start :], self.start)
        return next((offset for offset, record in kept if record is not None and record.time_ms >= time_ms), None)

    def records(self, tp: KafkaTopicPartition, start: int, end: int) -> Iterator[RecordPrint]:
        """See `RecordLog`. As with a consumer, only the last one that was begun may go on."""
        assert tp == TP
        self._readings += 1
        mine = self._readings
        for offset in range(max(start, self.start), min(end, self.end)):
            assert mine == self._readings, "it is read at another place by now"
            record = self.entries[offset]
            if record is not None:
                yield RecordPrint(offset, record.time_ms, record.content, "")

    def syncs(self, _: str, of: KafkaTopicPartition) -> list[Sync] | None:
        """See `RecordLog`."""
        assert of == TP
        return self.copied or None

    def between(self, start: int, end: int) -> list[Record]:
        """Return the records with offsets in [start, end)."""
        return [record for record in self.entries[max(start, self.start) : end] if record is not None]


@dataclass
class World:
    """Two clusters, of which one is read, and what the query's document says."""

    random: Random
    honest: bool
    identical: bool
    way: Way
    logs: dict[str, Log] = field(default_factory=lambda: {"a": Log(), "b": Log()})
    read_on: str = "a"
    position: int = 0
    read: set[Record] = field(default_factory=set)
    repeated: set[Record] = field(default_factory=set)
    rows: Counter[tuple[int, str]] = field(default_factory=Counter)
    numbers: int = 0
    moves: int = 0
    clock_ms: int = 1_000
    next_copied: int = 0
    held: list[Record] = field(default_factory=list)
    anchor: Anchor | None = None
    marks: tuple[Marks, ...] = ()
    story: list[str] = field(default_factory=list)

    @property
    def copy_on(self) -> str:
        """The cluster that has the copy."""
        return "b" if self.read_on == "a" else "a"

    def say(self, text: str) -> None:
        """Add to the story, for people."""
        self.story.append(text)

    def new_record(self) -> Record:
        """Produce a record."""
        random = self.random
        self.numbers += 1
        if self.identical and random.random() < 0.7:
            return Record(self.numbers, 1_000, random.choice("xy") + str(self.moves))
        kind = random.random()
        self.clock_ms += random.choice((0, 1, 5))
        time_ms = self.clock_ms - random.choice((0, 0, 0, 3, 50)) if kind < 0.97 else random.choice((-1, 0, 10**13))
        return Record(self.numbers, time_ms, f"r{self.numbers}")

    # --- what happens ---

    def produce(self) -> None:
        """Records arrive where the query reads."""
        for _ in range(self.random.randint(1, _FEW)):
            self.logs[self.read_on].entries.append(self.new_record())
        self.say(f"produce to {self.logs[self.read_on].end}")

    def mark_transaction(self) -> None:
        """A marker on either cluster."""
        self.logs[self.random.choice("ab")].entries.append(None)

    def copy(self) -> None:
        """The copier goes on, some records."""
        old, new, random = self.logs[self.read_on], self.logs[self.copy_on], self.random
        self.next_copied = max(self.next_copied, old.start)
        for _ in range(random.randint(1, 2 * _FEW)):
            if self.next_copied >= old.end:
                break
            has_begun = any(
                record is not None for record in new.entries
            )  # else the copy begins later, as far as one sees
            fault = random.random() if has_begun and not self.honest else 1.0
            record = old.entries[self.next_copied]
            self.next_copied += 1
            if record is None:
                if self.way == "same-offsets":
                    new.entries.append(None)
                continue
            if fault < 0.02 and not self.identical:
                self.say(f"leave out {record.content}")
                continue
            if fault < 0.04 and not self.identical:
                self.held.append(record)
                self.say(f"keep {record.content}")
                continue
            if fault < 0.06 and not self.identical:
                self.next_copied = random.randint(self.begun(), self.next_copied)
                self.say(f"repeat from {self.next_copied}")
            if 0.06 <= fault < 0.08 and self.next_copied < old.end and not self.identical:
                new.entries.append(old.entries[self.next_copied])
                self.next_copied += 1
                self.say(f"swap {record.content}")
            if self.held and fault < 0.3:
                new.entries.append(self.held.pop())
            if random.random() < 0.2:
                new.copied.append(Sync(self.next_copied - 1, new.end))
            new.entries.append(record)
        self.say(f"copied to {self.next_copied}, {self.copy_on} ends at {new.end}")

    def begun(self) -> int:
        """Return the first offset whose record was copied. A copier repeats none before it."""
        old, new = self.logs[self.read_on], self.logs[self.copy_on]
        copied = {*new.entries} - {None}
        before = range(old.start, self.next_copied)
        return next((offset for offset in before if old.entries[offset] in copied), self.next_copied)

    def produce_early(self) -> None:
        """A producer writes to the copy already."""
        if not self.honest:
            for _ in range(self.random.randint(1, 2)):
                record = self.new_record()
                self.logs[self.copy_on].entries.append(record._replace(content=f"early{record.number}"))
            self.say(f"early on {self.copy_on}, which ends at {self.logs[self.copy_on].end}")

    def go_on_reading(self) -> None:
        """The query reads, and its document gets marks most of the time."""
        log = self.logs[self.read_on]
        self.position = max(self.position, log.start)
        end = min(log.end, self.position + self.random.randint(1, 2 * _FEW))
        self.take(log.between(self.position, end))
        has_moved, self.position = end > self.position, end
        if has_moved and self.random.random() < 0.8:
            self.marks = (Marks(end, tuple(log.records(TP, 0, end))[-MARKS:]),)
        self.say(f"read to {end}")

    def take(self, records: list[Record]) -> None:
        """Count rows. One that could not be told from its repetition counts once."""
        for record in records:
            if record not in self.repeated or record not in self.read:
                self.rows[record.time_ms, record.content] += 1
            self.read.add(record)

    def compare(self) -> None:
        """The query compares both logs while the copy stands by."""
        most = self.random.choice((3, 10, 1000))
        self.anchor, _ = follow(self.request(readable=True), self.logs[self.read_on], self.logs[self.copy_on], most)
        self.say(f"compared: {self.anchor}")

    def delete(self) -> None:
        """Retention deletes what was read, on one of the clusters."""
        name = self.random.choice("ab")
        log = self.logs[name]
        most = self.position if name == self.read_on else log.end
        log.start = max(log.start, self.random.randint(0, most))
        self.say(f"{name} begins at {log.start}")

    def compact(self) -> None:
        """Compaction removes a record that was read, on both clusters: one cannot be seen (docs/guides/migration.md)."""
        log, copy = self.logs[self.read_on], self.logs[self.copy_on]
        if log.start < self.position:
            at = self.random.randint(log.start, self.position - 1)
            record, log.entries[at] = log.entries[at], None
            self.held = [kept for kept in self.held if kept != record]
            if record in copy.entries and self.way != "same-offsets":
                copy.entries = [None if entry == record else entry for entry in copy.entries]
            self.say(f"compacted {self.read_on}")

    def request(self, *, readable: bool) -> MoveRequest:
        """Return the question where the position is."""
        anchor = anchors_of(anchors_text({TP: self.anchor}))[TP] if self.anchor is not None else None
        old, new = self.read_on, self.copy_on
        return MoveRequest(
            new, TP, old, TP, self.position, self.way, "", readable, self.marks, f"k{new}", f"t{new}", anchor
        )

    # --- the move ---

    def ask(self, *, dead: bool) -> Placement:
        """Return the answer where the position is."""
        old = None if dead else self.logs[self.read_on]
        return place(self.request(readable=not dead), old, self.logs[self.copy_on])

    def is_kept(self, answer: Placement) -> bool:
        """Return whether `at-least-once` is true: what was copied was read or comes. Identical records count once."""
        if answer.guarantee != "at-least-once" or (answer.anchor is None and not self.honest):
            return True  # it rests on MirrorMaker's syncs, which are true if it keeps the order
        assert answer.position is not None
        new = self.logs[self.copy_on]
        copied = {*new.between(0, new.end)}.intersection(self.logs[self.read_on].entries) - self.read
        return {r[1:] for r in copied} <= {*self.rows, *(r[1:] for r in new.between(answer.position, new.end))}

    def is_right(self, position: int, *, dead: bool) -> bool:
        """Return whether every record comes once if reading goes on there, as far as the copier tells."""
        old, new = self.logs[self.read_on], self.logs[self.copy_on]
        there, after = new.between(0, new.end), new.between(position, new.end)
        # One record twice, one after the other, cannot be told from two that are the same, if none of them was read.
        repeated = self.repeated_from(position)
        after = [
            one for one, before in zip(after, [None, *after], strict=False) if one != before or one not in repeated
        ]
        # Before the first copied record, the copy may as well have begun later.
        first = min((record.number for record in there), default=self.numbers)
        coming = [record for record in self.held if record not in there and record.number > first]
        if not dead:
            coming += [record for record in old.between(self.next_copied, old.end) if record not in there]
            unread = old.between(self.position, old.end)
            there_too = [number for number, record in enumerate(unread) if record in after]
            coming_too = unread[: max(there_too, default=-1) + 1]
        else:
            coming_too = []
        known = Counter((r.time_ms, r.content) for r in {*self.read, *there, *coming, *coming_too})
        comes = self.rows + Counter((r.time_ms, r.content) for r in (*after, *coming))
        return comes == known

    def repeated_from(self, position: int) -> set[Record]:
        """Return the records of the copy that come there twice, one after the other, and that were not read."""
        after = self.logs[self.copy_on].between(position, self.logs[self.copy_on].end)
        return {one for one, before in pairwise(after) if one == before} - self.read

    def move(self, position: int, answer: Placement, *, dead: bool) -> None:
        """Go on there. The copier turns round, and copies what comes from now on."""
        old, new, repeated = self.read_on, self.copy_on, self.repeated_from(position)
        self.say(f"moves to {position} of {new}, {answer.guarantee}: {answer.evidence}; {'dead' if dead else 'alive'}")
        self.anchor = way_back(self.request(readable=not dead), answer, f"k{old}", f"t{old}")
        self.read_on, self.position, self.marks, self.held = new, position, (), []
        if self.identical:
            left, known = self.logs[old], {None, *self.read, *self.logs[new].entries}
            left.entries = [
                r if r is None or r in known else r._replace(content=f"left{r.number}") for r in left.entries
            ]
        self.moves += 1
        self.repeated |= repeated
        self.next_copied = self.random.choice((position, position, self.logs[new].end))
        if self.way == "same-offsets":
            self.way = "records"


class Outcome(NamedTuple):
    """What became of a world: how often `exact` was said, could have been said, and was wrong."""

    exact: int
    could: int
    wrong: list[str]


def run(seed: int, *, honest: bool) -> Outcome:
    """Live through one world."""
    random = Random(seed)
    way: Way = random.choices(("records", "timestamp", "mirror-maker", "same-offsets"), (5, 1, 1, 1))[0]
    world = World(random, honest, identical=random.random() < 0.15, way=way)
    if random.random() < 0.2 and way != "same-offsets":
        for _ in range(random.randint(1, _FEW)):  # the copy has something else before
            world.logs["b"].entries.append(
                None if honest else world.new_record()._replace(content=f"own{random.random()}")
            )
    acts: list[Callable[[], None]] = [
        world.produce,
        world.copy,
        world.go_on_reading,
        world.compare,
        world.mark_transaction,
    ]
    weights: list[float] = [4, 4, 4, 3, 0 if way == "same-offsets" else 1]
    if random.random() < 0.3 and not world.identical:
        acts, weights = [*acts, world.delete, world.compact], [*weights, 0.5, 0 if honest else 0.3]
    if not honest:
        acts, weights = [*acts, world.produce_early], [*weights, random.choice((0, 0, 0.5))]
    if random.random() < 0.3:
        identical, world.identical = world.identical, False  # the copy may begin after these records
        for _ in range(3):
            world.produce()
            world.go_on_reading()
        world.identical = identical
        world.next_copied = random.choice((0, world.position, world.logs["a"].end))
        world.logs["b"].entries += [None] * (world.next_copied if way == "same-offsets" else 0)
    exact = could = 0
    wrong: list[str] = []
    for _ in range(random.randint(1, 4)):
        for act in random.choices(acts, weights, k=random.randint(3, 25)):
            act()
        dead = random.random() < 0.5
        if not dead or random.random() < 0.3:
            while world.position < world.logs[world.read_on].end:
                world.go_on_reading()
        if dead and random.random() < 0.5:
            world.compare()
        if random.random() < 0.8:
            while world.next_copied < world.logs[world.read_on].end:
                world.copy()
        answer = world.ask(dead=dead)
        is_right = answer.position is not None and world.is_right(answer.position, dead=dead)
        could += is_right
        exact += answer.guarantee == "exact"
        if not (is_right if answer.guarantee == "exact" else world.is_kept(answer)):
            wrong.append(f"seed {seed} honest {honest}: {answer}\n  " + "\n  ".join(world.story))
        if not is_right or answer.position is None:  # rows were lost, or read twice, by the user's own word
            break
        world.move(answer.position, answer, dead=dead)
    return Outcome(exact, could, wrong)


def run_many(seeds: range) -> Outcome:
    """Live through many worlds, every other one honest."""
    exact = could = 0
    wrong: list[str] = []
    for seed in seeds:
        found = run(seed, honest=seed % 2 == 0)
        exact, could = exact + found.exact, could + found.could
        wrong += found.wrong
    return Outcome(exact, could, wrong[:3])


def main(worlds: int) -> int:
    """Try many worlds; return 0 if no answer was wrong."""
    began, step = time.monotonic(), 5_000
    exact = could = 0
    wrong: list[str] = []
    with ProcessPoolExecutor(cpu_count()) as pool:
        ranges = [range(n, min(n + step, worlds)) for n in range(0, worlds, step)]
        for seeds, found in zip(ranges, pool.map(run_many, ranges), strict=True):
            exact, could, wrong = exact + found.exact, could + found.could, wrong + found.wrong
            if seeds.stop % 50_000 == 0:
                print(f"{seeds.stop:,} worlds, {exact:,} times exact, {len(wrong):,} wrong", flush=True)
    for text in wrong[:5]:
        print(text)
    print(
        f"{worlds:,} worlds in {time.monotonic() - began:.0f} s: {exact:,} times exact, {could:,} times the position was "
        f"right, {len(wrong):,} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
