"""Queries read only the columns that they use, with the same rows and errors as from whole tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.queries import queries
from dynamic_kafka.testing import KafkaBroker, produce
from tests.brokers import delete_records
from tests.spark.tables import FOR_EVER, Topic, as_batches, create, on, records, rows, write
from tests.versions import SPARK

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_COLUMNS = """
    id INT, name STRING, amount DECIMAL(10, 2), day_ DATE, at_ TIMESTAMP(3), `größe` DOUBLE,
    twice AS id * 2, more AS twice + 1,
    `offset` BIGINT METADATA, time_ TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
    WATERMARK FOR at_ AS at_ - INTERVAL '1' MINUTE
"""
_LINES = [f"{i},n{i % 3},{i}.5,2024-01-{i + 1:02},2024-01-01 00:{i:02}:00,{i}.25".encode() for i in range(12)]
QUERIES = [
    "SELECT id FROM t",
    "SELECT COUNT(*) FROM t",
    "SELECT name, SUM(amount) FROM t WHERE `größe` > 3 GROUP BY name",
    "SELECT more, `offset` FROM t WHERE day_ >= DATE '2024-01-03'",
    "SELECT l.id, r.name FROM t AS l JOIN t AS r ON l.twice = r.id",
    "SELECT * FROM (SELECT name, id FROM t) WHERE id > 2",
    "SELECT name FROM t WHERE NOT EXISTS (SELECT * FROM t AS o WHERE o.id > t.id)",
    "WITH w AS (SELECT name AS n, COUNT(*) AS c FROM t GROUP BY name) SELECT n, c FROM w WHERE n <> 'n0'",
    "SELECT window_start, SUM(id) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at_), INTERVAL '5' MINUTE)) GROUP BY window_start",
    "SELECT id FROM v WHERE id > 3",
    "SELECT id, n FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY name ORDER BY time_ DESC, id) AS n FROM t) WHERE n = 1",
    "SELECT id FROM t UNION ALL SELECT twice FROM t",
]


@pytest.fixture
def filled(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> TableEnvironment:
    """An environment with the table `t`, and the view `v` of it."""
    name = topic(cluster_a, config=FOR_EVER)
    produce(cluster_a.bootstrap_servers, name, [(b"k", line) for line in _LINES], partition=0)
    create(env, "t", _COLUMNS, on(cluster_a, name, format="csv") | {"scan.bounded.mode": "latest-offset"})
    env.execute_sql("CREATE VIEW v AS SELECT id, UPPER(name) AS upper_name FROM t WHERE amount > 2")
    return env


def test_each_batch_query_reads_what_is_there(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """All columns, some, none, with conditions, by a view, by name, by an INSERT: the records of now.

    Spark keeps for a view the offsets with which its rows were planned first.
    """
    name, copies = topic(cluster_a, config=FOR_EVER), topic(cluster_a)
    create(env, "t", "id INT, name STRING", on(cluster_a, name, format="csv") | {"scan.bounded.mode": "latest-offset"})
    create(env, "copies", "id INT", on(cluster_a, copies, format="csv"))
    env.execute_sql("CREATE VIEW v AS SELECT id FROM t")
    all_rows = ["* FROM t", "id FROM t", "1 FROM t", "id FROM t WHERE id >= 0", "id FROM v"]

    def counts() -> set[int]:
        write(env, "INSERT INTO copies SELECT id FROM t")
        found = {len(rows(env, f"SELECT {query}")) for query in all_rows} | {
            env.from_path("t").count(),
            env.from_path("v").count(),
        }
        return found | {env.sql_query("SELECT COUNT(*) AS n FROM t").collect()[0]["n"]}

    with as_batches(env):
        for new, count in ((3, 3), (2, 5)):
            produce(cluster_a.bootstrap_servers, name, [(b"k", b"1,a")] * new)
            assert counts() == {count}
        delete_records(cluster_a, name, 0, before=4)
        assert counts() == {1}
    assert len(records(cluster_a, copies)) == 3 + 5 + 1


@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_are_those_of_whole_tables(
    filled: TableEnvironment, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Aggregates, joins, subqueries, windows, views, computed columns and metadata."""
    found = rows(filled, query)
    monkeypatch.setattr(queries, "used_names", lambda *_: None)
    assert found
    assert sorted(found, key=repr) == sorted(rows(filled, query), key=repr)


def test_only_used_columns_are_handed_over(spark: SparkSession, filled: TableEnvironment) -> None:
    """Also through a view. The name of the table stays that of the whole table, for Spark's own queries."""

    def fields(query: str) -> set[str]:
        with as_batches(filled):
            relation = filled.sql_query(query)._jdf.queryExecution().optimizedPlan().collectLeaves().head().schema()
        names = relation.apply("value").dataType().fieldNames()
        return {str(name) for name in names} - {"__error"}

    assert fields("SELECT id FROM t") == {"id"}
    assert fields("SELECT COUNT(*) FROM t") == set()
    assert fields("SELECT upper_name FROM v") == {"id", "name", "amount"}
    assert fields("SELECT * FROM t") == {"id", "name", "amount", "day_", "at_", "größe"}
    with as_batches(filled):
        filled.sql_query("SELECT id FROM t")
        assert spark.table("t").columns[:3] == ["id", "name", "amount"]
    with pytest.raises(PySparkException, match="`amount`"):
        filled.sql_query("SELECT amont FROM t")


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_damaged_column_counts_although_no_query_uses_it(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, policy: str
) -> None:
    """As in Flink, which decodes whole messages."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(b"k", b"1,2024-01-01"), (b"k", b"2,never"), (b"k", b"3,2024-01-03")])
    create(env, "damaged", "id INT, d DATE", on(cluster_a, name, format="csv") | {"format.on-error": policy})
    if policy == "skip":
        assert rows(env, "SELECT id FROM damaged") == [(1,), (3,)]
        assert rows(env, "SELECT COUNT(*) FROM damaged") == [(2,)]
        return
    with pytest.raises(PySparkException, match="offset 1: the value cannot be read as csv"):
        rows(env, "SELECT COUNT(*) FROM damaged WHERE id = 1")


def test_keys_of_upserts_are_read_whatever_a_query_uses(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """A deletion has the columns of its key, and a key without one of its columns is an error."""
    name = topic(cluster_a)
    records = [(b"1", b"1,a,x"), (b"2", b"2,b,y"), (b"1", None)]
    produce(cluster_a.bootstrap_servers, name, records, partition=0)
    options = on(cluster_a, name, key="csv", value="csv") | {"connector": "upsert-kafka"}
    options.pop("scan.startup.mode")
    create(env, "u", "id INT, name STRING, other STRING, PRIMARY KEY (id) NOT ENFORCED", options)
    assert rows(env, "SELECT name, row_kind FROM u") == [("a", "+U"), ("b", "+U"), (None, "-D")]
    assert rows(env, "SELECT id, row_kind FROM u") == [(1, "+U"), (1, "-D"), (2, "+U")]


def test_what_else_reads_a_table_reads_the_whole_one(spark: SparkSession, filled: TableEnvironment) -> None:
    """Functions, views of Spark, other names of the table, and other threads see all of its columns and rows."""
    with as_batches(filled):
        filled.sql_query("SELECT id FROM t")
        spark.sql("CREATE TEMPORARY FUNCTION counted(a INT) RETURNS BIGINT RETURN a * 0 + (SELECT COUNT(*) FROM t)")
        spark.sql("CREATE TEMPORARY FUNCTION most() RETURNS STRING RETURN (SELECT MAX(name) FROM t)")
        spark.sql("CREATE OR REPLACE GLOBAL TEMPORARY VIEW g AS SELECT COUNT(*) AS n FROM t")
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW w AS SELECT COUNT(*) AS n FROM t")
        spark.conf.set("x", "' OR '1' = '1")
        try:
            of_session = [  # Spark 4.1 does not know this schema
                "SELECT t.id, n FROM t, session.w AS w WHERE t.id > 9",
                "SELECT a.id, (SELECT COUNT(*) FROM session.t) FROM t AS a WHERE a.id > 9",
            ]
            for query in (
                "SELECT id, counted(0) FROM t WHERE id > 9",
                "SELECT t.id, n FROM t, global_temp.g WHERE t.id > 9",
                "SELECT t.id, n FROM t, w WHERE t.id > 9",
                *(of_session if SPARK >= (4, 2) else ()),
            ):
                assert sorted(rows(filled, query)) == [(10, len(_LINES)), (11, len(_LINES))], query
            assert set(rows(filled, "SELECT most() FROM t WHERE id > 9")) == {("n2",)}
            assert len(rows(filled, "SELECT id FROM t WHERE name = '${x}'")) == len(_LINES)
            filled.sql_query("SELECT id FROM t")
            with ThreadPoolExecutor(1) as other:
                looking = other.submit(lambda: {len(spark.table("t").columns) for _ in range(60)})
                while not looking.done():
                    filled.sql_query("SELECT id FROM t WHERE id > 3")
            assert looking.result() == {len(filled.from_path("t").columns)}
        finally:
            spark.conf.unset("x")
            for name in ("counted", "most"):
                spark.sql(f"DROP TEMPORARY FUNCTION {name}")
            spark.catalog.dropGlobalTempView("g")
            spark.catalog.dropTempView("w")


def test_a_table_is_read_in_the_time_zone_of_each_query(spark: SparkSession, filled: TableEnvironment) -> None:
    """Also if Spark's own setting was changed between two queries that use different columns."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    with as_batches(filled):
        filled.execute_sql("CREATE VIEW d AS SELECT id, CAST(CAST(at_ AS TIMESTAMP_LTZ(3)) AS STRING) AS text FROM t")
        try:
            for zone in ("UTC", "Asia/Tokyo"):
                spark.conf.set("spark.sql.session.timeZone", zone)
                both = rows(filled, "SELECT text, id FROM d WHERE id = 1")
                assert rows(filled, "SELECT text FROM d WHERE id = 1") == [both[0][:1]]
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)
