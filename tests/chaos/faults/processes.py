"""Faults of Spark's processes: killed, frozen, without reuse, and with wrong clocks."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress

from dynamic_kafka.testing import wait_until
from tests.chaos.declared import GOES_ON, RESTARTS, Outcome, fault
from tests.chaos.query import command_line, kill_one, processes_below
from tests.chaos.world import World

_RUNS_TASKS = "pyspark.daemon pyspark.worker"
_RETRY_S = 60.0

KILLED = Outcome("goes on after a plain restart", error="killed|Connection|terminated|Error")


def _executor_processes(world: World) -> list[int]:
    if world.spark is None:
        return world.query.driver.processes()
    return processes_below({world.spark.worker_pid(0), world.spark.worker_pid(1)})


@fault(KILLED, cheap=True)
def driver_killed(world: World) -> Iterator[float]:
    """The driver and all processes of its own are killed; it is started again two seconds later."""
    world.query.driver.kill()
    yield 2


@fault(KILLED)
def driver_jvm_killed(world: World) -> Iterator[float]:
    """Only the driver and its JVM are killed; its Python processes find out by themselves."""
    world.query.driver.kill("driver")
    yield 2


@fault(RESTARTS, cheap=True)
def planner_killed(world: World) -> Iterator[float]:
    """The process that plans the batches of the source is killed."""
    kill_one(world.query.driver.processes(), what="python_streaming_source_runner")
    yield 2


@fault(GOES_ON, cheap=True)
def python_workers_killed(world: World) -> Iterator[float]:
    """All Python processes that run tasks are killed, three times, each time after all rows are published again."""
    for _ in range(3):
        # All at once, as a task ends for good when it fails four times: a retry must not meet the second half.
        for pid in [pid for pid in _executor_processes(world) if _RUNS_TASKS in command_line(pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        yield 2
        world.wait_published(world.feeder.next, _RETRY_S)


@fault(RESTARTS)
def processes_killed_at_random(world: World) -> Iterator[float]:
    """Ten times, after up to three seconds, a Python process of Spark or a broker is killed; the driver follows."""
    for _ in range(10):
        yield random.uniform(0, 3)
        python = [pid for pid in _executor_processes(world) if "-m pyspark" in command_line(pid)]
        if python and random.random() < 0.8:
            with suppress(ProcessLookupError):
                os.kill(random.choice(python), signal.SIGKILL)
        else:
            broker = random.choice([*world.b.brokers, *world.c.brokers])
            broker.kill()
            broker.start()
        if not world.query.is_running:
            world.start()
            world.query.wait_started()
    world.query.driver.kill()


@fault(GOES_ON, needs=["workers"])
def executor_killed(world: World) -> Iterator[float]:
    """One of two executors is killed."""
    assert world.spark is not None
    wait_until(lambda: kill_one(_executor_processes(world), what="CoarseGrainedExecutorBackend"), 30, "an executor")
    yield 2


@fault(GOES_ON, needs=["workers"])
def both_executors_killed(world: World) -> Iterator[float]:
    """Both executors are killed at once."""
    for pid in _executor_processes(world):
        kill_one([pid], what="CoarseGrainedExecutorBackend")
    yield 2


@fault(GOES_ON, needs=["workers"])
def machine_lost(world: World) -> Iterator[float]:
    """A machine with a worker and its executor is gone, and comes back ten seconds later."""
    assert world.spark is not None
    world.spark.kill_worker(0)
    yield 10
    world.spark.start_worker(0)


@fault(GOES_ON)
def driver_frozen(world: World) -> Iterator[float]:
    """All processes of the driver are frozen for 15 seconds."""
    driver = world.query.driver
    driver.signal(signal.SIGSTOP)
    yield 15
    driver.signal(signal.SIGCONT)


@fault(Outcome("goes on, perhaps after a plain restart, as the transactions have timed out", error="Error"))
def driver_frozen_past_the_transaction_timeout(world: World) -> Iterator[float]:
    """All processes of the driver are frozen for 30 seconds; transactions time out after ten."""
    world.query.stop()
    before = world.sink
    world.sink = {**before, "properties.transaction.timeout.ms": "10000"}
    world.start()
    yield 8
    driver = world.query.driver
    driver.signal(signal.SIGSTOP)
    yield 30
    driver.signal(signal.SIGCONT)
    yield 10
    world.sink = before


@fault(Outcome("the zombie ends; the query goes on, perhaps after a plain restart", error="Error"))
def zombie_driver(world: World) -> Iterator[float]:
    """The driver is frozen, another one goes on, and then the first one wakes up."""
    zombie = world.query.leave()
    zombie.signal(signal.SIGSTOP)
    world.start()
    world.query.wait_started()
    yield 5
    zombie.signal(signal.SIGCONT)
    yield 10
    zombie.kill()


@fault(GOES_ON)
def query_restarted_in_order(world: World) -> Iterator[float]:
    """The query is stopped and started, three times."""
    for _ in range(3):
        world.restart()
        yield 4


@fault(GOES_ON, cheap=True)
def query_stopped_in_a_batch(world: World) -> Iterator[float]:
    """The query is stopped while it writes a batch, three times; readers of its topics must not have to wait after that."""
    for _ in range(3):
        world.feeder.write("b", 3000)
        wait_until(lambda: world.open_transactions() or not world.query.is_running, 30, "a transaction")
        world.query.stop()
        if left := world.open_transactions():
            world.broken.append(f"{len(left)} transactions are open after stop()")
        world.start()
        yield 4


@fault(GOES_ON)
def workers_without_reuse(world: World) -> Iterator[float]:
    """The query runs with `spark.python.worker.reuse=false` for 20 seconds."""
    before = world.query.conf
    for conf in ({**before, "spark.python.worker.reuse": "false"}, before):
        world.query.stop()
        world.query.kill()
        world.query.conf = conf
        world.start()
        world.query.wait_started()
        yield 20 if conf is not before else 0


@fault(GOES_ON)
def many_tasks(world: World) -> Iterator[float]:
    """Each batch is written by 40 tasks."""
    world.query.stop()
    world.tasks = 40
    world.start()
    world.query.wait_started()
    yield 20
    world.query.stop()
    world.tasks = 2
    world.start()


def _with_clock(world: World, seconds: float) -> Iterator[float]:
    clock = world.folder / "clock"
    for text in (str(seconds), ""):
        if text:
            clock.write_text(text)
        else:
            clock.unlink()
        world.query.stop()
        world.query.kill()
        world.start()
        world.query.wait_started()
        yield 15 if text else 0


CLOCK = Outcome(
    "goes on, or stops with an error that names the clocks", error="clock|time|Transaction", way_on=lambda *_: {}
)


@fault(CLOCK)
def clock_an_hour_ahead(world: World) -> Iterator[float]:
    """The clocks of the driver and the workers are an hour ahead of the brokers' clocks."""
    yield from _with_clock(world, 3600)


@fault(CLOCK)
def clock_an_hour_behind(world: World) -> Iterator[float]:
    """The clocks of the driver and the workers are an hour behind the brokers' clocks."""
    yield from _with_clock(world, -3600)


@fault(CLOCK)
def clock_ten_days_ahead(world: World) -> Iterator[float]:
    """The clocks of the driver and the workers are ten days ahead, longer than removed clusters are remembered."""
    yield from _with_clock(world, 10 * 86_400)
