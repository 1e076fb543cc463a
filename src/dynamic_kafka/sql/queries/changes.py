"""The rows of an INSERT, with the kinds of the changes that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.sql.connectors.all import Table
from dynamic_kafka.sql.dialect.query import column_finder, columns_of, parse_query, part_of_with, relations
from dynamic_kafka.sql.queries.catalog import Catalog
from dynamic_kafka.sql.queries.text import is_projection, selects_all, with_row_kind
from dynamic_kafka.sql.tables.table import KafkaTable

__all__ = ["rows_for"]

_INSTEAD_OF_WHERE = (
    "Instead of WHERE, give the kind of each row in the last column of the SELECT: CASE WHEN condition THEN row_kind "
    "ELSE '-D' END AS row_kind"
)


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
    if not sources:
        return
    of_sources = ", ".join(source.name for source in sources)
    reads = f"The messages of {of_sources} have the new row of a change, and not the old one"
    lineage = _Lineage(catalog)
    for text in catalog.texts_of(query):
        tree = parse_query(text).tree
        for select in [] if tree is None else tree.find_all(exp.Select):
            if (used := lineage.in_select(select)) is None:
                continue
            for condition, advice in _conditions(select):
                if columns := ", ".join(sorted(used(condition))):
                    raise ConfigurationError(
                        f"{reads}. Rows that no longer satisfy the condition on {columns} would stay in table {table.name}. "
                        f"{advice}"
                    )
    given = [values for _, values in lineage.of_query(parse_query(query).tree)]
    for name, values in zip(names or [column.name for column in table.definition.written], given, strict=False):
        if name in table.key_columns and (columns := ", ".join(sorted(values))):
            raise ConfigurationError(
                f"{reads}. When {columns} changes, the row with the old key would stay in table {table.name}. Materialize "
                "the changes first, and write the result"
            )


def _conditions(select: exp.Select) -> Iterator[tuple[exp.Expr, str]]:
    """Return what decides which rows a SELECT has, with advice: WHERE, and conditions of joins that leave rows out."""
    if (where := select.args.get("where")) is not None:
        yield where, _INSTEAD_OF_WHERE
    for join in select.args.get("joins") or []:
        of_using = map(exp.column, join.args.get("using") or [])
        parts: list[exp.Expr] = [*filter(None, [join.args.get("on")]), *of_using]
        if join.side == "LEFT":
            joined = join.this.alias_or_name.lower()
            parts = [column for part in parts for column in part.find_all(exp.Column) if column.table.lower() == joined]
        for part in parts:
            yield part, "Materialize the changes first, and join the result"


class _Lineage:
    """Which columns of `upsert-kafka` tables other columns depend on, also under other names in views; but for keys."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._views: dict[str, Mapping[str, frozenset[str]]] = {}

    def of_query(self, query: exp.Expr | None) -> list[tuple[str, frozenset[str]]]:
        """Return the columns of a query in order, and what each depends on. Empty for a query of other tables."""
        if isinstance(query, (exp.Subquery, exp.CTE)):
            return self.of_query(query.this)
        if isinstance(query, exp.SetOperation):
            left, right = self.of_query(query.this), self.of_query(query.expression)
            both = zip(left, right or left, strict=False)
            return [(name, one | other) for (name, one), (_, other) in both] or right
        used = self.in_select(query) if isinstance(query, exp.Select) else None
        if used is None or not isinstance(query, exp.Select):
            return []
        return [(name, values or frozenset()) for name, values in columns_of(query, self._of_relation, used)]

    def in_select(self, select: exp.Select) -> Callable[[exp.Expr], frozenset[str]] | None:
        """Return a function that says what a part of a SELECT depends on; None for a SELECT of other tables."""
        if not any(map(self._of_relation, relations(select))):
            return None
        of_column = column_finder(select, self._of_relation)
        others = {relation.alias_or_name.lower() for relation in relations(select) if self._is_other_table(relation)}

        def of_one(column: exp.Column) -> frozenset[str]:
            if (values := of_column(column)) is not None:
                return values
            return frozenset() if column.table.lower() in others else frozenset({column.name})

        return lambda part: frozenset().union(*map(of_one, part.find_all(exp.Column)))

    def _is_other_table(self, relation: exp.Expr) -> bool:
        known = isinstance(relation, exp.Table) and part_of_with(relation) is None
        found = self._catalog.tables.get(relation.name.lower()) if known else None
        return found is not None and not (isinstance(found, KafkaTable) and found.upsert)

    def _of_relation(self, relation: exp.Expr) -> Mapping[str, frozenset[str]]:
        """Return the columns of a table, a view or a sub-query by their names in lower case, and what each depends on."""
        if not isinstance(relation, exp.Table):
            return dict(self.of_query(relation))
        if (cte := part_of_with(relation)) is not None:
            return dict(self.of_query(cte))
        key = relation.name.lower()
        found, view = self._catalog.tables.get(key), self._catalog.views.get(key)
        if isinstance(found, KafkaTable) and found.upsert:
            names = [column.name for column in found.definition.columns]
            return {name.lower(): frozenset({name} - {*found.key_columns}) for name in (*names, ROW_KIND)}
        if key not in self._views:
            self._views[key] = {}  # for a view that reads itself
            if view is not None and isinstance(view.query, str):
                columns = self.of_query(parse_query(view.query).tree)
                names = [name.lower() for name in view.columns] or [name for name, _ in columns]
                self._views[key] = {name: values for name, (_, values) in zip(names, columns, strict=False)}
        return self._views[key]
