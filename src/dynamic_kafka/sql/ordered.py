"""Tables with the order in which their rows arrive, for the ranks of a stream."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.definition import Column, ComputedColumn, MetadataColumn, Name, qualified
from dynamic_kafka.sql.dialect.arrival import ARRIVAL
from dynamic_kafka.sql.names import unqualified
from dynamic_kafka.sql.query_errors import refuse_for_streams
from dynamic_kafka.sql.table import KafkaTable, table_of
from dynamic_kafka.sql.tables import Table
from dynamic_kafka.sql.types import FlinkType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp

    from dynamic_kafka.sql.catalog import View
    from dynamic_kafka.sql.dialect.query import Query
    from dynamic_kafka.sql.dialect.ranks import RankKey

__all__ = ["Arrivals", "check_key"]

_EVENT_TIME = "spark.watermarkDelayMs"
_PROCESSING_TIME = "dynamic-kafka.processing-time"


class Arrivals:
    """What is known about the tables and views of a stream, for the dialect (`arrival.Streams`) and for ranks.

    Args:
        spark: The session.
        tables: The tables by their names.
        views: The views by their names.
        places: The catalog and database of those that were created with one.
        read: Returns the rows of a table, as a stream or not.
        keep: Gives rows a name for Spark.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: dict[str, Table],
        views: dict[str, View],
        places: Mapping[str, Name],
        *,
        read: Callable[..., DataFrame],
        keep: Callable[[DataFrame, str], None],
    ) -> None:
        self._spark, self._tables, self._views, self._read, self._keep = spark, tables, views, read, keep
        self._places = places

    def differs(self, query: Query, *, of_view: bool) -> bool:
        """Return whether a query of a stream contains what Spark's streams have in other words, such as ROW_NUMBER.

        Args:
            query: The query.
            of_view: True for the query of a view. Its ranks are a part of each query that reads it, with conditions there.

        Raises:
            SqlError: If it contains what they do not have.
        """
        from dynamic_kafka.sql.dialect.arrival import differs_in_streams, has_over

        refuse_for_streams(query)
        if query.tree is None:
            return False
        ranks = has_over(unqualified(query.tree, self._places), self)
        return not of_view if ranks else differs_in_streams(query.tree)

    def has_ranks(self, view: View) -> bool:
        """Return whether the query of a view contains ranks, also through other views."""
        from dynamic_kafka.sql.dialect.arrival import has_over
        from dynamic_kafka.sql.dialect.query import parse_query

        tree = parse_query(view.query).tree if isinstance(view.query, str) else None
        return tree is not None and has_over(unqualified(tree, self._places), self)

    def time_of(self, query: str) -> str:
        """Return what time the only column of a query is: `event` (with a watermark), `processing`, or empty."""
        try:
            metadata = self._spark.sql(query).schema.fields[0].metadata
        except AnalysisException:
            return ""
        return "event" if _EVENT_TIME in metadata else "processing" if _PROCESSING_TIME in metadata else ""

    def first_rows(self, query: str, keys: Sequence[str]) -> str:
        """Return the name of the first row of each key that a query has as a stream.

        Spark keeps the row that it sees first, and the rows of a task come in their order.
        """
        found = f"first_rows__{hashlib.sha256(query.encode()).hexdigest()[:12]}"
        self._keep(self._spark.sql(query).dropDuplicates([*keys]), found)
        return found

    def view(self, name: str) -> exp.Query | None:
        """Return the query of a view, None if it is a DataFrame or gives its columns other names."""
        from dynamic_kafka.sql.dialect.query import parse_query

        view = self._views.get(name.lower())
        if view is None or not isinstance(view.query, str) or view.columns:
            return None
        query = parse_query(view.query)
        return None if query.options or query.tree is None else unqualified(query.tree, self._places)

    def ordered(self, name: str) -> str | None:
        """Return the name of a table that has the offset of each row, too; None for a table that is not on Kafka.

        Raises:
            ConfigurationError: If its rows do not have an offset each, or if the name is not that of a table.
        """
        table = self._tables.get(name.lower())
        if table is None:
            raise ConfigurationError(
                f"The order in which rows of `{name}` arrive is not known, and it decides between equal rows of a rank. "
                "Rank a table of Kafka, or a view without names for its columns and without OPTIONS. Or write the rows to "
                "an 'upsert-kafka' table with the key of PARTITION BY"
            )
        if not isinstance(table, KafkaTable):
            return None
        if table.changelog or "history.path" in table.source:
            raise ConfigurationError(
                f"Table {qualified(table.definition.name)} cannot be ranked as a stream. Its order is not known. "
                + (
                    "They are changes: `materialize` them, and rank the result"
                    if table.changelog
                    else "It has a history"
                )
            )
        offset = MetadataColumn(ARRIVAL, FlinkType("BIGINT", nullable=False), key="offset", virtual=True)
        definition = replace(table.definition, columns=(*table.definition.columns, offset))
        rows = self._read(replace(table_of(definition), source=table.source), streaming=True)
        for column in definition.columns:
            if isinstance(column, ComputedColumn) and column.expression.replace(" ", "").upper() == "PROCTIME()":
                rows = rows.withMetadata(column.name, {_PROCESSING_TIME: True})
        found = f"{name.lower()}__in_order"
        self._keep(rows, found)
        return found


def check_key(table: Table, names: Sequence[str] | None, columns: Sequence[str], key: RankKey | None) -> None:
    """Raise unless the rows of a rank can be written to a table.

    Args:
        table: The table.
        names: The columns that an INSERT lists; None for all.
        columns: The query's columns.
        key: The key of the rank; None if its rows do not change.

    Raises:
        ConfigurationError: If they change and the table has another key, or none. Flink would delete rows of the table, and
            Spark cannot.
    """
    if not table.upsert:
        if key is None or table.takes_changes:
            return
        raise ConfigurationError(
            f"Table {qualified(table.definition.name)} accepts only new rows, but the rows of this rank change: a later "
            "message may have an earlier time or a better value. Write to a table with a key, such as one with 'connector' "
            "= 'upsert-kafka'. The first rows by PROCTIME() never change"
        )
    if key is None:
        if isinstance(table, KafkaTable):
            return
        raise ConfigurationError(
            f"These ranked rows do not change, and table {qualified(table.definition.name)} takes rows that do. Write "
            "them to a table without a PRIMARY KEY"
        )
    written = names or [
        c.name for c in table.definition.columns if not isinstance(c, ComputedColumn) and not _is_virtual(c)
    ]
    found = [column.lower() for column in columns]
    of_query = {name: column for name, column in zip(written, found, strict=False) if found.count(column) == 1}
    primary = {of_query.get(name, "") for name in table.definition.primary_key}
    if primary <= frozenset().union(*key.parts) and all(primary & part for part in key.parts):
        return
    raise ConfigurationError(
        f"The PRIMARY KEY of table {qualified(table.definition.name)} is not the key of the ranked rows. Flink deletes rows "
        "from such a table when others take their place, and Spark cannot. The PRIMARY KEY has to be the columns of "
        "PARTITION BY, and for more than one row of each key the number, too"
    )


def _is_virtual(column: Column) -> bool:
    return isinstance(column, MetadataColumn) and column.virtual
