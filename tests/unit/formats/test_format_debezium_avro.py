"""`debezium-avro-confluent` without Spark and without a registry: schemas, Debezium's semantic types, damaged values."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as spark
from tests import avro
from tests.avro import written

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.plan import UnreadableError
from dynamic_kafka.formats.avro.schemas import parse_schema
from dynamic_kafka.formats.changelog.avro import DEBEZIUM_AVRO_CONFLUENT, reader_text, writer_text
from dynamic_kafka.formats.changelog.envelopes import DEBEZIUM_RECORD
from dynamic_kafka.formats.format import ERROR

NAME = "debezium-avro-confluent"
URL = {f"{NAME}.url": "http://registry:8081"}
COLUMNS = spark.StructType(
    [spark.StructField("id", spark.LongType(), nullable=False), spark.StructField("name", spark.StringType())]
)


def connect(avro_type: str, name: str) -> dict[str, Any]:
    """A type as Kafka Connect's Avro converter writes it."""
    return {"type": avro_type, "connect.version": 1, "connect.name": name}


def envelope(*fields: tuple[str, Any]) -> dict[str, Any]:
    """A schema of PostgreSQL's changes, as Debezium 3 registers it; a table's column is a name and a type."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": name, "type": type_} for name, type_ in fields],
        "connect.name": "shop.public.orders.Value",
    }
    source = [("version", "string"), ("connector", "string"), ("ts_ms", "long"), ("db", "string"), ("schema", "string")]
    source += [("table", "string"), ("txId", ["null", "long"])]  # type: ignore[list-item]
    enum = {"type": "string", "connect.parameters": {"allowed": "true,first,last,false"}, "connect.default": "false"}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "namespace": "io.debezium.connector.postgresql",
                    "fields": [
                        *({"name": name, "type": type_} for name, type_ in source),
                        {"name": "snapshot", "type": [enum, "null"], "default": "false"},
                    ],
                },
            },
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
        "connect.version": 2,
        "connect.name": "shop.public.orders.Envelope",
    }


SOURCE = {"version": "3.0", "connector": "postgresql", "ts_ms": 1_700_000_000_001, "db": "shop", "schema": "public"}
SOURCE |= {"table": "orders", "txId": 7, "snapshot": "false"}


def message(schema: Any, op: str, before: Any, after: Any) -> bytes:
    """A message of such a schema, without the header."""
    value = {"before": before, "after": after, "op": op, "source": SOURCE, "ts_ms": 1_700_000_000_002}
    return written(schema, value)


def read(schema: Any, columns: spark.StructType, *messages: bytes) -> list[dict[str, Any]]:
    """Messages as the format reads them."""
    target = arrow_type(DEBEZIUM_RECORD.schema(columns))
    written, known = parse_schema(json.dumps(schema)), parse_schema(reader_text(columns, URL))
    found: list[Any] = avro.read(messages, written, known, target).to_pylist()
    return found


def test_the_written_schema_is_flinks() -> None:
    """A union, because the row type of Flink's envelope may be null; nested records have the path as their name."""
    row = (
        '{"type":"record","name":"record_%s","fields":[{"name":"id","type":"long"},'
        '{"name":"name","type":["null","string"],"default":null}]}'
    )
    fields = [f'{{"name":"{n}","type":["null",{row % n}],"default":null}}' for n in ("before", "after")]
    assert writer_text(COLUMNS, URL) == (
        '["null",{"type":"record","name":"record","namespace":"org.apache.flink.avro.generated","fields":['
        + ",".join([*fields, '{"name":"op","type":["null","string"],"default":null}]}]'])
    )


def test_a_message_of_debezium_is_read_with_its_metadata() -> None:
    """The fields of the envelope that no column needs are skipped."""
    schema = envelope(("id", "long"), ("name", ["null", "string"]), ("more", "double"))
    row = {"id": 1, "name": "a", "more": 1.5}
    [found] = read(schema, COLUMNS, message(schema, "u", row, row | {"name": None}))
    assert found == {
        "before": {"id": 1, "name": "a"},
        "after": {"id": 1, "name": None},
        "op": "u",
        "source": {"ts_ms": 1_700_000_000_001, "db": "shop", "schema": "public", "table": "orders"},
        "ts_ms": 1_700_000_000_002,
        ERROR: None,
    }


def test_a_message_of_flink_is_read_without_metadata() -> None:
    """Flink writes neither `source` nor `ts_ms`."""
    schema = json.loads(writer_text(COLUMNS, URL))
    after = {"id": 1, "name": "a"}
    [found] = read(schema, COLUMNS, written(schema, {"before": None, "after": after, "op": "c"}))
    assert (found["after"], found["source"], found["ts_ms"]) == (after, None, None)


def at(text: str) -> dt.datetime:
    """An instant."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


DECIMAL = {
    **connect("record", "io.debezium.data.VariableScaleDecimal"),
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
ZONED = connect("string", "io.debezium.time.ZonedTimestamp")


@pytest.mark.parametrize(
    ("written", "value", "column", "expected"),
    [
        (connect("long", "io.debezium.time.MicroTimestamp"), 1_123_456, "timestamp", at("1970-01-01T00:00:01.123456")),
        (
            connect("long", "io.debezium.time.NanoTimestamp"),
            1_123_456_789,
            "timestamp",
            at("1970-01-01T00:00:01.123456"),
        ),
        (connect("long", "io.debezium.time.NanoTimestamp"), -1, "timestamp", at("1969-12-31T23:59:59.999999")),
        (connect("long", "io.debezium.time.Timestamp"), 1_123, "timestamp", at("1970-01-01T00:00:01.123")),
        (connect("long", "io.debezium.time.MicroTimestamp"), 1_123_456, "bigint", 1_123_456),
        (connect("int", "io.debezium.time.Date"), 1, "date", dt.date(1970, 1, 2)),
        (connect("int", "io.debezium.time.Time"), 1, "time", dt.time(0, 0, 0, 1000)),
        (connect("long", "io.debezium.time.MicroTime"), 1, "time", dt.time(0, 0, 0, 1)),
        (connect("long", "io.debezium.time.NanoTime"), 1000, "time", dt.time(0, 0, 0, 1)),
        (ZONED, "2024-01-31T12:00:00.123456Z", "timestamp", at("2024-01-31T12:00:00.123456")),
        (ZONED, "2024-01-31T12:00:00.123456789+02:00", "timestamp", at("2024-01-31T10:00:00.123456")),
        (ZONED, "2024-01-31T12:00:00Z", "string", "2024-01-31T12:00:00Z"),
        (DECIMAL, {"scale": 2, "value": b"\x30\x39"}, "decimal", Decimal("123.4500")),
        (DECIMAL, {"scale": -2, "value": b"\xff"}, "decimal", Decimal("-100.0000")),
        (DECIMAL, {"scale": 76, "value": b"\x00"}, "decimal", Decimal("0.0000")),
    ],
)
def test_semantic_types_are_read_as_what_they_are(written: Any, value: Any, column: str, expected: Any) -> None:
    """By the name that Connect writes beside the Avro type. Flink reads the microseconds as milliseconds."""
    types: dict[str, spark.DataType] = {
        "timestamp": spark.TimestampType(),
        "bigint": spark.LongType(),
        "date": spark.DateType(),
        "time": spark.TimeType(6),
        "string": spark.StringType(),
        "decimal": spark.DecimalType(20, 4),
    }
    columns = spark.StructType([spark.StructField("a", types[column])])
    schema = envelope(("a", ["null", written]))
    found = read(schema, columns, message(schema, "c", None, {"a": value}), message(schema, "c", None, {"a": None}))
    assert [(row["after"]["a"], row[ERROR]) for row in found] == [(expected, None), (None, None)]


@pytest.mark.parametrize(
    ("written", "value", "problem"),
    [
        (ZONED, "infinity", "after.a is not a time with a zone"),
        (ZONED, "2024-01-31T12:00:00", "after.a is not a time with a zone"),
        (ZONED, "+10000-01-01T00:00:00Z", "after.a is not a time with a zone"),
        (DECIMAL, {"scale": 77, "value": b"\x01"}, "after.a has a scale of more than 76 digits"),
        (DECIMAL, {"scale": 30, "value": b"\x01"}, "after.a does not fit into decimal128"),
        (DECIMAL, {"scale": 0, "value": b"\x7f" * 20}, "after.a does not fit into decimal128"),
    ],
)
def test_semantic_values_that_do_not_fit_are_errors(written: Any, value: Any, problem: str) -> None:
    """Of their message alone."""
    type_ = spark.TimestampType() if written is ZONED else spark.DecimalType(20, 4)
    columns = spark.StructType([spark.StructField("a", type_)])
    schema = envelope(("a", ["null", written]))
    bad, good = (message(schema, "c", None, {"a": v}) for v in (value, None))
    found = read(schema, columns, good, bad, good)
    assert [row[ERROR] is None for row in found] == [True, False, True]
    assert problem in found[1][ERROR]


@pytest.mark.parametrize(
    ("written", "column", "shown"),
    [
        (connect("int", "io.debezium.time.Year"), spark.DateType(), "io.debezium.time.Year"),
        (connect("long", "io.debezium.time.MicroDuration"), spark.TimestampType(), "io.debezium.time.MicroDuration"),
        (connect("int", "io.debezium.time.Time"), spark.DateType(), "time-millis"),
    ],
)
def test_a_number_that_is_no_such_time_does_not_fit(written: Any, column: spark.DataType, shown: str) -> None:
    """A year is no number of days, and a duration is no time. As a number it can be read."""
    schema = envelope(("a", ["null", written]))
    data = message(schema, "c", None, {"a": 2024})
    with pytest.raises(UnreadableError, match=f"before.a is written as {shown} and is"):
        read(schema, spark.StructType([spark.StructField("a", column)]), data)
    [found] = read(schema, spark.StructType([spark.StructField("a", spark.LongType())]), data)
    assert found["after"] == {"a": 2024}


def test_a_given_schema_must_be_the_envelope() -> None:
    """Flink takes a nullable record of before, after and op; the metadata's fields are added for reading."""
    given = writer_text(COLUMNS, URL)
    DEBEZIUM_AVRO_CONFLUENT.check(COLUMNS, URL | {f"{NAME}.schema": given})
    names = [f["name"] for f in json.loads(reader_text(COLUMNS, URL | {f"{NAME}.schema": given}))["fields"]]
    assert names == ["before", "after", "op", "ts_ms", "source"]
    row_alone = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    for wrong, problem in {
        row_alone: "is not Debezium's envelope of the columns",
        '"string"': "is not Debezium's envelope of the columns",
        "{": "is not a valid Avro schema",
        given.replace('"long"', '"string"'): "before.id is string in its schema",
    }.items():
        with pytest.raises(ConfigurationError, match=problem):
            DEBEZIUM_AVRO_CONFLUENT.check(COLUMNS, URL | {f"{NAME}.schema": wrong})
