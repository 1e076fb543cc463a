"""The conditions of a bounded read: which offsets they leave out, and which rows.

Rules:

1. Conditions on `cluster`, `topic`, `partition`, `offset` and `timestamp` leave out ranges of offsets, as far as the log
   proves that no row of them is wanted (`source.rules.pruning`).
2. A query's conditions are in conjunctive form: of each `AnyOf`, one comparison has to hold. Those of several leave out no
   offsets.
3. Of a history in Parquet, row groups are skipped if their statistics show that no row is wanted.
4. All conditions leave out rows where they are read, after their messages are decoded. So a message that cannot be read is
   what `format.on-error` says, whatever the conditions are.
5. A comparison with null is not true. NaN is equal to itself and greater than all other numbers, as in Spark.

`read_arrow` has them from its user, and a query of SQL from its text (`sql.queries.wanted_rows`). Spark's own filters are
not taken: Spark 4.1 to 4.3 keep what a reader makes of them for all queries on one DataFrame, so `df.where(...)` would take
rows from the next query on `df`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamic_kafka.history.model import HISTORY_ROW
from dynamic_kafka.source.rules.pruning import COMPARISONS, Condition

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = [
    "EPOCH",
    "MOST_COMPARISONS",
    "SEVERAL",
    "SIGNS",
    "AnyOf",
    "Comparison",
    "as_text",
    "condition_of",
    "described",
    "expression_of",
    "from_text",
    "type_at",
]

SIGNS = ("=", "!=", "<", "<=", ">", ">=", "in", "not in")
"""The operators that users know. Queries of SQL have `starts with` and those of `_UNARY`, too."""
MOST_COMPARISONS = 500
"""The most comparisons of one read: Arrow walks a chain of them by recursion, and thousands end the process."""
_UNARY = ("is null", "is not null")
SEVERAL = ("in", "not in")
_OFFSETS: dict[str, type] = {"cluster": str, "topic": str, "partition": int, "offset": int, "timestamp": dt.datetime}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
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
    """A comparison of a column with constants.

    Args:
        path: A column, or a field in one.
        sign: The operator.
        value: What the column is compared with; a tuple for `in` and `not in`; None for `is null` and `is not null`.
    """

    path: tuple[str, ...]
    sign: str
    value: Any = None

    @classmethod
    def of(cls, path: tuple[str, ...], sign: str, values: Sequence[Any]) -> Comparison:
        """Return a comparison with these `values`."""
        return cls(path, sign, tuple(values) if sign in SEVERAL else values[0] if values else None)

    @property
    def values(self) -> tuple[Any, ...]:
        """Return what the column is compared with: one value, several for `in` and `not in`, none for `is null`."""
        return () if self.sign in _UNARY else tuple(self.value) if self.sign in SEVERAL else (self.value,)


AnyOf = tuple[Comparison, ...]
"""A condition that holds for all wanted rows: one of the comparisons is true."""


def as_text(conditions: Iterable[AnyOf], types: Mapping[tuple[str, ...], pa.DataType]) -> str:
    """Return conditions as the text of an option; `types` has those of their columns."""
    import pyarrow as pa

    names, columns = [], []
    for number, any_of in enumerate(conditions):
        for one in any_of:
            names.append(json.dumps([number, one.path, one.sign]))
            columns.append(pa.array([one.values], pa.list_(types[one.path])))
    batch = pa.RecordBatch.from_arrays(columns, names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def from_text(text: str) -> tuple[AnyOf, ...]:
    """Return the conditions of an option's text."""
    import pyarrow as pa

    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        (batch,) = reader
    found: dict[int, AnyOf] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        number, path, sign = json.loads(name)
        found[number] = (*found.get(number, ()), Comparison.of(tuple(path), sign, column[0].as_py()))
    return tuple(found.values())


def described(text: str) -> str:
    """Return the conditions of an option's text for people."""
    found = []
    for any_of in from_text(text):
        if any_of[0].path[0] != HISTORY_ROW:
            known = [f"{'.'.join(p)} {sign}" + ("" if sign in _UNARY else f" {value!r}") for p, sign, value in any_of]
            found.append(known[0] if len(known) == 1 else f"({' OR '.join(known)})")
    return " AND ".join(found)


def condition_of(any_of: AnyOf) -> Condition | None:
    """Return a condition as one that leaves out ranges of offsets; None if it leaves out none."""
    if len(any_of) > 1:
        return None
    ((column, *inner), sign, _), values = any_of[0], any_of[0].values
    wanted = _OFFSETS.get(column)
    if inner or wanted is None or not all(type(one) is wanted for one in values):
        return None
    if sign not in COMPARISONS:
        return None
    if wanted is dt.datetime:
        if any(one.tzinfo is None for one in values):
            return None
        values = tuple((one - EPOCH) // dt.timedelta(microseconds=1) for one in values)
    return Condition(column, sign, tuple(values) if sign == "in" else values[0])


def expression_of(conditions: Iterable[AnyOf], types: pa.Schema) -> pc.Expression | None:
    """Return conditions as one expression on batches; None without one.

    Args:
        conditions: The conditions. One with a column that does not exist, or with another type's value, is ignored.
        types: The columns of the batches.
    """
    found = None
    for any_of in conditions:
        compared = [_expression(one, type_at(one.path, types)) for one in any_of]
        known = [expression for expression in compared if expression is not None]
        if len(known) == len(any_of):
            found = reduce(or_, known) if found is None else found & reduce(or_, known)
    return found


def of_history(conditions: Iterable[AnyOf], *, decoded: bool) -> list[AnyOf]:
    """Return the conditions on columns of a history's files: those of the source, or if `decoded` those of a table."""
    kept = [any_of for any_of in conditions if all((one.path[0] == HISTORY_ROW) == decoded for one in any_of)]
    return [tuple(one._replace(path=one.path[decoded:]) for one in any_of) for any_of in kept]


def type_at(path: tuple[str, ...], types: pa.Schema) -> pa.DataType | None:
    """Return the type of a column, or of a field in one; None if it does not exist."""
    found: Any = types
    for name in path:
        if name not in getattr(found, "names", ()):
            return None
        found = found.field(name).type
    return found


def _expression(found: Comparison, type_: pa.DataType | None) -> pc.Expression | None:
    """Return a comparison with a column of a type; None if they cannot be compared."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if type_ is None:
        return None
    field = pc.field(*found.path)
    if found.sign in _UNARY:
        return field.is_null() if found.sign == "is null" else field.is_valid()
    values = found.values
    if None in values:
        if found.sign != "in":
            return pc.scalar(False)
        values = tuple(value for value in values if value is not None)
    exact = [kind for test, kind in _EXACT if getattr(pa.types, test)(type_)]
    zoned = getattr(type_, "tz", None) is not None
    if not exact:
        return None
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
            if pa.types.is_floating(type_) and 0.0 in values:  # of which Arrow's sets have two
                compared = pa.array([*values, 0.0, -0.0], type_)
            among = field.isin(compared)
            return field.is_valid() & (among if found.sign == "in" else ~among)
        case "starts with":
            return pc.starts_with(field, pattern=values[0]) if pa.types.is_string(type_) else None
        case ">" | ">=" if pa.types.is_floating(type_):
            return COMPARISONS[found.sign](field, compared[0]) | pc.is_nan(field)
        case _:
            return COMPARISONS[found.sign](field, compared[0])
