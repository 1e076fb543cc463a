"""`from_kafka` and `to_kafka` with the formats of texts: what is written is read, and no bytes lose or add a row."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.functions import from_kafka, to_kafka

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, name STRING, price DECIMAL(10, 2), at TIMESTAMP_NTZ, seen TIMESTAMP, day DATE, ok BOOLEAN, n INT"
NOON = datetime(2020, 1, 1, 12, 0, 0, 123000)  # noqa: DTZ001  of no zone, as the column
ROWS: list[tuple[Any, ...]] = [
    (1, "a", Decimal("1.50"), NOON, datetime(2020, 1, 1, tzinfo=UTC), date(2020, 1, 2), True, 1),
    (2, 'quotes " and , and \\ and ä', None, None, None, None, False, -1),
    (None, None, None, None, None, None, None, None),
]
SHORT = "id BIGINT, name STRING"


@pytest.mark.parametrize("name", ["json", "csv"])
def test_what_is_written_is_read(spark: SparkSession, name: str) -> None:
    """All types, quotes, nulls. In CSV a null without a literal of its own is an empty text, which is no number."""
    options = {"csv.null-literal": "n/a"} if name == "csv" else {}
    df = spark.createDataFrame(ROWS, COLUMNS).selectExpr("struct(*) AS r")
    back = df.select(from_kafka(to_kafka("r", name, COLUMNS, options), name, COLUMNS, options).alias("r")).select("r.*")
    assert sorted(map(str, back.collect())) == sorted(map(str, df.select("r.*").collect()))


@pytest.mark.parametrize(
    ("name", "broken"), [("json", b'{"id": "no"}'), ("csv", b"no,x"), ("json", b'{"id"'), ("csv", b"1")]
)
def test_a_broken_message_is_an_error_that_shows_it(spark: SparkSession, name: str, broken: bytes) -> None:
    """Also where only another column is taken."""
    df = spark.createDataFrame([(broken,)], "value BINARY")
    with pytest.raises(PySparkException, match=f"A message cannot be read as {name}") as caught:
        df.select(from_kafka("value", name, SHORT)["name"]).collect()
    assert broken.decode()[:2] in str(caught.value)


def test_fields_are_written_by_their_names(spark: SparkSession) -> None:
    """Whatever their order is, in structs inside as well; a field that is not there is Spark's error."""
    df = spark.sql("SELECT struct('B' AS b, 'A' AS a, array(struct(2 AS y, 1 AS x)) AS n) AS r")
    written = df.select(to_kafka("r", "json", "a STRING, b STRING, n ARRAY<STRUCT<x: INT, y: INT>>").alias("v"))
    assert written.first()["v"] == b'{"a":"A","b":"B","n":[{"x":1,"y":2}]}'  # type: ignore[index]
    with pytest.raises(PySparkException, match="FIELD_NOT_FOUND"):
        df.select(to_kafka("r", "json", "a STRING, c STRING"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("name", ["json", "csv", "debezium-json", "avro"])
def test_what_a_python_function_returns_is_decoded(spark: SparkSession, name: str) -> None:
    """For instance a message that is decrypted first."""
    same = F.udf(bytes, "binary", useArrow=False)
    messages = {"json": b'{"id":3}', "csv": b"3", "debezium-json": b'{"after":{"id":3},"op":"c"}', "avro": b"\x02\x06"}
    df = spark.createDataFrame([(messages[name],)], "value BINARY")
    row = df.select(from_kafka(same("value"), name, "id INT").alias("r")).first()
    assert row is not None
    assert (row["r"][0]["row"] if name == "debezium-json" else row["r"])["id"] == 3


def test_changes_come_with_their_metadata(spark: SparkSession) -> None:
    """Those of the format in SQL, beside each row."""
    message = b'{"before":null,"after":{"id":1},"op":"c","source":{"table":"people","ts_ms":5}}'
    df = spark.createDataFrame([(message,)], "value BINARY")
    changes = df.selectExpr("*").select(F.explode(from_kafka("value", "debezium-json", "id INT")).alias("c"))
    row = changes.select("c.row_kind", "c.row.id", "c.metadata.`source.table`").first()
    assert row is not None
    assert tuple(row) == ("+I", 1, "people")


def test_options_may_be_truths_and_numbers(spark: SparkSession) -> None:
    """As Spark's `option` takes them."""
    df = spark.createDataFrame([(b"{",)], "value BINARY")
    row = df.select(from_kafka("value", "json", "id INT", {"json.ignore-parse-errors": True}).alias("r")).first()
    assert row is not None
    assert row["r"] is None
