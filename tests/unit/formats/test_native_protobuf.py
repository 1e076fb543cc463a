"""How the native kernel decodes Protobuf: odd and damaged messages beside Google's library, and what it is told."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import ArrayType, ByteType, IntegerType, MapType, StringType, StructType
from tests.protobuf_messages import columns_of, file_of, message_of

from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.format import ERROR, Format
from dynamic_kafka.formats.kernel import decoder
from dynamic_kafka.formats.protobuf.confluent import PROTOBUF_CONFLUENT
from dynamic_kafka.formats.protobuf.descriptors import MessageType, message_of_set
from dynamic_kafka.formats.protobuf.format import PROTOBUF
from dynamic_kafka.formats.protobuf.message_header import header_of
from dynamic_kafka.formats.protobuf.plan import Missing, plan_of
from dynamic_kafka.formats.protobuf.schemas import parse_schema
from dynamic_kafka.native import Decoder

INT, TEXT = IntegerType(), StringType()


def named(text: str) -> MessageType:
    """The message `M` of a .proto file."""
    return message_of_set("name", "M", parse_schema(text, {}))


def decode(type_: MessageType, schema: StructType, *messages: bytes) -> list[Any]:
    """What is decoded."""
    spec = {"format": "protobuf", "plan": plan_of(type_, schema, Missing(defaults=False))}
    rows = decoder(schema, spec)(pa.array(messages, pa.binary()))
    rows.validate(full=True)
    found: list[Any] = rows.to_pylist()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_library_and_the_kernel_refuse_the_same_messages(seed: int) -> None:
    """Whatever the message type is, also if no field is wanted: damaged messages, and those that lack required fields."""
    random = Random(seed)
    type_ = message_of_set("name", "test.M0", file_of(random))
    made = GetMessageClass(type_.descriptor)
    messages = [message_of(type_.descriptor, random) for _ in range(300)]
    refused = 0
    for message, row in zip(messages, decode(type_, StructType(), *messages), strict=True):
        try:
            parsed = made.FromString(message)
        except DecodeError:
            assert row[ERROR].startswith("Error parsing message of type 'test.M0': ")
            refused += 1
            continue
        if parsed.IsInitialized():
            assert row[ERROR] is None
        else:
            assert "lacks required fields" in row[ERROR]
    assert refused > 3


@pytest.mark.parametrize("seed", range(20))
def test_unused_columns_change_nothing_in_the_others(seed: int) -> None:
    """Whatever the message type is, and also for damaged messages: the rows and errors are those of all columns."""
    random = Random(seed)
    type_ = message_of_set("name", "test.M0", file_of(random))
    columns = columns_of(type_.descriptor, random)
    spec = {"format": "protobuf", "plan": plan_of(type_, columns, Missing(defaults=seed % 2 == 0))}
    messages = pa.array([message_of(type_.descriptor, random) for _ in range(300)], pa.binary())
    whole = Decoder(arrow_type(columns), spec).decode(messages)
    for _ in range(5):
        used = [field.name for field in columns if random.random() < 0.5]
        found = Decoder(arrow_type(columns), spec, used=used).decode(messages)
        found.validate(full=True)
        assert found.is_null().equals(whole.is_null())
        assert [field.name for field in found.type] == [*used, ERROR]
        # As texts, because a NaN is not equal to itself.
        assert all(str(found.field(name).to_pylist()) == str(whole.field(name).to_pylist()) for name in (*used, ERROR))


ODD = """syntax = "proto2"; message M {
  optional int32 a = 1; optional M m = 2; repeated int32 r = 3; map<string, E> e = 4; optional group G = 5 {
  optional int32 x = 1; repeated M n = 2; } oneof o { string s = 6; M t = 7; } required int32 q = 8;
  map<int32, M> c = 9; enum E { ZERO = 0; TWO = 2; } extensions 100 to 200; }"""
INNER = StructType().add("a", INT).add("r", ArrayType(INT))
COLUMNS = (
    StructType()
    .add("a", INT)
    .add("r", ArrayType(INT))
    .add("m", INNER)
    .add("e", MapType(TEXT, TEXT))
    .add("g", StructType().add("x", INT).add("n", ArrayType(StructType().add("a", INT))))
    .add("s", TEXT)
    .add("t", StructType().add("a", INT))
    .add("c", MapType(INT, StructType().add("a", INT)))
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"\x08\x01\x08\x02", {"a": 2}),
        (b"\x12\x04\x08\x01\x18\x01\x12\x06\x18\x02\x40\x00\x18\x03", {"m": {"a": 1, "r": [1, 2, 3]}}),
        (b"\x22\x03\x0a\x01x\x22\x05\x0a\x01x\x10\x02", {"e": [("x", "TWO")]}),
        (b"\x22\x05\x0a\x01x\x10\x09", {}),
        (b"\x22\x07\x0a\x01x\x10\x02\x18\x09", {"e": [("x", "TWO")]}),
        (b"\x2b\x08\x07\x12\x04\x08\x01\x40\x00\x2c", {"g": {"x": 7, "n": [{"a": 1}]}}),
        (b"\x2b\x08\x07\x2c\x2b\x12\x04\x08\x01\x40\x00\x2c", {"g": {"x": 7, "n": [{"a": 1}]}}),
        (b"\x2a\x02\x08\x07", {}),
        (b"\x3a\x04\x08\x01\x40\x00\x32\x01s", {"s": "s"}),
        (b"\x32\x01s\x3a\x04\x08\x01\x40\x00", {"t": {"a": 1}}),
        (b"\x3a\x04\x08\x01\x40\x00\x32\x01s\x3a\x02\x40\x00", {"t": {"a": None}}),
        (b"\x0a\x01x\x0d\x00\x00\x00\x00", {}),
        (b"\x1a\x02\x01\x02\x18\x03", {"r": [1, 2, 3]}),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", {"a": -1}),
        (b"\xa2\x06\x01\xff\xa3\x06\x08\x01\xab\x06\xac\x06\xa4\x06", {}),
        (b"\x4a\x06\x08\x01\x12\x02\x40\x00\x4a\x08\x08\x81\x80\x80\x80\x10\x12\x00", None),
        (b"\x4a\x04\x12\x02\x40\x00", {"c": [(0, {"a": None})]}),
    ],
    ids=[
        *("the last value", "merged messages", "a key twice", "an unknown number in an entry"),
        *(
            "an unknown field in an entry",
            "a group",
            "merged groups",
            "a group as a message",
            "a oneof",
            "another oneof",
        ),
        *("a oneof in three parts", "other wire types", "packed or not", "more than 64 bits", "extensions and groups"),
        *("an entry that lacks a field", "an entry without a key"),
    ],
)
def test_odd_messages_are_read_as_by_java(message: bytes, expected: dict[str, Any] | None) -> None:
    """Each of them is what no serializer writes, and is read by the rules of the wire format."""
    (row,) = decode(named(ODD), COLUMNS, message + b"\x40\x00")
    if expected is None:
        assert row[ERROR] == "Message of type 'M' lacks required fields: c[1].q"
    else:
        assert row == {**dict.fromkeys(COLUMNS.names), **expected, ERROR: None}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (b"\x08", "Wire format was corrupt in a"),
        (b"\x12\x02\x08", "Wire format was corrupt in m"),
        (b"\x2b\x12\x01\x08\x2c", "Wire format was corrupt in g.n.a"),
        (b"\x2b\x08\x01", "g has a group that does not end"),
        (b"\x2c", "the message has a group"),
        (b"\x00\x00", "Wire format was corrupt in the message"),
        (b"\x12\x80\x80\x80\x80\x80\x00", "Wire format was corrupt in m"),
        (b"\xab\x06" * 101, "the message is nested too deeply"),
    ],
)
def test_a_damaged_message_names_the_field(message: bytes, place: str) -> None:
    """With the names of those around it."""
    (row,) = decode(named(ODD), COLUMNS, message)
    assert row[ERROR].startswith(f"Error parsing message of type 'M': {place}")


def test_a_value_that_does_not_fit_names_its_field() -> None:
    """Only the value that counts has to fit."""
    type_ = named('syntax = "proto3"; message M { int64 x = 1; I i = 2; message I { repeated int32 b = 1; } }')
    columns = StructType().add("i", StructType().add("b", ArrayType(ByteType())))
    (row,) = decode(type_, columns, b"\x12\x03\x08\xc8\x01")
    assert row[ERROR] == "A value does not fit its column: i.b is 200, which is not between -128 and 127"


def test_messages_are_merged_at_any_depth_without_much_work() -> None:
    """A message of a hundred levels, each of which comes twice."""
    type_ = named('syntax = "proto3"; message M { M m = 1; int32 a = 2; }')
    message = b"\x10\x05"
    for _ in range(100):
        size = len(message)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        message = b"\x0a" + length + message + b"\x0a\x00"
    columns = StructType().add("m", StructType().add("m", StructType().add("a", INT)))
    assert decode(type_, columns, message) == [{"m": {"m": {"a": 0}}, ERROR: None}]


def test_a_given_type_is_read_after_the_header_of_a_registry() -> None:
    """As the format `protobuf-confluent` reads it, whatever the id is. The registry is not asked."""
    columns = StructType().add("a", INT)
    options = {"protobuf-confluent.url": "http://nowhere"}
    text = 'syntax="proto3"; message M { int32 a = 1; string not_wanted = 2; }'
    assert PROTOBUF_CONFLUENT.decoder is not None
    decode_all = PROTOBUF_CONFLUENT.decoder(columns, options | {"protobuf-confluent.schema": text})
    headers = [header_of(7, [0]), header_of(2**31 - 1, [3, 0, 70]), b"\0\0\0\0\x07", b"\1\0\0\0\x07\0"]
    messages = [*(header + b"\x08\x05" for header in headers), headers[0] + b"\x12\x01\xff", None]
    rows = decode_all(pa.array(messages)).to_pylist()
    assert rows[:2] == [{"a": 5, ERROR: None}] * 2
    assert [row[ERROR][:30] for row in rows[2:5]] == ["It does not begin with the hea"] * 2 + [
        "Error parsing message of type "
    ]
    assert rows[5] is None


def test_a_plan_has_only_the_wanted_columns() -> None:
    """The other fields have no column, and a message that contains itself is in the plan once more."""
    type_ = named('syntax="proto3"; message M { int32 a = 1; M m = 2; string s = 3; M n = 4; }')
    message, unwanted = plan_of(type_, StructType().add("a", INT), Missing(defaults=False))["messages"]
    assert [(field["number"], field.get("column")) for field in message["fields"]] == [
        (1, 0),
        (2, None),
        (3, None),
        (4, None),
    ]
    assert [field.get("message") for field in message["fields"]] == [None, 1, None, 1]
    assert [field.get("column") for field in unwanted["fields"]] == [None] * 4
    assert [field.get("message") for field in unwanted["fields"]] == [None, 1, None, 1]


def test_message_sets_are_unknown_fields() -> None:
    """Their messages are extensions, which are not read."""
    text = "message S { option message_set_wire_format = true; extensions 4 to max; }"
    type_ = named(f'syntax="proto2"; message M {{ optional int32 a = 1; optional S s = 2; }} {text}')
    message = b"\x08\x05\x12\x07\x0b\x10\x04\x1a\x01x\x0c"
    assert decode(type_, StructType().add("a", INT), message) == [{"a": 5, ERROR: None}]


@pytest.mark.parametrize("found", [PROTOBUF, PROTOBUF_CONFLUENT])
def test_workers_need_neither_the_file_nor_a_compiler(found: Format, tmp_path: Path) -> None:
    """They get the message type itself."""
    file = tmp_path / "m.desc"
    file.write_bytes(parse_schema('syntax="proto3"; message M { int32 a = 1; }', {}).SerializeToString())
    columns = StructType().add("a", INT)
    options = {f"{found.name}.message-class-name": "M", f"{found.name}.descriptor-file": str(file)}
    if found is PROTOBUF_CONFLUENT:
        options["protobuf-confluent.url"] = "http://nowhere"
    portable = found.portable(options)
    file.unlink()
    decode_all = found.decoder(columns, json.loads(json.dumps(portable)))
    message = b"\x08\x05" if found is PROTOBUF else b"\0\0\0\0\x07\0\x08\x05"
    assert decode_all(pa.array([message])).to_pylist() == [{"a": 5, ERROR: None}]
