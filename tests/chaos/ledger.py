"""The books of a campaign: which rows were written, destroyed by a fault, and published, and what does not add up. Pure.

A row is a number. Each number is written once, and counts as written when its broker has acknowledged it. A row that
a fault has destroyed (a topic deleted, retention) may be missing, and the source has to report it. It may also be
there, because a batch had read it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Balance", "Ledger", "Place"]


class Place(NamedTuple):
    """Where a row was written."""

    cluster: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Balance:
    """What does not add up since the last balance.

    Args:
        lost: Rows that are missing, although nothing destroyed them.
        twice: Rows that are there more than once.
        destroyed: Rows that a fault destroyed and that are missing.
    """

    lost: tuple[int, ...] = ()
    twice: tuple[int, ...] = ()
    destroyed: tuple[int, ...] = ()


@dataclass
class Ledger:
    """Rows from their writing to their publication. Threads write them, so each question asks a copy.

    Attributes:
        pending: Rows that were written and are not published yet.
        published: How often readers see each row.
        destroyed: Rows of `pending` that need not come any more.
    """

    pending: dict[int, Place] = field(default_factory=dict)
    published: Counter[int] = field(default_factory=Counter)
    destroyed: set[int] = field(default_factory=set)
    _twice: set[int] = field(default_factory=set)
    _told: set[int] = field(default_factory=set)

    def write(self, number: int, place: Place) -> None:
        """A row is in an input topic."""
        if number not in self.published and number not in self._told:
            self.pending[number] = place

    def publish(self, number: int) -> None:
        """Readers see a row in an output topic."""
        self.published[number] += 1
        self.pending.pop(number, None)
        self.destroyed.discard(number)
        if self.published[number] > 1 and number not in self._told:
            self._twice.add(number)

    def destroy(self, concerns: Callable[[Place], bool]) -> int:
        """A fault destroys the rows at some places; returns how many of them are not published yet."""
        found = {number for number, place in list(self.pending.items()) if concerns(place)}
        self.destroyed |= found
        return len(found)

    def goes_on(self, mark: int) -> bool:
        """Whether a row with this number or a later one is published."""
        return any(number >= mark for number in list(self.published))

    def missing(self, before: int) -> list[int]:
        """The rows with lower numbers than `before` that have yet to come."""
        return [number for number in list(self.pending) if number < before and number not in self.destroyed]

    def balance(self, before: int) -> Balance:
        """What does not add up for rows with lower numbers than `before`; it is told once."""
        lost = tuple(sorted(self.missing(before)))
        destroyed = tuple(sorted(number for number in self.destroyed if number < before))
        twice = tuple(sorted(self._twice))
        self._told.update(lost, twice, destroyed)
        for number in (*lost, *destroyed):
            del self.pending[number]
        self.destroyed.difference_update(destroyed)
        self._twice.clear()
        return Balance(lost, twice, destroyed)

    def forget_pending(self) -> None:
        """Tell no more of the rows that are not published yet: the campaign begins with new topics."""
        self._told.update(self.pending)
        self.pending.clear()
        self.destroyed.clear()
