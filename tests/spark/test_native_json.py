"""Tables of JSON, whose values the native kernel decodes where they are read."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, create, on, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_a_json_table_is_decoded_where_it_is_read(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Spark gets rows, and no messages."""
    values = [b'{"id":1,"r":{"x":["a"]}}', b'{"id":"2","r":null}', None, b"", b'{"id":"x"}', b'{"r":{"x":[]},"id":3}']
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(b"k", value) for value in values], partition=0)
    columns = "id INT NOT NULL, r ROW<x ARRAY<STRING NOT NULL>>, p INT METADATA FROM 'partition'"
    create(env, "lenient", columns, on(cluster_a, name) | {"format.on-error": "skip"})
    create(env, "strict", columns, on(cluster_a, name))
    assert rows(env, "SELECT id, r.x, p FROM lenient") == [(1, ["a"], 0), (2, None, 0), (3, [], 0)]
    with pytest.raises(PySparkException, match="offset 4: the value cannot be read as json"):
        rows(env, "SELECT id FROM strict")
    plan = env.sql_query("SELECT id FROM strict")._jdf.queryExecution()
    assert "ArrowEvalPython" not in plan.toString()
