"""The formats `avro` and `avro-confluent` on Spark's workers, whatever the session is set to."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from dynamic_kafka.formats import ERROR, schema_registry, schema_registry_settings
from dynamic_kafka.formats.avro.confluent import AVRO_CONFLUENT
from dynamic_kafka.formats.avro.format import AVRO
from dynamic_kafka.formats.changelog.avro import DEBEZIUM_AVRO_CONFLUENT
from dynamic_kafka.formats.expressions import nullable
from dynamic_kafka.formats.json.confluent import JSON_SCHEMA_CONFLUENT
from dynamic_kafka.formats.schema_ids import header_values
from dynamic_kafka.functions import from_kafka, to_kafka
from dynamic_kafka.rows import COLUMNS
from dynamic_kafka.testing import KafkaBroker, produce
from tests.schema_registry import SchemaRegistry
from tests.spark.tables import Topic
from tests.spark.texts import decode, encode, struct
from tests.versions import needs

pytestmark = pytest.mark.spark

DDL = (
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT NOT NULL, f FLOAT, d DOUBLE, s STRING, x BINARY, "
    "dec DECIMAL(20, 3), day DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ, t TIME(3), a ARRAY<INT>, m MAP<STRING, BIGINT>, "
    "r STRUCT<p: BIGINT, q: ARRAY<STRUCT<z: STRING>>>"
)
ROW: dict[str, Any] = {
    "b": True,
    "i8": -8,
    "i16": 16,
    "i32": -32,
    "i64": 2**60,
    "f": 1.5,
    "d": -2.25,
    "s": "grüße",
    "x": bytearray(b"\x00\xff"),
    "dec": Decimal("-12345.678"),
    "day": dt.date(1969, 7, 20),
    "ts": dt.datetime(2024, 3, 31, 2, 30, 0, 123000),  # noqa: DTZ001  (as Spark gives it)
    "ntz": dt.datetime(1960, 1, 1, 0, 0, 0, 7000),  # noqa: DTZ001
    "t": dt.time(23, 59, 59, 999000),
    "a": [1, None, 3],
    "m": {"k": 1, "n": None},
    "r": Row(p=1, q=[Row(z="x"), Row(z=None), None]),
}


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Any]:
    """Sets the session's configuration for one test."""
    before: dict[str, str | None] = {}

    def set_conf(key: str, value: str) -> None:
        before[key] = spark.conf.get(key, None)
        spark.conf.set(key, value)

    yield set_conf
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@needs("TIME")
@pytest.mark.parametrize("options", [{}, {"avro.encoding": "json"}, {"avro.timestamp_mapping.legacy": False}])
def test_every_type_comes_back(spark: SparkSession, conf: Any, options: dict[str, Any]) -> None:
    """Values, nulls, a null row as a null message, in either encoding and mapping."""
    conf("spark.sql.timeType.enabled", "true")  # as Spark wants it for a TIME(3)
    schema = struct(DDL)
    nulls = dict.fromkeys(ROW) | {"i64": 1}
    columns = StructType([StructField("n", LongType()), StructField("r", schema)])
    rows = spark.createDataFrame([(1, ROW), (2, nulls), (3, None)], columns)
    messages = rows.select("n", encode(AVRO, F.col("r"), schema, options).alias("v"))
    found: dict[int, Any] = dict(messages.select("n", decode(AVRO, F.col("v"), schema, options)).collect())
    assert found[1].asDict() == ROW | {ERROR: None}
    assert found[2].asDict() == nulls | {ERROR: None}
    assert found[3] is None


def test_the_result_has_the_schemas_types_and_all_columns_may_be_null(spark: SparkSession) -> None:
    """As of all formats, also within a column; a message that cannot be read has null in all of them."""
    schema = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("a", ArrayType(StringType(), containsNull=False)),
            StructField("m", MapType(StringType(), LongType(), valueContainsNull=False), nullable=False),
        ]
    )
    frame = spark.createDataFrame([(bytearray(b"\x02"),)], "v BINARY")
    decoded = frame.select(decode(AVRO, F.col("v"), schema, {}).alias("r")).select("r.*")
    assert decoded.schema == StructType([*nullable(schema).fields, StructField(ERROR, StringType())])
    assert decoded.collect() == [(None, None, None, "it ends within a")]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
@pytest.mark.parametrize("large", ["false", "true"])
def test_the_sessions_time_zone_and_arrow_types_change_nothing(
    spark: SparkSession, conf: Any, zone: str, large: str
) -> None:
    """A TIMESTAMP is the same instant, and bytes are the same bytes."""
    conf("spark.sql.session.timeZone", zone)
    conf("spark.sql.execution.arrow.useLargeVarTypes", large)
    schema = struct("ts TIMESTAMP, ntz TIMESTAMP_NTZ, s STRING, x BINARY, a ARRAY<STRING>")
    frame = spark.sql(
        "SELECT struct(timestamp_millis(1700000000123) ts, TIMESTAMP_NTZ'2020-01-01 00:00:00' ntz, 'é' s, X'00ff' x, "
        "array('p', 'q') a) r"
    )
    messages = frame.select(encode(AVRO, F.col("r"), schema, {}).alias("v"))
    (message,) = messages.collect()
    encoded = io.BytesIO()
    for kind, value in (
        ("long", 1700000000123),
        ("long", 1577836800000),
        ("string", "é"),
        ("bytes", b"\x00\xff"),
        ({"type": "array", "items": ["null", "string"]}, ["p", "q"]),
    ):
        fastavro.schemaless_writer(encoded, ["null", kind], value)
    assert message.v == encoded.getvalue()
    back = messages.select(decode(AVRO, F.col("v"), schema, {}).alias("r"))
    compared = back.select(
        F.unix_millis("r.ts"), F.date_format("r.ntz", "yyyy-MM-dd HH:mm"), "r.s", F.hex("r.x"), "r.a", f"r.{ERROR}"
    )
    assert [tuple(row) for row in compared.collect()] == [
        (1700000000123, "2020-01-01 00:00", "é", "00FF", ["p", "q"], None)
    ]


@pytest.mark.slow
def test_broken_messages_keep_their_places_over_many_batches(spark: SparkSession, conf: Any) -> None:
    """As many rows as messages, each beside its own number."""
    conf("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    schema = struct("id BIGINT NOT NULL, name STRING")
    frame = spark.range(0, 5000, 1, 3)
    messages = frame.select(
        "id", encode(AVRO, F.struct("id", F.concat(F.lit("n"), "id").alias("name")), schema, {}).alias("v")
    ).select(
        "id",
        F.when(F.col("id") % 7 == 0, F.expr("substring(v, 1, length(v) - 1)"))
        .when(F.col("id") % 11 == 0, F.lit(None))
        .otherwise(F.col("v"))
        .alias("v"),
    )
    for n, row in messages.select("id", decode(AVRO, F.col("v"), schema, {})).collect():
        if n % 7 == 0:
            assert (row.id, row.name, row[ERROR]) == (None, None, "it ends within name")
        elif n % 11 == 0:
            assert row is None
        else:
            assert (row.id, row.name, row[ERROR]) == (n, f"n{n}", None)


def test_a_row_that_does_not_fit_fails_the_query_with_its_column(spark: SparkSession) -> None:
    """A null in a column that must not be null, hidden behind a cast."""
    schema = struct("id BIGINT NOT NULL")
    frame = spark.sql("SELECT struct(CAST(NULL AS BIGINT) id) r")
    with pytest.raises(PythonException, match="A row's column 'id' is null"):
        frame.select(encode(AVRO, F.col("r"), schema, {})).collect()


@pytest.mark.broker
def test_avro_confluent_on_the_workers(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Written and read through a real registry; one that is down fails the query, and says which."""
    schema = struct("id BIGINT NOT NULL, name STRING")
    with SchemaRegistry() as registry:
        options = {"avro-confluent.url": registry.url, "avro-confluent.subject": "people-value"}
        frame = spark.range(0, 1000, 1, 4).select("id", F.concat(F.lit("n"), "id").alias("name"))
        messages = frame.select(
            "id", encode(AVRO_CONFLUENT, F.struct("id", "name"), schema, options).alias("v")
        ).cache()
        back = messages.select("id", decode(AVRO_CONFLUENT, F.col("v"), schema, options).alias("r"))
        assert back.where(F.expr(f"r.id = id AND r.name = concat('n', id) AND r.{ERROR} IS NULL")).count() == 1000
        assert messages.select(F.substring("v", 1, 5)).distinct().count() == 1
        assert AVRO_CONFLUENT.columns is not None
        columns, added = AVRO_CONFLUENT.columns(options)
        assert columns == schema
        assert json.loads(added["avro-confluent.schema"])["fields"][0] == {"name": "id", "type": "long"}
        from_registry = messages.select("id", from_kafka("v", "avro-confluent", options=options).alias("r"))
        assert from_registry.where("r.name = concat('n', id)").count() == 1000
        _by_options(spark, registry.url, cluster_a, topic(cluster_a))
        _debezium_round_trip(spark, registry.url)
        _json_schema_round_trip(spark, registry.url)
        _ids_in_headers(spark, registry.url)
    elsewhere = {
        "avro-confluent.url": "http://me:hunter2@127.0.0.1:1",
        "avro-confluent.properties": "max.retries:0",
    }
    with pytest.raises(PythonException, match=r"Schema registry http://\*\*\*@127\.0\.0\.1:1, asked for") as caught:
        messages.select(decode(AVRO_CONFLUENT, F.col("v"), schema, elsewhere)).collect()
    assert "hunter2" not in str(caught.value)


def _by_options(spark: SparkSession, url: str, broker: KafkaBroker, topic: str) -> None:
    """`value.format` reads the fields of the subject's latest schema, that of the topic by default; ids in headers, too."""
    nested = "id BIGINT NOT NULL, name STRING, inner STRUCT<n: INT NOT NULL>, list ARRAY<STRUCT<n: INT NOT NULL>>"
    parts = {"inner": Row(n=4), "list": [Row(n=5)]}
    rows = {
        "avro-confluent": (nested, {"id": 1, "name": "x", **parts}),
        "json-schema-confluent": ("id BIGINT, name STRING", {"id": 2, "name": "y"}),
        "debezium-avro-confluent": ("id BIGINT NOT NULL, name STRING", {"id": 3, "name": "z", "row_kind": "-D"}),
    }
    found = {}
    for name, (columns, row) in rows.items():
        options = {f"{name}.url": url, f"{name}.subject": f"{topic}-{name}"}
        encoded = spark.createDataFrame([(row,)], StructType([StructField("r", _with_kind(columns, row))]))
        message = bytes(encoded.select(to_kafka("r", name, columns, options)).collect()[0][0])
        header = [("__value_schema_id", message[:5])] if name == "avro-confluent" else None
        produce(broker.bootstrap_servers, topic, [(name, message[5:] if header else message)], headers=header)
        reader = spark.read.format("dynamic-kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        reader = reader.option("subscribe", topic).option("value.format", name).option("format.on-error", "skip")
        reader = reader.options(**{f"value.{option}": text for option, text in options.items()})
        if name == "avro-confluent":
            reader = reader.option("value.avro-confluent.schema-id-location", "header-or-prefix")
        read = reader.load().where(f"key = CAST('{name}' AS BINARY)")
        found[name] = read.select("value").collect()[0][0]
    assert found["avro-confluent"].asDict() == {"id": 1, "name": "x", **parts}
    assert tuple(found["json-schema-confluent"]) == (2, "y")
    ((kind, deleted, _),) = found["debezium-avro-confluent"]
    assert (kind, tuple(deleted)) == ("-D", (3, "z"))


def _with_kind(columns: str, row: Mapping[str, object]) -> StructType:
    return struct(f"{columns}, row_kind STRING" if "row_kind" in row else columns)


def _debezium_round_trip(spark: SparkSession, url: str) -> None:
    """Changes are written as Flink writes them, an update as a deletion and an insertion, and are read again."""
    schema = struct("id BIGINT NOT NULL, at TIMESTAMP")
    options = {"debezium-avro-confluent.url": url, "debezium-avro-confluent.subject": "changes-value"}
    rows = ["+I 1 60", "-U 1 60", "+U 1 120", "-D 1 120"]
    changes = spark.createDataFrame([row.split() for row in rows], "row_kind STRING, id STRING, s STRING").select(
        F.struct(
            F.col("id").cast("bigint").alias("id"), F.timestamp_seconds(F.col("s").cast("int")).alias("at"), "row_kind"
        ).alias("r")
    )
    written = changes.select(encode(DEBEZIUM_AVRO_CONFLUENT, F.col("r"), schema, options).alias("v"))
    tombstone = spark.createDataFrame([(None,), (bytearray(),), (bytearray(b"x"),)], "v BINARY")
    decoded = decode(DEBEZIUM_AVRO_CONFLUENT, F.col("v"), schema, options).alias("m")
    found = [row.m for row in written.union(tombstone).select(decoded).collect()]
    assert [(change.row_kind, change.row.id, change.row["at"].minute) for m in found[:4] for change in m.rows] == [
        ("+I", 1, 1),
        ("-D", 1, 1),
        ("+I", 1, 2),
        ("-D", 1, 2),
    ]
    assert found[0].metadata["source.table"] is None
    assert DEBEZIUM_AVRO_CONFLUENT.columns is not None
    assert DEBEZIUM_AVRO_CONFLUENT.columns(options)[0].simpleString() == "struct<id:bigint,at:timestamp>"
    assert found[4:6] == [None, None]
    assert "too short" in found[6][ERROR]


def _ids_in_headers(spark: SparkSession, url: str) -> None:
    """The last header with the part's name has the id; a message without one, or with a null, has it before itself."""
    schema = struct("id BIGINT NOT NULL")
    options = {"avro-confluent.url": url, "avro-confluent.subject": "headers-value"}
    rows = spark.range(1, 2).select(encode(AVRO_CONFLUENT, F.struct("id"), schema, options).alias("v"))
    with_prefix = bytes(rows.collect()[0].v)
    prefix, body = with_prefix[:5], with_prefix[5:]
    name = "__value_schema_id"
    messages: list[tuple[bytes | None, list[tuple[str, bytes | None]] | None]] = [
        (body, [(name, b"damaged"), ("__key_schema_id", b"damaged"), (name, prefix)]),
        (with_prefix, [("other", prefix)]),
        (with_prefix, [(name, None)]),
        (with_prefix, None),
        (None, [(name, prefix)]),
        (body, [(name, b"\x02")]),
    ]
    headers = [None if given is None else [{"key": k, "value": v} for k, v in given] for _, given in messages]
    ids = header_values(pa.array(headers, COLUMNS["headers"]), "value")
    found = AVRO_CONFLUENT.decoder(schema, options)(pa.array([m for m, _ in messages], pa.binary()), ids).to_pylist()
    assert [row and row["id"] for row in found] == [1, 1, 1, 1, None, None]
    assert found[4] is None
    assert "its header with a schema id has the value 0x02" in found[5][ERROR]


def _json_schema_round_trip(spark: SparkSession, url: str) -> None:
    """JSON behind the id of its schema; numbers are what the schema of the id says; what is damaged is an error."""
    schema = struct("id BIGINT NOT NULL, at TIMESTAMP_NTZ, price DECIMAL(10, 2)")
    options = {"json-schema-confluent.url": url, "json-schema-confluent.subject": "json-value"}
    row = {"id": 1, "at": dt.datetime(2024, 1, 31, 12), "price": Decimal("1.50")}  # noqa: DTZ001
    rows = spark.createDataFrame([(row,), (None,)], StructType([StructField("r", schema)]))
    written = [
        m.v for m in rows.select(encode(JSON_SCHEMA_CONFLUENT, F.col("r"), schema, options).alias("v")).collect()
    ]
    assert JSON_SCHEMA_CONFLUENT.columns is not None
    assert JSON_SCHEMA_CONFLUENT.columns(options)[0].simpleString() == "struct<id:bigint,at:string,price:decimal(10,2)>"
    assert (written[0][:1], written[1]) == (b"\0", None)
    assert written[0][5:] == b'{"id":1,"at":"2024-01-31 12:00:00","price":1.5}'
    settings = schema_registry_settings.settings("json-schema-confluent", options)
    connect = {
        "type": "object",
        "properties": {
            "at": {"type": "integer", "title": "io.debezium.time.MicroTimestamp", "connect.type": "int64"},
            "price": {"title": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}},
        },
    }
    other = schema_registry.client(settings).register("connect-value", "JSON", json.dumps(connect)).to_bytes(4, "big")
    messages = [
        *written,
        b"\0" + other + b'{"id":2,"at":1123456,"price":"MDk="}',
        b"\0\x7f\xff\xff\xff{}",
        b"\0\0",
        b'{"id":1}',
        b"\0" + other,
        b"\0" + other + b"{",
    ]
    frame = spark.createDataFrame([(m and bytearray(m),) for m in messages], "v BINARY")
    found = [m.r for m in frame.select(decode(JSON_SCHEMA_CONFLUENT, F.col("v"), schema, options).alias("r")).collect()]
    at = dt.datetime(1970, 1, 1, 0, 0, 1, 123456)  # noqa: DTZ001
    assert found[0].asDict() == row | {ERROR: None}
    assert found[1] is None
    assert found[2].asDict() == {"id": 2, "at": at, "price": Decimal("123.45"), ERROR: None}
    problems = ["asked for the schema with id", "too short", "magic byte 0", "nothing follows its schema id", "JSON"]
    assert [problem in m[ERROR] for problem, m in zip(problems, found[3:], strict=True)] == [True] * 5
    lenient = options | {"json-schema-confluent.ignore-parse-errors": True}
    skipped = frame.select(decode(JSON_SCHEMA_CONFLUENT, F.col("v"), schema, lenient).alias("r")).where("r IS NULL")
    assert skipped.count() == 6
