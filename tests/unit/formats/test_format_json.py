"""The format `json` without Spark: its options and which columns it takes."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, MapType, StringType, StructType

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError, UnknownOptionError
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.json.format import JSON
from dynamic_kafka.options import parse_options

FLINK_DEFAULTS = {  # JsonFormatOptions of Flink 2.3
    "json.fail-on-missing-field": "false",
    "json.ignore-parse-errors": "false",
    "json.timestamp-format.standard": "SQL",
    "json.map-null-key.mode": "FAIL",
    "json.map-null-key.literal": "null",
    "json.encode.decimal-as-plain-number": "false",
    "json.encode.ignore-null-fields": "false",
    "json.decode.json-parser.enabled": "true",
}


def test_options_and_defaults_are_flinks() -> None:
    """All of them, and each default is a value."""
    assert {option.key: option.default for option in JSON.options} == FLINK_DEFAULTS
    parse_options(FLINK_DEFAULTS, JSON.options)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("json.ignore-parse-errors", "yes"),
        ("json.timestamp-format.standard", "iso"),
        ("json.timestamp-format.standard", "sql"),  # Flink compares the case, too
        ("json.map-null-key.mode", "SKIP"),
    ],
)
def test_values_that_are_none(option: str, text: str) -> None:
    """The error names the option and says what is right."""
    with pytest.raises(InvalidOptionError, match=f"'{option}'"):
        parse_options({option: text}, JSON.options)


def test_an_option_that_is_none() -> None:
    """A near one is suggested."""
    with pytest.raises(UnknownOptionError, match=r"did you mean 'json\.ignore-parse-errors'"):
        parse_options({"json.ignore-parse-error": "true"}, JSON.options)


def test_a_missing_field_cannot_be_an_error_that_is_ignored() -> None:
    """Flink: 'fail-on-missing-field and ignore-parse-errors shouldn't both be true'."""
    both = {"json.fail-on-missing-field": True, "json.ignore-parse-errors": True}
    with pytest.raises(ConflictingOptionsError, match=r"json\.fail-on-missing-field"):
        JSON.check(StructType(), both)
    JSON.check(StructType(), both | {"json.ignore-parse-errors": False})


def test_keys_of_maps_are_texts() -> None:
    """Also inside of other types; the error names the column."""
    numbers = MapType(IntegerType(), StringType())
    for nested in (numbers, StructType().add("x", numbers), MapType(StringType(), numbers)):
        with pytest.raises(ConfigurationError, match="Column 'm' has a map with keys of the type int"):
            JSON.check(StructType().add("a", IntegerType()).add("m", nested), {})
    JSON.check(StructType().add("m", MapType(StringType(), IntegerType())), {})


def test_the_name_of_the_error_is_taken() -> None:
    """A column of that name would hide it."""
    with pytest.raises(ConfigurationError, match=ERROR):
        JSON.check(StructType().add(ERROR, StringType()), {})
