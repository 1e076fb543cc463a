"""Tables that Spark has in other words: window table functions, and UNNEST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.scope import BOUNDS, WINDOW
from dynamic_kafka.sql.dialect.windows import GROUP_WINDOWS, aligned, table_window
from dynamic_kafka.sql.dialect.writer import Writer
from dynamic_kafka.sql.tables.types import kind_of

__all__ = ["elements", "export_window", "exported_window", "joined", "named_bounds", "windowed"]


def windowed(t: Writer, table: exp.Table, call: exp.Anonymous) -> str:
    """Return a window table function: its rows with their window, or with the bounds of it if they are not grouped by it."""
    scope = t.scope
    assert scope is not None
    data, window = table_window(t, call)
    keys: list[exp.Expr] = []
    if isinstance(data, exp.Anonymous):  # TABLE t PARTITION BY k
        data, *keys = data.expressions
    alias = table.alias or "__windowed"
    columns = table.args["alias"].args.get("columns") if table.args.get("alias") else None
    if columns:
        raise t.refuse(table, "Names for all columns of a window are not known: name them in the SELECT")
    of_windows = t.times_of is not None and window.kind in ("TUMBLE", "HOP")
    if nested := of_windows and _has_windows(t, data, window.time):
        window = replace(window, time=WINDOW, nested=True)
    source = t.sql(data)
    found = t.type_in(f"{WINDOW}.start" if nested else window.time, source)
    window = aligned(t, call, window, found)
    grouped = any(
        isinstance(node, exp.Column) and node.name.lower() in BOUNDS and node.table in ("", alias) for node in scope.by
    )
    if window.kind == "SESSION":
        if not grouped:
            raise t.refuse(call, "Spark has SESSION windows in a GROUP BY window_start, window_end only")
        _check_keys(t, call, keys, scope.by)
        scope.windows[alias] = window
        return (
            f"{source} AS `{alias}`"
            if isinstance(data, exp.Table) and not data.alias and " AS " not in source  # one with options has a name
            else f"(SELECT * FROM {source}) AS `{alias}`"
        )
    inner = window.rows(source)
    if grouped:
        scope.windows[alias] = window
        return f"({inner}) AS `{alias}`"
    bounds = ", ".join(f"{window.bound(WINDOW, suffix)} AS {name}" for name, suffix in BOUNDS.items())
    columns = "*" if id(table) in t.exported else f"* EXCEPT ({', '.join(window.columns())})"
    return f"(SELECT {columns}, {bounds} FROM ({inner})) AS `{alias}`"


def _has_windows(t: Writer, data: exp.Expr, time: str) -> bool:
    """Return whether a column is the time of the windows that a sub-query is grouped by, and let it return them, too.

    Spark knows the event time of windows of windows only by the windows themselves.
    """
    query = data.this if isinstance(data, exp.Subquery) else None
    if not isinstance(query, exp.Select) or query.args.get("group") is None:
        return False
    if named_bounds(query).get(time.replace("`", "").lower()) != "_ROWTIME":
        return False
    t.exported.add(id(query))
    return True


def export_window(t: Writer, select: exp.Select, by: Sequence[exp.Expr]) -> Mapping[str, str]:
    """Let a sub-query that is grouped by windows return them, too, if a SELECT of it is grouped or ranked `by` their bounds.

    Spark knows the event time of these rows only by the windows themselves.

    Returns:
        The columns with the bounds, in lower case, and which of them each is.
    """
    relation = select.args["from_"].this if select.args.get("from_") else None
    query = relation.this if isinstance(relation, exp.Subquery) else None
    group = query.args.get("group") if isinstance(query, exp.Select) else None
    if not isinstance(query, exp.Select) or group is None or select.args.get("joins"):
        return {}
    if select.args.get("group") and t.has_cumulate(query):  # its windows have another start
        return {}
    bounds = {name: suffix for name, suffix in named_bounds(query).items() if suffix in ("_START", "_END")}
    given = {bounds[part.name.lower()] for part in by if isinstance(part, exp.Column) and part.name.lower() in bounds}
    if not given:
        return {}
    calls = set(map(called, query.find_all(exp.Anonymous)))
    if calls & {"SESSION", "SESSION_START", "SESSION_END"} and not {"_START", "_END"} <= given:
        raise t.refuse(select, "Two sessions may have the same start: GROUP BY the end of a session, too")
    t.exported.add(id(query))
    return bounds


def named_bounds(query: exp.Select) -> dict[str, str]:
    """Return the columns of a query that is grouped by windows: `_START`, `_END` or `_ROWTIME`; empty for any other one."""

    def suffix(value: exp.Expr) -> str:
        if isinstance(value, exp.Column):
            return BOUNDS.get(value.name.lower(), "")
        return GROUP_WINDOWS.get(called(value), ("", ""))[1]

    return {part.alias_or_name.lower(): suffix(part.unalias()) for part in query.expressions}


def exported_window(t: Writer) -> str:
    """Return the window that the rows of this SELECT have or are grouped by."""
    scope = t.scope
    assert scope is not None
    if scope.select.args.get("group") is None:
        return WINDOW
    for node in scope.by:
        if (found := scope.window_of(node)) is not None:
            return found[1]
        if called(node) in GROUP_WINDOWS:
            return t.sql(node)
    raise t.refuse(scope.select, "The windows of this sub-query are not known: GROUP BY them")


def _check_keys(t: Writer, call: exp.Anonymous, by: list[exp.Expr], group: Sequence[exp.Expr]) -> None:
    """Raise unless the keys of a session are those of the GROUP BY."""
    keys = {key.name.lower() for key in by}
    groups = {node.name.lower() or t.sql(node) for node in group}
    if keys != groups - set(BOUNDS):
        raise t.refuse(
            call, "In Spark, a session has the keys of its GROUP BY: PARTITION BY and GROUP BY have to be the same"
        )


def is_comma(join: exp.Join) -> bool:
    """Return whether a table follows a comma, or JOIN without anything that it depends on."""
    return not any(value for name, value in join.args.items() if name != "this")


def check_commas(t: Writer, joins: Sequence[exp.Join]) -> None:
    """Refuse joins that mean something else after a comma.

    Flink joins what follows a comma first, and Spark joins from left to right. So `a, b RIGHT JOIN c` is a joined with
    (b RIGHT JOIN c) in Flink, and (a joined with b) RIGHT JOIN c in Spark. With LEFT and inner joins both are the same.

    Raises:
        SqlError: For RIGHT, FULL, NATURAL and USING after a comma.
    """
    after_comma = False
    for join in joins:
        depends = join.side in ("RIGHT", "FULL") or join.method or join.args.get("using")
        if after_comma and depends:
            raise t.refuse(
                join,
                "RIGHT, FULL and NATURAL JOIN, and USING, are not known after a comma, where Spark joins other tables than "
                "Flink: write these joins first, and the tables before the comma after them",
            )
        after_comma = after_comma or is_comma(join)


def joined(t: Writer, join: exp.Join) -> str:
    """Return a join with the elements of an array."""
    outer = (join.side or "").upper() == "LEFT"
    on = join.args.get("on")
    if on is not None and on != exp.true():
        raise t.refuse(join, "A join with UNNEST has the condition ON TRUE. Write the condition in WHERE")
    return f" {'LEFT' if outer else 'CROSS'} JOIN {t.sql(join.this)}{' ON TRUE' if outer else ''}"


def elements(t: Writer, node: exp.Unnest) -> str:
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
    t.as_changed(node, "")
    name = t.sql(alias, "this")
    if node.args.get("offset"):
        if rows:
            raise t.refuse(node, "UNNEST of rows WITH ORDINALITY is not known")
        ordinal = node.args["offset"]
        names = [*columns, *([t.sql(ordinal)] if isinstance(ordinal, exp.Expr) else [])]
        return f"LATERAL (SELECT col, pos + 1 FROM posexplode({array})) AS {name}({', '.join(names)})"
    listed = f"({', '.join(columns)})" if columns else ""
    return f"LATERAL {'inline' if rows else 'explode'}({array}) AS {name}{listed}"
