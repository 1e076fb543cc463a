"""Which columns a query can use, from its words: a column is used only where its name is written. Pure.

So a table needs no column whose name is not among the words of the query, wherever the name stands and whatever it means
there. A name that is more than a word is always needed. Some constructs use columns without their names:

1. `*` over a table, other than in `COUNT(*)` and `EXISTS (SELECT * ...)`. A `*` over another SELECT needs nothing more,
   because that SELECT names its columns.
2. NATURAL JOIN, PIVOT, UNPIVOT, new names for all columns (`t AS x (a, b)`), and a table that is the argument of a function
   other than Flink's windows.
3. `IDENTIFIER('...')`, which makes a name of a text.
4. A table with more than its name and an alias, such as `TABLESAMPLE`: an alias that is added would have another place.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from sqlglot import exp

from dynamic_kafka.sql.dialect.flink import WINDOW_TABLES
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.query import Query, part_of_with, parts_of, relations
from dynamic_kafka.sql.tables.definition import ComputedColumn, TableDefinition

__all__ = ["used_names", "with_columns"]

_WORD = re.compile(r"\w+")


def with_columns(table: TableDefinition, names: frozenset[str], *, streaming: bool) -> TableDefinition:
    """Return a table with only the columns that are among `used_names`, and those which these are computed of.

    A stream keeps the column of the watermark, too: it follows all rows, whatever a query uses.
    """
    kept = names
    if streaming and table.watermark is not None:
        kept |= {_folded(table.watermark.column)}
    for column in reversed(table.columns):  # a column is computed of columns before it
        if isinstance(column, ComputedColumn) and _folded(column.name) in kept:
            kept |= _words(column.expression)
    columns = (c for c in table.columns if _folded(c.name) in kept or not _WORD.fullmatch(c.name))
    return replace(table, columns=tuple(columns))


def used_names(query: Query, translated: str) -> frozenset[str] | None:
    """Return names that include those of all columns that a query uses; None if it may use any column.

    What Spark gets may name columns that it does not: those of a temporal
    join.
    """
    if query.tree is None or "identifier" in _words(query.text):
        return None
    tree = query.tree
    if tree.find(exp.Pivot) is not None or any(join.method == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    if any(_stands_for_columns(star) for star in tree.find_all(exp.Star)):
        return None
    if any(not _is_read_by_names(table) for table in tree.find_all(exp.Table)):
        return None
    return _words(query.text) | _words(translated)


@lru_cache(maxsize=64)
def _words(text: str) -> frozenset[str]:
    """Return all words in a text of SQL, also those in its strings and comments."""
    return frozenset(map(_folded, _WORD.findall(text)))


def _folded(name: str) -> str:
    """Return the same text for all names that are one name for Spark: as Java's `equalsIgnoreCase`, or more."""
    return name.upper().lower().replace("\u0307", "")


def _stands_for_columns(star: exp.Star) -> bool:
    """Return whether a star may stand for columns of a table."""
    call = star.parent
    if called(call) == "COUNT":
        return False
    select = star.find_ancestor(exp.Select)
    if select is None:
        return True
    if isinstance(select.parent, exp.Exists) and star.parent is select:
        return False
    if select.args.get("laterals") or select.args.get("from_") is None:
        return True
    return not all(
        (isinstance(one, exp.Subquery) and isinstance(one.this, exp.Query) and not one.args.get("joins"))
        or (isinstance(one, exp.Table) and part_of_with(one) is not None)
        for one in relations(select)
    )


def _is_read_by_names(table: exp.Table) -> bool:
    """Return whether a table stands in a FROM or a JOIN, or in one of Flink's windows, and its columns keep their names."""
    if part_of_with(table) is not None:
        return True
    alias = table.args.get("alias")
    if parts_of(table) - {"this", "db", "catalog", "alias"} or (alias is not None and alias.args.get("columns")):
        return False
    parent = table.parent
    while isinstance(parent, exp.Kwarg) or (isinstance(parent, exp.Anonymous) and parent.this == "PARTITIONED"):
        parent = parent.parent
    return isinstance(parent, (exp.From, exp.Join)) or _is_window(parent)


def _is_window(call: exp.Expr | None) -> bool:
    return isinstance(call, exp.Anonymous) and call.this in WINDOW_TABLES
