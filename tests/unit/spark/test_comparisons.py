"""Conditions on rows that are read: what Spark would say of them."""

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
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_kafka.spark.comparisons import MOST_COMPARISONS, SIGNS, Comparison, expression_of

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
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def ordered(value: Any) -> Any:
    """A value that Python orders as Spark: NaN is equal to itself, and greater than all other numbers."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def holds(found: Comparison, value: Any) -> bool:
    """Whether a comparison is true for a value in Spark."""
    if value is None:
        return False
    if found.sign in COMPARED:
        return COMPARED[found.sign](ordered(value), ordered(found.value))
    return (ordered(value) in map(ordered, found.value)) == (found.sign == "in")


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], Comparison]:
    """A type, values of it, and a comparison with them."""
    type_, values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    rows = draw(st.lists(st.none() | values, min_size=1, max_size=8))
    sign = draw(st.sampled_from(SIGNS))
    value = draw(values) if sign in COMPARED else tuple(draw(st.lists(values, min_size=1, max_size=3)))
    return type_, rows, Comparison(("v", "x"), sign, value)


@given(cases())
@example((pa.float64(), [0.0, -0.0, 1.5], Comparison(("v", "x"), "in", (0.0,))))
@example((pa.float64(), [0.0, -0.0, 1.5], Comparison(("v", "x"), "not in", (-0.0,))))
def test_what_is_kept_is_what_spark_keeps(case: tuple[pa.DataType, list[Any], Comparison]) -> None:
    """In a field of a column, and in another process; a struct that is null has null fields. NaN cannot be given."""
    type_, rows, found = case
    filled = next((row for row in rows if row is not None), None)
    inner = pa.array([filled if row is None else row for row in rows], type_)
    mask = pa.array([row is None for row in rows])
    batch = pa.record_batch({"v": pa.StructArray.from_arrays([inner], ["x"], mask=mask), "n": list(range(len(rows)))})
    expression = expression_of([(found,)], batch.schema)
    if expression is None:
        values = found.value if isinstance(found.value, tuple) else (found.value,)
        assert any(isinstance(value, float) and math.isnan(value) for value in values)
        return
    kept = batch.filter(pickle.loads(pickle.dumps(expression)))["n"].to_pylist()
    assert kept == [n for n, row in enumerate(rows) if holds(found, row)]


@pytest.mark.parametrize(
    ("name", "sign", "value"),
    [
        ("n", "=", True),
        ("n", "=", "1"),
        ("n", "=", 300),
        ("n", "=", 1.0),
        ("other", "=", 1),
        ("t", "=", dt.datetime(2024, 1, 1)),  # noqa: DTZ001  that is the case
        ("d", "=", Decimal("1.005")),
        ("d", "=", 1),
        ("f", ">", math.nan),
    ],
)
def test_values_that_are_not_of_the_columns_type_cannot_be_compared(name: str, sign: str, value: Any) -> None:
    """Nor one that the type does not have, NaN, and columns that do not exist."""
    types = {"n": pa.int8(), "t": pa.timestamp("us", "UTC"), "d": pa.decimal128(5, 2), "f": pa.float64()}
    assert expression_of([(Comparison((name,), sign, value),)], pa.schema(types)) is None


def test_many_values_and_conditions_are_possible() -> None:
    """Arrow walks a chain of comparisons by recursion: one that is too long ends the process."""
    batch = pa.record_batch({"f": [0.0, 1.5, 1e6]})
    many = tuple(float(i) for i in range(20_000))
    among = [(Comparison(("f",), "in", many),)]
    one_of = [tuple(Comparison(("f",), "=", value) for value in many[:MOST_COMPARISONS])]
    all_of = [(Comparison(("f",), "!=", value),) for value in many[:MOST_COMPARISONS]]
    for conditions, kept in ((among, [0.0]), (one_of, [0.0]), (all_of, [1.5, 1e6])):
        assert batch.filter(expression_of(conditions, batch.schema))["f"].to_pylist() == kept
