"""The code of the guides on real parts, as it stands: only hosts and folders are those of the test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

import dynamic_kafka
from dynamic_kafka import KafkaSource
from dynamic_kafka.spark.notebook import query_html
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.parser.parse import parse_script
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.schema_registry import SchemaRegistry
from tests.spark.tables import FOR_EVER, first_rows, records, rows
from tests.spark.test_lineage import Server
from tests.spark.test_metrics import address_of, get

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

DOCS = Path(__file__).parents[2] / "docs"
# Three blocks of sql.md are fragments, which need Delta's and Iceberg's JARs or PostgreSQL: see `examples/debezium`.
_ORDERS, _START_MS = 6, 1_767_225_600_000
_SCHEMA = {
    "type": "record",
    "name": "orders",
    "fields": [
        {"name": "id", "type": ["null", "long"], "default": None},
        {
            "name": "amount",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
            "default": None,
        },
    ],
}


class Guides:
    """The code of the pages, and the parts that it needs: two clusters, a registry and a folder.

    Attributes:
        cluster: The cluster with most topics.
        folder: What takes the place of all folders.
    """

    def __init__(self, cluster: KafkaBroker, other: KafkaBroker, registry: SchemaRegistry, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        cluster.create_topic("orders", 2, config=FOR_EVER)
        flights = ("flights-ewr", "flights-copy", "flights-json", "flights-kafka")
        for topic in (*flights, "totals", "per-minute", "rates", "priced", "avro"):
            cluster.create_topic(topic, config=FOR_EVER)
        other.create_topic("flights-jfk")
        orders: list[dict[str, Any]] = [
            {"id": i, "customer": "ab"[i % 2], "amount": i, "status": "paid" if i % 2 else "open"}
            for i in range(_ORDERS)
        ]
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for order in orders:  # a minute apart, so that all but the last window have ended
            at_ms = _START_MS + 60_000 * order["id"]
            producer.produce("orders", json.dumps(order), partition=order["id"] % 2, timestamp=at_ms)
        assert producer.flush(30) == 0
        produce(cluster.bootstrap_servers, "flights-ewr", [("a", "1"), ("b", "2")])
        produce(other.bootstrap_servers, "flights-jfk", [("c", "3")])
        with closing(SchemaRegistryClient({"url": registry.url})) as client:
            client.register_schema("orders-value", Schema(json.dumps(_SCHEMA), "AVRO"))
        self._places = {
            "localhost:9092": cluster.bootstrap_servers,
            "ewr-1:9092,ewr-2:9092": cluster.bootstrap_servers,
            "jfk-1:9092": other.bootstrap_servers,
            "http://registry:8081": registry.url,
            '"streams.yaml"': f'"{folder}/streams.yaml"',
            **dict.fromkeys(("s3a://bucket", "s3://bucket"), str(folder)),
            **dict.fromkeys(("s3a://archive", "s3a://lake"), str(folder / "archives")),
            "/tmp/": f"{folder}/",
            '"metrics.port", "9100"': '"metrics.port", "0"',
        }
        (streams,) = self.blocks("reading", "yaml")
        (folder / "streams.yaml").write_text(streams.partition("      properties:")[0])  # the test has no TLS

    def blocks(self, page: str, language: str) -> list[str]:
        """The blocks of a page in a language, with the places of the test."""
        text = (DOCS / "guides" / f"{page}.md").read_text()
        text = re.sub("|".join(map(re.escape, self._places)), lambda found: self._places[found[0]], text)
        return re.findall(rf"^```{language}\n(?!--8<--)(.*?)^```", text, re.DOTALL | re.MULTILINE)

    def run(self, text: str, names: dict[str, Any]) -> dict[str, Any]:
        """Run a block of Python, and return the names that it has set, which later blocks see as well."""
        before = dict(names)
        exec(compile(text, "block", "exec"), names)
        return {name: value for name, value in names.items() if before.get(name) is not value}


@pytest.fixture(scope="module")
def guides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guides]:
    """Once for all pages."""
    with KafkaBroker() as cluster, KafkaBroker() as other, SchemaRegistry() as registry:
        yield Guides(cluster, other, registry, tmp_path_factory.mktemp("guides"))


@pytest.fixture(autouse=True)
def _stopped(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def count(df: DataFrame) -> int:
    """The number of rows of a batch, or of all that a stream has now."""
    if not df.isStreaming:
        return df.count()
    seen: list[int] = []
    query = df.writeStream.foreachBatch(lambda batch, _: seen.append(batch.count())).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(seen)


def reads(spark: SparkSession, cluster: KafkaBroker, topic: str) -> DataFrameReader:
    """A batch of a topic."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    return spark.read.format("dynamic-kafka").options(**options)


def streams(spark: SparkSession, cluster: KafkaBroker, topic: str) -> DataStreamReader:
    """A stream of a topic from its beginning."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("dynamic-kafka").options(**options)


def test_reading(spark: SparkSession, guides: Guides) -> None:
    """Streams by options and builders, batches, columns of JSON, and Arrow without Spark."""
    names: dict[str, Any] = {"spark": spark}
    by_options, by_builder, batch, with_columns, arrow = guides.blocks("reading", "python")
    assert count(guides.run(by_options, names)["flights"]) == 2, "jfk starts at its end"
    assert count(guides.run(by_builder, names)["df"]) == 2
    assert count(guides.run(batch, names)["df"]) == _ORDERS
    orders = guides.run(with_columns, names)["orders"]
    assert orders.columns == ["id", "amount", "offset", "cluster"]
    *statements, last = arrow.rstrip().rpartition("\n\n")
    guides.run("".join(statements), names)
    assert len(eval(last, names)) == _ORDERS // 2


def test_readme(spark: SparkSession, guides: Guides) -> None:
    """Columns of JSON in Spark, pandas, Polars and DuckDB."""
    _, block = guides.blocks("../../README", "python")
    found = guides.run(block, {"spark": spark})
    assert found["in_spark"].count() == len(found["in_pandas"]) == len(found["in_polars"]) == _ORDERS // 2
    assert found["in_duckdb"] == [(_ORDERS // 2,)]
    assert "paid" in str(found["in_polars"])


def test_writing(spark: SparkSession, guides: Guides) -> None:
    """A stream, a topic for each row, batches of `foreachBatch`, and the builder of the sink."""
    stream, by_topic, in_batches, by_builder = guides.blocks("writing", "python")
    flights = streams(spark, guides.cluster, "flights-ewr").load()
    names = {"spark": spark, "flights": flights, "rows": flights.selectExpr("offset", "CAST(value AS STRING) AS text")}
    guides.run(stream, names)["query"].processAllAvailable()
    assert len(records(guides.cluster, "flights-copy")) == 2
    guides.run(by_topic, dict(names))["by_topic"].processAllAvailable()
    assert [row.headers for row in records(guides.cluster, "flights-kafka")] == [[("source", b"kafka")]] * 2
    write = guides.run(in_batches, names)["write"]
    flights.writeStream.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
    assert len(records(guides.cluster, "flights-copy")) == 4
    guides.run(by_builder, names)["query"].processAllAvailable()
    assert json.loads(records(guides.cluster, "flights-json")[0].value or b"") == {"offset": 0, "text": "1"}


def test_sql(spark: SparkSession, guides: Guides) -> None:
    """Tables and an INSERT, windows, temporal joins, other connectors, columns of a registry, and functions of columns."""
    names: dict[str, Any] = {"spark": spark}
    first, evolution, functions = guides.blocks("sql", "python")[:3]
    join, window, files, _, registry = guides.blocks("sql", "sql")
    servers = guides.cluster.bootstrap_servers
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}'"
    upsert = f"{kafka.replace('kafka', 'upsert-kafka', 1)}, 'key.format' = 'json', 'value.format' = 'json'"
    assert guides.run(first, names)["df"].isStreaming
    env = names["env"]  # the page makes one
    wait_until(lambda: len(records(guides.cluster, "totals")) >= 2, 90, "totals")
    env.execute_sql(
        "CREATE TABLE per_minute (start_ TIMESTAMP_LTZ(3), customer STRING, total DECIMAL(20, 2)) "
        f"WITH ({kafka}, 'topic' = 'per-minute', 'format' = 'json')"
    )
    env.execute_sql(window)
    wait_until(lambda: records(guides.cluster, "per-minute"), 90, "windows that have ended")
    for query in spark.streams.active:
        query.stop()

    other = TableEnvironment(spark)
    other.execute_sql(
        "CREATE TABLE orders (order_id BIGINT, price INT, currency STRING, order_time TIMESTAMP_LTZ(3) METADATA FROM "
        f"'timestamp', WATERMARK FOR order_time AS order_time) WITH ({kafka}, "
        "'topic' = 'priced', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json')"
    )
    other.execute_sql(
        "CREATE TABLE rates (currency STRING, rate INT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', "
        f"WATERMARK FOR at AS at, PRIMARY KEY (currency) NOT ENFORCED) WITH ({upsert}, 'topic' = 'rates')"
    )
    produce(servers, "rates", [('{"currency": "EUR"}', '{"currency": "EUR", "rate": 2}')])
    produce(servers, "priced", [("1", '{"order_id": 1, "price": 5, "currency": "EUR"}')])
    assert rows(other, join) == [(1, 10)]

    for statement in parse_script(files):
        other.get_config().set("execution.checkpointing.dir", str(guides.folder / "clicks"))
        other.execute(statement)
    wait_until(lambda: list((guides.folder / "archives" / "clicks").rglob("dt=*/*.parquet")), 60, "files")
    for query in spark.streams.active:
        query.stop()

    other = TableEnvironment(spark)
    for statement in parse_script(registry):
        other.execute(statement)
    assert [row[0] for row in other.execute_sql("DESCRIBE late_orders").collect()] == ["id", "amount", "timestamp"]
    names["df"] = reads(spark, guides.cluster, "orders").load()
    out = guides.run(functions, names)["out"]
    avro = out.write.format("dynamic-kafka").option("kafka.bootstrap.servers", servers).option("topic", "avro")
    avro.mode("append").save()
    options = guides.run(evolution, {})["options"]
    values = (
        reads(spark, guides.cluster, "avro")
        .options(**options)
        .option("value.avro-confluent.subject", "orders-value")
        .load()
    )
    assert sorted(row["value"]["id"] for row in values.select("value").collect()) == list(range(_ORDERS))


def test_history(spark: SparkSession, env: TableEnvironment, guides: Guides) -> None:
    """An archive of a stream, its care, and the history that it is: by options, builders and SQL."""
    stream, builder, archive = guides.blocks("history", "python")
    (table,), (care,) = guides.blocks("history", "sql"), guides.blocks("history", "sh")
    guides.run(archive, {"orders": streams(spark, guides.cluster, "orders").load()})
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
    names: dict[str, Any] = {"spark": spark}
    assert count(guides.run(stream, names)["df"]) == _ORDERS
    names["kafka_source"] = (
        KafkaSource.builder().set_bootstrap_servers(guides.cluster.bootstrap_servers).set_topics("orders").build()
    )
    assert count(guides.run(builder, names)["source"].read_stream(spark)) == _ORDERS
    env.execute_sql(table)
    assert len(first_rows(env, "SELECT id FROM orders", _ORDERS)) == _ORDERS
    for line in care.splitlines():
        command = [str(Path(sys.executable).with_name("dynamic-kafka")), *line.partition("#")[0].split()[1:]]
        subprocess.run(command, check=True, capture_output=True)


def test_event_time(spark: SparkSession, guides: Guides) -> None:
    """Alignment by options and by a strategy."""
    names: dict[str, Any] = {"spark": spark}
    by_options, strategy = guides.blocks("event-time", "python")
    assert count(guides.run(by_options, names)["df"]) == 0, "it starts at the end, as Spark's source does"
    names["source"] = (
        KafkaSource.builder().set_bootstrap_servers(guides.cluster.bootstrap_servers).set_topics("orders").build()
    )
    assert count(guides.run(strategy, names)["df"]) == _ORDERS


def test_operations(spark: SparkSession, guides: Guides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query in a cell, and OpenLineage's events of one."""
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    cell, lineage = guides.blocks("operations", "python")
    options = {
        "kafka.bootstrap.servers": guides.cluster.bootstrap_servers,
        "topic": "flights-copy",
        "checkpointLocation": str(tmp_path),
    }
    names: dict[str, Any] = {
        "spark": spark,
        "rows": streams(spark, guides.cluster, "flights-ewr").load().select("value"),
    }
    names |= {"options": options, "sink_options": options, "dynamic_kafka": dynamic_kafka}
    with Server() as server:
        guides.run(lineage.replace("http://marquez:5000", server.url), names)
        query = guides.run(cell, names)["query"]
        wait_until(lambda: server.of(query.runId), 60, "an event")
        query.processAllAvailable()
        assert query_html(query)
        spark.streams.removeListener(names["listener"])
        query.stop()
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret"}


def test_from_spark_kafka(spark: SparkSession, guides: Guides) -> None:
    """The program of Spark's source with another format."""
    (block,) = guides.blocks("from-spark-kafka", "python")
    assert count(guides.run(block, {"spark": spark})["df"]) == _ORDERS


def test_metrics(spark: SparkSession, guides: Guides) -> None:
    """The reference: a query with a page for people."""
    (first,) = guides.blocks("../reference/metrics", "python")
    rows = guides.run(first, {"spark": spark})["rows"]
    query = rows.writeStream.format("noop").start()
    assert "orders" in get(f"{address_of(query)}status.json")
