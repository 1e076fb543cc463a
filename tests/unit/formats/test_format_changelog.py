"""The changelog formats without Spark: what they offer, and what was recorded of Debezium."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import Column
from pyspark.sql.types import LongType, StructField, StructType

from dynamic_kafka.errors import InvalidOptionError
from dynamic_kafka.formats import Format, format_named
from dynamic_kafka.formats.changelog.format import CANAL_JSON, DEBEZIUM_JSON, MAXWELL_JSON, OGG_JSON

FORMATS = (DEBEZIUM_JSON, CANAL_JSON, MAXWELL_JSON, OGG_JSON)
FIXTURES = Path(__file__).parents[2] / "fixtures" / "debezium"
SHARED = {
    "ignore-parse-errors",
    "timestamp-format.standard",
    "map-null-key.mode",
    "map-null-key.literal",
    "encode.decimal-as-plain-number",
    "encode.ignore-null-fields",
}


@pytest.mark.parametrize("found", FORMATS, ids=lambda found: found.name)
def test_each_format_is_found_by_its_name(found: Format) -> None:
    """The table of formats knows all four, and that they are changelogs."""
    assert format_named(found.name) is found
    assert found.changelog


@pytest.mark.parametrize(
    ("found", "own"),
    [
        (DEBEZIUM_JSON, {"schema-include"}),
        (CANAL_JSON, {"database.include", "table.include"}),
        (MAXWELL_JSON, set()),
        (OGG_JSON, set()),
    ],
    ids=lambda found: getattr(found, "name", ""),
)
def test_the_options_are_flinks(found: Format, own: set[str]) -> None:
    """Each format has what Flink 2.1's factory lists, under its own name."""
    assert [option.key for option in found.options if not option.key.startswith(f"{found.name}.")] == []
    assert {option.key.removeprefix(f"{found.name}.") for option in found.options} == SHARED | own


def test_a_pattern_leaves_out_databases() -> None:
    """It has to match the whole name. It is no error of a message, whatever its rows are."""
    include = CANAL_JSON.options[-2].parse("shop_.*|b", "canal-json.database.include")
    columns = StructType([StructField("id", LongType())])
    rows = CANAL_JSON.decoder(columns, {"canal-json.database.include": include})
    messages = [
        json.dumps({"database": name, "type": "INSERT", "data": [{"id": id_}]}).encode()
        for name, id_ in (("shop_1", 1), ("b", 2), ("bb", 3), ("a shop_1", "x"))
    ]
    found = rows(pa.array([*messages, None], pa.binary()))
    assert [one and [change["row"]["id"] for change in one["rows"]] for one in found.to_pylist()] == [
        [1],
        [2],
        *[None] * 3,
    ]


@pytest.mark.parametrize("pattern", [r"\p{L}+", "[a-z&&[^b]]", r"\Qa.b\E", "(?<name>a)", "(", "[[a]b]", " "])
def test_a_pattern_that_java_and_python_read_differently_is_refused(pattern: str) -> None:
    """Tables were read with Java's patterns in Flink, and must not change their meaning here."""
    with pytest.raises(InvalidOptionError, match="a regular expression that Java and Python read in the same way"):
        CANAL_JSON.options[-1].parse(pattern, "canal-json.table.include")


@pytest.mark.parametrize(
    ("found", "metadata"),
    [
        (
            DEBEZIUM_JSON,
            {
                "schema": "string",
                "ingestion-timestamp": "timestamp",
                "source.timestamp": "timestamp",
                "source.database": "string",
                "source.schema": "string",
                "source.table": "string",
                "source.properties": "map<string,string>",
            },
        ),
        (
            CANAL_JSON,
            {
                "database": "string",
                "table": "string",
                "sql-type": "map<string,int>",
                "pk-names": "array<string>",
                "ingestion-timestamp": "timestamp",
                "event-timestamp": "timestamp",
            },
        ),
        (
            MAXWELL_JSON,
            {
                "database": "string",
                "table": "string",
                "primary-key-columns": "array<string>",
                "ingestion-timestamp": "timestamp",
            },
        ),
        (
            OGG_JSON,
            {
                "table": "string",
                "primary-keys": "array<string>",
                "ingestion-timestamp": "timestamp",
                "event-timestamp": "timestamp",
            },
        ),
    ],
    ids=lambda found: getattr(found, "name", ""),
)
def test_the_metadata_are_flinks(found: Format, metadata: dict[str, str]) -> None:
    """Names, order and types are those of Flink 2.1's `ReadableMetadata`."""
    assert list(found.metadata) == list(metadata)
    assert {name: data_type.simpleString() for name, data_type in found.metadata.items()} == metadata


def test_nothing_is_written_with_its_schema() -> None:
    """As in Flink, a table that is written to cannot have `schema-include`."""
    with pytest.raises(
        InvalidOptionError, match=r"'debezium-json.schema-include' has the value 'true'; expected false"
    ):
        DEBEZIUM_JSON.encode(cast("Column", None), StructType(), {"debezium-json.schema-include": True})


@pytest.mark.parametrize("kind", ["schemaless", "with-schema"])
def test_the_recorded_change_stream_has_all_there_is(kind: str) -> None:
    """The fixture has a snapshot, all changes, tombstones, a key that changes, and what is no row."""
    lines = [json.loads(line) for line in (FIXTURES / f"{kind}.json").read_text(encoding="utf-8").splitlines()]
    envelopes = [_payload(line["value"]) for line in lines if line["value"] is not None]
    operations = Counter(envelope.get("op") for envelope in envelopes)
    assert set(operations) == {"r", "c", "u", "d", "m", None}
    assert len(lines) - len(envelopes) == operations["d"]  # a tombstone for each deletion
    of_key = {_payload(line["key"]).get("id"): line["topic"] for line in lines if line["topic"].endswith("customers")}
    assert {5, 50} <= set(of_key)
    assert {"city" in envelope["after"] for envelope in envelopes if envelope.get("op") == "u"} == {False, True}
    assert {line["topic"] for line in lines} == {
        "__debezium-heartbeat.shop",
        "shop.message",
        "shop.public.customers",
        "shop.public.orders",
    }


def _payload(text: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    payload: dict[str, Any] = message.get("payload", message)
    return payload
