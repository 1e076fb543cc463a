"""The tables of docs/guides/security.md. The tests that they come from compare each row with what happens.

With SECURITY_TABLES=write, these tests write them anew: first tests/integration/test_security_matrix.py, then
tests/spark/test_security_kerberos.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.security.brokers import Secured

__all__ = ["DOCUMENT", "check_row", "clear", "first_cells", "normal", "shown"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "security.md"
_WRITES = os.environ.get("SECURITY_TABLES") == "write"
_VARIABLE = (
    (re.compile(r"127\.0\.0\.1:\d+"), "broker:9093"),
    (re.compile(r"127\.0\.0\.1"), "broker"),
    (re.compile(r", \d+(\.\d+)? s\)"), ")"),
    (re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)"), ""),
    (re.compile(r"after \d+ ms:"), "after 0 ms:"),
    (re.compile(r" It has not answered for \d+ s\."), ""),
    (re.compile(r"\.dk-[0-9a-f]+-\d+"), ".dk-1"),
    (
        re.compile(r"Failed while waiting for controller: Local: Timed out|Timed out waiting for controller"),
        "Timed out",
    ),
    (re.compile(r"\d+/\d+ brokers are down"), "1/1 brokers are down"),
    # What the page says once, before its tables.
    (re.compile(r" The query stops because cluster-failure-mode=fail; .+"), ""),
    (re.compile(r"; grant it with kafka-acls\.sh --add --allow-principal '[^']+'( --[a-z-]+ ('[^']+'|\w+))+"), ""),
)


def check_row(table: str, *cells: str) -> None:
    """Compare a row with the document's; the first cell names it."""
    row = f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    text = DOCUMENT.read_text()
    begin, rows, end = _parts(text, table)
    if not _WRITES:
        assert row in rows, f"docs/guides/security.md is stale, or this is wrong:\n{row}"
        return
    kept = [line for line in rows if not line.startswith(f"| {cells[0]} |")]
    DOCUMENT.write_text(begin + "\n".join([*kept, row]) + end)


def clear(table: str) -> None:
    """Drop all rows of a table, if it is to be written anew."""
    begin, rows, end = _parts(DOCUMENT.read_text(), table)
    if _WRITES:
        DOCUMENT.write_text(begin + "\n".join(rows[:2]) + end)


def first_cells(table: str) -> list[str]:
    """The names of a table's rows."""
    return [row.split(" | ")[0].removeprefix("| ") for row in _parts(DOCUMENT.read_text(), table)[1][2:]]


def normal(text: str, secured: Secured | None = None) -> str:
    """An error without what differs from run to run."""
    if secured is not None:
        text = text.replace(str(secured.stores), "/etc/kafka")
    for pattern, word in _VARIABLE:
        text = pattern.sub(word, text)
    return text.splitlines()[0]


def shown(properties: Mapping[str, str]) -> str:
    """Properties for a cell."""
    found = []
    for key, value in properties.items():
        text = value.replace("{stores}", "/etc/kafka").replace("{tokens}", "https://tokens.example.com")
        text = re.sub(r'(password|clientSecret)="[^"]*"', r'\1="..."', text)
        found.append(f"`{key}={'...' if key.endswith('password') else text}`")
    return "<br>".join(found) or "(none)"


def _parts(text: str, table: str) -> tuple[str, Sequence[str], str]:
    begin, end = f"<!-- {table}: checked by tests/integration -->\n", f"\n<!-- /{table} -->"
    before, _, rest = text.partition(begin)
    rows, _, after = rest.partition(end)
    return before + begin, rows.splitlines(), end + after
