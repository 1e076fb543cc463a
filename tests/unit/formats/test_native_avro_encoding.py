"""The native encoder of Avro against the one in Python, for random rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from tests.random_rows import random_rows
from tests.unit.formats.test_native_avro import SCHEMAS, columns

from dynamic_kafka.errors import RowError
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.encoding import encode, native_spec
from dynamic_kafka.formats.avro.schemas import AvroSchema, parse_schema, schema_text, to_be_cut
from dynamic_kafka.native import encoder

PREFIX = b"\0\0\0\0\7"


def check(schema: StructType, avro: AvroSchema, count: int, seed: int) -> tuple[int, int]:
    """Compare the messages of random rows; return how many rows were encoded, and how many were left."""
    rows = random_rows(schema, count, seed).cast(arrow_type(schema), safe=False)
    cut = to_be_cut(schema)
    native = encoder(native_spec(schema, avro, cut))
    assert native is not None
    messages, left = native(rows, PREFIX)
    messages.validate(full=True)
    for row in left[:100]:
        with pytest.raises(RowError):
            encode(rows.slice(row, 1), avro, PREFIX, cut)
    good = pa.array(sorted(set(range(count)) - set(left)), pa.int64())
    expected, found = encode(rows.take(good), avro, PREFIX, cut), messages.take(good)
    wrong = [i for i in range(len(good)) if expected[i].as_py() != found[i].as_py()] if expected != found else []
    assert [(rows[good[i].as_py()].as_py(), expected[i].as_py(), found[i].as_py()) for i in wrong[:3]] == []
    return len(good), len(left)


@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "new"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_avro_is_encoded_as_in_python(name: str, legacy: bool) -> None:  # noqa: FBT001
    """Byte by byte; a row that is left is an error in Python."""
    schema = SCHEMAS[name]
    encoded, left = check(schema, parse_schema(schema_text(schema, legacy_timestamps=legacy)), 500, seed=1)
    assert encoded > 100
    assert (left > 0) == (legacy and name in ("times", "nested"))


def test_times_of_few_digits_are_cut() -> None:
    """As those of columns that are declared so."""
    cut = [StructField(f.name, f.dataType, metadata={"precision": 3}) for f in SCHEMAS["times"].fields]
    schema = StructType(cut)
    assert check(schema, parse_schema(schema_text(schema, legacy_timestamps=True)), 500, seed=1)[1] == 0


def test_a_schema_of_ones_own_is_written() -> None:
    """With types that are not made from columns, and fields in another order."""
    record = {
        "type": "record",
        "name": "own",
        "fields": [
            {"name": "e", "type": {"type": "enum", "name": "kinds", "symbols": ["a", "null", "b"]}},
            {"name": "g", "type": ["kinds", "null"]},
            {"name": "x", "type": ["null", {"type": "fixed", "name": "ten", "size": 10}]},
            {
                "name": "d",
                "type": [
                    "null",
                    {"type": "fixed", "name": "dec", "size": 20, "logicalType": "decimal", "precision": 8, "scale": 2},
                ],
            },
            {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
            {"name": "n", "type": ["long", "null"]},
            {"name": "m", "type": {"type": "map", "values": ["double", "null"]}},
        ],
    }
    decimal, text = DecimalType(10, 2), StringType()
    schema = columns(
        n=IntegerType(), c=decimal, d=decimal, x=BinaryType(), e=text, g=text, m=MapType(text, FloatType())
    )
    encoded, left = check(schema, parse_schema(json.dumps(record)), 5000, seed=1)
    assert encoded > 20
    assert left > 1000


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        (columns(a=LongType()), "int"),
        (columns(a=StringType()), "bytes"),
        (columns(a=DoubleType()), "float"),
        (columns(a=IntegerType()), ["null", "int", "long"]),
        (columns(a=LongType()), {"type": "long", "logicalType": "timestamp-millis"}),
        (columns(a=ArrayType(LongType())), {"type": "map", "values": "long"}),
        (columns(b=MapType(StringType(), LongType())), {"type": "map", "values": "long"}),
    ],
)
def test_a_schema_that_does_not_fit_is_left_to_python(schema: StructType, type_: object) -> None:
    """It has the words for it, or encodes it."""
    record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": type_}]}
    spec = native_spec(schema, parse_schema(json.dumps(record)), frozenset())
    fits = type_ == {"type": "long", "logicalType": "timestamp-millis"}  # a number stays a number
    assert (encoder(spec) is not None) == fits
