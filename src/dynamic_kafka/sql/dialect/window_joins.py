"""Joins of windows: Spark deletes the rows of a window from its state when it knows that the windows are a key of the join.

It knows that of a window itself and not of its bounds. So both sides return their windows, and the join compares them, too.
Late rows are dropped then, as in Flink.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dynamic_kafka.sql.dialect.flink import WINDOW_TABLES
from dynamic_kafka.sql.dialect.query import is_temporal
from dynamic_kafka.sql.dialect.relations import suffix_of
from dynamic_kafka.sql.dialect.scope import BOUNDS, WINDOW, Scope, Translating
from dynamic_kafka.sql.dialect.windows import offsets_us
from dynamic_kafka.sql.tables.kinds import kind_of

__all__ = ["compare_windows", "conditions", "share_windows"]

_UNKNOWN = ("joins", "distinct", "limit", "with_", "laterals")


def share_windows(t: Translating, scope: Scope) -> None:
    """Let both sides of a join of windows return them. Its tables are not written yet."""
    joins = scope.select.args.get("joins") or []
    if t.times_of is None or len(joins) != 1 or is_temporal(joins[0]) or scope.select.args.get("from_") is None:
        return
    relations = [scope.select.args["from_"].this, joins[0].this]
    bounds = [_bounds(relation) for relation in relations]
    sides = [relation.alias.lower() for relation in relations]
    same = set()
    for part in conditions(joins[0].args.get("on")):
        columns = [part.this, part.expression] if isinstance(part, exp.EQ) else []
        if not columns or not all(isinstance(column, exp.Column) for column in columns):
            continue
        found = {column.table.lower(): column.name.lower() for column in columns}
        if all(found.keys()) and [*found] in (sides, sides[::-1]):
            same.add(tuple(of.get(found[side], "") for of, side in zip(bounds, sides, strict=True)))
    if {("_START", "_START"), ("_END", "_END")} <= same:
        for relation in relations:
            _share(t, relation)
            scope.hidden.setdefault(relation.alias, []).append(WINDOW)


def compare_windows(t: Translating, scope: Scope) -> bool:
    """Let a join of windows compare them, too. Return whether it does.

    It does not if two windows may have the same bounds: when clocks go back, a wall time is there twice.
    """
    names = [name for name, columns in scope.hidden.items() if WINDOW in columns]
    if not names:
        return False
    times = [t.type_in(f"{WINDOW}.start", table) for table in scope.tables]
    of_walls = all(found is not None and kind_of(found) == "TimestampNTZType" for found in times)
    if not of_walls and len(offsets_us(t.zone)) != 1:
        return False
    join = scope.select.args["joins"][0]
    one, other = (exp.column(WINDOW, table=exp.to_identifier(name, quoted=True)) for name in names)
    join.set("on", exp.and_(join.args["on"], exp.EQ(this=one, expression=other), copy=False))
    t.as_changed(join, "")
    return True


def conditions(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a condition that all have to be true."""
    condition = condition.unnest() if condition is not None else None
    if isinstance(condition, exp.And):
        return [*conditions(condition.this), *conditions(condition.expression)]
    return [] if condition is None else [condition]


def _bounds(relation: exp.Expr) -> Mapping[str, str]:
    """Return the columns of a table that are bounds of its windows; none if it cannot return the windows themselves.

    Those of CUMULATE with the same bounds may be different ones for Spark.
    """
    if kind := _kind(relation):
        return BOUNDS if kind in ("TUMBLE", "HOP") else {}
    query = relation.this if isinstance(relation, exp.Subquery) else None
    if not isinstance(query, exp.Select) or query.args.get("from_") is None or any(map(query.args.get, _UNKNOWN)):
        return {}
    cumulate = any(str(call.this).upper() == "CUMULATE" for call in query.find_all(exp.Anonymous))
    if cumulate or query.find(exp.Window) is not None:
        return {}
    if query.args.get("group") is not None:
        return _grouped(query)
    inner = _bounds(query.args["from_"].this)
    found = dict(inner) if _has_star(query) else {}
    return found | _named(query, inner)


def _grouped(query: exp.Select) -> Mapping[str, str]:
    """Return the bounds of the windows that a query is grouped by, as `export_window` knows them."""
    relation = query.args["from_"].this
    if isinstance(relation, exp.Subquery) and isinstance(relation.this, exp.Select) and relation.this.args.get("group"):
        inner = _grouped(relation.this)
        return _named(query, {name: suffix for name, suffix in inner.items() if suffix != "_ROWTIME"})
    parts = {part.alias_or_name.lower(): part.unalias() for part in query.expressions}
    of_table = bool(_kind(relation))
    return {name: suffix_of(value) for name, value in parts.items() if of_table or isinstance(value, exp.Anonymous)}


def _named(query: exp.Select, inner: Mapping[str, str]) -> dict[str, str]:
    """Return the names that a query gives to the bounds of its table."""
    parts = ((part.alias_or_name.lower(), part.unalias()) for part in query.expressions if not part.is_star)
    return {name: inner.get(value.name.lower(), "") for name, value in parts if isinstance(value, exp.Column)}


def _share(t: Translating, relation: exp.Expr) -> None:
    query = relation.this if isinstance(relation, exp.Subquery) else None
    if not isinstance(query, exp.Select):
        t.exported.add(id(relation))
        return
    grouped = query.args.get("group") is not None
    if not grouped:
        _share(t, query.args["from_"].this)
    if grouped or not _has_star(query):
        t.exported.add(id(query))


def _has_star(query: exp.Select) -> bool:
    return any(part.is_star for part in query.expressions)


def _kind(relation: exp.Expr) -> str:
    """Return the kind of the windows of a window table function; empty for anything else."""
    call = relation.this if isinstance(relation, exp.Table) else None
    kind = str(call.this).upper() if isinstance(call, exp.Anonymous) else ""
    return kind if kind in WINDOW_TABLES else ""
