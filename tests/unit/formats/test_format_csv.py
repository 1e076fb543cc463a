"""The format `csv` without Spark: its options and which columns it takes."""

from __future__ import annotations

import pytest
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
