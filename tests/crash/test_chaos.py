"""A short fault campaign (`make chaos`, docs/reliability.md) in a small world."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]

_SMALL = ["--small", "--minutes", "2", "--seed", "7", "--no-report"]


def test_a_short_campaign() -> None:
    """After each fault every row is published once, or the query has stopped with the stated error and goes on as stated."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *_SMALL], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " faults, 0 not as expected" in done.stdout
