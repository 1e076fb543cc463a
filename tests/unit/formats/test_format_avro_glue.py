"""`avro-glue`: messages behind AWS Glue's header, with a local server in place of Glue."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType
from tests.avro import written
from tests.web import Answer, Request, WebServer, as_json

from dynamic_kafka.errors import ConfigurationError, RegistryError
from dynamic_kafka.formats import format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro import glue
from dynamic_kafka.formats.avro.glue import AVRO_GLUE
from dynamic_kafka.formats.avro.schemas import schema_text
from dynamic_kafka.formats.format import ERROR

OLD, NEW, JSON, GONE, DOWN = (uuid.UUID(int=n) for n in range(1, 6))
COLUMNS = StructType().add("id", LongType()).add("name", StringType())


def record(*names: str) -> dict[str, Any]:
    """A writer's schema: `id` is a long, all others are strings."""
    fields = [{"name": name, "type": "int" if name == "id" else "string"} for name in names]
    return {"type": "record", "name": "R", "fields": fields}


SCHEMAS = {OLD: record("id"), NEW: record("more", "name", "id")}


def answer(request: Request) -> Answer:
    """Answer GetSchemaVersion as Glue does."""
    assert request.headers["x-amz-target"] == "AWSGlue.GetSchemaVersion"
    version = uuid.UUID(json.loads(request.body)["SchemaVersionId"])
    if version in SCHEMAS:
        return as_json(200, {"SchemaDefinition": json.dumps(SCHEMAS[version]), "DataFormat": "AVRO"})
    if version == JSON:
        return as_json(200, {"SchemaDefinition": "{}", "DataFormat": "JSON"})
    if version == DOWN:
        return as_json(400, {"__type": "AccessDeniedException", "Message": "you may not"})
    return as_json(400, {"__type": "EntityNotFoundException", "Message": "Schema version is not found."})


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A server in place of Glue."""
    with WebServer(answer) as running:
        yield running


@pytest.fixture
def server(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[glue._Glue]:
    """The settings to reach it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    yield glue._Glue("eu-west-1", web.url)
    glue._client.cache_clear()


def message(version: uuid.UUID, value: dict[str, Any], *, compressed: bool = False) -> bytes:
    """A message as AWS's serializer makes it."""
    body = written(SCHEMAS.get(version, SCHEMAS[OLD]), value)
    return bytes([3, 5 if compressed else 0]) + version.bytes + (zlib.compress(body) if compressed else body)


def read(where: glue._Glue, messages: list[bytes | None], columns: StructType = COLUMNS) -> list[Any]:
    """Rows as tuples, errors as texts."""
    text = schema_text(columns, legacy_timestamps=True)
    bodies, headers, faults = glue._separated(pa.array(messages, pa.binary()))
    array = glue._kernel(where, text, arrow_type(columns), None).decode(bodies, headers, faults)
    array.validate(full=True)
    return [row and (row.pop(ERROR) or tuple(row.values())) for row in array.to_pylist()]


def test_messages_of_several_versions_are_read_in_one_batch(server: glue._Glue, web: WebServer) -> None:
    """Each with its own schema, compressed or not; each version is asked for once."""
    new = {"more": "x", "name": "n", "id": 2}
    messages = [message(OLD, {"id": 1}), None, message(NEW, new, compressed=True), message(OLD, {"id": 3})]
    expected = [(1, None), None, (2, "n"), (3, None)]
    assert read(server, messages) == expected
    assert read(server, messages) == expected
    assert sorted(json.loads(asked.body)["SchemaVersionId"] for asked in web.requests) == [str(OLD), str(NEW)]


def test_a_damaged_message_is_told_and_its_neighbours_are_read(server: glue._Glue) -> None:
    """Also a version that Glue does not know, or that is no Avro."""
    good = message(OLD, {"id": 1})
    bad = {
        b"": "too short",
        b"\0" + good[1:]: "does not begin with the header of AWS Glue",
        b"\3\1" + good[2:]: "does not begin with the header of AWS Glue",
        b"\3\5" + good[2:] + b"zz": "it cannot be decompressed",
        message(OLD, {"id": 1}, compressed=True)[:-1]: "is not one zlib stream",
        good + b"x": "bytes are left over",
        message(GONE, {"id": 1}): "answered EntityNotFoundException; the message was written with another registry",
        message(JSON, {"id": 1}): "is not an Avro schema, but JSON",
    }
    for data, problem in bad.items():
        first, found, last = read(server, [good, data, good])
        assert (first, last) == ((1, None), (1, None))
        assert problem in found


def test_a_registry_that_refuses_or_is_down_fails_the_query(server: glue._Glue) -> None:
    """It is no message's fault."""
    with pytest.raises(RegistryError, match="AccessDeniedException; check the login and its right") as refused:
        read(server, [message(DOWN, {"id": 1})])
    assert not refused.value.retriable
    with pytest.raises(RegistryError, match=r"did not answer \(EndpointConnectionError") as down:
        read(glue._Glue("eu-west-1", "http://127.0.0.1:1"), [message(OLD, {"id": 1})])
    assert down.value.retriable
    with pytest.raises(RegistryError, match=r"did not answer \(EndpointConnectionError") as hidden:
        read(glue._Glue("eu-west-1", "http://me:hunter2@127.0.0.1:1"), [message(OLD, {"id": 1})])
    assert "hunter2" not in str(hidden.value)


def test_a_schema_that_does_not_fit_the_columns_fails_the_query(server: glue._Glue) -> None:
    """All of its messages would be bad."""
    with pytest.raises(ConfigurationError, match="does not fit the columns: id is written as int and is string here"):
        read(server, [message(OLD, {"id": 1})], StructType().add("id", StringType()))


def test_it_is_found_by_its_name_and_only_reads() -> None:
    """With the options of Flink's AWS connectors."""
    assert format_named("avro-glue") is AVRO_GLUE
    names = {option.key.removeprefix("avro-glue.") for option in AVRO_GLUE.options}
    assert {"aws.region", "aws.endpoint", "registry.name", "schema.name"} <= names
    AVRO_GLUE.check(COLUMNS, {})
    with pytest.raises(ConfigurationError, match="only reads"):
        AVRO_GLUE.rows(None, COLUMNS, {})  # type: ignore[arg-type]


def test_a_batch_is_not_decompressed_as_a_whole_if_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is read, its halves are then decoded. One message has a limit of its own."""
    messages = pa.array([message(OLD, {"id": 1}, compressed=True)] * 3)
    size = len(written(SCHEMAS[OLD], {"id": 1}))
    monkeypatch.setattr(glue, "_LARGEST_BYTES", 2 * size)
    assert len(glue._separated(messages.slice(0, 2))[0]) == 2
    with pytest.raises(OverflowError, match="the messages have more than 0 MiB when they are decompressed"):
        glue._separated(messages)
