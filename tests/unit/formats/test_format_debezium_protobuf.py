"""`debezium-protobuf-confluent` without Spark: messages of Confluent's converter, schemas, columns, damaged messages."""

from __future__ import annotations

import base64
import functools
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql import types as spark
from tests.unit.formats.registries import Registries

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ERROR
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.changelog.envelopes import DEBEZIUM_RECORD
from dynamic_kafka.formats.changelog.protobuf import DEBEZIUM_PROTOBUF_CONFLUENT, _written
from dynamic_kafka.formats.protobuf.confluent import batch_decoder
from dynamic_kafka.formats.protobuf.encoding import encoder
from dynamic_kafka.formats.protobuf.message_header import header_of
from dynamic_kafka.formats.protobuf.schemas import parse_schema, schema_text
from dynamic_kafka.formats.schema_registry import RegisteredSchema

NAME = "debezium-protobuf-confluent"
URL = {f"{NAME}.url": "http://registry:8081"}
COLUMNS = spark.StructType(
    [spark.StructField("id", spark.LongType(), nullable=False), spark.StructField("name", spark.StringType())]
)
# As Confluent's converter writes it, without options of its own.
ENVELOPE = """
syntax = "proto3";
package shop.public.orders;
message Envelope {
  Value before = 1; Value after = 2; Source source = 3; block transaction = 4; string op = 5; int64 ts_ms = 6;
  message Value { int64 id = 1; %s name = 2; double more = 3; }
  message Source { string version = 1; int64 ts_ms = 4; string db = 6; string schema = 8; string table = 9; }
  message block { string id = 1; int64 total_order = 2; int64 data_collection_order = 3; }
}
"""
PLAIN, OPTIONAL, WRAPPED = (
    ENVELOPE % "string",
    ENVELOPE % "optional string",
    ENVELOPE.replace("package", 'import "google/protobuf/wrappers.proto"; package') % "google.protobuf.StringValue",
)
ROWS = 'syntax = "proto3"; message Value { int64 id = 1; string name = 2; }'


@functools.cache
def made(text: str) -> RegisteredSchema:
    """A schema in base64, which is compiled once."""
    file = parse_schema(text, {}).file[-1]
    return RegisteredSchema("PROTOBUF", base64.b64encode(file.SerializeToString()).decode())


def part(number: int, data: bytes) -> bytes:
    """A field with a length."""
    return bytes([number << 3 | 2, len(data)]) + data


def row(id_: int, name: bytes | None = None) -> bytes:
    """A `Value`; without a name, if it is null."""
    return bytes([1 << 3, id_]) + (b"" if name is None else part(2, name))


def change(op: str, before: bytes | None, after: bytes | None, source: bytes = b"") -> bytes:
    """An `Envelope` with the time 5, without the header."""
    images = (b"" if image is None else part(number, image) for number, image in ((1, before), (2, after)))
    return b"".join(images) + part(3, source) + part(5, op.encode()) + b"\x30\x05"


def read(settings: Any, *messages: bytes | None, columns: spark.StructType = COLUMNS) -> list[Any]:
    """Messages as the format reads them."""
    found: list[Any] = batch_decoder(settings, DEBEZIUM_RECORD.schema(columns).toNullable())(
        pa.array(messages, pa.binary())
    ).to_pylist()  # fmt: skip
    return found


def test_messages_of_the_converter_are_read(registry: Registries) -> None:
    """Fields that no column needs are skipped; a row that is not in the message is null."""
    settings = registry(NAME, {7: made(PLAIN)})
    source = b"\x20\x04" + part(6, b"shop") + part(8, b"public") + part(9, b"orders")
    more = bytes([3 << 3 | 1]) + bytes(8)
    header = header_of(7, [0])
    updated, deleted, empty, gone, damaged = read(
        settings,
        header + change("u", row(1, b"a") + more, row(1, b"b"), source),
        header + change("d", row(1, b"b"), None),
        header,
        header_of(8, [0]) + change("c", None, row(1)),
        header + b"\xff",
    )
    assert updated == {
        "before": {"id": 1, "name": "a"},
        "after": {"id": 1, "name": "b"},
        "op": "u",
        "ts_ms": 5,
        "source": {"ts_ms": 4, "db": "shop", "schema": "public", "table": "orders"},
        ERROR: None,
    }
    assert (deleted["before"], deleted["after"], deleted["op"]) == ({"id": 1, "name": "b"}, None, "d")
    assert (empty["op"], empty["after"], empty[ERROR]) == ("", None, None)  # `changes` refuses the op
    assert gone[ERROR] == "Schema with id 8: 8 is unknown"
    assert "Error parsing message" in damaged[ERROR]
    assert damaged["op"] is damaged["after"] is None


@pytest.mark.parametrize(("schema", "null"), [(PLAIN, ""), (OPTIONAL, None), (WRAPPED, None)])
def test_a_null_is_kept_if_the_converter_keeps_it(registry: Registries, schema: str, null: str | None) -> None:
    """With `optional.for.nullables` or `wrapper.for.nullables`; a plain scalar without a value has its default."""
    settings = registry(NAME, {1: made(schema)})
    [found] = read(settings, header_of(1, [0]) + change("c", None, row(1)))
    assert found["after"] == {"id": 1, "name": null}


def test_the_type_of_a_time_is_not_in_the_schema(registry: Registries) -> None:
    """The converter writes Debezium's times as plain numbers: a TIMESTAMP column would be a guess."""
    settings = registry(NAME, {1: made(PLAIN)})
    columns = spark.StructType([spark.StructField("id", spark.TimestampNTZType())])
    with pytest.raises(ConfigurationError, match=r"'before.id' is of type timestamp_ntz, .* is int64; use bigint"):
        read(settings, header_of(1, [0]) + change("c", None, row(1)), columns=columns)


def test_rows_without_an_envelope_have_no_op(registry: Registries) -> None:
    """Such as those of ExtractNewRecordState; `changes` then says what is missing."""
    settings = registry(NAME, {1: made(ROWS)})
    [found] = read(settings, header_of(1, [0]) + row(1))
    assert found == dict.fromkeys(["before", "after", "op", "ts_ms", "source", ERROR])


def test_written_messages_are_read_again(registry: Registries) -> None:
    """The schema is made from the columns, and keeps nulls; the row that a change does not have is left out."""
    message = _written(COLUMNS, URL)
    assert message.name == "Envelope"
    schema = DEBEZIUM_RECORD.written(COLUMNS)
    changes: list[dict[str, Any]] = [
        {"before": None, "after": {"id": 1, "name": None}, "op": "c"},
        {"before": {"id": 0, "name": ""}, "after": None, "op": "d"},
    ]
    first, second = encoder(message, schema, "")(pa.array(changes, arrow_type(schema)), b"").messages.to_pylist()
    settings = registry(NAME, {1: made(schema_text(FileDescriptorSet.FromString(message.files).file[-1]))})
    assert first is not None
    assert second is not None
    header = header_of(1, [0])
    for expected, found in zip(changes, read(settings, header + first, header + second), strict=True):
        assert {name: found[name] for name in expected} == expected
        assert found["source"] is found["ts_ms"] is found[ERROR] is None


def test_a_given_schema_is_checked_before_the_first_row() -> None:
    """It has to be an envelope of the columns; columns that Protobuf does not have can only be read."""
    check = DEBEZIUM_PROTOBUF_CONFLUENT.check
    check(COLUMNS, URL)
    check(COLUMNS, {**URL, f"{NAME}.schema": made(PLAIN).text})
    wrong = f"Option '{NAME}.schema' is not Debezium's envelope of the columns, with the fields before, after and op"
    other = spark.StructType([spark.StructField("key", spark.LongType())])
    for schema, columns, why in (
        (ROWS, COLUMNS, "Column 'before' is not a field"),
        (PLAIN, other, "Column 'before.key' is not a field"),
    ):
        with pytest.raises(ConfigurationError, match=wrong) as caught:
            check(columns, {**URL, f"{NAME}.schema": made(schema).text})
        assert why in str(caught.value)
    with pytest.raises(ConfigurationError, match=f"Option '{NAME}.schema' cannot be used: protoc"):
        check(COLUMNS, {**URL, f"{NAME}.schema": "message"})
    with pytest.raises(ConfigurationError, match="the URL"):
        check(COLUMNS, {})


def test_columns_are_those_of_the_row(registry: Registries) -> None:
    """Of the subject's latest schema; it has to be an envelope."""
    columns = DEBEZIUM_PROTOBUF_CONFLUENT.columns
    assert columns is not None
    settings = registry(NAME, {1: made(WRAPPED)})
    options = {f"{NAME}.url": settings.url, f"{NAME}.subject": "orders-value"}
    found, added = columns(options)
    assert found.simpleString() == "struct<id:bigint,name:string,more:double>"
    assert added == {}
    for schema, why in (
        (
            made(ROWS),
            "is not Debezium's envelope",
        ),
        (RegisteredSchema("AVRO", '"string"'), "is of type AVRO, not PROTOBUF"),
    ):
        other = registry(NAME, {1: schema})
        with pytest.raises(ConfigurationError, match=f"of the subject 'orders-value' {why}"):
            columns({**options, f"{NAME}.url": other.url})
