"""INSERT INTO tables of JSON, whose rows the native kernel encodes in the sink's tasks or in Spark's workers."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.connectors import sink_rows
from dynamic_kafka.testing import KafkaBroker
from tests.spark.tables import Topic, create, create_json, on, records, write

pytestmark = [pytest.mark.spark, pytest.mark.broker]

UPSERT = {"connector": "upsert-kafka", "key_format": "json", "value_format": "json"}


def test_rows_are_encoded_in_the_sink(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSERT INTO writes the same bytes, whether Spark's workers or the sink's encode; the plan shows which it is."""
    key, columns = "k INT, r ROW<x ARRAY<STRING>>", "t TIMESTAMP(3), d DECIMAL(10, 2), s STRING"
    query = (
        "SELECT 1, STRUCT(ARRAY('ä', NULL)), TIMESTAMP_NTZ'2020-01-02 03:04:05.120', 100.00BD, '\"😀' "
        "UNION ALL SELECT NULL, NULL, NULL, NULL, NULL"
    )
    found = {}
    for native in (True, False):
        if not native:
            monkeypatch.setattr(sink_rows, "encoder", Mock(side_effect=ValueError))
        names = topic(cluster_a), topic(cluster_a)
        keyed = on(cluster_a, names[0], key="json", value="json") | {"key.fields": "k;r"}
        create(env, f"append_{native}", f"{key}, {columns}", keyed)
        create_json(
            env, f"upsert_{native}", "i INT, s STRING, PRIMARY KEY (i) NOT ENFORCED", cluster_a, names[1], **UPSERT
        )
        write(env, f"INSERT INTO append_{native} {query}")
        write(
            env,
            f"INSERT INTO upsert_{native} SELECT CAST(id AS INT), 's', IF(id = 1, '-D', '+I') AS row_kind FROM range(3)",
        )
        (plan,) = env.execute_sql(f"EXPLAIN INSERT INTO append_{native} {query}").collect()
        assert ("to_bytes(" in str(plan)) != native
        found[native] = [sorted((r.key, r.value) for r in records(cluster_a, name)) for name in names]
    assert found[True] == found[False]
    assert len(found[True][0]) == 2
    assert found[True][1][1] == (b'{"i":1}', None)
