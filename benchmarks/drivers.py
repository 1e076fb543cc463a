"""The contenders as child processes, and measurements that alternate between them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from scripts.spark_versions import ROOT, jars, python

__all__ = ["JVM", "OURS", "RIVAL", "Child", "Driver", "alternate", "both", "checkout", "pairs"]

OURS = "dynamic-kafka"
JVM = "kafka"
RIVAL = ROOT / "benchmarks" / "pom.xml"

T = TypeVar("T")


class Child:
    """A contender as a child process. It is idle until a measurement is requested.

    Each line on its standard input is a JSON list [function, arguments], each line on its standard output the JSON result.
    Its first line is "ready".

    Args:
        label: The name in the results.
        command: What to run.
        tree: The checkout that holds the code to run.
    """

    def __init__(self, label: str, command: Sequence[str], tree: Path = ROOT) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.label = label
        self.pid = self._process.pid
        self._ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its standard input ends it
        self._log.close()

    def __call__(self, function: str, **arguments: Any) -> Any:
        """Run a function in the child, and return its result.

        Raises:
            RuntimeError: If the child failed. The error has the end of its log.
        """
        assert self._process.stdin is not None
        self.wait_until_ready()
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._answer())

    def wait_until_ready(self) -> None:
        """Wait until it can measure. Several children can start at the same time."""
        if not self._ready:
            self._ready = self._answer() == "ready\n"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"The driver of '{self.label}' ended:\n{self._log.read()[-4000:]}")
        return line


class Driver(Child):
    """A Spark driver. Its functions are the methods of `benchmarks.contender.Contender`.

    Args:
        connector: `OURS` or `JVM`.
        tree: The checkout that holds the code to run.
        label: The name in the results. The default is the connector.
    """

    def __init__(self, connector: str, tree: Path = ROOT, label: str | None = None) -> None:
        super().__init__(label or connector, [python(), "-m", "benchmarks.contender", connector, jars(RIVAL)], tree)


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
    """Measure two drivers by turns.

    Args:
        drivers: Our driver and the rival's.
        count: The number of pairs.
        measure: The measurement.
        tell: A function that shows progress.

    Returns:
        Our values and the rival's, pair by pair.
    """
    found = alternate({driver.label: partial(measure, driver) for driver in drivers}, count, tell)
    ours, theirs = (found[driver.label] for driver in drivers)
    return ours, theirs


def alternate(measures: Mapping[str, Callable[[], T]], count: int, tell: Callable[[str], None]) -> dict[str, list[T]]:
    """Measure by turns (A B C, C B A, A B C), because the first one may find the machine in another state.

    Args:
        measures: Each contender's name and measurement.
        count: The number of rounds.
        tell: A function that shows progress.

    Returns:
        Each contender's values, round by round.
    """
    found: dict[str, list[T]] = {name: [] for name in measures}
    for i in range(count):
        for name in measures if i % 2 == 0 else reversed(list(measures)):
            tell(f"round {i + 1} of {count}: {name}")
            found[name].append(measures[name]())
    return found
