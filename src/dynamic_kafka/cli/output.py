"""The output of commands: tables and details as text, or JSON. Warnings go to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynamic_kafka.errors import ConfigurationError

__all__ = ["duration", "show_details", "show_json", "show_line", "show_table", "warn", "write_text"]


def show_json(document: Any) -> None:
    """Write a JSON document."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def show_line(text: str) -> None:
    """Write a line."""
    sys.stdout.write(_printable(text) + "\n")


def warn(text: str) -> None:
    """Write a warning to standard error."""
    sys.stderr.write(f"dynamic-kafka: warning: {_printable(text)}\n")


def show_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Write rows as a table. There is at least one row, and all have the same columns.

    On a terminal, rich draws it if it is installed. Otherwise columns are aligned by blanks, one line per row for `grep`.
    """
    cells = [[_printable(text) for text in row.values()] for row in rows]
    names = list(rows[0])
    if not (sys.stdout.isatty() and _show_rich(names, cells)):
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        for row in [names, *cells]:
            show_line("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def write_text(path: Path, text: str, argument: str) -> None:
    """Write a file that the user names. If that fails, a file that was there before is still there.

    Args:
        path: The file.
        text: Its new text.
        argument: The argument that names it, for errors.

    Raises:
        ConfigurationError: If it cannot be written.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_text(text, encoding="utf-8")
            return
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigurationError(
            f"{argument} '{path}' cannot be written ({error.strerror}); name another place, or make room"
        ) from None


def show_details(pairs: Mapping[str, str]) -> None:
    """Write names and values, one pair per line."""
    width = max(map(len, pairs))
    for name, text in pairs.items():
        show_line(f"{name.ljust(width)}  {text}")


def duration(milliseconds: int) -> str:
    """Return a duration in its two largest units, such as `3 min 12 s`."""
    seconds = milliseconds // 1000
    for (unit, size), (smaller, part) in (
        (("d", 86_400), ("h", 3_600)),
        (("h", 3_600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // part} {smaller}"
    return f"{seconds} s"


def _show_rich(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # not as markup, which an id may look like
    Console(file=sys.stdout).print(table)
    return True


def _printable(text: str) -> str:
    """Escape control characters, so that ids of other programs cannot control this terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
