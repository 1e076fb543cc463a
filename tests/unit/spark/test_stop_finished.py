"""The thread that stops finished queries, when the JVM does not answer it."""

from __future__ import annotations

import logging
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from dynamic_kafka.spark import stop_finished


class Session:
    """A session of a JVM that is gone, until somebody stops the session."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    @property
    def is_stopped(self) -> bool:
        """True at last."""
        return self.left == 0

    @property
    def streams(self) -> Any:
        """Nothing answers."""
        self.left -= 1
        raise ConnectionRefusedError


def test_a_jvm_that_has_ended_is_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is asked, and without a traceback."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(stop_finished, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(stop_finished, "_ENDS_S", 0.0)  # another test's Java may run
    session: Any = Session(5)
    stop_finished._watch(session)
    assert [(r.getMessage(), r.exc_info) for r in caplog.records] == [
        ("The session's queries could not be checked (ConnectionRefusedError); trying again", None)
    ]


def test_a_java_process_that_has_ended_ends_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a line: the calls of whoever uses the session say so."""
    monkeypatch.setattr(stop_finished, "_INTERVAL_S", 0.0)
    with subprocess.Popen(["false"]) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    session: Any = Session(5)
    stop_finished._watch(session)
    assert (session.left, caplog.records) == (4, [])


class Running:
    """A query whose sources have these documents."""

    id = runId = "q"  # noqa: N815  Spark's

    def __init__(self, *ends: dict[str, int]) -> None:
        sources = [SimpleNamespace(endOffset={"clusters": {}, **end}) for end in ends]
        self.lastProgress = SimpleNamespace(sources=sources)
        self.stopped = False

    def stop(self) -> None:
        """Note it."""
        self.stopped = True


@pytest.mark.parametrize(
    ("ends", "stopped"),
    [
        ([{}], False),
        ([{"done": 1}], True),
        ([{"done": 1, "last row": 1}], False),
        ([{"done": 2, "last row": 1}], True),
        ([{"done": 3, "last row": 3}], False),
        ([{"done": 2, "last row": 1}, {}], False),
        ([{"done": 2, "last row": 1}, {"done": 1, "last row": 1}], False),
        ([{"done": 2, "last row": 1}, {"done": 1}], True),
    ],
)
def test_a_query_ends_after_the_batch_behind_its_last_row(ends: list[dict[str, int]], *, stopped: bool) -> None:
    """All of its sources have to be there: the watermark of a query is the least of theirs."""
    query: Any = Running(*ends)
    stop_finished._stop_if_finished(query, {})
    assert query.stopped == stopped
