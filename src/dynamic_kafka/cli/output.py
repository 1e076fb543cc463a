"""The output of commands: tables and details as text, or JSON. Warnings go to standard error."""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dynamic_kafka.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "complain",
    "drawn",
    "draws",
    "duration",
    "json_text",
    "now_ms",
    "padded",
    "printable",
    "printable_json",
    "printable_lines",
    "show_details",
    "show_json",
    "show_line",
    "show_rows",
    "show_stopped",
    "show_table",
    "terminal",
    "warn",
    "width_of",
    "write_text",
]


def show_json(document: Any) -> None:
    """Write a JSON document."""
    sys.stdout.write(json_text(document))


def json_text(document: Any) -> str:
    """Return a JSON document as lines for people, with the last line's end."""
    lines = json.dumps(document, indent=2, ensure_ascii=False).split("\n")
    return "\n".join(map(printable_json, lines)) + "\n"


def printable_json(line: str) -> str:
    """Escape the characters that JSON leaves as they are, and that could control this terminal."""
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def show_line(text: str) -> None:
    """Write a line."""
    sys.stdout.write(printable(text) + "\n")


def show_stopped() -> None:
    """Write that Ctrl-C has stopped something, over the `^C` that the terminal has written."""
    sys.stdout.write("\r" if sys.stdout.isatty() else "")
    show_line("stopped")


def warn(text: str) -> None:
    """Write a warning to standard error."""
    sys.stderr.write(f"dynamic-kafka: warning: {printable(text)}\n")


def complain(text: str) -> None:
    """Write an error to standard error. It may have several lines."""
    sys.stderr.write(f"dynamic-kafka: error: {printable_lines(text)}\n")


def show_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as a table, see `show_rows`; nothing without a row. All have the same columns, and None is `-`."""
    if rows:
        show_rows(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])


def show_rows(names: Sequence[str], rows: Sequence[Sequence[str]], numbers: AbstractSet[int] = frozenset()) -> None:
    """Write rows as a table. A name of a column may repeat, and rich aligns the columns with `numbers` to the right.

    On a terminal, rich draws it if it is installed. Otherwise columns are aligned by blanks, one line per row for `grep`.
    """
    console = terminal()
    if console is not None:
        console.print(drawn(names, rows, numbers))
        return
    cells = [[printable(text) for text in row] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(names, *cells, strict=True)]
    for row in [names, *cells]:
        show_line("  ".join(padded(text, width) for text, width in zip(row, widths, strict=True)).rstrip())


def draws(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that takes colors and moves of its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def terminal() -> Console | None:
    """Return standard output as a terminal that rich can draw on; None if it is none, or if there is no rich."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=sys.stdout)


def drawn(names: Sequence[str], rows: Sequence[Sequence[str]], numbers: AbstractSet[int] = frozenset()) -> Table:
    """Return rich's drawing of a table; see `show_rows`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(Text(printable(name)), overflow="fold", justify="right" if i in numbers else "left")
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in row))  # not as markup, which an id may look like
    return table


def write_text(path: Path, text: str, argument: str) -> None:
    """Write a file that the user names. If that fails, a file that was there before is still there.

    `argument` names it in errors.

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


def show_details(pairs: Mapping[str, object]) -> None:
    """Write names and values, one pair per line."""
    width = max(map(len, pairs))
    for name, value in pairs.items():
        show_line(f"{name.ljust(width)}  {_cell(value)}")


def now_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


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


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def printable_lines(text: str) -> str:
    """Escape the control characters in each line of a text."""
    return "\n".join(map(printable, text.split("\n")))


def printable(text: str) -> str:
    """Escape control characters as Python does, so that ids of other programs cannot control this terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width_of(text: str) -> int:
    """Return the number of a terminal's cells that a printable text takes: East Asian characters take two, accents none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a printable text with blanks after it, or before it if `right`, so that it takes this width."""
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks
