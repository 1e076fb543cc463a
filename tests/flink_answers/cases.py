"""What is asked of Flink and of our SQL: expressions over a few rows, and whole queries, from the files beside this one."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EXPRESSIONS", "QUERIES", "ROWS", "ZONES"]

_HERE = Path(__file__).parent
ZONES = ("UTC", "America/Los_Angeles")
"""The time zones of the session; in all but the first, only expressions of times are asked for."""


def _sections(name: str, mark: str) -> dict[str, str]:
    """Return the parts of a file, each behind a line with its name."""
    parts = f"\n{(_HERE / name).read_text()}".split(f"\n{mark} ")
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts[1:]}


ROWS = _sections("rows.sql", "--")
"""A relation with a column `id` for each group."""
EXPRESSIONS = {group: text.split("\n") for group, text in _sections("expressions.txt", "##").items()}
"""The expressions of each group, over its relation."""


def _filled(sql: str) -> str:
    for group, rows in ROWS.items():
        sql = sql.replace(f"{{{group}}}", rows)
    return sql


QUERIES = {sql: _filled(sql) for sql in (_HERE / "queries.sql").read_text().strip().removesuffix(";").split(";\n")}
"""Queries, from how they are written in the file to all of their text."""
