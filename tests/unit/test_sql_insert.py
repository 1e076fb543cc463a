"""Jobs of SQL: which of them may run beside each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import insert
from dynamic_kafka.sql.insert import Jobs

KAFKA = {"properties.bootstrap.servers": "h:9092", "topic": "t"}


def table(prefix: str = "") -> Any:
    """A table; with a prefix it is written exactly once."""
    exactly = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": prefix} if prefix else {}
    return SimpleNamespace(sink=KAFKA | exactly, definition=SimpleNamespace(name=("t",)))


def rows(*, stream: bool = True) -> Any:
    """Rows to write."""
    return SimpleNamespace(isStreaming=stream)


def test_two_jobs_never_share_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first would be fenced by the second, again and again. When it has ended, another one may take the prefix."""
    running = SimpleNamespace(isActive=True)
    monkeypatch.setattr(insert, "_start", lambda *_, **__: running)
    monkeypatch.setattr(insert, "_write", lambda *_: None)
    jobs, config = Jobs(), {"pipeline.name": "one"}
    jobs.insert(rows(), table("p"), config, "SELECT 1")  # type: ignore[arg-type]
    for stream in (True, False):
        with pytest.raises(
            ConfigurationError, match=r"running job 'one'.*prefix 'p'.*OPTIONS\('sink\.transactional-id-prefix'"
        ):
            jobs.insert(rows(stream=stream), table("p"), config, "SELECT 2")  # type: ignore[arg-type]
        jobs.insert(rows(stream=stream), table(f"other-{stream}"), {"pipeline.name": f"two-{stream}"}, "SELECT 2")  # type: ignore[arg-type]
        jobs.insert(rows(stream=stream), table(), {"pipeline.name": f"three-{stream}"}, "SELECT 2")  # type: ignore[arg-type]
    running.isActive = False
    jobs.insert(rows(), table("p"), config, "SELECT 2")  # type: ignore[arg-type]
