"""Programs that tests need and pip does not install: found on the PATH, or where scripts/get-observers puts them.

On CI (the variable CI is "true") nothing may be missing: a test that is skipped because something is not installed fails
there, by the hooks below. tests/conftest.py has them, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest

__all__ = ["OBSERVERS", "pytest_make_collect_report", "pytest_runtest_makereport", "tool"]

OBSERVERS = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-dynamic-kafka" / "observers" / "bin"
)
"""The folder of scripts/get-observers."""
_MISSING = (
    "is not installed",
    "could not import",
)  # what such a test's reason says; the latter is pytest.importorskip's

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def tool(*names: str) -> str | None:
    """Return the path of the first of these programs that is there; None if none is."""
    path = os.pathsep.join((os.environ.get("PATH", ""), str(OBSERVERS)))
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On CI a test that is skipped for a missing tool has failed."""
    return _complete((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """On CI so has a file that is skipped as a whole."""
    return _complete((yield))


def _complete(report: Report) -> Report:
    reason = str(report.longrepr[2]) if report.skipped and isinstance(report.longrepr, tuple) else ""
    if os.environ.get("CI") == "true" and any(words in reason for words in _MISSING):
        report.outcome = "failed"
        report.longrepr = f"{reason}. Nothing may be missing where CI=true: `make install` brings it, or says how to"
    return report
