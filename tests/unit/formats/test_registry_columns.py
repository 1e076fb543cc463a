"""The columns that schemas of a registry describe, and tables without columns; the registry itself is in other tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2, type_pb2
from pyspark.sql.types import StringType

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.formats.avro import columns as avro
from dynamic_kafka.formats.avro.schemas import parse_schema
from dynamic_kafka.formats.json import schemas as json_schema
from dynamic_kafka.formats.json.schemas import schema_of_connect
from dynamic_kafka.formats.protobuf import columns as protobuf
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.definition import TableDefinition
from dynamic_kafka.sql.tables.derived import with_registry_columns


def record(**fields: Any) -> str:
    """An Avro record."""
    made = [{"name": name, "type": type_} for name, type_ in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": made})


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("boolean", "boolean"),
        ("bytes", "binary"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 4}, "binary"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "time(3)"),
        ({"type": "long", "logicalType": "time-micros"}, "time(6)"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "timestamp_ntz"),
        ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "timestamp"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "decimal(10,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}, "binary"),
        ({"type": "array", "items": ["null", "long"]}, "array<bigint>"),
        ({"type": "map", "values": "double"}, "map<string,double>"),
        (json.loads(record(x="int")) | {"name": "N"}, "struct<x:int>"),
    ],
)
def test_an_avro_type_is_a_column(type_: Any, column: str) -> None:
    """Alone it is NOT NULL; in a union with null, whatever the order, it may be null."""
    alone, optional, last = (
        avro.columns_of(parse_schema(record(a=type_))).fields,
        *(avro.columns_of(parse_schema(record(a=union))).fields for union in (["null", type_], [type_, "null"])),
    )
    assert [(f.dataType.simpleString(), f.nullable) for (f,) in (alone, optional, last)] == [
        (column, False),
        (column, True),
        (column, True),
    ]


def test_the_digits_of_timestamps_are_kept() -> None:
    """For the column's type in SQL."""
    types = {unit: {"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")}
    found = avro.columns_of(parse_schema(record(**types, n=["null", types["millis"]])))
    assert [f.metadata for f in found.fields] == [{"precision": 3}, {"precision": 6}, {"precision": 3}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"string"', "not a record"),
        (record(a=["int", "string"]), "Field 'a' of the schema is a union of several types"),
        (record(a="null"), "Field 'a' of the schema is always null"),
        (record(a=["null", "R"]), "contains itself"),
    ],
)
def test_an_avro_schema_that_cannot_be_columns_is_refused(text: str, problem: str) -> None:
    """With the field."""
    with pytest.raises(ConfigurationError, match=problem):
        avro.columns_of(parse_schema(text))


def test_new_fields_of_a_writer_are_found_at_any_depth() -> None:
    """An alias is no new field, and neither is one of a type that is no record."""
    nested, wider = (json.loads(record(**dict.fromkeys(names, "int"))) | {"name": "N"} for names in ("x", "xy"))
    schema = json.loads(record(a="int", n=["null", nested]))
    schema["fields"][0]["aliases"] = ["old"]
    writer = record(old="int", b="string", n=wider, c={"type": "array", "items": "int"})
    assert avro.new_fields(parse_schema(writer), parse_schema(json.dumps(schema))) == ["b", "n.y", "c"]


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "connect.type": "int16"}, "smallint"),
        ({"type": "number"}, "double"),
        ({"type": "string", "format": "date-time"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"enum": ["a", "b"]}, "string"),
        ({"title": "org.apache.kafka.connect.data.Timestamp", "type": "integer", "connect.type": "int64"}, "timestamp"),
        ({"title": "io.debezium.time.MicroTimestamp", "type": "integer"}, "timestamp_ntz"),
        ({"title": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}}, "decimal(38,2)"),
        ({"type": "array", "items": {"type": "boolean"}}, "array<boolean>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"type": "object", "properties": {"x": {"type": "string"}}}, "struct<x:string>"),
        ({"$ref": "#/definitions/d"}, "boolean"),
        ({"type": ["null", "string"]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "string"),
    ],
)
def test_a_property_of_a_json_schema_is_a_column(schema: Any, column: str) -> None:
    """By Connect's types, else by those of JSON."""
    whole = {"type": "object", "properties": {"a": schema}, "definitions": {"d": {"type": "boolean"}}}
    (found,) = json_schema.columns_of(json.dumps(whole)).fields
    assert (found.dataType.simpleString(), found.nullable) == (column, True)
    required = json_schema.columns_of(json.dumps(whole | {"required": ["a"]})).fields[0]
    assert required.nullable == ("oneOf" in schema or isinstance(schema.get("type"), list))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "Property 'a' of the schema has the type \"array\" without"),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, "has several types"),
        ({"$ref": "#/definitions/none"}, "refers to '#/definitions/none'"),
        ({"$ref": "other.json"}, "refers to 'other.json'"),
        ({"$ref": "#/properties/a"}, "contains itself"),
        ({"title": "org.apache.kafka.connect.data.Decimal"}, "is a decimal without a scale"),
        (True, "has no type"),
    ],
)
def test_a_json_schema_that_cannot_be_columns_is_refused(schema: Any, problem: str) -> None:
    """With the property."""
    with pytest.raises(ConfigurationError, match=problem):
        json_schema.columns_of(json.dumps({"type": "object", "properties": {"a": schema}}))


def test_a_protobuf_message_is_columns() -> None:
    """Google's own message types have most of what there is; one that contains itself is refused."""
    found = protobuf.columns_of(type_pb2.EnumValue.DESCRIPTOR)
    assert found.simpleString() == (
        "struct<name:string,number:int,options:array<struct<name:string,value:struct<type_url:string,value:binary>>>>"
    )
    assert protobuf.columns_of(timestamp_pb2.Timestamp.DESCRIPTOR).simpleString() == "struct<seconds:bigint,nanos:int>"
    with pytest.raises(ConfigurationError, match=r"google\.protobuf\.DescriptorProto contains itself"):
        protobuf.columns_of(descriptor_pb2.DescriptorProto.DESCRIPTOR)


def layers(count: int) -> dict[str, list[str]]:
    """Names, and the names of the next layer that each of them has eight times."""
    return {f"L{i}": [f"L{i + 1}"] * 8 if i + 1 < count else [] for i in range(count)}


def avro_bomb() -> None:
    """Records that have the next one several times."""
    inner: Any = "int"
    for i in range(20):
        fields = [{"name": "f0", "type": inner}, *({"name": f"f{k}", "type": inner} for k in range(1, 8))]
        if isinstance(inner, dict):
            fields[1:] = [{**field, "type": inner["name"]} for field in fields[1:]]
        inner = {"type": "record", "name": f"R{i}", "fields": fields}
    avro.columns_of(parse_schema(json.dumps(inner)))


def json_bomb(of: Callable[[Any], object], key: str) -> None:
    """Parts of the schema that refer to the next one several times."""
    parts: dict[str, Any] = {}
    for name, others in layers(14).items():
        refer = [{"$ref": f"#/definitions/{other}"} for other in others] or [{"type": "string"}]
        of_key = refer if key == "oneOf" else {f"p{i}": part for i, part in enumerate(refer)}
        parts[name] = {"type": "object", key: of_key}
    of({"definitions": parts, **parts["L0"]})


def protobuf_bomb() -> None:
    """Messages that have the next one several times."""
    file = descriptor_pb2.FileDescriptorProto(name="bomb.proto", syntax="proto3")
    for name, others in layers(20).items():
        message = file.message_type.add(name=name)
        for i, other in enumerate(others or [""]):
            field = message.field.add(name=f"f{i}", number=i + 1, label=1, type=11 if other else 5)
            if other:
                field.type_name = f".{other}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    protobuf.columns_of(pool.FindMessageTypeByName("L0"))


@pytest.mark.parametrize(
    "bomb",
    [
        avro_bomb,
        protobuf_bomb,
        lambda: json_bomb(lambda schema: json_schema.columns_of(json.dumps(schema)), "properties"),
        lambda: json_bomb(lambda schema: schema_of_connect(schema, StringType()), "oneOf"),
    ],
)
def test_a_short_schema_does_not_become_any_number_of_columns(bomb: Callable[[], None]) -> None:
    """Names stand for whole schemas. With 8 of the next one in each of some layers there would be billions of columns."""
    with pytest.raises(ConfigurationError, match="more than 10,000 parts"):
        bomb()


def test_a_json_schema_of_any_depth_is_refused() -> None:
    """By words, and not by Python's own limit."""
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        json_schema.columns_of("[" * 100_000 + "]" * 100_000)


KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'k:9092', 'properties.group.id' = 'g'"
SCHEMA = record(id="long", at={"type": "long", "logicalType": "local-timestamp-millis"}, name=["null", "string"])
AVRO = f"{KAFKA}, 'format' = 'avro-confluent', 'avro-confluent.url' = 'http://r', 'avro-confluent.schema' = '{SCHEMA}'"


def made(text: str) -> TableDefinition:
    """The table that a statement creates."""
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    return with_registry_columns(statement.definition)


def test_a_table_without_columns_has_those_of_its_schema() -> None:
    """Before its other columns; the watermark may name one of them."""
    found = made(
        f"CREATE TABLE t (`offset` BIGINT METADATA, up AS upper(name), WATERMARK FOR `at` AS `at`) WITH ({AVRO})"
    )
    assert found.ddl().splitlines()[1:7] == [
        "  `id` BIGINT NOT NULL,",
        "  `at` TIMESTAMP(3) NOT NULL,",
        "  `name` STRING,",
        "  `offset` BIGINT METADATA,",
        "  `up` AS upper(name),",
        "  WATERMARK FOR `at` AS `at`",
    ]
    assert [c.name for c in made(f"CREATE TABLE t WITH ({AVRO})").columns] == ["id", "at", "name"]
    assert [c.name for c in made(f"CREATE TABLE t (x INT) WITH ({AVRO})").columns] == ["x"]


def test_a_table_without_columns_says_what_it_lacks() -> None:
    """A registry, or a column of its key or watermark."""
    with pytest.raises(SqlError, match="at least one column"):
        made(f"CREATE TABLE t WITH ({KAFKA}, 'format' = 'json')")
    with pytest.raises(
        ConfigurationError, match=r"`gone`, which does not exist\. The columns of the registry are id, at"
    ):
        made(f"CREATE TABLE t (WATERMARK FOR gone AS gone) WITH ({AVRO})")
    without = TableDefinition(("t",), (), options={"connector": "kafka", "format": "json"})
    with pytest.raises(
        ConfigurationError, match=r"Only a format with a schema registry knows the columns: .*avro-conf"
    ):
        with_registry_columns(without)
