"""Kill whatever the exactly-once sink consists of, at random, many times: `python -m tests.crash.soak --crashes 200`.

One query on one checkpoint writes to two clusters all the while; now and then, and at the end, a driver is allowed to write
what is left, and everything is checked. Ends with code 1 if a row is missing or there twice, if a batch is of two attempts,
if a transaction stays open, or if something does not come back. The seed that it prints gives the same choices again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dynamic_kafka.testing import KafkaBroker
from tests.crash.drivers import Driver
from tests.crash.sink_world import COMMIT_POINTS, PLAN_POINTS, TASK_POINTS, World

_CHECK_EVERY = 50
_RESTARTS = 10_000
_MOST_IDS = 100  # one for each worker killed while its id was unanswered, for ten minutes, above what is in use
_LONGEST_MOMENT_S = 3.0
_TIMEOUT_MS = 120_000  # no driver takes so long to come back
_POINTS = (*TASK_POINTS, *PLAN_POINTS, *COMMIT_POINTS)


class Soak:
    """One long run.

    Args:
        world: The query.
        chance: Decides everything.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self._driver: Driver | None = None
        self.hits: Counter[tuple[str, str]] = Counter()
        self.last = ""
        self.kinds: list[tuple[int, Callable[[], tuple[str, str]]]] = [
            (5, self.kill_process_at_point),
            (2, self.kill_worker_at_once),
            (2, self.kill_some_process),
            (3, self.kill_driver_at_point),
            (2, self.kill_driver),
            (2, self.kill_broker_at_point),
            (1, self.kill_broker),
            (2, self.restart_query_at_point),
            (1, self.zombie),
        ]

    def crash(self) -> None:
        """One crash, and then a batch, to see that things go on."""
        weights, kinds = zip(*self.kinds, strict=True)
        (kind,) = self._chance.choices(kinds, weights)
        self.last = kind.__name__.replace("_", " ")
        what, where = kind()
        self.hits[what, where] += 1
        self.last = f"{what}: {where}"
        self._world.disarm()
        self._world.wait_for_batches(1, self.driver)

    @property
    def driver(self) -> Driver:
        """The driver that runs; a new one with another number of tasks if there is none."""
        if self._driver is None:
            self._driver = self._world.start(tasks=self._chance.randint(1, 3), restarts=_RESTARTS)
        return self._driver

    def check(self) -> None:
        """Write what is left, and check everything."""
        self.end_driver()
        self._world.finish(most_ids=_MOST_IDS)

    def end_driver(self) -> None:
        """Kill the driver, if one runs."""
        if self._driver is not None:
            self._driver.kill(self._chance.choice(("all", "driver")))
            self._driver = None

    # --- kinds of crashes: each returns what was done, and where ---

    def kill_process_at_point(self) -> tuple[str, str]:
        """A worker, or the process that plans or commits."""
        point, pid = self._come_to(self._chance.choice(_POINTS))
        os.kill(pid, signal.SIGKILL)
        return "process killed", point

    def kill_worker_at_once(self) -> tuple[str, str]:
        """Without the time for its records to leave."""
        point = self._chance.choice(TASK_POINTS)
        self._world.arm(point, "kill")
        self._world.wait_hit(point, self.driver)
        return "worker killed at once", point

    def kill_some_process(self) -> tuple[str, str]:
        """Any process of Python's but the driver, at any moment."""
        self._world.wait_for_batches(1, self.driver)
        self._pass_a_moment()
        python = [pid for pid in self.driver.processes() if b"-m\0pyspark" in _command(pid)]
        if python:
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(python), signal.SIGKILL)
        return "process killed", "any moment"

    def kill_driver_at_point(self) -> tuple[str, str]:
        """All of it, or the JVM alone; sometimes in the first batch."""
        point, _ = self._come_to(self._chance.choice(_POINTS))
        self.end_driver()
        return "driver killed", point

    def kill_driver(self) -> tuple[str, str]:
        """At any moment."""
        driver = self.driver
        if self._chance.random() < 0.5:
            self._world.wait_for_batches(1, driver)
        self._pass_a_moment()
        self.end_driver()
        return "driver killed", "any moment"

    def kill_broker_at_point(self) -> tuple[str, str]:
        """While a process waits there."""
        name = self._chance.choice(list(self._world.brokers))
        point, _ = self._come_to(self._chance.choice(_POINTS))
        self._world.brokers[name].kill()
        self._world.release(point)
        self._pass_a_moment()
        self._world.brokers[name].restart()
        return f"broker {name} killed", point

    def kill_broker(self) -> tuple[str, str]:
        """At any moment."""
        name = self._chance.choice(list(self._world.brokers))
        self._world.wait_for_batches(1, self.driver)
        self._pass_a_moment()
        self._world.brokers[name].kill()
        self._pass_a_moment()
        self._world.brokers[name].restart()
        return f"broker {name} killed", "any moment"

    def restart_query_at_point(self) -> tuple[str, str]:
        """`query.stop()` and `start()`."""
        point, _ = self._come_to(self._chance.choice(COMMIT_POINTS))
        restarted = self._world.restart_query(self.driver)
        self._world.release(point)
        self.driver.wait_for(restarted)
        return "query stopped and started", point

    def zombie(self) -> tuple[str, str]:
        """Frozen while another driver goes on; then it ends with an error, and the other one may have to start again."""
        zombie = self.driver
        point, _ = self._come_to(self._chance.choice(_POINTS))
        zombie.signal(signal.SIGSTOP)
        self._driver = None
        self._world.disarm()
        try:
            self._world.wait_for_batches(1, self.driver)
        finally:
            zombie.signal(signal.SIGCONT)
        self._world.wait_for_batches(1, self.driver)
        self._pass_a_moment()
        zombie.kill()
        return "zombie woken up", point

    def _come_to(self, point: str) -> tuple[str, int]:
        self._world.arm(point)
        return point, self._world.wait_hit(point, self.driver)

    def _pass_a_moment(self) -> None:
        threading.Event().wait(self._chance.uniform(0, _LONGEST_MOMENT_S))  # the random point, not a wait for something


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def main() -> int:
    """Run as often as the arguments say; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crashes", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of all chance")
    parser.add_argument("--report", type=Path, help="a file for the results as JSON")
    arguments = parser.parse_args()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    console.print(f"seed {arguments.seed}, logs in {folder}")
    began = time.monotonic()
    error = ""
    done = 0
    with (
        KafkaBroker() as one,
        KafkaBroker() as other,
        World({"a": one, "b": other}, folder, "soak", timeout_ms=_TIMEOUT_MS) as world,
    ):
        soak = Soak(world, random.Random(arguments.seed))
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console) as progress:
            crashes = progress.add_task("", total=arguments.crashes)
            try:
                while done < arguments.crashes:
                    with world.feeding():
                        for _ in range(min(_CHECK_EVERY, arguments.crashes - done)):
                            soak.crash()
                            done += 1
                            progress.console.print(f"{done:4} {soak.last}", highlight=False)
                            progress.update(crashes, completed=done, description=f"{world.rows} rows")
                    soak.check()
            except Exception as found:  # noqa: BLE001  whatever it is, it is the result
                console.print_exception()
                error = f"after {done} crashes, in '{soak.last}': {type(found).__name__}: {found}"
        ids = {cluster: len(names) for cluster, names in world.transactional_ids().items()} if not error else {}
    table = Table("what", "where", "times", title=f"{done} crashes, {world.rows} rows, {world.batches()} batches")
    for (what, where), times in sorted(soak.hits.items()):
        table.add_row(what, where, str(times))
    console.print(table)
    result = {
        "seed": arguments.seed,
        "crashes": done,
        "rows": world.rows,
        "batches": world.batches(),
        "seconds": round(time.monotonic() - began),
        "transactional_ids": ids,
        "hits": [{"what": what, "where": where, "times": n} for (what, where), n in sorted(soak.hits.items())],
        "error": error,
    }
    if arguments.report is not None:
        arguments.report.write_text(json.dumps(result, indent=2))
    console.print(error or f"every row is there once, no transaction is open; transactional ids: {ids}", style="bold")
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
