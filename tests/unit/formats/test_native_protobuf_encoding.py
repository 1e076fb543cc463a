"""The native encoder of Protobuf against Google's library, for random rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)
from tests.random_rows import random_rows
from tests.unit.formats.test_format_protobuf import PROTO2, PROTO3, SIMPLE, columns, message

from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.protobuf.descriptors import MessageType
from dynamic_kafka.formats.protobuf.encoding import encoder, native_spec
from dynamic_kafka.native import encoder as native_encoder

INT, LONG, TEXT, BYTES = IntegerType(), LongType(), StringType(), BinaryType()
NUMBERS = """syntax = "proto3"; message Numbers {
  sint32 a = 400; sfixed32 b = 3; sint64 c = 2; fixed32 d = 17; uint64 e = 30000; sfixed64 f = 1; uint32 g = 16;
  int32 h = 15;
  repeated sint64 l = 4; repeated fixed32 m = 5 [packed = false]; repeated double n = 6; repeated bool o = 7;
  map<sint32, bytes> p = 8; map<uint64, bool> q = 9; map<bool, float> r = 10; map<fixed32, sfixed64> s = 11;
  optional string t = 12; optional double u = 13; repeated bytes v = 14;
}"""
NUMBER_COLUMNS = columns(
    a=INT,
    b=LONG,
    c=LONG,
    d=LONG,
    e=LONG,
    f=LONG,
    g=INT,
    h=ByteType(),
    l=ArrayType(LONG),
    m=ArrayType(INT),
    n=ArrayType(DoubleType()),
    o=ArrayType(BooleanType()),
    p=MapType(INT, BYTES),
    q=MapType(LONG, BooleanType()),
    r=MapType(BooleanType(), FloatType()),
    s=MapType(INT, LONG),
    t=TEXT,
    u=DoubleType(),
    v=ArrayType(BYTES),
)
ONEOF = """syntax = "proto3"; message One { oneof x { int32 a = 5; In b = 4; string c = 3; } In d = 2; int32 e = 1;
  message In { oneof y { bool p = 1; In q = 2; } } }"""
IN = columns(q=columns(q=columns(p=BooleanType()), p=BooleanType()), p=BooleanType())
ONE_COLUMNS = columns(c=TEXT, b=IN, e=INT, a=INT, d=IN)
REQUIRED = (
    'syntax = "proto2"; message R { required int32 a = 1; repeated In b = 2; message In { required string c = 1; } }'
)
REQUIRED_COLUMNS = columns(a=INT, b=ArrayType(columns(c=TEXT)))


def check(type_: MessageType, schema: StructType, count: int, seed: int) -> tuple[int, int]:
    """Compare the messages of random rows; return how many rows were encoded, and how many were left."""
    rows = random_rows(schema, count, seed).cast(arrow_type(schema), safe=False)
    native = native_encoder(rows.type, json.dumps(native_spec(type_, schema, "nothing")))
    messages, left, _ = native(rows, b"header")
    messages.validate(full=True)
    encode = encoder(type_, schema, "nothing")
    good = pa.array(sorted(set(range(count)) - set(left)), pa.int64())
    expected = [None if m is None else b"header" + m for m in encode(rows.take(good))]
    found = messages.take(good).to_pylist()
    wrong = [i for i in range(len(good)) if expected[i] != found[i]]
    assert [(good[i].as_py(), expected[i], found[i]) for i in wrong[:3]] == []
    return len(good), len(left)


@pytest.mark.parametrize(
    ("text", "schema", "certain"),
    [
        (PROTO2, SIMPLE, 0.1),
        (PROTO3, StructType(SIMPLE.fields[::-1]), 0.1),
        (NUMBERS, NUMBER_COLUMNS, 0.01),
        (ONEOF, ONE_COLUMNS, 0.9),
        (REQUIRED, REQUIRED_COLUMNS, 0.5),
    ],
    ids=["proto2", "proto3", "numbers", "oneof", "required"],
)
def test_protobuf_is_encoded_as_by_the_library(text: str, schema: StructType, certain: float) -> None:
    """Byte by byte. What is left to it are errors, and maps of several entries, whose order is its own."""
    encoded, left = check(message(text), schema, 500, seed=1)
    assert encoded > 500 * certain
    assert left > 0


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ("optional group G = 1 { optional int32 a = 1; }", columns(g=columns(a=INT))),
        ("optional int32 a = 1; required int32 b = 2;", columns(a=INT)),
    ],
    ids=["groups", "a required field without a column"],
)
def test_some_messages_are_left_to_the_library(field: str, schema: StructType) -> None:
    """They are of proto2 alone."""
    type_ = message(f'syntax = "proto2"; message M {{ {field} }}')
    with pytest.raises(ValueError, match="Protobuf"):
        native_encoder(arrow_type(schema), json.dumps(native_spec(type_, schema, "")))
