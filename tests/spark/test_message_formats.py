"""`value.format` and `key.format` of `format("dynamic-kafka")`: messages as columns, decoded where they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from dynamic_kafka.formats import format_named
from dynamic_kafka.functions import from_kafka, to_kafka
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, records

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ORDER = "STRUCT<id: BIGINT, status: STRING>"
GOOD = [(f"k{i}", json.dumps({"id": i, "status": "paid" if i % 2 else "open"})) for i in range(6)]


def read(
    spark: SparkSession, broker: KafkaBroker, topic: str, schema: str | StructType | None, options: dict[str, str]
) -> DataFrame:
    """A topic as a batch."""
    reader = spark.read.format("dynamic-kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    reader = reader.option("subscribe", topic).options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    """Its rows, in order of their offsets."""
    return [tuple(row) for row in df.orderBy("offset").collect()]


def test_the_wanted_columns_of_a_message(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """`value` has the type of the schema, beside the source's own columns; a message without bytes is null."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [*GOOD[:2], ("k9", None)])
    df = read(spark, cluster_a, name, f"value {ORDER}, offset BIGINT, cluster STRING", {"value.format": "json"})
    assert rows(df.select("value.*", "offset", "cluster")) == [
        (0, "open", 0, "kafka"),
        (1, "paid", 1, "kafka"),
        (None, None, 2, "kafka"),
    ]
    assert df.where("value.status = 'paid' AND offset < 9").count() == 1
    assert df.where("value IS NULL").count() == 1


def test_keys_have_their_own_format(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Each with its own options, which begin with `key.` and `value.`."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [("1|a", "7;x"), ("2|b", "8;y"), (None, "9;z")])
    options = {"key.format": "csv", "key.csv.field-delimiter": "|", "value.format": "csv"}
    schema = "key STRUCT<n: INT, t: STRING>, value STRUCT<n: INT, t: STRING>, offset BIGINT"
    df = read(spark, cluster_a, name, schema, {**options, "value.csv.field-delimiter": ";"})
    assert rows(df.select("key.n", "key.t", "value.n", "value.t", "offset")) == [
        (1, "a", 7, "x", 0),
        (2, "b", 8, "y", 1),
        (None, None, 9, "z", 2),
    ]


def test_raw_is_the_message_itself(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """A text, or a number of a fixed size."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(bytes([0, 0, 0, 5]), "ä"), (None, b"\xff")])
    options = {"key.format": "raw", "value.format": "raw"}
    df = read(spark, cluster_a, name, "key INT, value STRING, offset BIGINT", options)
    assert rows(df.selectExpr("key", "CAST(value AS BINARY)", "offset")) == [(5, "ä".encode(), 0), (None, b"\xff", 1)]


@pytest.mark.parametrize("query", ["offset", "value.id", "count(*)", "value.id + 1"])
def test_a_message_that_cannot_be_read_ends_the_query(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, query: str
) -> None:
    """Whatever the query selects, and whatever its conditions are; with the message's place, and how it begins."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [*GOOD[:3], (None, "{nope"), *GOOD[3:]])
    df = read(spark, cluster_a, name, f"value {ORDER}, offset BIGINT", {"value.format": "json"})
    text = f"Cluster 'kafka', topic '{name}', partition 0, offset 3: the value cannot be read as json: .*it begins with"
    with pytest.raises(PySparkException, match=text) as caught:
        df.where("value.status = 'paid'").selectExpr(query).collect()
    assert '"{nope"' in str(caught.value)
    assert "'format.on-error'" in str(caught.value)


def test_the_reason_is_that_of_from_kafka(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """The same words for texts, for quotes and control characters, and for bytes that are no text."""
    name = topic(cluster_a, partitions=4)
    broken = [b'{"id": "x\t\xc3\xa4"}', b"\xff\xfe" * 40, "{ä".encode() * 30, b'"\\\x00']
    produce(cluster_a.bootstrap_servers, name, [(None, message) for message in broken])
    whole = read(spark, cluster_a, name, None, {})
    for row in whole.collect():
        with pytest.raises(PySparkException) as by_function:
            spark.createDataFrame([(row["value"],)], "v BINARY").select(from_kafka("v", "json", "id BIGINT")).collect()
        _, reason = str(by_function.value).split("A message ", 1)
        part = {"assign": json.dumps({name: [row["partition"]]})}
        place = json.dumps({name: {str(row["partition"]): row["offset"]}})
        options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "startingOffsets": place, **part}
        reader = spark.read.format("dynamic-kafka").options(**options).option("value.format", "json")
        with pytest.raises(PySparkException) as by_source:
            reader.schema("value STRUCT<id: BIGINT>").load().collect()
        assert f"the value {reason.splitlines()[0].split(' SQLSTATE')[0]}" in str(by_source.value)


def test_skipped_messages(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Those that cannot be read are left out with `skip`, and those that the format skips are no rows either."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [GOOD[0], (None, "{"), ("k", None), GOOD[1]])
    for options in ({"format.on-error": "skip"}, {"value.json.ignore-parse-errors": "true"}):
        df = read(spark, cluster_a, name, f"value {ORDER}, offset BIGINT", {"value.format": "json", **options})
        assert rows(df.select("value.id", "offset")) == [(0, 0), (None, 2), (1, 3)]


@pytest.mark.parametrize("keys", [False, True])
def test_dead_letters(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, *, keys: bool) -> None:
    """Messages that cannot be read are written unchanged, with the reason and their place, to another topic."""
    name, dead = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [GOOD[0], ("k", "{"), GOOD[1]])
    options = {"value.format": "json", "format.on-error": "dead-letter", "format.dead-letter.topic": dead}
    schema = f"value {ORDER}, offset BIGINT"
    if keys:  # `k` has four bytes less than an INT
        options, schema = {**options, "key.format": "raw"}, f"key INT, {schema}"
    df = read(spark, cluster_a, name, schema, options)
    assert rows(df.select("value.id", "offset")) == ([] if keys else [(0, 0), (1, 2)])
    letters = records(cluster_a, dead)
    assert sorted(letter.value or b"" for letter in letters) == sorted(
        [GOOD[0][1].encode(), b"{", GOOD[1][1].encode()] if keys else [b"{"]
    )
    headers = dict(letters[0].headers or [])
    assert headers["dynamic-kafka.topic"] == name.encode()
    assert b"cannot be read as" in (headers["dynamic-kafka.error"] or b"")


def test_changes_are_an_array(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Of a changelog's message: each row with its kind, and with the metadata if the type has them."""
    name = topic(cluster_a)
    source = {"ts_ms": 5, "db": "d", "table": "t"}
    update = {"op": "u", "before": {"id": 1}, "after": {"id": 2}, "source": source, "ts_ms": 9}
    insert = {"op": "c", "before": None, "after": {"id": 3}, "source": source, "ts_ms": 9}
    produce(cluster_a.bootstrap_servers, name, [(None, json.dumps(update)), ("k", None), (None, json.dumps(insert))])
    change = "row_kind: STRING, row: STRUCT<id: BIGINT>"
    options = {"value.format": "debezium-json"}
    df = read(spark, cluster_a, name, f"value ARRAY<STRUCT<{change}>>, offset BIGINT", options)
    changes = df.select(F.explode("value").alias("change"), "offset")
    found = sorted(rows(changes.select("offset", "change.row_kind", "change.row.id")))
    assert found == [(0, "+U", 2), (0, "-U", 1), (2, "+I", 3)]
    wide = f"value ARRAY<STRUCT<{change}, metadata: STRUCT<`source.table`: STRING>>>, offset BIGINT"
    df = read(spark, cluster_a, name, wide, options).select(F.explode("value").alias("change"), "offset")
    assert rows(df.selectExpr("change.metadata.`source.table`", "change.row.id", "offset").where("id > 2")) == [
        ("t", 3, 2)
    ]


ROWS = {
    "n": "hash(id) AS n",
    "id": "xxhash64(id) AS id",
    "name": "IF(id % 7 = 0, null, concat('a \\\"b, ', id)) AS name",
    "at": "timestamp_millis(id * 1234567890) AS at",
    "price": "CAST(id / 7 AS DECIMAL(10, 2)) AS price",
    "list": "IF(id % 5 = 0, null, array(int(id), null)) AS list",
    "part": "IF(id % 6 = 0, null, struct(id / 3D AS x, date_from_unix_date(id * 100) AS d)) AS part",
}
FLAT = "id BIGINT | name STRING | at TIMESTAMP | price DECIMAL(10, 2)"
FIELDS = f"{FLAT} | list ARRAY<INT> | part STRUCT<x: DOUBLE, d: DATE>"


@pytest.mark.parametrize("name", ["json", "avro", "csv", "raw", "debezium-json", "canal-json"])
def test_the_rows_are_those_of_from_kafka(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, name: str) -> None:
    """Of random rows, whole and with damaged bytes: the same rows, and the same messages that cannot be read."""
    form, random = format_named(name), Random(7)
    fields = {"raw": "n INT", "csv": FLAT}.get(name, FIELDS)
    kind = ["element_at(array('+I', '-U', '+U', '-D'), int(id % 4) + 1) AS row_kind"] if form.changelog else []
    data = spark.range(60).selectExpr(*(ROWS[field.split()[0]] for field in fields.split(" | ")), *kind)
    df = data.select(F.struct("*").alias("row"))
    fields = fields.replace(" |", ",")
    encoded = df.select(to_kafka("row", name, fields).alias("m")).collect()
    messages = [None if row["m"] is None else bytes(row["m"]) for row in encoded]  # Spark 4.0 returns bytearrays
    damaged = [_damaged(message, random) for message in messages if message]
    where = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, where, [(None, message) for message in [*messages, *damaged, None, b""]])
    options = {"value.format": name, "format.on-error": "skip"}
    found = from_kafka("value", name, fields, {"format.on-error": "skip"})
    expected = (
        read(spark, cluster_a, where, None, {})
        .select("offset", found.alias("value"), "value")
        .toDF("offset", "value", "bytes")
    )
    expected = expected.where("value IS NOT NULL OR bytes IS NULL").drop("bytes")
    if name == "raw":
        expected = expected.where("value.n IS NOT NULL OR offset = 120").selectExpr("offset", "value.n AS value")
    actual = read(spark, cluster_a, where, expected.schema, options)
    assert rows(actual) == rows(expected)
    assert 60 <= actual.count() < 122


def _damaged(message: bytes, random: Random) -> bytes:
    """A message of which a byte is gone, or another one."""
    at = random.randrange(len(message))
    return message[:at] + random.choice([b"", random.randbytes(1)]) + message[at + 1 :]


def test_a_stream(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path) -> None:
    """Goes on from its checkpoint, as one of bytes does."""
    name = topic(cluster_a, partitions=2)

    def run() -> Iterable[int]:
        reader = spark.readStream.format("dynamic-kafka").option("kafka.bootstrap.servers", cluster_a.bootstrap_servers)
        reader = reader.option("subscribe", name).option("startingOffsets", "earliest").option("value.format", "json")
        found = reader.schema(f"value {ORDER}").load().select("value.id")
        out = found.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert out.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(60)
        return sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect())

    produce(cluster_a.bootstrap_servers, name, GOOD[:4])
    assert run() == [0, 1, 2, 3]
    produce(cluster_a.bootstrap_servers, name, GOOD[4:])
    assert run() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {"value.format": "json"}, r"give the type of the column 'value', as in \.schema\("),
        ("offset BIGINT", {"value.format": "json"}, "'value.format' needs the column 'value' in the schema"),
        ("value STRING", {"value.format": "json"}, "Column 'value' has the type string.*expected a STRUCT"),
        (f"value {ORDER}", {}, "option 'value.format'"),
        (f"value {ORDER}", {"value.format": "jsn"}, "did you mean 'json'"),
        (f"value {ORDER}", {"value.format": "json", "json.ignore-parse-errors": "true"}, "value.json.ignore-parse"),
        (f"value {ORDER}", {"value.format": "json", "value.json.ignore": "true"}, "Unknown option"),
        (f"value {ORDER}", {"value.format": "json", "format.on-error": "dead-letter"}, "'format.dead-letter.topic'"),
        (f"value {ORDER}", {"value.format": "json", "format.on-error": "ignore"}, "one of fail, skip, dead-letter"),
        ("offset BIGINT", {"format.on-error": "skip"}, "'format.on-error' needs 'value.format' or 'key.format'"),
        ("value ARRAY<INT>", {"value.format": "debezium-json"}, "expected an ARRAY of STRUCT<row_kind"),
        ("value STRUCT<id: BIGINT, id: BIGINT>", {"value.format": "json"}, "each field once"),
        (
            f"value {ORDER}",
            {"value.format": "json", "format.on-error": "dead-letter", "format.dead-letter.topic": "t"},
            "the topic that is read",
        ),
        (
            f"value {ORDER}",
            {
                "value.format": "json",
                "format.on-error": "dead-letter",
                "format.dead-letter.topic": "dead",
                "format.dead-letter.properties.security.protocol": "nope",
            },
            r"'format.dead-letter.properties.\*' are wrong: Option 'security.protocol'",
        ),
        (f"value {ORDER}", {"value.format": "avro-confluent"}, "'value.avro-confluent.url'"),
        (f"key {ORDER}", {"key.format": "debezium-json"}, "a key needs a format of rows"),
        ("value STRUCT<id: VARIANT>", {"value.format": "json"}, "variant"),
        ("value STRUCT<i: INTERVAL YEAR TO MONTH>", {"value.format": "json"}, "no interval of months"),
    ],
)
def test_wrong_options(spark: SparkSession, schema: str | None, options: dict[str, str], message: str) -> None:
    """Name the option or the column, and what is expected."""
    where = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    reader = spark.read.format("dynamic-kafka").options(**where, **options)
    with pytest.raises(Exception, match=message):
        (reader if schema is None else reader.schema(schema)).load().collect()
