"""A SELECT that is being written: its tables and its windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dynamic_kafka.sql.dialect.query import relations

__all__ = ["BEGIN", "BOUNDS", "WINDOW", "Scope", "Window"]

BOUNDS = {"window_start": "_START", "window_end": "_END", "window_time": "_ROWTIME"}
"""The columns of a window table function, and what they ask of a window."""
WINDOW = "__window"
"""The column with the window, in what a window table function becomes."""
BEGIN = "__begin"
"""The column with the start of a window of CUMULATE."""


@dataclass(frozen=True)
class Window:
    """A window over a column with the time.

    Args:
        kind: TUMBLE, HOP, SESSION or CUMULATE.
        time: The column, as text for Spark.
        size_us: The window's size, or the gap of a session, or the longest window of CUMULATE.
        slide_us: The time between the starts of two windows, or between the ends of two of CUMULATE.
        offset_us: What windows are shifted by.
        nested: True if `time` is the column with the windows that the rows have already.
        of_wall: True if `time` is the wall time of a TIMESTAMP_LTZ.
    """

    kind: str
    time: str
    size_us: int
    slide_us: int
    offset_us: int = 0
    nested: bool = False
    of_wall: bool = False

    def sql(self) -> str:
        """Return the window for Spark."""
        if self.kind == "SESSION":
            return f"session_window({self.time}, '{self.size_us} microseconds')"
        parts = [self.time, f"'{self.size_us} microseconds'"]
        if self.slide_us != self.size_us or self.offset_us:
            parts.append(f"'{self.slide_us} microseconds'")
        if self.offset_us:
            parts.append(f"'{self.offset_us % self.slide_us} microseconds'")
        return f"window({', '.join(parts)})"

    def rows(self, source: str) -> str:
        """Return the rows of a table, each with its windows in the column `__window`.

        The windows of CUMULATE are those of HOP that end in the row's period, but they begin with the period.
        """
        if self.kind != "CUMULATE":
            every = f"* EXCEPT ({WINDOW})" if self.nested else "*"
            return f"SELECT {every}, {self.sql()} AS {WINDOW} FROM {source}"
        period = f"'{self.size_us} microseconds'"
        period = f"window({self.time}, {period}, {period}, '{self.offset_us} microseconds')"
        begin = f"CAST(__period.start AS TIMESTAMP_NTZ) AS {BEGIN}"
        of_period = f"SELECT *, {period} AS __period FROM {source}"
        of_steps = f"SELECT *, {self.sql()} AS {WINDOW} FROM ({of_period})"
        return f"SELECT * EXCEPT (__period), {begin} FROM ({of_steps}) WHERE {WINDOW}.end <= __period.end"

    def bound(self, window: str, suffix: str) -> str:
        """Return one of the window's columns: `_START`, `_END` or `_ROWTIME`."""
        if self.kind == "CUMULATE" and suffix == "_START":
            return f"{window.removesuffix(WINDOW)}{BEGIN}"
        if suffix == "_ROWTIME":
            last = f"({window}.end - INTERVAL '0.001' SECOND)"
            return f"CAST({last} AS TIMESTAMP)" if self.of_wall else last
        return f"CAST({window}.{'start' if suffix == '_START' else 'end'} AS TIMESTAMP_NTZ)"

    def keys(self, window: str) -> list[str]:
        """Return what rows of a window have in common."""
        return [window, self.bound(window, "_START")] if self.kind == "CUMULATE" else [window]

    def columns(self) -> tuple[str, ...]:
        """Return the columns that `rows` has besides those of the table."""
        return (WINDOW, BEGIN) if self.kind == "CUMULATE" else (WINDOW,)


@dataclass
class Scope:
    """A SELECT that is being written: what its rows are grouped by, its tables, and its windows by the table's alias.

    `in_rows` are the tables up to the last temporal join, whose columns are parts of one row. `inherited` are the columns
    with the bounds of the windows that a sub-query is grouped by, if this SELECT is grouped by them, too. `hidden` are the
    columns that were added to tables, by the table's alias.
    """

    select: exp.Select
    outer: Scope | None
    by: Sequence[exp.Expr] = ()
    tables: list[str] = field(default_factory=list)
    complete: str = ""
    windows: dict[str, Window] = field(default_factory=dict)
    in_rows: list[str] = field(default_factory=list)
    inherited: Mapping[str, str] = field(default_factory=dict)
    hidden: dict[str, list[str]] = field(default_factory=dict)

    def source(self) -> str:
        """Return the FROM with the tables that are known by now."""
        return self.complete or (f"FROM {', '.join(self.tables)}" if self.tables else "")

    @property
    def joins(self) -> Sequence[exp.Join]:
        """Return its joins."""
        return self.select.args.get("joins") or []

    @property
    def relations(self) -> Sequence[exp.Expr]:
        """Return its tables and sub-queries, as they were parsed."""
        return relations(self.select)

    def names(self) -> list[str]:
        """Return the names of all tables."""
        return [relation.alias_or_name for relation in self.relations]

    def window_of(self, node: exp.Expr) -> tuple[Window, str] | None:
        """Return the window that a column is the start, the end or the time of, and its text for Spark."""
        if self.select.args.get("group") and self._inherits(node):
            return Window("TUMBLE", WINDOW, 0, 0), WINDOW
        if not isinstance(node, exp.Column) or node.name.lower() not in BOUNDS:
            return None
        alias = node.table or (next(iter(self.windows)) if len(self.windows) == 1 else "")
        if alias not in self.windows:
            return None
        window = self.windows[alias]
        return window, window.sql() if window.kind == "SESSION" else f"`{alias}`.{WINDOW}"

    def suffix_of(self, name: str) -> str:
        """Return what a column that has a window is of it: `_START`, `_END` or `_ROWTIME`."""
        return self.inherited.get(name.lower()) or BOUNDS[name.lower()]

    def keys_of(self, node: exp.Expr) -> list[str] | None:
        """Return what the rows of a window have in common, if a part is the start, the end or the time of one."""
        found = self.window_of(node)
        if found is None:
            return [WINDOW] if self._inherits(node) else None
        return found[0].keys(found[1])

    def _inherits(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and node.name.lower() in self.inherited

    def bounds(self) -> list[str]:
        """Return the columns with the bounds of all windows."""
        return [
            f"{window.bound(f'`{alias}`.{WINDOW}', suffix)} AS {name}"
            for alias, window in self.windows.items()
            for name, suffix in BOUNDS.items()
        ]
