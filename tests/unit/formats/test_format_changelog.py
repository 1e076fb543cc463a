"""The changelog formats without Spark: what they offer, and what was recorded of Debezium."""

from __future__ import annotations

import json
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import Column
from pyspark.sql.types import LongType, StructField, StructType

from dynamic_kafka.errors import InvalidOptionError
from dynamic_kafka.formats.changelog.format import CANAL_JSON, DEBEZIUM_JSON


def test_patterns_leave_out_databases_and_tables() -> None:
    """Both are for the whole name. What they leave out is no error, whatever its rows are, but it must have a name."""
    included = {"database": "shop_.*|b", "table": r"t\d+"}
    options = {f"canal-json.{name}.include": text for name, text in included.items()}
    parsed = {o.key: o.parse(options[o.key], o.key) for o in CANAL_JSON.options if o.key in options}
    assert len(parsed) == 2
    rows = CANAL_JSON.decoder(StructType([StructField("id", LongType())]), parsed)
    messages = [
        json.dumps({"database": database, "table": table, "type": "INSERT", "data": [{"id": id_}]}).encode()
        for database, table, id_ in (
            *(("shop_1", "t1", 1), ("b", "t22", 2), ("bb", "t1", 3), ("a shop_1", "t1", "x"), ("b", "at1", 4)),
            (None, "t1", 5),
        )
    ]
    *found, nameless, null = rows(pa.array([*messages, None], pa.binary())).to_pylist()
    assert [one and [change["row"]["id"] for change in one["rows"]] for one in found] == [[1], [2], None, None, None]
    assert nameless["__error"] == 'It does not have the field "database"'
    assert null is None


@pytest.mark.parametrize("pattern", [r"\p{L}+", "[a-z&&[^b]]", r"\Qa.b\E", "(?<name>a)", "(", "[[a]b]", " "])
def test_a_pattern_that_java_and_python_read_differently_is_refused(pattern: str) -> None:
    """Tables were read with Java's patterns in Flink, and must not change their meaning here."""
    with pytest.raises(InvalidOptionError, match="a regular expression that Java and Python read in the same way"):
        CANAL_JSON.options[-1].parse(pattern, "canal-json.table.include")


def test_nothing_is_written_with_its_schema() -> None:
    """As in Flink, a table that is written to cannot have `schema-include`."""
    with pytest.raises(
        InvalidOptionError, match=r"'debezium-json.schema-include' has the value 'true'; expected false"
    ):
        DEBEZIUM_JSON.rows(cast("Column", None), StructType(), {"debezium-json.schema-include": True})
