"""The format `raw` in Spark, held against recorded answers of Flink's."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import ERROR, format_named
from tests.spark.texts import SLOWLY, Message, checked, decoded, encoded, frame

pytestmark = pytest.mark.spark

RAW = format_named("raw")

NUMBERS = {"tinyint": "b", "smallint": "h", "int": "i", "bigint": "q", "float": "f", "double": "d", "boolean": "?"}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    2.0**-1074,
    2.0**-1022,
    2.0**-149,
    2.0**-126,
    2.0**127,
    2.0**1023,
    math.inf,
    -math.inf,
    math.pi,
]


def numbers(code: str) -> st.SearchStrategy[Any]:
    """Values of a type of `struct`."""
    if code in "fd":
        return st.floats(width=32 if code == "f" else 64, allow_nan=False)
    if code == "?":
        return st.booleans()
    bits = 8 * struct.calcsize(code)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@pytest.mark.parametrize(("type_", "code"), NUMBERS.items())
@pytest.mark.parametrize(("endianness", "order"), [("big-endian", ">"), ("little-endian", "<")])
@given(st.data())
@settings(SLOWLY, max_examples=2)
def test_raw_numbers(
    spark: SparkSession, type_: str, code: str, endianness: str, order: str, data: st.DataObject
) -> None:
    """To their bytes and back, in either order, exactly."""
    values = data.draw(st.lists(numbers(code), min_size=50, max_size=200))
    if code in "fd":
        values += [v for v in SPECIAL if code == "d" or (abs(v) < 2.0**128 and abs(v) != 2.0**-1074)]
    messages = [struct.pack(order + code, value) for value in values]
    schema, options = checked(RAW, f"v {type_}", {"endianness": endianness})
    df = spark.createDataFrame(
        [(m, (v,)) for m, v in zip(messages, values, strict=True)], f"m BINARY, r STRUCT<v: {type_}>"
    )
    df = df.coalesce(1)
    read, written = RAW.decode(F.col("m"), schema, options), RAW.encode(F.col("r"), schema, options)
    for (found, message), wanted, bytes_ in zip(df.select(read, written).collect(), values, messages, strict=True):
        assert repr(found["v"]) == repr(struct.unpack(order + code, bytes_)[0])
        assert found[ERROR] is None
        assert bytes(message) == struct.pack(order + code, wanted)


def test_raw_messages_of_another_size(spark: SparkSession) -> None:
    """An error; a null message is a row with null."""
    expected = [
        "! not the 8 bytes of the column's type bigint",
        "! not the 8 bytes of the column's type bigint",
        "{null}",
        "{1}",
    ]
    assert decoded(spark, RAW, "v BIGINT", [b"1234567", b"", None, bytes(7) + b"\1"]) == expected
    assert decoded(spark, RAW, "v BOOLEAN", [b"\2", b"\0", b"ab"])[:2] == ["{true}", "{false}"]


def test_raw_nan(spark: SparkSession) -> None:
    """The one that Java writes; any is read."""
    assert encoded(spark, RAW, "v DOUBLE", ["'v',double('NaN')"]) == [b"\x7f\xf8" + bytes(6)]
    assert encoded(spark, RAW, "v FLOAT", ["'v',float('NaN')"]) == [b"\x7f\xc0\0\0"]
    assert (
        decoded(spark, RAW, "v DOUBLE", [b"\xff\xf8" + bytes(5) + b"\1", b"\x7f\xf0" + bytes(5) + b"\1"])
        == ["{NaN}"] * 2
    )


@pytest.mark.parametrize("type_", ["STRING", "BINARY"])
def test_raw_texts_and_bytes(spark: SparkSession, type_: str) -> None:
    """As they are, whatever they are."""
    schema, options = checked(RAW, f"v {type_}", {})
    messages: list[Message] = [b"", "ä😀", b"\xff\0", None]
    read = frame(spark, messages).select("i", RAW.decode(F.col("value"), schema, options).alias("d"))
    rows = read.select(F.col("d")["v"].cast("binary"), RAW.encode(F.col("d"), schema, options)).collect()
    assert [tuple(None if v is None else bytes(v) for v in row) for row in rows] == [
        (m.encode() if isinstance(m, str) else m,) * 2 for m in messages
    ]


def test_raw_texts_in_another_charset(spark: SparkSession) -> None:
    """Malformed bytes become U+FFFD, characters that a charset does not have question marks."""
    options = {"charset": "US-ASCII"}
    assert decoded(spark, RAW, "v STRING", [b"a\xffb", b"", None], options) == ["{a\ufffdb}", "{}", "{null}"]
    assert encoded(spark, RAW, "v STRING", ["'v','aé😀'", "'v',NULL", "NULL"], options) == [b"a??", None, None]
    assert decoded(spark, RAW, "v STRING", ["中".encode("gbk")], {"charset": "GBK"}) == ["{中}"]
    assert encoded(spark, RAW, "v STRING", ["'v','é😀'"], {"charset": "UTF-16"}) == [b"\xfe\xff\x00\xe9\xd8=\xde\x00"]
