"""The native decoder of Protobuf against the one in Python, for random message types, messages and damage."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StructType
from tests.native import DECODED, LEFT, NULL, decode, differences, with_ordered_maps
from tests.protobuf_messages import columns_of, file_of, message_of

from dynamic_kafka.formats.format import ERROR, Format
from dynamic_kafka.formats.protobuf.confluent import PROTOBUF_CONFLUENT
from dynamic_kafka.formats.protobuf.decoding import Missing, decoder
from dynamic_kafka.formats.protobuf.descriptors import MessageType, message_of_set
from dynamic_kafka.formats.protobuf.format import PROTOBUF
from dynamic_kafka.formats.protobuf.message_header import header_of
from dynamic_kafka.formats.protobuf.native import native_plan
from dynamic_kafka.formats.protobuf.schemas import parse_schema


def check(type_: MessageType, schema: StructType, payloads: list[bytes | None], *, defaults: bool) -> pa.Array:
    """Compare the two decoders; return what became of each message."""
    missing = Missing(defaults)
    plan = native_plan(type_, schema, missing)
    assert plan is not None
    spec = {"format": "protobuf", **plan}
    truth = decoder(type_, schema, missing, ignore_errors=False)(payloads)
    messages = pa.array(payloads, pa.binary())
    rows, outcomes = decode(spec, messages)
    assert differences(with_ordered_maps(truth), with_ordered_maps(rows), outcomes, messages) == [], json.dumps(spec)
    return outcomes


def compare(seed: int, count: int) -> tuple[int, int]:
    """Compare messages of a random type; return how many were decoded, and how many there were."""
    random = Random(seed)
    files = file_of(random)
    type_ = message_of_set("name", "test.M0", files)
    schema = columns_of(type_.descriptor, random)
    payloads: list[bytes | None] = [message_of(type_.descriptor, random) for _ in range(count)]
    outcomes = check(type_, schema, [*payloads, None, b""], defaults=random.random() < 0.5)
    return outcomes.to_pylist().count(DECODED), count


def named(text: str) -> MessageType:
    """The message `M` of a .proto file."""
    return message_of_set("name", "M", parse_schema(text, {}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_protobuf_is_decoded_as_in_python(seed: int) -> None:
    """Whatever the message type, the columns and the message are; and many messages are decoded."""
    results = [compare(1000 * seed + i, 300) for i in range(10)]
    assert sum(decoded for decoded, _ in results) > sum(count for _, count in results) / 4


@pytest.mark.slow
def test_a_given_type_is_read_behind_the_header_of_a_registry() -> None:
    """As the format `protobuf-confluent` reads it; without a given type the schema is known only when it is read."""
    columns = StructType().add("a", IntegerType())
    options = {"protobuf-confluent.url": "http://nowhere"}
    assert PROTOBUF_CONFLUENT.native(columns, options) is None
    text = 'syntax="proto3"; message M { int32 a = 1; string not_wanted = 2; }'
    plan = PROTOBUF_CONFLUENT.native(columns, options | {"protobuf-confluent.schema": text})
    assert plan is not None
    headers = [header_of(7, [0]), header_of(2**31 - 1, [3, 0, 70]), b"\0\0\0\0\x07", b"\1\0\0\0\x07\0"]
    messages = pa.array([*(header + b"\x08\x05" for header in headers), headers[0] + b"\x12\x01\xff", None])
    rows, outcomes = decode({name: part for name, part in plan.items() if name != "decoder"}, messages)
    assert outcomes.to_pylist() == [DECODED, DECODED, LEFT, LEFT, LEFT, NULL]
    assert rows.to_pylist()[:2] == [{"a": 5, ERROR: None}] * 2


def test_a_plan_has_only_the_wanted_columns() -> None:
    """The other fields have no column, and a message that contains itself is in the plan once more."""
    type_ = named('syntax="proto3"; message M { int32 a = 1; M m = 2; string s = 3; M n = 4; }')
    plan = native_plan(type_, StructType().add("a", IntegerType()), Missing(defaults=False))
    assert plan is not None
    message, unwanted = plan["messages"]
    assert [(field["number"], field["column"]) for field in message["fields"]] == [
        (1, 0),
        (2, None),
        (3, None),
        (4, None),
    ]
    assert [field.get("message") for field in message["fields"]] == [None, 1, None, 1]
    assert [field["column"] for field in unwanted["fields"]] == [None] * 4
    assert [field.get("message") for field in unwanted["fields"]] == [None, 1, None, 1]


def test_message_sets_are_left_to_spark() -> None:
    """They have an encoding of their own."""
    text = "message S { option message_set_wire_format = true; extensions 4 to max; }"
    type_ = named(f'syntax="proto2"; message M {{ optional int32 a = 1; optional S s = 2; }} {text}')
    assert native_plan(type_, StructType().add("a", IntegerType()), Missing(defaults=False)) is None


@pytest.mark.parametrize("found", [PROTOBUF, PROTOBUF_CONFLUENT])
def test_workers_need_neither_the_file_nor_a_compiler(found: Format, tmp_path: Path) -> None:
    """What decodes the messages that are left gets the message type itself."""
    file = tmp_path / "m.desc"
    file.write_bytes(parse_schema('syntax="proto3"; message M { int32 a = 1; }', {}).SerializeToString())
    columns = StructType().add("a", IntegerType())
    options = {f"{found.name}.message-class-name": "M", f"{found.name}.descriptor-file": str(file)}
    if found is PROTOBUF_CONFLUENT:
        options["protobuf-confluent.url"] = "http://nowhere"
    plan = found.native(columns, options)
    file.unlink()
    assert plan is not None
    assert found.decoder is not None
    decode_left = found.decoder(columns, options | json.loads(json.dumps(plan["decoder"]))).rows
    message = b"\x08\x05" if found is PROTOBUF else b"\0\0\0\0\x07\0\x08\x05"
    assert decode_left(pa.array([message])).to_pylist() == [{"a": 5, ERROR: None}]
