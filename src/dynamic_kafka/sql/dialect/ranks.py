"""Ranks of a stream: `ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC)` with `WHERE rn = 1` or `rn <= n`.

Spark has no OVER in streams. The first row of each key is `max_by` or `min_by` of the whole row, an aggregation that streams
have: the row changes when another one becomes the first. For windows, each row comes once, when the window has passed. By
processing time, the first row never changes: it is the one that `dropDuplicates` keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dynamic_kafka.sql.dialect.arrival import ARRIVAL, is_aggregated, with_arrival
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.query import column_finder, columns_of, conditions, is_proctime, parts_of
from dynamic_kafka.sql.dialect.scope import WINDOW
from dynamic_kafka.sql.dialect.writer import RankKey, Streams, Writer
from dynamic_kafka.sql.tables.types import is_decimal, is_fraction, is_whole, kind_of

__all__ = ["Rank", "rank_of", "rank_windows", "ranked"]

_WAY = (
    "Write all rows to an 'upsert-kafka' table with the key of PARTITION BY, or `materialize` them, and rank the result. "
    "(A batch has it: give the tables 'scan.bounded.mode' = 'latest-offset')"
)

_INNER = {"expressions", "from_", "joins", "where", "hint", "laterals"}
_OUTER = {"expressions", "from_", "where", "hint", "with_"}
_MOST = 10_000
"""The most rows of each key: Spark keeps them all in one row of its state."""
_MIRRORED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


@dataclass(frozen=True)
class Rank:
    """A SELECT of the first rows of each key, as many as `number`.

    `inner` is the SELECT with ROW_NUMBER, `window` its OVER, and `name` the column with the number. `rest` are the other
    conditions on them.
    """

    inner: exp.Select
    window: exp.Window
    name: str
    number: int
    rest: Sequence[exp.Expr]

    @property
    def by(self) -> Sequence[exp.Expr]:
        """Return what the rows are partitioned by."""
        found: Sequence[exp.Expr] = self.window.args.get("partition_by") or []
        return found

    @property
    def order(self) -> Sequence[exp.Ordered]:
        """Return what decides which row is first."""
        order = self.window.args.get("order")
        return [] if order is None else order.expressions


def rank_of(select: exp.Select) -> Rank | None:
    """Return the rank that a SELECT is, None if it is none."""
    relation = select.args["from_"].this if select.args.get("from_") else None
    where = select.args.get("where")
    if not isinstance(relation, exp.Subquery) or not isinstance(relation.this, exp.Select) or where is None:
        return None
    alias = relation.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    if any((join.side or "").upper() in ("RIGHT", "FULL") for join in select.args.get("joins") or []):
        return None  # WHERE rn = 1 also removes the rows that have no partner among the ranked ones
    inner = relation.this
    numbers = [part for part in inner.expressions if isinstance(part, exp.Alias) and _is_row_number(part.this)]
    if len(numbers) != 1 or len(list(inner.find_all(exp.Window))) != 1:
        return None
    name, found, rest = numbers[0].alias, None, []
    for condition in conditions(where.this):
        limit = _limit(condition, name, relation.alias)
        if limit is None or found is not None:
            rest.append(condition)
        else:
            found = limit
    return None if found is None else Rank(inner, numbers[0].this, name, found, rest)


def rank_windows(tree: exp.Query) -> list[exp.Window]:
    """Return the ROW_NUMBERs that may be of a rank: a SELECT around them, or one of the query's views, decides."""
    return [window for window in tree.find_all(exp.Window) if _is_row_number(window)]


def _is_row_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window) and called(node.this) == "ROW_NUMBER"


def _limit(condition: exp.Expr, name: str, table: str) -> int | None:
    """Return how many rows of each key satisfy a condition such as `rn <= 3`; None for other conditions."""
    if not isinstance(condition, (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        return None
    column, number = condition.this, condition.expression
    kind: type[exp.Expr] = type(condition)
    if isinstance(column, exp.Literal):
        column, number = number, column
        kind = _MIRRORED.get(kind, kind)
    if not isinstance(column, exp.Column) or column.name.lower() != name.lower():
        return None
    if column.table and column.table.lower() != table.lower():
        return None
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
        return None
    value = int(number.name) - (kind is exp.LT)
    return value if (kind in (exp.LT, exp.LTE) or (kind is exp.EQ and value == 1)) and 0 < value <= _MOST else None


def ranked(t: Writer, select: exp.Select, rank: Rank, streams: Streams) -> str:
    """Return the sub-query of a rank for Spark. The condition on the number is taken out of the SELECT.

    Raises:
        SqlError: If Spark cannot calculate the rank over a stream.
    """
    inner, window = rank.inner, rank.window
    if parts_of(inner) - _INNER or window.args.get("spec"):
        raise t.refuse(window, f"This ROW_NUMBER is not known in a stream. {_WAY}")
    arrives = with_arrival(t, inner, streams)
    with t.scoped(inner, rank.by) as scope:
        by, of_window = _keys(t, rank)
        never_changes = not of_window and _is_by_arrival(t, rank)
        if not of_window and not never_changes:
            _check_changing(t, select, rank)
        order, best = ("", "") if never_changes else _order(t, rank, arrives=arrives)
        hidden = {column for found in scope.windows.values() for column in found.columns()} - {None}
        hidden |= {ARRIVAL} if arrives else set()
        hidden |= {WINDOW} if scope.inherited else set()
        columns = [
            _projection(t, i, part, sorted(hidden))
            for i, part in enumerate(inner.expressions)
            if part.this is not window
        ]
        where = t.sql(inner, "where")
        group = f" GROUP BY {', '.join(by)}" if by else ""
        source = scope.source()
    if inner.expressions[-1].this is not window and any(isinstance(part, exp.Star) for part in select.expressions):
        raise t.refuse(window, "Put ROW_NUMBER() behind the other columns of its SELECT")
    number = f"`{rank.name}`"
    row = f"struct({', '.join(columns)})"
    alias = (
        f" AS {t.sql(select.args['from_'].this.args['alias'])}" if select.args["from_"].this.args.get("alias") else ""
    )
    select.set("where", exp.Where(this=exp.and_(*rank.rest)) if rank.rest else None)
    if never_changes:
        keys = [f"{key} AS __key{i}" for i, key in enumerate(by or ["1"])]
        names = [f"__key{i}" for i in range(len(keys))]
        first = streams.first_rows(t.asked(", ".join([*columns, *keys]), f"{source}{where}"), names)
        return f"(SELECT * EXCEPT ({', '.join(names)}), CAST(1 AS BIGINT) AS {number} FROM `{first}`){alias}"
    if rank.number == 1:
        one = f"SELECT {best}({row}, {order}) AS __best {source}{where}{group}"
        return f"(SELECT __best.*, CAST(1 AS BIGINT) AS {number} FROM ({one}) WHERE __best IS NOT NULL){alias}"
    many = f"SELECT {best}({row}, {order}, {rank.number}) AS __best {source}{where}{group}"
    numbered = f"SELECT __row.*, CAST(__place + 1 AS BIGINT) AS {number} FROM ({many})"
    return f"({numbered} LATERAL VIEW posexplode(__best) __each AS __place, __row){alias}"


def _projection(t: Writer, index: int, part: exp.Expr, hidden: Sequence[str]) -> str:
    """Return a column of the SELECT, as a part of a struct."""
    if part.is_star:
        if any((part.this if isinstance(part, exp.Column) else part).args.values()):
            raise t.refuse(part, "This * is not known in the rank of a stream: name the columns")
        assert t.scope is not None
        bounds = t.scope.bounds()
        table = f"{t.sql(part.args['table'])}." if isinstance(part, exp.Column) and part.args.get("table") else ""
        return ", ".join([f"{table}* EXCEPT ({', '.join(hidden)})" if hidden else f"{table}*", *bounds])
    return (
        t.projection(index, part) if isinstance(part, (exp.Alias, exp.Column)) else f"{t.sql(part)} AS `EXPR${index}`"
    )


def _keys(t: Writer, rank: Rank) -> tuple[list[str], bool]:
    """Return what Spark groups by, and whether that are windows of time."""
    by: list[str] = []
    scope = t.scope
    assert scope is not None
    for part in rank.by:
        found = scope.keys_of(part)
        keys = [t.sql(part)] if found is None else found
        by += [key for key in keys if key not in by]
    names = {part.name.lower() for part in rank.by if isinstance(part, exp.Column)}
    if "window_start" in names and not names & {"window_end", "window_time"} and t.has_cumulate(rank.inner):
        raise t.refuse(rank.window, "Windows of CUMULATE have their start in common: PARTITION BY window_end, too")
    of_window = WINDOW in by or any(scope.keys_of(part) is not None for part in rank.by)
    if any(found.kind == "SESSION" for found in scope.windows.values()):
        raise t.refuse(rank.window, f"The rows of SESSION windows cannot be ranked in a stream. {_WAY}")
    return by, of_window


def _order(t: Writer, rank: Rank, *, arrives: bool) -> tuple[str, str]:
    """Return what decides which row is first, and whether the largest or the smallest is."""
    ordered = rank.order
    if not ordered:
        raise t.refuse(rank.window, "ROW_NUMBER needs an ORDER BY")
    for part in ordered:
        if bool(part.args.get("nulls_first")) == bool(part.args.get("desc")):
            raise t.refuse(part, "In a stream, NULL is the smallest value: leave NULLS FIRST and NULLS LAST out")
    kinds = [t.type_of(part.this) for part in ordered]
    numbers = [is_whole(kind) or is_decimal(kind) or is_fraction(kind) for kind in kinds]
    fixed = {bool(part.args.get("desc")) for part, number in zip(ordered, numbers, strict=True) if not number}
    if len(fixed) == 2:
        raise t.refuse(
            rank.window, f"ASC and DESC of columns that are no numbers are not known together in a stream. {_WAY}"
        )
    largest = fixed.pop() if fixed else bool(ordered[0].args.get("desc"))
    keys = []
    for part, kind in zip(ordered, kinds, strict=True):
        text = t.sql(part.this)
        if bool(part.args.get("desc")) == largest:
            keys.append(text)
        elif is_fraction(kind):
            keys += [f"({text}) IS NULL", f"NOT isnan({text})", f"-({text})"]
        else:
            wide = f"CAST({text} AS DECIMAL(20,0))" if kind_of(kind) == "LongType" else f"CAST({text} AS BIGINT)"
            keys += [f"({text}) IS NULL", f"-({wide})" if is_whole(kind) else f"-({text})"]
    if arrives:
        newest = (
            rank.number == 1
            and len(ordered) == 1
            and bool(ordered[0].args.get("desc"))
            and t.time_of(ordered[0].this) != ""
        )
        keys.append(ARRIVAL if newest == largest else f"-{ARRIVAL}")
    return f"struct({', '.join(keys)})", "max_by" if largest else "min_by"


def _is_by_arrival(t: Writer, rank: Rank) -> bool:
    """Return whether a rank is the first row of each key in the order in which rows arrive."""
    ordered = rank.order
    if rank.number != 1 or len(ordered) != 1 or ordered[0].args.get("desc"):
        return False
    time = ordered[0].this
    return is_proctime(time) or t.time_of(time) == "processing"


def _check_changing(t: Writer, select: exp.Select, rank: Rank) -> None:
    """Raise if something is done with rows of a rank, which change, that Flink takes back from its result."""
    problem = (
        "The rows of this rank change, and Flink takes the earlier ones back from what is calculated with them. Spark "
    )
    problem += f"cannot. {_WAY}"
    if rank.rest or parts_of(select) - _OUTER or is_aggregated(select):
        raise t.refuse(rank.window, problem)
    names = {rank.name.lower()} if rank.number > 1 else set[str]()
    parts = [{column} for column in names]
    parts += [_names_of([part], rank.inner) for part in rank.by]
    current: exp.Expr = select
    while True:
        assert isinstance(current, exp.Select)
        parts = [_names_of([exp.column(name) for name in names], current) for names in parts]
        outer = current.parent
        if outer is None:
            break
        if (
            not isinstance(outer, exp.Subquery)
            or not isinstance(outer.parent, exp.From)
            or not isinstance(outer.parent.parent, exp.Select)
            or parts_of(outer.parent.parent) - (_OUTER - {"where"})
            or is_aggregated(outer.parent.parent)
        ):
            raise t.refuse(rank.window, problem)
        current = outer.parent.parent
    if rank.number > 1 and not parts[0]:
        raise t.refuse(
            rank.window,
            f"Flink deletes a row of this rank that is no longer among the first {rank.number}, and Spark cannot. SELECT "
            f"{rank.name}, too, and make it a part of the table's key: then another row takes its place",
        )
    t.rank_key = RankKey([frozenset(names) for names in parts])


def _names_of(values: Sequence[exp.Expr], select: exp.Select) -> set[str]:
    """Return the columns of a SELECT that have one of some values."""
    columns = [value for value in values if isinstance(value, exp.Column)]

    def known(relation: exp.Expr) -> Mapping[str, bool]:
        name = relation.alias_or_name.lower()
        return {column.name.lower(): True for column in columns if column.table.lower() in ("", name)}

    of_column = column_finder(select, known)
    found = columns_of(select, known, lambda value: value in values or of_column(value))
    return {name for name, is_one in found if is_one}
