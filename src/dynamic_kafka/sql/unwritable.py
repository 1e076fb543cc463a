"""Rows of an INSERT that cannot be encoded, with `sink.dead-letter.topic`: the sink gets the reason and the row as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DecimalType, StructField, StructType

from dynamic_kafka.formats.expressions import TEMPORAL, rebuilt, temporal_text
from dynamic_kafka.sink.records import DEAD_LETTER
from dynamic_kafka.sql.definition import MetadataColumn, PhysicalColumn
from dynamic_kafka.sql.types import cast_type

__all__ = ["FAULT", "cast_or_fault", "with_dead_letters"]

FAULT = "fault"
"""A column of rows on their way to the sink: the reason why a row cannot be encoded, null if it can."""


def cast_or_fault(value: Column, column: PhysicalColumn | MetadataColumn, faults: list[Column]) -> Column:
    """Return a value in the type of its column, and note when it does not fit.

    Only decimals can be too large: all other implicit casts are to a wider type. Decimals inside arrays, maps and rows end
    the query, because Spark would turn them into nulls.
    """
    wanted = cast_type(column.type)
    if not isinstance(wanted, DecimalType):
        return value.cast(wanted)
    found = value.try_cast(wanted)
    reason = F.lit(f"Column '{column.name}' has a number that does not fit {column.type}")
    faults.append(F.when(value.isNotNull() & found.isNull(), reason))
    return found


def with_dead_letters(
    rows: DataFrame, selected: Sequence[Column], reported: Collection[str], given: Mapping[str, str]
) -> DataFrame:
    """Return the sink's rows, with the column `DEAD_LETTER`.

    Args:
        rows: The rows of the query, and `FAULT`.
        selected: The sink's columns.
        reported: Those of them that are of `arrow.MESSAGE_OR_ERROR`.
        given: The column of `rows` that each column of the table is from.
    """
    names = rows.select(*selected).columns
    schema = StructType([StructField(name, rows.schema[source].dataType) for name, source in given.items()])
    row = F.struct(*(F.col(source).alias(name) for name, source in given.items()))
    error = F.coalesce(F.col(FAULT), *(F.col(name)["error"] for name in reported))
    text = F.to_json(rebuilt(row, schema, TEMPORAL, temporal_text), {"ignoreNullFields": "false"})
    letter = F.struct(error.alias("error"), text.alias("row"))
    return rows.select(*rows.columns, *selected).select(
        *(F.col(name)["message"].alias(name) if name in reported else F.col(name) for name in names),
        F.when(error.isNotNull(), letter).alias(DEAD_LETTER),
    )
