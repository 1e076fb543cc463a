"""The thread that stops finished queries, with a stand-in for the session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.spark import stop_finished
from dynamic_kafka.spark.stop_finished import stop_finished_queries


class Session:
    """A session with one query, which is finished."""

    def __init__(self, *, of_connect: bool) -> None:
        self.failures = 0
        self.stops = 0
        self.streams = self
        self.sparkContext = SimpleNamespace(_jsc=object())
        if of_connect:
            self.is_stopped = False

    @property
    def active(self) -> list[Any]:
        """Return the query, or raise as a call that times out does."""
        if self.failures > 0:
            self.failures -= 1
            raise TimeoutError
        end = '{"clusters": {}, "done": 1}'
        progress = SimpleNamespace(sources=[SimpleNamespace(endOffset=end)])
        return [SimpleNamespace(id="q", runId="r", lastProgress=progress, stop=self._stop)]

    def _stop(self) -> None:
        self.stops += 1

    def end(self) -> None:
        """Stop the session."""
        self.sparkContext._jsc = None
        if hasattr(self, "is_stopped"):
            self.is_stopped = True


def _threads() -> int:
    return sum(thread.name == "dynamic-kafka-stop-finished" for thread in threading.enumerate())


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.002)


@pytest.mark.parametrize("of_connect", [False, True])
def test_the_watch_survives_a_failure_and_ends_with_the_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, of_connect: bool
) -> None:
    """A stop that times out is tried again. Nothing is left after `spark.stop()`, and a watch can begin again."""
    monkeypatch.setattr(stop_finished, "_INTERVAL_S", 0.002)
    before = _threads()
    session: Any = Session(of_connect=of_connect)
    session.failures = 3
    stop_finished_queries(session)
    stop_finished_queries(session)
    assert _threads() == before + 1
    _eventually(lambda: session.stops > 0)
    assert caplog.text.count("could not be checked") == 1
    session.end()
    _eventually(lambda: _threads() == before)
    assert session not in stop_finished._watched
