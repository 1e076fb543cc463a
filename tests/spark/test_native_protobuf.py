"""Tables with Protobuf values, decoded by the native kernel: where they are read, or in an Arrow function."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.protobuf.message_header import header_of
from dynamic_kafka.formats.protobuf.schemas import parse_schema
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.schema_registry import SchemaRegistry
from tests.spark.tables import Topic, as_batches, create, on, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TEXT = """syntax = "proto3"; package native;
message Order { int64 id = 1; string item = 2; repeated Line lines = 3; map<int32, string> notes = 4; Kind kind = 5;
  message Line { int32 amount = 1; optional string note = 2; } }
enum Kind { NEW = 0; PAID = 1; }
"""
COLUMNS = (
    "o BIGINT METADATA FROM 'offset', id BIGINT, lines ARRAY<ROW<amount INT, note STRING>>, notes MAP<INT, STRING>, "
    "kind STRING, item STRING"
)
WHOLE = b"\x08\x07\x12\x01x\x1a\x05\x08\x02\x12\x01n\x1a\x00\x22\x05\x08\x01\x12\x01a\x28\x01"
VALUES = [WHOLE, b"", None, b"\x08\x03\x28\x09", b"\x0f", b"\x1a\x01\x08", b"\x22\x04\x08\x01\x12\x00" * 2, WHOLE]
FULL = (7, "x", [(2, "n"), (0, None)], {1: "a"}, "PAID")
ROWS = [
    (0, *FULL),
    (1, 0, "", None, None, "NEW"),
    (3, 3, "", None, None, "UNRECOGNIZED"),
    (6, 0, "", None, {1: ""}, "NEW"),
    (7, *FULL),
]


@pytest.mark.parametrize("name", ["protobuf", "protobuf-confluent"])
def test_a_protobuf_table_is_decoded_where_it_is_read(
    env: TableEnvironment,
    cluster_a: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    name: str,
) -> None:
    """Spark gets rows, and no messages. The workers need no file of the message type."""
    file = tmp_path / "order.desc"
    file.write_bytes(parse_schema(TEXT, {}).SerializeToString())
    formats = {f"{name}.message-class-name": "native.Order", f"{name}.descriptor-file": str(file)}
    header = b""
    if name == "protobuf-confluent":
        formats["protobuf-confluent.url"] = "http://localhost:9"  # the message type is given, and nobody is asked
        header = b"\0\0\0\0\x07\0"
    values = [None if value is None else header + value for value in VALUES]
    at = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, at, [(b"k", value) for value in values], partition=0)
    options = on(cluster_a, at, format=name) | formats
    create(env, "lenient", COLUMNS, options | {"format.on-error": "skip"})
    create(env, "strict", COLUMNS, options)
    assert rows(env, "SELECT o, id, item, lines, notes, kind FROM lenient") == ROWS
    with pytest.raises(PySparkException, match=f"offset 4: the value cannot be read as {name}: .*it begins with [^.]+"):
        rows(env, "SELECT id FROM strict")
    with as_batches(env):
        query = env.sql_query("SELECT id FROM lenient")
    plan = query._jdf.queryExecution().toString()
    file.unlink()
    assert len(query.collect()) == len(ROWS)
    assert "ArrowEvalPython" not in plan


def test_schemas_of_a_registry_are_learned_as_they_appear(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, registry_server: SchemaRegistry
) -> None:
    """By their id and the message indexes; an id that nobody knows is an error of its message."""
    name = topic(cluster_a)
    texts = [
        'syntax = "proto3"; message A { int64 id = 1; } message B { optional string item = 2; int64 id = 3; }',
        'syntax = "proto3"; message C { string item = 1; sint64 id = 2; }',
    ]
    settings = schema_registry_settings.settings("protobuf-confluent", {"protobuf-confluent.url": registry_server.url})
    client = schema_registry.client(settings)
    ids = [client.register(f"{name}-{i}", "PROTOBUF", text) for i, text in enumerate(texts)]
    messages = [
        header_of(ids[0], [0]) + b"\x08\x01",
        header_of(ids[0], [1]) + b"\x12\x01b\x18\x02",
        header_of(ids[1], [0]) + b"\x0a\x01c\x10\x06",
        header_of(ids[0], [0]) + b"\x08",
        header_of(999_999, [0]) + b"\x08\x05",
        header_of(ids[0], [7]) + b"\x08\x05",
        b"x",
        header_of(ids[0], [0]) + b"\x08\x07",
    ]
    produce(cluster_a.bootstrap_servers, name, [(b"k", message) for message in messages], partition=0)
    options = on(cluster_a, name, format="protobuf-confluent") | {"protobuf-confluent.url": registry_server.url}
    columns = "o BIGINT METADATA FROM 'offset', id BIGINT, item STRING"
    create(env, "lenient", columns, options | {"format.on-error": "skip"})
    create(env, "ignoring", columns, options | {"protobuf-confluent.ignore-parse-errors": "true"})
    create(env, "strict", columns, options)
    expected = [(0, 1, None), (1, 2, "b"), (2, 3, "c"), (7, 7, None)]
    assert rows(env, "SELECT o, id, item FROM lenient") == expected
    assert rows(env, "SELECT o, id, item FROM ignoring") == expected
    with pytest.raises(PySparkException, match=r"offset 3: .*Wire format was corrupt in id"):
        rows(env, "SELECT id FROM strict")
    with as_batches(env):
        plan = env.sql_query("SELECT id FROM lenient")._jdf.queryExecution().toString()
    assert "ArrowEvalPython" not in plan
