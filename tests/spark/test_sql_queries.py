"""Queries of Flink over Kafka tables: windows of a stream, elements of arrays, options in hints, errors at their place."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, create_json, first_rows, records, rows

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_windows_of_a_stream(env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Computed event time, TUMBLE, AVG of whole numbers: each window is written once, when the watermark has passed it."""
    source, sink = topic(cluster_a), topic(cluster_a)
    times = [0, 20_000, 59_999, 60_000, 200_000]
    messages = [
        (None, json.dumps({"n": n, "ms": ms, "tags": ["a", "b"]})) for n, ms in zip((1, 2, 5, 7, 0), times, strict=True)
    ]
    produce(cluster_a.bootstrap_servers, source, messages)
    columns = "n INT, ms BIGINT, tags ARRAY<STRING>, ts AS TO_TIMESTAMP_LTZ(ms, 3), "
    columns += "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    create_json(env, "s", columns, cluster_a, source)
    create_json(env, "t", "w TIMESTAMP(3), total INT, mean INT", cluster_a, sink)
    (query,) = env.execute_sql(
        "INSERT INTO t SELECT window_start, SUM(n), AVG(n) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    ).queries
    query.processAllAvailable()
    query.stop()
    written = [json.loads(got.value or b"") for got in records(cluster_a, sink)]
    assert sorted(written, key=lambda row: str(row["w"])) == [
        {"w": "1970-01-01 00:00:00", "total": 8, "mean": 2},
        {"w": "1970-01-01 00:01:00", "total": 7, "mean": 7},
    ]
    assert env.sql_query("SELECT n, tag FROM s CROSS JOIN UNNEST(tags) AS u(tag)").isStreaming
    env.get_config().set("execution.runtime-mode", "batch")
    assert rows(env, "SELECT n / 2, tags[2], tag FROM s CROSS JOIN UNNEST(tags) AS u(tag) WHERE n = 7") == [
        (3, "b", "a"),
        (3, "b", "b"),
    ]


def test_streams_joined_by_a_comma(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Two streams with a comma between them are joined by the condition of WHERE, also where a part is translated."""
    source = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps({"id": n, "ms": 1000 * n + 1})) for n in range(4)])
    columns = "id INT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    for name in ("a", "b"):
        create_json(env, name, columns, cluster_a, source)
    query = "SELECT a.id, b.id / 2 FROM a, b WHERE a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '4' SECOND"
    assert first_rows(env, query, 4) == [(0, 0), (1, 0), (2, 1), (3, 1)]


@pytest.mark.slow
def test_ranks_of_a_stream(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """The newest row of each key, the first two of each, and the first of each window. Offsets decide between equal ones."""
    source = topic(cluster_a)
    columns = "k STRING, n INT, ms BIGINT, id INT, ts AS TO_TIMESTAMP_LTZ(ms, 3)"
    create_json(env, "s", f"{columns}, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", cluster_a, source)
    sinks = {name: topic(cluster_a) for name in ("newest", "best", "of_window")}
    upsert = {"connector": "upsert-kafka", "key_format": "json", "value_format": "json"}
    keys = {"newest": ("k", "k STRING, id INT"), "best": ("k, r", "k STRING, id INT, r BIGINT")}
    keys["of_window"] = ("w", "w TIMESTAMP(3), id INT")
    for name, (key, listed) in keys.items():
        create_json(env, name, f"{listed}, PRIMARY KEY ({key}) NOT ENFORCED", cluster_a, sinks[name], **upsert)
    rank = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {} DESC) AS r FROM {}"
    env.execute_sql(f"CREATE VIEW by_time AS {rank.format('k', 'ts', 's')}")
    window = rank.format("window_start, window_end", "n", "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))")
    inserts = {
        "newest": "SELECT k, id FROM by_time WHERE r = 1",
        "best": f"SELECT k, id, r FROM ({rank.format('k', 'n', 's')}) WHERE r <= 2",
        "of_window": f"SELECT window_start, id FROM ({window}) WHERE r = 1",
    }
    batches = [
        [("a", 5, 0, 1), ("a", 5, 0, 2), ("a", 7, 1000, 3), ("b", 1, 500, 4)],
        [("a", 7, 1000, 5), ("a", 9, 200, 6), ("b", 1, 500, 7), ("b", 0, 90_000, 8)],
    ]
    statements = env.create_statement_set()
    for name, query in inserts.items():
        statements.add_insert_sql(f"INSERT INTO {name} {query}")
    running: Sequence[StreamingQuery] = ()
    for batch in batches:
        messages = [(None, json.dumps(dict(zip(("k", "n", "ms", "id"), row, strict=True)))) for row in batch]
        produce(cluster_a.bootstrap_servers, source, messages)
        running = running or statements.execute().queries
        for started in running:
            started.processAllAvailable()
    for started in running:
        started.stop()
    found = {name: {got.key: json.loads(got.value or b"") for got in records(cluster_a, sinks[name])} for name in sinks}
    assert sorted((row["k"], row["id"]) for row in found["newest"].values()) == [("a", 5), ("b", 8)]
    best = [("a", 1, 6), ("a", 2, 3), ("b", 1, 4), ("b", 2, 7)]
    assert sorted((row["k"], row["r"], row["id"]) for row in found["best"].values()) == best
    assert [row["id"] for row in found["of_window"].values()] == [6]
    assert len(records(cluster_a, sinks["of_window"])) == 1
    with pytest.raises(ConfigurationError, match=r"The PRIMARY KEY of table `of_window` is not the key"):
        env.execute_sql("INSERT INTO of_window SELECT ts, id FROM by_time WHERE r = 1")
    with pytest.raises(SqlError, match="takes the earlier ones back"):
        env.sql_query("SELECT COUNT(*) FROM by_time WHERE r = 1")


def test_sessions(env: TableEnvironment) -> None:
    """Rows that are exactly a gap apart are in one session, as in Flink (`TimeWindow.intersects`)."""
    env.execute_sql(
        "CREATE VIEW clicks AS SELECT k, TO_TIMESTAMP(s) AS ts FROM (VALUES ('a', '2024-01-01 00:00:00'), "
        "('a', '2024-01-01 00:05:00'), ('a', '2024-01-01 00:10:01'), ('b', '2024-01-01 00:03:00')) AS v(k, s)"
    )
    session = "TABLE(SESSION(TABLE clicks PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES))"
    bounds = "DATE_FORMAT(window_start, 'mm:ss'), DATE_FORMAT(window_end, 'mm:ss')"
    expected = [("00:00", "10:00", "a", 2), ("03:00", "08:00", "b", 1), ("10:01", "15:01", "a", 1)]
    found = rows(env, f"SELECT {bounds}, k, COUNT(*) FROM {session} GROUP BY window_start, window_end, k")
    assert sorted(found) == expected
    in_group = "SESSION(ts, INTERVAL '5' MINUTE)"
    bounds = ", ".join(f"DATE_FORMAT(SESSION_{end}(ts, INTERVAL '5' MINUTE), 'mm:ss')" for end in ("START", "END"))
    assert sorted(rows(env, f"SELECT {bounds}, k, COUNT(*) FROM clicks GROUP BY k, {in_group}")) == expected


def test_options_of_a_table_in_a_query(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """They hold for this query only; another option is checked as that of a table is."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, json.dumps({"id": i})) for i in range(3)])
    create_json(env, "s", "id INT", cluster_a, name)
    env.get_config().set("execution.runtime-mode", "batch")
    options = "'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:2'"
    hint = f"/*+ OPTIONS({options}) */"
    assert rows(env, f"SELECT s.id FROM s {hint}") == [(2,)]
    assert len(rows(env, "SELECT id FROM s")) == 3
    with pytest.raises(ConfigurationError, match=r"scan\.startup\.mod"):
        env.sql_query("SELECT * FROM s /*+ OPTIONS('scan.startup.mod' = 'earliest-offset') */")


def test_errors_show_the_place_in_the_statement(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Ours, and Spark's of a query that it got in other words."""
    create_json(env, "s", "id INT", cluster_a, topic(cluster_a))
    with pytest.raises(SqlError, match="multisets") as found:
        env.execute_sql("EXPLAIN\nSELECT COLLECT(id)\nFROM s")
    assert (found.value.line, found.value.column) == (2, 8)
    with pytest.raises(SqlError, match="missing") as found:
        env.execute_sql("SELECT id / 2,\n  missing FROM s")
    assert (found.value.line, found.value.column) == (2, 3)
    with pytest.raises(
        ConfigurationError, match=r"Column 'c' of table `u` cannot be computed: COLLECT is not the same"
    ):
        create_json(env, "u", "id INT, c AS COLLECT(id)", cluster_a, "u")
    with pytest.raises(
        ConfigurationError, match=r"Column 'c' of table `u` cannot be computed: There is no function `mine`"
    ):
        create_json(env, "u", "id INT, c AS CAST(mine(id) AS STRING)", cluster_a, "u")
    for query, column, problem in (
        ("SELECT mine(id) FROM s", 8, "There is no function `mine` here.*spark.udf.register"),
        ("SELECT CAST(mine(id) AS STRING) FROM s", 13, "There is no function `mine` here"),
        ("SELECT AVG(id) FROM elsewhere", 21, "Table `elsewhere` does not exist; see SHOW TABLES"),
        ("SELECT * FROM mine(TABLE s PARTITION BY id, 3)", 20, "Syntax error"),
    ):
        with pytest.raises(SqlError, match=problem) as found:
            env.sql_query(query)
        assert found.value.column == column, query


def test_values_with_calls(env: TableEnvironment) -> None:
    """Spark's VALUES calculates less than Flink's; examples insert times so."""
    query = (
        "SELECT a, DATE_FORMAT(t, 'HH:mm') FROM (VALUES (1, TO_TIMESTAMP('2024-01-01 10:20:30')), (2, NULL)) AS v(a, t)"
    )
    assert rows(env, query) == [(1, "10:20"), (2, None)]
    assert env.sql_query(query).rdd.getNumPartitions() == 1
