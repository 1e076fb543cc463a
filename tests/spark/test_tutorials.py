"""The programs of the tutorials and of the guides, as a reader runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"\(\.\./\.\./(examples/(?:tutorials|guides)/\w+\.py)\)")
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if PROGRAM.search(page.read_text()))
_TIMEOUT_S = 250


def test_each_tutorial_has_a_program() -> None:
    """And each program has its page."""
    programs = {program for page in PAGES for program in PROGRAM.findall(page.read_text())}
    assert programs == {
        str(path.relative_to(ROOT))
        for kind in ("tutorials", "guides")
        for path in (ROOT / "examples" / kind).glob("*.py")
    }
    assert set((ROOT / "docs" / "tutorials").glob("*.md")) <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_program_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    """It runs as it stands in an empty folder, starts its own clusters, and ends."""
    text = page.read_text()
    program = ROOT / PROGRAM.findall(text)[0]
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = "".join(re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert list(filter(None, done.stdout.splitlines())) == list(filter(None, shown.splitlines()))
