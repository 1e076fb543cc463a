"""The demo in examples/flights, with the first three weeks of the year only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]

_DEMO = Path(__file__).parents[2] / "examples" / "flights" / "main.py"
_TIMEOUT_S = 240


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo, running; its files go to `tmp_path`."""
    command = [sys.executable, str(_DEMO), "--limit", "20000", "--speed", "1000"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        yield process
        process.kill()


def test_every_flight_is_counted_once_while_clusters_come_and_go(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    """All clusters are read, nothing is lost or read twice, and no file is left behind."""
    output, _ = demo.communicate(timeout=_TIMEOUT_S)
    assert "20,000 flights, 3 clusters, 0 lost, 0 twice, 0 restarts" in output.splitlines()[-1], output
    assert demo.returncode == 0
    assert list(tmp_path.glob("flights-demo-*")) == []


def test_ctrl_c_ends_the_demo_and_leaves_nothing_running(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    """Interrupted in the middle of the stream, it says so, and takes its brokers, Spark and data with it."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if " reading" in line:  # any cluster: on a slow machine a line may come when the first one drains already
            break
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=_TIMEOUT_S)
    assert "Stopped" in output
    assert demo.returncode == 1
    assert list(tmp_path.glob("flights-demo-*")) == []
    assert not _mentioned_in_command_lines(str(tmp_path))


def _mentioned_in_command_lines(text: str) -> bool:
    """Whether a process runs with this in its arguments: the brokers' configuration and Spark's folders are there."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return text in listed.stdout
