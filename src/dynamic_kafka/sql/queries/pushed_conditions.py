"""Which conditions of a batch query its source can use: comparisons of a table's columns with constants. Pure.

They are in conjunctive form: of each `AnyOf`, one comparison has to hold.

Spark evaluates the query with all its conditions again, so one that is not found here costs only time. One that is found
has to leave the query's rows as they are:

1. It is one of the conditions that a WHERE joins by AND, of the SELECT that reads the table. So no row without it gets out
   of that SELECT.
2. It is not true for a NULL, or the SELECT reads the table alone. So it may be evaluated below any join: a row that an
   outer join makes of a missing one has NULLs, and the WHERE drops it.
3. The query names the table once, so no other part of it needs the rows that are left out.
4. Its constants have the same values whenever the query runs. `NOW()` moves on until then, so it is only taken for a lower
   bound, where an earlier time leaves out less.
5. The query has no temporal join: that checks the times of all rows, also of those that a condition drops. It has no pipe
   (`|> WHERE`), whose steps the tree does not keep in order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, product
from math import prod
from typing import NamedTuple

from sqlglot import exp

from dynamic_kafka.sql.dialect.flink import Flink
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.query import Query, is_as_long_at_any_time, parts_of, temporal_joins

__all__ = ["AnyOf", "Condition", "conditions_of"]

_CONSTANT_FUNCTIONS = frozenset(("CAST", "TRY_CAST", "TO_TIMESTAMP", "TO_TIMESTAMP_LTZ", "TO_DATE"))
"""Functions that have one value in a query if their arguments have."""
_MOST = 64
"""The most `AnyOf` that are made of one OR."""
_PIPE = "|>"
_SIDES = ("this", "expression")
_PARTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Column: ("this", "table"),
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions"),
}
"""The parts of conditions that are known, by their class in the tree; of the others, `_SIDES`."""
_SELECT = frozenset(("expressions", "from_", "joins", "laterals", "where", "with_", "distinct", "hint"))
_SELECT |= {"group", "having", "windows", "qualify", "order", "sort", "distribute", "cluster", "limit", "offset"}
"""The parts of a SELECT that are known: WHERE comes before the ones in the second line."""
_SIGNS = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PREFIX = re.compile(r"([^%_\\]+)%")
"""A pattern of LIKE that is a beginning."""


class Condition(NamedTuple):
    """A comparison of a column with constants.

    Args:
        column: The column's name as the query has it.
        sign: `=`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `starts with`, `is null` or `is not null`.
        constants: Expressions of Flink: one, for `in` at least one, and none for the last two.
    """

    column: str
    sign: str
    constants: tuple[str, ...]


AnyOf = tuple[Condition, ...]


def conditions_of(query: Query, place: int, columns: Collection[str]) -> tuple[AnyOf, ...]:
    """Return the conditions of a query on the columns of one of its tables.

    Args:
        query: The parsed query. It names this table once.
        place: The place of the table's name in the query.
        columns: The table's columns, in lower case.
    """
    if query.tree is None or _PIPE in query.text or temporal_joins(query.tree):
        return ()
    table = next(t for t in query.tables if t.this.meta.get("start") == place)
    if parts_of(table) - {"this", "db", "catalog", "alias"}:
        return ()  # such as TABLESAMPLE, which comes before the WHERE
    alias, parent = table.args.get("alias"), table.parent
    select = None if parent is None else parent.parent
    if not isinstance(parent, (exp.From, exp.Join)) or not isinstance(select, exp.Select):
        return ()
    if parts_of(select) - _SELECT:
        return ()
    name = table.alias_or_name.lower()
    if name in columns or (alias is not None and alias.args.get("columns")):
        return ()  # `t.x` may be a field of a column `t`
    joined = select.args.get("joins") or select.args.get("laterals")
    names = {name} if joined else {name, ""}

    def taken(condition: exp.Expr) -> Iterator[AnyOf]:
        for column, sign, constants in _comparisons(condition):
            if not isinstance(column, exp.Column) or len(column.parts) > 2 or (sign == "is null" and joined):
                continue
            if column.name.lower() not in columns or column.table.lower() not in names:
                continue
            if all(_is_constant(one) or (sign in (">", ">=") and _is_of_now(one)) for one in constants):
                yield (Condition(column.name, sign, tuple(map(_text, constants))),)

    def conjunction(condition: exp.Expr) -> Iterator[AnyOf]:
        match condition := condition.unnest():
            case exp.And():
                yield from chain.from_iterable(map(conjunction, condition.flatten()))
            case exp.Or():
                sides = [tuple(conjunction(side)) for side in condition.flatten()]
                if prod(map(len, sides)) <= _MOST:
                    yield from (tuple(chain.from_iterable(several)) for several in product(*sides))
            case _:
                yield from taken(condition)

    where = select.args.get("where")
    return () if where is None else tuple(conjunction(where.this))


def _comparisons(condition: exp.Expr) -> Iterator[tuple[exp.Expr, str, Sequence[exp.Expr]]]:
    """Yield the comparisons that all hold where a condition does: what is compared, the sign, and with what."""
    if not parts_of(condition).issubset(_PARTS.get(type(condition), _SIDES)):
        return  # such as NOT LIKE
    match condition:
        case exp.Column():
            yield condition, "=", [exp.true()]
        case exp.Not(this=exp.Column() as column):
            yield column, "=", [exp.false()]
        case exp.Is(this=column, expression=exp.Null()):
            yield column, "is null", []
        case exp.Not(this=exp.Is(this=column, expression=exp.Null())):
            yield column, "is not null", []
        case exp.Binary(this=left, expression=right) if type(condition) in _SIGNS:
            sign = _SIGNS[type(condition)]
            yield left, sign, [right]
            yield right, _TURNED[sign], [left]
        case exp.Between(this=column):
            yield column, ">=", [condition.args["low"]]
            yield column, "<=", [condition.args["high"]]
        case exp.In(this=column, expressions=constants) if constants:
            yield column, "in", constants
        case exp.Like(this=column, expression=exp.Literal(is_string=True, this=pattern)) if _PREFIX.fullmatch(pattern):
            yield column, "starts with", [exp.Literal.string(pattern[:-1])]


def _is_constant(value: exp.Expr) -> bool:
    """Return whether an expression has one value, whenever it is evaluated."""
    plain = (exp.Cast, exp.DataType, exp.DataTypeParam, exp.Neg, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Boolean)
    for part in value.walk():
        if isinstance(part, exp.Literal):
            if "\\" in part.this:  # the text would have another string
                return False
        elif isinstance(part, exp.Anonymous):
            if called(part) not in _CONSTANT_FUNCTIONS:
                return False
        elif not isinstance(part, (*plain, exp.Interval, exp.IntervalSpan, exp.Var)):
            return False
    return True


def _is_of_now(value: exp.Expr) -> bool:
    """Return whether an expression is the time at which a query runs, plus or minus an interval that is always as long."""
    match value:
        case exp.Add() | exp.Sub():
            length = value.expression
            if not isinstance(length, exp.Interval) or not is_as_long_at_any_time(length) or not _is_constant(length):
                return False
            return _is_of_now(value.this)
        case exp.Paren(this=inner):
            return _is_of_now(inner)
        case exp.CurrentTimestamp():
            return True
        case _:
            return called(value) == "NOW"


def _text(constant: exp.Expr) -> str:
    """Return a constant in Flink's SQL."""

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and called(node) in ("CAST", "TRY_CAST"):  # the tree has a comma
            value, type_ = node.expressions
            return exp.Var(this=f"{node.this}({value.transform(plain).sql(dialect=Flink)} AS {type_.this})")
        return node

    return constant.transform(plain).sql(dialect=Flink)
