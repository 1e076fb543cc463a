"""Google's well-known types as columns: wrappers, Duration, and the JSON values Struct, Value and ListValue.

| message | column |
|---|---|
| `google.protobuf.Int64Value` and the other wrappers | the type of their value; null if the field is not set |
| `google.protobuf.Duration` | INTERVAL DAY TO SECOND |
| `google.protobuf.Struct`, `Value`, `ListValue` | STRING with JSON |

Each of them may be a ROW of its fields instead, as in Flink. `google.protobuf.Timestamp` is handled where other values are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

__all__ = ["DURATION", "JSON_VALUES", "wrapped"]

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
