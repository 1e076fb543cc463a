"""Filters of Spark on the rows that are read: exactly Spark's own comparison, or left to Spark."""

from __future__ import annotations

import datetime as dt
import math
import operator
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from dynamic_kafka.spark.pushed_filters import comparisons_of, expression_of

UTC = dt.UTC
FLOATS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan])
TEXTS = st.text("aäb\0😀", max_size=3)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), st.integers(-3, 3)),
    "long": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    "double": (pa.float64(), FLOATS),
    "float": (pa.float32(), FLOATS),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), st.binary(max_size=2)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 2))),
    "decimal": (pa.decimal128(5, 2), st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1.50")])),
    "timestamp": (pa.timestamp("us", "UTC"), st.sampled_from([dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime.now(UTC)])),
}
COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
}
TEXT: dict[type, Callable[[Any, Any], bool]] = {
    spark.StringStartsWith: str.startswith,
    spark.StringEndsWith: str.endswith,
    spark.StringContains: operator.contains,
}


def ordered(value: Any) -> Any:
    """A value that Python orders as Spark: NaN is equal to itself, and greater than all other numbers."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def holds(found: spark.Filter, value: Any) -> bool:
    """Whether a filter is true for a value in Spark."""
    if isinstance(found, spark.Not):
        return value is not None and not holds(found.child, value)
    if isinstance(found, (spark.IsNull, spark.IsNotNull)):
        return (value is None) == isinstance(found, spark.IsNull)
    if value is None:
        return False
    if isinstance(found, spark.In):
        return ordered(value) in [ordered(one) for one in found.value if one is not None]
    if type(found) in TEXT:
        return bool(TEXT[type(found)](value, found.value))  # type: ignore[attr-defined]
    return COMPARED[type(found)](ordered(value), ordered(found.value))  # type: ignore[attr-defined]


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], spark.Filter]:
    """A type, values of it, and a filter on them."""
    type_, values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    rows = draw(st.lists(st.none() | values, min_size=1, max_size=8))
    kinds: list[Any] = [*COMPARED, spark.In, spark.IsNull, spark.IsNotNull]
    kind = draw(st.sampled_from(kinds + ([*TEXT] if type_ == pa.string() else [])))
    if kind in (spark.IsNull, spark.IsNotNull):
        found = kind(("v", "x"))
    else:
        found = kind(
            ("v", "x"), tuple(draw(st.lists(values, min_size=1, max_size=3))) if kind is spark.In else draw(values)
        )
    negated = kind in (spark.EqualTo, spark.In) and draw(st.booleans())
    return type_, rows, spark.Not(found) if negated else found


@given(cases())
def test_what_is_kept_is_what_spark_keeps(case: tuple[pa.DataType, list[Any], spark.Filter]) -> None:
    """In a field of a column, as tables have them, and in another process; a struct that is null has null fields."""
    type_, rows, found = case
    filled = next((row for row in rows if row is not None), None)
    inner = pa.array([filled if row is None else row for row in rows], type_)
    mask = pa.array([row is None for row in rows])
    batch = pa.record_batch({"v": pa.StructArray.from_arrays([inner], ["x"], mask=mask), "n": list(range(len(rows)))})
    expression = expression_of(comparisons_of([found]), batch.schema)
    if expression is None:
        compared = getattr(found.child if isinstance(found, spark.Not) else found, "value", None)
        values = compared if isinstance(compared, tuple) else (compared,)
        assert any(isinstance(value, float) and math.isnan(value) for value in values)
        return
    kept = batch.filter(pickle.loads(pickle.dumps(expression)))["n"].to_pylist()
    assert kept == [n for n, row in enumerate(rows) if holds(found, row)]


@pytest.mark.parametrize(
    "found",
    [
        spark.EqualTo(("n",), True),
        spark.EqualTo(("n",), "1"),
        spark.EqualTo(("n",), 300),
        spark.EqualTo(("n",), 1.0),
        spark.EqualTo(("other",), 1),
        spark.EqualTo(("n", "x"), 1),
        spark.EqualTo(("t",), dt.datetime(2024, 1, 1)),  # noqa: DTZ001  that is the case
        spark.EqualTo(("d",), Decimal("1.005")),
        spark.EqualTo(("d",), 1),
        spark.GreaterThan(("f",), math.nan),
        spark.Not(spark.EqualNullSafe(("n",), 1)),
        spark.Not(spark.GreaterThan(("n",), 1)),
    ],
)
def test_a_filter_that_is_not_exactly_sparks_is_left_to_spark(found: spark.Filter) -> None:
    """A value of another type, one that the type does not have, a column that does not exist, NaN, other negations."""
    types = {"n": pa.int8(), "t": pa.timestamp("us", "UTC"), "d": pa.decimal128(5, 2), "f": pa.float64()}
    assert expression_of(comparisons_of([found]), pa.schema(types)) is None
