"""The conditions of a batch read: which offsets they leave out, and which rows.

Rules:

1. Conditions on `cluster`, `topic`, `partition`, `offset` and `timestamp` leave out ranges of offsets, as far as the log
   proves that no row of them is wanted (`source.rules.pruning`).
2. All conditions leave out rows where they are read, after their messages are decoded. So a message that cannot be read is
   what `format.on-error` says, whatever the conditions are.
3. Spark evaluates its filters again. So a row too many may be left, and never one too few: a filter that is not exactly
   Spark's own comparison is left to Spark.
4. A comparison with null is not true. NaN is equal to itself and greater than all other numbers, as in Spark.

Spark hands over filters of batches only. The rows of a stream are all handed to Spark, where watermarks follow them.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamic_kafka.source.rules.pruning import COMPARISONS, Condition

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.datasource import Filter

__all__ = ["SIGNS", "Comparison", "comparisons_of", "condition_of", "expression_of", "is_asked_for_filters"]

_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
_SIGNS = {  # by name: Spark 4.0 has no filters
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
    "IsNull": "is null",
    "IsNotNull": "is not null",
    "StringStartsWith": "starts with",
    "StringEndsWith": "ends with",
    "StringContains": "contains",
}
_NOT = {"EqualTo": "!=", "In": "not in"}
SIGNS = ("=", "!=", "<", "<=", ">", ">=", "in", "not in")
"""The operators that users know. Spark has some more."""
_OF_NUMBERS = {"=", "!=", "<", "<=", ">", ">=", "in"}
_OFFSETS: dict[str, type] = {"cluster": str, "topic": str, "partition": int, "offset": int, "timestamp": dt.datetime}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EXACT: tuple[tuple[str, type], ...] = (
    ("is_boolean", bool),
    ("is_integer", int),
    ("is_floating", float),
    ("is_decimal", Decimal),
    ("is_string", str),
    ("is_binary", bytes),
    ("is_date", dt.date),
    ("is_timestamp", dt.datetime),
    ("is_time", dt.time),
    ("is_duration", dt.timedelta),
)


class Comparison(NamedTuple):
    """A condition that holds for all wanted rows.

    Args:
        path: A column, or a field in one.
        sign: The operator.
        value: What the column is compared with; a tuple for `in` and `not in`.
    """

    path: tuple[str, ...]
    sign: str
    value: Any


def is_asked_for_filters() -> bool:
    """Return whether this process asks a reader which filters it takes.

    Spark refuses a reader that has `pushFilters` while `spark.sql.python.filterPushdown.enabled` is off. It asks in a
    process of its own, so only the reader of that process has the method.
    """
    main = sys.modules["__main__"]
    planner = sys.modules.get(_PLANNER, main if getattr(main.__spec__, "name", "") == _PLANNER else None)
    if planner is not None:
        _accept_all_times(planner)
    return planner is not None


def _accept_all_times(planner: Any) -> None:
    """Have Spark's process take filters with times that Python does not have: before the year 1, and after 9999.

    Spark's optimizer makes such filters, for example of casts between types of times, and a query would fail by them. Here
    they compare with `None.__class__`, which is no value of a column, so they are left to Spark.
    """
    read = planner.deserializeVariant

    class Value(NamedTuple):
        given: Any

        def toPython(self) -> Any:  # noqa: N802  (Spark's name)
            try:
                return read(self.given).toPython()
            except (OverflowError, ValueError):
                return type(None)

    planner.deserializeVariant = Value


def comparisons_of(filters: Iterable[Filter]) -> Iterator[Comparison]:
    """Yield those of Spark's filters that are comparisons."""
    for given in filters:
        negated = type(given).__name__ == "Not"
        found: Any = getattr(given, "child", given)  # what NOT negates
        sign = (_NOT if negated else _SIGNS).get(type(found).__name__)
        if sign is not None:
            yield Comparison(found.attribute, sign, getattr(found, "value", None))


def condition_of(found: Comparison) -> Condition | None:
    """Return a comparison as a condition that leaves out ranges of offsets; None if it leaves out none."""
    (column, *inner), sign = found.path, found.sign
    values = found.value if sign == "in" else (found.value,)
    wanted = _OFFSETS.get(column)
    if inner or wanted is None or not all(type(one) is wanted for one in values):
        return None
    if sign not in (COMPARISONS if wanted is str else _OF_NUMBERS):
        return None
    if wanted is dt.datetime:
        if any(one.tzinfo is None for one in values):
            return None
        values = tuple((one - _EPOCH) // dt.timedelta(microseconds=1) for one in values)
    return Condition(column, sign, tuple(values) if sign == "in" else values[0])


def expression_of(comparisons: Iterable[Comparison], types: pa.Schema) -> pc.Expression | None:
    """Return comparisons as one expression on batches; None if there is none that is exactly Spark's.

    Args:
        comparisons: The comparisons. They may name columns that do not exist.
        types: The columns of the batches.
    """
    found = (_expression(one, type_) for one in comparisons if (type_ := _type_at(one.path, types)) is not None)
    known = [expression for expression in found if expression is not None]
    return reduce(and_, known) if known else None


def _type_at(path: tuple[str, ...], types: pa.Schema) -> pa.DataType | None:
    """Return the type of a column, or of a field in one; None if it does not exist."""
    found: Any = types
    for name in path:
        if name not in getattr(found, "names", ()):
            return None
        found = found.field(name).type
    return found


def _expression(found: Comparison, type_: pa.DataType) -> pc.Expression | None:
    """Return a comparison with a column of a type; None if it is not exactly Spark's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    field = pc.field(*found.path)
    if found.sign in ("is null", "is not null"):
        return field.is_null() if found.sign == "is null" else field.is_valid()
    values = tuple(found.value) if found.sign in ("in", "not in") else (found.value,)
    if None in values:
        if found.sign != "in":
            return pc.scalar(False)
        values = tuple(value for value in values if value is not None)
    exact = [kind for test, kind in _EXACT if getattr(pa.types, test)(type_)]
    zoned = getattr(type_, "tz", None) is not None
    for value in values:
        if type(value) not in exact or value != value:  # noqa: PLR0124  (NaN)
            return None
        if isinstance(value, dt.datetime) and (value.tzinfo is not None) != zoned:
            return None
    try:
        compared = pa.array(values, type_)
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    match found.sign:
        case "in" | "not in":
            among = field.isin(compared)
            return field.is_valid() & (among if found.sign == "in" else ~among)
        case "starts with":
            return pc.starts_with(field, pattern=values[0])
        case "ends with":
            return pc.ends_with(field, pattern=values[0])
        case "contains":
            return pc.match_substring(field, pattern=values[0])
        case ">" | ">=" if pa.types.is_floating(type_):
            return COMPARISONS[found.sign](field, compared[0]) | pc.is_nan(field)
        case _:
            return COMPARISONS[found.sign](field, compared[0])
