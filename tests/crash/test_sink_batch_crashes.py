"""Batch writes, with their driver killed at named points: in `foreachBatch`, where Spark repeats them, and on their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.crash.drivers import Driver
from tests.crash.sink_world import World

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def world(brokers: dict[str, KafkaBroker], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Rows to be written by one sink, with the test's name."""
    with World(brokers, tmp_path, request.node.name.replace("_", "-"), drivers=2) as world:
        world.add(300)
        yield world


def kill_at(world: World, point: str, driver: Driver) -> None:
    """Kill the driver where a process of it waits."""
    world.wait_hit(point, driver)
    driver.kill()
    world.disarm()


def test_a_driver_is_killed_while_a_batch_goes_to_two_sinks(brokers: dict[str, KafkaBroker], tmp_path: Path) -> None:
    """By `foreachBatch`, which each new driver calls again for the batch: each sink has each row once.

    Killed in the first sink before its decision, and between its two clusters; in the second one after its decision, while
    the first one has the batch already; and when both have it, and Spark has not written that down.
    """
    with World(brokers, tmp_path, "foreach", sinks=("one", "two"), drivers=5) as world:
        world.add(1200)
        for number, point in enumerate(("decided-before", "end-2")):
            world.arm(point)
            kill_at(world, point, world.start(tasks=1 + number))
        one, two = (sum(world.times_published(topic).values()) for topic in world.topics)
        assert 0 < one < 400
        assert two == 0
        for point in ("decided-after", "claim-after"):
            world.arm("claim-after")  # the first sink's: it finishes what is decided, and the batch is there
            driver = world.start()
            world.wait_hit("claim-after", driver)
            world.arm(point)
            world.release("claim-after")
            kill_at(world, point, driver)
        assert [sum(world.times_published(topic).values()) for topic in world.topics] == [400, 400]
        assert world.batches() == 0
        world.finish()


def test_a_write_that_was_killed_before_its_decision(world: World) -> None:
    """Nothing of it is published; the next write of the prefix aborts what it has left open, and is there once."""
    world.arm("decided-before")
    kill_at(world, "decided-before", world.start_batch_write())
    assert all(world.open().values())
    assert not any(world.published().values())
    assert world.start_batch_write().wait() == 0
    world.check()


def test_a_named_write_that_was_killed_while_it_was_published(world: World) -> None:
    """One cluster has its part: the same write again finishes it, and adds nothing."""
    world.arm("end-2")
    kill_at(world, "end-2", world.start_batch_write(version=7))
    assert sorted(map(bool, world.published().values())) == [False, True]
    assert world.start_batch_write(version=7).wait() == 0
    world.check()


def test_a_nameless_write_that_was_killed_while_it_was_published(world: World) -> None:
    """The next write finishes it before it writes; nothing tells the two apart, so that both are there, and whole."""
    world.arm("end-2")
    kill_at(world, "end-2", world.start_batch_write())
    assert world.start_batch_write().wait() == 0
    assert set(world.times_published(world.topics[0]).values()) == {2}
    wait_until(lambda: not any(world.open().values()), 10, "the end of all transactions")
