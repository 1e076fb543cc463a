"""Changes through SQL: deletions stay deletions, jobs keep their names, and what must not be null is not."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, create_json, records, rows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BOUNDED = {"scan.bounded.mode": "latest-offset"}


@pytest.fixture
def env(env: TableEnvironment) -> TableEnvironment:
    """Tables with an end are streams, too."""
    env.get_config().set("execution.runtime-mode", "streaming")
    return env


def envelope(op: str, before: Any, after: Any) -> tuple[None, str]:
    """A change as Debezium writes it."""
    return None, json.dumps({"before": before, "after": after, "op": op})


def pairs(broker: KafkaBroker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of a topic in order."""
    return [(got.key, got.value) for got in records(broker, topic)]


def changelog_table(env: TableEnvironment, broker: KafkaBroker, topic: str) -> None:
    """A table `changes` with an insert, an update and a deletion of row 1, and row 2."""
    one, two = {"id": 1, "n": "a"}, {"id": 1, "n": "b"}
    story = [envelope("c", None, one), envelope("u", one, two), envelope("d", two, None)]
    produce(broker.bootstrap_servers, topic, [*story, envelope("c", None, {"id": 2, "n": "c"})])
    create_json(env, "changes", "id INT, n STRING", broker, topic, format="debezium-json", **BOUNDED)


def upsert_table(env: TableEnvironment, name: str, broker: KafkaBroker, topic: str, **more: str) -> None:
    """An `upsert-kafka` table of JSON."""
    options = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json", **more}
    create_json(env, name, "id INT, n STRING, PRIMARY KEY (id) NOT ENFORCED", broker, topic, **options)


def test_a_projection_of_changes_keeps_them_changes(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """`INSERT INTO upsert SELECT id, n FROM debezium`: what was deleted gets a tombstone; also through a view."""
    source, sink = topic(cluster_a), topic(cluster_a)
    changelog_table(env, cluster_a, source)
    upsert_table(env, "current", cluster_a, sink)
    env.execute_sql("CREATE VIEW seen AS SELECT * FROM changes")
    for relation in ("changes", "seen"):
        env.execute_sql(f"INSERT INTO current SELECT id, upper(n) FROM {relation} WHERE id > 0").wait()
    once = [
        (b'{"id":1}', b'{"id":1,"n":"A"}'),
        (b'{"id":1}', None),
        (b'{"id":1}', b'{"id":1,"n":"B"}'),
        (b'{"id":1}', None),
        (b'{"id":2}', b'{"id":2,"n":"C"}'),
    ]
    assert pairs(cluster_a, sink) == once * 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, n FROM changes UNION ALL SELECT id, n FROM changes",
        "SELECT DISTINCT id, n FROM changes",
        "SELECT id, max(n) FROM changes GROUP BY id",
        "SELECT a.id, b.n FROM changes a JOIN changes b ON a.id = b.id",
        "SELECT id, n FROM without",
    ],
)
def test_changes_never_become_rows_in_silence(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, query: str
) -> None:
    """Where Spark cannot carry what a change means, the statement is refused; into a table of rows any is."""
    changelog_table(env, cluster_a, topic(cluster_a))
    upsert_table(env, "current", cluster_a, topic(cluster_a))
    create_json(env, "plain", "id INT, n STRING", cluster_a, topic(cluster_a))
    env.execute_sql("CREATE VIEW without AS SELECT id, n FROM changes")
    with pytest.raises(ConfigurationError, match=r"The query loses `row_kind` of changes"):
        env.execute_sql(f"INSERT INTO current {query}")
    with pytest.raises(
        ConfigurationError, match=r"Table `plain` accepts only new rows, .* reads the changes of changes"
    ):
        env.execute_sql(f"INSERT INTO plain {query}")


@pytest.mark.slow
def test_who_looks_at_row_kind_decides_himself(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Insertions only, into a table of rows; a query or a view that counts changes without a look is refused."""
    sink = topic(cluster_a)
    changelog_table(env, cluster_a, topic(cluster_a))
    create_json(env, "plain", "id INT, n STRING", cluster_a, sink)
    env.execute_sql("INSERT INTO plain SELECT id, n FROM changes WHERE row_kind = '+I'").wait()
    assert [value for _, value in pairs(cluster_a, sink)] == [b'{"id":1,"n":"a"}', b'{"id":2,"n":"c"}']
    for statement in (
        "SELECT count(*) FROM changes",
        "CREATE VIEW v AS SELECT n, count(*) AS c FROM changes GROUP BY n",
    ):
        with pytest.raises(ConfigurationError, match=r"reads the changes of changes, and each change, .* Materialize"):
            env.execute_sql(statement)
    env.sql_query("SELECT id FROM changes")
    assert rows(env, "SELECT count(*) FROM changes WHERE row_kind = '+I'") == [(2,)]


def test_a_row_that_no_longer_satisfies_a_condition_is_deleted(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """The messages of `upsert-kafka` do not have old rows: what needs them is refused, and `row_kind` says it otherwise."""
    source, sink = topic(cluster_a), topic(cluster_a)
    upsert_table(env, "rows", cluster_a, source, **BOUNDED)
    upsert_table(env, "current", cluster_a, sink)
    env.execute_sql("CREATE VIEW seen AS SELECT * FROM rows WHERE n > 'a'")
    story = [(1, "b"), (1, "a"), (2, "b"), (2, None), (3, "b")]
    messages = [(json.dumps({"id": i}), n and json.dumps({"id": i, "n": n})) for i, n in story]
    produce(cluster_a.bootstrap_servers, source, messages, partition=0)
    where = "FROM rows WHERE id > 0 AND n > 'a'"
    for query in (f"SELECT id, n {where}", "SELECT * FROM seen"):
        with pytest.raises(
            ConfigurationError, match=r"the condition on n would stay in table `current`\. Instead of WHERE"
        ):
            env.execute_sql(f"INSERT INTO current {query}")
    with pytest.raises(
        ConfigurationError, match=r"When n changes, the row with the old key would stay in table `current`"
    ):
        env.execute_sql("INSERT INTO current (n, id) SELECT n, LENGTH(n) FROM rows")
    kind = "CASE WHEN n > 'a' THEN row_kind ELSE '-D' END AS row_kind"
    env.execute_sql(f"INSERT INTO current SELECT id, n, {kind} FROM rows").wait()
    assert [*map(bool, dict(pairs(cluster_a, sink)).values())] == [False, False, True]
    env.execute_sql("INSERT INTO current SELECT id + 1, n FROM rows WHERE id = 2").wait()
    assert pairs(cluster_a, sink)[-2:] == [(b'{"id":3}', b'{"id":3,"n":"b"}'), (b'{"id":3}', None)]


def test_an_unknown_row_kind_is_refused(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Null is none: it would be taken for a deletion."""
    upsert_table(env, "current", cluster_a, topic(cluster_a))
    env.execute_sql("SET 'execution.runtime-mode' = 'batch'")
    for kind in ("CAST(NULL AS STRING)", "'+X'"):
        refusal = (
            r"'row_kind' of a row for table `current` must be \+I, -U, \+U or -D, not (NULL|\+X)\. Correct the query"
        )
        with pytest.raises(PySparkException, match=refusal):
            env.execute_sql(f"INSERT INTO current SELECT 1, 'a', {kind} AS row_kind")
    env.execute_sql("SET 'execution.runtime-mode' = 'streaming'")


@pytest.mark.slow
def test_exactly_once_with_a_new_checkpoint_writes_again(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """A checkpoint that was deleted is another query's: its batch 0 is not that of before."""
    source, sink = topic(cluster_a), topic(cluster_a)
    create_json(env, "t", "id INT, n STRING", cluster_a, source, **BOUNDED)
    exactly_once = {"sink.delivery__guarantee": "exactly-once", "sink.transactional__id__prefix": sink}
    upsert_table(env, "current", cluster_a, sink, **exactly_once)
    for n in ("a", "b"):
        produce(cluster_a.bootstrap_servers, source, [(None, json.dumps({"id": 1, "n": n}))])
        env.execute_sql("INSERT INTO current SELECT id, n FROM t").wait()
        shutil.rmtree(tmp_path / "checkpoints" / "current")
    values = [value for _, value in pairs(cluster_a, sink)]
    assert values == [b'{"id":1,"n":"a"}', b'{"id":1,"n":"a"}', b'{"id":1,"n":"b"}']


@pytest.mark.slow
def test_another_query_into_a_table_has_another_checkpoint(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Also when the first has ended; the same query again goes on where it stopped."""
    source, sink = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, '{"id": 1}')])
    create_json(env, "t", "id INT", cluster_a, source, **BOUNDED)
    create_json(env, "o", "id INT", cluster_a, sink)
    for query in ("SELECT id FROM t", "SELECT id + 1000 FROM t", "SELECT id FROM t"):
        env.execute_sql(f"INSERT INTO o {query}").wait()
    assert [value for _, value in pairs(cluster_a, sink)] == [b'{"id":1}', b'{"id":1001}']
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["o", "o-2"]


@pytest.mark.slow
def test_a_value_that_is_left_out_is_no_deletion_and_no_row(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """`upsert-kafka` with `ignore-parse-errors`: what cannot be read leaves the row alone."""
    source = topic(cluster_a)
    produce(
        cluster_a.bootstrap_servers,
        source,
        [('{"id":1}', '{"id":1,"n":"a"}'), ('{"id":1}', "garbage"), ('{"id":2}', None)],
    )
    upsert_table(env, "current", cluster_a, source, **{"value.json.ignore__parse__errors": "true"})
    assert rows(env, "SELECT id, n, row_kind FROM current") == [(1, "a", "+U"), (2, None, "-D")]


@pytest.mark.slow
def test_changes_without_a_key_do_not_go_through_several_tasks(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """`sink.parallelism` is refused; the setting, which is for all tables, does not count for this one."""
    changelog_table(env, cluster_a, topic(cluster_a))
    sink, format_ = topic(cluster_a), {"format": "debezium-json"}
    create_json(env, "copy", "id INT, n STRING", cluster_a, sink, sink_parallelism="2", **format_)
    with pytest.raises(ConfigurationError, match=r"'sink\.parallelism' of table `copy` needs 'key\.format'"):
        env.execute_sql("INSERT INTO copy SELECT id, n FROM changes")
    create_json(env, "copy2", "id INT, n STRING", cluster_a, sink, **format_)
    env.execute_sql("SET 'parallelism.default' = '3'")  # after the tables were made
    env.execute_sql("INSERT INTO copy2 SELECT id, n FROM changes").wait()
    create_json(env, "again", "id INT, n STRING, o BIGINT METADATA FROM 'offset' VIRTUAL", cluster_a, sink, **format_)
    found = rows(env, "SELECT o, id, n, row_kind FROM again")
    assert [row[1:] for row in found] == [
        *((1, "a", "+I"), (1, "a", "-D"), (1, "b", "+I"), (1, "b", "-D"), (2, "c", "+I"))
    ]


def test_not_null_columns(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """They have to be in the statement, and a row with null for them fails it; of a deleted row only the key counts."""
    create_json(env, "t", "id INT NOT NULL, n STRING", cluster_a, topic(cluster_a))
    columns = "id INT, n STRING NOT NULL, PRIMARY KEY (id) NOT ENFORCED"
    more = {"key.format": "json", "value.format": "json", "connector": "upsert-kafka"}
    create_json(env, "u", columns, cluster_a, topic(cluster_a), **more)
    with pytest.raises(ConfigurationError, match="does not have the column 'id', which is NOT NULL"):
        env.execute_sql("INSERT INTO t (n) SELECT 'a'")
    env.execute_sql("SET 'execution.runtime-mode' = 'batch'")
    with pytest.raises(PySparkException, match="Column 'id' of table `t` is NOT NULL, but a row has NULL for it"):
        env.execute_sql("INSERT INTO t SELECT CAST(NULL AS INT), 'a'")
    with pytest.raises(PySparkException, match="Column 'id' of table `u` is NOT NULL"):
        env.execute_sql("INSERT INTO u SELECT CAST(NULL AS INT), 'a'")
    env.execute_sql("INSERT INTO u SELECT 1, CAST(NULL AS STRING), '-D' AS row_kind")
    env.execute_sql("SET 'execution.runtime-mode' = 'streaming'")


@pytest.mark.slow
def test_having_into_upsert_is_warned_of(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """A group that does not fulfil it any more stays."""
    create_json(env, "t", "id INT, n STRING", cluster_a, topic(cluster_a), **BOUNDED)
    upsert_table(env, "current", cluster_a, topic(cluster_a))
    with caplog.at_level(logging.WARNING, "dynamic_kafka"):
        env.execute_sql("EXPLAIN INSERT INTO current SELECT id, max(n) FROM t GROUP BY id HAVING count(*) < 2")
    assert "no longer satisfy HAVING are not deleted from table `current`" in caplog.text


@pytest.mark.slow
def test_a_job_without_a_place_for_its_checkpoint(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Is refused, unless the session has one for all queries."""
    create_json(env, "t", "id INT", cluster_a, topic(cluster_a), **BOUNDED)
    create_json(env, "o", "id INT", cluster_a, topic(cluster_a))
    env.execute_sql("RESET 'execution.checkpointing.dir'")
    with pytest.raises(
        ConfigurationError, match=r"Setting 'execution\.checkpointing\.dir' is missing\. INSERT INTO `o`"
    ):
        env.execute_sql("INSERT INTO o SELECT id FROM t")
    env.execute_sql(f"SET 'spark.sql.streaming.checkpointLocation' = '{tmp_path / 'all'}'")
    env.execute_sql("INSERT INTO o SELECT id FROM t").wait()
    env.execute_sql("RESET 'spark.sql.streaming.checkpointLocation'")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["o"]


@pytest.mark.slow
def test_a_statement_set_starts_whole_or_not_at_all(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """What has started is stopped when a later statement cannot start."""
    create_json(env, "t", "id INT", cluster_a, topic(cluster_a))
    create_json(env, "o", "id INT", cluster_a, topic(cluster_a))
    create_json(env, "p", "n BIGINT", cluster_a, topic(cluster_a))
    jobs = env.create_statement_set()
    jobs.add_insert_sql("INSERT INTO o SELECT id FROM t").add_insert_sql("INSERT INTO p SELECT count(*) FROM t")
    with pytest.raises(ConfigurationError, match="accepts only new rows, but the query updates earlier ones"):
        jobs.execute()
    assert not spark.streams.active


@pytest.mark.slow
def test_names(env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Of tables in any alphabet; of columns like views; views that name each other; an own table of Spark's."""
    source = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, '{"id": 1, "amount": 5}')])
    create_json(env, "`my-ä`", "id INT, amount INT", cluster_a, source)
    env.execute_sql("CREATE VIEW total (id, t) COMMENT 'it''s' AS SELECT id, amount AS total FROM `my-ä`")
    assert rows(env, "SELECT * FROM total") == [(1, 5)]
    assert next(env.execute_sql("SHOW CREATE VIEW total").collect())[0] == (
        "CREATE TEMPORARY VIEW `total` (`id`, `t`) COMMENT 'it''s' AS\nSELECT id, amount AS total FROM `my-ä`"
    )
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        env.execute_sql("CREATE VIEW again AS SELECT * FROM again")
    spark.range(1).createOrReplaceTempView("foreign")
    try:
        for condition in ("", "IF NOT EXISTS "):
            with pytest.raises(ConfigurationError, match="'foreign' exists already in Spark's own catalog"):
                create_json(env, f"{condition}`foreign`", "id INT", cluster_a, source)
    finally:
        spark.catalog.dropTempView("foreign")


@pytest.mark.slow
def test_two_environments_on_one_session(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """As after running a notebook's cell again: each has its own tables, also of one name."""
    first, second = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, first, [(None, '{"id": 1}')])
    produce(cluster_a.bootstrap_servers, second, [(None, '{"id": 2}')])
    create_json(env, "t", "id INT", cluster_a, first)
    assert rows(env, "SELECT * FROM t") == [(1,)]
    other = TableEnvironment(spark)
    create_json(other, "t", "id INT", cluster_a, second)
    assert rows(other, "SELECT * FROM t") == [(2,)]
    assert rows(env, "SELECT * FROM t") == [(1,)]
    other.execute_sql("DROP TABLE t")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        rows(other, "SELECT * FROM t")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        other.from_path("t")
    assert rows(env, "SELECT * FROM t") == [(1,)]


def test_a_view_of_spark_keeps_its_name(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """It was made after the table, and before the first query of that: the query would replace it."""
    create_json(env, "mine", "id INT", cluster_a, topic(cluster_a))
    spark.range(7, 8).createOrReplaceTempView("mine")
    try:
        with pytest.raises(ConfigurationError, match="'mine' exists already in Spark"):
            rows(env, "SELECT * FROM mine")
        assert [row[0] for row in spark.table("mine").collect()] == [7]
    finally:
        spark.catalog.dropTempView("mine")
    assert rows(env, "SELECT * FROM mine") == []


def test_columns_are_checked_when_the_table_is_made(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Computed ones by Spark, metadata by their types; `PROCTIME()` is Flink's, and known."""
    source = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, '{"id": 1}')], headers=[("a", b"1")])
    for column, message in (
        ("x AS nonsense(id)", "Column 'x' of table `t` cannot be computed: .*nonsense"),
        ("x AS id +", "Column 'x' of table `t` cannot be computed: "),
        ("`offset` DATE METADATA VIRTUAL", "Column 'offset' of table `t` cannot be computed: .*CAST"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            create_json(env, "t", f"id INT, {column}", cluster_a, source)
    with pytest.raises(ConfigurationError, match="Column 'row_kind' has the name of the column with the kind"):
        create_json(env, "t", "id INT, Row_Kind STRING", cluster_a, source, format="debezium-json")
    as_map = "h MAP<STRING, BYTES NOT NULL> METADATA FROM 'headers' VIRTUAL"
    as_list = "`header-list` ARRAY<ROW<k STRING, v BYTES>> METADATA VIRTUAL"
    create_json(env, "t", f"id INT, at AS PROCTIME(), {as_map}, {as_list}", cluster_a, source)
    found = rows(env, "SELECT id, at IS NOT NULL, cast(h['a'] AS STRING), cast(`header-list`[1].v AS STRING) FROM t")
    assert found == [(1, True, "1", "1")]
