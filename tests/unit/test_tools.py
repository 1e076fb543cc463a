"""What tests need beside Python's packages: a tool that is missing is a skip for a developer, and a failure on CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_CASES = """
import pytest

def test_that_skips():
    pytest.skip("the tool is not installed")

@pytest.mark.skipif(True, reason="another tool is not installed: scripts/get-other")
def test_with_a_mark():
    pass

def test_of_another_system():
    pytest.skip("such delays are Linux's")
"""
_WHOLE_FILE = "import pytest\n\npytest.importorskip('a_module_that_nobody_has')\n\ndef test_one():\n    pass\n"


@pytest.mark.parametrize(
    ("ci", "end"), [("true", "1 failed, 1 skipped, 2 errors in"), ("", "4 skipped in")], ids=["ci", "developer"]
)
def test_what_is_not_installed_fails_on_ci(tmp_path: Path, ci: str, end: str) -> None:
    """By whatever way of pytest it is skipped. What cannot be on a system is skipped there, too."""
    (tmp_path / "test_cases.py").write_text(_CASES)
    (tmp_path / "test_whole_file.py").write_text(_WHOLE_FILE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.tools", "-p", "no:cacheprovider", "--rootdir"]
    command += [str(tmp_path), "--continue-on-collection-errors", str(tmp_path)]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1].startswith(end), done.stdout
    assert ("Nothing may be missing where CI=true" in done.stdout) == bool(ci)
