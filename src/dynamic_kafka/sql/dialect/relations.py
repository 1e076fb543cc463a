"""Tables that Spark has in other words: window table functions, and UNNEST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dynamic_kafka.sql.dialect.kinds import kind_of
from dynamic_kafka.sql.dialect.windows import BOUNDS, WINDOW, aligned, bound, table_window

if TYPE_CHECKING:
    from dynamic_kafka.sql.dialect.translate import Translator

__all__ = ["elements", "windowed"]


def windowed(t: Translator, table: exp.Table, call: exp.Anonymous) -> str:
    """Return a window table function: its rows with their window, or with the bounds of it if they are not grouped by it."""
    scope = t.scope
    assert scope is not None
    data, window = table_window(call, t.sql, t.refuse)
    keys: list[exp.Expr] = []
    if isinstance(data, exp.Anonymous):  # TABLE t PARTITION BY k
        data, *keys = data.expressions
    alias = table.alias or "__windowed"
    columns = table.args["alias"].args.get("columns") if table.args.get("alias") else None
    if columns:
        raise t.refuse(table, "Names for all columns of a window are not known: name them in the SELECT")
    source = t.sql(data)
    window = aligned(call, window, t.zone, t.type_in(window.time, source), t.refuse)
    group = scope.select.args.get("group")
    grouped = group is not None and any(
        isinstance(node, exp.Column) and node.name.lower() in BOUNDS and node.table in ("", alias)
        for node in group.expressions
    )
    if window.kind == "SESSION":
        if not grouped:
            raise t.refuse(call, "Spark has SESSION windows in a GROUP BY window_start, window_end only")
        _check_keys(t, call, keys, scope.select)
        scope.windows[alias] = window
        return (
            f"{source} AS `{alias}`"
            if isinstance(data, exp.Table) and not data.alias
            else f"(SELECT * FROM {source}) AS `{alias}`"
        )
    inner = f"SELECT *, {window.sql()} AS {WINDOW} FROM {source}"
    if grouped:
        scope.windows[alias] = window
        return f"({inner}) AS `{alias}`"
    bounds = ", ".join(f"{bound(WINDOW, suffix)} AS {name}" for name, suffix in BOUNDS.items())
    return f"(SELECT * EXCEPT ({WINDOW}), {bounds} FROM ({inner})) AS `{alias}`"


def _check_keys(t: Translator, call: exp.Anonymous, by: list[exp.Expr], select: exp.Select) -> None:
    """Raise unless the keys of a session are those of the GROUP BY."""
    keys = {key.name.lower() for key in by}
    group = select.args.get("group")
    groups = {node.name.lower() or t.sql(node) for node in group.expressions} if group is not None else set()
    if keys != groups - set(BOUNDS):
        raise t.refuse(
            call, "In Spark, a session has the keys of its GROUP BY: PARTITION BY and GROUP BY have to be the same"
        )


def elements(t: Translator, node: exp.Unnest) -> str:
    """Return the elements of an array or a map as a table."""
    alias = node.args.get("alias")
    columns = [t.sql(column) for column in (alias.args.get("columns") or [])] if alias else []
    if alias is None or not alias.this or len(node.expressions) != 1:
        raise t.refuse(node, "UNNEST of one array needs names: UNNEST(a) AS t(x)")
    array = t.sql(node.expressions[0])
    found = t.type_of(node.expressions[0])
    rows = kind_of(found) == "ArrayType" and kind_of(found.elementType) == "StructType"  # type: ignore[attr-defined]
    if not columns and not rows:
        raise t.refuse(node, "UNNEST needs a name for its column: UNNEST(a) AS t(x)")
    t._changed.add(id(node))
    name = t.sql(alias, "this")
    if node.args.get("offset"):
        if rows:
            raise t.refuse(node, "UNNEST of rows WITH ORDINALITY is not known")
        ordinal = node.args["offset"]
        names = [*columns, *([t.sql(ordinal)] if isinstance(ordinal, exp.Expr) else [])]
        return f"LATERAL (SELECT col, pos + 1 FROM posexplode({array})) AS {name}({', '.join(names)})"
    listed = f"({', '.join(columns)})" if columns else ""
    return f"LATERAL {'inline' if rows else 'explode'}({array}) AS {name}{listed}"
