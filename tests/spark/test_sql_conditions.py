"""Conditions of batch queries in SQL: the same rows, from fewer offsets, and fewer rows for Spark."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.spark.comparisons import expression_of, from_text
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.tables.table import KafkaTable
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import FOR_EVER, Topic, as_batches, create, handed_over, on, rows
from tests.spark.texts import session

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_START_MS = 1_711_843_200_000  # 31 March 2024, 00:00 UTC: Europe's clocks change an hour later
_COLUMNS = """
    id INT, `offset` INT METADATA FROM 'partition', o BIGINT METADATA FROM 'offset', `topic` STRING METADATA,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', wall TIMESTAMP(3) METADATA FROM 'timestamp'
"""
QUERIES = [
    ("SELECT id FROM t WHERE o >= 7", 6),
    ("SELECT * FROM t WHERE `offset` = 1 AND id > 3", 10),
    ("SELECT id FROM t WHERE t.o IN (1, 2, 3)", 6),
    ("SELECT id FROM t WHERE ts >= TO_TIMESTAMP_LTZ(1711844340000, 3)", 2),
    ("SELECT id FROM t WHERE ts BETWEEN CAST('2024-03-31 00:19:00' AS TIMESTAMP_LTZ(3)) AND CURRENT_TIMESTAMP", 2),
    ("SELECT id FROM t WHERE wall >= TIMESTAMP '2024-03-31 00:03:00'", 19),
    ("SELECT id FROM t WHERE ts >= NOW() - INTERVAL '20000' DAY", 20),
    ("SELECT id FROM default_database.t WHERE o >= 7", 6),
    ("SELECT d.id FROM default_catalog.default_database.t AS d WHERE o >= 7", 6),
    ("SELECT id FROM v WHERE id > 3", 10),
    ("SELECT id FROM t /*+ OPTIONS('scan.startup.mode' = 'earliest-offset') */ WHERE o > 4", 10),
    ("SELECT id FROM t WHERE o > 4 AND (id > 15 OR id IS NULL OR (id > 3 AND id < 8))", 10),
    ("SELECT u.x, t.id FROM u LEFT JOIN t ON u.x = t.id WHERE t.o > 2", None),
    ("SELECT u.x, t.id FROM u LEFT JOIN t ON u.x = t.id WHERE t.id IS NULL OR t.o > 2", None),
    ("SELECT id FROM t WHERE o > 4 UNION ALL SELECT id FROM t WHERE o < 2", 40),
]


@pytest.fixture
def filled(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> TableEnvironment:
    """An environment with the table `t` of two partitions, whose times are out of order, and views."""
    name = topic(cluster_a, partitions=2, config=FOR_EVER)
    producer = Producer({"bootstrap.servers": cluster_a.bootstrap_servers, "enable.idempotence": True})
    for i in range(20):
        producer.produce(name, str(i).encode(), partition=i % 2, timestamp=_START_MS + (i * 7 % 20) * 60_000)
    assert producer.flush(30) == 0
    create(env, "t", _COLUMNS, on(cluster_a, name, format="csv") | {"maxRecordsPerPartition": "1"})
    env.execute_sql("CREATE VIEW u AS SELECT * FROM (VALUES (1), (8), (19), (100)) AS n (x)")
    env.execute_sql("CREATE VIEW v AS SELECT id FROM t WHERE o > 4")
    return env


def without_push_down(query: str) -> str:
    """The same query, in which no SELECT that reads the table has a condition."""
    return query.replace("FROM t", "FROM (SELECT * FROM t) AS t").replace("JOIN t", "JOIN (SELECT * FROM t) AS t")


@pytest.mark.parametrize(("query", "offsets"), QUERIES, ids=[query for query, _ in QUERIES])
def test_the_rows_are_those_of_whole_tables(filled: TableEnvironment, query: str, offsets: int | None) -> None:
    """With a task for each offset, the number of tasks is that of the offsets that are read."""
    found = rows(filled, query)
    assert found
    if offsets is not None:
        with as_batches(filled):
            assert filled.sql_query(query).rdd.getNumPartitions() == offsets
    if "OPTIONS" not in query:
        assert found == rows(filled, without_push_down(query))


_TYPES = {
    "b": "BOOLEAN",
    "i": "TINYINT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n": "DECIMAL(5, 2)",
    "w": "DECIMAL(38, 18)",
    "s": "STRING",
    "day": "DATE",
    "wall": "TIMESTAMP(6)",
    "at": "TIMESTAMP_LTZ(6)",
    "o": "BIGINT METADATA FROM 'offset'",
    "ts": "TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'",
    "local": "TIMESTAMP(3) METADATA FROM 'timestamp'",
}
_VALUES: dict[str, list[object]] = {
    "b": [True, False, None],
    "i": [-128, -1, 0, 1, 5, 127, None],
    "l": [-(2**63), -1, 0, 5, 2**53, 2**53 + 1, 2**63 - 1, None],
    "f": [0.1, -0.0, 0, 1.5, 16777216, "NaN", "Infinity", None],
    "d": [0.1, -0.0, 0, 1.5, 2.0**53, "NaN", "-Infinity", None],
    "n": ["0.10", "-1.50", "1.00", "999.99", None],
    "w": ["0.1", "1.000000000000000001", "1", "5", None],
    "s": ["", "a", "ab", "a%", "b", "ä", "\U0001f600", "1", None],
    "day": ["1969-12-31", "2024-03-31", "9999-12-31", None],
    "wall": ["2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-03-31 00:00:00", "1969-12-31 23:59:59.999999", None],
    "at": ["2024-03-31 01:30:00Z", "2024-10-27 00:30:00Z", "2024-10-27 01:30:00Z", "2024-03-30 23:00:00Z", None],
}
_WRITTEN_MS = [1_711_843_200_000 + 1_800_000 * i for i in range(7)] + [
    1_729_981_800_000 + 1_800_000 * i for i in range(7)
]
"""From 31 March 2024, 00:00 UTC, and from 26 October 2024, 22:30 UTC, every half an hour: Europe's clocks change."""
_NUMBERS = [
    "0",
    "1",
    "-1",
    "5",
    "300",
    "0.1",
    "1.5",
    "0.100",
    "1.005",
    "1E0",
    "1.5E0",
    "16777217",
    "1000000.00",
    "-(1 + 1)",
]
_NUMBERS += ["9007199254740993", "9223372036854775807", "CAST(0.1 AS FLOAT)", "CAST(1 AS DECIMAL(38, 30))"]
_TIMES = [
    *("DATE '2024-03-31'", "TIMESTAMP '2024-03-31 02:30:00'", "TIMESTAMP '2024-10-27 02:30:00'", "NOW()"),
    *("CAST('2024-03-31 03:30:00' AS TIMESTAMP_LTZ(3))", "TO_TIMESTAMP_LTZ(1711843200000, 3)", "CURRENT_TIMESTAMP"),
    *("NOW() - INTERVAL '1' HOUR", "TIMESTAMP '2024-03-31 02:30:00' - INTERVAL '3' HOUR", "CURRENT_DATE"),
]
_CONSTANTS = {
    **dict.fromkeys("ilfdnwo", _NUMBERS),
    **dict.fromkeys(("day", "wall", "at", "ts", "local"), _TIMES),
    "b": ["TRUE", "FALSE"],
    "s": ["''", "'a'", "'a%'", "'ä'", "'\U0001f600'", "'b' || 'c'", "U&'\\0061'"],
}


def conditions(seed: int, count: int) -> list[str]:
    """Random conditions."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        column = chance.choice(list(_TYPES))
        one, other, third = (chance.choice(_CONSTANTS[column]) for _ in range(3))
        sign = chance.choice(["=", "<>", "<", "<=", ">", ">="])
        shapes = [f"{column} {sign} {one}", f"{one} {sign} t.{column}", f"{column} BETWEEN {one} AND {other}"]
        shapes += [f"{column} IN ({one}, {other}, {third})", f"({column} {sign} {one} AND {column} <> {other})"]
        shapes += [f"({column} {sign} {one} OR i IS NULL)", f"(({column} {sign} {one} AND l > 0) OR {column} IS NULL)"]
        shapes += [f"{column} IS NOT NULL", f"(NOT {column} IS NULL OR {column} {sign} {one})"]
        shapes += [f"{column} NOT IN ({one}, {other})", f"{column} NOT BETWEEN {one} AND {other}"]
        shapes += {
            "b": ["b", "NOT b"],
            "s": ["s LIKE 'a%'", "s NOT LIKE 'a%'", "s LIKE '_%'", "s LIKE 'a!%%' ESCAPE '!'"],
        }.get(column, [])
        found.append(chance.choice(shapes))
    return found


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_no_row_is_left_out_that_spark_would_keep(
    spark: SparkSession, env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, zone: str
) -> None:
    """For random conditions on all types, with NULL, NaN, the ends of types, and times that clocks have twice or never."""
    name = topic(cluster_a, config=FOR_EVER)
    messages = [{"id": i, **{c: values[i % len(values)] for c, values in _VALUES.items()}} for i in range(27)]
    producer = Producer({"bootstrap.servers": cluster_a.bootstrap_servers, "enable.idempotence": True})
    for i, message in enumerate(messages):
        producer.produce(name, json.dumps(message).encode(), partition=0, timestamp=_WRITTEN_MS[i % len(_WRITTEN_MS)])
    assert producer.flush(30) == 0
    create(env, "t", ", ".join(f"{c} {type_}" for c, type_ in {"id": "INT", **_TYPES}.items()), on(cluster_a, name))
    taken = 0
    with session(spark, session_timeZone=zone), as_batches(env):
        tried = conditions(7, 200)
        truth = ", ".join(f"({one}) IS TRUE" for one in tried)
        whole = env.sql_query(f"SELECT *, {truth} FROM t").toArrow().combine_chunks().to_batches()[0]
        columns = dict(zip(["id", *_TYPES], whole.columns, strict=False))
        of_source = {"offset": columns.pop("o"), "timestamp": columns.pop("ts")}
        of_source["value"] = pa.StructArray.from_arrays([*columns.values()], [*columns])
        batch = pa.record_batch(of_source)
        table = env._catalog.tables["t"]
        assert isinstance(table, KafkaTable)
        for one, wanted in zip(tried, whole.columns[-len(tried) :], strict=True):
            query = parse_query(f"SELECT id FROM t WHERE {one}")
            text = env._queries._wanted(query, [len("SELECT id FROM ")], table)
            if text:
                taken += 1
                where = expression_of(from_text(text), batch.schema)
                assert where is not None
                kept = set(batch.filter(where)["value"].field("id").to_pylist())
                missing = {i for i, true in enumerate(wanted.to_pylist()) if true} - kept
                assert not missing, f"{one}: {[messages[i] for i in missing]}"
        assert taken > 80
        with session(spark, caseSensitive="true"):
            assert not env._queries._wanted(query, [len("SELECT id FROM ")], table)


def test_rows_that_a_query_does_not_want_are_not_handed_over(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Also of a table that counts what it skips. A message that cannot be read is still an error."""
    name = topic(cluster_a)
    messages = [{"id": i, "s": "ab"[i % 2], "d": "NaN" if i == 5 else i / 2} for i in range(8)] + [{"id": None}]
    produce(cluster_a.bootstrap_servers, name, [(None, json.dumps(one).encode()) for one in messages], partition=0)
    create(env, "t", "id BIGINT, s STRING, d DOUBLE", on(cluster_a, name))
    create(env, "skipping", "id BIGINT, s STRING, d DOUBLE", {**on(cluster_a, name), "format.on-error": "skip"})
    wanted = {
        "s = 'a' AND id > 3": 2,
        "s IS NULL OR id = 2": 2,
        "id = 7 OR (s = 'a' AND d < 2)": 3,
        "d > 2.5": 3,
        "id IN (1, 2)": 2,
        "s LIKE 'b%'": 4,
    }
    with as_batches(env):
        for condition, count in wanted.items():
            df = env.sql_query(f"SELECT id FROM t WHERE {condition}")
            assert (df.count(), handed_over(df)) == (count, count)
        ((plan,),) = env.execute_sql("EXPLAIN SELECT id FROM t WHERE s = 'a' AND id > 3").collect()
        assert plan.endswith(
            "The source of t leaves out rows, and offsets where it can: value.s = 'a' AND value.id > 3\n"
        )
        both = env.sql_query("SELECT * FROM t WHERE id < 2")
        assert (both.where("id = 0").count(), both.count(), both.union(both).count()) == (1, 2, 4)
        produce(cluster_a.bootstrap_servers, name, [(None, b"{")], partition=0)
        with pytest.raises(PySparkException, match="offset 9: the value cannot be read as json"):
            env.sql_query("SELECT id FROM t WHERE s = 'nobody'").collect()
        skipping = env.sql_query("SELECT id FROM skipping WHERE s = 'a' AND id > 3")
        assert (skipping.count(), handed_over(skipping)) == (2, 3)
