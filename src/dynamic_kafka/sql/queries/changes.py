"""The rows of an INSERT, with the kinds of the changes that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.connectors.all import Table
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.queries.catalog import Catalog
from dynamic_kafka.sql.queries.text import is_projection, selects_all, with_row_kind
from dynamic_kafka.sql.tables.table import KafkaTable

__all__ = ["rows_for"]


def rows_for(
    table: Table, query: str, names: Sequence[str] | None, catalog: Catalog, rows: Callable[[str], DataFrame]
) -> DataFrame:
    """Return the rows of a query, with `row_kind` if a changelog table reads from a changelog.

    `names` are the columns that the INSERT lists, None for all.

    Raises:
        ConfigurationError: If changes would become new rows of the table, or rows of it would not be deleted.
    """
    changelogs = catalog.changelogs(query)
    if not changelogs:
        return rows(query)
    all_columns = selects_all(query)  # `row_kind` is among them
    if not table.takes_changes and not all_columns:
        raise ConfigurationError(
            f"Table {table.name} accepts only new rows, but the query reads the changes of {', '.join(changelogs)}: "
            "deletions and updates would become new rows. Write to a table with a changelog format or 'upsert-kafka', or "
            "filter by `row_kind`"
        )
    _check_upserts(table, query, names, catalog)
    if all_columns:
        return rows(query)
    if is_projection(query):
        with suppress(AnalysisException):  # if the view that it reads does not have the column
            return rows(with_row_kind(query))
    raise ConfigurationError(
        f"The query loses `row_kind` of {', '.join(changelogs)}, so its deletions and updates would become new rows of "
        f"table {table.name}. Select `row_kind` as the last column, or materialize the changes first: for Spark's "
        "aggregations, joins and DISTINCT, every change is a row"
    )


def _check_upserts(table: Table, query: str, names: Sequence[str] | None, catalog: Catalog) -> None:
    """Raise if a query needs the old row of a change. An `upsert-kafka` table has the new one, and Flink stores all rows."""
    sources = [found for found in catalog.tables_of(query) if isinstance(found, KafkaTable) and found.upsert]
    keys = {column.lower() for source in sources for column in source.key_columns}
    if not sources:
        return
    of_sources = ", ".join(source.name for source in sources)
    reads = f"The messages of {of_sources} have the new row of a change, and not the old one"
    for text in catalog.texts_of(query):
        tree = parse_query(text).tree
        where = tree.args.get("where") if tree is not None else None
        if columns := _others(where, keys):
            raise ConfigurationError(
                f"{reads}. Rows that no longer satisfy the condition on {columns} would stay in table {table.name}. Instead "
                "of WHERE, give the kind of each row in the last column of the SELECT: CASE WHEN condition THEN row_kind "
                "ELSE '-D' END AS row_kind"
            )
    tree = parse_query(query).tree
    parts = [] if tree is None or any(part.is_star for part in tree.expressions) else tree.expressions
    for name, part in zip(names or [column.name for column in table.definition.written], parts, strict=False):
        if name in table.key_columns and (columns := _others(part, keys)):
            raise ConfigurationError(
                f"{reads}. When {columns} changes, the row with the old key would stay in table {table.name}. Materialize "
                "the changes first, and write the result"
            )


def _others(part: exp.Expr | None, keys: set[str]) -> str:
    """Return the columns of a part of a query that are not of the key."""
    columns = part.find_all(exp.Column) if part is not None else ()
    return ", ".join(sorted({column.name for column in columns if column.name.lower() not in keys}))
