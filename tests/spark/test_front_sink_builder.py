"""What the sink's record serializer makes of rows; writing them is tested with the data source."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka import (
    ArrowSerializer,
    InMemoryMetadataService,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaStream,
    SimpleStringSchema,
)
from dynamic_kafka.builders.serializers import RowExpression
from dynamic_kafka.spark.datasource import activate
from tests.versions import needs

pytestmark = pytest.mark.spark


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Two rows, of which one has nothing but an id."""
    data = [(1, "k", "ä", "eu"), (2, None, None, None)]
    return spark.createDataFrame(data, "id int, key string, value string, region string")


def values(rows: DataFrame, expression: RowExpression) -> list[Any]:
    """The values that an expression makes."""
    built = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(expression).build()
    return [row["value"] for row in built(rows).collect()]


def test_a_stream_that_a_thread_starts(spark: SparkSession, tmp_path: Path) -> None:
    """Spark finds a data source in Python in the thread's session only; the builder sets it, and so does `activate`."""
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    serializer = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema("value").build()
    sink = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1").set_record_serializer(serializer).build()

    def start(number: int) -> None:
        if number:
            activate(spark)
            writer = rows.writeStream.format("dynamic-kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
            writer = writer.option("topic", "t")
        else:
            writer = sink.write_stream(rows)
        writer.option("checkpointLocation", str(tmp_path / str(number))).start().stop()

    for number in range(2):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(start, number).result()


def test_the_columns_of_the_sink_and_no_other(rows: DataFrame) -> None:
    """Only what was set; a fixed topic is an option, not a column."""
    builder = KafkaRecordSerializationSchema.builder().set_value_serialization_schema("value")
    assert builder.build()(rows).columns == ["value"]
    built = (
        builder.set_key_serialization_schema(SimpleStringSchema())
        .set_topic_selector(lambda row: F.concat(F.lit("orders-"), row["region"]))
        .set_header_provider("map_entries(map('a', encode('b', 'UTF-8')))")
        .set_timestamp_selector(F.timestamp_seconds("id"))
        .set_cluster_selector("region")
        .build()
    )
    assert built(rows).dtypes == [
        ("key", "binary"),
        ("value", "string"),
        ("topic", "string"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("timestamp", "timestamp"),
        ("cluster", "string"),
    ]
    assert [row["topic"] for row in built(rows).collect()] == ["orders-eu", None]


def test_columns_and_sql(rows: DataFrame) -> None:
    """A column, a column's name, an expression."""
    assert values(rows, F.col("region")) == ["eu", None]
    assert values(rows, "region") == ["eu", None]
    assert values(rows, "CAST(id + 1 AS STRING)") == ["2", "3"]


def test_functions_of_the_row(rows: DataFrame) -> None:
    """The row is a struct of all columns."""
    assert values(rows, F.to_json) == ['{"id":1,"key":"k","value":"ä","region":"eu"}', '{"id":2}']
    assert values(rows, lambda row: row["id"].cast("string")) == ["1", "2"]


def test_strings_in_a_charset(rows: DataFrame) -> None:
    """The column of the same name, and a null stays one: a tombstone."""
    assert values(rows, SimpleStringSchema()) == [bytearray("ä".encode()), None]
    assert values(rows, SimpleStringSchema("UTF-16LE")) == [bytearray("ä".encode("utf-16-le")), None]


@needs("ArrowSerializer")
def test_python_functions_over_arrow(rows: DataFrame) -> None:
    """They see a struct array."""

    def text(batch: pa.StructArray) -> pa.Array:
        return pc.utf8_upper(batch.field("region"))

    assert values(rows, ArrowSerializer(text, "string")) == ["EU", None]


def test_a_sink_is_registered_once_in_each_session(spark: SparkSession, rows: DataFrame) -> None:
    """A session's copy, as a streaming query has one, takes the data source along; a new session does not."""
    serializer = KafkaRecordSerializationSchema.builder().set_value_serialization_schema("value").build()
    service = InMemoryMetadataService()
    builder = KafkaSink.builder().set_kafka_metadata_service(service).set_stream_id("s")
    sink = builder.set_record_serializer(serializer).build()

    def knows(session: SparkSession, name: str) -> bool:
        return bool(session._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))

    name = sink._registered(rows)
    assert sink._registered(rows) == name
    assert knows(spark, name)
    copy = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    assert sink._registered(copy.range(1)) == name
    assert knows(copy, name)
    other = spark.newSession()
    assert not knows(other, name)
    assert knows(other, sink._registered(other.range(1)))
    service.set_streams([KafkaStream("s", {})])  # Spark has pickled it as it was
    assert sink._registered(rows) != name
