"""Clients that wait are served by a thread; whoever takes one back has it alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dynamic_kafka.kafka import idle
from dynamic_kafka.testing import wait_until


class Owner:
    """Counts how often it is served."""

    def __init__(self) -> None:
        self.served = 0

    def serve(self) -> None:
        """As of clients."""
        self.served += 1


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread looks often."""
    monkeypatch.setattr(idle, "_INTERVAL_S", 0.001)
    yield
    assert not any(isinstance(owner, Owner) for owner in idle._parked.values())


def test_until_it_is_taken_back() -> None:
    """Again and again, and not once more after that."""
    owner, other = Owner(), Owner()
    idle.park(owner)
    idle.park(other)
    wait_until(lambda: owner.served > 3, 20, "being served")
    idle.unpark(owner)
    before, others = owner.served, other.served
    wait_until(lambda: other.served > others + 3, 20, "the other being served")
    assert owner.served == before
    idle.unpark(other)
    idle.unpark(other)


def test_it_is_not_taken_back_in_the_middle() -> None:
    """`unpark` waits for a call that has begun: two threads never use a client at once."""
    entered, left, taken = threading.Event(), threading.Event(), threading.Event()

    class Slow(Owner):
        def serve(self) -> None:
            entered.set()
            assert left.wait(20)

    owner = Slow()
    idle.park(owner)
    assert entered.wait(20)

    def take() -> None:
        idle.unpark(owner)
        taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert not taken.wait(0.1)
    left.set()
    thread.join()
    assert taken.is_set()


def test_one_that_fails_does_not_end_it() -> None:
    """The others are served on, and itself as well."""

    class Failing(Owner):
        def serve(self) -> None:
            super().serve()
            raise RuntimeError("broken")

    failing, other = Failing(), Owner()
    idle.park(failing)
    idle.park(other)
    wait_until(lambda: failing.served > 2 and other.served > 2, 20, "both being served")
    idle.unpark(failing)
    idle.unpark(other)
