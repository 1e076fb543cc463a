"""`print` and `blackhole`: sinks to try a query with."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.formats import INSERT, ROW_KIND, UPDATE_AFTER
from dynamic_kafka.formats.expressions import named
from dynamic_kafka.options import Option, boolean, integer, text
from dynamic_kafka.sql.connectors.table import WRITE_PARALLELISM, Connector, OtherTable
from dynamic_kafka.sql.session.result import start

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


def _start_print(writer: DataStreamWriter, table: OtherTable, rows: DataFrame) -> StreamingQuery:
    del rows
    identifier: str = _IDENTIFIER.of(table.options)
    standard_error: bool = _STANDARD_ERROR.of(table.options)

    def printed_as(kind: str) -> DataStreamWriter:
        return writer.foreachBatch(lambda batch, _: _print(batch, identifier, kind, standard_error=standard_error))

    try:
        return start(printed_as(INSERT), ("append",))
    except Exception as error:
        if "output mode" not in str(error).lower():
            raise
        return start(printed_as(UPDATE_AFTER), ("update",))


PRINT = Connector(
    options=(_IDENTIFIER, _STANDARD_ERROR, WRITE_PARALLELISM),
    write=lambda rows, table: _print(
        rows, _IDENTIFIER.of(table.options), INSERT, standard_error=_STANDARD_ERROR.of(table.options)
    ),
    start=_start_print,
    takes_changes=True,
    keeps_nothing=True,
)
"""Rows are printed where the query's driver runs."""
BLACKHOLE = Connector(
    options=(_VERSION, WRITE_PARALLELISM),
    write=lambda rows, _: rows.write.format("noop").mode("overwrite").save(),
    start=lambda writer, *_: start(writer.format("noop"), ("append", "update")),
    takes_changes=True,
    keeps_nothing=True,
)
"""Rows are calculated and dropped: Spark's `noop`."""
