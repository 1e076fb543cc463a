"""One fault after the other, on one world: cause it, end it, see whether the query recovers, and close the books."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from tests.chaos.declared import RECOVERY_S, Fault, Seen, first_line, judge
from tests.chaos.report import Result
from tests.chaos.world import World

__all__ = ["run_fault"]

_LOOK_S = 0.1
_PATIENCE_S = 200.0
_FLOW_S = 30.0
_HITCH_S = 10.0
_MOST_STOPS = 6

Say = Callable[[str], None]


class _Watch:
    """Watches the query while a fault is caused and after it: starts it again when it has stopped.

    Args:
        world: The world.
        fault: The fault.
        say: Tells what happens.
    """

    def __init__(self, world: World, fault: Fault, say: Say) -> None:
        self._world, self._fault, self._say = world, fault, say
        self._failure = ""
        self.errors: list[str] = []
        self.options: dict[str, str] = {}

    def look(self, *, is_over: bool) -> None:
        """Look whether the query has stopped.

        Args:
            is_over: Whether the fault is over; before that, the operator does nothing.
        """
        if failure := self._world.query.failure():
            self._failure = failure
            self.errors.append(first_line(failure))
            self._say(f"stopped: {self.errors[-1]}")
        if is_over and not self._world.query.is_running and len(self.errors) <= _MOST_STOPS:
            self._go_on()

    def _go_on(self) -> None:
        way_on = self._fault.outcome.way_on
        self.options = way_on(self._world, self._failure) if way_on is not None and self.errors else {}
        self._say(f"starts again with {self.options}" if self.options else "starts again")
        self._world.start(self.options)

    def wait(self, seconds: float) -> None:
        """Let the fault last."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look(is_over=False)
            time.sleep(_LOOK_S)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for something after the fault; whether it came."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or len(self.errors) > _MOST_STOPS:
                return False
            self.look(is_over=True)
            time.sleep(_LOOK_S)
        return True


def run_fault(world: World, fault: Fault, say: Say) -> Result:
    """Cause a fault, and see what comes of it; the world is fit for the next one afterwards.

    Args:
        world: The world; its query runs.
        fault: The fault.
        say: Tells what happens.
    """
    missing = fault.needs - world.abilities
    if missing:
        return Result(fault.name, f"skipped: needs {', '.join(sorted(missing))}")
    told = set(world.reports())
    world.broken.clear()
    watch = _Watch(world, fault, say)
    cause = fault.cause(world)
    for seconds in cause:
        watch.wait(seconds)
    ended = time.monotonic()
    mark = world.feeder.next
    say(f"over, {world.pending(mark)} rows to come")
    seen = Seen()
    if watch.wait_for(lambda: world.is_settled(mark), _PATIENCE_S):
        seen.recovery_s = time.monotonic() - ended
    if watch.options:  # they were for one start
        world.restart()
    if fault.outcome.has_to_stop and not watch.errors:
        watch.wait_for(lambda: bool(watch.errors), _FLOW_S)
    later, since = world.feeder.next, time.monotonic()
    patience_s = max(_FLOW_S, RECOVERY_S - (since - ended))
    seen.flows = watch.wait_for(lambda: world.is_settled_between(mark, later), patience_s)
    if seen.recovery_s is not None and time.monotonic() - since > _HITCH_S:  # a second stop belongs to the recovery
        seen.recovery_s = time.monotonic() - ended
    seen.errors, seen.reports = watch.errors, [text for text in world.reports() if text not in told]
    seen.broken = list(world.broken)
    balance = world.balance(mark)
    verdict = judge(fault.outcome, seen, balance)
    result = Result(
        fault.name,
        verdict,
        rows=mark,
        lost=len(balance.lost),
        twice=len(balance.twice),
        destroyed=len(balance.destroyed),
        recovery_s=None if seen.recovery_s is None else round(seen.recovery_s, 1),
        errors=tuple(seen.errors),
        reports=tuple(seen.reports),
    )
    if seen.recovery_s is None or not seen.flows:
        say(f"begins anew; the end of the driver's log:\n{world.query.log_tail()}")
        with suppress(TimeoutError):
            world.renew()
            world.wait_for_rows()
    return result
