"""The two contenders as child processes, and pairs of measurements that alternate between them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from scripts.spark42 import ROOT, jars, python

__all__ = ["JVM", "OURS", "RIVAL", "Driver", "both", "pairs"]

OURS = "dynamic-kafka"
JVM = "kafka"
RIVAL = ROOT / "benchmarks" / "pom.xml"


class Driver:
    """One Spark driver as a child process. It is idle until a measurement is requested.

    Args:
        connector: `OURS` or `JVM`.
    """

    def __init__(self, connector: str) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            [python(), "-m", "benchmarks.contender", connector, jars(RIVAL)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.connector = connector
        self.pid = self._process.pid
        self._ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its standard input ends it
        self._log.close()

    def __call__(self, function: str, **arguments: Any) -> Any:
        """Run a method of `benchmarks.contender.Contender` in the driver, and return its result.

        Raises:
            RuntimeError: If the driver failed. The error has the end of the driver's log.
        """
        assert self._process.stdin is not None
        self.wait_until_ready()
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._answer())

    def wait_until_ready(self) -> None:
        """Wait until the Spark session exists. Several drivers can start at the same time."""
        if not self._ready:
            self._ready = self._answer() == "ready\n"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"The driver of '{self.connector}' ended:\n{self._log.read()[-4000:]}")
        return line


@contextmanager
def both() -> Iterator[tuple[Driver, Driver]]:
    """Start our driver and the JVM connector's driver, and wait until both are ready."""
    with Driver(OURS) as ours, Driver(JVM) as theirs:
        for driver in (ours, theirs):
            driver.wait_until_ready()  # nothing else happens while one of them is measured
        yield ours, theirs


def pairs(
    drivers: tuple[Driver, Driver], count: int, measure: Callable[[Driver], float], tell: Callable[[str], None]
) -> tuple[list[float], list[float]]:
    """Measure by turns (A B, B A, A B), because the first one may find the machine in another state.

    Args:
        drivers: Our driver and the JVM connector's.
        count: The number of pairs.
        measure: The measurement.
        tell: A function that shows progress.

    Returns:
        Our values and the JVM connector's, pair by pair.
    """
    found: dict[str, list[float]] = {driver.connector: [] for driver in drivers}
    for i in range(count):
        for driver in drivers if i % 2 == 0 else reversed(drivers):
            tell(f"pair {i + 1} of {count}: {driver.connector}")
            found[driver.connector].append(measure(driver))
    return found[OURS], found[JVM]
