"""Answers about a query from its text: whether it keeps the rows of a table apart, and what it uses of them. Pure.

If only Spark knows its syntax, the answer is the cautious one: no row is kept apart, and no table is read by version alone.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from sqlglot import exp

from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.sql.dialect.arrival import PLAIN
from dynamic_kafka.sql.dialect.query import parse_query, parts_of, temporal_joins
from dynamic_kafka.sql.parser.lexer import tokenize

__all__ = ["filters_groups", "is_projection", "selects_all", "uses_row_kind", "versioned_tables", "with_row_kind"]

_AGGREGATES = re.compile(
    r"try_(sum|avg)|every|some|any|any_value|bool_(and|or)|bit_(and|or|xor)|approx_\w+|histogram_numeric|count_\w+|median|mode"
    r"|mean|percentile\w*|regr_\w+|covar_\w+|corr|kurtosis|skewness|std\w*|var_\w+|variance|\w+_by|\w+agg|\w+_agg_\w+"
    r"|collect(_\w+)?|first(_value)?|last(_value)?|min|max|sum|avg|count"
)
"""Spark's functions of many rows, which are calls like any others in the tree."""


def versioned_tables(text: str) -> frozenset[str]:
    """Return the names of the tables that a query reads in temporal joins only, in lower case."""
    query = parse_query(text)
    joined = [] if query.tree is None else [join.this for join in temporal_joins(query.tree)]
    others = {table.name.lower() for table in query.tables if not any(table is found for found in joined)}
    return frozenset(table.name.lower() for table in joined) - others


def uses_row_kind(query: str) -> bool:
    """Return whether a query contains the column `row_kind`."""
    tree = parse_query(query).tree
    if tree is None:
        return re.search(rf"\b{ROW_KIND}\b", query, re.IGNORECASE) is not None
    return any(found.name.lower() == ROW_KIND for found in tree.find_all(exp.Column))


def selects_all(query: str) -> bool:
    """Return whether a query is a SELECT from one table, with or without WHERE, with `*` as its last column."""
    tree = parse_query(query).tree
    if not isinstance(tree, exp.Select) or not _reads_one_table(tree, {*PLAIN, "order"}):
        return False
    last = tree.expressions[-1]
    return last.is_star and not parts_of(last.this if isinstance(last, exp.Column) else last)


def is_projection(query: str) -> bool:
    """Return whether a query is a SELECT of named columns of one table, with or without WHERE."""
    tree = parse_query(query).tree
    return (
        isinstance(tree, exp.Select)
        and query.lstrip().upper().startswith("SELECT")
        and _reads_one_table(tree, PLAIN)
        and not tree.is_star
    )


def _reads_one_table(select: exp.Select, parts: AbstractSet[str]) -> bool:
    """Return whether a SELECT gives rows of one table, each at most once, and calculates nothing over several of them."""
    if parts_of(select) - parts or not select.expressions:
        return False
    relation = select.args["from_"].this if select.args.get("from_") else None
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        return False
    alias = relation.args.get("alias")
    names = {str(call.this).lower() for call in select.find_all(exp.Anonymous)}
    return (
        not parts_of(relation) - {"this", "db", "catalog", "alias"}
        and not (alias is not None and alias.args.get("columns"))
        and len(list(select.find_all(exp.Query))) == 1
        and select.find(exp.AggFunc, exp.Window, exp.Any) is None
        and not any(map(_AGGREGATES.fullmatch, names))
    )


def with_row_kind(query: str) -> str:
    """Return a query that `is_projection` with `row_kind` as one more column at the end."""
    depth, before = 0, ""
    for token in tokenize(query):
        depth += token.is_word("(") - token.is_word(")")
        # `a IS DISTINCT FROM b` and `t.from` are parts of a column.
        if token.is_word("FROM") and depth == 0 and before not in ("DISTINCT", "."):
            return f"{query[: token.start].rstrip()}, {ROW_KIND} {query[token.start :]}"
        before = token.word
    raise AssertionError(query)


def filters_groups(query: str) -> bool:
    """Return whether a query has a HAVING."""
    tree = parse_query(query).tree
    return tree is not None and tree.find(exp.Having) is not None
