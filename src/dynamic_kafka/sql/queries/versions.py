"""The tables of temporal joins: all versions of the rows of a changelog, and tables in which rows are looked up."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.sql.connectors.all import Table
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.dialect.temporal import Versioned, is_processing_column
from dynamic_kafka.sql.queries.catalog import View
from dynamic_kafka.sql.queries.ordered import is_processing_time, with_offset
from dynamic_kafka.sql.tables.table import KafkaTable

__all__ = ["VersionedTables"]

_NO_STREAM = """\
Spark's streams have no temporal joins by event time (FOR SYSTEM_TIME AS OF): a row would have to wait until the watermark
has passed its time. Keep the table up to date with `materialize`, and join with the result: each row then meets the newest
version. (A batch has them: give both tables 'scan.bounded.mode' = 'latest-offset')"""
_LOOK_UP = """\
FOR SYSTEM_TIME AS OF a processing time looks rows up in a table as it is at the moment. {name} is a changelog or a stream,
in which Flink cannot look rows up either. Write FOR SYSTEM_TIME AS OF the event time of the other table. Or `materialize`
{name} as a table of Spark, and join with that"""


class VersionedTables:
    """What is known about the tables of the temporal joins of a query, for the dialect (`temporal.Versions`).

    `read` returns the rows of a table, as a stream or not, and `keep` gives rows a name for Spark.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: dict[str, Table],
        views: dict[str, View],
        read: Callable[..., DataFrame],
        keep: Callable[..., None],
        *,
        streaming: bool,
    ) -> None:
        self._spark, self._tables, self._views, self._read, self._keep = spark, tables, views, read, keep
        self._streaming = streaming

    def versioned(self, name: str) -> Versioned:
        """See `temporal.Versions`."""
        table = self._tables.get(name.lower())
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
        if self._streaming:
            raise ConfigurationError(_NO_STREAM.replace("\n", " "))
        columns = tuple(column.name for column in definition.columns)
        rows = f"{name.lower()}__versions"
        self._keep(self._read(with_offset(table), streaming=False), rows, streaming=False)
        time = definition.watermark.column
        of_message = any(column.name == time for column in definition.metadata)
        # A tombstone has no value at all. A deletion of a changelog format has the row that is deleted, with its time.
        return Versioned(rows, columns, definition.primary_key, time, dated=table.upsert or of_message)

    def check_lookup(self, name: str) -> None:
        """Raise `ConfigurationError` unless rows can be looked up in a table, which may be one of Spark's."""
        table, view = self._tables.get(name.lower()), self._views.get(name.lower())
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

    def is_processing_time(self, name: str, column: str) -> bool:
        """Return whether a column of a table or view is a processing time."""
        table, view = self._tables.get(name.lower()), self._views.get(name.lower())
        if table is not None:
            columns = table.definition.columns
            return any(found.name.lower() == column.lower() and is_processing_time(found) for found in columns)
        if view is None or not isinstance(view.query, str) or view.columns:
            return False
        tree = parse_query(view.query).tree
        return isinstance(tree, exp.Select) and is_processing_column(tree, column, self)
