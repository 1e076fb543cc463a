"""One line at the bottom of the terminal that says what runs: written over itself, gone at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Any, cast

from dynamic_kafka.cli.output import draws, duration
from dynamic_kafka.cli.sql.session import GROUP, connected_session

__all__ = ["StatusLine", "batch_progress", "batch_text", "status_while"]

_FIRST_S = 1.0  # what takes less needs no status
_EVERY_S = 0.5
_CLEAR = "\r\x1b[K"


class StatusLine:
    """A line on standard error, if that is a terminal; otherwise nothing is written."""

    def __init__(self) -> None:
        self._shown = self._closed = False
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Show a text in the place of the last one."""
        if not draws(sys.stderr):
            return
        width = get_terminal_size().columns - 1
        with self._lock:
            if not self._closed:
                sys.stderr.write(f"{_CLEAR}{text[:width]}")
                sys.stderr.flush()
                self._shown = True

    def close(self) -> None:
        """Take the text away; no other one follows."""
        with self._lock:
            self._closed = True
            if self._shown:
                self._shown = False
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()


@contextmanager
def status_while(text: Callable[[], str]) -> Iterator[StatusLine]:
    """Show a text that changes for as long as the block runs, from its second second on. Yields its line.

    It is asked for in another thread, and empty for nothing new.
    """
    line, left = StatusLine(), threading.Event()
    if not draws(sys.stderr):
        yield line
        return

    def show() -> None:
        wait_s = _FIRST_S
        while not left.wait(wait_s):
            with suppress(Exception):  # Spark may have stopped
                if shown := text():
                    line.show(shown)
            wait_s = _EVERY_S

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield line
    finally:
        left.set()
        thread.join(_EVERY_S)
        line.close()


def batch_progress() -> Callable[[], str]:
    """Return a function that says how far Spark's job of this program is, with the time since this call."""
    begun = time.monotonic()
    connected = connected_session()
    if connected is not None:
        seen: dict[str | None, list[tuple[int, int]]] = {}

        def progress(stages: Any, operation_id: str | None, done: bool, **_: Any) -> None:  # noqa: FBT001
            seen[operation_id] = [] if done else [(stage.num_completed_tasks, stage.num_tasks) for stage in stages]

        connected.clearProgressHandlers()  # that of the last statement
        connected.registerProgressHandler(cast("Any", progress))
        return lambda: batch_text(
            [count for counts in [*seen.values()] for count in counts], int((time.monotonic() - begun) * 1000)
        )

    def text() -> str:
        from pyspark import SparkContext

        tracker: Any = SparkContext.getOrCreate().statusTracker()
        running = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(GROUP))
        jobs = [tracker.getJobInfo(number) for number in sorted(running)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
        return batch_text(counts, int((time.monotonic() - begun) * 1000))

    return text


def batch_text(stages: list[tuple[int, int]], took_ms: int) -> str:
    """Return how far a job is. Of each stage, `stages` has the tasks that are done, and all its tasks."""
    done, tasks = sum(done for done, _ in stages), sum(tasks for _, tasks in stages)
    what = f"{done} of {tasks} tasks" if tasks else "planning"
    return f"{what} · {duration(took_ms)} · Ctrl-C stops"
