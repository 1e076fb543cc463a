"""The format `protobuf` without Spark: descriptors, types, what is decoded and encoded, and damaged bytes."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError, RegistryError, RowError
from dynamic_kafka.formats.arrow import all_messages, arrow_type
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.kernel import decoder
from dynamic_kafka.formats.protobuf import schemas as protobuf_schemas
from dynamic_kafka.formats.protobuf.descriptors import MessageType, message_of_options, message_of_set
from dynamic_kafka.formats.protobuf.encoding import encoder
from dynamic_kafka.formats.protobuf.format import PROTOBUF
from dynamic_kafka.formats.protobuf.message_header import header_of, header_size, message_indexes
from dynamic_kafka.formats.protobuf.plan import Missing, plan_of
from dynamic_kafka.formats.protobuf.schemas import message_at, message_path, parse_schema, schema_text
from dynamic_kafka.formats.protobuf.types import file_of_columns
from dynamic_kafka.formats.schema_ids import id_of

LONG, INT, TEXT, DOUBLE, BYTES = LongType(), IntegerType(), StringType(), DoubleType(), BinaryType()

# Flink's test message, in both syntaxes.
FIELDS = """
  {o} int64 uid = 1;
  {o} string name = 2;
  {o} int32 category_type = 3;
  {o} bytes content = 4;
  {o} double price = 5;
  map<int64, Inner> value_map = 6;
  repeated Inner value_arr = 7;
  {o} Corpus corpus_int = 8;
  {o} Corpus corpus_str = 9;
  {o} bool flag = 10;
  {o} float ratio = 11;
  {o} uint32 small = 12;
  {o} fixed64 large = 13;
  repeated string tags = 14;
  map<string, string> labels = 15;
  {o} Inner inner = 16;
  {o} google.protobuf.Timestamp ts = 17;
  repeated google.protobuf.Timestamp times = 18;
  repeated Corpus corpora = 19;
  message Inner {{ {o} int64 v1 = 1; {o} int32 v2 = 2; }}
  enum Corpus {{ UNIVERSAL = 0; WEB = 1; IMAGES = 2; VIDEO = 7; }}
"""
HEAD = 'syntax = "{}"; package flink.test; import "google/protobuf/timestamp.proto"; message Simple {{'
PROTO2 = HEAD.format("proto2") + FIELDS.format(o="optional") + "}"
PROTO3 = HEAD.format("proto3") + FIELDS.format(o="") + "}"


def columns(**types: DataType) -> StructType:
    """A table's columns."""
    return StructType([StructField(name, type_) for name, type_ in types.items()])


def message(text: str, name: str | None = None, **imports: str) -> MessageType:
    """The first message of a .proto file, or the one with the name."""
    files = parse_schema(text, {f"{key}.proto": value for key, value in imports.items()})
    return message_of_set("name", name or message_at(files.file[-1], [0]), files)


def class_of(type_: MessageType) -> Any:
    """The library's class of a message."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(type_.descriptor)


@pytest.fixture(scope="module")
def proto2() -> MessageType:
    """Flink's test message in proto2."""
    return message(PROTO2)


@pytest.fixture(scope="module")
def proto3() -> MessageType:
    """Flink's test message in proto3."""
    return message(PROTO3)


INNER = columns(v1=LONG, v2=INT)
SIMPLE = columns(
    uid=LONG,
    name=TEXT,
    category_type=INT,
    content=BYTES,
    price=DOUBLE,
    value_map=MapType(LONG, INNER),
    value_arr=ArrayType(INNER),
    corpus_int=INT,
    corpus_str=TEXT,
    flag=BooleanType(),
    ratio=FloatType(),
    small=INT,
    large=LONG,
    tags=ArrayType(TEXT),
    labels=MapType(TEXT, TEXT),
    inner=INNER,
    ts=TimestampType(),
    times=ArrayType(TimestampNTZType()),
    corpora=ArrayType(TEXT),
)
FULL_ROW: dict[str, Any] = {
    "uid": -5,
    "name": "née",
    "category_type": -7,
    "content": b"\x00\xff",
    "price": 0.5,
    "value_map": [(3, {"v1": 1, "v2": 2})],
    "value_arr": [{"v1": 1, "v2": None}, {"v1": None, "v2": 2}],
    "corpus_int": 7,
    "corpus_str": "IMAGES",
    "flag": True,
    "ratio": 1.5,
    "small": -1,
    "large": -2,
    "tags": ["a", "b"],
    "labels": [("k", "v")],
    "inner": {"v1": 9, "v2": 8},
    "ts": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "times": [datetime(2024, 2, 29), datetime(1900, 1, 1)],  # noqa: DTZ001
    "corpora": ["WEB", "VIDEO"],
}


def decode(type_: MessageType, schema: StructType, *payloads: bytes | None, **options: bool) -> list[Any]:
    """What is decoded, as Python objects."""
    plan = plan_of(type_, schema, Missing(options.pop("defaults", False), options.pop("unknown_columns", False)))
    spec = {"format": "protobuf", "ignore_parse_errors": options.pop("ignore_errors", False), "plan": plan}
    result = decoder(schema, spec)(pa.array(payloads, pa.binary()))
    result.validate(full=True)
    assert len(result) == len(payloads)
    assert [field.name for field in result.type] == [*schema.names, ERROR]
    return list(result.to_pylist())


def rows(schema: StructType, *values: dict[str, Any] | None) -> pa.StructArray:
    """Rows as Spark hands them over."""
    return pa.array(values, arrow_type(schema))


def encode(type_: MessageType, schema: StructType, *values: dict[str, Any] | None, literal: str = "") -> list[Any]:
    """What is encoded."""
    found: list[Any] = all_messages(encoder(type_, schema, literal)(rows(schema, *values), b"")).to_pylist()
    return found


# which columns go with which fields


@pytest.mark.parametrize("text", [PROTO2, PROTO3])
def test_a_row_of_all_types_comes_back(text: str) -> None:
    """Every type of Flink's table, maps, arrays, rows, enums as numbers and names, timestamps before and after 1970."""
    type_ = message(text)
    (payload,) = encode(type_, SIMPLE, FULL_ROW)
    (row,) = decode(type_, SIMPLE, payload)
    without_presence = {"value_arr": [{"v1": 1, "v2": 0}, {"v1": 0, "v2": 2}]} if text == PROTO3 else {}
    assert row == {**FULL_ROW, **without_presence, ERROR: None}


def test_the_library_reads_what_is_encoded(proto3: MessageType) -> None:
    """Compared with Google's own classes, so that two errors of ours cannot hide each other."""
    (payload,) = encode(proto3, SIMPLE, FULL_ROW)
    made = class_of(proto3).FromString(payload)
    assert (made.small, made.large) == (2**32 - 1, 2**64 - 2)
    assert (made.ts.seconds, made.ts.nanos) == (-1, 999_999_000)
    assert (made.corpus_int, made.corpus_str, list(made.corpora)) == (7, 2, [1, 7])
    assert made.value_map[3].v2 == 2
    assert [inner.v1 for inner in made.value_arr] == [1, 0]


@pytest.mark.parametrize(
    ("field", "fitting", "unfitting"),
    [
        ("int32 f", [INT, LONG, ShortType(), ByteType()], [TEXT, DOUBLE]),
        ("uint32 f", [INT, LONG], [ShortType()]),
        ("int64 f", [LONG], [INT, TimestampType()]),
        ("fixed64 f", [LONG], [INT]),
        ("double f", [DOUBLE], [FloatType(), DecimalType(10, 2)]),
        ("float f", [FloatType()], [DOUBLE]),
        ("bool f", [BooleanType()], [INT]),
        ("string f", [TEXT], [BYTES, ArrayType(TEXT)]),
        ("bytes f", [BYTES], [TEXT]),
        ("E f", [TEXT, INT, LONG, ShortType(), ByteType()], [DOUBLE]),
        ("repeated int64 f", [ArrayType(LONG)], [LONG, ArrayType(INT)]),
        ("map<string, int64> f", [MapType(TEXT, LONG)], [MapType(TEXT, INT), MapType(LONG, LONG), ArrayType(LONG)]),
        ("I f", [columns(v=LONG)], [LONG, columns(v=INT), TimestampType()]),
        (
            "google.protobuf.Timestamp f",
            [TimestampType(), TimestampNTZType(), columns(seconds=LONG, nanos=INT)],
            [LONG, TEXT],
        ),
    ],
)
def test_types_match_as_in_flink(field: str, fitting: list[DataType], unfitting: list[DataType]) -> None:
    """What does not is an error that names column, both types, and one that would do."""
    type_ = message(
        'syntax="proto3"; import "google/protobuf/timestamp.proto"; '
        f"message M {{ {field} = 1; message I {{ int64 v = 1; }} enum E {{ A = 0; }} }}"
    )
    for good in fitting:
        decode(type_, columns(f=good), b"")
        encode(type_, columns(f=good), None)
    for bad in unfitting:
        with pytest.raises(ConfigurationError, match=r"Column 'f.*is of type .*; use "):
            decode(type_, columns(f=bad), b"")
        with pytest.raises(ConfigurationError, match=r"Column 'f.*is of type .*; use "):
            encode(type_, columns(f=bad), None)


def test_a_column_that_is_no_field_is_an_error_with_the_nearest_name(proto2: MessageType) -> None:
    """Also inside a row."""
    with pytest.raises(
        ConfigurationError, match=r"Column 'nam' is not a field of .*flink\.test\.Simple; did you mean 'name'"
    ):
        decode(proto2, columns(nam=TEXT), b"")
    with pytest.raises(
        ConfigurationError, match=r"Column 'inner\.x' is not a field of .*Inner; its fields are: v1, v2"
    ):
        decode(proto2, columns(inner=columns(x=TEXT)), b"")


def test_a_column_that_the_writer_does_not_know_may_be_null(proto2: MessageType) -> None:
    """As it has to be when schemas come from a registry."""
    schema = columns(uid=LONG, later=ArrayType(TEXT), inner=columns(v1=LONG, later=INT))
    payload = class_of(proto2)(uid=1, inner={"v1": 2}).SerializeToString()
    (row,) = decode(proto2, schema, payload, unknown_columns=True)
    assert row == {"uid": 1, "later": None, "inner": {"v1": 2, "later": None}, ERROR: None}


# what is not there


def test_a_time_that_is_not_there_is_null_or_the_first_one(proto3: MessageType) -> None:
    """As any message, by `read-default-values`."""
    schema = columns(ts=TimestampType())
    assert decode(proto3, schema, b"") == [{"ts": None, ERROR: None}]
    assert decode(proto3, schema, b"", defaults=True) == [{"ts": datetime(1970, 1, 1, tzinfo=UTC), ERROR: None}]


def test_optional_scalars_and_oneofs_of_proto3_may_be_null() -> None:
    """They have presence; Flink would read the default."""
    type_ = message('syntax="proto3"; message M { optional int32 a = 1; oneof o { int32 b = 2; string c = 3; } }')
    schema = columns(a=INT, b=INT, c=TEXT)
    payload = class_of(type_)(a=0, c="").SerializeToString()
    assert decode(type_, schema, payload, b"") == [
        {"a": 0, "b": None, "c": "", ERROR: None},
        {"a": None, "b": None, "c": None, ERROR: None},
    ]
    assert decode(type_, schema, b"", defaults=True) == [{"a": 0, "b": 0, "c": "", ERROR: None}]


def test_of_a_oneof_the_last_column_that_is_not_null_is_written() -> None:
    """Flink sets fields in the order of the table's columns."""
    type_ = message('syntax="proto3"; message M { oneof o { int32 b = 2; string c = 3; } }')
    for schema, winner in ((columns(b=INT, c=TEXT), "c"), (columns(c=TEXT, b=INT), "b")):
        (payload, other) = encode(type_, schema, {"b": 1, "c": "x"}, {"b": 1, "c": None})
        assert class_of(type_).FromString(payload).WhichOneof("o") == winner
        assert class_of(type_).FromString(other).WhichOneof("o") == "b"


def test_nulls_in_arrays_and_maps_become_defaults(proto2: MessageType) -> None:
    """A text the literal, an enum its first value, a message the empty one: Protobuf has no nulls there."""
    schema = columns(
        tags=ArrayType(TEXT),
        labels=MapType(TEXT, TEXT),
        value_arr=ArrayType(INNER),
        value_map=MapType(LONG, INNER),
        corpora=ArrayType(TEXT),
        times=ArrayType(TimestampType()),
    )
    row = {
        "tags": [None, "x"],
        "labels": [("k", None)],
        "value_arr": [None, {"v1": 1}],
        "value_map": [(1, None)],
        "corpora": [None, "WEB"],
        "times": [None],
    }
    (payload,) = encode(proto2, schema, row, literal="NULL")
    made = class_of(proto2).FromString(payload)
    assert list(made.tags) == ["NULL", "x"]
    assert dict(made.labels) == {"k": "NULL"}
    assert [inner.v1 for inner in made.value_arr] == [0, 1]
    assert list(made.value_map) == [1]
    assert list(made.corpora) == [0, 1]
    assert len(made.times) == 1
    (payload,) = encode(proto2, columns(tags=ArrayType(TEXT)), {"tags": [None]})
    assert list(class_of(proto2).FromString(payload).tags) == [""]


def test_null_columns_and_empty_ones_are_not_set(proto2: MessageType) -> None:
    """A null row is no message at all."""
    empty: dict[str, Any] = {"tags": [], "value_map": []}
    assert encode(proto2, SIMPLE, dict.fromkeys(SIMPLE.names), None, empty) == [b"", None, b""]


def test_rows_in_the_middle_of_an_array_are_encoded_as_they_are(proto2: MessageType) -> None:
    """Arrow's slices keep the offsets of the whole; null lists may hide values."""
    schema = columns(tags=ArrayType(TEXT), labels=MapType(TEXT, TEXT), value_arr=ArrayType(INNER), inner=INNER)
    values = [
        {
            "tags": [str(n)] * n,
            "labels": [(str(k), "v") for k in range(n)],
            "value_arr": [{"v1": n}] * n,
            "inner": {"v2": n},
        }
        if n % 3
        else {"inner": None}
        for n in range(10)
    ]
    whole = encode(proto2, schema, *values)
    assert encoder(proto2, schema, "")(rows(schema, *values).slice(3, 5), b"").messages.to_pylist() == whole[3:8]
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array(["a", "b", "c"]), mask=pa.array([True, False]))
    struct = pa.StructArray.from_arrays([hidden], ["tags"])
    first, second = encoder(proto2, columns(tags=ArrayType(TEXT)), "")(struct, b"").messages.to_pylist()
    assert first == b""
    assert list(class_of(proto2).FromString(second).tags) == ["c"]


# enums


def test_an_enum_value_that_is_not_known_is_written_as_the_first_one(proto3: MessageType) -> None:
    """A name or a number, as in Flink."""
    schema = columns(corpus_str=TEXT, corpus_int=INT)
    (payload,) = encode(proto3, schema, {"corpus_str": "NOBODY", "corpus_int": 99})
    assert payload == b""


def test_of_an_enums_names_for_a_number_the_first_is_read() -> None:
    """As in Java; either is written."""
    text = 'syntax="proto3"; message M { E e = 1; enum E { option allow_alias = true; A = 0; B = 1; C = 1; } }'
    type_, schema = message(text), columns(e=TEXT)
    payloads = encode(type_, schema, {"e": "B"}, {"e": "C"})
    assert payloads == [b"\x08\x01"] * 2
    assert decode(type_, schema, *payloads) == [{"e": "B", ERROR: None}] * 2


def test_an_enum_number_that_is_not_known_is_itself_in_a_column_of_numbers() -> None:
    """Flink fails; in a column of texts, both read `UNRECOGNIZED`."""
    type_ = message('syntax="proto3"; message M { E e = 1; enum E { A = 0; } }')
    assert decode(type_, columns(e=INT), b"\x08\x05") == [{"e": 5, ERROR: None}]


# what does not fit


def test_a_damaged_message_is_an_error_of_its_own(proto3: MessageType) -> None:
    """The others are read; null stays null; ignored errors are no rows."""
    good = class_of(proto3)(uid=1).SerializeToString()
    schema = columns(uid=LONG)
    payloads = (good, b"\x08", None, good, b"\xff\xff")
    result = decode(proto3, schema, *payloads)
    assert [row and row["uid"] for row in result] == [1, None, None, 1, None]
    assert result[2] is None
    assert "flink.test.Simple" in result[1][ERROR]
    assert [row and bool(row[ERROR]) for row in result] == [False, True, None, False, True]
    assert [row and row["uid"] for row in decode(proto3, schema, *payloads, ignore_errors=True)] == [
        1,
        None,
        None,
        1,
        None,
    ]
    assert decode(proto3, schema, *payloads, ignore_errors=True)[1] is None


def test_required_fields_that_are_missing_in_many_places_are_an_error() -> None:
    """Google's library crashes when it is asked for their names."""
    type_ = message(
        'syntax="proto2"; message M { repeated V a = 1; map<string, V> b = 2; required V c = 3; optional V d = 4; '
        "message V { required int32 r = 1; map<int32, int32> m = 2; } }"
    )
    inner = columns(r=INT, m=MapType(INT, INT))
    schema = columns(a=ArrayType(inner), b=MapType(TEXT, inner), d=inner)
    lacks: dict[str, Any] = {"r": None, "m": [(1, 2)]}
    row = {"a": [lacks, lacks, {"r": 1}], "b": [("x", lacks)], "d": lacks}
    with pytest.raises(RowError, match="column 'c' is null or missing"):
        encode(type_, schema, row)
    payload = b"\x0a\x06\x12\x04\x08\x01\x10\x02" * 2 + b"\x0a\x02\x08\x01"
    payload += b"\x12\x05\x0a\x01x\x12\x00" + b"\x22\x00"
    not_utf8 = b"\x12\x05\x0a\x01\xff\x12\x00"
    found, also = decode(type_, schema, payload, payload + not_utf8)
    assert found[ERROR] == "Message of type 'M' lacks required fields: c, a[0].r, a[1].r, b[\"x\"].r, d.r"
    assert also[ERROR].endswith(", d.r")


def test_values_that_do_not_fit_their_column_are_errors_of_their_records(proto2: MessageType) -> None:
    """A number too large for a narrow column, text of proto2 that is no UTF-8, a time after the year 9999."""
    make = class_of(proto2)
    good = make(category_type=5, name="x", ts={"seconds": 1}).SerializeToString()
    bad = [
        make(category_type=300).SerializeToString(),
        b"\x12\x01\xff",
        make(ts={"seconds": 2**62}).SerializeToString(),
        make(ts={"seconds": 253402300800}).SerializeToString(),
    ]
    schema = columns(category_type=ByteType(), name=TEXT, ts=TimestampType())
    payloads = [good, *itertools.chain.from_iterable((one, good) for one in bad)] * 400
    result = decode(proto2, schema, *payloads)
    assert [bool(row[ERROR]) for row in result] == [False, True, False, True, False, True, False, True, False] * 400
    assert [row["category_type"] for row in result][:3] == [5, None, 5]


def test_a_row_that_does_not_fit_its_field_names_the_column_and_not_the_value() -> None:
    """It stands in logs."""
    type_ = message('syntax="proto3"; message M { uint32 a = 1; }')
    assert encode(type_, columns(a=LONG), {"a": 2**32 - 1}) == [b"\x08\xff\xff\xff\xff\x0f"]
    with pytest.raises(RowError, match=r"column 'a' holds a value that does not fit field M\.a") as raised:
        encode(type_, columns(a=LONG), {"a": 1}, {"a": 2**33 + 77})
    assert str(2**33 + 77) not in str(raised.value)


def test_deeply_nested_bytes_are_an_error() -> None:
    """The parser has a limit of depth; nothing overflows."""
    type_ = message('syntax="proto3"; message M { M m = 1; int32 v = 2; }')
    payload = b""
    for _ in range(2000):
        size = len(payload)
        payload = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + payload
        if size > 16_000:
            break
    (row,) = decode(type_, columns(m=columns(v=INT)), payload)
    assert row[ERROR]


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "uid": st.integers(-(2**63), 2**63 - 1),
        "name": st.text(max_size=20),
        "category_type": st.integers(-(2**31), 2**31 - 1),
        "content": st.binary(max_size=20),
        "price": st.floats(allow_nan=False),
        "flag": st.booleans(),
        "ratio": st.floats(width=32, allow_nan=False),
        "small": st.integers(-(2**31), 2**31 - 1),
        "large": st.integers(-(2**63), 2**63 - 1),
        "corpus_int": st.sampled_from([0, 1, 2, 7]),
        "corpus_str": st.sampled_from(["UNIVERSAL", "WEB", "IMAGES", "VIDEO"]),
        "tags": st.lists(st.text(max_size=5), min_size=1, max_size=3),
        "labels": st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1).map(
            lambda d: sorted(d.items())
        ),
        "inner": st.fixed_dictionaries({"v1": st.none() | st.integers(0, 9), "v2": st.none() | st.integers(0, 9)}),
        "value_arr": st.lists(
            st.fixed_dictionaries({"v1": st.none() | st.integers(0, 9), "v2": st.none() | st.integers(0, 9)}),
            min_size=1,
        ),
        "value_map": st.dictionaries(
            st.integers(-(2**63), 2**63 - 1), st.just({"v1": 1, "v2": None}), min_size=1, max_size=3
        ).map(lambda d: sorted(d.items())),
        "ts": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
        "times": st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=1, max_size=2),  # noqa: DTZ001
        "corpora": st.lists(st.sampled_from(["UNIVERSAL", "VIDEO"]), min_size=1, max_size=3),
    },
)


@given(values=st.lists(st.none() | VALUES, max_size=5))
def test_any_rows_come_back(proto2: MessageType, values: list[dict[str, Any] | None]) -> None:
    """Decoding what was encoded gives the same rows."""
    payloads = encode(proto2, SIMPLE, *values)
    expected = [value if value is None else {**dict.fromkeys(SIMPLE.names), **value, ERROR: None} for value in values]
    result = decode(proto2, SIMPLE, *payloads)
    for row in filter(None, result):
        for name in ("labels", "value_map"):
            row[name] = row[name] and sorted(row[name])
    assert result == expected


# which message it is


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with `orders_pb2.py` and `orders.desc` of two files."""
    (tmp_path / "common.proto").write_text('syntax="proto3"; package shop; message Money { int64 cents = 1; }')
    (tmp_path / "orders.proto").write_text(
        'syntax="proto3"; package shop; import "common.proto"; import "google/protobuf/timestamp.proto"; '
        "message Order { Money total = 1; google.protobuf.Timestamp at = 2; message Line { int32 n = 1; } }"
    )
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=."]
    command += ["--descriptor_set_out=orders.desc", "--include_imports"]
    subprocess.run([*command, "common.proto", "orders.proto"], cwd=tmp_path, check=True)
    command[-2:] = ["--descriptor_set_out=alone.desc"]
    subprocess.run([*command, "orders.proto"], cwd=tmp_path, check=True)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


def test_a_message_is_a_generated_class_or_a_name_in_a_descriptor_file(generated: Path) -> None:
    """Both give the same; it survives pickling without files or modules."""
    schema = columns(total=columns(cents=LONG), at=TimestampType())
    payload = b"\x0a\x02\x08\x05"
    by_class = message_of_options("protobuf", {"protobuf.message-class-name": "orders_pb2:Order"})
    by_file = message_of_options(
        "protobuf",
        {"protobuf.message-class-name": "shop.Order", "protobuf.descriptor-file": str(generated / "orders.desc")},
    )
    assert by_class is not None
    assert by_file is not None
    for type_ in (by_class, by_file, pickle.loads(pickle.dumps(by_class))):
        assert decode(type_, schema, payload) == [{"total": {"cents": 5}, "at": None, ERROR: None}]
    nested = message_of_options("protobuf", {"protobuf.message-class-name": "orders_pb2:Order.Line"})
    assert nested is not None
    assert decode(nested, columns(n=INT), b"\x08\x05") == [{"n": 5, ERROR: None}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"'protobuf\.message-class-name' is missing"),
        (
            {"message-class-name": "com.example.Outer$Order"},
            r"package\.module_pb2:Message .*descriptor-file.*Java classes",
        ),
        ({"message-class-name": "orders_pb2:Nobody"}, r"could not be imported or created: AttributeError"),
        ({"message-class-name": "nowhere_pb2:Order"}, r"could not be imported or created: ModuleNotFoundError"),
        ({"message-class-name": "os:path"}, r"is not a generated Protobuf class"),
        ({"message-class-name": "com.example.Outer$Order", "descriptor-file": "orders.desc"}, r"such as shop\.Order"),
        ({"message-class-name": "shop.Ordr", "descriptor-file": "orders.desc"}, r"such as shop\.Order"),
        (
            {"message-class-name": "shop.Order", "descriptor-file": "nothing.desc"},
            r"cannot be read as a descriptor file",
        ),
        (
            {"message-class-name": "shop.Order", "descriptor-file": "orders.proto"},
            r"cannot be read as a descriptor file",
        ),
        ({"message-class-name": "shop.Order", "descriptor-file": "alone.desc"}, r"--include_imports"),
        ({"descriptor-file": "orders.desc"}, r"'protobuf\.message-class-name' is missing"),
    ],
)
def test_a_message_that_cannot_be_found_says_what_to_give(generated: Path, options: dict[str, str], said: str) -> None:
    """A Flink user's Java class above all."""
    whole = {f"protobuf.{name}": value for name, value in options.items()}
    if "protobuf.descriptor-file" in whole:
        whole["protobuf.descriptor-file"] = str(generated / whole["protobuf.descriptor-file"])
    with pytest.raises(ConfigurationError, match=said):
        PROTOBUF.check(columns(total=columns(cents=LONG)), whole)


def test_the_check_looks_at_the_columns(generated: Path) -> None:
    """Before anything runs."""
    options = {"protobuf.message-class-name": "orders_pb2:Order"}
    PROTOBUF.check(columns(total=columns(cents=LONG)), options)
    with pytest.raises(
        ConfigurationError, match=r"Column 'total\.cents' is of type int, but field shop\.Money\.cents is int64"
    ):
        PROTOBUF.check(columns(total=columns(cents=INT)), options)


# schemas as registries have them

ALL_OF_IT = r"""syntax = "proto2"; package a.b;
import public "google/protobuf/timestamp.proto";
option java_package = "x.\"y\\";
message A {
  required int32 r = 1; optional string s = 2 [default = "a\"b\n\303\251"]; optional bytes b = 3 [default = "\001x\"\\"];
  repeated sint64 p = 4 [packed = true]; optional double d = 5 [default = -inf]; optional E e = 6 [default = Y];
  optional bool f = 7 [default = true, deprecated = true];
  enum E { option allow_alias = true; X = -1; Y = 2; Z = 2; reserved 5 to 7; reserved "Q"; }
  oneof o { int64 oa = 8; google.protobuf.Timestamp ob = 9; }
  map<int32, A> m = 10;
  message N { message NN { optional A a = 1; } }
  optional N.NN nn = 11;
  oneof o2 { string q = 12; }
  reserved 20, 30 to 40; reserved "zz"; extensions 100 to max;
}
enum Top { T0 = 0; }
message Z { map<string, string> first = 1; message In { optional Top t = 1; } optional In i = 2; }
"""


def without_names(file: Any) -> Any:
    """A file without what does not concern messages on the wire: the file's name, names in JSON, the order inside."""
    file.ClearField("name")
    pending = list(file.message_type)
    while pending:
        one = pending.pop()
        for field in one.field:
            field.ClearField("json_name")
        fields, nested = sorted(one.field, key=lambda f: f.number), sorted(one.nested_type, key=lambda n: n.name)
        for part, ordered in ((one.field, fields), (one.nested_type, nested)):
            del part[:]
            part.extend(ordered)
        pending += one.nested_type
    return file


@pytest.mark.parametrize("text", [ALL_OF_IT, PROTO2, PROTO3])
def test_the_text_of_a_file_means_the_same(text: str) -> None:
    """What is registered for a given class, compiled again, is the same file."""
    file = parse_schema(text, {}).file[-1]
    written = schema_text(file)
    again = parse_schema(written, {}).file[-1]
    assert schema_text(again) == written
    assert without_names(again) == without_names(file)


def test_a_schema_in_base64_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Confluent's Python client registers it, and its registry answers."""
    file = parse_schema(PROTO3, {}).file[-1]
    monkeypatch.setattr(protobuf_schemas, "_compile", None)
    files = parse_schema(base64.b64encode(file.SerializeToString()).decode(), {})
    assert [f.name for f in files.file][:-1] == ["google/protobuf/timestamp.proto"]
    assert message_of_set("name", "flink.test.Simple", files).descriptor.fields_by_name["uid"].number == 1


def test_imports_may_be_texts_and_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any mixture, also through others; what is missing is named."""
    money = 'syntax="proto3"; package shop; message Money { int64 cents = 1; }'
    price = 'syntax="proto3"; package shop; import public "shop/money.proto"; message Price { Money money = 1; }'
    order = (
        'syntax="proto3"; package shop; import "shop/price.proto"; message Order { Price price = 1; Money paid = 2; }'
    )

    def in_base64(text: str, imports: dict[str, str]) -> str:
        return base64.b64encode(parse_schema(text, imports).file[-1].SerializeToString()).decode()

    texts = {"shop/money.proto": money, "shop/price.proto": price}
    price_64 = {**texts, "shop/price.proto": in_base64(price, {"shop/money.proto": money})}
    order_64 = in_base64(order, texts)
    for main, imports in itertools.product((order, order_64), (texts, price_64)):
        type_ = message_of_set("name", "shop.Order", parse_schema(main, imports))
        paid = type_.descriptor.fields_by_name["paid"].message_type
        assert paid is not None
        assert paid.full_name == "shop.Money"
    for main in (order, order_64):
        with pytest.raises(ConfigurationError, match=r"shop/price\.proto"):
            parse_schema(main, {"shop/money.proto": money})


def test_a_text_that_is_no_schema_is_told_with_its_place() -> None:
    """As protoc says it."""
    with pytest.raises(ConfigurationError, match=r'protoc cannot compile a schema: line:1:30: "foo\.B" is not defined'):
        parse_schema('syntax="proto3"; message A { foo.B b = 1; }', {})


def test_a_compiler_that_fails_says_nothing_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one without memory: the next attempt may succeed, so the answer is not kept."""
    said = subprocess.CompletedProcess([], 1, "", "Traceback (most recent call last):\nMemoryError")
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda *_, **__: said)
        with pytest.raises(RegistryError, match=r"protoc failed \(MemoryError\)\. Check the load") as caught:
            parse_schema(PROTO3, {})
    assert caught.value.retriable


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is needed for texts only."""
    with monkeypatch.context() as patched:
        patched.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(MissingDependencyError, match=r"grpcio-tools is needed .*\[protobuf\]"):
            parse_schema(PROTO3, {})
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(MissingDependencyError, match=r"protobuf is needed for the format protobuf, .*\[protobuf\]"):
        PROTOBUF.check(columns(uid=LONG), {})


def test_message_indexes_lead_to_messages_and_back() -> None:
    """The entries of maps do not count, as in Java's client."""
    file = parse_schema(ALL_OF_IT, {}).file[-1]
    for path, name in (
        ([0], "a.b.A"),
        ([0, 0], "a.b.A.N"),
        ([0, 0, 0], "a.b.A.N.NN"),
        ([1], "a.b.Z"),
        ([1, 0], "a.b.Z.In"),
    ):
        assert message_at(file, path) == name
        assert message_path(file, name) == path
    for wrong in ([2], [0, 1], [-1], [1, 0, 0]):
        with pytest.raises(ConfigurationError, match="does not have a message with the indexes"):
            message_at(file, wrong)
    with pytest.raises(ConfigurationError) as caught:
        message_at(file, [7] * 100_000)
    shown = ", ".join(["7"] * 10)
    assert str(caught.value) == f"The schema does not have a message with the indexes [{shown} and 99990 more]"


def test_columns_make_a_message_in_which_they_come_back() -> None:
    """Null and a default stay apart; a column that may not be null is a plain field."""
    schema = StructType(
        [
            StructField("id", LONG, nullable=False),
            StructField("byte", ByteType()),
            StructField("text", TEXT),
            StructField("at", TimestampType()),
            StructField("local", TimestampNTZType()),
            StructField("list_of", ArrayType(columns(a=INT, deep=columns(b=ArrayType(TEXT))))),
            StructField("map_of", MapType(TEXT, columns(x=DOUBLE))),
            StructField("row", columns(ok=BooleanType(), raw=BYTES)),
        ]
    )
    file = file_of_columns(schema, "my.pkg.Event")
    text = schema_text(file)
    assert "  int64 id = 1;" in text
    assert "  optional string text = 3;" in text
    assert "  map<string, .my.pkg.Event.map_of_Row> map_of = 7;" in text
    again = parse_schema(text, {}).file[-1]
    assert without_names(again) == without_names(file)
    type_ = message(text)
    assert type_.name == "my.pkg.Event"
    values = [
        {
            "id": 0,
            "byte": -128,
            "text": "",
            "at": datetime(2024, 1, 1, tzinfo=UTC),
            "local": datetime(2024, 1, 1),  # noqa: DTZ001
            "list_of": [{"a": 0, "deep": {"b": [""]}}],
            "map_of": [("k", {"x": 0.0})],
            "row": {"ok": False, "raw": b""},
        },
        {"id": 1, "row": {}},
    ]
    expected: list[Any] = [{**dict.fromkeys(schema.names), **value, ERROR: None} for value in values]
    expected[1]["row"] = {"ok": None, "raw": None}
    assert decode(type_, schema, *encode(type_, schema, *values)) == expected


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (columns(a=DecimalType(10, 2)), r"Column 'a' cannot .* decimal\(10,2\)"),
        (columns(a=ArrayType(ArrayType(INT))), r"Column 'a' cannot .* array<int>. Put"),
        (columns(a=MapType(TEXT, ArrayType(INT))), r"Column 'a' cannot .* array<int>"),
        (columns(a=MapType(DOUBLE, INT)), r"Column 'a' cannot .* map<double,int>"),
        (columns(a=columns(b=DecimalType(4, 1))), r"Column 'a\.b' cannot"),
        (columns(**{"a-b": INT}), r"Column 'a-b' cannot .* Rename it"),
        (columns(user_id=INT, userId=INT), "Columns 'user_id' and 'userId' cannot .* both are named 'userId' in JSON"),
        (columns(r=columns(a_1=INT, a1=INT)), "Columns 'r.a_1' and 'r.a1' cannot"),
        (columns(a=columns(b=INT), a_Row=INT), "Column 'a_Row' has the name of the message that is made from"),
    ],
)
def test_columns_that_make_no_message_are_named(schema: StructType, said: str) -> None:
    """With the type that is the trouble."""
    with pytest.raises(ConfigurationError, match=said):
        file_of_columns(schema, "Row")


def test_names_of_columns_may_begin_with_underscores() -> None:
    """`optional x` makes a oneof `_x`, which has another name if there is a column of that one, as with protoc."""
    schema = columns(_x=INT, x=INT, X_x=INT)
    file = file_of_columns(schema, "my.Row")
    again = parse_schema(schema_text(file), {}).file[-1]
    assert without_names(again) == without_names(file)
    type_ = message(schema_text(file))
    value = {"_x": 1, "x": None, "X_x": 2}
    assert decode(type_, schema, *encode(type_, schema, value)) == [{**value, ERROR: None}]


def test_a_descriptor_pool_is_made_once(proto2: MessageType) -> None:
    """However often a worker unpickles the function."""
    again: Callable[[], MessageType] = lambda: pickle.loads(pickle.dumps(proto2))  # noqa: E731
    assert again().descriptor is again().descriptor


# what precedes a message of a registry


def test_a_header_is_confluents() -> None:
    """A byte 0, the id, the indexes; [0] is one byte, and also understood in full."""
    assert header_of(7, [0]) == b"\0\0\0\0\x07\0"
    assert header_of(0x01020304, [1, 0]) == b"\0\x01\x02\x03\x04\x04\x02\x00"
    assert header_of(7, [64]) == b"\0\0\0\0\x07\x02\x80\x01"
    assert message_indexes(b"\0\0\0\0\x07\x02\x00") == [0]


@given(
    number=st.integers(0, 2**31 - 1), path=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), rest=st.binary()
)
def test_any_header_is_read_as_it_was_written(number: int, path: list[int], rest: bytes) -> None:
    """Whatever follows it; without its last byte it is none."""
    header = header_of(number, path)
    assert header_size(header + rest) == len(header)
    assert (id_of(header), message_indexes(header)) == (number, path)
    with pytest.raises(IndexError):
        header_size(header[:-1])


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0\0\0\0\0",
        b"\x01\0\0\0\x07\0",
        b"\0\x80\0\0\x07\0",
        b"\0\0\0\0\x07\x01",
        b"\0\0\0\0\x07" + b"\xff" * 20,
    ],
)
def test_what_is_no_header_is_refused(message: bytes) -> None:
    """Too short, another first byte, a negative id or number of indexes, a number without end."""
    with pytest.raises(IndexError):
        header_size(message)
