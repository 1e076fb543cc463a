"""A short fault campaign (`make chaos`, docs/explanations/reliability.md) in a small world."""

from __future__ import annotations

import re
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
    faults = re.split(r"\n(?=\S)", done.stdout)
    not_as_expected = "\n".join(text for text in faults if "\n  ok" not in text)  # first, as a long message is cut
    assert done.returncode == 0, not_as_expected[-6000:] + done.stderr[-2000:]
    assert " faults, 0 not as expected" in done.stdout
