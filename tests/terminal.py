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
        kind: The kind of terminal; a `dumb` one cannot draw.
    """

    def __init__(self, command: Sequence[str], home: Path, kind: str = "dumb") -> None:
        self.shown, self._seen = "", 0
        self._terminal, other = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            env={
                **os.environ,
                "HOME": str(home),
                "TERM": kind,
                "COLUMNS": "120",
                "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody answers where the cursor is
            },
            start_new_session=True,
        )
        os.close(other)

    def shows(self, text: str) -> None:
        """Wait until a text is shown, behind the one that was waited for last."""

        def is_there() -> bool:
            if text not in self.shown[self._seen :]:
                self.shown += os.read(self._terminal, 4096).decode(errors="replace")
            return text in self.shown[self._seen :]

        wait_until(is_there, 120, text)
        self._seen = self.shown.index(text, self._seen) + len(text)

    def types(self, text: str) -> None:
        """Type a text."""
        os.write(self._terminal, text.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)
