"""The format `csv` without Spark: its options and which columns it takes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError
from dynamic_kafka.formats.csv.format import CSV
from dynamic_kafka.options import parse_options


def parsed(name: str, text: str) -> object:
    """The value of an option of `csv`, by its name behind `csv.`."""
    return parse_options({f"csv.{name}": text}, CSV.options).values[f"csv.{name}"]


@pytest.mark.parametrize(
    ("text", "character"),
    [
        (",", ","),
        ("|", "|"),
        (" ", " "),
        (r"\t", "\t"),
        ("\t", "\t"),
        (r"\u0001", "\x01"),
        (r"\001", "\x01"),
        (r"\\", "\\"),
    ],
)
def test_a_delimiter_may_be_written_as_in_java(text: str, character: str) -> None:
    """The one option of which Flink undoes escapes."""
    assert parsed("field-delimiter", text) == character


@pytest.mark.parametrize("text", ["", "ab", r"\t\t", "\\", "😀"])
def test_a_delimiter_is_one_character(text: str) -> None:
    """One of Java's: none beyond U+FFFF."""
    with pytest.raises(InvalidOptionError, match=r"'csv\.field-delimiter'"):
        parsed("field-delimiter", text)


@pytest.mark.parametrize("name", ["quote-character", "escape-character", "array-element-delimiter"])
def test_other_characters_are_taken_as_they_are(name: str) -> None:
    r"""`\t` is two characters."""
    assert parsed(name, "\\") == "\\"
    for text in ("", r"\t", ";;"):
        with pytest.raises(InvalidOptionError, match=f"'csv.{name}'"):
            parsed(name, text)


def test_any_text_can_stand_for_null() -> None:
    """Also an empty one, and blanks count."""
    assert [parsed("null-literal", text) for text in ("", " n/a ")] == ["", " n/a "]


def test_a_quote_character_that_is_disabled() -> None:
    """Flink: 'Format cannot define a quote character and disabled quote character at the same time'."""
    schema = StructType().add("a", IntegerType())
    with pytest.raises(ConflictingOptionsError, match=r"csv\.quote-character"):
        CSV.check(schema, {"csv.disable-quote-character": True, "csv.quote-character": "'"})
    CSV.check(schema, {"csv.disable-quote-character": False, "csv.quote-character": "'"})


NESTED = [ArrayType(IntegerType()), StructType().add("x", IntegerType()).add("y", DateType())]


@pytest.mark.parametrize(
    "type_",
    [
        MapType(StringType(), IntegerType()),
        DayTimeIntervalType(),
        *(ArrayType(n) for n in NESTED),
        *(StructType().add("x", n) for n in NESTED),
    ],
)
def test_other_types_are_refused(type_: DataType) -> None:
    """The error names the column and its type."""
    with pytest.raises(ConfigurationError, match="Column 'a' has the type"):
        CSV.check(StructType().add("a", type_), {})


@given(st.lists(st.text(alphabet='ab,;"\\\n\r\t \0\uffff\ufdd0\U0010ffff', max_size=12), min_size=2, max_size=6))
def test_a_message_does_not_change_the_next_one(messages: list[str]) -> None:
    """Together they are read as each alone. Spark's `from_csv` keeps text after U+FFFF for the next message."""
    decode = CSV.decoder(StructType().add("a", StringType()).add("b", StringType()), {})
    together = decode(pa.array([message.encode() for message in messages], pa.binary())).to_pylist()
    assert together == [decode(pa.array([message.encode()], pa.binary())).to_pylist()[0] for message in messages]


def test_the_character_u_ffff_is_text() -> None:
    """U+FFFF is what careless programs write for the end of a file."""
    decode = CSV.decoder(StructType().add("a", StringType()).add("b", StringType()), {})
    (row,) = decode(pa.array(["x\uffff,1".encode()], pa.binary())).to_pylist()
    assert (row["a"], row["b"]) == ("x\uffff", "1")
