"""The semantic types of Kafka Connect and Debezium in Avro: what a number, a text or a record stands for.

Connect's Avro converter writes the name of such a type as `connect.name`. It adds Avro's logical type for its own types, but
not for Debezium's. A microsecond would then be read as a millisecond.

Source: io.debezium.time and io.debezium.data of Debezium 3.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["VARIABLE_SCALE_DECIMAL", "ZONED_TIMESTAMP", "converted", "no_time", "with_logical_types"]

ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
"""A text such as `2024-01-31T12:00:00.123456Z`."""
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""A record of `scale` and `value`, which are the digits as in Avro's decimal."""

_LOGICAL_TYPES = {
    "io.debezium.time.Date": ("int", "date"),
    "io.debezium.time.Time": ("int", "time-millis"),
    "io.debezium.time.MicroTime": ("long", "time-micros"),
    "io.debezium.time.NanoTime": ("long", "time-nanos"),
    "io.debezium.time.Timestamp": ("long", "timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "timestamp-micros"),
    "io.debezium.time.NanoTimestamp": ("long", "timestamp-nanos"),
}


def with_logical_types(part: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a schema, with the logical type for its semantic type of Debezium, if it has one."""
    known = _LOGICAL_TYPES.get(str(part.get("connect.name")))
    if known is None or part.get("type") != known[0] or "logicalType" in part:
        return part
    return {**part, "logicalType": known[1]}


def no_time(part: Any) -> str | None:
    """Return the semantic type of a number that is neither a time nor a date, such as a duration or a year."""
    name = str(part.get("connect.name"))
    return name if name.startswith("io.debezium.") and "logicalType" not in part else None


def converted(kind: str, written: Any, target: pa.DataType) -> str | None:
    """Return the semantic type from which a part of a writer's schema is converted to a column; None for most parts.

    Args:
        kind: The Avro type of the part.
        written: The part.
        target: The column's type.
    """
    name = written.get("connect.name")
    if (kind, name) == ("string", ZONED_TIMESTAMP) and pa.types.is_timestamp(target):
        return ZONED_TIMESTAMP
    if (kind, name) == ("record", VARIABLE_SCALE_DECIMAL) and pa.types.is_decimal(target):
        fields = [(field["name"], field["type"]) for field in written["fields"]]
        return VARIABLE_SCALE_DECIMAL if fields == [("scale", "int"), ("value", "bytes")] else None
    return None
