"""Times and decimals that Kafka Connect and Debezium write into JSON as numbers and base64."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)
from tests.unit.formats.registries import registries

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import format_named
from dynamic_kafka.formats.json.confluent import JSON_SCHEMA_CONFLUENT
from dynamic_kafka.formats.json.schemas import schema_text
from dynamic_kafka.formats.json.semantic import plain, plan_of_connect, plan_of_json_schema
from dynamic_kafka.formats.schema_registry import RegisteredSchema

TIME, CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
LTZ, NTZ, DEC = TimestampType(), TimestampNTZType(), DecimalType(10, 2)
SCALE_2 = {"scale": "2"}


@pytest.mark.parametrize(
    ("name", "column", "value", "expected"),
    [
        (f"{TIME}.MicroTimestamp", LTZ, "1123456", '"1970-01-01 00:00:01.123456Z"'),
        (f"{TIME}.MicroTimestamp", NTZ, "1123456", '"1970-01-01 00:00:01.123456"'),
        (f"{TIME}.MicroTimestamp", LongType(), "1123456", "1123456"),
        (f"{TIME}.MicroTimestamp", StringType(), "1123456", "1123456"),
        (f"{TIME}.NanoTimestamp", NTZ, "-1", '"1969-12-31 23:59:59.999999"'),
        (f"{TIME}.Timestamp", NTZ, "1700000000000", '"2023-11-14 22:13:20"'),
        (f"{CONNECT}.Timestamp", LTZ, "1", '"1970-01-01 00:00:00.001000Z"'),
        (f"{TIME}.ZonedTimestamp", LTZ, '"2024-01-31T12:00:00.5+02:00"', '"2024-01-31 10:00:00.500000Z"'),
        (f"{TIME}.ZonedTimestamp", NTZ, '"2024-01-31T12:00:00Z"', '"2024-01-31 12:00:00"'),
        (f"{TIME}.Date", DateType(), "-1", '"1969-12-31"'),
        (f"{CONNECT}.Date", DateType(), "19000", '"2022-01-08"'),
        (f"{TIME}.MicroTime", TimeType(6), "1", '"00:00:00.000001"'),
        (f"{CONNECT}.Time", TimeType(6), "86399999", '"23:59:59.999000"'),
        (f"{CONNECT}.Decimal", DEC, '"MDk="', "123.45"),
        (f"{CONNECT}.Decimal", DEC, '"/w=="', "-0.01"),
        (f"{CONNECT}.Decimal", DEC, '"1234"', "-26588.24"),  # digits, and base64 all the same
        (f"{CONNECT}.Decimal", DEC, "123.450", "123.450"),
        (f"{CONNECT}.Decimal", StringType(), '"MDk="', '"MDk="'),
        ("io.debezium.data.VariableScaleDecimal", DEC, '{"scale":1,"value":"ew=="}', "12.3"),
        # A number that is no time does not stay one: the format json would read it as seconds. PostgreSQL has an infinity.
        (f"{TIME}.MicroTimestamp", LTZ, "9223372036825200000", '"#9223372036825200000"'),
        (f"{TIME}.MicroTimestamp", NTZ, "1.5", '"#1.5"'),
        (f"{TIME}.Date", DateType(), "1e3", '"#1e3"'),
        (f"{TIME}.MicroTime", TimeType(6), "-1", '"#-1"'),
        (f"{TIME}.ZonedTimestamp", LTZ, "1", '"#1"'),
        (f"{TIME}.Date", LTZ, "19000", '"#19000"'),
        (f"{TIME}.MicroDuration", LTZ, "5", '"#5"'),
        (f"{TIME}.Timestamp", LTZ, "1" * 200, f'"#{"1" * 200}"'),
        # Everything else that cannot be converted stays, and is an error of the format json.
        (f"{TIME}.MicroTimestamp", NTZ, '"1"', '"1"'),
        (f"{TIME}.MicroTimestamp", NTZ, "null", "null"),
        (f"{TIME}.ZonedTimestamp", LTZ, '"2024-01-31T12:00:00"', '"2024-01-31T12:00:00"'),
        (f"{CONNECT}.Decimal", DEC, '"12.34"', '"12.34"'),
        ("io.debezium.data.VariableScaleDecimal", DEC, '{"value":"ew=="}', '{"value":"ew=="}'),
    ],
)
def test_a_value_is_written_as_what_it_stands_for(name: str, column: DataType, value: str, expected: str) -> None:
    """For the type of its column: a BIGINT keeps the number. Connect's schema and JSON Schema say the same."""
    row = StructType().add("a", column)
    of_connect = {"type": "struct", "fields": [{"field": "a", "name": name, "type": "x", "parameters": SCALE_2}]}
    leaf = {"title": name, "connect.parameters": SCALE_2}
    of_json_schema = {"type": "object", "properties": {"a": {"oneOf": [{"type": "null"}, leaf]}}}
    message = f'{{"a":{value}}}'.encode()
    for plan in (plan_of_connect(of_connect, row), plan_of_json_schema(of_json_schema, row)):
        assert plain(message, lambda _, plan=plan: plan) == f'{{"a":{expected}}}'.encode()  # type: ignore[misc]


def test_the_rest_of_a_message_stays_digit_by_digit() -> None:
    """Numbers of any length, escapes, nested values; and also arrays and maps are converted."""
    row = StructType().add("l", ArrayType(DEC)).add("m", MapType(StringType(), StructType().add("d", DateType())))
    decimal = {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": SCALE_2}
    of_map = {"fields": [{"field": "d", "type": "int32", "name": f"{TIME}.Date"}], "type": "struct"}
    fields = [
        {"field": "l", "type": "array", "items": decimal},
        {"field": "m", "type": "map", "values": of_map},
    ]
    plan = plan_of_connect({"type": "struct", "fields": fields}, row)
    rest = r'"x":1.10000000000000000000001e-7,"y":[123456789012345678901234567890,true,{"\u00fc":"\ud83d\n"}],"z":NaN'
    message = f'{{"l":["MDk=",null],"m":{{"k":{{"d":1,"e":1}}}},{rest}}}'.encode()
    expected = f'{{"l":[123.45,null],"m":{{"k":{{"d":"1970-01-02","e":1}}}},{rest}}}'.encode()
    assert plain(message, lambda _: plan) == expected


@pytest.mark.parametrize("message", [b"", b"{", b"\xff", b"NULL", b'{"a":01}', b"\xef\xbb\xbf"])
def test_what_is_not_json_stays(message: bytes) -> None:
    """The format `json` says what is wrong."""
    assert plain(message, lambda _: {"fields": {}}) == message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b'{"s":"a\tb","a":1}', b'{"s":"a\\tb","a":"1970-01-01 00:00:00.000001Z"}'),
        (b' \n{"a":1} {"a":2}', b' \n{"a":"1970-01-01 00:00:00.000001Z"} {"a":2}'),
        (b'{"a":1}}x', b'{"a":"1970-01-01 00:00:00.000001Z"}}x'),
        ('\ufeff{"a":1}'.encode(), '\ufeff{"a":"1970-01-01 00:00:00.000001Z"}'.encode()),
        (b"[" * 100_000, b"{"),
    ],
    ids=["control character", "second value", "rest", "byte order mark", "too deep"],
)
def test_all_that_spark_takes_for_json_is_converted(message: bytes, expected: bytes) -> None:
    """What Spark would read, and is not converted, would be a wrong time; what Python cannot convert is refused."""
    schema = {"properties": {"a": {"title": f"{TIME}.MicroTimestamp"}}}
    plan = plan_of_json_schema(schema, StructType().add("a", LTZ))
    assert plain(message, lambda _: plan) == expected


def test_a_deep_message_is_refused_or_converted() -> None:
    """It depends on the version of Python, whose parser has a limit. Its time is never read as a number."""
    schema = {"properties": {"a": {"title": f"{TIME}.MicroTimestamp"}}}
    plan = plan_of_json_schema(schema, StructType().add("a", LTZ))
    deep = b'{"x":' + b"[" * 800 + b"]" * 800
    assert plain(deep + b',"a":1}', lambda _: plan) in (b"{", deep + b',"a":"1970-01-01 00:00:00.000001Z"}')


def test_a_type_may_be_described_elsewhere_in_the_schema() -> None:
    """Columns are found there, too. A schema that contains itself has a last level."""
    date = {"title": f"{TIME}.Date", "type": "integer"}
    row = StructType().add("a", DateType()).add("b", DateType()).add("c", DateType())
    properties = {
        "a": {"$ref": "#/definitions/x"},
        "b": {"allOf": [{"$ref": "#/definitions/x"}]},
        "c": {"$ref": "#/no"},
    }
    plan = plan_of_json_schema({"definitions": {"x": date}, "properties": properties}, row)
    assert plain(b'{"a":0,"b":0,"c":0}', lambda _: plan) == b'{"a":"1970-01-01","b":"1970-01-01","c":0}'
    assert plan_of_json_schema({"$ref": "#"}, row) is None


def test_a_schema_with_types_that_are_only_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows have times as texts: other readers of that schema would take them for counts. A decimal may be a number."""
    registry, name = registries(monkeypatch), "json-schema-confluent"
    leaf = {"title": f"{TIME}.MicroTimestamp", "type": "integer", "connect.type": "int64"}
    of_debezium = json.dumps({"type": "object", "properties": {"a": leaf}})
    of_rows = schema_text(StructType().add("d", DEC).add("l", LongType()))
    for text, written in ((of_debezium, False), (of_rows, True)):
        settings = registry(name, {1: RegisteredSchema("JSON", text)})
        options = {f"{name}.url": settings.url, f"{name}.subject": "orders-value"}
        assert JSON_SCHEMA_CONFLUENT.columns is not None
        columns, added = JSON_SCHEMA_CONFLUENT.columns(options)
        assert added == ({f"{name}.schema": text} if written else {})
        if not written:
            JSON_SCHEMA_CONFLUENT.check(columns, {**options, f"{name}.schema": text})  # reading is fine
            with pytest.raises(ConfigurationError, match=f"Option '{name}.schema': rows cannot be written with it"):
                JSON_SCHEMA_CONFLUENT.encode(None, columns, {**options, f"{name}.schema": text})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schema", [None, 1, "x", [], {}, {"fields": 1}, {"fields": [1, {"field": []}]}, {"oneOf": [1]}]
)
def test_a_schema_of_any_form_is_a_plan_or_none(schema: Any) -> None:
    """It comes from a message, which may hold anything."""
    row = StructType().add("a", DateType())
    assert plan_of_connect(schema, row) is None
    assert plan_of_json_schema(schema, row) is None


def test_the_written_schema_describes_the_written_json() -> None:
    """A column that may be null may be null in it; others are required."""
    row = StructType().add("id", LongType(), nullable=False).add("d", DEC)
    row.add("l", ArrayType(DateType())).add("m", MapType(StringType(), StructType().add("t", LTZ)))
    found = json.loads(schema_text(row))
    assert found["required"] == ["id"]
    assert found["properties"]["id"] == {"type": "integer", "connect.type": "int64"}
    null, decimal = found["properties"]["d"]["oneOf"]
    assert (null, decimal["type"], decimal["connect.parameters"]["scale"]) == ({"type": "null"}, "number", "2")
    assert found["properties"]["l"]["oneOf"][1]["items"]["oneOf"][1] == {"type": "string", "format": "date"}
    values = found["properties"]["m"]["oneOf"][1]["additionalProperties"]["oneOf"][1]
    assert values["properties"]["t"]["oneOf"][1] == {"type": "string"}


def test_it_is_found_by_its_name() -> None:
    """With the options of the registry and those of `json`."""
    assert format_named("json-schema-confluent") is JSON_SCHEMA_CONFLUENT
    keys = {option.key for option in JSON_SCHEMA_CONFLUENT.options}
    assert {f"json-schema-confluent.{name}" for name in ("url", "schema", "ignore-parse-errors")} <= keys
