"""Streams as Arrow batches, without Spark's JVM: bounded reads by the same engine, for Polars, pandas and DuckDB."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.errors import ConfigurationError, suggestion
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.options import texts
from dynamic_kafka.spark.columns import COLUMN_TYPES
from dynamic_kafka.spark.datasource import DynamicKafkaDataSource, DynamicKafkaReader
from dynamic_kafka.spark.pushed_filters import conditions_of

__all__ = ["read_arrow"]

Condition = tuple[str | tuple[str, ...], str, Any]

_FILTERS: Mapping[str, Any] = {
    "=": spark.EqualTo,
    "<": spark.LessThan,
    "<=": spark.LessThanOrEqual,
    ">": spark.GreaterThan,
    ">=": spark.GreaterThanOrEqual,
    "in": spark.In,
}
_EXPRESSIONS: Mapping[str, Callable[[pc.Expression, Any], pc.Expression]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda field, values: field.isin(list(values)),
    "not in": lambda field, values: field.is_valid() & ~field.isin(list(values)),
}


def read_arrow(
    options: Mapping[str, object],
    columns: Sequence[str] | pa.Schema | None = None,
    where: Sequence[Condition] = (),
) -> pa.RecordBatchReader:
    """Read streams from their starting to their stopping offsets, by default from the earliest to the latest.

    Batches are read while the reader is read, task by task. PySpark has to be installed, and no Java is started.

    Args:
        options: The options of `spark.read.format("dynamic-kafka")`.
        columns: The columns in order: their names, or a schema if messages are decoded (`value.format`): then the type of
            `value` has the wanted fields. None for all columns.
        where: Conditions that all hold for the rows, as in `filters` of `pyarrow.parquet.read_table`: a column, or the path
            of a field in it (`("value", "status")`), then one of `=`, `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`, then
            the value. Those on `cluster`, `topic`, `partition` and `offset`, and a lower bound of `timestamp`, also leave
            out the offsets that cannot have such rows. A null fulfils none of them.

    Returns:
        The rows, in order of their offsets in each partition.

    Raises:
        ConfigurationError: If an option, a column or a condition is wrong.
        DynamicKafkaError: What the source raises, also while the reader is read.

    Example:
        >>> import polars, dynamic_kafka  # doctest: +SKIP
        >>> options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}  # doctest: +SKIP
        >>> polars.from_arrow(dynamic_kafka.read_arrow(options, where=[("partition", "=", 0)]))  # doctest: +SKIP
    """
    source = DynamicKafkaDataSource(texts(options))
    if isinstance(columns, pa.Schema):
        known = from_arrow_schema(columns, prefer_timestamp_ntz=True)
        names = known.names
        known = StructType([*known, *(StructField(n, t) for n, t in COLUMN_TYPES.items() if n not in names)])
    else:
        known = source.schema()
        names = known.names if columns is None else list(columns)
    needed = dict.fromkeys([*names, *(_path(condition)[0] for condition in where)])
    for name in needed:
        if name not in known.names:
            raise ConfigurationError(
                f"Column '{name}' does not exist; the columns are {', '.join(known.names)}{suggestion(name, known.names)}"
            )
    read = StructType([known[name] for name in needed])
    reader = source.reader(read)
    assert isinstance(reader, DynamicKafkaReader)
    reader.conditions = conditions_of(_FILTERS[sign](path, value) for path, sign, value in _parsed(where))
    schema = pa.schema([(name, arrow_type(read[name].dataType)) for name in names])
    return pa.RecordBatchReader.from_batches(schema, _batches(reader, schema, _expression(where)))


def _path(condition: Condition) -> tuple[str, ...]:
    """Return the path to the column of a condition."""
    column = condition[0]
    return (column,) if isinstance(column, str) else tuple(column)


def _parsed(where: Iterable[Condition]) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yield the conditions that the source may be able to use."""
    for condition in where:
        _, sign, value = condition
        if sign in _FILTERS:
            yield _path(condition), sign, tuple(value) if sign == "in" else value


def _expression(where: Sequence[Condition]) -> pc.Expression | None:
    """Return the conditions as an expression on batches."""
    found = None
    for condition in where:
        _, sign, value = condition
        if sign not in _EXPRESSIONS:
            raise ConfigurationError(
                f"The condition {condition!r} has the operator {sign!r}; expected one of {', '.join(_EXPRESSIONS)}"
            )
        one = _EXPRESSIONS[sign](pc.field(*_path(condition)), value)
        found = one if found is None else found & one
    return found


def _batches(reader: DynamicKafkaReader, schema: pa.Schema, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    for partition in reader.partitions():
        for batch in reader.rows(partition):
            kept = batch if where is None else batch.filter(where)
            if len(kept):
                yield kept.select(schema.names)
