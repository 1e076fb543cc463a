"""The two contenders as child processes, and pairs of measurements that alternate between them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from scripts.spark42 import ROOT, jars, python

__all__ = ["JVM", "OURS", "RIVAL", "Driver", "both", "checkout", "pairs"]

OURS = "dynamic-kafka"
JVM = "kafka"
RIVAL = ROOT / "benchmarks" / "pom.xml"


class Driver:
    """One Spark driver as a child process. It is idle until a measurement is requested.

    Args:
        connector: `OURS` or `JVM`.
        tree: The checkout that holds the code to run.
        label: The name in the results. The default is the connector.
    """

    def __init__(self, connector: str, tree: Path = ROOT, label: str | None = None) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            [python(), "-m", "benchmarks.contender", connector, jars(RIVAL)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.label = label or connector
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
            raise RuntimeError(f"The driver of '{self.label}' ended:\n{self._log.read()[-4000:]}")
        return line


@contextmanager
def both(against: str | None = None) -> Iterator[tuple[Driver, Driver]]:
    """Start our driver and the rival's: the JVM connector, or our own code at another commit.

    Args:
        against: That commit; None is the JVM connector.
    """
    with ExitStack() as stack:
        rival = Driver(JVM) if against is None else Driver(OURS, stack.enter_context(checkout(against)), against)
        drivers = stack.enter_context(Driver(OURS)), stack.enter_context(rival)
        for driver in drivers:
            driver.wait_until_ready()  # nothing else happens while one of them is measured
        yield drivers


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check out another commit of this repository into a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=True)


def pairs(
    drivers: tuple[Driver, Driver], count: int, measure: Callable[[Driver], float], tell: Callable[[str], None]
) -> tuple[list[float], list[float]]:
    """Measure by turns (A B, B A, A B), because the first one may find the machine in another state.

    Args:
        drivers: Our driver and the rival's.
        count: The number of pairs.
        measure: The measurement.
        tell: A function that shows progress.

    Returns:
        Our values and the rival's, pair by pair.
    """
    found: dict[str, list[float]] = {driver.label: [] for driver in drivers}
    for i in range(count):
        for driver in drivers if i % 2 == 0 else reversed(drivers):
            tell(f"pair {i + 1} of {count}: {driver.label}")
            found[driver.label].append(measure(driver))
    ours, theirs = (found[driver.label] for driver in drivers)
    return ours, theirs
