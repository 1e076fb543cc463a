"""A SELECT that is being written: its tables and its windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dynamic_kafka.sql.dialect.windows import BOUNDS, WINDOW, Window

__all__ = ["Scope"]


@dataclass
class Scope:
    """A SELECT that is being written: what its rows are grouped by, its tables, and its windows by the table's alias.

    `in_rows` are the tables up to the last temporal join, whose columns are parts of one row. `inherited` are the columns
    with the bounds of the windows that a sub-query is grouped by, if this SELECT is grouped by them, too. `limited` are the
    tables with a column for `limits`.
    """

    select: exp.Select
    outer: Scope | None
    by: Sequence[exp.Expr] = ()
    tables: list[str] = field(default_factory=list)
    complete: str = ""
    windows: dict[str, Window] = field(default_factory=dict)
    in_rows: list[str] = field(default_factory=list)
    inherited: Mapping[str, str] = field(default_factory=dict)
    limited: list[str] = field(default_factory=list)

    def source(self) -> str:
        """Return the FROM with the tables that are known by now."""
        return self.complete or (f"FROM {', '.join(self.tables)}" if self.tables else "")

    def names(self) -> list[str]:
        """Return the names of all tables."""
        relations = [self.select.args["from_"].this, *(join.this for join in self.select.args.get("joins") or [])]
        return [relation.alias_or_name for relation in relations]

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
