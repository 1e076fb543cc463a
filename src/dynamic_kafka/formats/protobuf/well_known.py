"""Google's well-known types as columns: wrappers, Duration, and the JSON values Struct, Value and ListValue.

| message | column |
|---|---|
| `google.protobuf.Int64Value` and the other wrappers | the type of their value; null if the field is not set |
| `google.protobuf.Duration` | INTERVAL DAY TO SECOND |
| `google.protobuf.Struct`, `Value`, `ListValue` | STRING with JSON |

Each of them may be a ROW of its fields instead, as in Flink. `google.protobuf.Timestamp` is handled where other values are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dynamic_kafka.errors import RowError

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

__all__ = ["DURATION", "JSON_VALUES", "wrapped", "write_durations", "write_json"]

DURATION = "google.protobuf.Duration"
JSON_VALUES = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def wrapped(field: FieldDescriptor) -> FieldDescriptor | None:
    """Return the field with the value in a wrapper; None if the field is not a wrapper."""
    message = field.message_type
    return message.fields_by_name["value"] if message is not None and message.full_name in _WRAPPERS else None


# --- writing ------------------------------------------------------------------------------------------------------------


def write_durations(array: pa.Array) -> list[Any]:
    """Return the fields of durations."""
    found: list[Any] = []
    for micros in array.cast(pa.int64()).to_pylist():
        if micros is None:
            found.append(None)
            continue
        seconds, rest = divmod(abs(micros), 1_000_000)
        sign = 1 if micros >= 0 else -1
        found.append({"seconds": sign * seconds, "nanos": sign * rest * 1000})
    return found


def write_json(field: FieldDescriptor, column: str) -> Callable[[pa.Array], list[Any]]:
    """Return what makes messages of JSON texts.

    Args:
        field: A field with one of `JSON_VALUES`.
        column: The column, for errors.
    """
    from google.protobuf.json_format import Error, ParseDict
    from google.protobuf.message_factory import GetMessageClass

    assert field.message_type is not None
    name, make = field.message_type.full_name, GetMessageClass(field.message_type)

    def message(text: str) -> Any:
        try:
            value = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_refuse)
            return ParseDict(value, make())
        except _NoDoubleError:
            raise RowError(column, f"has a number that a {name} cannot hold; its numbers are doubles") from None
        except (Error, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise RowError(column, f"is not JSON for a {name}") from None

    return lambda array: [None if text is None else message(text) for text in array.to_pylist()]


class _NoDoubleError(Exception):
    """Raised for a number that is not exactly a double, or too large for one."""


def _whole(text: str) -> int:
    number = int(text)
    try:
        if float(number) == number:
            return number
    except OverflowError:
        pass
    raise _NoDoubleError


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _NoDoubleError
    return number


def _refuse(constant: str) -> None:
    """Refuse `NaN` and `Infinity`, which Python takes for JSON."""
    raise ValueError(constant)
