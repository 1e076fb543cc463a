"""What is passed on with the native kernel."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_licences_are_those_of_the_crates_in_the_lock_file() -> None:
    """`scripts/crate_licences.py` was run after the last change of Cargo.lock."""
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "crate_licences.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    locked = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]
    heading, _, listed = (ROOT / "native" / "LICENSES.txt").read_text().partition("\n\n")
    assert "Apache-2.0" in heading
    named = {line.partition(":")[0] for line in listed.partition("\n\n")[0].splitlines()}
    assert len(named) > 20
    assert named <= {f"{crate['name']} {crate['version']}" for crate in locked}
