"""The formats `protobuf`, `protobuf-confluent` and `debezium-protobuf-confluent` in Spark, with a real schema registry."""

from __future__ import annotations

import base64
import importlib
import itertools
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, RegistryError
from dynamic_kafka.formats import ERROR, Format
from dynamic_kafka.formats.changelog.protobuf import DEBEZIUM_PROTOBUF_CONFLUENT
from dynamic_kafka.formats.protobuf import schemas as protobuf_schemas
from dynamic_kafka.formats.protobuf.confluent import PROTOBUF_CONFLUENT, _decoder_of_rows, _reading
from dynamic_kafka.formats.protobuf.format import PROTOBUF
from dynamic_kafka.formats.protobuf.schemas import parse_schema
from dynamic_kafka.formats.schema_registry import client
from dynamic_kafka.formats.schema_registry_settings import settings as registry_settings
from tests.schema_registry import SchemaRegistry
from tests.spark.texts import decode, encode, struct

pytestmark = pytest.mark.spark

Options = Mapping[str, Any]
BYTES = StructType([StructField("value", BinaryType())])
ORDER = """syntax = "proto3"; package shop;
message Order { int64 id = 1; string item = 2; Line line = 3; message Line { int32 amount = 1; string note = 2; } }
message Refund { int64 id = 1; double cents = 2; }
"""
ORDER_DDL = "id bigint, item string, line struct<amount: int, note: string>"


def decode_batch(messages: Sequence[bytes | None], reading: Any) -> pa.StructArray:
    """The rows and errors of messages."""
    return _decoder_of_rows(reading)(pa.array(messages, pa.binary()))


def order_of(package: str) -> str:
    """The same in another package: Python knows one message of a name."""
    return ORDER.replace("shop", package)


_numbers = itertools.count(1)


def named(found: Format, options: Options) -> dict[str, Any]:
    """The options under their whole names."""
    return {f"{found.name}.{key}": value for key, value in options.items()}


def decoded(
    spark: SparkSession, found: Format, ddl: str, messages: Iterable[bytes | None], **options: Any
) -> list[dict[str, Any] | None]:
    """What is decoded of each message."""
    frame = spark.createDataFrame([(message,) for message in messages], BYTES).coalesce(1)
    result = decode(found, F.col("value"), struct(ddl), named(found, keys(options)))
    return [
        None if row.v is None else row.v.asDict(recursive=True) for row in frame.select(result.alias("v")).collect()
    ]


def encoded(
    spark: SparkSession, found: Format, table: StructType | str, rows: Iterable[Any], **options: Any
) -> list[bytes | None]:
    """What is encoded of each row."""
    type_ = struct(table) if isinstance(table, str) else table
    frame = spark.createDataFrame([(row,) for row in rows], StructType([StructField("row", type_)])).coalesce(1)
    result = encode(found, F.col("row"), type_, named(found, keys(options)))
    return [None if row.v is None else bytes(row.v) for row in frame.select(result.alias("v")).collect()]


def keys(options: Options) -> dict[str, Any]:
    """Options as Python's arguments, in their own spelling."""
    return {key.replace("_", "-"): value for key, value in options.items()}


def errors(rows: Iterable[dict[str, Any] | None]) -> list[str | None]:
    """What is wrong with each record."""
    return [None if row is None else row[ERROR] for row in rows]


def ids(rows: Iterable[dict[str, Any] | None]) -> list[int | None]:
    """The column `id` of each."""
    return [None if row is None else row["id"] for row in rows]


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Makes a generated module of the last .proto file, as users have it; the files have to have names of their own."""

    def make(**texts: str) -> ModuleType:
        for name, text in texts.items():
            (tmp_path / f"{name}.proto").write_text(text)
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--include_imports"]
        command += ["--descriptor_set_out=all.desc", *(f"{name}.proto" for name in texts)]
        subprocess.run(command, cwd=tmp_path, check=True)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        return importlib.import_module(f"{list(texts)[-1]}_pb2")

    return make


# protobuf


def test_messages_go_through_spark_without_files_on_the_executors(
    spark: SparkSession, generate: Callable[..., ModuleType], tmp_path: Path
) -> None:
    """Rows come back; damaged, null and ignored messages are where they were."""
    module = generate(through_spark=order_of("through_spark"))
    options = {"message_class_name": "through_spark.Order", "descriptor_file": str(tmp_path / "all.desc")}
    good = module.Order(id=7, item="née", line={"amount": 3}).SerializeToString()
    rows = decoded(spark, PROTOBUF, ORDER_DDL, [good, b"\xff", None, b""], **options)
    assert rows[0] == {"id": 7, "item": "née", "line": {"amount": 3, "note": ""}, ERROR: None}
    assert errors(rows)[1] is not None
    assert rows[2] is None
    assert rows[3] == {"id": 0, "item": "", "line": None, ERROR: None}
    assert decoded(spark, PROTOBUF, "id bigint", [b"\xff", good], ignore_parse_errors=True, **options)[0] is None
    assert decoded(spark, PROTOBUF, ORDER_DDL, [b""], read_default_values=True, **options)[0] == {
        "id": 0,
        "item": "",
        "line": {"amount": 0, "note": ""},
        ERROR: None,
    }
    by_class = encoded(
        spark, PROTOBUF, ORDER_DDL, [(7, "née", (3, None)), None], message_class_name="through_spark_pb2:Order"
    )
    assert by_class == [good, None]


def test_a_message_is_decoded_once_however_many_fields_are_selected(
    spark: SparkSession, generate: Callable[..., ModuleType]
) -> None:
    """Spark joins equal calls of a function into one."""
    generate(decoded_once=order_of("decoded_once"))
    schema = struct(ORDER_DDL)
    options = {"protobuf.message-class-name": "decoded_once_pb2:Order"}
    row = decode(PROTOBUF, F.col("value"), schema, options).alias("r")
    frame = spark.createDataFrame([(b"",)], BYTES).select(row).select("r.id", "r.item", "r.line.amount", f"r.{ERROR}")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1
    assert plan.count("from_protobuf(") == plan.count("ArrowEvalPython [from_protobuf(")
    assert frame.collect() == [(0, "", None, None)]


# protobuf-confluent


class Registry:
    """A registry as somebody else's clients see it.

    Args:
        url: Its URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """One call of its API."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def register(self, schema: str, subject: str = "", type_: str = "PROTOBUF", references: Any = ()) -> int:
        """Register a schema; gives its id."""
        body = {"schemaType": type_, "schema": schema, "references": list(references)}
        return int(self.ask(f"/subjects/{subject or f'subject-{next(_numbers)}'}/versions", body)["id"])


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A real one, for all tests of this file."""
    with SchemaRegistry() as process:
        yield Registry(process.url)
        client(registry_settings("protobuf-confluent", {"protobuf-confluent.url": process.url})).close()


def framed(schema_id: int, payload: bytes, indexes: bytes = b"\0") -> bytes:
    """A message as registries' clients write it."""
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + payload


def in_base64(text: str, imports: Mapping[str, str] | None = None) -> str:
    """A schema as Confluent's Python client registers it."""
    return base64.b64encode(parse_schema(text, imports or {}).file[-1].SerializeToString()).decode()


@pytest.fixture
def read(spark: SparkSession, registry: Registry) -> Callable[..., list[dict[str, Any] | None]]:
    """Decodes messages with the registry."""

    def decode(ddl: str, *messages: bytes | None, **options: Any) -> list[dict[str, Any] | None]:
        return decoded(spark, PROTOBUF_CONFLUENT, ddl, messages, url=registry.url, **options)

    return decode


@pytest.fixture
def write(spark: SparkSession, registry: Registry) -> Callable[..., list[bytes | None]]:
    """Encodes rows with the registry."""

    def encode(columns: StructType | str, *rows: Any, **options: Any) -> list[bytes | None]:
        return encoded(spark, PROTOBUF_CONFLUENT, columns, rows, url=registry.url, **options)

    return encode


Read = Callable[..., list[dict[str, Any] | None]]
Write = Callable[..., list[bytes | None]]


@pytest.mark.parametrize("made", [str, in_base64], ids=["text", "base64"])
def test_messages_are_read_with_the_schema_of_their_id(
    registry: Registry, read: Read, made: Callable[[str], str]
) -> None:
    """Schemas are .proto texts or base64; the indexes choose the message, also an inner one, in both spellings of [0]."""
    schema_id = registry.register(made(ORDER))
    order = framed(schema_id, b"\x08\x07\x12\x01x")
    same = framed(schema_id, b"\x08\x07\x12\x01x", b"\x02\x00")
    assert read(ORDER_DDL, order, same) == [{"id": 7, "item": "x", "line": None, ERROR: None}] * 2
    refund = framed(schema_id, b"\x08\x09\x11\0\0\0\0\0\0\xf0\x3f", b"\x02\x02")
    assert read("id bigint, cents double", refund) == [{"id": 9, "cents": 1.0, ERROR: None}]
    line = framed(schema_id, b"\x08\x05\x12\x01y", b"\x04\x00\x00")
    assert read("amount int, note string", line) == [{"amount": 5, "note": "y", ERROR: None}]


ENVELOPE = """syntax = "proto3"; package shop.public.orders;
message Envelope { Value before = 1; Value after = 2; Source source = 3; string op = 5; optional int64 ts_ms = 6;
  message Value { int64 id = 1; optional string name = 2; } message Source { string db = 6; int64 ts_ms = 4; } }
"""


def test_changes_of_debezium_are_rows(spark: SparkSession, registry: Registry) -> None:
    """Those of Connect's converter, and those that are written: an update is a deletion and an insertion, as in Flink."""
    changes = DEBEZIUM_PROTOBUF_CONFLUENT
    schema = struct("id bigint not null, name string")
    options = {f"{changes.name}.url": registry.url, f"{changes.name}.subject": "changes-value"}
    schema_id = registry.register(in_base64(ENVELOPE))
    images = b"\x0a\x02\x08\x01" + b"\x12\x05\x08\x01\x12\x01b"  # id 1 before, and with a name after
    source = b"\x1a\x07\x32\x02db\x20\xe8\x07"
    messages = [
        framed(schema_id, images + source + b"\x2a\x01u\x30\x05"),
        framed(schema_id, images[4:] + b"\x2a\x01c"),
        framed(schema_id, images[4:] + b"\x2a\x01d"),
        framed(schema_id, images + b"\x2a\x01t"),
        framed(schema_id, images),
        None,
        b"",
        b"x",
    ]
    rows = "struct<id: bigint, name: string, row_kind: string>"
    given = spark.createDataFrame([((0, None, "+I"),), ((0, None, "-U"),), ((0, "", "+U"),)], f"r {rows}").coalesce(1)
    written = given.select(encode(changes, F.col("r"), schema, options).alias("v"))
    read = spark.createDataFrame([(m,) for m in messages], "v binary").coalesce(1).union(written)
    found = [row.m for row in read.select(decode(changes, F.col("v"), schema, options).alias("m")).collect()]
    assert [m and m.rows and [(r.row_kind, *r.row) for r in m.rows] for m in found] == [
        [("-U", 1, None), ("+U", 1, "b")],
        [("+I", 1, "b")],
        *[None] * 6,
        *([("+I", 0, None)], [("-D", 0, None)], [("+I", 0, "")]),
    ]
    metadata = found[0].metadata
    assert (metadata["source.database"], metadata["source.table"]) == ("db", None)
    assert metadata["source.timestamp"].timestamp() == 1.0
    assert metadata["ingestion-timestamp"].timestamp() == 0.005
    assert found[1].metadata["ingestion-timestamp"] is None
    assert found[5] is found[6] is None
    reasons = [found[i][ERROR] for i in (2, 3, 4, 7)]
    for reason, expected in zip(
        reasons,
        [
            'The "before" field of DELETE message is null; set the REPLICA IDENTITY of a PostgreSQL table to FULL',
            'Unknown "op" value "t": TRUNCATE cannot become rows',
            'Unknown "op" value ""',
            "It does not begin with the header of a schema registry",
        ],
        strict=True,
    ):
        assert expected in reason
    assert changes.columns is not None
    assert changes.columns(options)[0].simpleString() == "struct<id:bigint,name:string>"


def test_several_schemas_in_one_batch(registry: Registry, read: Read) -> None:
    """Each message is read with its own; what a writer does not know is null, what the table does not know is dropped."""
    first = registry.register('syntax="proto3"; message A { int64 id = 1; string old = 2; }')
    second = registry.register(
        'syntax="proto3"; message A { int64 id = 5; optional string later = 6; int32 more = 7; }'
    )
    messages = [
        framed(first, b"\x08\x01\x12\x01x"),
        framed(second, b"\x28\x02\x32\x01y\x38\x01"),
        None,
        framed(first, b"\x08"),
        framed(second, b"\x28\x04"),
        framed(first, b"\x08\x05"),
        b"",
    ] * 3
    rows = read("id bigint, later string", *messages)
    assert ids(rows) == [1, 2, None, None, 4, 5, None] * 3
    assert [row and row["later"] for row in rows] == [None, "y", *[None] * 5] * 3
    assert [bool(error) for error in errors(rows)] == [False, False, False, True, False, False, True] * 3
    assert rows[2] is None
    left = read("id bigint", *messages, ignore_parse_errors=True)
    assert [row is not None for row in left] == [True, True, False, False, True, True, False] * 3


def test_a_column_of_another_type_than_its_field_fails_the_query(registry: Registry) -> None:
    """That is no message's fault: all of a topic would be skipped."""
    schema_id = registry.register('syntax="proto3"; message A { string id = 1; }')
    options = {"protobuf-confluent.url": registry.url, "protobuf-confluent.ignore-parse-errors": True}
    said = (
        f"Schema with id {schema_id} does not fit the columns: Column 'id' is of type bigint, but field A.id is string"
    )
    with pytest.raises(ConfigurationError, match=said):
        decode_batch([framed(schema_id, b"\x0a\x01x")], _reading(struct("id bigint"), options))


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_what_is_not_known_or_not_compiled_is_asked_for_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many headers and batches name it."""
    options = {"protobuf-confluent.url": registry.url, "protobuf-confluent.properties.max.retries": "0"}
    reading = _reading(struct("id bigint"), options)
    asked: list[str] = []
    answers = {"1001": {"schema": "message", "schemaType": "PROTOBUF"}}

    def get(url: str, _query: object = None) -> Any:
        asked.append(url)
        if (number := url.rpartition("/")[2]) in answers:
            return answers[number]
        raise SchemaRegistryError(404, 40403, "Schema not found")

    compiled: list[str] = []
    compile_schema = protobuf_schemas._compile

    def counted(schema: str, imports: Any) -> Any:
        compiled.append(schema)
        return compile_schema(schema, imports)

    monkeypatch.setattr(protobuf_schemas, "_compile", counted)
    connected = client(reading.settings)._client
    assert connected is not None
    monkeypatch.setattr(connected._rest_client, "get", get)
    messages = [framed(number, b"", bytes([2, 2 * n])) for number in (1000, 1001) for n in range(5)]
    for _ in range(2):
        found = decode_batch(messages, reading).field(ERROR).to_pylist()
        assert all("asked for the schema with id 1000, answered status 404" in error for error in found[:5])
        assert all("Schema with id 1001: protoc cannot compile a schema" in error for error in found[5:])
    assert sorted(asked) == ["schemas/ids/1000", "schemas/ids/1001"]
    assert compiled == ["message"]
    client(reading.settings).close()


@pytest.mark.slow
def test_a_protoc_that_does_not_end_is_no_records_fault(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine would make an error of every record; the next try compiles again."""
    schema_id = registry.register('syntax="proto3"; message Late { int64 id = 1; }')
    reading = _reading(struct("id bigint"), {"protobuf-confluent.url": registry.url})
    with monkeypatch.context() as patched:
        patched.setattr(protobuf_schemas, "_PROTOC_TIMEOUT_S", 0.001)
        with pytest.raises(RegistryError, match=r"protoc did not compile a schema within 0\.001 s") as caught:
            decode_batch([framed(schema_id, b"\x08\x07")], reading)
        assert caught.value.retriable
    killed = subprocess.CompletedProcess([], -9, "", "")
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda *_, **__: killed)
        with pytest.raises(RegistryError, match="protoc was ended by signal 9"):
            decode_batch([framed(schema_id, b"\x08\x07")], reading)
    assert decode_batch([framed(schema_id, b"\x08\x07")], reading).field("id").to_pylist() == [7]


@pytest.mark.slow
def test_fields_find_each_other_by_number_if_the_message_is_given(
    registry: Registry, read: Read, generate: Callable[..., ModuleType]
) -> None:
    """A renamed field keeps its values; a class or a schema may give the message."""
    now = "message Now { int64 id = 1; optional string title = 2; optional int32 new = 3; }"
    generate(by_number=f'syntax="proto3"; {now}')
    schema_id = registry.register('syntax="proto3"; message Then { int64 id = 1; string name = 2; bool gone = 9; }')
    message = framed(schema_id, b"\x08\x07\x12\x01x\x48\x01")
    expected = [{"id": 7, "title": "x", "new": None, ERROR: None}]
    ddl = "id bigint, title string, new int"
    assert read(ddl, message, message_class_name="by_number_pb2:Now") == expected
    schema = f'syntax="proto3"; message Other {{ }} {now}'
    assert read(ddl, message, schema=schema, message_name="Now") == expected
    by_name = [{"id": 7, "title": None, "new": None, ERROR: None}]
    assert read(ddl, message) == by_name
    with pytest.raises(ConfigurationError, match=r"Column 'name' is not a field of the message Now"):
        read("name string", message, message_class_name="by_number_pb2:Now")


@pytest.mark.slow
def test_missing_fields_are_null_or_defaults(registry: Registry, read: Read) -> None:
    """By `read-default-values`, as without a registry."""
    schema_id = registry.register(
        'syntax="proto2"; message A { optional int32 a = 1 [default = 5]; repeated string r = 2; }'
    )
    message = framed(schema_id, b"")
    ddl = "a int, r array<string>, later int"
    assert read(ddl, message) == [{"a": None, "r": None, "later": None, ERROR: None}]
    assert read(ddl, message, read_default_values=True) == [{"a": 5, "r": [], "later": None, ERROR: None}]


def test_messages_that_no_registry_wrote_are_errors_of_their_own(registry: Registry, read: Read) -> None:
    """Another first byte, nothing behind it, an id that nobody knows, indexes that lead nowhere, a schema of Avro."""
    good = registry.register(ORDER)
    avro = registry.register('"string"', type_="AVRO")
    bad = {
        b"\x01\0\0\0\x01\0\x08\x07": "does not begin with the header",
        b"\0\0\0": "does not begin with the header",
        b"": "does not begin with the header",
        framed(good, b"", b"\x80"): "does not begin with the header",
        framed(good, b"", b"\x01"): "does not begin with the header",
        framed(999_999, b""): "999999",
        framed(good, b"", b"\x02\x08"): "does not have a message with the indexes [4]",
        framed(good, b"", b"\xa0\x8d\x06" + b"\x08" * 50_000): f"the indexes [{', '.join(['4'] * 10)} and 49990 more]",
        framed(avro, b""): "is of type AVRO",
        framed(good, b"\xff"): "Wire format was corrupt",
    }
    order = framed(good, b"\x08\x07")
    rows = read("id bigint", *itertools.chain.from_iterable((message, order) for message in bad))
    assert ids(rows) == [None, 7] * len(bad)
    for said, error in zip(bad.values(), errors(rows)[::2], strict=True):
        assert said in str(error)
    assert errors(rows)[1::2] == [None] * len(bad)


@pytest.mark.slow
def test_a_topic_may_hold_messages_that_are_not_expected(registry: Registry, read: Read) -> None:
    """`message-name` says which are; others are errors, that may be ignored."""
    schema_id = registry.register(ORDER)
    messages = [framed(schema_id, b"\x08\x07"), framed(schema_id, b"\x08\x09", b"\x02\x02")]
    assert ids(read("id bigint", *messages)) == [7, 9]
    rows = read("id bigint", *messages, message_name="shop.Refund")
    assert "The message has the type shop.Order" in str(errors(rows)[0])
    assert ids(rows) == [None, 9]
    assert read("id bigint", *messages, message_name="shop.Refund", ignore_parse_errors=True)[0] is None


@pytest.mark.slow
def test_a_registry_that_does_not_answer_is_no_records_fault(spark: SparkSession) -> None:
    """The query fails, whatever becomes of damaged records."""
    options = {"url": "http://127.0.0.1:9", "properties.max.retries": "0", "ignore_parse_errors": True}
    with pytest.raises(Exception, match=r"RegistryError.*did not answer") as raised:
        decoded(spark, PROTOBUF_CONFLUENT, "id bigint", [framed(1, b"")], **options)
    assert RegistryError.__name__ in str(raised.value)


def test_settings_that_lead_nowhere_are_no_records_fault() -> None:
    """Nor is a secret that this worker cannot find: it would make an error of every record."""
    options = {
        "protobuf-confluent.url": "http://localhost:8081",
        "protobuf-confluent.bearer-auth.token": "${env:NOT_SET}",
    }
    reading = _reading(struct("id bigint"), options)
    with pytest.raises(ConfigurationError, match="NOT_SET"):
        decode_batch([framed(1, b"")], reading)


def test_rows_are_written_with_the_schema_of_their_columns(registry: Registry, read: Read, write: Write) -> None:
    """It is registered once, as text; null and defaults stay apart."""
    subject = f"written-{next(_numbers)}"
    schema = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("item", StringType()),
            StructField("line", StructType([StructField("amount", IntegerType()), StructField("note", StringType())])),
        ]
    )
    messages = write(schema, (7, "", (0, None)), (8, None, None), None, subject=subject, message_name="my.Order")
    assert messages[2] is None
    assert all(message is None or message[:1] + message[5:6] == b"\0\0" for message in messages)
    assert read(ORDER_DDL, *messages) == [
        {"id": 7, "item": "", "line": {"amount": 0, "note": None}, ERROR: None},
        {"id": 8, "item": None, "line": None, ERROR: None},
        None,
    ]
    latest = registry.ask(f"/subjects/{subject}/versions/latest")
    assert latest["version"] == 1
    assert latest["schema"].startswith('syntax = "proto3";\npackage my;\nmessage Order {\n')
    again = write(schema, (7, "", None), subject=subject, message_name="my.Order")
    assert again[0] is not None
    assert messages[0] is not None
    assert again[0][:6] == messages[0][:6]


@pytest.mark.slow
def test_a_column_at_the_end_is_a_compatible_version(registry: Registry, read: Read, write: Write) -> None:
    """And one of another type is not; old and new messages are read together."""
    subject = f"evolving-{next(_numbers)}"
    old = write("id bigint, name string", (1, "a"), subject=subject)
    registry.ask(f"/config/{subject}", {"compatibility": "BACKWARD"}, "PUT")
    new = write("id bigint, name string, more int", (2, "b", 3), subject=subject)
    assert registry.ask(f"/subjects/{subject}/versions") == [1, 2]
    assert read("id bigint, more int", *old, *new) == [
        {"id": 1, "more": None, ERROR: None},
        {"id": 2, "more": 3, ERROR: None},
    ]
    with pytest.raises(Exception, match="not compatible"):
        write("id bigint, name double", (2, 0.5), subject=subject)


@pytest.mark.slow
def test_what_is_not_registered_is_an_error_without_auto_register(write: Write) -> None:
    """For those who register by hand."""
    subject = f"by-hand-{next(_numbers)}"
    with pytest.raises(Exception, match=r"auto\.register\.schemas"):
        write("id bigint", (1,), subject=subject, **{"auto.register.schemas": False})
    (first,) = write("id bigint", (1,), subject=subject)
    assert write("id bigint", (1,), subject=subject, **{"auto.register.schemas": False}) == [first]


@pytest.mark.slow
def test_a_given_class_is_written_with_its_imports(
    registry: Registry, read: Read, write: Write, generate: Callable[..., ModuleType]
) -> None:
    """They are registered under their names, and referred to; an inner message is found by its indexes."""
    generate(
        written_money='syntax="proto3"; package w; message Money { int64 cents = 1; }',
        written_price='syntax="proto3"; package w; import "written_money.proto"; message Price { Money money = 1; }',
        written_bill='syntax="proto3"; package w; import "written_price.proto"; import "google/protobuf/timestamp.proto"; '
        "message First { map<string, int32> m = 1; message Bill { Price price = 1; google.protobuf.Timestamp at = 2; } }",
    )
    subject = f"class-{next(_numbers)}"
    ddl = "price struct<money: struct<cents: bigint>>"
    options = {"message_class_name": "written_bill_pb2:First.Bill"}
    (message,) = write(ddl, (((5,),),), subject=subject, **options)
    assert message is not None
    assert message[5:8] == b"\x04\x00\x00"
    expected = [{"price": {"money": {"cents": 5}}, ERROR: None}]
    assert read(ddl, message) == expected
    assert read(ddl, message, **options) == expected
    latest = registry.ask(f"/subjects/{subject}/versions/latest")
    assert latest["references"] == [{"name": "written_price.proto", "subject": "written_price.proto", "version": 1}]
    assert "written_money.proto" in registry.ask("/subjects")


@pytest.mark.slow
def test_a_given_schema_is_registered_as_it_is(registry: Registry, read: Read, write: Write) -> None:
    """Comments and all; a column may be missing."""
    subject = f"schema-{next(_numbers)}"
    text = f"// Our orders.\n{ORDER}"
    (message,) = write("cents double", (1.0,), subject=subject, schema=text, message_name="shop.Refund")
    assert read("id bigint, cents double", message) == [{"id": 0, "cents": 1.0, ERROR: None}]
    assert registry.ask(f"/subjects/{subject}/versions/latest")["schema"] == text


@pytest.mark.slow
def test_confluents_python_client_reads_and_writes_the_same(
    registry: Registry, read: Read, write: Write, generate: Callable[..., ModuleType]
) -> None:
    """Its serializer registers base64 and references; its deserializer reads what we write."""
    pytest.importorskip("google.type.date_pb2", reason="confluent-kafka[protobuf] brings googleapis-common-protos")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    module: Any = generate(
        theirs_line='syntax="proto3"; package theirs; message Line { int32 amount = 1; }',
        theirs_order='syntax="proto3"; package theirs; import "theirs_line.proto"; '
        "message Ignored { } message Order { int64 id = 1; Line line = 2; }",
    )
    topic = f"theirs-{next(_numbers)}"
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        serialize = ProtobufSerializer(module.Order, client, {"use.deprecated.format": False})
        theirs = serialize(module.Order(id=7, line={"amount": 3}), context)
        ddl = "id bigint, line struct<amount: int>"
        assert read(ddl, theirs) == [{"id": 7, "line": {"amount": 3}, ERROR: None}]
        (ours,) = write(ddl, (8, (4,)), subject=f"ours-{next(_numbers)}", message_class_name="theirs_order_pb2:Order")
        deserialize = ProtobufDeserializer(module.Order, {"use.deprecated.format": False})  # asks no registry
        assert deserialize(ours, context) == module.Order(id=8, line={"amount": 4})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": ORDER, "message_class_name": "os:path"}, r"is not a generated Protobuf class"),
        ({"schema": "hello"}, r"'protobuf-confluent\.schema' cannot be used: protoc cannot compile a schema"),
        ({"schema": ORDER, "message_name": "shop.Refnd"}, r"'shop\.Refnd'; expected .* such as shop\.Refund"),
        ({"schema": ORDER, "message_name": "shop.Refund"}, r"Column 'item' is not a field of the message shop\.Refund"),
        ({"url": None}, r"'protobuf-confluent\.url' is missing"),
    ],
)
def test_options_that_do_not_go_together_are_named(spark: SparkSession, options: dict[str, Any], said: str) -> None:
    """Before anything is read."""
    whole = {key: value for key, value in {"url": "http://localhost:8081", **options}.items() if value}
    with pytest.raises(ConfigurationError, match=said):
        PROTOBUF_CONFLUENT.check(struct(ORDER_DDL), named(PROTOBUF_CONFLUENT, keys(whole)))


def test_a_class_and_a_schema_are_not_given_together(spark: SparkSession, generate: Callable[..., ModuleType]) -> None:
    """Each says what the message is."""
    generate(both_given=order_of("both_given"))
    options = {"url": "http://localhost:8081", "message-class-name": "both_given_pb2:Order"}
    for other in ({"schema": ORDER}, {"message-name": "shop.Order"}):
        with pytest.raises(ConflictingOptionsError):
            PROTOBUF_CONFLUENT.check(struct(ORDER_DDL), named(PROTOBUF_CONFLUENT, {**options, **other}))


def test_writing_needs_columns_that_can_be_fields(write: Write) -> None:
    """Said when the query is started."""
    with pytest.raises(ConfigurationError, match=r"Column 'price' cannot be a Protobuf field"):
        write("price decimal(10, 2)", subject="s")


@pytest.mark.slow
@given(data=st.data())
def test_damaged_bytes_cost_no_row(registry: Registry, data: st.DataObject) -> None:
    """In the header or behind it: each record gives one row or one error, an undamaged one its row."""
    reading = _reading(struct("id bigint, item string"), {"protobuf-confluent.url": registry.url})
    schema_id = registry.register(ORDER, "fuzzed")
    good = framed(schema_id, b"\x08\x07\x12\x01x")

    def damaged() -> bytes:
        message = bytearray(good)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, max(len(message) - 1, 0)))
            message[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        return bytes(message)

    messages = data.draw(st.lists(st.none() | st.just(good) | st.builds(damaged), max_size=8))
    result = decode_batch(messages, reading)
    assert isinstance(result, pa.StructArray)
    result.validate(full=True)
    rows = result.to_pylist()
    assert len(rows) == len(messages)
    for message, row in zip(messages, rows, strict=True):
        assert (row is None) == (message is None)
        if message == good:
            assert row == {"id": 7, "item": "x", ERROR: None}
        elif message is not None and row[ERROR]:
            assert row["id"] is row["item"] is None
