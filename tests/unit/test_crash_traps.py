"""The traps of the crash tests are set where those look for them, so that a module that moves is noticed without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CRASH = Path(__file__).parents[1] / "crash"

CODE = """
import importlib, sitecustomize
for name in sitecustomize.TRAPS:
    importlib.import_module(f"dynamic_kafka.sink.{name}")
print(len(sitecustomize.TRAPS))
"""


def test_each_trap_is_set(tmp_path: Path) -> None:
    """Each module and function with a trap exists under its name."""
    path = os.pathsep.join([str(CRASH / "traps"), *filter(None, sys.path)])
    environment = {**os.environ, "SINK_TRAPS": str(tmp_path), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "5\n", done.stderr
