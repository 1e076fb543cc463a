"""What is known about tables and views: the order in which rows arrive, for ranks, and versions, for temporal joins."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField
from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.sql.connectors.all import Table
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.dialect.arrival import ARRIVAL, differs_in_streams, has_over
from dynamic_kafka.sql.dialect.query import Query, parse_query
from dynamic_kafka.sql.dialect.temporal import processing_times
from dynamic_kafka.sql.dialect.writer import RankKey, Versioned
from dynamic_kafka.sql.errors.query import refuse_for_streams
from dynamic_kafka.sql.queries.catalog import Catalog, View
from dynamic_kafka.sql.queries.names import unqualified
from dynamic_kafka.sql.tables.definition import Column, ComputedColumn, MetadataColumn
from dynamic_kafka.sql.tables.table import KafkaTable, table_of
from dynamic_kafka.sql.tables.types import FlinkType

__all__ = ["KnownTables", "check_key"]

_EVENT_TIME = "spark.watermarkDelayMs"
_PROCESSING_TIME = "dynamic-kafka.processing-time"
_NO_STREAM = """\
Spark's streams have no temporal joins by event time (FOR SYSTEM_TIME AS OF): a row would have to wait until the watermark
has passed its time. Keep the table up to date with `materialize`, and join with the result: each row then meets the newest
version. (A batch has them: give both tables 'scan.bounded.mode' = 'latest-offset')"""
_LOOK_UP = """\
FOR SYSTEM_TIME AS OF a processing time looks rows up in a table as it is at the moment. {name} is a changelog or a stream,
in which Flink cannot look rows up either. Write FOR SYSTEM_TIME AS OF the event time of the other table. Or `materialize`
{name} as a table of Spark, and join with that"""


class KnownTables:
    """What is known about the tables and views of an environment, for the dialect (`writer.Streams`, `writer.Versions`).

    `read` returns the rows of a table, as a stream or not, and `keep` gives rows a name for Spark.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        *,
        read: Callable[..., DataFrame],
        keep: Callable[..., None],
    ) -> None:
        self._spark, self._catalog, self._read, self._keep = spark, catalog, read, keep

    def differs(self, query: Query, *, of_view: bool) -> bool:
        """Return whether a query of a stream contains what Spark's streams have in other words, such as ROW_NUMBER.

        The ranks of a view are a part of each query that reads it, with conditions there.

        Raises:
            SqlError: If it contains what they do not have.
        """
        refuse_for_streams(query)
        if query.tree is None:
            return False
        ranks = has_over(unqualified(query.tree, self._catalog.places), self)
        return not of_view if ranks else differs_in_streams(query.tree)

    def has_ranks(self, view: View) -> bool:
        """Return whether the query of a view contains ranks, also through other views."""
        tree = parse_query(view.query).tree if isinstance(view.query, str) else None
        return tree is not None and has_over(unqualified(tree, self._catalog.places), self)

    def times_of(self, query: str) -> Sequence[tuple[str, str]]:
        """See `writer.Streams`."""
        try:
            rows = self._spark.sql(query)
        except AnalysisException:
            return ()
        return [(column.name, _time(column)) for column in rows.schema] if rows.isStreaming else ()

    def first_rows(self, query: str, keys: Sequence[str]) -> str:
        """See `writer.Streams`. Spark keeps the row that it sees first, and the rows of a task come in their order."""
        found = f"first_rows__{hashlib.sha256(query.encode()).hexdigest()[:12]}"
        self._keep(self._spark.sql(query).dropDuplicates([*keys]), found)
        return found

    def view(self, name: str) -> exp.Query | None:
        """See `writer.Streams`: a view is not one query if it is a DataFrame or gives its columns other names."""
        view = self._catalog.views.get(name.lower())
        if view is None or not isinstance(view.query, str) or view.columns:
            return None
        query = parse_query(view.query)
        return None if query.options or query.tree is None else unqualified(query.tree, self._catalog.places)

    def ordered(self, name: str) -> str | None:
        """See `writer.Streams`."""
        table = self._catalog.tables.get(name.lower())
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
                f"Table {table.name} cannot be ranked as a stream. Its order is not known. "
                + (
                    "They are changes: `materialize` them, and rank the result"
                    if table.changelog
                    else "It has a history"
                )
            )
        rows = self._read(_with_offset(table), streaming=True)
        for column in table.definition.columns:
            if _is_processing_time(column):
                rows = rows.withMetadata(column.name, {_PROCESSING_TIME: True})
        found = f"{name.lower()}__in_order"
        self._keep(rows, found)
        return found

    def versioned(self, name: str, *, streaming: bool) -> Versioned:
        """See `writer.Versions`."""
        table = self._catalog.tables.get(name.lower())
        if not isinstance(table, KafkaTable) or not table.changelog or "history.path" in table.source:
            raise ConfigurationError(
                f"{name} has no versions, so no row has one of an event time. A temporal join by event time reads an "
                "'upsert-kafka' table, or one with a changelog format. To look rows up in a table of Spark, write FOR "
                "SYSTEM_TIME AS OF a processing time, such as PROCTIME()"
            )
        definition = table.definition
        if not definition.primary_key or definition.watermark is None:
            raise ConfigurationError(
                f"Table {table.name} needs a PRIMARY KEY and a WATERMARK for a temporal join by event time, "
                "as in Flink: the WATERMARK names the column with the time from which on a version is valid"
            )
        if streaming:
            raise ConfigurationError(_NO_STREAM.replace("\n", " "))
        columns = tuple(column.name for column in definition.columns)
        rows = f"{name.lower()}__versions"
        self._keep(self._read(_with_offset(table), streaming=False), rows, streaming=False)
        time = definition.watermark.column
        of_message = any(column.name == time for column in definition.metadata)
        # A tombstone has no value at all. A deletion of a changelog format has the row that is deleted, with its time.
        return Versioned(rows, columns, definition.primary_key, time, dated=table.upsert or of_message)

    def check_lookup(self, name: str) -> None:
        """See `writer.Versions`."""
        table, view = self._catalog.tables.get(name.lower()), self._catalog.views.get(name.lower())
        if isinstance(table, OtherTable):
            is_static = table.bounded
        elif table is not None or (view is not None and isinstance(view.query, str)):
            is_static = False
        else:
            try:
                rows = self._spark.table(name)
                is_static = not rows.isStreaming and ROW_KIND not in rows.columns
            except AnalysisException:  # Spark says so, with its place
                is_static = True
        if not is_static:
            raise ConfigurationError(_LOOK_UP.replace("\n", " ").format(name=name))

    def processing_times(self, name: str) -> Collection[str]:
        """See `writer.Versions`."""
        table, view = self._catalog.tables.get(name.lower()), self._catalog.views.get(name.lower())
        if table is not None:
            return [column.name.lower() for column in table.definition.columns if _is_processing_time(column)]
        if view is None or not isinstance(view.query, str) or view.columns:
            return ()
        tree = parse_query(view.query).tree
        return processing_times(tree, self) if isinstance(tree, exp.Select) else ()


def _time(column: StructField) -> str:
    if _EVENT_TIME in column.metadata:
        return "event"
    return "processing" if _PROCESSING_TIME in column.metadata else ""


def _with_offset(table: KafkaTable) -> KafkaTable:
    """Return a table that has the column with the offset of each row, too."""
    offset = MetadataColumn(ARRIVAL, FlinkType("BIGINT", nullable=False), key="offset", virtual=True)
    definition = replace(table.definition, columns=(*table.definition.columns, offset))
    return replace(table_of(definition), source=table.source, bounded=table.bounded)


def _is_processing_time(column: Column) -> bool:
    """Return whether a column of a table is a processing time."""
    return isinstance(column, ComputedColumn) and column.expression.replace(" ", "").upper() == "PROCTIME()"


def check_key(table: Table, names: Sequence[str] | None, columns: Sequence[str], key: RankKey | None) -> None:
    """Raise unless the rows of a rank can be written to a table. The key is None if they do not change.

    Raises:
        ConfigurationError: If they change and the table has another key, or none. Flink would delete rows of the table, and
            Spark cannot.
    """
    if not table.upsert:
        if key is None or table.takes_changes:
            return
        raise ConfigurationError(
            f"Table {table.name} accepts only new rows, but the rows of this rank change: a later "
            "message may have an earlier time or a better value. Write to a table with a key, such as one with 'connector' "
            "= 'upsert-kafka'. The first rows by PROCTIME() never change"
        )
    if key is None:
        if isinstance(table, KafkaTable):
            return
        raise ConfigurationError(
            f"These ranked rows do not change, and table {table.name} takes rows that do. Write "
            "them to a table without a PRIMARY KEY"
        )
    written = names or [c.name for c in table.definition.written]
    found = [column.lower() for column in columns]
    of_query = {name: column for name, column in zip(written, found, strict=False) if found.count(column) == 1}
    primary = {of_query.get(name, "") for name in table.definition.primary_key}
    if primary <= frozenset().union(*key.parts) and all(primary & part for part in key.parts):
        return
    raise ConfigurationError(
        f"The PRIMARY KEY of table {table.name} is not the key of the ranked rows. Flink deletes rows "
        "from such a table when others take their place, and Spark cannot. The PRIMARY KEY has to be the columns of "
        "PARTITION BY, and for more than one row of each key the number, too"
    )
