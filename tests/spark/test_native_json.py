"""The native decoder of JSON against Spark's expressions, for random messages in common, odd and damaged forms."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import format_named
from tests.native import DECODED, decode, differences
from tests.spark.json_messages import SCHEMAS, messages
from tests.spark.texts import checked, frame, session

pytestmark = pytest.mark.spark

JSON = format_named("json")
OPTIONS = ["", "fail-on-missing-field", "ignore-parse-errors"]
COUNT = 5000
SEED = 1


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
