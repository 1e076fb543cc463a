"""The story in examples/migration (`make migrate`): real clusters, a real Spark query, and two kills of its driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]

_ROOT = Path(__file__).parents[2]


def test_a_query_moves_to_the_mirror_of_a_dead_cluster_and_back(tmp_path: Path) -> None:
    """Each order becomes one row, wherever it is read, and nothing is left behind."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "examples.migration.main"],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=290,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith("0 lost, 0 twice")
    assert list(tmp_path.glob("migration-demo-*")) == []
