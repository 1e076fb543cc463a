"""The example with half of the flights in Parquet, with the first three weeks of the year only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]

_EXAMPLE = Path(__file__).parents[2] / "examples" / "flights" / "history.py"


def test_half_of_the_flights_come_from_files_and_the_rest_from_kafka(tmp_path: Path) -> None:
    """Each flight once, across a restart in the files, with the numbers of pandas."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"}
    command = [sys.executable, str(_EXAMPLE), "--limit", "20000"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    said = "10,000 flights from Parquet, 10,000 from Kafka, 0 lost, 0 twice"
    assert done.stdout.splitlines()[-1:] == [said], done.stdout + done.stderr
    assert done.returncode == 0
