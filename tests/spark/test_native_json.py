"""The native decoder of JSON against Spark's expressions, for random messages in common, odd and damaged forms."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import format_named
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.native import DECODED, decode, differences
from tests.spark.json_messages import SCHEMAS, messages
from tests.spark.tables import Topic, create, each_decoder, on, rows
from tests.spark.texts import checked, frame, session

pytestmark = [pytest.mark.spark, pytest.mark.broker]

JSON = format_named("json")
OPTIONS = ["", "fail-on-missing-field", "ignore-parse-errors"]
COUNT = 5000
SEED = 1


def test_a_json_table_is_decoded_where_it_is_read(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same rows and errors, whoever decodes; the plan says which it is."""
    values = [b'{"id":1,"r":{"x":["a"]}}', b'{"id":"2","r":null}', None, b"", b'{"id":"x"}', b'{"r":{"x":[]},"id":3}']
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(b"k", value) for value in values], partition=0)
    columns = "id INT NOT NULL, r ROW<x ARRAY<STRING NOT NULL>>, p INT METADATA FROM 'partition'"
    for reader in each_decoder(monkeypatch):
        create(env, reader, columns, on(cluster_a, name) | {"format.on-error": "skip"})
        create(env, f"strict_{reader}", columns, on(cluster_a, name))
        found = rows(env, f"SELECT id, r.x, p FROM {reader}")
        assert found == [(1, ["a"], 0), (2, None, 0), (3, [], 0)]
        with pytest.raises(PySparkException, match="offset 4: the value cannot be read as json"):
            rows(env, f"SELECT id FROM strict_{reader}")
        plan = env.sql_query(f"SELECT id FROM {reader}")._jdf.queryExecution().analyzed().toString()
        assert ("value_row" in plan) == (reader == "native")


@pytest.mark.slow
@pytest.mark.parametrize("ddl", SCHEMAS)
def test_json_is_decoded_as_by_spark(spark: SparkSession, ddl: str) -> None:
    """Whatever the message is; and most whole messages are decoded."""
    given = [*messages(ddl, COUNT, SEED), None, b""]
    cases = [checked(JSON, ddl, {option: "true"} if option else {}) for option in OPTIONS]
    decoders = [JSON.decode(F.col("value"), *case).alias(f"d{i}") for i, case in enumerate(cases)]
    with session(spark, timeType_enabled="true"):  # to collect such columns
        answers = frame(spark, given).select("i", *decoders).toArrow().sort_by("i").combine_chunks()
    values = pa.array(given, pa.binary())
    for i, (schema, options) in enumerate(cases):
        spec = {"format": "json", "schema": json.loads(schema.json()), "options": options}
        decoded, outcomes = decode(spec, values)
        assert differences(answers[f"d{i}"].combine_chunks(), decoded, outcomes, values) == []
        assert i or outcomes.to_pylist().count(DECODED) > COUNT / 10
