"""How the native kernel encodes Protobuf: random rows beside Google's library, and what it is told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
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
    TimestampType,
)
from tests.random_rows import random_rows
from tests.unit.formats.test_format_protobuf import PROTO2, PROTO3, SIMPLE, columns, message

from dynamic_kafka.errors import RowError
from dynamic_kafka.formats.arrow import all_messages, arrow_type
from dynamic_kafka.formats.protobuf.encoding import encoder

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


GROUPS = """syntax = "proto2"; message M { optional group G = 9 { optional int32 x = 1; repeated group H = 3 {
  optional string s = 1; } } repeated group I = 2 { optional int64 y = 1; } oneof o { group J = 4 {
  optional int32 z = 1; } int32 k = 5; } }"""
GROUP_COLUMNS = columns(
    g=columns(x=INT, h=ArrayType(columns(s=TEXT))), i=ArrayType(columns(y=LONG)), j=columns(z=INT), k=INT
)
WELL_KNOWN = """syntax = "proto3"; import "google/protobuf/wrappers.proto"; import "google/protobuf/timestamp.proto";
  message M { google.protobuf.Int32Value a = 1; google.protobuf.UInt64Value b = 2; google.protobuf.BoolValue c = 3;
  repeated google.protobuf.DoubleValue d = 4; google.protobuf.BytesValue e = 5; google.protobuf.Timestamp f = 6; }"""
WELL_KNOWN_COLUMNS = columns(a=INT, b=LONG, c=BooleanType(), d=ArrayType(DoubleType()), e=BYTES, f=TimestampType())


@pytest.mark.parametrize(
    ("text", "schema", "certain"),
    [
        (PROTO2, SIMPLE, 0.3),
        (PROTO3, StructType(SIMPLE.fields[::-1]), 0.3),
        (NUMBERS, NUMBER_COLUMNS, 0.05),
        (ONEOF, ONE_COLUMNS, 0.9),
        (REQUIRED, REQUIRED_COLUMNS, 0.5),
        (GROUPS, GROUP_COLUMNS, 0.8),
        (WELL_KNOWN, WELL_KNOWN_COLUMNS, 0.8),
    ],
    ids=["proto2", "proto3", "numbers", "oneof", "required", "groups", "well-known"],
)
def test_messages_are_those_of_the_library(text: str, schema: StructType, certain: float) -> None:
    """Byte by byte, as the library writes what it has read. The other rows have an error with a column."""
    type_ = message(text)
    rows = random_rows(schema, 500, 1).cast(arrow_type(schema), safe=False)
    encode, made = encoder(type_, schema, "nothing"), GetMessageClass(type_.descriptor)
    encoded, wrong = 0, set()
    for place in range(len(rows)):
        try:
            (found,) = all_messages(encode(rows.slice(place, 1), b"header")).to_pylist()
        except RowError as error:
            wrong.add(error.column.partition(".")[0].partition("[")[0])
            continue
        encoded += 1
        assert (found is None) == (not rows[place].is_valid)
        if found is not None:
            assert found.startswith(b"header")
            assert made.FromString(found[6:]).SerializeToString(deterministic=True) == found[6:]
    assert 500 * certain < encoded
    assert wrong <= set(schema.names)


def test_what_a_row_lacks_is_named_with_its_place() -> None:
    """An element of an array with its index, also one that is null; the value of a map without its key, which is data."""
    text = (
        'syntax = "proto2"; message M { repeated I a = 1; map<string, I> b = 2; message I { required int32 r = 1; } }'
    )
    inner = columns(r=INT)
    schema = columns(a=ArrayType(inner), b=MapType(TEXT, inner))
    encode = encoder(message(text), schema, "")
    for row, path in (({"a": [{"r": 1}, {}]}, "a[1].r"), ({"a": [None]}, "a[0].r"), ({"b": [("secret", {})]}, "b.r")):
        with pytest.raises(RowError) as raised:
            all_messages(encode(pa.array([row], arrow_type(schema)), b""))
        assert str(raised.value) == (
            f"A row's column '{path}' is null or missing, but is a required field of message M"
        )


def test_of_a_maps_key_the_last_value_is_written() -> None:
    """Spark may be set to keep several."""
    schema = columns(b=MapType(TEXT, INT))
    rows = pa.array([{"b": [("x", 1), ("y", 2), ("x", 3)]}], arrow_type(schema))
    encode = encoder(message('syntax = "proto3"; message M { map<string, int32> b = 2; }'), schema, "")
    (found,) = encode(rows, b"").messages
    assert found.as_py() == b"\x12\x05\x0a\x01x\x10\x03\x12\x05\x0a\x01y\x10\x02"


def test_groups_are_written() -> None:
    """Between their tags, also in an array, in which a null is an empty one."""
    text = 'syntax = "proto2"; message M { optional group G = 1 { optional int32 x = 1; } repeated group H = 2 {} }'
    schema = columns(g=columns(x=INT), h=ArrayType(StructType()))
    rows = pa.array([{"g": {"x": 5}, "h": [{}, None]}], arrow_type(schema))
    (found,) = encoder(message(text), schema, "")(rows, b"").messages
    assert found.as_py() == b"\x0b\x08\x05\x0c\x13\x14\x13\x14"
