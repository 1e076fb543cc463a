"""The native encoder of JSON against Spark's expressions, and both of them in INSERT INTO."""

from __future__ import annotations

import json
from itertools import product
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.native import encoder
from dynamic_kafka.sql import TableEnvironment, sink_rows
from dynamic_kafka.testing import KafkaBroker
from tests.random_rows import random_rows
from tests.spark.tables import Topic, create, create_json, on, records, write
from tests.spark.texts import checked

pytestmark = [pytest.mark.spark, pytest.mark.broker]

JSON = format_named("json")
NAME = '`a "quoted\\" näme 😀`'
MORE = f"r STRUCT<x: DECIMAL(4,0), y: STRING>, i INT, n MAP<STRING, STRUCT<{NAME}: DECIMAL(5,1), l: ARRAY<BINARY>>>"
SCHEMAS = [
    "id BIGINT, user STRING, session STRING, amount INT, x STRING",
    f"a BOOLEAN, b TINYINT, c SMALLINT, {NAME} STRING, d BINARY",
    "dt DATE, t TIMESTAMP_NTZ, l TIMESTAMP",
    "a DECIMAL(10,2), b DECIMAL(38,18), c DECIMAL(38,0), d DECIMAL(9,9), e STRING, f DECIMAL(38,38)",
    "a ARRAY<STRING>, m MAP<STRING, INT>, r STRUCT<x: INT, y: STRING, z: STRUCT<q: DATE>>, l ARRAY<ARRAY<BIGINT>>",
    f"a ARRAY<DECIMAL(6,3)>, m MAP<STRING, DECIMAL(20,10)>, s STRING, {MORE}",
]
OPTIONS = [
    {"timestamp-format.standard": style, "encode.decimal-as-plain-number": plain, "encode.ignore-null-fields": ignore}
    for style, (plain, ignore) in zip(["SQL", "ISO-8601"] * 2, product(["false", "true"], repeat=2), strict=True)
]
UPSERT = {"connector": "upsert-kafka", "key_format": "json", "value_format": "json"}
COUNT = 5000
SEED = 1


@pytest.mark.slow
@pytest.mark.parametrize("ddl", SCHEMAS)
def test_json_is_encoded_as_by_spark(spark: SparkSession, ddl: str) -> None:
    """Byte by byte, whatever the values are, also texts that are not UTF-8."""
    cases = [checked(JSON, ddl, options) for options in OPTIONS]
    schema = cases[0][0]
    given = pa.table({"i": pa.array(range(COUNT), pa.int32()), "given": random_rows(schema, COUNT, SEED)})
    rows = spark.createDataFrame(given).select("i", F.col("given").cast(schema).alias("row"))
    messages = [JSON.encode(F.col("row"), *case).alias(f"m{i}") for i, case in enumerate(cases)]
    truth = rows.select("i", "row", *messages).toArrow().sort_by("i").combine_chunks()
    sent = truth["row"].combine_chunks()
    for i, (_, options) in enumerate(cases):
        encoded, left, _ = encoder(sent.type, json.dumps(JSON.native_encode(schema, options)))(sent, b"")
        expected = truth[f"m{i}"].combine_chunks().cast(pa.binary())
        different = pc.indices_nonzero(pc.not_equal(expected, encoded).fill_null(True)).to_pylist()
        wrong = [j for j in different if expected[j].as_py() != encoded[j].as_py()]
        assert [(sent[j].as_py(), expected[j].as_py(), encoded[j].as_py()) for j in wrong[:3]] == []
        assert left == []
        assert encoded.null_count == sent.null_count < COUNT / 10


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("ddl", ["a FLOAT", "a DOUBLE", "a ARRAY<DOUBLE>", "a INTERVAL YEAR", "`a\n` INT"])
def test_other_types_are_left_to_spark(ddl: str) -> None:
    """Java's texts of floating point numbers depend on its version, for example."""
    schema, options = checked(JSON, ddl, {})
    with pytest.raises(ValueError, match=r"type|name"):
        encoder(arrow_type(schema), json.dumps(JSON.native_encode(schema, options)))


def test_rows_are_encoded_in_the_sink(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSERT INTO writes the same bytes, whether Spark or the sink encodes; the plan shows which it is."""
    key, columns = "k INT, r ROW<x ARRAY<STRING>>", "t TIMESTAMP(3), d DECIMAL(10, 2), s STRING"
    query = (
        "SELECT 1, STRUCT(ARRAY('ä', NULL)), TIMESTAMP_NTZ'2020-01-02 03:04:05.120', 100.00BD, '\"😀' "
        "UNION ALL SELECT NULL, NULL, NULL, NULL, NULL"
    )
    found = {}
    for native in (True, False):
        if not native:
            monkeypatch.setattr(sink_rows, "encoder", Mock(side_effect=ValueError))
        names = topic(cluster_a), topic(cluster_a)
        keyed = on(cluster_a, names[0], key="json", value="json") | {"key.fields": "k;r"}
        create(env, f"append_{native}", f"{key}, {columns}", keyed)
        create_json(
            env, f"upsert_{native}", "i INT, s STRING, PRIMARY KEY (i) NOT ENFORCED", cluster_a, names[1], **UPSERT
        )
        write(env, f"INSERT INTO append_{native} {query}")
        write(
            env,
            f"INSERT INTO upsert_{native} SELECT CAST(id AS INT), 's', IF(id = 1, '-D', '+I') AS row_kind FROM range(3)",
        )
        (plan,) = env.execute_sql(f"EXPLAIN INSERT INTO append_{native} {query}").collect()
        assert ("lambda" in str(plan)) != native  # of the expression for JSON
        found[native] = [sorted((r.key, r.value) for r in records(cluster_a, name)) for name in names]
    assert found[True] == found[False]
    assert len(found[True][0]) == 2
    assert found[True][1][1] == (b'{"i":1}', None)
