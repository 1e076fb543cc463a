"""Tables in the shapes that scripts of Flink users have: computed columns, names of catalogs, CREATE TABLE ... AS."""

from __future__ import annotations

import json

import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import FOR_EVER, Topic, create, on, records, rows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

MS = 1_700_000_000_123


def test_a_script_as_it_is_pasted(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Computed columns in Flink's functions, a catalog's name in front, and a table that is made of a query."""
    source, target = topic(cluster_a, config=FOR_EVER), topic(cluster_a)
    message = {"ms": MS, "n": 7, "doc": '{"a": {"b": "x"}}', "text": "2024-01-02 03:04:05"}
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps(message))])
    settings = env.get_config().set("table.local-time-zone", "UTC").set("execution.runtime-mode", "batch")
    columns = """ms BIGINT, n INT, doc STRING, text STRING,
        ltz AS TO_TIMESTAMP_LTZ(ms, 3),
        seconds AS TO_TIMESTAMP_LTZ(ms / 1000, 0),
        unix AS TO_TIMESTAMP(FROM_UNIXTIME(ms / 1000)),
        cast_unix AS CAST(FROM_UNIXTIME(ms / 1000) AS TIMESTAMP(3)),
        pattern AS TO_TIMESTAMP(text, 'yyyy-MM-dd HH:mm:ss'),
        half AS n / 2,
        now AS PROCTIME(),
        now_cast AS CAST(PROCTIME() AS TIMESTAMP(3)),
        bytes AS CAST(text AS BYTES),
        part AS JSON_VALUE(doc, '$.a.b'),
        day_ AS DATE_FORMAT(TO_TIMESTAMP_LTZ(ms, 3), 'yyyy-MM-dd'),
        printed AS CAST(n AS VARCHAR(2147483647) CHARACTER SET `UTF-16LE`),
        WATERMARK FOR ltz AS ltz - INTERVAL '5' SECOND"""
    options = on(cluster_a, source) | {"scan.bounded.mode": "latest-offset"}
    create(env, "Hive.`sales`.events", columns, options)
    (found,) = rows(
        env,
        "SELECT unix_millis(ltz), unix_seconds(seconds), DATE_FORMAT(unix, 'yyyy-MM-dd HH:mm:ss'), "
        "DATE_FORMAT(cast_unix, 'yyyy-MM-dd HH:mm:ss'), DATE_FORMAT(pattern, 'yyyy-MM-dd HH:mm:ss'), half, now IS NULL, "
        "bytes, part, day_, printed FROM hive.sales.events AS e",
    )
    unix = "2023-11-14 22:13:20"
    assert found[:2] == (MS, MS // 1000)
    assert found[2:5] == (unix, unix, "2024-01-02 03:04:05")
    assert found[5:] == (3, False, b"2024-01-02 03:04:05", "x", "2023-11-14", "7")
    assert rows(env, "SELECT e.n FROM sales.events AS e JOIN events AS f ON e.n = f.n") == [(7,)]
    with pytest.raises(ConfigurationError, match="was not created here"):
        env.execute_sql("DESCRIBE other.events")

    for statement in ("CREATE DATABASE copying", "USE copying"):
        env.execute_sql(statement)
    inside = ", ".join(f"'{key}' = '{text}'" for key, text in on(cluster_a, target).items())
    env.execute_sql(f"CREATE TABLE copies (part, n, ltz) WITH ({inside}) AS SELECT n, ltz, part FROM hive.sales.events")
    assert [(row[0], row[1]) for row in env.execute_sql("DESCRIBE copying.copies").collect()] == [
        ("part", "STRING"),
        ("n", "INT"),
        ("ltz", "TIMESTAMP_LTZ(6)"),
    ]
    (copy,) = records(cluster_a, target)
    copied = json.loads(copy.value or b"")
    assert (copied["part"], copied["n"], copied["ltz"][:23]) == ("x", 7, "2023-11-14 22:13:20.123")
    with pytest.raises(ConfigurationError, match="do not match"):
        env.execute_sql(f"CREATE TABLE wrong (n STRING) WITH ({inside}) AS SELECT n FROM events")
    assert "wrong" not in env.list_tables()
    settings.reset()
