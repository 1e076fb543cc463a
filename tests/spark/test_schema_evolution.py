"""The option `schema-evolution` with a real registry: a query ends at new fields, and reads them when it starts again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.schema_registry import Registry
from dynamic_kafka.functions import from_kafka
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.avro import message
from tests.schema_registry import SchemaRegistry
from tests.spark.sinks import fault, once, run, values
from tests.spark.tables import Topic, create, ddl, on

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A registry for all tests of this module."""
    with SchemaRegistry() as running:
        yield running.url


def registry(url: str) -> Registry:
    """Its client."""
    return schema_registry.client(schema_registry_settings.settings("avro-confluent", {"avro-confluent.url": url}))


OLD = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
NEW = OLD.replace("}]}", '}, {"name": "more", "type": ["null", "string"], "default": null}]}')


@pytest.mark.slow
def test_a_new_start_reads_the_new_field(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, url: str, checkpoint: str
) -> None:
    """A stream ends before the batch with the first message that has it; the next start writes that batch, once."""
    source, out = topic(cluster_a), topic(cluster_a)
    subject, options = f"{source}-value", once(cluster_a, out, out)
    first = registry(url).register(subject, "AVRO", OLD)

    def add(schema_id: int, schema: str, value: dict[str, Any]) -> None:
        produce(cluster_a.bootstrap_servers, source, [(None, message(schema_id, schema, value))])

    def load() -> DataFrame:
        reader = spark.readStream.format("dynamic-kafka").option("kafka.bootstrap.servers", cluster_a.bootstrap_servers)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
        reader = reader.option("value.format", "avro-confluent").option("value.avro-confluent.url", url)
        return (
            reader.option("value.avro-confluent.schema-evolution", "fail").load().selectExpr("to_json(value) AS value")
        )

    add(first, OLD, {"id": 1})
    rows = load()
    run(rows, options, checkpoint)
    second = registry(url).register(subject, "AVRO", NEW)
    add(first, OLD, {"id": 2})
    add(second, NEW, {"id": 3, "more": "x"})
    assert fault(lambda: run(rows, options, checkpoint)).startswith(
        f"Cluster 'kafka', topic '{source}', partition 0, offset 2: the value has the schema with id {second}, version 2 of "
        f"the subject '{subject}', which has the new fields more; the query was planned with version 1. "
    )
    assert values(cluster_a, out) == ['{"id":1}']
    add(first, OLD, {"id": 4})
    run(load(), options, checkpoint)
    assert values(cluster_a, out) == ['{"id":1}', '{"id":2}', '{"id":3,"more":"x"}', '{"id":4}']


def test_a_table_that_is_created_again_has_the_new_column(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, url: str
) -> None:
    """A table knows the version of its columns; one with columns of its own is compared with what is there at the start."""
    source = topic(cluster_a)
    subject, option = f"{source}-value", "avro-confluent"
    more = {f"{option}.url": url, f"{option}.schema-evolution": "fail"}
    options = on(cluster_a, source, format=option) | more | {"scan.bounded.mode": "latest-offset"}
    registry(url).register(subject, "AVRO", OLD)
    statement = ddl("t", "", options).replace("()", "")
    env.execute_sql(statement)
    create(env, "own", "id BIGINT", options)
    (shown,) = env.execute_sql("SHOW CREATE TABLE t").collect()
    assert "'avro-confluent.schema-version' = '1'" in shown[0]
    second = registry(url).register(subject, "AVRO", NEW)
    produce(cluster_a.bootstrap_servers, source, [(None, message(second, NEW, {"id": 1, "more": "x"}))])
    told = fault(lambda: env.execute_sql("SELECT * FROM t").collect())
    assert "Set 'avro-confluent.schema-evolution' to 'ignore' to go on without them" in told
    assert [tuple(row) for row in env.execute_sql("SELECT * FROM own").collect()] == [(1,)]
    env.execute_sql("DROP TABLE t")
    env.execute_sql(statement)
    assert [tuple(row) for row in env.execute_sql("SELECT * FROM t").collect()] == [(1, "x")]


def test_from_kafka_does_not_know_where_a_message_is(url: str) -> None:
    """So it takes only `ignore`."""
    options = {"avro-confluent.url": url, "avro-confluent.schema-evolution": "fail"}
    with pytest.raises(ConfigurationError, match="expected ignore here; read a SQL table"):
        from_kafka("value", "avro-confluent", "id BIGINT", options)
