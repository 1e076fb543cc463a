"""Event times of streams. A time is an event time for Spark where it is one for Flink, and a plain column elsewhere.

In Flink, a join without limits in time and an aggregation without windows take late rows as any others, and their rows have
no event time. Spark drops late rows in each step with state, as long as a column is an event time. And it takes the rows of
such a join for rows in order, so that the windows of a next step would lose many of them.

A join has a limit in time, such as `s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR`. Spark looks for one before it starts an
outer join. Of a TIMESTAMP, it does not see through its own cast of `o.ts + INTERVAL` to that type. It sees the limit when it
plans the query, because the cast is gone by then. So the join gets a condition that is always true, and that Spark sees: the
time is before the end of all times. That is a column of the rows that are kept. Of several limits Spark takes the one by
which it keeps rows longest. It takes this one for `s.ts <= o.ts`, so it would delete rows too early without a real limit. So
the join gets it only if it has a real limit that Spark sees. Other joins are errors.

Spark also takes `s.ts <= o.expires` for a limit of the event time of `o`, whatever column of it `expires` is. It would then
delete rows of `o` too early, before the rows of `s` that match them. So Spark must not see which column it is. In the
condition of an outer join it takes `o.amount > 3` for a limit, too. It would then keep the rows of `o` for ever, and never
return those without a partner.

In a join of windows, Spark deletes the rows of a window from its state when it knows that the windows are a key of the join.
It knows that of a window itself and not of its bounds. So both sides return their windows, and the join compares them, too.
Late rows are dropped then, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import exp

from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.sql.dialect.flink import WINDOW_TABLES
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.query import columns_of, conditions, is_as_long_at_any_time
from dynamic_kafka.sql.dialect.relations import named_bounds
from dynamic_kafka.sql.dialect.scope import BOUNDS, WINDOW, Scope
from dynamic_kafka.sql.dialect.windows import GROUP_WINDOWS, offsets_us
from dynamic_kafka.sql.dialect.writer import Writer
from dynamic_kafka.sql.tables.types import kind_of

__all__ = ["compared", "every_column", "limit_joins", "share_windows", "united"]

_FOREVER = "__forever"
_END = "TIMESTAMP_NTZ '294247-01-10 04:00:54.775807'"
_UNKNOWN = ("joins", "distinct", "limit", "with_", "laterals")
"""Parts of a sub-query that cannot return the windows of its table."""


def limit_joins(t: Writer, scope: Scope) -> None:
    """Settle the event times of a SELECT of streams, and the conditions of its joins. Its tables are written already."""
    _settle_times(t, scope)
    for index, join in enumerate(scope.joins, 1):
        if (kept := _kept(join, index)) and join.args.get("on") is not None:
            _show_limits(t, scope, join, kept)
            _return_nulls(t, scope, join, kept)
    _match_no_nulls(t, scope)


def united(t: Writer, union: exp.SetOperation) -> None:
    """Make the event times of the parts of a UNION plain, if it drops rows, or if they are in some of the parts only."""
    if t.times_of is None or isinstance(union.parent, exp.SetOperation):
        return
    parts = [*_parts(union.this), *_parts(union.expression)]
    columns = [t.times_in(f"({t.sql(part)})") for part in parts]
    times = [[kind == "event" for _, kind in found] for found in columns]
    distinct = any(node.args.get("distinct") for node in union.find_all(exp.SetOperation))
    if not any(map(any, times)) or (not distinct and all(found == times[0] for found in times)):
        return
    for part, found in zip(parts, columns, strict=True):
        places = [f"__c{place}" for place in range(len(found))]  # two columns may have one name
        read = [(place, name, kind) for place, (name, kind) in zip(places, found, strict=True)]
        if found:
            t.write_as(part, f"SELECT {_plain(read)} FROM ({t.sql(part)}) AS __part({', '.join(places)})")


def compared(t: Writer, node: exp.Binary | exp.Between, write: Callable[[exp.Expr], str]) -> str:
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


def every_column(t: Writer, node: exp.Expr, scope: Scope) -> str | None:
    """Return a `*` or `t.*` without the columns that were added to tables; None for anything else, or if there are none."""
    if not node.is_star or not scope.hidden:
        return None
    if any((node.this if isinstance(node, exp.Column) else node).args.values()):
        raise t.refuse(node, "This * is not known beside a join with a limit in time or of windows: name the columns")
    if not isinstance(node, exp.Column):
        hidden = (f"`{name}`.{column}" for name, columns in scope.hidden.items() for column in columns)
        return f"* EXCEPT ({', '.join(hidden)})"
    found = [columns for name, columns in scope.hidden.items() if name.lower() == node.table.lower()]
    return f"`{node.table}`.* EXCEPT ({', '.join(found[0])})" if found else None


# --- plain times --------------------------------------------------------------------------------------------------------


def _settle_times(t: Writer, scope: Scope) -> None:
    """Make the event times of tables plain that are joined without limits, or grouped without windows."""
    joins, distinct = scope.joins, scope.select.args.get("distinct") is not None
    grouped = bool(scope.by) or distinct
    if len(scope.tables) != len(scope.relations) or not (joins or grouped):
        return
    if any(isinstance(join.this, exp.Unnest) for join in joins):
        return
    streams = {place for place, table in enumerate(scope.tables) if t.times_in(table)}
    limited: set[int] = set()
    for index, join in enumerate(joins, 1):
        both = {place for place in streams if place <= index}
        if index not in both or len(both) == 1:
            continue  # a table that is no stream is looked up
        if _compare_windows(t, scope):
            _make_plain(t, scope, both, of_windows=True)
            limited |= both
        elif _has_limits(t, scope, join, index) or (join.side and not scope.hidden):
            limited |= both
        else:
            _make_plain(t, scope, both - limited, of_windows=not join.side and _joins_windows(scope, index))
    if grouped and not _has_windows(scope) and (distinct or _by_time(t, scope)):
        _make_plain(t, scope, streams - limited)


def _make_plain(t: Writer, scope: Scope, places: set[int], *, of_windows: bool = False) -> None:
    for place in places:
        relation, table = scope.relations[place], scope.tables[place]
        columns = [
            (quoted(name), name, "" if of_windows and name == WINDOW else kind) for name, kind in t.times_in(table)
        ]
        times = [column for column in columns if column[2] == "event"]
        if not times:
            continue
        name = relation.alias or (relation.name if isinstance(relation.this, exp.Identifier) else "__windowed")
        # Whoever reads a name reads the column, so only a `*`, which stands for all in their order, has all names.
        every = _plain(columns)
        if not scope.select.is_star:
            every = f"* EXCEPT ({', '.join(text for text, *_ in times)}), {_plain(times)}"
        scope.tables[place] = f"(SELECT {every} FROM {table}) AS {quoted(name)}"
        t.write_as(relation, scope.tables[place])


def _plain(columns: Sequence[tuple[str, str, str]]) -> str:
    """Return columns without event times. Spark sees through a cast, and does not through `least`."""
    read = ((f"least({text}, {text})" if kind == "event" else text, name) for text, name, kind in columns)
    return ", ".join(f"{text} AS {quoted(name)}" for text, name in read)


def _parts(query: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(query, exp.SetOperation) and not query.args.get("with_"):
        yield from _parts(query.this)
        yield from _parts(query.expression)
    else:
        yield query


def _has_windows(scope: Scope) -> bool:
    """Return whether rows are grouped by windows."""
    return bool(scope.windows or scope.inherited) or any(called(part) in GROUP_WINDOWS for part in scope.by)


def _by_time(t: Writer, scope: Scope) -> bool:
    """Return whether rows are grouped by an event time."""
    return any(t.time_of(part) == "event" for part in scope.by if isinstance(part, exp.Column))


# --- limits of joins ----------------------------------------------------------------------------------------------------


def _kept(join: exp.Join, index: int) -> list[tuple[range, range]]:
    """Return the places of the tables whose rows an outer join keeps without a partner, and those of the other side."""
    left, right = range(index), range(index, index + 1)
    sides = {"LEFT": [(left, right)], "RIGHT": [(right, left)], "FULL": [(left, right), (right, left)]}
    return sides.get((join.side or "").upper(), [])


def _show_limits(t: Writer, scope: Scope, join: exp.Join, kept: Sequence[tuple[range, range]]) -> None:
    """Add the condition that is always true to an outer join that needs it."""
    on, relations = join.args["on"], scope.relations
    if on.find(exp.Interval) is None or len(scope.tables) != len(relations):
        return
    found = [(rows[0], _limited(t, scope, on, rows, others)) for rows, others in kept]
    for place, time in found:
        # Spark starts a full join with one limit, and never returns the rows that only the other side has.
        if not relations[place].alias_or_name or time is None or any(other is None for _, other in found):
            continue
        name = _keep(t, scope, relations[place], place)
        _add(join, "on", exp.LTE(this=time.copy(), expression=_column(_FOREVER, name)))


def _return_nulls(t: Writer, scope: Scope, join: exp.Join, kept: Sequence[tuple[range, range]]) -> None:
    """Have an outer join return a row whose time is NULL at once. Without this, Spark keeps the row for ever.

    Such a row has no partner. Spark notices that if the join has a condition on this row alone.
    """
    limits = [limit for part in conditions(join.args["on"]) for limit in _limits_of(part)]
    times = {t.sql(column): column for limit in limits for column in limit}
    for column in times.values():
        if any(_is_time(t, scope, column, places) for places, _ in kept):
            _add(join, "on", exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null())))
            t.as_changed(join, "")


def _match_no_nulls(t: Writer, scope: Scope) -> None:
    """Let Spark compare keys of joins of a stream once more, where it would find NULL equal to NULL.

    It finds the rows of a key as they are stored, and leaves rows with NULL out before that only if the keys are columns and
    the join is not a full one.
    """
    nodes: list[tuple[exp.Expr, str]] = [(join, "on") for join in scope.joins]
    if nodes and (where := scope.select.args.get("where")) is not None:
        nodes.append((where, "this"))
    for node, key in nodes:
        full = isinstance(node, exp.Join) and (node.side or "").upper() == "FULL"
        for part in conditions(node.args.get(key)):
            keys = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
            plain = all(isinstance(side, exp.Column) for side in keys) and not full
            if not keys or plain or any(side.find(exp.Query) or not side.find(exp.Column) for side in keys):
                continue
            again = exp.Anonymous(this="least", expressions=[part.copy()])
            text = t.sql(part)
            t.write_as(again, f"least({text}, {text})")  # what Spark does not take for a key
            _add(node, key, again)


def _add(node: exp.Expr, key: str, condition: exp.Expr) -> None:
    """Let a join or a WHERE have one more condition."""
    node.set(key, exp.and_(node.args[key], condition, copy=False))


def _column(name: str, table: str) -> exp.Column:
    return exp.column(name, table=exp.to_identifier(table, quoted=True))


def _has_limits(t: Writer, scope: Scope, join: exp.Join, index: int) -> bool:
    """Return whether a join has both limits in time, as an interval join of Flink has, or the same time on both sides."""
    where = scope.select.args.get("where")
    found = set()
    for part in [*conditions(join.args.get("on")), *conditions(where.this if where is not None else None)]:
        for earlier, later in _limits_of(part):
            for right_is_earlier, one, other in ((False, range(index), [index]), (True, [index], range(index))):
                if _is_time(t, scope, earlier, one) and _is_time(t, scope, later, other):
                    found.add(right_is_earlier)
    return len(found) == 2


def _limited(t: Writer, scope: Scope, on: exp.Expr, kept: range, others: range) -> exp.Column | None:
    """Return an event time of the other tables, a TIMESTAMP, if a condition has it before one of the kept tables."""
    for part in conditions(on):
        for earlier, later in _limits_of(part):
            if all(
                (found := t.type_or_none(column)) is not None and kind_of(found) == "TimestampNTZType"
                for column in (earlier, later)
            ) and (_is_time(t, scope, earlier, others) and _is_time(t, scope, later, kept)):
                return earlier
    return None


def _is_time(t: Writer, scope: Scope, column: exp.Column, places: Sequence[int]) -> bool:
    """Return whether a column is an event time of one of some tables."""
    if column.table:
        is_of_one = column.table.lower() in [scope.names()[place].lower() for place in places]
    else:
        is_of_one = any(t.type_in(column.name, scope.tables[place]) is not None for place in places)
    return is_of_one and t.time_of(column) == "event"


def _limits_of(condition: exp.Expr) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield the columns that a condition compares, the smaller and the larger one, each moved by intervals or not."""
    for earlier, later in [map(_moved, sides) for sides in _ordered(condition)]:
        if earlier is not None and later is not None:
            yield earlier, later


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


def _keep(t: Writer, scope: Scope, relation: exp.Expr, place: int) -> str:
    """Give a table the column with the end of all times, and return its name."""
    name: str = relation.alias_or_name
    hidden = scope.hidden.setdefault(name, [])
    if _FOREVER not in hidden:
        hidden.append(_FOREVER)
        scope.tables[place] = f"(SELECT *, {_END} AS {_FOREVER} FROM {scope.tables[place]}) AS `{name}`"
        t.write_as(relation, scope.tables[place])
    return name


# --- joins of windows ---------------------------------------------------------------------------------------------------


def share_windows(t: Writer, scope: Scope) -> None:
    """Let both sides of a join of windows return them. Its tables are not written yet.

    Windows of CUMULATE with the same bounds may be different ones for Spark.
    """
    if len(scope.joins) == 1 and _joins_windows(scope, 1) and not t.has_cumulate(scope.select):
        for relation in scope.relations:
            _share(t, relation)
            scope.hidden.setdefault(relation.alias, []).append(WINDOW)


def _compare_windows(t: Writer, scope: Scope) -> bool:
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
    join = scope.joins[0]
    one, other = (_column(WINDOW, name) for name in names)
    _add(join, "on", exp.EQ(this=one, expression=other))
    t.as_changed(join, "")
    return True


def _joins_windows(scope: Scope, index: int) -> bool:
    """Return whether the condition of a join has the same start and end of windows on both sides."""
    relations = scope.relations[: index + 1]
    bounds = {relation.alias.lower(): _bounds(relation) for relation in relations}
    joined = relations[-1].alias.lower()
    same = set()
    for part in conditions(scope.joins[index - 1].args.get("on")):
        columns = [part.this, part.expression] if isinstance(part, exp.EQ) else []
        if not columns or not all(isinstance(column, exp.Column) and column.table for column in columns):
            continue
        if [column.table.lower() for column in columns].count(joined) == 1:
            same.add(tuple(bounds.get(column.table.lower(), {}).get(column.name.lower()) for column in columns))
    return {("_START", "_START"), ("_END", "_END")} <= same


def _bounds(relation: exp.Expr) -> Mapping[str, str | None]:
    """Return the columns of a table that are bounds of its windows; none if it cannot return the windows themselves."""
    if kind := _kind(relation):
        return BOUNDS if kind != "SESSION" else {}
    query = relation.this if isinstance(relation, exp.Subquery) else None
    if not isinstance(query, exp.Select) or query.args.get("from_") is None or any(map(query.args.get, _UNKNOWN)):
        return {}
    if query.find(exp.Window) is not None:
        return {}
    return dict(columns_of(query, _bounds)) if query.args.get("group") is None else _grouped(query)


def _grouped(query: exp.Select) -> Mapping[str, str | None]:
    """Return the bounds of the windows that a query is grouped by, as `export_window` knows them."""
    relation = query.args["from_"].this
    if isinstance(relation, exp.Subquery) and isinstance(relation.this, exp.Select) and relation.this.args.get("group"):
        inner = {name: suffix for name, suffix in _grouped(relation.this).items() if suffix != "_ROWTIME"}
        return dict(columns_of(query, lambda _: inner))
    of_calls = {part.alias_or_name.lower() for part in query.expressions if called(part.unalias())}
    return {name: suffix for name, suffix in named_bounds(query).items() if _kind(relation) or name in of_calls}


def _share(t: Writer, relation: exp.Expr) -> None:
    query = relation.this if isinstance(relation, exp.Subquery) else None
    if not isinstance(query, exp.Select):
        t.exported.add(id(relation))
        return
    grouped = query.args.get("group") is not None
    if not grouped:
        _share(t, query.args["from_"].this)
    if grouped or not query.is_star:
        t.exported.add(id(query))


def _kind(relation: exp.Expr) -> str:
    """Return the kind of the windows of a window table function; empty for anything else."""
    kind = called(relation.this) if isinstance(relation, exp.Table) else ""
    return kind if kind in WINDOW_TABLES else ""
