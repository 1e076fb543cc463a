"""The format `raw` in Spark, held against recorded answers of Flink's."""

from __future__ import annotations

import math
import struct
from itertools import product, zip_longest
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import ERROR, format_named
from tests.spark.texts import Message, checked, decode, decoded, encode, encoded, examples, frame

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


def numbers_of(code: str) -> st.SearchStrategy[Any]:
    """Values of a type of `struct`."""
    if code in "fd":
        return st.floats(width=32 if code == "f" else 64, allow_nan=False)
    if code == "?":
        return st.booleans()
    bits = 8 * struct.calcsize(code)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


ORDERS = {"big-endian": ">", "little-endian": "<"}


class Answer(NamedTuple):
    """What becomes of a number."""

    number: Any
    message: bytes
    read: Any
    written: bytes


@pytest.fixture(scope="module", name="numbers")
def _numbers(spark: SparkSession) -> dict[tuple[str, str], list[Answer]]:
    """What becomes of the numbers of all types in both orders."""
    values = {type_: examples(numbers_of(code), each=5) for type_, code in NUMBERS.items()}
    values["double"] += SPECIAL
    values["float"] += [v for v in SPECIAL if abs(v) < 2.0**128 and abs(v) != 2.0**-1074]
    data, columns, answers = [], [], []
    for n, (type_, endianness) in enumerate(product(NUMBERS, ORDERS)):
        messages = [struct.pack(ORDERS[endianness] + NUMBERS[type_], value) for value in values[type_]]
        data.append([(message, (value,)) for message, value in zip(messages, values[type_], strict=True)])
        columns.append(f"c{n} STRUCT<m: BINARY, r: STRUCT<v: {type_}>>")
        check = checked(RAW, f"v {type_}", {"endianness": endianness})
        answers += [decode(RAW, F.col(f"c{n}.m"), *check), encode(RAW, F.col(f"c{n}.r"), *check)]
    df = spark.createDataFrame(list(zip_longest(*data)), ", ".join(columns)).coalesce(1)
    found: dict[tuple[str, str], list[Answer]] = {}
    columns_found = list(zip(*df.select(*answers).collect(), strict=True))
    for n, case in enumerate(product(NUMBERS, ORDERS)):
        known = zip(data[n], *columns_found[2 * n : 2 * n + 2], strict=False)
        found[case] = [Answer(number, message, read, written) for (message, (number,)), read, written in known]
    return found


@pytest.mark.parametrize("type_", NUMBERS)
@pytest.mark.parametrize("endianness", ORDERS)
def test_raw_numbers(numbers: dict[tuple[str, str], list[Answer]], type_: str, endianness: str) -> None:
    """To their bytes and back, in either order, exactly."""
    answers = numbers[type_, endianness]
    assert len(answers) >= 20
    for answer in answers:
        assert repr(answer.read["v"]) == repr(struct.unpack(ORDERS[endianness] + NUMBERS[type_], answer.message)[0])
        assert answer.read[ERROR] is None
        assert bytes(answer.written) == answer.message


def test_raw_messages_of_another_size(spark: SparkSession) -> None:
    """An error; a null message is a row with null."""
    expected = [
        "! it does not have the 8 bytes of the type bigint",
        "! it does not have the 8 bytes of the type bigint",
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
    read = frame(spark, messages).select("i", decode(RAW, F.col("value"), schema, options).alias("d"))
    rows = read.select(F.col("d")["v"].cast("binary"), encode(RAW, F.col("d"), schema, options)).collect()
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
