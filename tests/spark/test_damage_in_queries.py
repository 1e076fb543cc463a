"""A message that cannot be read is noticed by each query that reads it, whatever the query asks for."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, as_batches, create, first_rows, on, records, rows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

QUERIES = [
    "SELECT id FROM t WHERE status = 'paid'",
    "SELECT id FROM t WHERE id IS NOT NULL AND status LIKE 'p%'",
    "SELECT COUNT(*) FROM t",
    "SELECT t.id FROM t JOIN g ON t.id = g.id",
]
MORE_QUERIES = [
    "SELECT * FROM t",
    "SELECT id FROM t WHERE id >= 0",
    "SELECT id FROM t WHERE id IN (1, 2)",
    "SELECT id FROM t WHERE 1 = 0 OR id > 3",
    "SELECT COUNT(*) FROM t WHERE id > 2",
    "SELECT status, COUNT(*) FROM t GROUP BY status",
    "SELECT status, COUNT(*) FROM t WHERE id > 2 GROUP BY status HAVING COUNT(*) > 1",
    "SELECT DISTINCT status FROM t",
    "SELECT id FROM g LEFT JOIN t USING (id)",
    "SELECT id FROM g WHERE id IN (SELECT id FROM t)",
    "SELECT id FROM g WHERE EXISTS (SELECT 1 FROM t WHERE t.id = g.id)",
    "SELECT id FROM g WHERE id > (SELECT MIN(id) FROM t)",
    "SELECT id FROM t WHERE id > 1 UNION ALL SELECT id FROM g",
    "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY status ORDER BY id) AS n FROM t) WHERE n = 1",
    "SELECT id FROM t ORDER BY id LIMIT 2",
]
"""Shapes of queries that people write. Each one reads all messages of `t`, once."""

ROWS: dict[str, tuple[Callable[[int], bytes], bytes]] = {
    "json": (lambda i: b'{"id":%d,"status":"paid"}' % i, b'{"id": tru'),
    "csv": (lambda i: b"%d,paid" % i, b'"1,paid'),
}
"""A good message by its number, and one that is damaged."""


@pytest.fixture
def damaged(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> Callable[..., str]:
    """Make the tables `t`, with a damaged message at offset 3, and `g`, with good ones only."""
    made: dict[str, tuple[str, str, str]] = {}

    def make(format_name: str, **options: str) -> str:
        good, bad = ROWS[format_name]
        if format_name not in made:
            names = topic(cluster_a), topic(cluster_a), topic(cluster_a)
            before, after = ([(None, good(i)) for i in numbers] for numbers in (range(3), range(3, 6)))
            produce(cluster_a.bootstrap_servers, names[0], [*before, (b"k", bad), *after], partition=0)
            produce(cluster_a.bootstrap_servers, names[1], [*before, *after], partition=0)
            made[format_name] = names
        bad_topic, good_topic, letters = made[format_name]
        more = {key.replace("_", "-").replace("--", "."): text for key, text in options.items()}
        if more.get("format.on-error") == "dead-letter":
            more["format.dead-letter.topic"] = letters
        for name in ("t", "g"):
            env.execute_sql(f"DROP TABLE IF EXISTS {name}")
        create(env, "t", "id INT, status STRING", on(cluster_a, bad_topic, format=format_name) | more)
        create(env, "g", "id INT, status STRING", on(cluster_a, good_topic, format=format_name))
        return letters

    return make


def fails(env: TableEnvironment, query: str) -> bool:
    """Whether a query ends with the error of the damaged message."""
    try:
        rows(env, query)
    except (PySparkException, Py4JJavaError, DynamicKafkaError) as error:  # Py4J's: of a scalar sub-query
        return re.search(r"offset 3\b", str(error)) is not None
    return False


def test_no_condition_hides_a_damaged_message(env: TableEnvironment, damaged: Callable[..., str]) -> None:
    """Each query that reads it ends with its offset: Spark moves no condition and no join below the check."""
    damaged("json")
    assert [query for query in QUERIES if not fails(env, query)] == []


def test_no_condition_hides_it_in_a_stream(env: TableEnvironment, damaged: Callable[..., str]) -> None:
    """A stream with a condition that no damaged message fulfils ends with its offset, too."""
    damaged("json")
    with pytest.raises(StreamingQueryException, match=r"offset 3\b"):
        first_rows(env, "SELECT id FROM t WHERE status = 'paid'", 7)


def counted(env: TableEnvironment, query: str) -> tuple[int, list[str]]:
    """The number of rows of a query, and what `t` has counted of damaged messages."""
    with as_batches(env):
        found = env.sql_query(query)
        count = len(found.collect())
    observed = found._jdf.queryExecution().observedMetrics().toString()
    return count, re.findall(r"dynamic-kafka: t -> \[(\d+)\]", observed)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ROWS)
def test_policies_hold_for_each_shape_of_query(
    env: TableEnvironment,
    cluster_a: KafkaBroker,
    damaged: Callable[..., str],
    format_name: str,
) -> None:
    """`fail` ends each query. `skip` and `dead-letter` count the message once, and the rows are those of the good ones."""
    queries = [*QUERIES, *MORE_QUERIES]
    damaged(format_name)
    assert [query for query in queries if not fails(env, query)] == []
    wanted = {query: rows(env, query.replace(" t", " g AS t", 1)) for query in queries if " g" not in query}
    for policy in ("skip", "dead-letter"):
        letters = damaged(format_name, format__on_error=policy)
        for query in queries:
            before = len(records(cluster_a, letters))
            count, seen = counted(env, query)
            assert seen == ["1"], (policy, query)
            assert len(records(cluster_a, letters)) - before == (policy == "dead-letter"), (policy, query)
            if query in wanted:
                assert count == len(wanted[query]), (policy, query)
