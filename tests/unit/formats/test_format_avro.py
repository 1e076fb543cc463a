"""The formats `avro` and `avro-confluent` without Spark: schemas, columns, evolution, damaged messages, options."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from tests.avro import read, record, written

from dynamic_kafka.errors import ConfigurationError, RowError
from dynamic_kafka.formats import format_named, schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import all_messages, arrow_type
from dynamic_kafka.formats.avro import confluent as avro_confluent
from dynamic_kafka.formats.avro import encoding
from dynamic_kafka.formats.avro import format as avro
from dynamic_kafka.formats.avro.plan import UnreadableError, plan_of
from dynamic_kafka.formats.avro.schemas import AvroSchema, parse_schema, schema_text, to_be_cut
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings
from dynamic_kafka.native import Encoded

# --- helpers: fastavro, which works record by record and never sees an Arrow column, is the judge ---


def plain(text: str, keep: str = "") -> Any:
    """A schema without logical types, or with one of them, for fastavro to read and write numbers and bytes."""

    def without(part: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name != "logicalType" or value == keep}

    return fastavro.parse_schema(json.loads(text, object_hook=without))


def decoded(messages: list[bytes | None], writer: AvroSchema, schema: AvroSchema, target: pa.StructType) -> list[Any]:
    """Rows as dicts without the field for errors, errors as texts, null messages as None."""
    array = read(messages, writer, schema, target)
    rows: list[Any] = []
    for row in array.to_pylist():
        error = None if row is None else row.pop(ERROR)
        rows.append(row if error is None else error)
        assert error is None or not any(value is not None for value in row.values())
    return rows


def encode(rows: pa.Array, schema: AvroSchema, prefix: bytes = b"", cut: Collection[str] = frozenset()) -> pa.Array:
    """The messages of rows that have no error."""
    return all_messages(encoding.encode(rows, schema, prefix, cut))


def struct(*columns: tuple[str, spark.DataType] | tuple[str, spark.DataType, bool]) -> spark.StructType:
    """Columns: name, type, and whether they may be null."""
    return spark.StructType([spark.StructField(*column) for column in columns])


# Each strategy gives a value for Arrow and the same for fastavro with a plain schema.
Pair = tuple[Any, Any]


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    """Values that are the same for both."""
    return values.map(lambda value: (value, value))


def scaled(least: int, most: int, factor: int) -> st.SearchStrategy[Pair]:
    """Numbers that Arrow has in a smaller unit."""
    return st.integers(least, most).map(lambda value: (value * factor, value))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Pair]:
    """Decimals, and their bytes as Java's BigInteger has them."""

    def pair(value: int) -> Pair:
        size = (8 + (value + (value < 0)).bit_length()) // 8
        return Decimal(f"{value}e-{scale}"), value.to_bytes(size, "big", signed=True)

    return st.integers(-(10**precision) + 1, 10**precision - 1).map(pair)


LEAVES: list[tuple[spark.DataType, st.SearchStrategy[Pair]]] = [
    (spark.BooleanType(), same(st.booleans())),
    (spark.ByteType(), same(st.integers(-(2**7), 2**7 - 1))),
    (spark.ShortType(), same(st.integers(-(2**15), 2**15 - 1))),
    (spark.IntegerType(), same(st.integers(-(2**31), 2**31 - 1))),
    (spark.LongType(), same(st.integers(-(2**63), 2**63 - 1))),
    (spark.FloatType(), same(st.floats(width=32))),
    (spark.DoubleType(), same(st.floats())),
    (spark.StringType(), same(st.text(max_size=12))),
    (spark.BinaryType(), same(st.binary(max_size=12))),
    (spark.DateType(), same(st.integers(-700_000, 2_900_000))),
    (spark.TimestampNTZType(), scaled(-(6 * 10**13), 2 * 10**14, 1000)),
    (spark.TimestampType(), scaled(-(6 * 10**13), 2 * 10**14, 1000)),
    (spark.TimeType(3), scaled(0, 86_399_999, 10**6)),
    (spark.TimeType(6), scaled(0, 86_399_999_999, 10**3)),
    (spark.DecimalType(10, 2), decimals(10, 2)),
    (spark.DecimalType(38, 0), decimals(38, 0)),
]


def nullable(values: st.SearchStrategy[Pair], *, null: bool) -> st.SearchStrategy[Pair]:
    """The same values, and None."""
    return st.one_of(st.just((None, None)), values) if null else values


def array_of(inner: tuple[spark.DataType, st.SearchStrategy[Pair]], *, null: bool) -> tuple[spark.DataType, Any]:
    """An array of a type."""
    items = st.lists(nullable(inner[1], null=null), max_size=4)
    pairs = items.map(lambda found: ([a for a, _ in found], [b for _, b in found]))
    return spark.ArrayType(inner[0], null), pairs


def map_of(inner: tuple[spark.DataType, st.SearchStrategy[Pair]], *, null: bool) -> tuple[spark.DataType, Any]:
    """A map to a type."""
    items = st.dictionaries(st.text(max_size=5), nullable(inner[1], null=null), max_size=4)
    pairs = items.map(lambda found: ([(k, a) for k, (a, _) in found.items()], {k: b for k, (_, b) in found.items()}))
    return spark.MapType(spark.StringType(), inner[0], null), pairs


def record_of(inner: list[tuple[spark.DataType, Any, bool]]) -> tuple[spark.DataType, Any]:
    """A record of types; whether each may be null."""
    columns = struct(*((f"f{number}", kind, null) for number, (kind, _, null) in enumerate(inner)))
    pairs = st.tuples(*(nullable(values, null=null) for _, values, null in inner))
    both = pairs.map(
        lambda found: (
            {f"f{number}": a for number, (a, _) in enumerate(found)},
            {f"f{number}": b for number, (_, b) in enumerate(found)},
        )
    )
    return columns, both


def types(depth: int) -> st.SearchStrategy[tuple[spark.DataType, Any]]:
    """Types with their values, so many levels deep."""
    leaves = st.sampled_from(LEAVES)
    if depth == 0:
        return leaves
    inner = types(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda i, n: array_of(i, null=n), inner, st.booleans()),
        st.builds(lambda i, n: map_of(i, null=n), inner, st.booleans()),
        st.lists(st.tuples(inner, st.booleans()).map(lambda t: (*t[0], t[1])), min_size=1, max_size=3).map(record_of),
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[spark.StructType, list[Any], list[Any]]:
    """Columns, rows for Arrow, and the same rows for fastavro."""
    columns = draw(st.lists(st.tuples(types(2), st.booleans()).map(lambda t: (*t[0], t[1])), min_size=1, max_size=4))
    schema, values = record_of(columns)
    rows = draw(st.lists(values, max_size=8))
    assert isinstance(schema, spark.StructType)
    return schema, [a for a, _ in rows], [b for _, b in rows]


# --- schemas ---


def test_the_schema_of_columns_is_flinks() -> None:
    """Union with null first, null as the default, the namespace, nested names by path: as Java prints it."""
    inner = struct(("x", spark.LongType(), False), ("d", spark.DecimalType(10, 2)))
    schema = struct(
        ("id", spark.LongType(), False),
        ("name", spark.StringType()),
        ("row", inner),
        ("rows", spark.ArrayType(inner, containsNull=False), False),
        ("m", spark.MapType(spark.StringType(), spark.ShortType())),
        ("t", spark.TimeType(0), False),
        ("ts", spark.TimestampNTZType(), False),
        ("day", spark.DateType()),
    )
    expected = (
        '{"type":"record","name":"record","namespace":"org.apache.flink.avro.generated","fields":['
        '{"name":"id","type":"long"},'
        '{"name":"name","type":["null","string"],"default":null},'
        '{"name":"row","type":["null",{"type":"record","name":"record_row","fields":['
        '{"name":"x","type":"long"},{"name":"d","type":["null",{"type":"bytes","logicalType":"decimal","precision":10,'
        '"scale":2}],"default":null}]}],"default":null},'
        '{"name":"rows","type":{"type":"array","items":{"type":"record","name":"record_rows","fields":['
        '{"name":"x","type":"long"},{"name":"d","type":["null",{"type":"bytes","logicalType":"decimal","precision":10,'
        '"scale":2}],"default":null}]}}},'
        '{"name":"m","type":["null",{"type":"map","values":["null","int"]}],"default":null},'
        '{"name":"t","type":{"type":"int","logicalType":"time-millis"}},'
        '{"name":"ts","type":{"type":"long","logicalType":"timestamp-millis"}},'
        '{"name":"day","type":["null",{"type":"int","logicalType":"date"}],"default":null}]}'
    )
    assert schema_text(schema, legacy_timestamps=True) == expected


@pytest.mark.parametrize(
    ("data_type", "legacy", "precision", "logical"),
    [
        (spark.TimestampNTZType(), True, 3, "timestamp-millis"),
        (spark.TimestampType(), True, 6, "timestamp-micros"),
        (spark.TimestampNTZType(), True, None, "timestamp-millis"),
        (spark.TimestampType(), True, None, "timestamp-millis"),
        (spark.TimestampNTZType(), False, None, "local-timestamp-micros"),
        (spark.TimestampType(), False, None, "timestamp-micros"),
        (spark.TimestampNTZType(), False, 3, "local-timestamp-millis"),
        (spark.TimestampType(), False, 0, "timestamp-millis"),
    ],
)
def test_timestamps_follow_the_mapping(
    data_type: spark.DataType,
    legacy: bool,  # noqa: FBT001
    precision: int | None,
    logical: str,
) -> None:
    """By the precision in the field's metadata; without one, the legacy mapping has milliseconds, as in Flink."""
    metadata = {} if precision is None else {"precision": precision}
    schema = spark.StructType([spark.StructField("t", data_type, nullable=False, metadata=metadata)])
    (field,) = json.loads(schema_text(schema, legacy_timestamps=legacy))["fields"]
    assert field["type"] == {"type": "long", "logicalType": logical}
    array = spark.ArrayType(data_type, containsNull=False)
    schema = spark.StructType([spark.StructField("t", array, nullable=False, metadata=metadata)])
    (field,) = json.loads(schema_text(schema, legacy_timestamps=legacy))["fields"]
    assert field["type"] == {"type": "array", "items": {"type": "long", "logicalType": logical}}


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (spark.TimestampType(), 123_456),
        (spark.TimestampNTZType(), -1),
        (spark.ArrayType(spark.TimestampType()), [123_000, 123_456]),
        (spark.MapType(spark.StringType(), spark.TimestampType()), [("k", 1)]),
        (struct(("u", spark.TimestampType())), {"u": 1}),
    ],
)
def test_no_digit_of_a_timestamp_is_lost_unless_the_column_says_so(data_type: spark.DataType, value: Any) -> None:
    """Spark has microseconds. `TIMESTAMP(3)` gives them up, as in Flink; the other mapping keeps them."""
    for metadata, legacy in (({}, True), ({}, False), ({"precision": 3}, True), ({"precision": 6}, True)):
        inner = data_type
        if isinstance(data_type, spark.StructType):
            inner = spark.StructType([spark.StructField("u", data_type["u"].dataType, metadata=metadata)])
        schema = spark.StructType([spark.StructField("t", inner, metadata=metadata)])
        options = {"avro.timestamp_mapping.legacy": legacy}
        target = arrow_type(schema)
        rows = pa.array([{"t": value}], target)
        text = avro.text_of_columns("avro", schema, options)
        if legacy and not metadata:
            with pytest.raises(
                RowError, match=r"'t(\.u)?' has more digits than timestamp-millis.*_mapping\.legacy' of"
            ):
                encode(rows, parse_schema(text), cut=to_be_cut(schema))
            continue
        messages = encode(rows, parse_schema(text), cut=to_be_cut(schema)).to_pylist()
        back = decoded(messages, parse_schema(text), parse_schema(text), target)
        assert (back == rows.to_pylist()) == (metadata != {"precision": 3})


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (struct(("a-b", spark.LongType())), "Column 'a-b' cannot be a field"),
        (struct(("a", struct(("é", spark.LongType())))), "Column 'a.é' cannot be a field"),
        (struct(("a", spark.DayTimeIntervalType())), "Column 'a' has the type interval day to second"),
        (struct(("a", spark.MapType(spark.LongType(), spark.LongType()))), "the keys of a map are strings"),
        (struct(("a", struct(("b", spark.VariantType())))), "Column 'a.b' has the type variant"),
    ],
)
def test_columns_that_avro_does_not_have_are_refused(columns: spark.StructType, problem: str) -> None:
    """The column is named, also within another one."""
    with pytest.raises(ConfigurationError, match=problem):
        avro.AVRO.check(columns, {})


# --- round trips ---


@given(table=tables())
def test_rows_are_written_as_fastavro_writes_them_and_read_back(
    table: tuple[spark.StructType, list[Any], list[Any]],
) -> None:
    """Byte for byte, over all types, nullability and nesting."""
    schema, rows, values = table
    text, target = schema_text(schema, legacy_timestamps=True), arrow_type(schema)
    parsed = parse_schema(text)
    array = pa.array(rows, target)
    messages = encode(array, parsed)
    assert messages.to_pylist() == [written(plain(text), value) for value in values]

    back = read(messages, parsed, parsed, target)
    assert back.field(ERROR).null_count == len(rows)
    for name in target.names if hasattr(target, "names") else [f.name for f in target]:
        assert repr(back.field(name).to_pylist()) == repr(array.field(name).to_pylist())  # repr: a NaN is none other


def test_null_messages_and_null_rows_are_each_other() -> None:
    """And what is around them is in place."""
    schema = struct(("a", spark.LongType()))
    parsed, target = parse_schema(schema_text(schema, legacy_timestamps=True)), arrow_type(schema)
    rows = pa.array([None, {"a": 1}, None, {"a": None}, {"a": 2}], target)
    messages = encode(rows, parsed, b"prefix")
    assert [None if m is None else m[:6] for m in messages.to_pylist()] == [None, b"prefix", None, b"prefix", b"prefix"]
    assert decoded(encode(rows, parsed).to_pylist(), parsed, parsed, target) == rows.to_pylist()


@given(
    messages=st.lists(
        st.lists(st.tuples(st.lists(st.text(max_size=3), min_size=1, max_size=4), st.booleans()), max_size=5),
        max_size=6,
    ),
)
def test_any_blocks_are_read_in_their_order(messages: list[list[tuple[list[str], bool]]]) -> None:
    """However the items are split."""
    schema = fields(("a", {"type": "array", "items": "string"}), ("end", "int"))

    def message(blocks: list[tuple[list[str], bool]]) -> bytes:
        made = b""
        for items, sized in blocks:
            body = b"".join(written("string", item) for item in items)
            made += written("long", -len(items)) + written("long", len(body)) if sized else written("long", len(items))
            made += body
        return made + b"\x00\x0e"

    target = pa.struct({"a": pa.list_(pa.string()), "end": pa.int32()})
    found = decoded([message(blocks) for blocks in messages], schema, schema, target)
    assert found == [{"a": [item for items, _ in blocks for item in items], "end": 7} for blocks in messages]


def test_a_message_of_many_small_blocks_is_read() -> None:
    """As many as a hostile message may have; other messages beside it change nothing."""
    schema, target = fields(("a", {"type": "array", "items": "long"})), pa.struct({"a": pa.list_(pa.int64())})
    whole: bytes = b"\x02\x04" * 5000 + b"\x00"
    rows = decoded([b"\x00", whole, whole[:-1], whole[:-1] + b"\xff" * 5000, b"\x00"], schema, schema, target)
    assert rows == [
        {"a": []},
        {"a": [2] * 5000},
        "it ends within a",
        "a has a number of more than 10 bytes",
        {"a": []},
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"n": None, "e": "A", "f": b"12", "d": Decimal(1), "u": 0}, "'n' is null"),
        ({"n": 1, "e": "X", "f": b"12", "d": Decimal(1), "u": 0}, "'e' is not one of the symbols"),
        ({"n": 1, "e": "A", "f": b"123", "d": Decimal(1), "u": 0}, "'f' does not have the 2 bytes"),
        ({"n": 1, "e": "A", "f": b"12", "d": Decimal(1000), "u": 0}, "'d' has more digits"),
        ({"n": 1, "e": "A", "f": b"12", "d": Decimal(1), "u": 2**62}, "'u' is out of the range of timestamp-nanos"),
    ],
)
def test_rows_that_do_not_fit_the_schema_name_their_column(row: dict[str, Any], problem: str) -> None:
    """Without the value."""
    schema = parse_schema(
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "n", "type": "long"},
                    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
                    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
                    {
                        "name": "d",
                        "type": {"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 2},
                    },
                    {"name": "u", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
                ],
            }
        )
    )
    target = pa.struct(
        {
            "n": pa.int64(),
            "e": pa.string(),
            "f": pa.binary(),
            "d": pa.decimal128(4, 0),
            "u": pa.timestamp("us"),
        }
    )
    with pytest.raises(RowError, match=problem):
        encode(pa.array([row], target), schema)


# --- evolution ---

R: dict[str, Any] = {"type": "record", "name": "R"}


def fields(*given: tuple[str, Any] | tuple[str, Any, Any]) -> AvroSchema:
    """A record's schema: name, type, and a default if there is one."""
    return parse_schema(record(*given, name="R"))


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    ("writer", "value", "schema", "expected"),
    [
        (["int", "string"], 5, "long", 5),
        (ENUM, "B", "string", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"xy", "bytes", b"xy"),
    ],
)
def test_what_flink_does_not_read_of_another_writer(writer: Any, value: Any, schema: str, expected: Any) -> None:
    """A union for a column that is not one, and what columns have for enum and fixed.

    All else that a writer may change is in `test_formats_against_flink`.
    """
    target = {"long": pa.int64(), "string": pa.string(), "bytes": pa.binary()}[schema]
    written_with, read_with = fields(("before", "string"), ("a", writer)), fields(("a", schema))
    message = written(written_with.root, {"before": "skipped", "a": value})
    assert decoded([message], written_with, read_with, pa.struct({"a": target})) == [{"a": expected}]


@pytest.mark.parametrize(
    ("writer", "number", "target", "expected"),
    [
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1_700_000_000_123,
            pa.timestamp("us"),
            1_700_000_000_123_000,
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, -1, pa.timestamp("us", "UTC"), -1),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, 1999, pa.timestamp("us"), 1),
        ("long", 5, pa.timestamp("us"), 5000),
        ({"type": "int", "logicalType": "time-millis"}, 5, pa.time64("ns"), 5_000_000),
        ({"type": "long", "logicalType": "time-micros"}, 5, pa.time64("ns"), 5_000),
    ],
)
def test_times_have_the_unit_in_which_they_were_written(
    writer: Any, number: int, target: pa.DataType, expected: int
) -> None:
    """Not that of the columns, as in Flink; only where the writer does not tell."""
    logical = "timestamp-millis" if pa.types.is_timestamp(target) else "time-millis"
    base = "long" if pa.types.is_timestamp(target) else writer["type"]
    read_with = fields(("a", {"type": base, "logicalType": logical}))
    message = written(plain(json.dumps({**R, "fields": [{"name": "a", "type": writer}]})), {"a": number})
    array = read([message], fields(("a", writer)), read_with, pa.struct({"a": target}))
    assert array.field("a").view(pa.int64()).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("schema", "default", "target", "expected"),
    [
        (["null", "long"], None, pa.int64(), None),
        ("long", 7, pa.int64(), 7),
        (["string", "null"], "x", pa.string(), "x"),
        (["null", "string"], "x", pa.string(), "x"),
        (["null", "int"], 7, pa.int32(), 7),
        ("bytes", "\u00ff", pa.binary(), b"\xff"),
        (DECIMAL, "\u0001\u0000", pa.decimal128(9, 2), Decimal("2.56")),
        (ENUM, "B", pa.string(), "B"),
        ({"type": "array", "items": "int"}, [1, 2], pa.list_(pa.int32()), [1, 2]),
        ({"type": "map", "values": "boolean"}, {"k": True}, pa.map_(pa.string(), pa.bool_()), [("k", True)]),
        (
            {**R, "name": "N", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 3}]},
            {"x": 1},
            pa.struct({"x": pa.int32(), "y": pa.int32()}),
            {"x": 1, "y": 3},
        ),
    ],
)
def test_a_field_that_is_not_written_has_its_default(
    schema: Any, default: Any, target: pa.DataType, expected: Any
) -> None:
    """That of the reader's schema, of any type."""
    column = pa.struct([pa.field("a", target)])
    messages: list[bytes | None] = [written(fields(("b", "long")).root, {"b": n}) for n in range(3)]
    assert decoded(messages, fields(("b", "long")), fields(("a", schema, default)), column) == [{"a": expected}] * 3


@pytest.mark.parametrize(
    ("schema", "default", "target"),
    [
        ("long", 2**70, pa.int64()),
        ("int", 2**31, pa.int32()),
        ("int", True, pa.int32()),
        ("float", 1e300, pa.float32()),
        ({"type": "fixed", "name": "F", "size": 2}, "x", pa.binary()),
    ],
)
def test_a_default_of_another_type_is_refused(schema: Any, default: Any, target: pa.DataType) -> None:
    """Where the query is planned, not as another value."""
    with pytest.raises(UnreadableError, match="a has a default that does not fit its type"):
        plan_of(fields(("b", "long")), fields(("a", schema, default)), pa.struct({"a": target}))


@pytest.mark.parametrize(
    ("written_as", "expected"),
    [
        (("old", "a"), {"a": 2, "b": 9}),
        (("a", "old"), {"a": 1, "b": 9}),
        (("older", "old"), {"a": 2, "b": 9}),
        (("a", "b"), {"a": 1, "b": 2}),
    ],
)
def test_an_alias_counts_only_where_the_name_itself_is_not_written(
    written_as: tuple[str, str], expected: dict[str, int]
) -> None:
    """In whichever order the fields are; of aliases the first, and none that is the name of another field."""
    columns: list[Any] = [
        {"name": "a", "type": "long", "aliases": ["old", "older"]},
        {"name": "b", "type": "long", "aliases": ["a"], "default": 9},
    ]
    writer = fields(*((name, "long") for name in written_as))
    message = written(writer.root, dict(zip(written_as, (1, 2), strict=True)))
    target = pa.struct({"a": pa.int64(), "b": pa.int64()})
    assert decoded([message], writer, parse_schema(json.dumps({**R, "fields": columns})), target) == [expected]


def test_a_default_of_a_time_is_in_its_unit() -> None:
    """It is a number in the schema."""
    schema = fields(("a", {"type": "long", "logicalType": "timestamp-millis"}, 1000))
    array = read([b"\x00"], fields(("b", "long")), schema, pa.struct({"a": pa.timestamp("us")}))
    assert array.field("a").view(pa.int64()).to_pylist() == [1_000_000]


@pytest.mark.parametrize(
    ("writer", "schema", "target", "problem"),
    [
        ("string", "long", pa.int64(), "a is written as string and is long here"),
        ("long", "int", pa.int32(), "a is written as long and is int here"),
        ("null", "long", pa.int64(), "a is written as null"),
        (["null", "string"], ["null", "long"], pa.int64(), "^a is written as string and is long here"),
        (
            {"type": "int", "logicalType": "date"},
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.timestamp("us"),
            "a is written as date",
        ),
        (
            {"type": "array", "items": "null"},
            {"type": "array", "items": ["null", "long"]},
            pa.list_(pa.int64()),
            "items that take no bytes",
        ),
        ("long", "long", pa.string(), "a is long in its schema and string here"),
        ("string", DECIMAL, pa.decimal128(9, 2), "a is written as string and is decimal128"),
        (DECIMAL, "string", pa.string(), "a is written as decimal and is string here"),
    ],
)
def test_schemas_that_do_not_go_together_say_where(writer: Any, schema: Any, target: pa.DataType, problem: str) -> None:
    """The field, and what it is on either side."""
    with pytest.raises(UnreadableError, match=problem):
        plan_of(fields(("a", writer)), fields(("a", schema)), pa.struct({"a": target}))


def test_a_missing_field_without_a_default_says_so() -> None:
    """As a NOT NULL column that a writer does not know."""
    with pytest.raises(UnreadableError, match="a is not in the writer's schema, and has no default"):
        plan_of(fields(("b", "long")), fields(("a", "long")), pa.struct({"a": pa.int64()}))


def test_a_union_fails_for_the_branches_that_do_not_fit() -> None:
    """The others are read."""
    writer, schema = fields(("a", ["null", "string", "long"])), fields(("a", "long"))
    messages: list[bytes | None] = [written(writer.root, {"a": value}) for value in (1, "x", None, 2)]
    rows = decoded(messages, writer, schema, pa.struct({"a": pa.int64()}))
    assert rows[0] == {"a": 1}
    assert rows[1] == "a is written as string and is long here"
    assert rows[2] == "a is written as null and is long here"
    assert rows[3] == {"a": 2}


@pytest.mark.parametrize(
    "nested",
    [
        {
            "type": "record",
            "name": "L",
            "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "L"]}],
        },
        {"type": "record", "name": "L", "fields": [{"name": "next", "type": {"type": "array", "items": "L"}}]},
    ],
)
def test_a_field_that_contains_itself_can_be_skipped(nested: Any) -> None:
    """A column cannot; and a message that nests it too deeply is told, not a RecursionError."""
    writer, schema = fields(("l", nested), ("a", "long")), fields(("a", "long"))
    union = "v" in [field["name"] for field in nested["fields"]]

    def chain(length: int) -> bytes:
        # Written by hand: the library recurses, too.
        links = (b"\x02\x02" if union else b"\x02") * length
        end = b"\x02\x00" if union else b"\x00"
        return links + end + (b"" if union else b"\x00" * length) + b"\x0e"

    rows = decoded([chain(3), chain(5000), chain(0)], writer, schema, pa.struct({"a": pa.int64()}))
    assert rows[0] == rows[2] == {"a": 7}
    assert "nested too deeply" in rows[1]


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: {"type": "array", "items": a}])
def test_a_record_that_contains_itself_without_end_is_refused(wrap: Any) -> None:
    """No message has such a schema; the record is named."""
    endless = {"type": "record", "name": "A", "fields": [{"name": "b", "type": "int"}, {"name": "a", "type": "A"}]}
    writer = fields(("l", wrap(endless)))
    columns = struct(("b", spark.LongType()))
    for column in (columns, struct(("l", columns if wrap(1) == 1 else spark.ArrayType(columns)))):
        with pytest.raises(
            UnreadableError, match=r"the record 'A' contains itself .* recursive schema cannot become columns"
        ):
            plan_of(writer, parse_schema(schema_text(column, legacy_timestamps=True)), arrow_type(column))


@pytest.mark.parametrize("levels", [201, 5000, 100_000])
def test_a_schema_nested_too_deeply_is_no_schema(levels: int) -> None:
    """A registry may have any text."""
    text = '{"type": "array", "items": ' * levels + '"int"' + "}" * levels
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_schema(text)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_schema('"int"', {"deep": text})


@pytest.mark.parametrize(("levels", "row"), [(60, {"a": 7}), (195, "l is nested too deeply")])
def test_a_schema_as_deep_as_allowed_is_read(levels: int, row: Any) -> None:
    """In any interpreter, also if its messages are too deep; brackets within texts do not count."""
    deep: Any = "int"
    for _ in range(levels):
        deep = {"type": "array", "items": deep}
    writer = fields(("l", deep), ("a", "long"))
    parse_schema(json.dumps({**R, "doc": '"[{' * 300, "fields": [{"name": "l", "type": deep}]}))
    message = b"\x02" * levels + b"\x0a" + b"\x00" * levels + b"\x0e"
    assert decoded([message], writer, fields(("a", "long")), pa.struct({"a": pa.int64()})) == [row]


def chained(levels: int, fields_of: Any) -> AvroSchema:
    """A schema whose records have others as their fields, by their names, and then a column `a`."""
    records = [{**R, "name": "r0", "fields": [{"name": "x", "type": "int"}]}]
    records += [{**R, "name": f"r{i}", "fields": fields_of(f"r{i - 1}")} for i in range(1, levels)]
    return fields(*((f"f{i}", record) for i, record in enumerate(records)), ("a", "long"))


def test_a_schema_with_names_for_large_parts_has_a_short_plan() -> None:
    """Each record has the one before it twice, so the last one has 2**40 numbers, of which a message may have a few."""
    twice = chained(40, lambda name: [{"name": "x", "type": ["null", name]}, {"name": "y", "type": ["null", name]}])
    plan = plan_of(twice, fields(("a", "long")), pa.struct({"a": pa.int64()}))
    assert len(json.dumps(plan)) < 20_000
    message = b"\x00" + b"\x00\x00" * 39 + b"\x0e"
    assert decoded([message, b""], twice, fields(("a", "long")), pa.struct({"a": pa.int64()})) == [
        {"a": 7},
        "it ends within f0.x",
    ]


def test_records_without_bytes_take_no_time() -> None:
    """A message would have 2**40 of them."""
    nothing = {**R, "name": "r0", "fields": [{"name": "x", "type": "null"}]}
    twice = [{"name": name, "type": "r{}"} for name in "xy"]
    records = [
        nothing,
        *({**R, "name": f"r{i}", "fields": [f | {"type": f"r{i - 1}"} for f in twice]} for i in range(1, 40)),
    ]
    schema = fields(*((f"f{i}", record) for i, record in enumerate(records)), ("a", "long"))
    assert decoded([b"\x0e"], schema, fields(("a", "long")), pa.struct({"a": pa.int64()})) == [{"a": 7}]


def test_a_long_chain_of_records_is_an_error_of_the_schema() -> None:
    """And not one of Python's stack."""
    chain = chained(3000, lambda name: [{"name": "x", "type": name}])
    backwards = {**R, "fields": [*reversed(chain.root["fields"])]}
    with pytest.raises(UnreadableError, match="nested too deeply in each other"):
        plan_of(AvroSchema(backwards, chain.names), fields(("a", "long")), pa.struct({"a": pa.int64()}))


# --- damage ---


def oracle(schema: Any, message: bytes) -> Any:
    """What fastavro reads of a message; None if it fails, or leaves bytes over."""
    stream = io.BytesIO(message)
    try:
        value = fastavro.schemaless_reader(stream, schema, None)
    except Exception:  # noqa: BLE001  (it fails in many ways)
        return None
    return value if stream.tell() == len(message) else None


@st.composite
def damaged(draw: st.DrawFn, message: bytes) -> bytes:
    """A message cut, prolonged, or with other bytes."""
    how = draw(st.sampled_from(["cut", "prolonged", "changed", "random"]))
    place = draw(st.integers(0, max(0, len(message) - 1)))
    noise = draw(st.binary(min_size=1, max_size=6))
    match how:
        case "cut":
            return message[:place]
        case "prolonged":
            return message + noise
        case "changed":
            return message[:place] + noise + message[place + len(noise) :]
    return noise


@given(table=tables().filter(lambda t: len(t[1]) > 0), data=st.data())
def test_a_damaged_message_is_told_and_its_neighbours_are_whole(
    table: tuple[spark.StructType, list[Any], list[Any]], data: st.DataObject
) -> None:
    """No crash, as many rows as messages, and nothing read that fastavro does not read of exactly these bytes."""
    schema, _, values = table
    text = schema_text(schema, legacy_timestamps=True)
    parsed, target, judge = parse_schema(text), arrow_type(schema), plain(text)
    numbers = plain(text, keep="decimal")  # whose bytes may differ: 00 02 is 02
    whole = [written(judge, value) for value in values]
    messages: list[bytes | None] = []
    broken: dict[int, bytes] = {}
    for message in whole:
        messages.append(message)
        if data.draw(st.booleans()):
            broken[len(messages)] = data.draw(damaged(message))
            messages.append(broken[len(messages)])
    found = read(messages, parsed, parsed, target)
    errors = found.field(ERROR).to_pylist()
    rows_found = pa.StructArray.from_arrays(found.flatten()[:-1], fields=list(target))
    for place, sent in enumerate(messages):
        if place not in broken:
            assert errors[place] is None
            assert encode(rows_found.slice(place, 1), parsed)[0].as_py() == sent
        elif errors[place] is None:
            # What it says is what the library reads of all its bytes.
            value = oracle(judge, broken[place])
            assert value is not None
            again = encode(rows_found.slice(place, 1), parsed)[0].as_py()
            assert repr(oracle(numbers, again)) == repr(oracle(numbers, written(judge, value)))


def test_a_part_of_an_array_is_encoded_and_decoded() -> None:
    """Arrow hands over parts of larger arrays: also of rows in rows, whose buffers begin before it."""
    inner = spark.StructType([spark.StructField("b", spark.BooleanType()), spark.StructField("s", spark.StringType())])
    schema = struct(
        ("r", spark.StructType([spark.StructField("r", inner)])),
        ("a", spark.ArrayType(inner)),
        ("m", spark.MapType(spark.StringType(), spark.LongType())),
    )
    parsed, target = parse_schema(schema_text(schema, legacy_timestamps=True)), arrow_type(schema)
    rows = pa.array(
        [
            {
                "r": {"r": {"b": bool(i % 2), "s": str(i)} if i % 3 else None},
                "a": [{"b": None, "s": "x"}] * i,
                "m": [("k", i)] * (i % 2),
            }
            for i in range(6)
        ],
        target,
    )
    whole = encode(rows, parsed).to_pylist()
    for begin in range(6):
        part = rows.slice(begin, 3)
        assert encode(part, parsed).to_pylist() == whole[begin : begin + 3]
        columns = pa.StructArray.from_arrays(part.flatten(), fields=list(target))
        assert encode(columns, parsed).to_pylist() == whole[begin : begin + 3]
        back = read(pa.array(whole, pa.binary()).slice(begin, 3), parsed, parsed, target)
        assert [{k: v for k, v in row.items() if k != ERROR} for row in back.to_pylist()] == part.to_pylist()


def test_a_huge_count_or_length_costs_nothing() -> None:
    """Damaged bytes may claim 2**60 items."""
    schema = struct(("a", spark.ArrayType(spark.StringType())), ("b", spark.BinaryType()))
    parsed, target = parse_schema(schema_text(schema, legacy_timestamps=True)), arrow_type(schema)
    huge = written("long", 2**60)
    messages: list[bytes | None] = [b"\x02" + huge, b"\x02\x02\x02" + huge, b"\x00\x02" + huge, b"\x02" + b"\xff" * 20]
    assert [type(row) for row in decoded(messages, parsed, parsed, target)] == [str] * 4


def test_a_message_cannot_become_far_more_than_it_is() -> None:
    """Each of its bytes may stand for a wide row of nulls, or for a row of defaults."""
    wide = {
        **R,
        "name": "W",
        "fields": [{"name": f"c{i}", "type": ["null", "long"], "default": None} for i in range(300)],
    }
    schema = fields(("a", {"type": "array", "items": ["null", wide]}))
    target = pa.struct({"a": pa.list_(pa.struct({f"c{i}": pa.int64() for i in range(300)}))})
    small, large = (written("long", size) + b"\x00" * size + b"\x00" for size in (1000, 200_000))
    whole, error = decoded([small, large], schema, schema, target)
    assert whole == {"a": [None] * 1000}
    assert error == "a has far more values in arrays and maps than the message has bytes"
    text = {
        **R,
        "name": "T",
        "fields": [{"name": "n", "type": "int"}, {"name": "t", "type": "string", "default": "x" * 9999}],
    }
    short = {**R, "name": "T", "fields": [{"name": "n", "type": "int"}]}
    writer, reader = (fields(("a", {"type": "array", "items": item})) for item in (short, text))
    target = pa.struct({"a": pa.list_(pa.struct({"n": pa.int32(), "t": pa.string()}))})
    message = written("long", 100_000) + b"\x02" * 100_000 + b"\x00"
    assert decoded([message], writer, reader, target) == [error]


def test_a_time_has_the_digits_of_its_column() -> None:
    """As in all other formats."""
    columns = struct(("t", spark.TimeType(3)))
    schema = fields(("t", {"type": "long", "logicalType": "time-micros"}))
    array = read([written("long", 1_234_567)], schema, schema, arrow_type(columns))
    assert array.field("t").view(pa.int64()).to_pylist() == [1_234_000_000]


def test_a_column_cannot_have_the_name_of_the_field_for_errors() -> None:
    """Of any format."""
    columns = struct((ERROR, spark.LongType()))
    for name in ("avro", "json", "csv", "raw", "debezium-json"):
        with pytest.raises(ConfigurationError, match=f"A column cannot have the name '{ERROR}', which is reserved"):
            format_named(name).check(columns, {})


@pytest.mark.parametrize(
    ("data_type", "message", "problem"),
    [
        (spark.BooleanType(), b"\x02", "not between 0 and 1"),
        (spark.IntegerType(), written("long", 2**31), "not between"),
        (spark.ByteType(), written("int", 128), "not between -128 and 127"),
        (spark.LongType(), b"\xff" * 11, "more than 10 bytes"),
        (spark.StringType(), b"\x04\xff\xfe", "not a text in UTF-8"),
        (spark.DecimalType(3, 1), b"\x04\x03\xe8", "does not fit into decimal128"),
        (spark.DecimalType(38, 0), b"\x22\x01" + b"\x00" * 16, "does not fit into decimal128"),
        (spark.TimestampType(), written("long", 2**62), "not between"),
        (spark.TimeType(3), written("int", 86_400_000), "not between 0 and 86399999"),
    ],
)
def test_values_out_of_their_range_are_told(data_type: spark.DataType, message: bytes, problem: str) -> None:
    """Where Flink reads something else."""
    schema = struct(("a", data_type, False))
    parsed, target = parse_schema(schema_text(schema, legacy_timestamps=True)), arrow_type(schema)
    (row,) = decoded([message], parsed, parsed, target)
    assert isinstance(row, str)
    assert problem in row


def test_decimals_may_have_leading_bytes_that_say_nothing() -> None:
    """Also more than Arrow's 16."""
    schema = struct(("a", spark.DecimalType(5, 2), False))
    parsed, target = parse_schema(schema_text(schema, legacy_timestamps=True)), arrow_type(schema)
    messages: list[bytes | None] = [
        written("bytes", padding * size + number)
        for size in (0, 1, 15, 30)
        for padding, number in ((b"\x00", b"\x01\x00"), (b"\xff", b"\xff\x00"))
    ]
    assert decoded(messages, parsed, parsed, target) == [{"a": Decimal("2.56")}, {"a": Decimal("-2.56")}] * 4


# --- Avro's JSON encoding ---


JSON_COLUMNS = struct(
    ("id", spark.LongType(), False),
    ("name", spark.StringType()),
    ("ts", spark.TimestampNTZType()),
    ("b", spark.BinaryType()),
)


def test_json_messages_are_read_and_bad_ones_told() -> None:
    """Line breaks between tokens are blanks; a message is one value."""
    good = b'{"id": 1,\n "name": {"string": "x"}, "ts": {"long": 1000}, "b": {"bytes": "\\u00ff"}}'
    other = b'{"id": 2, "name": null, "ts": null, "b": null}'
    messages = pa.array([good, b"{", None, b"", other, b'{"id": "x"}', other + other, b"\xff"], pa.binary())
    rows = avro.AVRO.decoder(JSON_COLUMNS, {"avro.encoding": "json"})(messages).to_pylist()
    assert rows[0]["id"] == 1
    assert (rows[0]["name"], rows[0]["b"]) == ("x", b"\xff")
    assert rows[0]["ts"].timestamp is not None
    assert rows[0]["ts"].isoformat() == "1970-01-01T00:00:01"
    assert rows[2] is None
    assert rows[4] == {"id": 2, "name": None, "ts": None, "b": None, ERROR: None}
    assert all("not in Avro's JSON encoding" in rows[place][ERROR] for place in (1, 5, 6, 7))
    assert rows[3][ERROR] == "it is empty"


def test_a_text_that_json_cannot_have_is_an_error_of_its_row() -> None:
    """The binary encoding has it as it is."""
    text = schema_text(struct(("name", spark.StringType())), legacy_timestamps=True)
    binary = encoding.encode(pa.array([{"name": "x"}, {"name": "y"}, None]), parse_schema(text))
    damaged = [b"\x02\x02\xff" if message == b"\x02\x02x" else message for message in binary.messages.to_pylist()]
    messages, errors = avro._json_of_binary(Encoded(pa.array(damaged, pa.binary()), []), text)
    assert messages.to_pylist() == [None, b'{"name": {"string": "y"}}', None]
    assert [str(RowError(column, reason)) for _, column, reason in errors] == ["A row has a text that is not UTF-8"]


def test_json_is_written_as_it_is_read() -> None:
    """One value each, null for null."""
    text, target = schema_text(JSON_COLUMNS, legacy_timestamps=True), arrow_type(JSON_COLUMNS)
    rows = pa.array([{"id": 1, "name": "é\n", "ts": None, "b": b"\xff"}, None, {"id": 2, "name": None}], target)
    messages, errors = avro._json_of_binary(encoding.encode(rows, parse_schema(text)), text)
    assert not errors
    assert json.loads(messages[0].as_py()) == {"id": 1, "name": {"string": "é\n"}, "ts": None, "b": {"bytes": "\u00ff"}}
    assert messages[1].as_py() is None
    back = avro.AVRO.decoder(JSON_COLUMNS, {"avro.encoding": "json"})(messages).to_pylist()
    assert [row and {k: v for k, v in row.items() if k != ERROR} for row in back] == rows.to_pylist()


@pytest.mark.parametrize("nullable", [False, True])
def test_a_value_of_avros_json_has_its_own_type(*, nullable: bool) -> None:
    """As for Avro's own decoder, also where no union is: the library takes any value for some types."""
    columns = struct(
        ("b", spark.BooleanType(), nullable),
        ("i", spark.IntegerType(), nullable),
        ("d", spark.DoubleType(), nullable),
        ("a", spark.ArrayType(spark.BooleanType(), nullable), nullable),
    )
    kinds = {"b": "boolean", "i": "int", "d": "double", "a": "array"}
    good = {"b": True, "i": 1, "d": 1, "a": [False]}

    def message(**other: Any) -> bytes:
        row = {**good, **other}
        if nullable:
            row["a"] = [{"boolean": item} for item in row["a"]] if isinstance(row["a"], list) else row["a"]
            row = {name: {kinds[name]: value} for name, value in row.items()}
        return json.dumps(row).encode()

    decode = avro.AVRO.decoder(columns, {"avro.encoding": "json"})
    fine: list[dict[str, Any]] = [{"i": 1e3}, {"d": "NaN"}, {"d": "-Infinity"}, {"d": 2}]
    rows = decode(pa.array([message(**other) for other in fine])).to_pylist()
    assert [row[ERROR] for row in rows] == [None] * 4
    assert (rows[0]["i"], str(rows[1]["d"]), rows[2]["d"], rows[3]["d"]) == (1000, "nan", -math.inf, 2.0)
    bad: list[dict[str, Any]] = [
        {"b": "false"},
        {"b": 0},
        {"b": None},
        {"i": 1.5},
        {"i": True},
        {"d": "1.5"},
        {"d": True},
        {"a": ""},
        {"a": {}},
        {"a": ["no"]},
    ]
    rows = decode(pa.array([message(**other) for other in bad])).to_pylist()
    assert all("not in Avro's JSON encoding" in (row[ERROR] or "") for row in rows), rows


def test_numbers_that_json_does_not_have_are_written_as_java_writes_them() -> None:
    """As texts, which are read again."""
    columns = struct(("d", spark.DoubleType()))
    text = schema_text(columns, legacy_timestamps=True)
    rows = pa.array([{"d": value} for value in (math.nan, math.inf, -math.inf, 1.5)], arrow_type(columns))
    messages, _ = avro._json_of_binary(encoding.encode(rows, parse_schema(text)), text)
    assert [json.loads(message)["d"]["double"] for message in messages.to_pylist()] == [
        "NaN",
        "Infinity",
        "-Infinity",
        1.5,
    ]
    back = avro.AVRO.decoder(columns, {"avro.encoding": "json"})(messages)
    assert str(back.field("d").to_pylist()) == "[nan, inf, -inf, 1.5]"


# --- options ---

URL = "avro-confluent.url"


def made(options: dict[str, Any]) -> RegistrySettings:
    """Settings of options, through the pickle in which they travel."""
    found: RegistrySettings = pickle.loads(pickle.dumps(schema_registry_settings.settings("avro-confluent", options)))
    return found


def test_settings_are_made_of_options_and_show_no_secret() -> None:
    """Equal ones are one client."""
    options = {
        URL: "http://user:pw1@host:8081",
        "avro-confluent.properties": "max.retries:1, proxy:http://p:1",
        "avro-confluent.properties.retries.wait.ms": "10",
        "avro-confluent.ssl.keystore.password": "pw2",
    }
    found = made(options)
    assert found == made(options)
    assert hash(found) == hash(made(options))
    assert "pw" not in repr(found)
    assert dict(found.properties)["retries.wait.ms"] == "10"
    assert found.auto_register


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": None}, "'avro-confluent.url' is missing"),
        ({"url": "host:8081"}, "'avro-confluent.url' has the value"),
        ({"url": "ftp://me:hunter2@host"}, r"has the value '\*\*\*'"),
        ({"properties.no.such": "hunter2"}, "'avro-confluent.properties.no.such' is not known"),
        ({"url": "me:hunter2@registry:8081"}, r"'avro-confluent.url' has the value '\*\*\*'"),
        ({"url": "ftp://me:hun ter2@host"}, r"has the value '\*\*\*'"),
        ({"url": "http://me:a,hunter2@host"}, r"has the value '\*\*\*'"),
        ({"properties": "basic.auth.user.info:u:a,hunter2"}, "'avro-confluent.properties' is not <property>:<value> b"),
        ({"properties": "basic.auth.user.info:u:a,hunter2:b"}, r"'avro-confluent.properties.\*\*\*' is not known"),
        ({"properties": "auto.register.schemas:hunter2"}, "expected true or false"),
        ({"properties": "proxy:me:hunter2@host:1"}, "expected a URL such as http://host:3128"),
        ({"url": "http://host:1/api?token=hunter2"}, r"'\*\*\*'; expected a URL such as"),
        ({"properties": "basic.auth.credentials.source:hunter2"}, "expected USER_INFO or URL"),
        ({"properties": "max.retries:hunter2"}, "expected a whole number"),
        ({"properties": "http.read.timeout.ms:0"}, "milliseconds above 0"),
        ({"basic-auth.credentials-source": "SASL_INHERIT"}, "expected USER_INFO or URL"),
        ({"basic-auth.credentials-source": "USER_INFO"}, "'avro-confluent.basic-auth.user-info' is missing"),
        ({"basic-auth.user-info": "u:hunter2", "bearer-auth.token": "hunter2"}, "in conflict"),
        ({"bearer-auth.token": "hunter2\n"}, "no header can hold"),
    ],
)
def test_options_that_cannot_be_are_refused_without_secrets(options: dict[str, Any], problem: str) -> None:
    """When the table is made, not when the first row is read."""
    options = {f"avro-confluent.{name}": value for name, value in {"url": "http://h", **options}.items()}
    with pytest.raises(ConfigurationError, match=problem) as caught:
        avro_confluent.AVRO_CONFLUENT.check(struct(("a", spark.LongType())), options)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_looked_up_where_the_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings keep the reference."""
    found = made({URL: "http://h", "avro-confluent.basic-auth.user-info": "${env:REGISTRY_LOGIN}"})
    assert dict(found.properties)["basic.auth.user.info"] == "${env:REGISTRY_LOGIN}"
    monkeypatch.delenv("REGISTRY_LOGIN", raising=False)
    with pytest.raises(ConfigurationError, match="this environment variable does not exist"):
        schema_registry.client(found)
    monkeypatch.setenv("REGISTRY_LOGIN", "hunter2")
    with pytest.raises(ConfigurationError, match=r"has the value '\$\{env:REGISTRY_LOGIN\}'"):
        schema_registry.client(made({URL: "${env:REGISTRY_LOGIN}"}))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:hun ter2@host:1", "http://***@host:1"),
        ("http://me:hunter@2@host:1,http://me:hunter2@other", "http://***@host:1,http://***@other"),
        ("http://host:1/path", "http://host:1/path"),
    ],
)
def test_a_client_shows_no_login(url: str, shown: str) -> None:
    """Whatever characters the password has."""
    client = schema_registry.client(made({URL: url}))
    assert repr(client) == f"Registry('{shown}')"
    client.close()


def decimal(**given: Any) -> str:
    """A schema with a decimal of whatever precision."""
    described = {"type": "bytes", "logicalType": "decimal", **given}
    return json.dumps({**R, "fields": [{"name": "a", "type": described}]})


@pytest.mark.parametrize(
    ("given_schema", "problem"),
    [
        ("{", "is not a valid Avro schema"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "no.such"}]}', "is not a valid Avro schema"),
        (json.dumps({**R, "fields": [{"name": "a", "type": "string"}]}), "a is string in its schema and int64 here"),
        (json.dumps({**R, "fields": []}), "a is not in the reader's schema"),
        (decimal(precision=40), "a has a decimal of precision 40 in its schema; expected 1 to 38 digits"),
        (decimal(), "a has a decimal of precision None"),
        (decimal(precision="x"), "is not a valid Avro schema"),
        (
            json.dumps({**R, "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]}),
            "b is in the schema",
        ),
    ],
)
def test_a_given_schema_must_fit_the_columns(given_schema: str, problem: str) -> None:
    """As in Flink."""
    with pytest.raises(ConfigurationError, match=problem):
        avro_confluent.AVRO_CONFLUENT.check(
            struct(("a", spark.DecimalType(38, 0) if "decimal" in given_schema else spark.LongType())),
            {URL: "http://h", "avro-confluent.schema": given_schema},
        )


def test_the_map_option_is_flinks() -> None:
    """Commas between, a colon within; the value may have more of them."""
    assert schema_registry_settings.key_value_map("a:b,c:http://d") == {"a": "b", "c": "http://d"}
    with pytest.raises(ValueError):  # noqa: PT011  (whoever parses it says which option)
        schema_registry_settings.key_value_map("a")
