"""Google's well-known types as columns: wrappers, durations and JSON values, read and written."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import duration_pb2, struct_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from dynamic_kafka.errors import ConfigurationError, RowError
from dynamic_kafka.formats.arrow import all_messages, arrow_type
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.kernel import decoder
from dynamic_kafka.formats.protobuf.columns import columns_of
from dynamic_kafka.formats.protobuf.descriptors import MessageType, add_well_known, message_of_set
from dynamic_kafka.formats.protobuf.encoding import encoder
from dynamic_kafka.formats.protobuf.plan import Missing, plan_of

DURATION = "google.protobuf.Duration"


def message(type_: str, *, repeated: bool = False) -> MessageType:
    """A message `M` with one field `a`."""
    imports = [f"google/protobuf/{name}.proto" for name in ("wrappers", "duration", "struct")]
    file = FileDescriptorProto(name="m.proto", syntax="proto3", dependency=imports)
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    kind = FieldDescriptorProto.TYPE_MESSAGE
    field = FieldDescriptorProto(name="a", number=1, label=label, type=kind, type_name=f".{type_}")
    file.message_type.append(DescriptorProto(name="M", field=[field]))
    files = FileDescriptorSet()
    add_well_known(files, imports)
    files.file.append(file)
    return message_of_set("name", "M", files)


def read(type_: MessageType, column: DataType, messages: list[bytes]) -> list[tuple[Any, Any]]:
    """The column and the error of each message."""
    schema = StructType().add("a", column)
    plan = plan_of(type_, schema, Missing(defaults=False))
    rows = decoder(schema, {"format": "protobuf", "plan": plan})(pa.array(messages, pa.binary()))
    rows.validate(full=True)
    return [(row["a"], row[ERROR]) for row in rows.to_pylist()]


def written(type_: MessageType, column: DataType, values: list[Any]) -> list[Any]:
    """Each value in a message of its own, as Google's library reads it."""
    columns = StructType().add("a", column)
    rows = pa.array([{"a": value} for value in values], arrow_type(columns))
    made = GetMessageClass(type_.descriptor)
    return [made.FromString(m or b"") for m in all_messages(encoder(type_, columns, "")(rows, b"")).to_pylist()]


def serialized(type_: MessageType, value: Any) -> bytes:
    """A message with a value, which is one of Google's classes."""
    made: Any = GetMessageClass(type_.descriptor)()
    made.a.MergeFromString(value.SerializeToString())
    found: bytes = made.SerializeToString()
    return found or b"\n\0"


@pytest.mark.parametrize(
    ("type_", "column", "value", "expected"),
    [
        ("google.protobuf.Int32Value", IntegerType(), wrappers_pb2.Int32Value(value=-5), -5),
        ("google.protobuf.Int64Value", LongType(), wrappers_pb2.Int64Value(value=0), 0),
        ("google.protobuf.UInt64Value", LongType(), wrappers_pb2.UInt64Value(value=2**64 - 1), -1),
        ("google.protobuf.DoubleValue", DoubleType(), wrappers_pb2.DoubleValue(value=0.5), 0.5),
        ("google.protobuf.StringValue", StringType(), wrappers_pb2.StringValue(value="ü"), "ü"),
        (DURATION, DayTimeIntervalType(), duration_pb2.Duration(seconds=90, nanos=5000), dt.timedelta(0, 90, 5)),
        (DURATION, DayTimeIntervalType(), duration_pb2.Duration(seconds=-1, nanos=-500_000_000), dt.timedelta(0, -1.5)),
        ("google.protobuf.Value", StringType(), struct_pb2.Value(number_value=1.5), "1.5"),
        ("google.protobuf.Value", StringType(), struct_pb2.Value(null_value=struct_pb2.NULL_VALUE), "null"),
        (
            "google.protobuf.ListValue",
            StringType(),
            struct_pb2.ListValue(values=[struct_pb2.Value(bool_value=True), struct_pb2.Value(string_value="x")]),
            '[true,"x"]',
        ),
        (
            "google.protobuf.Struct",
            StringType(),
            struct_pb2.Struct(fields={"k": struct_pb2.Value(struct_value=struct_pb2.Struct())}),
            '{"k":{}}',
        ),
    ],
)
def test_a_well_known_message_is_one_value(type_: str, column: DataType, value: Any, expected: Any) -> None:
    """Read, and written again; a field that is not set is null, whatever the default of its value. Also in a list."""
    alone, many = message(type_), message(type_, repeated=True)
    data = serialized(alone, value)
    assert read(alone, column, [data, b""]) == [(expected, None), (None, None)]
    again, unset = written(alone, column, [expected, None])
    assert (again.a.SerializeToString(), unset.HasField("a")) == (value.SerializeToString(), False)
    assert read(many, ArrayType(column), [data * 2]) == [([expected] * 2, None)]
    assert len(written(many, ArrayType(column), [[expected, None]])[0].a) == 2
    assert columns_of(alone.descriptor) == StructType().add("a", column)


def test_a_row_of_the_fields_is_as_before() -> None:
    """As in Flink, a wrapper can be a ROW with its value."""
    column = StructType().add("value", LongType())
    type_ = message("google.protobuf.Int64Value")
    assert read(type_, column, [serialized(type_, wrappers_pb2.Int64Value(value=3))]) == [({"value": 3}, None)]


def test_values_that_json_does_not_have_are_errors_of_their_message() -> None:
    """NaN; the messages beside it are read."""
    type_ = message("google.protobuf.Value")
    data = [serialized(type_, struct_pb2.Value(number_value=n)) for n in (1.5, float("nan"), 2.5)]
    found = read(type_, StringType(), data)
    assert [value for value, _ in found] == ["1.5", None, "2.5"]
    assert "NaN" in found[1][1] or "nan" in found[1][1]


@pytest.mark.parametrize("number", ["9007199254740993", "-123456789012345678", "1e400", "9" * 400])
def test_a_number_that_is_no_double_is_not_written_as_another_one(number: str) -> None:
    """A whole number keeps all its digits, or is an error; a fraction is the nearest double, as everywhere in JSON."""
    type_ = message("google.protobuf.Struct")
    with pytest.raises(
        RowError, match=r"a.*has a number that a google\.protobuf\.Struct cannot hold; its numbers are doubles"
    ):
        written(type_, StringType(), [f'{{"a": [{number}]}}'])
    fine = f'{{"a":[{2**53}.0,{10**15}.0,0.1]}}'
    [data] = written(type_, StringType(), [fine])
    assert read(type_, StringType(), [data.SerializeToString()]) == [(fine, None)]


@pytest.mark.parametrize("text", ["", "{", "[]", "NaN", '{"a": NaN}', "[" * 100_000])
def test_a_text_that_is_not_a_json_object_cannot_be_a_struct(text: str) -> None:
    """The error names the column."""
    with pytest.raises(RowError, match=r"a.*is not JSON for a google\.protobuf\.Struct"):
        written(message("google.protobuf.Struct"), StringType(), [text])


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("google.protobuf.Int64Value", StringType()),
        (DURATION, LongType()),
        ("google.protobuf.Struct", LongType()),
        (DURATION, YearMonthIntervalType()),
    ],
)
def test_a_column_of_another_type_is_refused(type_: str, column: DataType) -> None:
    """Before the first message."""
    with pytest.raises(ConfigurationError):
        read(message(type_), column, [])
