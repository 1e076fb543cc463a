"""What a contender costs: CPU seconds and resident memory of a process with all its descendants, from /proc (Linux)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cost", "descendants", "measured", "resident_mib"]

_SAMPLE_S = 0.25


@dataclass(frozen=True)
class Cost:
    """What a measurement cost.

    Args:
        seconds: Its time.
        cpu_seconds: The CPU time of the contender's processes.
        peak_mib: Their largest resident memory in total, of samples. Memory that processes share counts in each of them.
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float


def measured(pid: int, measure: Callable[[], float]) -> Cost:
    """Measure, and watch a process with all its descendants meanwhile.

    Args:
        pid: The process.
        measure: The measurement, which returns its seconds.
    """
    done, peak = threading.Event(), [_total_mib(pid)]

    def watch() -> None:
        while not done.wait(_SAMPLE_S):
            peak.append(_total_mib(pid))

    thread = threading.Thread(target=watch, daemon=True)
    began = _cpu_seconds(pid)
    thread.start()
    try:
        seconds = measure()
    finally:
        done.set()
        thread.join()
    return Cost(seconds, _cpu_seconds(pid) - began, max(*peak, _total_mib(pid)))


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the pid and command line of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # the process ended
        children.setdefault(int(parent), []).append(int(stat.parent.name))
    todo = list(children.get(pid, ()))
    while todo:
        child = todo.pop()
        todo += children.get(child, ())
        try:
            yield child, Path(f"/proc/{child}/cmdline").read_text()
        except OSError:
            continue


def resident_mib(pid: int) -> float | None:
    """Return the resident memory of a process, or None if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _total_mib(pid: int) -> float:
    return sum(resident_mib(one) or 0 for one in _family(pid))


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time so far. A child that has ended counts in its parent."""
    ticks = 0
    for one in _family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    return [pid, *(child for child, _ in descendants(pid))]
