"""Temporal joins, beside Flink's answers (`tests/flink_answers/temporal.json`), and lookups in tables of Spark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import groupby

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.flink_answers.record_temporal import TEMPORAL, TEMPORAL_ANSWERS
from tests.spark.tables import FOR_EVER, Topic, create_json, rows, write
from tests.spark.test_sql_against_flink import same_rows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ONE = next(query for query in TEMPORAL["queries"] if "r.update_time" in query)
"""A query with deletions, versions of the same time, versions out of order, and rows without a version."""


@pytest.fixture
def tables(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> TableEnvironment:
    """The tables, with the times of the messages as times of the versions, because a deletion has no other."""
    orders, rates = topic(cluster_a, config=FOR_EVER), topic(cluster_a, config=FOR_EVER)
    names = list(TEMPORAL["tables"]["orders"]["columns"])
    produce(
        cluster_a.bootstrap_servers,
        orders,
        [(None, json.dumps(dict(zip(names, row, strict=True)))) for row in TEMPORAL["tables"]["orders"]["rows"]],
    )
    for time, versions in groupby(TEMPORAL["tables"]["rates"]["rows"], lambda row: row[3]):
        messages = [
            (json.dumps({"currency": key}), None if kind == "-D" else json.dumps({"rate": rate, "region": region}))
            for key, rate, region, _, kind in versions
        ]
        at = datetime.fromisoformat(time).replace(tzinfo=UTC)
        produce(cluster_a.bootstrap_servers, rates, messages, timestamp_ms=int(at.timestamp() * 1000))
    create_json(
        env,
        "orders",
        "order_id STRING, price DECIMAL(10, 2), currency STRING, region STRING, order_time TIMESTAMP(3), "
        "proc_time AS PROCTIME(), WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND",
        cluster_a,
        orders,
    )
    create_json(
        env,
        "rates",
        "currency STRING, rate DECIMAL(10, 4), region STRING, update_time TIMESTAMP(3) METADATA FROM 'timestamp', "
        "WATERMARK FOR update_time AS update_time - INTERVAL '5' SECOND, PRIMARY KEY (currency) NOT ENFORCED",
        cluster_a,
        rates,
        connector="upsert-kafka",
        key_format="json",
        value_format="json",
        value_fields__include="EXCEPT_KEY",
    )
    return env


def check(tables: TableEnvironment, query: str) -> None:
    """Compare the rows of a batch with those of Flink."""
    answer = json.loads(TEMPORAL_ANSWERS.read_text())[query]
    found = [list(row) for row in rows(tables, query)]
    assert same_rows(answer["rows"], found, ordered=False), (answer, found)


def test_each_row_meets_the_version_of_its_time(tables: TableEnvironment) -> None:
    """In a batch. In a stream it is an error; so is a lookup in a changelog, in Flink, too."""
    check(tables, ONE)
    with pytest.raises(SqlError, match=r"streams have no temporal joins.*materialize"):
        tables.sql_query(ONE)
    write(tables, "INSERT INTO orders (order_id) SELECT 'without a time'")
    joined = "orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.order_time AS r ON o.currency = r.currency"
    with pytest.raises(
        PySparkException, match="The time of a row in a temporal join is NULL"
    ):  # a row that nobody asks for
        rows(tables, f"SELECT COUNT(*) FROM {joined} WHERE o.order_id = 'o0'")
    with pytest.raises(SqlError, match="looks rows up in a table as it is at the moment"):
        tables.sql_query(re.sub("AS OF o.order_time", "AS OF o.proc_time", ONE))


def test_rows_are_looked_up_in_a_table_of_spark(tables: TableEnvironment, spark: SparkSession) -> None:
    """As the table is at the moment, in streams and batches; the time may come from a sub-query or a view."""
    spark.createDataFrame([("EUR", "Euro")], "currency STRING, name STRING").createOrReplaceTempView("names")
    tables.execute_sql("CREATE VIEW timed AS SELECT *, PROCTIME() AS pt FROM orders")
    query = (
        "SELECT o.order_id, n.name FROM {} LEFT JOIN names FOR SYSTEM_TIME AS OF o.{} AS n ON o.currency = n.currency"
    )
    for left, time in (("orders AS o", "proc_time"), ("timed AS o", "pt"), ("(SELECT * FROM timed) AS o", "pt")):
        assert tables.sql_query(query.format(left, time)).isStreaming
    with pytest.raises(SqlError, match="names has no versions"):
        tables.sql_query(query.format("orders AS o", "order_time"))
    with_names = rows(tables, query.format("orders AS o", "proc_time"))
    assert with_names[:3] == [("o0", "Euro"), ("o1", "Euro"), ("o2", None)]


@pytest.mark.slow
def test_temporal_joins_beside_flink(tables: TableEnvironment) -> None:
    """The same rows. Of an aggregation, Flink's answer is a changelog, and only the row for each key is looked at."""
    for query in TEMPORAL["queries"]:
        if "GROUP BY r.currency" in query:
            assert rows(tables, query)  # Flink's answer is a changelog
        else:
            check(tables, query)
