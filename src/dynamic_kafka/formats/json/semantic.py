"""The semantic types of Kafka Connect and Debezium in JSON: numbers and base64 that stand for times and decimals.

Connect's JSON has a day or a millisecond as a number, and a decimal as base64. Only the schema says so: in the message
(`schemas.enable` of the JSON converter), or in a registry (JSON Schema). `plain` writes such a message again, with the texts
and numbers that the format `json` reads. All else stays what it was, number by number and digit by digit.

A number that cannot be converted to a time becomes a text that is no time, which is an error of the format `json`. It would
read some numbers as seconds since 1970.

Source: io.debezium.time and io.debezium.data of Debezium 3, org.apache.kafka.connect.data of Kafka 4.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.formats.format import count_part, parts_left
from dynamic_kafka.formats.json.schemas import referred
from dynamic_kafka.spark_versions import TimeType

__all__ = ["SEMANTIC_COLUMNS", "SEMANTIC_PREFIXES", "Plan", "plain", "plan_of_connect", "plan_of_json_schema"]

SEMANTIC_COLUMNS = (DateType, DecimalType, TimestampNTZType, TimestampType, TimeType)
"""The types of columns for which a semantic type matters."""

SEMANTIC_PREFIXES = (b"io.debezium.", b"org.apache.kafka.connect.data.")
"""How the names of semantic types begin; a message without them has none."""

Plan: TypeAlias = "Callable[[Any], Any] | dict[str, Any] | None"
"""What is converted: nothing, the value by a function, or its parts by the plans of `fields`, `items` or `values`."""

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_DECIMAL, _VARIABLE_DECIMAL = f"{_CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
_MICROS = {"Time": (1000, 1), "MicroTime": (1, 1), "NanoTime": (1, 1000)}
_INSTANTS = {"Timestamp": (1000, 1), "MicroTimestamp": (1, 1), "NanoTimestamp": (1, 1000)}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (a wall clock, written without a zone)
_DAY_US = 86_400 * 10**6
_MOST_DIGITS = 100
_DEEPEST = 30
_NO_TIME = "#"  # before a number that is no time
_BEGINNING = re.compile("\ufeff?[ \t\r\n]*")
_REFUSED = b"{"  # a message that the format `json` refuses


class _Raw(str):
    """A number as it is written in a message."""

    __slots__ = ()


# --- what a schema says -------------------------------------------------------------------------------------------------


def plan_of_connect(schema: Any, column: DataType) -> Plan:
    """Return the plan for values of a column, from the schema that Connect's JSON converter writes into messages.

    Args:
        schema: The schema; anything else has no plan.
        column: The column's type.
    """
    if not isinstance(schema, dict):
        return None
    leaf = _leaf(schema.get("name"), schema.get("parameters"), column)
    if leaf is not None:
        return leaf
    match column:
        case StructType() if isinstance(schema.get("fields"), list):
            parts = {str(f.get("field")): f for f in schema["fields"] if isinstance(f, dict)}
            return _fields({f.name: plan_of_connect(parts.get(f.name), f.dataType) for f in column.fields})
        case ArrayType(elementType=element):
            return _part("items", plan_of_connect(schema.get("items"), element))
        case MapType(valueType=element):
            return _part("values", plan_of_connect(schema.get("values"), element))
        case _:
            return None


def plan_of_json_schema(schema: Any, column: DataType) -> Plan:
    """Return the plan for values of a column, from a JSON Schema with Connect's names of types as titles.

    Args:
        schema: The JSON Schema of the value; anything else has no plan.
        column: The column's type.
    """
    return _plan_of_part(schema, schema, column, 0, parts_left())


def _plan_of_part(root: Any, schema: Any, column: DataType, depth: int, left: Iterator[int]) -> Plan:
    count_part(left)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    if "$ref" in schema:
        return _plan_of_part(root, referred(root, schema["$ref"]), column, depth + 1, left)
    for combined in ("oneOf", "anyOf", "allOf"):
        if isinstance(schema.get(combined), list):  # with null
            plans = [_plan_of_part(root, branch, column, depth + 1, left) for branch in schema[combined]]
            return next((plan for plan in plans if plan is not None), None)
    title = schema.get("title")
    # A decimal that is a number needs nothing.
    leaf = (
        None
        if (title, schema.get("type")) == (_DECIMAL, "number")
        else _leaf(title, schema.get("connect.parameters"), column)
    )
    if leaf is not None:
        return leaf
    match column:
        case StructType() if isinstance(properties := schema.get("properties"), dict):
            return _fields(
                {
                    f.name: _plan_of_part(root, properties.get(f.name), f.dataType, depth + 1, left)
                    for f in column.fields
                }
            )
        case ArrayType(elementType=element):
            return _part("items", _plan_of_part(root, schema.get("items"), element, depth + 1, left))
        case MapType(valueType=element):
            return _part("values", _plan_of_part(root, schema.get("additionalProperties"), element, depth + 1, left))
        case _:
            return None


def _fields(plans: Mapping[str, Plan]) -> Plan:
    found = {name: plan for name, plan in plans.items() if plan is not None}
    return {"fields": found} if found else None


def _part(name: str, plan: Plan) -> Plan:
    return None if plan is None else {name: plan}


def _leaf(name: Any, parameters: Any, column: DataType) -> Callable[[Any], Any] | None:
    """Return what converts a value with the semantic type `name` for a column; None if nothing has to be converted."""
    if not isinstance(name, str):
        return None
    kind = name.removeprefix(_DEBEZIUM).removeprefix(_CONNECT)
    known = name.startswith((_DEBEZIUM, _CONNECT))
    match column:
        case DecimalType() if name == _DECIMAL:
            scale = _integer((parameters or {}).get("scale")) if isinstance(parameters, dict) else None
            return None if scale is None else lambda value: _decimal(value, scale)
        case DecimalType() if name == _VARIABLE_DECIMAL:
            return _variable_decimal
        case DateType() if known and kind == "Date":
            return lambda value: _when(value, lambda days: (_EPOCH + timedelta(days=days)).date().isoformat())
        case TimeType() if known and kind in _MICROS:
            return lambda value: _when(value, lambda count: _time(count, *_MICROS[kind]))
        case TimestampType() | TimestampNTZType() if known and kind in _INSTANTS:
            zone = "Z" if isinstance(column, TimestampType) else ""
            return lambda value: _when(value, lambda count: _instant(count, *_INSTANTS[kind]) + zone)
        case TimestampType() | TimestampNTZType() if known and kind == "ZonedTimestamp":
            zone = "Z" if isinstance(column, TimestampType) else ""
            return lambda value: _zoned(value, zone)
        case TimestampType() if known:  # a day or a duration, for example
            return lambda value: _NO_TIME + value if isinstance(value, _Raw) else value
        case _:
            return None


# --- values -------------------------------------------------------------------------------------------------------------


def _integer(value: Any) -> int | None:
    try:
        return int(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    except ValueError:
        return None


def _when(value: Any, text: Callable[[int], str]) -> Any:
    """Return the text for a whole number, a text that is no time for any other number, and another value as it is."""
    if not isinstance(value, _Raw):
        return value
    number = _integer(value) if len(value) < _MOST_DIGITS else None
    try:
        return _NO_TIME + value if number is None else text(number)
    except (OverflowError, ValueError):
        return _NO_TIME + value


def _instant(count: int, micros: int, per_micro: int) -> str:
    return (_EPOCH + timedelta(microseconds=count * micros // per_micro)).isoformat(" ")


def _time(count: int, micros: int, per_micro: int) -> str:
    since = count * micros // per_micro
    if not 0 <= since < _DAY_US:
        raise ValueError
    return (_EPOCH + timedelta(microseconds=since)).time().isoformat()


def _zoned(value: Any, zone: str) -> Any:
    """Convert a text with any offset to UTC."""
    if isinstance(value, _Raw):
        return _NO_TIME + value
    if not isinstance(value, str):
        return value
    try:
        at = datetime.fromisoformat(value)
        return value if at.tzinfo is None else at.astimezone(UTC).replace(tzinfo=None).isoformat(" ") + zone
    except (OverflowError, ValueError):
        return value


def _decimal(value: Any, scale: int) -> Any:
    """Convert base64 of a two's complement, highest byte first; a number stays one (`decimal.format=NUMERIC`)."""
    if not isinstance(value, str) or isinstance(value, _Raw) or abs(scale) > _MOST_DIGITS:
        return value
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    if not 0 < len(data) < _MOST_DIGITS:
        return value
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return _Raw(format(Decimal((int(unscaled < 0), digits, -scale)), "f"))


def _variable_decimal(value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {"scale", "value"} or not isinstance(value["scale"], _Raw):
        return value
    scale = _integer(value["scale"])
    return value if scale is None else _decimal(value["value"], scale)


# --- messages -----------------------------------------------------------------------------------------------------------


def plain(message: bytes, plan_of: Callable[[Any], Plan]) -> bytes:
    """Return a message with its semantic values converted; as it is if there are none, or if it is not JSON.

    All that the format `json` takes for JSON is converted. It ignores what follows the first value, for example.

    Args:
        message: The message, in UTF-8.
        plan_of: Takes the parsed message, with numbers as texts, and returns its plan.
    """
    try:
        text = message.decode()
        begin = _end_of_beginning(text)
        value, end = _DECODER.raw_decode(text, begin)
        plan = plan_of(value)
        return message if plan is None else (text[:begin] + _text(_converted(value, plan)) + text[end:]).encode()
    except ValueError:
        return message
    except RecursionError:  # deeper than Python can read, but perhaps not too deep for the format
        return _REFUSED


_DECODER = json.JSONDecoder(parse_float=_Raw, parse_int=_Raw, parse_constant=_Raw, strict=False)


def _end_of_beginning(text: str) -> int:
    """Return where the JSON of a text begins."""
    found = _BEGINNING.match(text)
    return 0 if found is None else found.end()


def _converted(value: Any, plan: Plan) -> Any:
    if plan is None or value is None:
        return value
    if callable(plan):
        return plan(value)
    if isinstance(value, dict):
        if "values" in plan:
            return {name: _converted(part, plan["values"]) for name, part in value.items()}
        fields = plan.get("fields", {})
        return {name: _converted(part, fields.get(name)) for name, part in value.items()}
    if isinstance(value, list) and "items" in plan:
        return [_converted(part, plan["items"]) for part in value]
    return value


def _text(value: Any) -> str:
    match value:
        case _Raw():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{_text(part)}" for name, part in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)
