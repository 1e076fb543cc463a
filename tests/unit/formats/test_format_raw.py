"""The format `raw` without Spark: its options and its one column."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    StructType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.formats.raw import RAW, _bytes, _text
from dynamic_kafka.options import parse_options


def parsed(**options: str) -> dict[str, object]:
    """Options of `raw` by their names behind `raw.`, parsed."""
    return dict(parse_options({f"raw.{name}": text for name, text in options.items()}, RAW.options).values)


def test_options_of_flink() -> None:
    """Both of them, in Flink's spelling; a charset in Java's or in Python's."""
    assert parsed(charset="UTF-8", endianness="big-endian") == {"raw.charset": "utf-8", "raw.endianness": "big-endian"}
    assert parsed(endianness="LITTLE-ENDIAN") == {"raw.endianness": "little-endian"}
    assert parsed(charset="ISO-8859-1") == parsed(charset="latin1")
    assert parsed(charset="Shift_JIS") == {"raw.charset": "shift_jis"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("charset", "x"), ("charset", "zlib"), ("charset", ""), ("endianness", "middle"), ("endianness", "")],
)
def test_values_that_are_none(name: str, text: str) -> None:
    """The error names the option."""
    with pytest.raises(InvalidOptionError, match=f"'raw.{name}'"):
        parsed(**{name: text})


@pytest.mark.parametrize(
    "type_", [DateType(), TimestampType(), DecimalType(10, 2), ArrayType(IntegerType()), StructType()]
)
def test_other_types_are_refused(type_: DataType) -> None:
    """The error names the column and its type."""
    with pytest.raises(ConfigurationError, match="of column 'a'"):
        RAW.check(StructType().add("a", type_), {})


@pytest.mark.parametrize("columns", [[], ["a", "b"]])
def test_exactly_one_column(columns: list[str]) -> None:
    """A message is one value."""
    schema = StructType()
    for column in columns:
        schema.add(column, IntegerType())
    with pytest.raises(ConfigurationError, match="exactly one physical column"):
        RAW.check(schema, {})


@pytest.mark.parametrize(
    ("name", "message", "text"),
    [
        ("windows-31j", b"\x87\x40\xed\x40", "①纊"),
        ("Windows-31J", b"\x82\xa0", "あ"),
        ("x-windows-949", b"\xb0\xa1", "가"),
        ("x-windows-874", b"\xa1", "ก"),
        ("x-MacRoman", b"\x80", "Ä"),
        ("x-MacCentralEurope", b"\x89", "Č"),
        ("IBM00858", b"\xd5", "€"),
        ("x-IBM737", b"\x80", "Α"),
    ],
)
def test_javas_names_of_charsets_are_known(name: str, message: bytes, text: str) -> None:
    """Recorded from Java 17; Python calls these charsets otherwise."""
    assert _text(message, str(parsed(charset=name)["raw.charset"])) == text


@pytest.mark.parametrize(
    ("charset", "message", "text"),
    [
        ("utf-16", b"\0a", "a"),  # big-endian without a byte order mark, as in Java
        ("utf-16", b"\xff\xfea\0", "a"),
        ("utf-32", b"\0\0\0a", "a"),
        ("ascii", b"a\xffb", "a\ufffdb"),
        ("gbk", "中".encode("gbk"), "中"),
        ("utf-16-be", b"\xd8\0", "\ufffd"),
    ],
)
def test_texts_in_other_charsets_are_read_as_in_java(charset: str, message: bytes, text: str) -> None:
    """What is malformed becomes U+FFFD."""
    assert _text(message, charset) == text


@pytest.mark.parametrize(
    ("charset", "text", "message"),
    [
        ("utf-16", "é😀", b"\xfe\xff\x00\xe9\xd8=\xde\x00"),
        ("utf-32", "a", b"\0\0\0a"),
        ("ascii", "é😀", b"??"),
        ("iso8859-1", "é😀€", b"\xe9??"),
        ("gbk", "é😀中", b"\xa8\xa6?\xd6\xd0"),
    ],
)
def test_texts_in_other_charsets_are_written_as_in_java(charset: str, text: str, message: bytes) -> None:
    """Recorded from Flink 2.3; what a charset does not have becomes a question mark."""
    assert _bytes(text, charset) == message
