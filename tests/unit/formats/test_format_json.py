"""The format `json` without Spark: its options and which columns it takes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import DataType, IntegerType, MapType, StringType, StructType

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError
from dynamic_kafka.formats import format_named
from dynamic_kafka.formats.format import Rows
from dynamic_kafka.formats.json.format import JSON
from dynamic_kafka.options import parse_options
from dynamic_kafka.spark_versions import TimeType


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


@pytest.mark.parametrize("name", ["json", "csv", "avro"])
@pytest.mark.parametrize("type_", [StringType(), TimeType(3)])
def test_the_kernel_alone_encodes_json_and_csv_without_times_of_a_day(name: str, type_: DataType) -> None:
    """So the sink's tasks can do it. A TIME's precision is not in its Arrow type."""
    no_column: Any = None
    found = format_named(name).rows(no_column, StructType().add("c", type_), {})
    assert isinstance(found, Rows)
    assert (found.spec is not None) == (name != "avro" and isinstance(type_, StringType))
