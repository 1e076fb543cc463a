"""Event times of streams: where Flink has none, the columns are plain for Spark, too.

In Flink, a join without limits in time and an aggregation without windows take late rows as any others, and their rows have
no event time. Spark drops late rows in each step with state, as long as a column is an event time. And it takes the rows of
such a join for rows in order, so that the windows of a next step would lose many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.sql.dialect.limits import is_time, limits_of
from dynamic_kafka.sql.dialect.query import is_temporal
from dynamic_kafka.sql.dialect.scope import WINDOW, Scope, Translating
from dynamic_kafka.sql.dialect.window_joins import compare_windows, conditions
from dynamic_kafka.sql.dialect.windows import GROUP_WINDOWS

__all__ = ["make_plain", "match_no_nulls", "return_nulls", "united"]


def make_plain(t: Translating, scope: Scope) -> None:
    """Make the event times of tables plain that are joined without limits, or grouped without windows. They are written."""
    select = scope.select
    joins = select.args.get("joins") or []
    relations = [select.args["from_"].this, *(join.this for join in joins)] if select.args.get("from_") else []
    grouped = bool(scope.by) or select.args.get("distinct") is not None
    if t.times_of is None or len(scope.tables) != len(relations) or not (joins or grouped):
        return
    if any(is_temporal(join) or isinstance(join.this, exp.Unnest) for join in joins):
        return
    streams = {place for place, table in enumerate(scope.tables) if t.times_of(t.asked("*", f"FROM {table}"))}
    limited: set[int] = set()
    for index, join in enumerate(joins, 1):
        both = {place for place in streams if place <= index}
        if index not in both or len(both) == 1:
            continue  # a table that is no stream is looked up
        if compare_windows(t, scope):
            _make_plain(t, scope, relations, both, of_windows=True)
            limited |= both
        elif _has_limits(t, scope, join, index) or (join.side and not scope.hidden):
            limited |= both
        else:
            _make_plain(t, scope, relations, both - limited, of_windows=not join.side and _joins_windows(join))
    if grouped and not _has_windows(scope) and (select.args.get("distinct") is not None or _by_time(t, scope)):
        _make_plain(t, scope, relations, streams - limited)


def united(t: Translating, union: exp.SetOperation) -> None:
    """Make the event times of the parts of a UNION plain, if it drops rows, or if they are in some of the parts only."""
    if t.times_of is None or isinstance(union.parent, exp.SetOperation):
        return
    parts = [*_parts(union.this), *_parts(union.expression)]
    columns = [t.times_of(t.asked("*", f"FROM ({t.sql(part)})")) for part in parts]
    times = [[kind == "event" for _, kind in found] for found in columns]
    distinct = any(node.args.get("distinct") for node in union.find_all(exp.SetOperation))
    if not any(map(any, times)) or (not distinct and all(found == times[0] for found in times)):
        return
    for part, found in zip(parts, columns, strict=True):
        places = [f"__c{place}" for place in range(len(found))]  # two columns may have one name
        read = [(place, name, kind) for place, (name, kind) in zip(places, found, strict=True)]
        if found:
            t.write_as(part, f"SELECT {_plain(read)} FROM ({t.sql(part)}) AS __part({', '.join(places)})")


def match_no_nulls(t: Translating, scope: Scope) -> None:
    """Let Spark compare keys of joins of a stream once more, where it would find NULL equal to NULL.

    It finds the rows of a key as they are stored, and leaves rows with NULL out before that only if the keys are columns and
    the join is not a full one.
    """
    if t.times_of is None:
        return
    joins = scope.select.args.get("joins") or []
    where = scope.select.args.get("where")
    for node, key in [*((join, "on") for join in joins), *([(where, "this")] if where is not None and joins else [])]:
        condition = node.args.get(key)
        full = isinstance(node, exp.Join) and (node.side or "").upper() == "FULL"
        for part in conditions(condition):
            keys = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
            plain = all(isinstance(side, exp.Column) for side in keys) and not full
            if not keys or plain or any(side.find(exp.Query) or not side.find(exp.Column) for side in keys):
                continue
            again = exp.Anonymous(this="least", expressions=[part.copy()])
            text = t.sql(part)
            t.write_as(again, f"least({text}, {text})")  # what Spark does not take for a key
            node.set(key, exp.and_(node.args[key], again, copy=False))


def return_nulls(t: Translating, scope: Scope) -> None:
    """Have outer joins of a stream return a row whose time is NULL at once. Without this, Spark keeps the row for ever.

    Such a row has no partner. Spark notices that if the join has a condition on this row alone.
    """
    if t.times_of is None:
        return
    for index, join in enumerate(scope.select.args.get("joins") or [], 1):
        left, right = range(index), range(index, index + 1)
        kept = {"LEFT": [left], "RIGHT": [right], "FULL": [left, right]}.get((join.side or "").upper(), [])
        limits = [limit for part in conditions(join.args.get("on")) for limit in limits_of(part)] if kept else []
        times = {t.sql(column): column for limit in limits for column in limit}
        for column in times.values():
            if any(is_time(t, scope, column, places) for places in kept):
                known = exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))
                join.set("on", exp.and_(join.args["on"], known, copy=False))
                t.as_changed(join, "")


def _parts(query: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(query, exp.SetOperation) and not query.args.get("with_"):
        yield from _parts(query.this)
        yield from _parts(query.expression)
    else:
        yield query


def _has_limits(t: Translating, scope: Scope, join: exp.Join, index: int) -> bool:
    """Return whether a join has both limits in time, as an interval join of Flink has, or the same time on both sides."""
    where = scope.select.args.get("where")
    found = set()
    for part in [*conditions(join.args.get("on")), *conditions(where.this if where is not None else None)]:
        for earlier, later in limits_of(part):
            for right_is_earlier, one, other in ((False, range(index), [index]), (True, [index], range(index))):
                if is_time(t, scope, earlier, one) and is_time(t, scope, later, other):
                    found.add(right_is_earlier)
    return len(found) == 2


def _has_windows(scope: Scope) -> bool:
    """Return whether rows are grouped by windows."""
    calls = (part for part in scope.by if isinstance(part, exp.Anonymous))
    return bool(scope.windows or scope.inherited) or any(str(call.this).upper() in GROUP_WINDOWS for call in calls)


def _by_time(t: Translating, scope: Scope) -> bool:
    """Return whether rows are grouped by an event time."""
    columns = (part for part in scope.by if isinstance(part, exp.Column))
    return any(t.time_of(column) == "event" for column in columns)


def _joins_windows(join: exp.Join) -> bool:
    """Return whether a join is one of windows: both sides have the same bounds."""
    same = [part for part in conditions(join.args.get("on")) if isinstance(part, exp.EQ)]
    names = {(part.this.name.lower(), part.expression.name.lower()) for part in same}
    return {(name, name) for name in ("window_start", "window_end")} <= names


def _make_plain(
    t: Translating, scope: Scope, relations: Sequence[exp.Expr], places: set[int], *, of_windows: bool = False
) -> None:
    assert t.times_of is not None
    listed = any(part.is_star for part in scope.select.expressions)
    for place in places:
        relation, table = relations[place], scope.tables[place]
        columns = [
            (quoted(name), name, "" if of_windows and name == WINDOW else kind)
            for name, kind in t.times_of(t.asked("*", f"FROM {table}"))
        ]
        times = [column for column in columns if column[2] == "event"]
        if not times:
            continue
        name = relation.alias or (relation.name if isinstance(relation.this, exp.Identifier) else "__windowed")
        # Whoever reads a name reads the column, so only a `*`, which stands for all in their order, has all names.
        every = _plain(columns) if listed else f"* EXCEPT ({', '.join(text for text, *_ in times)}), {_plain(times)}"
        scope.tables[place] = f"(SELECT {every} FROM {table}) AS {quoted(name)}"
        t.write_as(relation, scope.tables[place])


def _plain(columns: Sequence[tuple[str, str, str]]) -> str:
    """Return columns without event times. Spark sees through a cast, and does not through `least`."""
    read = ((f"least({text}, {text})" if kind == "event" else text, name) for text, name, kind in columns)
    return ", ".join(f"{text} AS {quoted(name)}" for text, name in read)
