"""The demo in examples/monitoring (`make observe`), with a real Prometheus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import OBSERVERS, tool

pytestmark = [
    *(pytest.mark.slow, pytest.mark.broker, pytest.mark.spark),
    pytest.mark.skipif(tool("prometheus") is None, reason="Prometheus is not installed: scripts/get-observers"),
]

_ROOT = Path(__file__).parents[2]
_COMMAND = [sys.executable, "-m", "examples.monitoring.main"]


def test_a_stopped_broker_fires_an_alert_that_goes_with_its_return(tmp_path: Path) -> None:
    """The page shows it before, each order becomes one invoice in the end, and nothing is left behind."""
    path = f"{os.environ['PATH']}{os.pathsep}{OBSERVERS}"
    environment = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path), "COLUMNS": "200"}
    done = subprocess.run(
        _COMMAND, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False, timeout=270
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    (page,) = (n for n, line in enumerate(lines) if "The page says: degraded. Cluster 'us'" in line)
    (fires,) = (n for n, line in enumerate(lines) if "fires: Query billing cannot reach cluster us" in line)
    assert page < fires
    written, invoices = re.findall(r"([\d,]+) orders written, ([\d,]+) invoices", lines[-1])[0]
    assert written == invoices != "0"
    assert list(tmp_path.glob("monitoring-demo-*")) == []


def test_without_prometheus_it_says_how_to_install_it() -> None:
    """And starts nothing."""
    environment = {**os.environ, "PATH": ""}
    done = subprocess.run(_COMMAND, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "apt-get install --no-install-recommends prometheus" in done.stdout
