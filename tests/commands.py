"""The command line in the process of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dynamic_kafka.cli.main import main

__all__ = ["Run", "runner"]

Run = Callable[..., tuple[int, str, str]]
"""A function from arguments to the exit code, and to what was written to the two outputs."""


def runner(capsys: pytest.CaptureFixture[str], command: str) -> Run:
    """A function that runs `dynamic-kafka <command>` with its arguments."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code: Any
        try:
            code = main([command, *arguments])
        except SystemExit as ended:  # argparse's way
            code = ended.code
        written = capsys.readouterr()
        return code, written.out, written.err

    return run
