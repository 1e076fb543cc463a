"""Limits in time of joins of two streams, such as `s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR`: what Spark sees of them.

Spark looks for one before it starts an outer join. Of a TIMESTAMP, it does not see through its own cast of `o.ts + INTERVAL`
to that type. It sees the limit when it plans the query, because the cast is gone by then. So the join gets a condition that
is always true, and that Spark sees: the time is before the end of all times. That is a column of the rows that are kept; as
it is a constant, Spark takes it out of the plan again.

Spark also takes `s.ts <= o.expires` for a limit of the event time of `o`, whatever column of it `expires` is. It would then
delete rows of `o` whose partners are yet to come. So Spark must not see which column it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from dynamic_kafka.sql.dialect.scope import Scope
from dynamic_kafka.sql.tables.kinds import kind_of

if TYPE_CHECKING:
    from dynamic_kafka.sql.dialect.translator import Translator

__all__ = ["compared", "every_column", "show_limits"]

_FOREVER = "__forever"
_END = "TIMESTAMP_NTZ '294247-01-10 04:00:54.775807'"


def show_limits(t: Translator, scope: Scope) -> None:
    """Add such a condition to each outer join of a SELECT that needs it. Its tables are written already."""
    relations = [scope.select.args["from_"].this] if scope.select.args.get("from_") else []
    joins = scope.select.args.get("joins") or []
    relations += [join.this for join in joins]
    for index, join in enumerate(joins, 1):
        on, side = join.args.get("on"), (join.side or "").upper()
        if on is None or on.find(exp.Interval) is None or len(scope.tables) != len(relations):
            continue
        before, own = range(index), range(index, index + 1)
        for kept, others in ((0, own), (index, before)):
            if side not in ("FULL", "LEFT" if kept == 0 else "RIGHT"):
                continue
            time = _time(t, scope, relations, on, others)
            if time is None or not relations[kept].alias_or_name:
                continue
            name = _keep(t, scope, relations[kept], kept)
            limit = exp.LTE(
                this=time.copy(), expression=exp.column(_FOREVER, table=exp.to_identifier(name, quoted=True))
            )
            join.set("on", exp.and_(join.args["on"], limit, copy=False))


def compared(t: Translator, node: exp.Binary | exp.Between, write: Callable[[exp.Expr], str]) -> str:
    """Return a `<` or the like. In a stream, a column that is compared with an event time, and is none, is hidden."""
    columns = [column for column in node.find_all(exp.Column) if column.name != _FOREVER]
    if t.time_of is not None and t.scope is not None and len(columns) > 1 and node.find(exp.Query) is None:
        source = t.scope.source()
        others = [column for column in columns if t.time_of(t.asked(t.sql(column), source)) != "event"]
        for column in others if len(others) < len(columns) else []:
            text = t.sql(column)
            t.write_as(column, f"least({text}, {text})")
    return write(node)


def every_column(t: Translator, node: exp.Expr, scope: Scope) -> str | None:
    """Return a `*` or `t.*` without the columns that were added to tables; None for anything else, or if there are none."""
    star = node.this if isinstance(node, exp.Column) else node
    if not isinstance(star, exp.Star) or not scope.limited:
        return None
    if any(star.args.values()):
        raise t.refuse(node, "This * is not known beside an outer join with a limit in time: name the columns")
    if not isinstance(node, exp.Column):
        return f"* EXCEPT ({', '.join(f'`{name}`.{_FOREVER}' for name in scope.limited)})"
    return f"`{node.table}`.* EXCEPT ({_FOREVER})" if node.table.lower() in map(str.lower, scope.limited) else None


def _time(t: Translator, scope: Scope, relations: list[exp.Expr], on: exp.Expr, places: range) -> exp.Column | None:
    """Return a TIMESTAMP of one of some tables that a condition compares."""
    for condition in on.flatten() if isinstance(on, exp.And) else [on]:
        if not isinstance(condition, (exp.Between, exp.LT, exp.LTE, exp.GT, exp.GTE)):
            continue
        for column in condition.find_all(exp.Column):
            names = [relations[place].alias_or_name.lower() for place in places]
            if column.table:
                is_of_one = column.table.lower() in names
            else:
                is_of_one = any(t.type_in(column.name, scope.tables[place]) is not None for place in places)
            found = t.type_or_none(column) if is_of_one else None
            if found is not None and kind_of(found) == "TimestampNTZType":
                return column
    return None


def _keep(t: Translator, scope: Scope, relation: exp.Expr, place: int) -> str:
    """Give a table the column with the end of all times, and return its name."""
    name: str = relation.alias_or_name
    if name not in scope.limited:
        scope.limited.append(name)
        scope.tables[place] = f"(SELECT *, {_END} AS {_FOREVER} FROM {scope.tables[place]}) AS `{name}`"
        t.write_as(relation, scope.tables[place])
    return name
