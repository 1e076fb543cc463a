"""Ids of schemas in headers: where they are looked for, what they are, and how each format reads messages that have them."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampNTZType
from tests.avro import written
from tests.unit.formats.registries import Registries
from tests.unit.sql.tables.test_sql_options import KAFKA, KEYED, table

from dynamic_kafka import functions
from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, RegistryError
from dynamic_kafka.formats import ERROR, format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.confluent import batch_decoder
from dynamic_kafka.formats.avro.schemas import schema_text
from dynamic_kafka.formats.json.confluent import JSON_SCHEMA_CONFLUENT
from dynamic_kafka.formats.protobuf.confluent import PROTOBUF_CONFLUENT
from dynamic_kafka.formats.protobuf.message_header import header_of
from dynamic_kafka.formats.schema_ids import SchemaId, id_of, in_headers, no_id
from dynamic_kafka.formats.schema_registry import RegisteredSchema
from dynamic_kafka.spark.messages import Messages, messages_of
from dynamic_kafka.sql.connectors.scan import _needed
from dynamic_kafka.sql.tables.table import KafkaTable

GUID, OTHER, GONE = (uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDE0 + n) for n in range(3))
COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])
NAMES = ["avro-confluent", "protobuf-confluent", "json-schema-confluent"]
NAMES += ["debezium-avro-confluent", "debezium-protobuf-confluent"]
NO_HEADER = "It does not begin with the header of a schema registry: a byte 0, an id, message indexes"
NO_ID = "its header with a schema id has the value 0x{}, which is neither a byte 1 and a GUID nor a byte 0 and an id"
MAGIC = "it does not begin with the magic byte 0 of a schema registry's serializer"


def of(guid: uuid.UUID, behind: bytes = b"") -> bytes:
    """A header's value, as `HeaderSchemaIdSerializer` writes it."""
    return b"\x01" + guid.bytes + behind


def binary(*values: bytes | None) -> pa.Array:
    """An array as Spark gives it."""
    return pa.array(values, pa.binary())


def brief(rows: pa.Array) -> list[Any]:
    """Each row as a tuple, or its error."""
    return [row and (row[ERROR] or tuple(row.values())[:-1]) for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (of(GUID), GUID),
        (of(GUID, b"\x00more"), GUID),
        (b"\x00\x00\x00\x01\x02", 258),
        (b"\x00\x7f\xff\xff\xff\x00", 2**31 - 1),
    ],
)
def test_an_id_of_a_header_is_that_of_confluents_client(header: bytes, found: SchemaId) -> None:
    """`SchemaId.fromBytes`: a byte 1 and a GUID, the highest byte first, or a byte 0 and an id; the rest is ignored."""
    assert id_of(header) == found
    assert str(GUID) == "01234567-89ab-cdef-0123-456789abcde0"


@pytest.mark.parametrize("header", [b"", b"\x01", of(GUID)[:-1], b"\x00\x00\x00\x01", b"\x02" + bytes(16)])
def test_bytes_without_an_id_are_those_of_no_schema(header: bytes) -> None:
    """Too short, or another first byte: the same answer as for an id that the registry does not know."""
    with pytest.raises(RegistryError, match=f"0x{header.hex().upper()} is not the id of a schema") as error:
        id_of(header)
    assert error.value.not_found


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize(
    "header", [b"", b"\x01", of(GUID)[:-1], b"\x00\x00\x00\x01", b"\x02" + bytes(16), b"\x00" + b"\xff" * 4]
)
def test_a_header_without_an_id_is_an_error_of_its_message(name: str, header: bytes, registry: Registries) -> None:
    """Too short, another first byte, a negative id: every format shows its bytes, and asks no registry."""
    settings = registry(name, {})
    decode = format_named(name).decoder(COLUMNS, {f"{name}.url": settings.url})
    assert brief(decode(binary(b"{}"), binary(header))) == [NO_ID.format(header.hex().upper())]


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_before_messages_unless_the_option_says_otherwise(name: str) -> None:
    """Every format of the registry has the option; formats without ids do not."""
    form, key = format_named(name), f"{name}.schema-id-location"
    option = next(o for o in form.options if o.key == key)
    assert option.of({}) == "prefix"
    assert form.registry == f"{name}.subject"
    assert in_headers(name, {key: option.parse("HEADER_OR_PREFIX", key)})
    assert not in_headers(name, {})
    for other in ("json", "avro", "avro-glue", "debezium-json"):
        assert not in_headers(other, {})


def test_an_error_of_a_missing_id_names_the_option_only_if_it_helps() -> None:
    """With the option, there is nothing more to look at."""
    assert no_id("why", "avro-confluent", headers=False) == (
        "why; if producers put schema ids into headers, set 'avro-confluent.schema-id-location' to 'header-or-prefix'"
    )
    assert no_id("why", "avro-confluent", headers=True) == "why, and no header has its schema id"


@pytest.mark.parametrize("name", NAMES)
def test_writing_needs_a_subject(name: str) -> None:
    """Reading does not."""
    with pytest.raises(ConfigurationError, match=rf"'{name}\.subject' is missing"):
        format_named(name).rows(None, COLUMNS, {f"{name}.url": "http://registry:8081"})  # type: ignore[arg-type]


# --- each format ---------------------------------------------------------------------------------------------------------


def test_avro_takes_the_header_before_the_prefix(registry: Registries) -> None:
    """One batch: two GUIDs, an id in a header, prefixes; the whole message follows a header, also one that begins with 0."""
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    new = old | {"fields": [*old["fields"], {"name": "name", "type": ["null", "string"], "default": None}]}
    schemas: dict[SchemaId, RegisteredSchema] = {
        GUID: RegisteredSchema("AVRO", json.dumps(old)),
        OTHER: RegisteredSchema("AVRO", json.dumps(new)),
        7: RegisteredSchema("AVRO", json.dumps(new)),
    }
    settings = registry("avro-confluent", schemas)

    prefix = b"\x00\x00\x00\x00\x07"
    like_a_prefix = written(new, {"id": 0, "name": None})
    assert like_a_prefix == b"\x00\x00"
    cases: list[tuple[bytes | None, bytes | None, Any]] = [
        (written(old, {"id": 1}), of(GUID), (1, None)),
        (written(new, {"id": 2, "name": "b"}), of(OTHER), (2, "b")),
        (prefix + written(new, {"id": 3, "name": "c"}), None, (3, "c")),
        (None, of(GUID), None),
        (like_a_prefix, of(OTHER), (0, None)),
        (written(new, {"id": 4, "name": "d"}), prefix, (4, "d")),
        (prefix + written(new, {"id": 5, "name": "e"}), of(GONE), f"{GONE} is unknown"),
        (prefix + written(new, {"id": 6, "name": "f"}), of(GUID), "bytes are left over behind the record"),
        (
            written(old, {"id": 7}),
            b"\x01",
            NO_ID.format("01"),
        ),
        (written(old, {"id": -1}) + b"xxxx", None, f"{MAGIC}, and no header has its schema id"),
        (b"\x00", None, "it is too short for the magic byte and a schema id, and no header has its schema id"),
        (written(old, {"id": 8}), of(GUID, b"ignored"), (8, None)),
    ]
    decode = batch_decoder(settings, schema_text(COLUMNS, legacy_timestamps=True), arrow_type(COLUMNS))
    messages, headers, expected = zip(*cases, strict=True)
    assert brief(decode(binary(*messages), binary(*headers))) == list(expected)
    for begin in range(len(cases)):  # parts of arrays, too
        part = slice(begin, begin + 3)
        found = decode(binary(*messages)[part], binary(*headers)[part])
        assert brief(found) == list(expected[part])
    without = decode(binary(messages[0], messages[2]))
    assert "set 'avro-confluent.schema-id-location' to 'header-or-prefix'" in brief(without)[0]
    assert brief(without)[1] == (3, "c")


def test_protobuf_takes_the_message_indexes_of_the_header(registry: Registries) -> None:
    """They follow the GUID there, and not in the message; a header without them cannot be used."""
    text = 'syntax = "proto3"; message A { int64 id = 1; } message B { string name = 2; int64 id = 3; }'
    schema = RegisteredSchema("PROTOBUF", text)
    settings = registry("protobuf-confluent", {GUID: schema, 7: schema, OTHER: RegisteredSchema("AVRO", '"string"')})
    options = {"protobuf-confluent.url": settings.url}
    of_a, of_b = b"\x08\x05", b"\x12\x01b\x18\x06"  # id 5; name b and id 6
    cases: list[tuple[bytes | None, bytes | None, Any]] = [
        (of_a, of(GUID, b"\x00"), (5, "")),
        (of_b, of(GUID, b"\x02\x02"), (6, "b")),
        (header_of(7, [1]) + of_b, None, (6, "b")),
        (of_b, header_of(7, [1]), (6, "b")),
        (b"", of(GUID, b"\x00"), (0, "")),
        (None, of(GUID, b"\x00"), None),
        (of_a, of(GUID), f"its header with a schema id, 0x{of(GUID).hex().upper()}, has no message indexes"),
        (
            of_a,
            of(OTHER, b"\x00"),
            f"Schema with id {OTHER}: It is of type AVRO, not PROTOBUF. Read it with a format for that type",
        ),
        (of_a, of(GONE, b"\x00"), f"Schema with id {GONE}: {GONE} is unknown"),
        (
            of_a,
            None,
            f"{NO_HEADER}, and no header has its schema id",
        ),
        (of_a, of(GUID, b"\x00ignored"), (5, "")),
    ]
    expected = [(e[0], None if e in ((5, ""), (0, "")) else e[1]) if isinstance(e, tuple) else e for *_, e in cases]
    decode = PROTOBUF_CONFLUENT.decoder(COLUMNS, options)
    messages, headers, _ = zip(*cases, strict=True)
    assert brief(decode(binary(*messages), binary(*headers))) == expected
    (error,) = brief(decode(binary(of_a)))
    assert error.endswith("set 'protobuf-confluent.schema-id-location' to 'header-or-prefix'")
    given = options | {"protobuf-confluent.schema": 'syntax = "proto3"; message A { int64 id = 1; string name = 2; }'}
    both = PROTOBUF_CONFLUENT.decoder(COLUMNS, given)(
        binary(b"\x08\x05", header_of(1, [0]) + b"\x08\x06"), binary(of(GONE, b"\0"), None)
    )
    assert brief(both) == [(5, ""), (6, "")]


def test_json_is_the_whole_message_behind_a_header(registry: Registries) -> None:
    """The schema of the GUID says what numbers are, as that of an id does."""
    micros = {
        "properties": {"at": {"type": "integer", "title": "io.debezium.time.MicroTimestamp", "connect.type": "int64"}}
    }
    schemas: dict[SchemaId, RegisteredSchema] = {
        GUID: RegisteredSchema("JSON", json.dumps(micros)),
        7: RegisteredSchema("JSON", "{}"),
        OTHER: RegisteredSchema("AVRO", '"string"'),
    }
    settings = registry("json-schema-confluent", schemas)
    columns = StructType([StructField("id", LongType()), StructField("at", TimestampNTZType())])
    message = b'{"id": 1, "at": 1000001}'
    cases: list[tuple[bytes | None, bytes | None, Any]] = [
        (message, of(GUID), {"id": 1, "at": datetime(1970, 1, 1, 0, 0, 1, 1)}),  # noqa: DTZ001
        (b"\x00\x00\x00\x00\x07" + message, None, "It does not fit the columns: at"),
        (None, of(GUID), None),
        (b" ", of(GUID), "it is empty"),
        (b"\x00\x00\x00\x00\x07 ", None, "nothing follows its schema id"),
        (message, of(OTHER), f"its schema {OTHER} is not a JSON Schema, but AVRO"),
        (message, of(GONE), f"{GONE} is unknown"),
        (message, None, f"{MAGIC}, and no header has its schema id"),
        (
            message,
            b"",
            "its header with a schema id has the value 0x, which is neither a byte 1 and a GUID nor a byte 0 and an id",
        ),
    ]
    messages, headers, expected = zip(*cases, strict=True)
    given = {"json-schema-confluent.url": settings.url, "json-schema-confluent.schema-id-location": "header-or-prefix"}
    read = JSON_SCHEMA_CONFLUENT.decoder(columns, given)
    found = [row and (row.pop("__error") or row) for row in read(binary(*messages), binary(*headers)).to_pylist()]
    assert found == list(expected)
    (error,) = read(binary(message)).field("__error").to_pylist()
    assert error.endswith("set 'json-schema-confluent.schema-id-location' to 'header-or-prefix'")


# --- tables --------------------------------------------------------------------------------------------------------------


def messages(of: KafkaTable) -> Messages:
    """How the messages of a table are read."""
    found = messages_of(_needed(of))
    assert found is not None
    return found


def fetched(of: KafkaTable) -> list[str]:
    """The columns that a table reads."""
    return messages(of).fetched(_needed(of)).names


def test_a_table_reads_headers_only_if_the_option_of_its_key_or_value_says_so() -> None:
    """They cost time; and an INSERT does not need them."""
    options = {**KAFKA, "format": "avro-confluent", "avro-confluent.url": "http://registry:8081"}
    location = {"avro-confluent.schema-id-location": "header-or-prefix"}
    assert "headers" not in fetched(table(options))
    assert "headers" in fetched(table(options | location))
    keyed = KEYED | {"key.format": "avro-confluent", "key.avro-confluent.url": "http://registry:8081"}
    assert "headers" not in fetched(table(keyed))
    assert "headers" in fetched(table(keyed | {f"key.{name}": value for name, value in location.items()}))


def test_from_kafka_sees_no_headers_and_says_so() -> None:
    """Reading by the prefix only could give other rows."""
    options = {"avro-confluent.url": "http://registry:8081", "avro-confluent.schema-id-location": "header-or-prefix"}
    with pytest.raises(InvalidOptionError, match="a column of keys or values has no headers; read a SQL table"):
        functions.from_kafka("value", "avro-confluent", COLUMNS, options)
