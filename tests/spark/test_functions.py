"""`from_kafka` and `to_kafka` with the formats of texts: what is written is read, and no bytes lose or add a row."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import format_named
from dynamic_kafka.functions import from_kafka, to_kafka
from tests.spark.texts import examples, frame

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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["json", "csv"])
def test_damaged_bytes_never_crash_and_keep_their_place(spark: SparkSession, name: str) -> None:
    """One result for each message, whatever it is, between messages that are read."""
    fine = b'{"id": 7, "name": "x"}' if name == "json" else b"7,x"
    some = examples(st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode), each=10)
    messages = [message for damaged in some for message in (fine, damaged)]
    result = from_kafka("value", name, SHORT, {"format.on-error": "skip"})
    rows = frame(spark, messages).select("i", result.alias("r")).orderBy("i").collect()
    assert len(rows) == len(messages)
    assert {tuple(row["r"]) for row in rows[::2]} == {(7, "x")}


@pytest.mark.parametrize(
    ("name", "broken"), [("json", b'{"id": "no"}'), ("csv", b"no,x"), ("json", b'{"id"'), ("csv", b"1")]
)
def test_a_broken_message_is_an_error_that_shows_it(spark: SparkSession, name: str, broken: bytes) -> None:
    """Also where only another column is taken."""
    df = spark.createDataFrame([(broken,)], "value BINARY")
    with pytest.raises(PySparkException, match=f"A message cannot be read as {name}") as caught:
        df.select(from_kafka("value", name, SHORT)["name"]).collect()
    assert broken.decode()[:2] in str(caught.value)


def test_missing_fields(spark: SparkSession) -> None:
    """Null by default; an error with `json.fail-on-missing-field`, which a null is not."""
    df = spark.createDataFrame([(b'{"id": 1}',), (b'{"id": 2, "name": null}',)], "value BINARY")
    assert [r[0]["name"] for r in df.select(from_kafka("value", "json", SHORT)).collect()] == [None, None]
    options = {"json.fail-on-missing-field": "true", "format.on-error": "skip"}
    first, second = df.select(from_kafka("value", "json", SHORT, options)).collect()
    assert first[0] is None
    assert tuple(second[0]) == (2, None)


def test_timestamps_do_not_depend_on_the_session(spark: SparkSession) -> None:
    """An instant is written in UTC with `Z`, and read so; SQL and ISO-8601."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        df = spark.sql("SELECT struct(timestamp_millis(1577836800123) AS t) AS r")
        for style, text in (("SQL", "2020-01-01 00:00:00.123Z"), ("ISO-8601", "2020-01-01T00:00:00.123Z")):
            options = {"json.timestamp-format.standard": style}
            written = df.select(to_kafka("r", "json", "t TIMESTAMP", options).alias("v"))
            assert written.first()["v"] == f'{{"t":"{text}"}}'.encode()  # type: ignore[index]
            read = written.select(from_kafka("v", "json", "t TIMESTAMP", options)["t"].alias("t"))
            assert read.selectExpr("unix_millis(t)").first()[0] == 1577836800123  # type: ignore[index]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_ignoring_parse_errors(spark: SparkSession) -> None:
    """A field that cannot be read is null; a message that is no object, or a line of another length, is no row."""
    for name, messages in (
        ("json", [b'{"id": "no", "name": "x"}', b"[1", b'{"id": 1, "name": "y"}']),
        ("csv", [b"no,x", b"1,2,3", b"1,y"]),
    ):
        df = spark.createDataFrame([(m,) for m in messages], "value BINARY")
        decoded = df.select(
            from_kafka("value", name, SHORT, {f"{name}.ignore-parse-errors": "true"}).alias("r")
        ).collect()
        assert [row["r"] and tuple(row["r"]) for row in decoded] == [(None, "x"), None, (1, "y")]


def test_options_that_do_not_go_together() -> None:
    """As Flink refuses them."""
    options = {"json.ignore-parse-errors": True, "json.fail-on-missing-field": True}
    from pyspark.sql.types import LongType, StructField, StructType

    with pytest.raises(ConfigurationError, match=r"json\.fail-on-missing-field"):
        format_named("json").check(StructType([StructField("a", LongType())]), options)


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
