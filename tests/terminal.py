"""A program on a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dynamic_kafka.testing import wait_until


class Terminal:
    """Runs a program on a pseudo-terminal, and kills it at the end of the `with` block.

    Args:
        command: The program and its arguments.
        home: Its home directory.
    """

    def __init__(self, command: Sequence[str], home: Path) -> None:
        self.shown = ""
        self._terminal, other = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, "HOME": str(home), "TERM": "dumb", "COLUMNS": "120"},
            start_new_session=True,
        )
        os.close(other)

    def shows(self, text: str) -> None:
        """Wait until a text is shown."""

        def is_there() -> bool:
            if text not in self.shown:
                self.shown += os.read(self._terminal, 4096).decode(errors="replace")
            return text in self.shown

        wait_until(is_there, 120, text)

    def types(self, text: str) -> None:
        """Type a text."""
        os.write(self._terminal, text.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)
