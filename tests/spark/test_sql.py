"""`TableEnvironment` as a Flink user meets it: statements, reading, writing, restarts, broken messages."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.spark.tables import FOR_EVER, Topic, create_json, records, rows

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_the_first_example_of_flinks_documentation(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """CSV, and the record's timestamp as a column; a query is Spark's own SQL."""
    name = topic(cluster_a, config=FOR_EVER)
    produce(cluster_a.bootstrap_servers, name, [(None, "1,10,buy"), (None, "2,20,pv")], timestamp_ms=1_600_000_000_123)
    env.execute_sql(
        f"""CREATE TABLE KafkaTable (
          `user_id` BIGINT,
          `item_id` BIGINT,
          `behavior` STRING,
          `ts` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
        ) WITH (
          'connector' = 'kafka',
          'topic' = '{name}',
          'properties.bootstrap.servers' = '{cluster_a.bootstrap_servers}',
          'properties.group.id' = 'testGroup',
          'scan.startup.mode' = 'earliest-offset',
          'format' = 'csv'
        )"""
    )
    found = rows(env, "SELECT user_id, upper(behavior), unix_millis(ts) FROM KafkaTable")
    assert found == [(1, "BUY", 1_600_000_000_123), (2, "PV", 1_600_000_000_123)]


def test_all_metadata(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Each key of the documentation, with its type or one it can be cast to."""
    name = topic(cluster_a, config=FOR_EVER)
    produce(
        cluster_a.bootstrap_servers,
        name,
        [(None, '{"id": 1}')],
        headers=[("a", b"1"), ("b", None), ("a", b"2")],
        timestamp_ms=1_600_000_000_123,
    )
    columns = """id INT, topic STRING METADATA, p BIGINT METADATA FROM 'partition' VIRTUAL,
      headers MAP<STRING, BYTES> METADATA, l ARRAY<ROW<key STRING, value BYTES>> METADATA FROM 'header-list' VIRTUAL,
      e INT METADATA FROM 'leader-epoch' VIRTUAL, `offset` BIGINT METADATA VIRTUAL,
      `timestamp` TIMESTAMP(3) METADATA, `timestamp-type` STRING METADATA VIRTUAL, kafka_cluster STRING METADATA VIRTUAL"""
    create_json(env, "t", columns, cluster_a, name)
    ((id_, topic_, partition, headers, listed, epoch, offset, time, kind, cluster),) = rows(env, "SELECT * FROM t")
    assert (id_, topic_, partition, epoch, offset, kind, cluster) == (1, name, 0, 0, 0, "CreateTime", "kafka")
    assert headers == {"a": b"2", "b": None}
    assert [(h.key, h.value) for h in listed] == [("a", b"1"), ("b", None), ("a", b"2")]
    assert time.isoformat() == "2020-09-13T12:26:40.123000"


def test_a_round_trip_is_exact_on_the_wire(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Keys in another order than the columns, a prefix because of a clash, EXCEPT_KEY, timestamp and headers written."""
    name = topic(cluster_a, config=FOR_EVER)
    create_json(
        env,
        "t",
        """`k_version` INT, `k_user_id` BIGINT, `version` INT, `behavior` STRING,
           ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', h MAP<STRING, BYTES> METADATA FROM 'headers'""",
        cluster_a,
        name,
        key_format="json",
        key_fields="k_user_id;k_version",
        **{"key_fields-prefix": "k_", "value_fields-include": "EXCEPT_KEY", "value_format": "json"},
    )
    env.get_config().set("execution.runtime-mode", "batch")
    env.execute_sql(
        "INSERT INTO t VALUES (7, 1001, 2, 'buy', timestamp_millis(1600000000123), map('trace', X'0102')), "
        "(8, 1002, 3, NULL, timestamp_millis(1600000000124), NULL)"
    )
    first, second = sorted(records(cluster_a, name), key=lambda got: got.key or b"")
    assert first.key == b'{"user_id":1001,"version":7}'
    assert first.value == b'{"version":2,"behavior":"buy"}'
    assert first.headers == [("trace", b"\x01\x02")]
    assert first.timestamp == 1_600_000_000_123
    assert second.value == b'{"version":3,"behavior":null}'
    assert second.headers is None
    found = rows(env, "SELECT k_version, k_user_id, version, behavior, unix_millis(ts) FROM t")
    assert found == [(7, 1001, 2, "buy", 1_600_000_000_123), (8, 1002, 3, None, 1_600_000_000_124)]


def test_an_insert_goes_on_after_a_restart(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Its checkpoint is in a folder of its own, named after the table: each row once, also with exactly-once."""
    source, sink = topic(cluster_a), topic(cluster_a)
    create_json(env, "s", "id INT", cluster_a, source)
    guarantee = {"sink_delivery-guarantee": "exactly-once", "sink_transactional-id-prefix": sink}
    create_json(env, "t", "id INT", cluster_a, sink, **guarantee, properties_isolation_level="read_committed")
    for first in (0, 5):
        produce(cluster_a.bootstrap_servers, source, [(None, json.dumps({"id": i})) for i in range(first, first + 5)])
        result = env.execute_sql("INSERT INTO t SELECT id * 10 FROM s")
        (query,) = result.queries
        assert query.name == "t"
        query.processAllAvailable()
        result.stop()
    assert rows(env, "SELECT * FROM t") == [(i * 10,) for i in range(10)]


@pytest.mark.slow
def test_a_table_that_ends_ends_its_job(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """`scan.bounded.mode`: `wait` returns when all is read."""
    source, sink = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps({"id": i})) for i in range(5)])
    create_json(env, "s", "id INT", cluster_a, source, scan_bounded_mode="latest-offset")
    create_json(env, "t", "id INT", cluster_a, sink)
    assert env.execute_sql("INSERT INTO t SELECT id FROM s").wait(60_000)
    assert len(rows(env, "SELECT * FROM t")) == 5


@pytest.mark.slow
def test_collecting_a_stream(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Rows come as they are there; a bounded stream ends, if the mode is streaming."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, json.dumps({"id": i})) for i in range(5)])
    create_json(env, "s", "id INT", cluster_a, name, scan_bounded_mode="latest-offset")
    env.get_config().set("execution.runtime-mode", "streaming")
    assert env.from_path("s").isStreaming
    assert sorted(row.id for row in env.execute_sql("SELECT * FROM s").collect()) == [0, 1, 2, 3, 4]


def test_a_query_of_bounded_tables_is_a_batch(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """One answer, ORDER BY and LIMIT, and an INSERT that is done when it returns; a stream if one table has no end."""
    source, sink = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps({"id": i})) for i in range(5)])
    create_json(env, "s", "id INT", cluster_a, source, scan_bounded_mode="latest-offset")
    create_json(env, "endless", "id INT", cluster_a, source)
    guarantee = {"sink_delivery-guarantee": "exactly-once", "sink_transactional-id-prefix": sink}
    create_json(env, "t", "id INT", cluster_a, sink, **guarantee)
    env.execute_sql("CREATE VIEW v AS SELECT id FROM s")
    assert [row[0] for row in env.execute_sql("SELECT count(*) FROM v").collect()] == [5]
    assert [row.id for row in env.execute_sql("SELECT id FROM s ORDER BY id DESC LIMIT 2").collect()] == [4, 3]
    assert env.execute_sql("INSERT INTO t SELECT id FROM v WHERE id < 2").queries == ()
    assert sorted(got.value or b"" for got in records(cluster_a, sink)) == [b'{"id":0}', b'{"id":1}']
    assert env.sql_query("SELECT v.id FROM v JOIN endless USING (id)").isStreaming
    assert env.sql_query("SELECT id FROM s UNION ALL SELECT id FROM endless").isStreaming
    assert not env.sql_query("SELECT id FROM s").isStreaming
    env.get_config().set("execution.runtime-mode", "batch")
    with pytest.raises(ConfigurationError, match=r"Table `endless` has no end, .* OPTIONS\('scan.bounded.mode'"):
        env.sql_query("SELECT id FROM endless JOIN s USING (id)")
    ended = "SELECT max(id) FROM endless /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */"
    assert [row[0] for row in env.execute_sql(ended).collect()] == [4]


@pytest.mark.slow
def test_another_thread_than_the_sessions(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """It writes and reads, in batches and streams, also in a session that is not the first one of the program."""
    for of_thread in (env, TableEnvironment(spark.newSession())):
        of_thread.get_config().set("execution.checkpointing.dir", str(tmp_path / str(id(of_thread))))
        source, sink = topic(cluster_a), topic(cluster_a)
        create_json(of_thread, "s", "id INT", cluster_a, source)
        create_json(of_thread, "t", "id INT", cluster_a, sink)

        def work(of_thread: TableEnvironment = of_thread) -> list[int]:
            of_thread.execute_sql("INSERT INTO s VALUES (1), (2)")
            (query,) = of_thread.execute_sql("INSERT INTO t SELECT id FROM s").queries
            query.processAllAvailable()
            query.stop()
            ended = "/*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */"
            return sorted(row.id for row in of_thread.execute_sql(f"SELECT id FROM t {ended}").collect())

        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(work).result() == [1, 2]


def test_upsert(env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """An aggregation keeps one message for each key up to date; deletes are tombstones, and read as `-D`."""
    source, sink = topic(cluster_a), topic(cluster_a)
    words = [(None, json.dumps({"word": word})) for word in ["a", "b", "a"]]
    produce(cluster_a.bootstrap_servers, source, words)
    create_json(env, "s", "word STRING", cluster_a, source)
    upsert = {"connector": "upsert-kafka", "key_format": "json", "value_format": "json"}
    columns = "word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED"
    create_json(env, "counts", columns, cluster_a, sink, **upsert)
    (query,) = env.execute_sql("INSERT INTO counts SELECT word, count(*) FROM s GROUP BY word").queries
    query.processAllAvailable()
    produce(cluster_a.bootstrap_servers, source, words[1:2])
    changed = b'{"word":"b","n":2}'
    wait_until(lambda: any(got.value == changed for got in records(cluster_a, sink)), 60, "the row that has changed")
    query.stop()
    produce(cluster_a.bootstrap_servers, sink, [(b'{"word":"a"}', None)])
    changes = [("a", 2, "+U"), ("a", None, "-D"), ("b", 1, "+U"), ("b", 2, "+U")]
    assert rows(env, "SELECT * FROM counts") == sorted(changes, key=str)


@pytest.mark.slow
def test_deletes_are_written_as_tombstones(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """A query that ends in `row_kind` says what each row means."""
    name = topic(cluster_a)
    upsert = {"connector": "upsert-kafka", "key_format": "json", "value_format": "json"}
    create_json(env, "t", "id INT, n INT, PRIMARY KEY (id) NOT ENFORCED", cluster_a, name, **upsert)
    env.get_config().set("execution.runtime-mode", "batch")
    env.execute_sql(
        "INSERT INTO t SELECT * FROM VALUES (1, 10, '+I'), (2, 20, '-D'), (3, 30, '+U') AS v(id, n, row_kind)"
    )
    found = sorted((got.key, got.value) for got in records(cluster_a, name))
    assert found == [
        (b'{"id":1}', b'{"id":1,"n":10}'),
        (b'{"id":2}', None),
        (b'{"id":3}', b'{"id":3,"n":30}'),
    ]


def test_updates_need_a_table_that_takes_them(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """As in Flink, an append-only sink refuses an aggregation without a window, and a changelog."""
    source, sink = topic(cluster_a), topic(cluster_a)
    create_json(env, "s", "word STRING", cluster_a, source)
    create_json(env, "t", "word STRING, n BIGINT", cluster_a, sink)
    with pytest.raises(ConfigurationError, match="accepts only new rows, but the query updates earlier ones"):
        env.execute_sql("INSERT INTO t SELECT word, count(*) FROM s GROUP BY word")
    with pytest.raises(ConfigurationError, match="accepts only new rows"):
        env.execute_sql("INSERT INTO t SELECT word, 1L, '-D' AS row_kind FROM s")


def test_computed_columns_and_views(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """They are expressions on the other columns; a view on a table, and one on a view."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, '{"price": 3, "n": 4}')])
    create_json(env, "s", "price INT, n INT, total AS price * n, double AS total * 2", cluster_a, name)
    env.execute_sql("CREATE VIEW v AS SELECT double FROM s")
    env.execute_sql("CREATE TEMPORARY VIEW w (d) AS SELECT double + 1 FROM v")
    assert rows(env, "SELECT d FROM w") == [(25,)]
    assert [tuple(r) for r in env.execute_sql("SHOW VIEWS").collect()] == [("v",), ("w",)]
    env.execute_sql("DROP VIEW w")
    with pytest.raises(AnalysisException):
        env.sql_query("SELECT * FROM w")


@pytest.mark.slow
def test_a_message_that_cannot_be_read_fails_the_query(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """The error says where it is and how it begins, whatever the query selects."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, '{"id": 1}'), (None, b'{"id": tru\xff')])
    create_json(env, "s", "id INT, `offset` BIGINT METADATA VIRTUAL", cluster_a, name)
    for query in ("SELECT id FROM s", "SELECT `offset` FROM s", "SELECT count(*) FROM s"):
        with pytest.raises(PySparkException) as caught:
            rows(env, query)
        assert f"Cluster 'kafka', topic '{name}', partition 0, offset 1: the value cannot be read as json" in str(
            caught.value
        )
        assert "7B226964223A20747275FF" in str(caught.value)


@pytest.mark.slow
def test_messages_that_cannot_be_read_are_skipped_and_counted(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """The count is in the query's progress."""
    source, sink = topic(cluster_a), topic(cluster_a)
    produce(
        cluster_a.bootstrap_servers, source, [(None, '{"id": 1}'), (None, b"\xff"), (None, "[]x"), (None, '{"id": 2}')]
    )
    create_json(env, "s", "id INT", cluster_a, source, **{"format_on-error": "skip"})
    create_json(env, "t", "id INT", cluster_a, sink)
    (query,) = env.execute_sql("INSERT INTO t SELECT id FROM s").queries
    query.processAllAvailable()
    assert rows(env, "SELECT * FROM t") == [(1,), (2,)]
    counted = [p.observedMetrics.get("dynamic-kafka: s") for p in query.recentProgress]
    assert sum(row["skip"] for row in counted if row is not None) == 2


def test_messages_that_cannot_be_read_are_set_aside(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic
) -> None:
    """As they were, with the error and where they come from in headers; here on another cluster."""
    name, letters = topic(cluster_a), topic(cluster_b)
    produce(cluster_a.bootstrap_servers, name, [("k", '{"id": 1}'), ("broken", b"\xff\x00")])
    create_json(
        env,
        "s",
        "id INT",
        cluster_a,
        name,
        **{
            "format_on-error": "dead-letter",
            "format_dead-letter_topic": letters,
            "format_dead-letter_properties_bootstrap_servers": cluster_b.bootstrap_servers,
        },
    )
    assert rows(env, "SELECT * FROM s") == [(1,)]
    (letter,) = records(cluster_b, letters)
    assert (letter.key, letter.value) == (b"broken", b"\xff\x00")
    headers = {key.removeprefix("dynamic-kafka."): (value or b"").decode() for key, value in letter.headers or []}
    assert "the value cannot be read as json" in headers.pop("error")
    assert headers == {"cluster": "kafka", "topic": name, "partition": "0", "offset": "1"}


def test_statements_about_tables(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """SHOW, DESCRIBE, SHOW CREATE TABLE without secrets, DROP."""
    secret = {"properties_ssl_key_password": "hidden"}
    create_json(env, "a1", "id INT NOT NULL COMMENT 'the key', twice AS id * 2", cluster_a, topic(cluster_a), **secret)
    create_json(env, "b1", "id INT", cluster_a, topic(cluster_a))
    assert env.list_tables() == ["a1", "b1"]
    assert [tuple(r) for r in env.execute_sql("SHOW TABLES LIKE 'a%'").collect()] == [("a1",)]
    described = [tuple(row) for row in env.execute_sql("DESCRIBE a1").collect()]
    assert described == [
        ("id", "INT", False, None, None, None, "the key"),
        ("twice", "INT", True, None, "AS id * 2", None, None),
    ]
    ((ddl,),) = env.execute_sql("SHOW CREATE TABLE a1").collect()
    assert "hidden" not in ddl
    assert "`twice` AS id * 2" in ddl
    env.execute_sql("DROP TABLE a1")
    env.execute_sql("DROP TABLE IF EXISTS a1")
    with pytest.raises(ConfigurationError, match="Table `a1` does not exist"):
        env.execute_sql("DROP TABLE a1")


def test_errors_of_the_statement(env: TableEnvironment) -> None:
    """Where, and the line itself; a table that is there twice; a table that is not there."""
    with pytest.raises(SqlError, match=r"Line 2, column \d+") as caught:
        env.execute_sql("CREATE TABLE t (\n  id BIGINTT\n) WITH ('connector' = 'kafka')")
    assert "id BIGINTT" in str(caught.value)
    with pytest.raises(ConfigurationError, match="Table `t` does not exist"):
        env.execute_sql("INSERT INTO t SELECT 1")
    with pytest.raises(AnalysisException, match="nowhere"):
        env.sql_query("SELECT * FROM nowhere")


def test_columns_that_do_not_fit(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """The error shows both schemas, as Flink's does; read-only metadata is named."""
    name = topic(cluster_a)
    create_json(env, "t", "id INT, name STRING, p INT METADATA FROM 'partition' VIRTUAL", cluster_a, name)
    with pytest.raises(ConfigurationError, match="different number of columns") as caught:
        env.execute_sql("INSERT INTO t SELECT 1")
    assert "Table: [id: INT, name: STRING]" in str(caught.value)
    with pytest.raises(ConfigurationError, match="column 'name' is STRING, but the query's 'two' is INT"):
        env.execute_sql("INSERT INTO t SELECT 1, 2 AS two")
    create_json(env, "u", "id INT, o BIGINT METADATA FROM 'offset'", cluster_a, name)
    with pytest.raises(ConfigurationError, match="METADATA FROM 'offset', which cannot be written"):
        env.execute_sql("INSERT INTO u SELECT 1, 2L")


def test_reading_needs_a_start_or_a_group(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Flink's default start is the group's offsets; a table without both can be written to."""
    servers = cluster_a.bootstrap_servers
    env.execute_sql(
        f"CREATE TABLE t (id INT) WITH ('connector' = 'kafka', 'topic' = '{topic(cluster_a)}', 'format' = 'json', "
        f"'properties.bootstrap.servers' = '{servers}')"
    )
    env.execute_sql("INSERT INTO t SELECT 1")
    with pytest.raises(ConfigurationError, match=r"'group-offsets' needs 'properties\.group\.id'"):
        env.sql_query("SELECT * FROM t")


@pytest.mark.slow
def test_a_statement_set(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Each INSERT is a query with a checkpoint of its own, also two into one table; none starts if one is wrong."""
    source, sink = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, '{"id": 1}')])
    create_json(env, "s", "id INT", cluster_a, source)
    create_json(env, "t", "id INT", cluster_a, sink)
    with pytest.raises(ConfigurationError):
        env.execute_sql(
            "EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT id FROM s; INSERT INTO t SELECT id, 1 FROM s; END"
        )
    statements = env.create_statement_set()
    statements.add_insert_sql("INSERT INTO t SELECT id FROM s").add_insert_sql("INSERT INTO t SELECT id + 1 FROM s")
    result = statements.execute()
    assert [query.name for query in result.queries] == ["t", "t-2"]
    for query in result.queries:
        query.processAllAvailable()
    assert rows(env, "SELECT * FROM t") == [(1,), (2,)]
    result.stop()
