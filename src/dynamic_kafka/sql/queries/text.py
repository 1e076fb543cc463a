"""Answers about a query from its text: which tables it reads, and whether it keeps their rows apart. Pure.

If a query cannot be parsed, the answer is the cautious one: any word may be a table, and no row is kept apart.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.expressions import Query, Select

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.dialect.arrival import PLAIN
from dynamic_kafka.sql.dialect.query import parse_query, temporal_joins
from dynamic_kafka.sql.parser.lexer import tokenize

__all__ = [
    "filters_groups",
    "is_projection",
    "mentions",
    "selects_all",
    "tables_read",
    "versioned_tables",
    "with_column",
]

_AGGREGATES = re.compile(
    r"try_(sum|avg)|every|some|any|any_value|bool_(and|or)|bit_(and|or|xor)|approx_\w+|histogram_numeric|count_\w+|median|mode"
    r"|mean|percentile\w*|regr_\w+|covar_\w+|corr|kurtosis|skewness|std\w*|var_\w+|variance|\w+_by|\w+agg|\w+_agg_\w+"
    r"|collect(_\w+)?|first(_value)?|last(_value)?|min|max|sum|avg|count"
)
"""Spark's functions of many rows. sqlglot does not know all of them, and may take one for a function of one row."""


def tables_read(query: str) -> frozenset[str]:
    """Return the names of the tables and views in a query, in lower case; names from its WITH may be among them."""
    parsed = _parsed(query)
    if parsed is None:
        return frozenset(name.lower() for name in re.findall(r"`([^`]+)`|(\w+)", query) for name in name if name)
    return frozenset(table.name.lower() for table in parsed.find_all(exp.Table))


def versioned_tables(query: str) -> frozenset[str]:
    """Return the names of the tables that a query reads in temporal joins only, in lower case."""
    parsed = _parsed(query)
    if parsed is None:
        return frozenset()
    joined = [join.this for join in temporal_joins(parsed)]
    others = [table for table in parsed.find_all(exp.Table) if not any(table is found for found in joined)]
    return frozenset(table.name.lower() for table in joined) - {table.name.lower() for table in others}


def mentions(query: str, column: str) -> bool:
    """Return whether a query contains a column of this name."""
    parsed = _parsed(query)
    if parsed is None:
        return re.search(rf"\b{column}\b", query, re.IGNORECASE) is not None
    return any(found.name.lower() == column for found in parsed.find_all(exp.Column))


def selects_all(query: str) -> bool:
    """Return whether a query is a SELECT from one table, with or without WHERE, with `*` as its last column."""
    parsed = _parsed(query)
    if not isinstance(parsed, exp.Select) or not _reads_one_table(parsed, {*PLAIN, "order"}):
        return False
    last = parsed.expressions[-1]
    star = last.this if isinstance(last, exp.Column) else last
    return isinstance(star, exp.Star) and not any(star.args.values())


def is_projection(query: str) -> bool:
    """Return whether a query is a SELECT of named columns of one table, with or without WHERE."""
    parsed = _parsed_as_spark(query)
    return (
        isinstance(parsed, exp.Select)
        and query.lstrip().upper().startswith("SELECT")
        and _reads_one_table(parsed, PLAIN)
        and not any(column.is_star for column in parsed.expressions)
    )


def _reads_one_table(parsed: Select, parts: AbstractSet[str]) -> bool:
    """Return whether a SELECT gives rows of one table, each at most once, and calculates nothing over several of them."""
    if {part for part, value in parsed.args.items() if value} - parts or not parsed.expressions:
        return False
    relation = parsed.args["from_"].this if parsed.args.get("from_") else None
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        return False
    alias = relation.args.get("alias")
    names = {str(call.this).lower() for call in parsed.find_all(exp.Anonymous)}
    return (
        not any(value for part, value in relation.args.items() if part not in ("this", "db", "catalog", "alias"))
        and not (alias is not None and alias.args.get("columns"))
        and len(list(parsed.find_all(exp.Query))) == 1
        and parsed.find(exp.AggFunc, exp.Window) is None
        and not any(map(_AGGREGATES.fullmatch, names))
    )


def with_column(query: str, column: str) -> str:
    """Return a query that `is_projection` with one more column at the end."""
    depth = 0
    for token in tokenize(query):
        depth += token.is_word("(") - token.is_word(")")
        if token.is_word("FROM") and depth == 0:
            return f"{query[: token.start].rstrip()}, {column} {query[token.start :]}"
    raise AssertionError(query)


def filters_groups(query: str) -> bool:
    """Return whether a query has a HAVING."""
    parsed = _parsed(query)
    return parsed is not None and parsed.find(exp.Having) is not None


def _parsed(query: str) -> Query | None:
    try:
        return parse_query(query).tree
    except SqlError:
        return None


@lru_cache(maxsize=64)
def _parsed_as_spark(query: str) -> Query | None:
    """Return a query with Spark's functions, of which sqlglot knows those that return one row for many."""
    try:
        parsed = parse_one(query, dialect="spark")
    except SqlglotError:
        return None
    return parsed if isinstance(parsed, exp.Query) else None
