"""Streams as Arrow batches, without Spark's JVM: bounded reads by the same engine, for Polars, pandas and DuckDB."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.errors import ConfigurationError, suggestion
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.options import texts
from dynamic_kafka.spark.columns import COLUMN_TYPES
from dynamic_kafka.spark.comparisons import MOST_COMPARISONS, SEVERAL, SIGNS, Comparison, expression_of, type_at
from dynamic_kafka.spark.datasource import DynamicKafkaDataSource, DynamicKafkaReader

__all__ = ["read_arrow"]

Condition = tuple[str | tuple[str, ...], str, Any]


def read_arrow(
    options: Mapping[str, object],
    columns: Sequence[str] | pa.Schema | None = None,
    where: Iterable[Condition] = (),
) -> pa.RecordBatchReader:
    """Read streams from their starting to their stopping offsets, by default from the earliest to the latest.

    Batches are read while the reader is read, task by task. PySpark has to be installed, and no Java is started.

    A reader that is not read to its end keeps its connections until it is dropped (`del reader`). Its `close()` and the end
    of a `with` block close nothing, because pyarrow does not pass them on to what makes the batches.

    Args:
        options: The options of `spark.read.format("dynamic-kafka")`.
        columns: The columns in order: their names, or a schema if messages are decoded (`value.format`): then the type of
            `value` has the wanted fields. None for all columns.
        where: Conditions that all hold for the rows, as in `filters` of `pyarrow.parquet.read_table`: a column, or the path
            of a field in it (`("value", "status")`), then one of `=`, `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`, then
            the value. Those on `cluster`, `topic`, `partition` and `offset`, and a lower bound of `timestamp`, also leave
            out the offsets that cannot have such rows. A null fulfils none of them, and no row fulfils `not in` with a null.

    Returns:
        The rows, in order of their offsets in each partition.

    Raises:
        ConfigurationError: If an option, a column or a condition is wrong.
        DynamicKafkaError: What the source raises, also while the reader is read.

    Examples:
        >>> import polars, dynamic_kafka  # doctest: +SKIP
        >>> options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}  # doctest: +SKIP
        >>> polars.from_arrow(dynamic_kafka.read_arrow(options, where=[("partition", "=", 0)]))  # doctest: +SKIP
    """
    source = DynamicKafkaDataSource(texts(options))
    conditions = [_parsed(condition) for condition in where]
    if len(conditions) > MOST_COMPARISONS:
        raise ConfigurationError(
            f"`where` has {len(conditions)} conditions, and at most {MOST_COMPARISONS} are possible; "
            "`in` and `not in` take any number of values"
        )
    if isinstance(columns, pa.Schema):
        known = _of_spark(columns)
        names = known.names
        known = StructType([*known, *(StructField(n, t) for n, t in COLUMN_TYPES.items() if n not in names)])
    else:
        known = source.schema()
        names = known.names if columns is None else list(columns)
    needed = dict.fromkeys([*names, *(condition.path[0] for condition in conditions)])
    for name in needed:
        if name not in known.names:
            raise ConfigurationError(
                f"Column '{name}' does not exist; the columns are {', '.join(known.names)}{suggestion(name, known.names)}"
            )
    read = StructType([known[name] for name in needed])
    types = pa.schema([(field.name, arrow_type(field.dataType)) for field in read])
    reader = source.reader(read)
    assert isinstance(reader, DynamicKafkaReader)
    checked = [_checked(condition, types) for condition in conditions]
    reader.take([(one,) for one in checked])
    schema = pa.schema([types.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, _Batches(_batches(reader, schema)))


def _of_spark(columns: pa.Schema) -> StructType:
    if len(set(columns.names)) < len(columns.names):
        raise ConfigurationError(f"A column is named twice in the schema: {', '.join(columns.names)}")
    try:
        return from_arrow_schema(columns, prefer_timestamp_ntz=True)
    except PySparkTypeError as error:
        raise ConfigurationError(f"The schema has a type that Spark does not have: {error}") from None


def _parsed(condition: Condition) -> Comparison:
    """Return a condition's path, operator and value."""
    try:
        column, sign, value = condition
        path = (column,) if isinstance(column, str) else tuple(column)
        several = sign in SEVERAL
        is_list = not isinstance(value, str | bytes | Mapping)
        if not path or not all(isinstance(name, str) for name in (*path, sign)) or (several and not is_list):
            raise TypeError
        found = Comparison(path, sign, tuple(value) if several else value)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"The condition {condition!r} is not a column, an operator and a value, such as ('offset', '>=', 5)"
        ) from None
    if sign not in SIGNS:
        raise ConfigurationError(
            f"The condition on '{'.'.join(path)}' has the operator {sign!r}; expected one of {', '.join(SIGNS)}"
        )
    return found


def _checked(given: Comparison, types: pa.Schema) -> Comparison:
    """Return a condition with a value of the column's type."""
    path, sign, value = given
    name, several = ".".join(path), isinstance(value, tuple)
    values = value if several else (value,)
    type_ = type_at(path, types)
    if type_ is None:
        depth = next(n for n in range(1, len(path)) if type_at(path[: n + 1], types) is None)
        known = getattr(type_at(path[:depth], types), "names", [])
        raise ConfigurationError(
            f"The condition on '{name}' names a field that '{path[0]}' does not have{suggestion(path[depth], known)}. "
            "The fields of messages are those in `columns`, or in the registry"
        )
    if getattr(type_, "tz", None) is not None and any(getattr(one, "tzinfo", True) is None for one in values):
        raise ConfigurationError(
            f"The condition on '{name}' has a time without a time zone: add one, such as datetime.UTC"
        )
    # Python calls no time within a change of clocks equal to that of another zone (PEP 495).
    as_utc = [one.astimezone(dt.UTC) if isinstance(one, dt.datetime) and one.tzinfo else one for one in values]
    wanted = [one for one in as_utc if one is not None or not several]
    try:
        same = tuple(pa.array(wanted, type_).to_pylist())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"The condition on '{name}' needs a value of the type {type_}: {error}") from None
    for one, other in zip(wanted, same, strict=True):
        is_nan = isinstance(one, float) and math.isnan(one)
        if one != other and not is_nan:  # Arrow has cut it, or has taken a number for a time
            raise ConfigurationError(
                f"The condition on '{name}' needs a value of the type {type_}, which has {other!r} and not {one!r}"
            )
    null = (None,) if sign == "not in" and None in as_utc else ()  # then no row fulfils it, as in SQL
    found = Comparison(path, sign, same + null if several else same[0])
    if expression_of([(found,)], types) is None:
        raise ConfigurationError(f"The condition on '{name}' cannot compare a {type_} with {value!r}")
    return found


def _batches(reader: DynamicKafkaReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for partition in reader.partitions():
        for batch in reader.rows(partition):
            yield batch.select(schema.names)


class _Batches(Iterator[pa.RecordBatch]):
    """The batches for whichever thread asks next. After an error, each further call raises it: that is not the end."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self._error: Exception | None = None

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                return next(self._batches)
            except StopIteration:
                raise
            except Exception as error:
                self._error = error
                raise
