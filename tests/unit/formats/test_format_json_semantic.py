"""Times and decimals that Kafka Connect and Debezium write into JSON as numbers and base64."""

# ruff: noqa: DTZ001  (wall times)

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
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
from tests.unit.formats.registries import Registries

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import format_named
from dynamic_kafka.formats.json.confluent import JSON_SCHEMA_CONFLUENT
from dynamic_kafka.formats.json.schemas import schema_of_connect, schema_text
from dynamic_kafka.formats.schema_registry import RegisteredSchema

TIME, CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
LTZ, NTZ, DEC = TimestampType(), TimestampNTZType(), DecimalType(10, 2)
SCALE_2 = {"scale": "2"}
MISFIT = object()
Read = Callable[[StructType, Any, list[str]], list[Any]]


_UTC_CASES: list[tuple[str, DataType, str, Any]] = [
    (f"{TIME}.MicroTimestamp", LTZ, "1123456", datetime(1970, 1, 1, 0, 0, 1, 123456, UTC)),
    (f"{TIME}.MicroTimestamp", NTZ, "1123456", datetime(1970, 1, 1, 0, 0, 1, 123456)),
    (f"{TIME}.MicroTimestamp", LongType(), "1123456", 1123456),
    (f"{TIME}.MicroTimestamp", StringType(), "1123456", "1123456"),
    (f"{TIME}.NanoTimestamp", NTZ, "-1", datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (f"{TIME}.Timestamp", NTZ, "1700000000000", datetime(2023, 11, 14, 22, 13, 20)),
    (f"{CONNECT}.Timestamp", LTZ, "1", datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
    (f"{TIME}.ZonedTimestamp", LTZ, '"2024-01-31T12:00:00.5+02:00"', datetime(2024, 1, 31, 10, 0, 0, 500000, UTC)),
    (f"{TIME}.ZonedTimestamp", NTZ, '"2024-01-31T12:00:00Z"', datetime(2024, 1, 31, 12)),
    (f"{TIME}.ZonedTimestamp", NTZ, '"2024-01-31T12:00:00"', datetime(2024, 1, 31, 12)),
    (f"{TIME}.Date", DateType(), "-1", date(1969, 12, 31)),
    (f"{TIME}.Date", DateType(), '"2024-01-31"', date(2024, 1, 31)),
    (f"{TIME}.Date", DateType(), "2932896", date.max),
    (f"{CONNECT}.Date", DateType(), "19000", date(2022, 1, 8)),
    (f"{TIME}.MicroTime", TimeType(6), "1", time(0, 0, 0, 1)),
    (f"{TIME}.MicroTime", TimeType(3), "1999", time(0, 0, 0, 1000)),
    (f"{CONNECT}.Time", TimeType(6), "86399999", time(23, 59, 59, 999000)),
    (f"{CONNECT}.Decimal", DEC, '"MDk="', Decimal("123.45")),
    (f"{CONNECT}.Decimal", DEC, '"/w=="', Decimal("-0.01")),
    (f"{CONNECT}.Decimal", DEC, '"1234"', Decimal("-26588.24")),  # digits, and base64 all the same
    (f"{CONNECT}.Decimal", DecimalType(10, 1), '"MDk="', Decimal("123.5")),  # rounded as in the format json
    (f"{CONNECT}.Decimal", DecimalType(10, 3), '"MDk="', Decimal("123.450")),
    (f"{CONNECT}.Decimal", DEC, "123.450", Decimal("123.45")),
    (f"{CONNECT}.Decimal", DEC, '"12.34"', Decimal("12.34")),
    (f"{CONNECT}.Decimal", StringType(), '"MDk="', "MDk="),
    ("io.debezium.data.VariableScaleDecimal", DEC, '{"scale":1,"value":"ew=="}', Decimal("12.30")),
    ("io.debezium.data.VariableScaleDecimal", DEC, '{"value":"ew==","scale":-1}', Decimal("1230.00")),
    (f"{TIME}.MicroTimestamp", NTZ, "null", None),
    # What is no time and no decimal does not fit. PostgreSQL has an infinity.
    *(
        (name, column, value, MISFIT)
        for name, column, value in [
            (f"{TIME}.MicroTimestamp", LTZ, "9223372036825200000"),
            (f"{TIME}.MicroTimestamp", NTZ, "1.5"),
            (f"{TIME}.MicroTimestamp", NTZ, '"1"'),
            (f"{TIME}.Timestamp", LTZ, "1" * 200),
            (f"{TIME}.Date", DateType(), "1e3"),
            (f"{TIME}.Date", DateType(), "2932897"),
            (f"{TIME}.Date", LTZ, "19000"),
            (f"{TIME}.MicroTime", TimeType(6), "-1"),
            (f"{TIME}.MicroTime", TimeType(6), "86400000000"),
            (f"{TIME}.ZonedTimestamp", LTZ, "1"),
            (f"{TIME}.ZonedTimestamp", LTZ, '"2024-01-31T12:00:00"'),
            (f"{TIME}.MicroDuration", LTZ, "5"),
            (f"{CONNECT}.Decimal", DEC, '""'),
            (f"{CONNECT}.Decimal", DEC, '"////////////AAAAAAAAAAAAAAAAAAAA"'),
            ("io.debezium.data.VariableScaleDecimal", DEC, '{"value":"ew=="}'),
            ("io.debezium.data.VariableScaleDecimal", DEC, '{"scale":"1","value":"ew=="}'),
            ("io.debezium.data.VariableScaleDecimal", DEC, '{"scale":1000,"value":"ew=="}'),
        ]
    ),
]


@pytest.fixture
def registered(registry: Registries) -> Read:
    """Read messages of columns with a JSON Schema."""
    name = "json-schema-confluent"

    def read(columns: StructType, schema: Any, values: list[str]) -> list[Any]:
        settings = registry(name, {7: RegisteredSchema("JSON", json.dumps(schema))})
        decoder = JSON_SCHEMA_CONFLUENT.decoder(columns, {f"{name}.url": settings.url})
        messages = [b"\x00\x00\x00\x00\x07" + value.encode() for value in values]
        return found_of(decoder(pa.array(messages, pa.binary())))

    return read


def included(columns: StructType, schema: Any, values: list[str]) -> list[Any]:
    """Read rows after inserts from messages that have Connect's schema in them."""
    before, after = ({"field": field, "type": "struct", **schema} for field in ("before", "after"))
    envelope = json.dumps({"type": "struct", "fields": [before, after]})
    messages = [f'{{"schema":{envelope},"payload":{{"op":"c","after":{value}}}}}'.encode() for value in values]
    decoder = format_named("debezium-json").decoder(columns, {"debezium-json.schema-include": True})
    found = decoder(pa.array(messages, pa.binary())).to_pylist()
    return [row["rows"][0]["row"] if row["__error"] is None else row["__error"] for row in found]


def found_of(rows: pa.Array) -> list[Any]:
    """The rows, or why there is none."""
    found = [(row.pop("__error"), row) for row in rows.to_pylist()]
    return [row if error is None else error for error, row in found]


@pytest.mark.parametrize(("name", "column", "value", "expected"), _UTC_CASES)
def test_a_value_is_read_as_what_it_stands_for(
    registered: Read,
    name: str,
    column: DataType,
    value: str,
    expected: Any,
) -> None:
    """For the type of its column: a BIGINT keeps the number. Connect's schema and JSON Schema say the same."""
    row, message = StructType().add("a", column), f'{{"a":{value}}}'
    of_connect = {"fields": [{"field": "a", "name": name, "type": "x", "parameters": SCALE_2}]}
    leaf = {"title": name, "connect.parameters": SCALE_2}
    of_json_schema = {"type": "object", "properties": {"a": {"oneOf": [{"type": "null"}, leaf]}}}
    ((by_registry,), (by_message,)) = registered(row, of_json_schema, [message]), included(row, of_connect, [message])
    if expected is MISFIT:
        assert by_registry == "It does not fit the columns: a"
        assert by_message == "It does not fit the columns: after.a"
    else:
        assert by_registry == by_message == {"a": expected}


def test_parts_are_read_as_what_they_stand_for(registered: Read) -> None:
    """In arrays and maps, beside fields that no column has. Of a field that is there twice, the last one counts."""
    row = StructType().add("l", ArrayType(DEC)).add("m", MapType(StringType(), StructType().add("d", DateType())))
    decimal = {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": SCALE_2}
    of_map = {"fields": [{"field": "d", "type": "int32", "name": f"{TIME}.Date"}], "type": "struct"}
    fields = [
        {"field": "l", "type": "array", "items": decimal},
        {"field": "m", "type": "map", "values": of_map},
    ]
    message = '{"x":[1e-7,{"\\u00fc":"\\ud83d"}],"l":["AQ=="],"l":["MDk=",null],"m":{"k":{"d":1,"e":1}}}'
    expected = {"l": [Decimal("123.45"), None], "m": [("k", {"d": date(1970, 1, 2)})]}
    assert included(row, {"fields": fields}, [message]) == [expected]
    of_decimal = {"title": f"{CONNECT}.Decimal", "connect.parameters": SCALE_2}
    properties = {
        "l": {"type": "array", "items": of_decimal},
        "m": {"additionalProperties": {"properties": {"d": {"title": f"{TIME}.Date"}}}},
    }
    assert registered(row, {"properties": properties}, [message]) == [expected]


def test_each_message_has_its_own_schema() -> None:
    """Also more of them than are kept. One that cannot be read is an error of the message."""
    row = StructType().add("a", NTZ)
    units = {"Timestamp": 1000, "MicroTimestamp": 1, "NanoTimestamp": 0.001}
    for _ in range(2):
        for number in range(20):
            for name, micros in units.items():
                schema = {"version": number, "fields": [{"field": "a", "name": f"{TIME}.{name}"}]}
                found = included(row, schema, ['{"a":5000}'])
                assert found == [{"a": datetime(1970, 1, 1) + timedelta(microseconds=5000 * micros)}]
    escaped = (
        b'{"schema":{"fields":[{"field":"after","fields":[{"field":"a","name":"io.debezium\\u002etime.Timestamp"}]}]},'
    )
    for beginning, expected in [
        (escaped, None),
        (b'{"schema":{"a":"io.debezium.\\ud800"},', 'Its "schema" cannot be read'),
    ]:
        decoder = format_named("debezium-json").decoder(row, {"debezium-json.schema-include": True})
        messages = pa.array([beginning + b'"payload":{"op":"c","after":{"a":5}}}'], pa.binary())
        (error,) = decoder(messages).field("__error").to_pylist()
        assert error is None if expected is None else error.startswith(expected)


def test_a_type_may_be_described_elsewhere_in_the_schema(
    registered: Read,
) -> None:
    """Columns are found there, too. A schema that contains itself has a last level."""
    row = StructType().add("a", DateType()).add("b", DateType())
    properties = {"a": {"$ref": "#/definitions/x"}, "b": {"allOf": [{"$ref": "#/definitions/x"}]}}
    schema = {"definitions": {"x": {"title": f"{TIME}.Date", "type": "integer"}}, "properties": properties}
    assert registered(row, schema, ['{"a":0,"b":1}']) == [{"a": date(1970, 1, 1), "b": date(1970, 1, 2)}]
    assert schema_of_connect({"properties": {"c": {"$ref": "#/no"}}}, row.add("c", DateType())) is None
    assert schema_of_connect({"$ref": "#"}, row) is None


def test_a_schema_with_types_that_are_only_read_is_not_written(registry: Registries) -> None:
    """Rows have times as texts: other readers of that schema would take them for counts. A decimal may be a number."""
    name = "json-schema-confluent"
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
                JSON_SCHEMA_CONFLUENT.rows(None, columns, {**options, f"{name}.schema": text})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schema", [None, 1, "x", [], {}, {"fields": 1}, {"fields": [1, {"field": []}]}, {"oneOf": [1]}]
)
def test_a_schema_of_any_form_says_something_or_nothing(schema: Any) -> None:
    """It comes from a message or another team, and may be anything."""
    row = StructType().add("a", DateType())
    assert included(row, {"fields": schema}, ['{"a":"2024-01-31"}']) == [{"a": date(2024, 1, 31)}]
    assert schema_of_connect(schema, row) is None


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
