"""How a fault is declared, drawn and judged. Pure.

A fault is a generator function on the world. It causes the fault, yields how many seconds it lasts, and ends it. Its
docstring says in a sentence what happens, its outcome what has to come of it::

    @fault(GOES_ON)
    def broker_killed(world):
        "The only broker of a cluster is killed, and started again five seconds later."
        world.b.brokers[0].kill()
        yield 5
        world.b.brokers[0].start()
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tests.chaos.ledger import Balance
    from tests.chaos.world import World

__all__ = [
    "FAULTS",
    "GOES_ON",
    "RECOVERY_S",
    "RESTARTS",
    "Fault",
    "Outcome",
    "Seen",
    "draw",
    "fault",
    "first_line",
    "judge",
    "stops",
]

WayOn: TypeAlias = "Callable[[World, str], dict[str, str]]"

RECOVERY_S = 90.0
"""Within this time of a fault's end all rows written before its end are published."""


@dataclass(frozen=True)
class Outcome:
    """What has to come of a fault.

    Args:
        words: As it reads in the report.
        error: A regular expression for the error that the query stops with; empty means that it does not stop.
        has_to_stop: Whether the query has to stop with that error; else it may.
        way_on: The documented way on: what the campaign does with the world after the error, whose text it
            gets, before it starts the query again. It returns options for that one start.
        reports: What the query has to report of the rows that the fault destroyed, in its errors or events: their
            `count`, or a regular expression for words, where nobody can know how many a deleted topic had. Empty if
            it destroys none.
    """

    words: str
    error: str = ""
    has_to_stop: bool = False
    way_on: WayOn | None = None
    reports: str = ""


GOES_ON = Outcome("goes on")
RESTARTS = Outcome("goes on after a plain restart, which may be needed", error=".")


def stops(error: str, way_on: WayOn, words: str, *, reports: str = "") -> Outcome:
    """The query stops with this error, and goes on by the documented way: `words`."""
    return Outcome(f"stops with {error}; {words}", rf"\b{error}\b", has_to_stop=True, way_on=way_on, reports=reports)


@dataclass(frozen=True)
class Fault:
    """A fault.

    Args:
        name: Its name, in words with hyphens.
        what: What happens, in a sentence.
        outcome: What has to come of it.
        cause: Causes it, and ends it; see above.
        cheap: Whether it is one of the short campaign's.
        needs: What the world has to have: `three-brokers`, `workers`, or `mount`.
    """

    name: str
    what: str
    outcome: Outcome
    cause: Callable[[World], Iterator[float]]
    cheap: bool = False
    needs: frozenset[str] = frozenset()


FAULTS: dict[str, Fault] = {}
"""All faults by name, in the order of their declaration."""


def fault(
    outcome: Outcome, *, cheap: bool = False, needs: Sequence[str] = ()
) -> Callable[[Callable[[World], Iterator[float]]], Callable[[World], Iterator[float]]]:
    """Declare a fault; the function's name is its name."""

    def declare(cause: Callable[[World], Iterator[float]]) -> Callable[[World], Iterator[float]]:
        name = cause.__name__.replace("_", "-")
        assert name not in FAULTS, name
        assert cause.__doc__, name
        FAULTS[name] = Fault(name, " ".join(cause.__doc__.split()), outcome, cause, cheap, frozenset(needs))
        return cause

    return declare


def draw(faults: Sequence[Fault], seed: int) -> Iterator[Fault]:
    """Faults without end, in an order that the seed decides; each comes once before any comes again."""
    chance = random.Random(seed)
    while True:
        yield from chance.sample(faults, len(faults))


@dataclass
class Seen:
    """What was seen of a fault.

    Args:
        errors: The first line of each error that the query stopped with.
        recovery_s: The seconds from the fault's end until all rows written before it were published; None if they were not.
        flows: Whether rows that were written after the fault's end are published.
        reports: What the source reported about rows that it gave up.
        broken: The promises that were broken, each in a few words.
    """

    errors: list[str] = field(default_factory=list)
    recovery_s: float | None = None
    flows: bool = True
    reports: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def judge(outcome: Outcome, seen: Seen, balance: Balance) -> str:
    """`ok`, or what is wrong in a few words."""
    wrong = [*seen.broken]
    if balance.lost:
        wrong.append(f"{len(balance.lost)} rows lost" if seen.flows else f"{len(balance.lost)} rows do not come")
    if balance.twice:
        wrong.append(f"{len(balance.twice)} rows twice")
    if not seen.flows:
        wrong.append("does not go on")
    elif seen.recovery_s is None:
        wrong.append("does not recover")
    elif seen.recovery_s > RECOVERY_S:
        wrong.append(f"recovers after {RECOVERY_S:.0f} s")
    unexpected = [error for error in seen.errors if not outcome.error or not re.search(outcome.error, error)]
    if unexpected:
        wrong.append("another error" if outcome.error else "stops")
    if outcome.has_to_stop and not seen.errors:
        wrong.append("does not stop")
    if outcome.reports and balance.destroyed:
        wrong += _unreported(len(balance.destroyed), outcome.reports, seen)
    return ", ".join(wrong) or "ok"


def _unreported(destroyed: int, expected: str, seen: Seen) -> list[str]:
    if expected != "count":
        found = any(re.search(expected, text) for text in (*seen.reports, *seen.errors))
        return [] if found else [f"{destroyed} destroyed rows are not reported"]
    numbers = [int(n.replace(",", "")) for text in (*seen.reports, *seen.errors) for n in re.findall(r"\d[\d,]*", text)]
    # Of a batch that was published already, deleted records are reported, and none of its rows is missing.
    total, again = _sum_of_rows(seen.reports), any("is published already" in error for error in seen.errors)
    if destroyed in numbers or destroyed == total or (again and destroyed < total):
        return []
    return [f"{destroyed} destroyed rows are not reported as such"]


def _sum_of_rows(reports: Sequence[str]) -> int:
    return sum(
        int(found.replace(",", ""))
        for text in reports
        for found in re.findall(r"(\d+(?:,\d{3})*) (?:records?|offsets)\b", text)
    )


_OWN_ERROR = re.compile(r"(?:dynamic_kafka\.errors\.)?\b([A-Z]\w*Error): ([^\n]*)")


def first_line(text: str) -> str:
    """The line of an error as Spark shows it that says most: our own error's first line, else any error's."""
    lines = [f"{name}: {message}".strip() for name, message in _OWN_ERROR.findall(text)]
    own = [line for line in lines if f"dynamic_kafka.errors.{line.partition(':')[0]}" in text]
    others = [line for line in text.splitlines() if line[:1].strip()]  # lines of a plan begin with blanks
    return (own or lines or others or [""])[-1][:600]
