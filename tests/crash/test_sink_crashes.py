"""The exactly-once sink, with everything killed, stopped or frozen at named points: each row is there once.

Every driver's plan leaves rows, clusters and tasks to chance (see `sink_driver`), so that two attempts of a batch never
publish the same. `make chaos` does the same for longer, at random.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.crash.drivers import Driver, crashes
from tests.crash.sink_world import TASK_POINTS, World

NewWorld = Callable[..., World]

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(name="world_of")
def _world_of(tmp_path: Path) -> Iterator[NewWorld]:
    """Makes the test's `World`: of some clusters, with a name."""
    with ExitStack() as stack:
        yield lambda brokers, name, **more: stack.enter_context(World(brokers, tmp_path, name, **more))


@pytest.fixture(scope="module")
def mortals() -> Iterator[dict[str, KafkaBroker]]:
    """Two clusters of this module alone, to be killed and started again."""
    with KafkaBroker() as one, KafkaBroker() as other:
        yield {"a": one, "b": other}


def kill_process(world: World, driver: Driver, point: str) -> None:
    """Kill the process that comes to a point next, and wait until batches are published again."""
    world.arm(point)
    os.kill(world.wait_hit(point, driver), signal.SIGKILL)
    world.release(point)
    world.wait_for_batches(1, driver)


def time_out(world: World, driver: Driver, point: str) -> None:
    """Keep the next batch at a point until its transactions have timed out."""
    world.arm(point)
    world.add(300)
    world.wait_hit(point, driver)
    wait_until(lambda: not any(world.open().values()), 60, "the time-out of transactions")
    world.release(point)


def test_a_driver_is_killed_at_each_step_of_a_commit(brokers: dict[str, KafkaBroker], world_of: NewWorld) -> None:
    """All its processes at once, or the JVM alone; the next driver has another number of tasks, and repeats the batch."""
    points = ("decided-before", "end-2", "commit-after")
    count = crashes(len(points))
    world = world_of(brokers, "steps", drivers=count + 1)
    for number, point in enumerate(itertools.islice(itertools.cycle(points), count)):
        world.add(700)
        world.arm(point)
        driver = world.start(tasks=1 + number % 3)
        world.wait_hit(point, driver)
        driver.kill("driver" if number % 2 else "all")
        world.disarm()
    world.finish()


def test_processes_of_a_driver_are_killed_and_its_query_is_stopped(
    brokers: dict[str, KafkaBroker], world_of: NewWorld
) -> None:
    """A worker that dies is replaced by a task's next attempt; where planning or a commit dies, the query starts again.

    So it does when it is stopped in the middle of a commit.
    """
    world = world_of(brokers, "processes")
    driver = world.start(restarts=20)
    with world.feeding():
        world.wait_for_batches(1, driver)
        for point in TASK_POINTS:
            kill_process(world, driver, point)
        assert "failed" not in driver.output
        for point in ("owned-after", "commit-before", "decided-after", "end-1", "finished-before", "finished-after"):
            kill_process(world, driver, point)
        for point in ("decided-before", "end-2"):
            world.arm(point)
            world.wait_hit(point, driver)
            restarted = world.restart_query(driver)
            world.release(point)
            driver.wait_for(restarted)
            world.wait_for_batches(1, driver)
    world.finish(driver)


def test_a_dead_attempt_does_not_keep_readers_from_its_batch(
    brokers: dict[str, KafkaBroker], world_of: NewWorld
) -> None:
    """Its transaction is ended with the batch, not with the next one or by its time-out: readers wait for it."""
    world = world_of(brokers, "unsent")
    world.arm("task-before-flush", "kill")
    world.add(500)
    assert world.start(last=True).wait() == 0
    world.check()


def test_brokers_are_killed_within_a_commit(mortals: dict[str, KafkaBroker], world_of: NewWorld) -> None:
    """One of two is down when the batch is decided, or after it; also the one with the commit log."""
    world = world_of(mortals, "brokers")
    driver = world.start(restarts=20)
    with world.feeding():
        world.wait_for_batches(1, driver)
        for cluster, point in (("b", "commit-before"), ("a", "decided-before"), ("b", "decided-after"), ("a", "end-2")):
            world.arm(point)
            world.wait_hit(point, driver)
            mortals[cluster].kill()
            world.release(point)
            mortals[cluster].restart()
            world.wait_for_batches(1, driver)
    world.finish(driver)


def test_a_zombie_driver_publishes_nothing(brokers: dict[str, KafkaBroker], world_of: NewWorld) -> None:
    """It is frozen before its decision, and wakes up when another driver has gone on from the same checkpoint."""
    world = world_of(brokers, "zombie", drivers=2)
    world.add(1000)
    world.arm("decided-before")
    zombie = world.start()
    world.wait_hit("decided-before", zombie)
    zombie.signal(signal.SIGSTOP)
    try:
        world.write_all()
    finally:
        zombie.signal(signal.SIGCONT)
    world.release("decided-before")
    assert zombie.wait() == 1
    assert "ProducerFencedError" in zombie.output
    world.check()


def test_one_refused_record_keeps_its_batch_from_being_published(
    brokers: dict[str, KafkaBroker], world_of: NewWorld
) -> None:
    """The query fails with the reason; when the topic takes such records, it goes on from there."""
    world = world_of(brokers, "refused", largest_bytes=20_000)
    world.add(200)
    world.add(1, padding=40_000)
    driver = world.start(last=True, restarts=100)
    driver.wait_for("\nfailed ")
    assert "MSG_SIZE_TOO_LARGE" in driver.output
    assert not any(world.published().values())
    for broker in brokers.values():
        size = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, world.topics[0], incremental_configs=[size])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.incremental_alter_configs([topic])[topic].result(20)
    assert driver.wait() == 0
    world.check()


def test_a_decided_batch_that_times_out(brokers: dict[str, KafkaBroker], world_of: NewWorld) -> None:
    """All of it: it is written again. A part of it, with the rest published: the query ends, at each start."""
    world = world_of(brokers, "late", timeout_ms=15_000)
    driver = world.start(restarts=2)
    time_out(world, driver, "decided-after")
    world.wait_for_batches(1, driver)
    assert "timed out or were aborted after the decision" in driver.output
    world.check()
    time_out(world, driver, "end-2")
    assert driver.wait() == 1
    failures = driver.output.split("\nfailed ")[2:]
    assert len(failures) == 2
    assert all("LostTransactionsError" in failure for failure in failures)
    assert 300 < sum(map(len, world.published().values())) < 600
