"""The campaign's streaming query, as an operator sees it: start, stop, what it says, and its processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dynamic_kafka.testing import wait_until
from tests.crash.drivers import Driver

__all__ = ["Query", "command_line", "processes_below"]

_START_S = 150.0
_STOP_S = 60.0


class Query:
    """The query, in a driver that is started when it is needed, and again after it was killed.

    Args:
        folder: For the drivers' logs.
        environment: Of the drivers.
        conf: Of Spark.

    Attributes:
        environment: Of the next driver.
        conf: Of the next driver.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], conf: Mapping[str, str]) -> None:
        self.environment, self.conf = dict(environment), dict(conf)
        self._folder = folder
        self._driver: Driver | None = None
        self._drivers = 0
        self._run = 0
        self._read = 0
        self._state = "stopped"
        self._failures: list[str] = []
        self._told: list[str] = []
        self._promised: dict[str, str] = {}

    @property
    def driver(self) -> Driver:
        """The driver; a new one if there is none or it is gone."""
        if self._driver is None or not self._driver.is_running:
            if self._driver is not None:
                self._driver.kill()
            self._drivers += 1
            self._read = 0
            log = self._folder / f"driver-{self._drivers}.log"
            self._driver = Driver("tests.chaos.driver", log, self.environment, self.conf)
        return self._driver

    def start(self, job: Mapping[str, Any]) -> None:
        """Start the query; it may still fail on its start, which `failure` then tells."""
        self._run += 1
        self._state = "starting"
        self.driver.send({"do": "start", "run": self._run, **job})

    def wait_started(self) -> None:
        """Wait until it is started, or has failed."""
        wait_until(lambda: self._look() != "starting", _START_S, "the start of the query")

    def stop(self) -> None:
        """Stop the query in order."""
        if self._look() in {"starting", "started"}:
            self.driver.send({"do": "stop"})
            wait_until(lambda: self._look() == "stopped", _STOP_S, "the end of the query")

    def failure(self) -> str:
        """What the query ended with, each time it failed; empty if there is nothing new."""
        self._look()
        return self._failures.pop(0) if self._failures else ""

    @property
    def is_running(self) -> bool:
        """Whether it runs, or is about to."""
        return self._look() in {"starting", "started"}

    def told(self) -> list[str]:
        """What the source has reported so far, by all drivers."""
        self._look()
        return list(self._told)

    def promised(self) -> dict[str, str]:
        """The guarantee of each position that moves or has moved to another cluster, as it was told last."""
        self._look()
        return dict(self._promised)

    def kill(self) -> None:
        """Kill the driver with all its processes."""
        if self._driver is not None:
            self._driver.kill()
            self._driver = None
        self._state = "stopped"

    def leave(self) -> Driver:
        """Leave the driver to itself (a zombie); the next start has a new one. Returns the old one."""
        driver, self._driver, self._state = self.driver, None, "stopped"
        return driver

    def log_tail(self, characters: int = 3000) -> str:
        """The end of what the driver has printed."""
        return self._driver.output[-characters:] if self._driver is not None else ""

    def _look(self) -> str:
        driver = self._driver
        if driver is None:
            return self._state
        text = driver.output
        end = text.rfind("\n") + 1
        for line in text[self._read : end].splitlines():
            if not line.startswith("@"):
                continue
            found = json.loads(line[1:])
            if "told" in found:
                self._told.append(found["told"])
            elif "promised" in found:
                self._promised |= found["promised"]
            elif found.get("started") == self._run and self._state == "starting":
                self._state = "started"
            elif found.get("stopped") == self._run:
                self._state = "stopped"
            elif found.get("failed") == self._run:
                self._fail(found["error"])
        self._read = max(self._read, end)
        if not driver.is_running and self._state in {"starting", "started"}:
            self._fail("the driver was killed")
        return self._state

    def _fail(self, error: str) -> None:
        self._state = "stopped"
        self._failures.append(error)


def command_line(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def processes_below(roots: set[int]) -> list[int]:
    """The processes that some processes have started, directly or not."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                _, _, fields = (folder / "stat").read_text().rpartition(")")
                parents[int(folder.name)] = int(fields.split()[1])
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - roots)


def kill_one(pids: list[int], *, what: str) -> bool:
    """Kill the first process whose command line has a text; whether there was one."""
    for pid in pids:
        if what in command_line(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return True
    return False
