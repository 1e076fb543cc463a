"""Conditions of batch queries on metadata columns: the same rows, from fewer offsets."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker
from tests.spark.tables import FOR_EVER, Topic, as_batches, create, on, rows
from tests.spark.texts import session
from tests.versions import SINCE, SPARK

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_START_MS = 1_711_843_200_000  # 31 March 2024, 00:00 UTC: Europe's clocks change an hour later
_COLUMNS = """
    id INT, `offset` INT METADATA FROM 'partition', o BIGINT METADATA FROM 'offset', `topic` STRING METADATA,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', wall TIMESTAMP(3) METADATA FROM 'timestamp'
"""
QUERIES = [
    ("SELECT id FROM t WHERE o >= 7", 6),
    ("SELECT * FROM t WHERE `offset` = 1 AND id > 3", 10),
    ("SELECT id FROM t WHERE t.o IN (1, 2, 3) AND topic LIKE '%'", 6),
    ("SELECT id FROM t WHERE ts >= TO_TIMESTAMP_LTZ(1711844340000, 3)", 2),
    ("SELECT id FROM t WHERE ts BETWEEN CAST('2024-03-31 00:19:00' AS TIMESTAMP_LTZ(3)) AND CURRENT_TIMESTAMP", 2),
    ("SELECT id FROM t WHERE wall >= TIMESTAMP '2024-03-31 00:03:00'", 19),
    ("SELECT id FROM t WHERE o > 2 OR id = 1", 20),
    ("SELECT l.id FROM (SELECT id FROM t WHERE o < 5) AS l", 10),
    ("SELECT id FROM v WHERE id > 3", 10),
    ("SELECT id FROM t /*+ OPTIONS('scan.startup.mode' = 'earliest-offset') */ WHERE o > 4", 10),
    ("SELECT u.x, t.id FROM u LEFT JOIN t ON u.x = t.id WHERE t.o > 2", None),
    ("SELECT u.x, t.id FROM u LEFT JOIN t ON u.x = t.id AND t.o > 2", None),
    ("SELECT COUNT(*) FROM t WHERE o > 4", None),
    ("SELECT id FROM t WHERE o > 4 UNION ALL SELECT id FROM t WHERE o < 2", 14),
]


@pytest.fixture
def filled(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> TableEnvironment:
    """An environment with the table `t` of two partitions, whose times are out of order, and views."""
    name = topic(cluster_a, partitions=2, config=FOR_EVER)
    producer = Producer({"bootstrap.servers": cluster_a.bootstrap_servers, "enable.idempotence": True})
    for i in range(20):
        producer.produce(name, str(i).encode(), partition=i % 2, timestamp=_START_MS + (i * 7 % 20) * 60_000)
    assert producer.flush(30) == 0
    create(env, "t", _COLUMNS, on(cluster_a, name, format="csv") | {"minPartitions": "1000"})
    env.execute_sql("CREATE VIEW u AS SELECT * FROM (VALUES (1), (8), (19), (100)) AS n (x)")
    env.execute_sql("CREATE VIEW v AS SELECT id FROM t WHERE o > 4")
    return env


@pytest.mark.parametrize("column", ["ts", "wall"])
def test_hours_that_clocks_have_twice_or_never(spark: SparkSession, filled: TableEnvironment, column: str) -> None:
    """In Berlin, no clock showed 02:10 in this night."""
    for zone, hours in (("Europe/Berlin", range(4)), ("Pacific/Apia", (13,))):
        with session(spark, session_timeZone=zone):
            for hour in hours:
                query = f"SELECT id FROM t WHERE {column} >= TIMESTAMP '2024-03-31 {hour:02}:10:00'"
                found = rows(filled, query)
                with session(spark, python_filterPushdown_enabled="false"):
                    assert found == rows(filled, query)


@pytest.mark.parametrize(("query", "offsets"), QUERIES, ids=[query for query, _ in QUERIES])
def test_the_rows_are_those_of_whole_tables(
    spark: SparkSession, filled: TableEnvironment, query: str, offsets: int | None
) -> None:
    """With a task for each offset, the number of tasks is that of the offsets that are read."""
    found = rows(filled, query)
    assert found
    if offsets is not None and SINCE["pushFilters"] <= SPARK:
        with as_batches(filled):
            assert filled.sql_query(query).rdd.getNumPartitions() == offsets
    with session(spark, python_filterPushdown_enabled="false"):
        assert found == rows(filled, query)
