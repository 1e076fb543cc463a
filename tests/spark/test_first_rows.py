"""The program in README.md that shows the first rows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.broker]

README = Path(__file__).parents[2] / "README.md"
_TIMEOUT_S = 240


def test_the_first_program_of_the_readme_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """It runs as it stands in an empty folder, starts its own clusters, and ends."""
    program, shown = re.findall(
        r"^```(?:python)?\n(import json.*?|-{20}.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = done.stdout[done.stdout.index("---") :].strip()
    assert sorted(printed.splitlines()) == sorted(shown.strip().splitlines())  # Kafka has no order between partitions
