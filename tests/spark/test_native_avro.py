"""Tables with the formats `avro` and `avro-confluent`: values are decoded where they are read."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from pyspark.errors import PySparkException

from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.avro import record, written
from tests.schema_registry import Proxy, SchemaRegistry
from tests.spark.tables import Topic, as_batches, create, on, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker]

SECRET = "me:hunter2"
COLUMNS = "id BIGINT NOT NULL, name STRING, `more` ARRAY<STRING NOT NULL>, p INT METADATA FROM 'offset'"


def body(schema: str, **row: Any) -> bytes:
    """A row in Avro's encoding."""
    return written(json.loads(schema), row)


def register(registry_server: SchemaRegistry, subject: str, schema: str) -> bytes:
    """Register a schema; return the five bytes before its messages."""
    settings = schema_registry_settings.settings("avro-confluent", {"avro-confluent.url": registry_server.url})
    return b"\0" + schema_registry.client(settings).register(subject, "AVRO", schema).to_bytes(4, "big")


def plan(env: TableEnvironment, query: str) -> str:
    """All plans of a query in batch mode."""
    with as_batches(env):
        return str(env.sql_query(query)._jdf.queryExecution().toString())


def error(env: TableEnvironment, query: str) -> str:
    """Why a query fails, without what Spark adds about its tasks."""
    with pytest.raises(PySparkException) as caught:
        rows(env, query)
    return next(line for line in str(caught.value).splitlines() if "Error: " in line or "cannot be read" in line)


def test_an_avro_table_is_decoded_where_it_is_read(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """No Python function is left in the plan."""
    fine = [b"\x02\x02\x02a\x02\x04\x02x\x02y\x00", b"\x04\x00\x00"]
    # A number of 10 bytes may have bits that do not fit, as in Java.
    odd = b"\xff" * 9 + b"\x03\x00\x00"
    bad = [b"\x04\x00\x00!", b"\x02\x02\x04\xff\xff\x00", b"", b"\x02\x02\x02a\x02\xff\xff\xff\xff\x0f"]
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(b"k", v) for v in (*fine, odd, None, *bad)], partition=0)
    create(env, "lenient", COLUMNS, on(cluster_a, name, format="avro") | {"format.on-error": "skip"})
    create(env, "strict", COLUMNS, on(cluster_a, name, format="avro"))
    assert "ArrowEvalPython" not in plan(env, "SELECT id FROM lenient")
    expected = [(-(2**63), None, None, 2), (1, "a", ["x", "y"], 0), (2, None, None, 1)]
    assert rows(env, "SELECT * FROM lenient") == expected
    reason = "offset 4: the value cannot be read as avro: bytes are left over behind the record"
    assert reason in error(env, "SELECT * FROM strict")


def test_schemas_of_a_registry_are_learned_as_they_appear(
    env: TableEnvironment,
    cluster_a: KafkaBroker,
    topic: Topic,
    registry_server: SchemaRegistry,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while a stream runs. Each is asked for once, messages with damaged ids are errors, and no plan shows a secret."""
    name = topic(cluster_a)
    schemas = [
        record(("id", "int"), ("name", "string")),
        record(("more", {"type": "array", "items": "string"}), ("x", ["null", "Order"]), ("id", "long")),
        record(("name", ["null", "string", "long"]), ("id", "long")),
    ]
    headers = [register(registry_server, f"{name}-{i}", schema) for i, schema in enumerate(schemas)]
    messages = [
        headers[0] + body(schemas[0], id=1, name="a"),
        headers[1] + body(schemas[1], more=["x"], x=None, id=2),
        headers[0] + body(schemas[0], id=3, name="c"),
        headers[0] + b"\x02",
        b"\0\0\x0f\x42\x40" + body(schemas[0], id=4, name="d"),
        b"\x01" + headers[0][1:] + body(schemas[0], id=4, name="d"),
        headers[2] + body(schemas[2], name=5, id=5),
        headers[2] + body(schemas[2], name="f", id=6),
        None,
    ]
    produce(cluster_a.bootstrap_servers, name, [(b"k", message) for message in messages], partition=0)
    options = on(cluster_a, name, format="avro-confluent") | {
        "avro-confluent.url": proxy.url,
        "avro-confluent.basic-auth.user-info": SECRET,
    }
    proxy.authorization = "Basic bWU6aHVudGVyMg=="
    create(env, "lenient", COLUMNS, options | {"format.on-error": "skip"})
    create(env, "strict", COLUMNS, options)
    expected = [(1, "a", None, 0), (2, None, ["x"], 1), (3, "c", None, 2), (6, "f", None, 7)]
    assert rows(env, "SELECT * FROM lenient") == expected
    reason = "offset 3: the value cannot be read as avro-confluent: it ends within name"
    assert reason in error(env, "SELECT * FROM strict")
    assert SECRET not in plan(env, "SELECT * FROM lenient") + str(env.from_path("lenient")._jdf.toString())

    stream = env.execute_sql("SELECT id, name FROM lenient").collect()
    assert len(list(islice(stream, 4))) == 4
    later = record(("id", "long"), ("name", "string"), ("new", {"type": "map", "values": "long"}))
    header = register(registry_server, f"{name}-later", later)
    added = [header + body(later, id=i, name=f"n{i}", new={"k": i}) for i in range(100)]
    produce(cluster_a.bootstrap_servers, name, [(b"k", message) for message in added], partition=0)
    assert sorted(tuple(row) for row in islice(stream, 100)) == [(i, f"n{i}") for i in range(100)]
    produce(cluster_a.bootstrap_servers, name, [(b"k", message) for message in added], partition=0)
    assert len(list(islice(stream, 100))) == 100
    stream.close()  # type: ignore[attr-defined]  # a stream's rows are a generator
    asked = [request for request in proxy.calls if f"/ids/{int.from_bytes(header[1:], 'big')}" in request]
    assert 1 <= len(asked) <= 2  # once in each of the two workers that read


def test_a_registry_that_is_down_fails_the_query(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, registry_server: SchemaRegistry, proxy: Proxy
) -> None:
    """With its own error, and not with an error of each message; once it answers again, the query succeeds."""
    name = topic(cluster_a)
    schema = record(("id", "long"))
    header = register(registry_server, name, schema)
    produce(cluster_a.bootstrap_servers, name, [(b"k", header + body(schema, id=i)) for i in range(10)], partition=0)
    options = on(cluster_a, name, format="avro-confluent") | {
        "avro-confluent.url": proxy.url,
        "avro-confluent.properties": "max.retries:1,retries.wait.ms:10",
        "format.on-error": "skip",
    }
    create(env, "down", "id BIGINT", options)
    proxy.failures = [503, 503]
    assert "RegistryError: Schema registry " in error(env, "SELECT * FROM down")
    assert proxy.failures == []  # as many attempts as the options say
    assert rows(env, "SELECT * FROM down") == [(i,) for i in range(10)]

    unfit = record(("id", "string"))
    other = topic(cluster_a)
    produce(
        cluster_a.bootstrap_servers, other, [(b"k", register(registry_server, other, unfit) + b"\x02a")], partition=0
    )
    create(env, "unfit", "id BIGINT", options | {"topic": other})
    reason = "does not fit the columns: id is written as string and is long here"
    assert reason in error(env, "SELECT * FROM unfit")
