"""The programs of the tutorials, as a reader runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
_TIMEOUT_S = 250


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_program_prints_what_its_tutorial_shows(page: Path, tmp_path: Path) -> None:
    """It runs as it stands in an empty folder, starts its own clusters, and ends."""
    text = page.read_text()
    program = ROOT / re.findall(r"\(\.\./\.\./(examples/tutorials/\w+\.py)\)", text)[0]
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = "".join(re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert list(filter(None, done.stdout.splitlines())) == list(filter(None, shown.splitlines()))
