"""Limits in time of joins of two streams, such as `s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR`: what Spark sees of them.

Spark looks for one before it starts an outer join. Of a TIMESTAMP, it does not see through its own cast of `o.ts + INTERVAL`
to that type. It sees the limit when it plans the query, because the cast is gone by then. So the join gets a condition that
is always true, and that Spark sees: the time is before the end of all times. That is a column of the rows that are kept. Of
several limits Spark takes the one by which it keeps rows longest. It takes this one for `s.ts <= o.ts`, so it would delete
rows too early without a real limit. So the join gets it only if it has a real limit that Spark sees. Other joins are errors.

Spark also takes `s.ts <= o.expires` for a limit of the event time of `o`, whatever column of it `expires` is. It would then
delete rows of `o` too early, before the rows of `s` that match them. So Spark must not see which column it is. In the
condition of an outer join it takes `o.amount > 3` for a limit, too. It would then keep the rows of `o` for ever, and never
return those without a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from dynamic_kafka.sql.dialect.query import is_as_long_at_any_time
from dynamic_kafka.sql.dialect.scope import Scope, Translating
from dynamic_kafka.sql.tables.kinds import kind_of

__all__ = ["compared", "every_column", "is_time", "limits_of", "show_limits"]

_FOREVER = "__forever"
_END = "TIMESTAMP_NTZ '294247-01-10 04:00:54.775807'"


def show_limits(t: Translating, scope: Scope) -> None:
    """Add such a condition to each outer join of a stream that needs it. Its tables are written already."""
    if t.times_of is None:
        return
    relations = [scope.select.args["from_"].this] if scope.select.args.get("from_") else []
    joins = scope.select.args.get("joins") or []
    relations += [join.this for join in joins]
    for index, join in enumerate(joins, 1):
        on, side = join.args.get("on"), (join.side or "").upper()
        if on is None or on.find(exp.Interval) is None or len(scope.tables) != len(relations):
            continue
        left, right = range(index), range(index, index + 1)
        sides = {"LEFT": [(left, right)], "RIGHT": [(right, left)], "FULL": [(left, right), (right, left)]}.get(
            side, []
        )
        found = [(rows[0], _limited(t, scope, on, rows, others)) for rows, others in sides]
        for kept, time in found:
            # Spark starts a full join with one limit, and never returns the rows that only the other side has.
            if not relations[kept].alias_or_name or time is None or any(other is None for _, other in found):
                continue
            name = _keep(t, scope, relations[kept], kept)
            limit = exp.LTE(
                this=time.copy(), expression=exp.column(_FOREVER, table=exp.to_identifier(name, quoted=True))
            )
            join.set("on", exp.and_(join.args["on"], limit, copy=False))


def compared(t: Translating, node: exp.Binary | exp.Between, write: Callable[[exp.Expr], str]) -> str:
    """Return a `<` or the like. In a stream, its columns are hidden if it is no limit in time and Spark may take it for one.

    Limits compare event times. Spark looks for them where it sees an event time, and in conditions of outer joins.
    """
    columns = list(node.find_all(exp.Column))
    join = node.find_ancestor(exp.Join, exp.Select)
    outer = isinstance(join, exp.Join) and bool(join.side)
    alone = len(columns) == 1 and not outer
    if t.times_of is None or t.scope is None or alone or node.find(exp.Query) is not None:
        return write(node)
    if any(column.name == _FOREVER for column in columns):
        return write(node)
    times = [column for column in columns if t.time_of(column) == "event"]
    is_limit = len(times) > 1 or not outer
    for column in [column for column in columns if times and column not in times] if is_limit else columns:
        part: exp.Expr = column
        while isinstance(part.parent, (exp.Bracket, exp.Dot)) and part.parent.this is part:
            part = part.parent  # a map has no order, and its values have
        text = t.sql(part)
        t.write_as(part, f"least({text}, {text})")
    return write(node)


def every_column(t: Translating, node: exp.Expr, scope: Scope) -> str | None:
    """Return a `*` or `t.*` without the columns that were added to tables; None for anything else, or if there are none."""
    star = node.this if isinstance(node, exp.Column) else node
    if not isinstance(star, exp.Star) or not scope.hidden:
        return None
    if any(star.args.values()):
        raise t.refuse(node, "This * is not known beside a join with a limit in time or of windows: name the columns")
    if not isinstance(node, exp.Column):
        hidden = (f"`{name}`.{column}" for name, columns in scope.hidden.items() for column in columns)
        return f"* EXCEPT ({', '.join(hidden)})"
    found = [columns for name, columns in scope.hidden.items() if name.lower() == node.table.lower()]
    return f"`{node.table}`.* EXCEPT ({', '.join(found[0])})" if found else None


def is_time(t: Translating, scope: Scope, column: exp.Column, places: Sequence[int]) -> bool:
    """Return whether a column is an event time of one of some tables."""
    if column.table:
        is_of_one = column.table.lower() in [scope.names()[place].lower() for place in places]
    else:
        is_of_one = any(t.type_in(column.name, scope.tables[place]) is not None for place in places)
    return is_of_one and t.time_of(column) == "event"


def limits_of(condition: exp.Expr) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield the columns that a condition compares, the smaller and the larger one, each moved by intervals or not."""
    for earlier, later in [map(_moved, sides) for sides in _ordered(condition)]:
        if earlier is not None and later is not None:
            yield earlier, later


def _limited(t: Translating, scope: Scope, on: exp.Expr, kept: range, others: range) -> exp.Column | None:
    """Return an event time of the other tables, a TIMESTAMP, if a condition has it before one of the kept tables."""
    for condition in on.flatten() if isinstance(on, exp.And) else [on]:
        for earlier, later in limits_of(condition):
            if all(
                (found := t.type_or_none(column)) is not None and kind_of(found) == "TimestampNTZType"
                for column in (earlier, later)
            ) and (is_time(t, scope, earlier, others) and is_time(t, scope, later, kept)):
                return earlier
    return None


def _ordered(condition: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield what a condition compares: the smaller and the larger one."""
    match condition:
        case exp.Between(this=value):
            yield condition.args["low"], value
            yield value, condition.args["high"]
        case exp.LT(this=one, expression=other) | exp.LTE(this=one, expression=other):
            yield one, other
        case exp.GT(this=one, expression=other) | exp.GTE(this=one, expression=other):
            yield other, one
        case exp.EQ(this=one, expression=other):
            yield one, other
            yield other, one


def _moved(value: exp.Expr) -> exp.Column | None:
    """Return the column of a time plus or minus intervals that are as long at any time; None for anything else."""
    match value := value.unnest():
        case exp.Column():
            return value
        case exp.Add(this=time, expression=exp.Interval() as by) | exp.Sub(this=time, expression=exp.Interval() as by):
            return _moved(time) if is_as_long_at_any_time(by) else None
        case _:
            return None


def _keep(t: Translating, scope: Scope, relation: exp.Expr, place: int) -> str:
    """Give a table the column with the end of all times, and return its name."""
    name: str = relation.alias_or_name
    hidden = scope.hidden.setdefault(name, [])
    if _FOREVER not in hidden:
        hidden.append(_FOREVER)
        scope.tables[place] = f"(SELECT *, {_END} AS {_FOREVER} FROM {scope.tables[place]}) AS `{name}`"
        t.write_as(relation, scope.tables[place])
    return name
