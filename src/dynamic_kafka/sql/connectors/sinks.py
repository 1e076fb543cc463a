"""`print` and `blackhole`: sinks to try a query with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import INSERT, ROW_KIND, UPDATE_AFTER
from dynamic_kafka.formats.expressions import named
from dynamic_kafka.options import Option, boolean, integer, text
from dynamic_kafka.sql.connectors.table import WRITE_PARALLELISM, Connector, OtherTable
from dynamic_kafka.sql.result import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["BLACKHOLE", "PRINT"]

_IDENTIFIER = Option("print-identifier", text("a text"), "", doc="A text in front of each row.")
_STANDARD_ERROR = Option("standard-error", boolean, "false", doc="If true, rows go to standard error.")
_VERSION = Option(
    "property-version", integer(at_least=1), "1", doc="Accepted for compatibility with Flink, without effect."
)


def _print(rows: DataFrame, identifier: str, kind: str, *, standard_error: bool) -> None:
    """Print rows, such as `+I[1, a]`, with the values as Spark casts them to texts."""
    values = [F.coalesce(named(c).cast("string"), F.lit("null")) for c in rows.columns if c != ROW_KIND]
    of_row = named(ROW_KIND) if ROW_KIND in rows.columns else F.lit(kind)
    prefix = f"{identifier}> " if identifier else ""
    line = F.concat(F.lit(prefix), of_row, F.lit("["), F.concat_ws(", ", *values), F.lit("]"))
    for row in rows.select(line).toLocalIterator():
        print(row[0], file=sys.stderr if standard_error else sys.stdout, flush=True)


def _write_print(rows: DataFrame, table: OtherTable) -> None:
    _print(rows, _IDENTIFIER.of(table.options), INSERT, standard_error=_STANDARD_ERROR.of(table.options))


def _start_print(writer: DataStreamWriter, table: OtherTable, rows: DataFrame) -> StreamingQuery:
    del rows
    identifier: str = _IDENTIFIER.of(table.options)
    standard_error: bool = _STANDARD_ERROR.of(table.options)

    def appended(batch: DataFrame, _: int) -> None:
        _print(batch, identifier, INSERT, standard_error=standard_error)

    def updated(batch: DataFrame, _: int) -> None:
        _print(batch, identifier, UPDATE_AFTER, standard_error=standard_error)

    try:
        return start(writer.foreachBatch(appended), ("append",))
    except Exception as error:
        if not is_about_mode(error):
            raise
        return start(writer.foreachBatch(updated), ("update",))


def is_about_mode(error: Exception) -> bool:
    """Return whether an error of Spark says that a query does not have an output mode."""
    return "output mode" in str(error).lower()


def _write_nothing(rows: DataFrame, table: OtherTable) -> None:
    del table
    rows.write.format("noop").mode("overwrite").save()


def _start_nothing(writer: DataStreamWriter, table: OtherTable, rows: DataFrame) -> StreamingQuery:
    del table, rows
    return start(writer.format("noop"), ("append", "update"))


PRINT = Connector(
    options=(_IDENTIFIER, _STANDARD_ERROR, WRITE_PARALLELISM),
    write=_write_print,
    start=_start_print,
    keeps_nothing=True,
)
"""Rows are printed where the query's driver runs."""
BLACKHOLE = Connector(
    options=(_VERSION, WRITE_PARALLELISM), write=_write_nothing, start=_start_nothing, keeps_nothing=True
)
"""Rows are calculated and dropped: Spark's `noop`."""
