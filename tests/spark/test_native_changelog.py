"""The native decoder of the changelog formats against Spark's expressions, for random messages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from dynamic_kafka.formats import ERROR, METADATA, ROWS, Format, format_named
from dynamic_kafka.formats.expressions import decoded_struct
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.native import DECODED, decode, differences
from tests.spark.changelog_messages import FORMATS, SCHEMAS, messages
from tests.spark.tables import DEBEZIUM, Topic, create, each_decoder, on, rows
from tests.spark.test_formats_changelog import SAMPLES, TABLES
from tests.spark.texts import Message, checked, frame

pytestmark = [pytest.mark.spark, pytest.mark.broker]

COUNT = 3000
SEED = 1


def test_a_changelog_table_is_decoded_where_it_is_read(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same rows, metadata and errors, whoever decodes: all that a real Debezium wrote of a table, and odd ones."""
    lines = map(json.loads, (DEBEZIUM / "schemaless.json").read_text(encoding="utf-8").splitlines())
    values = [line["value"] for line in lines if "customers" in line["topic"]]
    values += ['{"op":"c","after":{"id":"77"},"ts_ms":" 1 "}', '{"op":"t"}']
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, value and value.encode()) for value in values], partition=0)
    columns = "id INT, name STRING, balance DECIMAL(10, 2), joined TIMESTAMP_LTZ(3), email STRING, "
    columns += "db STRING METADATA FROM 'value.source.database' VIRTUAL, p INT METADATA FROM 'partition' VIRTUAL"
    found, errors = [], []
    for reader in each_decoder(monkeypatch):
        options = on(cluster_a, name, format="debezium-json")
        options |= {"debezium-json.timestamp-format.standard": "ISO-8601"}
        create(env, reader, columns, options | {"format.on-error": "skip"})
        create(env, f"strict_{reader}", columns, options)
        found.append(rows(env, f"SELECT * FROM {reader}"))
        with pytest.raises(PySparkException) as error:
            rows(env, f"SELECT id FROM strict_{reader}")
        errors.append(
            re.findall('offset [0-9]+: the value cannot be read as debezium-json: Unknown "op"', str(error.value))
        )
        plan = env.sql_query(f"SELECT id FROM {reader}")._jdf.queryExecution().analyzed().toString()
        assert ("value_row" in plan) == (reader == "native")
    assert found[0] == found[1]
    assert {row[-3] for row in found[0]} == {"postgres", None}
    assert errors[0]
    assert errors[0] == errors[1]


@pytest.mark.slow
def test_what_flink_has_answered_is_decoded_in_the_same_way(spark: SparkSession) -> None:
    """The messages of `test_formats_changelog`, which compares Spark's answers with Flink's; no whole one is left."""
    ddl = TABLES["customers"]
    for name, given in SAMPLES.items():
        found = format_named(name)
        schema, options = checked(found, ddl, {})
        (truth,) = _answers(spark, found, given, [(schema, options)])
        decoded, outcomes = decode(_spec(found, schema, options, [*found.metadata]), pa.array(given, pa.binary()))
        assert differences(truth, decoded, outcomes, pa.array(given, pa.binary())) == []
        assert outcomes.to_pylist() == [DECODED] * len(given)


@pytest.mark.slow
@pytest.mark.parametrize("ddl", SCHEMAS)
@pytest.mark.parametrize("name", FORMATS)
def test_changes_are_decoded_as_by_spark(spark: SparkSession, name: str, ddl: str) -> None:
    """Whatever the message is, and whether or not the metadata are wanted; and most whole messages are decoded."""
    if name.endswith("schema"):
        ddl = ddl.replace("DECIMAL(10,2)", "BIGINT")  # the kernel leaves decimals of such messages to Spark
    found = format_named(name.partition(" ")[0])
    options = {"schema-include": "true"} if name.endswith("schema") else {}
    more = [{"database.include": "inventory"}] if name == "canal-json" else []
    given = [*messages(name, ddl, COUNT, SEED), None, b""]
    cases = [checked(found, ddl, options | other) for other in ({}, {"ignore-parse-errors": "true"}, *more)]
    values = pa.array(given, pa.binary())
    for i, (case, truth) in enumerate(zip(cases, _answers(spark, found, given, cases), strict=True)):
        for wanted in [[*found.metadata], []]:
            decoded, outcomes = decode(_spec(found, *case, wanted), values)
            expected = truth if wanted else _without_metadata(truth, decoded)
            assert differences(expected, decoded, outcomes, values) == []
            assert i or outcomes.to_pylist().count(DECODED) > COUNT / 10


def _answers(
    spark: SparkSession, found: Format, given: Sequence[Message], cases: Sequence[tuple[StructType, dict[str, Any]]]
) -> list[pa.StructArray]:
    """What Spark's expressions decode the messages to."""
    type_ = decoded_struct(
        found, cases[0][0]
    )  # in Arrow, Spark's own has parts that cannot be null where the struct is
    decoders = [found.decode(F.col("value"), *case).cast(type_).alias(f"d{i}") for i, case in enumerate(cases)]
    answers = frame(spark, given).select("i", *decoders).toArrow().sort_by("i").combine_chunks()
    return [answers[f"d{i}"].combine_chunks() for i in range(len(cases))]


def _spec(found: Format, schema: StructType, options: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    return {**(found.native(schema, options) or {}), "schema": json.loads(schema.json()), "wanted": wanted}


def _without_metadata(truth: pa.StructArray, decoded: pa.StructArray) -> pa.StructArray:
    """The truth with metadata as they are decoded: those that no column needs are null."""
    metadata = pc.struct_field(decoded, METADATA)
    assert all(metadata.field(i).null_count == len(metadata) for i in range(metadata.type.num_fields))
    fields = [pc.struct_field(truth, ROWS), metadata, pc.struct_field(truth, ERROR)]
    return pa.StructArray.from_arrays(fields, names=[ROWS, METADATA, ERROR], mask=truth.is_null())
