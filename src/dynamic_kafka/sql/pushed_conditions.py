"""Which conditions of a batch query say what has to be read of a table: those on its metadata columns. Pure.

The table is filtered by them before its messages are decoded, where Spark can hand them to the source (see
`spark.pushed_filters`). The query keeps them, so a condition that is not found here costs only time. One that is found has
to leave the query's rows as they are:

1. It is one of the conditions that a WHERE joins by AND, of the SELECT that reads the table. So no row without it gets
   out of that SELECT.
2. It compares a metadata column with constants, so it is not true where an outer join has put a NULL. That is why it may be
   evaluated below any join.
3. The query names the table once, so no other part of it needs the rows that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynamic_kafka.sql.definition import MetadataColumn, TableDefinition

if TYPE_CHECKING:
    from sqlglot import exp

    from dynamic_kafka.sql.dialect.query import Query

__all__ = ["conditions_of"]

_NAME = ("this", "db", "catalog", "alias")
_CONSTANT_FUNCTIONS = frozenset(
    ("CAST", "TRY_CAST", "NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "TO_TIMESTAMP", "TO_TIMESTAMP_LTZ", "TO_DATE")
)
"""Functions that have one value in a query if their arguments have."""


def conditions_of(query: Query, key: str, table: TableDefinition) -> tuple[str, ...]:
    """Return conditions of a batch query on a table's metadata columns, as expressions of Flink on their bare names.

    Args:
        query: The parsed query. It `reads_known` tables and views alone.
        key: The table's name in the query, in lower case.
        table: The table.
    """
    columns = {column.name.lower() for column in table.columns if isinstance(column, MetadataColumn)}
    if query.tree is None or not columns:
        return ()
    from sqlglot import exp

    from dynamic_kafka.sql.dialect.query import part_of_with

    found = [one for one in query.tree.find_all(exp.Table) if one.name.lower() == key and part_of_with(one) is None]
    if len(found) != 1 or any(value for name, value in found[0].args.items() if name not in _NAME):
        return ()
    alias = found[0].args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return ()
    parent = found[0].parent
    select = None if parent is None else parent.parent
    if not isinstance(parent, (exp.From, exp.Join)) or not isinstance(select, exp.Select):
        return ()
    where = select.args.get("where")
    joined = bool(select.args.get("joins") or select.args.get("laterals"))
    names = {found[0].alias_or_name.lower()} | (set() if joined else {""})
    return tuple(_text(one) for one in _parts(where) if _compares(one, columns, names))


def _parts(where: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions that a WHERE joins by AND."""
    from sqlglot import exp

    if where is not None:
        condition = where.this.unnest()
        yield from condition.flatten() if isinstance(condition, exp.And) else (condition,)


def _compares(condition: exp.Expr, columns: set[str], names: set[str]) -> bool:
    """Return whether a condition compares one of the columns with constants."""
    from sqlglot import exp

    match condition:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            sides = [condition.this, condition.expression]
            column, *constants = sides if isinstance(sides[0], exp.Column) else sides[::-1]
        case exp.Between():
            column, constants = condition.this, [condition.args["low"], condition.args["high"]]
        case exp.In() if not condition.args.get("query") and not condition.args.get("unnest"):
            column, constants = condition.this, condition.expressions
        case _:
            return False
    if not isinstance(column, exp.Column) or len(column.parts) > 2:
        return False
    is_ours = column.name.lower() in columns and column.table.lower() in names
    return is_ours and bool(constants) and all(map(_is_constant, constants))


def _is_constant(value: exp.Expr) -> bool:
    """Return whether an expression has one value for all rows of a query."""
    from sqlglot import exp

    plain = (exp.Cast, exp.DataType, exp.DataTypeParam, exp.Neg, exp.Paren, exp.Add, exp.Sub, exp.Mul)
    times = (exp.Interval, exp.IntervalSpan, exp.Var, exp.CurrentTimestamp, exp.CurrentDate)
    for part in value.walk():
        if isinstance(part, exp.Literal):
            if "\\" in part.this:  # the text of the condition would have another string
                return False
        elif isinstance(part, exp.Anonymous):
            if str(part.this).upper() not in _CONSTANT_FUNCTIONS:
                return False
        elif not isinstance(part, (*plain, *times)):
            return False
    return True


def _text(condition: exp.Expr) -> str:
    """Return a condition in Flink's SQL, without the table's name."""
    from sqlglot import exp

    from dynamic_kafka.sql.dialect.flink import Flink

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return exp.Column(this=exp.to_identifier(node.name, quoted=True))
        if isinstance(node, exp.Anonymous) and str(node.this).upper() in (
            "CAST",
            "TRY_CAST",
        ):  # with a comma in the tree
            value, type_ = node.expressions
            return exp.Var(this=f"{node.this}({value.transform(plain).sql(dialect=Flink)} AS {type_.this})")
        return node

    return condition.transform(plain).sql(dialect=Flink)
