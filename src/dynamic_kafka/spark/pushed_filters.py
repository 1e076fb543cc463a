"""Spark's filters on a batch read, as the conditions by which ranges are left out (`source.rules.pruning`)."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dynamic_kafka.source.rules.pruning import COMPARISONS, Condition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["condition_of", "conditions_of", "is_asked_for_filters"]

_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
_SIGNS = {  # by name: Spark 4.0 has no filters
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
    "StringStartsWith": "starts with",
    "StringEndsWith": "ends with",
    "StringContains": "contains",
}
_OF_NUMBERS = {"=", "!=", "<", "<=", ">", ">=", "in"}
_TYPES: dict[str, type] = {"cluster": str, "topic": str, "partition": int, "offset": int, "timestamp": dt.datetime}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def is_asked_for_filters() -> bool:
    """Return whether this process asks a reader which filters it takes.

    Spark refuses a reader that has `pushFilters` while `spark.sql.python.filterPushdown.enabled` is off. It asks in a
    process of its own, so only the reader of that process has the method.
    """
    return _PLANNER in sys.modules or getattr(sys.modules["__main__"].__spec__, "name", "") == _PLANNER


def conditions_of(filters: Iterable[Filter]) -> tuple[Condition, ...]:
    """Return the conditions among filters that hold together. The others are left to Spark, which evaluates all of them."""
    return tuple(condition for found in filters for condition in _of(found))


def _of(found: Any) -> Iterator[Condition]:
    sign = _SIGNS.get(type(found).__name__, "")
    if type(found).__name__ == "Not" and type(found.child).__name__ == "EqualTo":
        found, sign = found.child, "!="
    if not sign:
        return
    condition = condition_of(found.attribute, sign, found.value)
    if condition is not None:
        yield condition


def condition_of(path: tuple[str, ...], sign: str, value: Any) -> Condition | None:
    """Return a comparison as a condition; None if no range is left out by it.

    Args:
        path: A column, or a field in one.
        sign: The operator. Only those of `pruning.COMPARISONS` are known.
        value: What the column is compared with; several values for `in`.
    """
    (column, *inner), values = path, value if sign == "in" else (value,)
    wanted = _TYPES.get(column)
    if inner or wanted is None or not all(type(one) is wanted for one in values):
        return None
    if sign not in (COMPARISONS if wanted is str else _OF_NUMBERS):
        return None
    if wanted is dt.datetime:
        if any(one.tzinfo is None for one in values):
            return None
        values = tuple((one - _EPOCH) // dt.timedelta(microseconds=1) for one in values)
    return Condition(column, sign, tuple(values) if sign == "in" else values[0])
