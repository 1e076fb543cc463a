"""INSERT INTO tables of JSON, whose rows the native kernel encodes in the sink's tasks or in Spark's workers."""

from __future__ import annotations

from typing import Any

import pytest

from dynamic_kafka.formats.format import Rows
from dynamic_kafka.formats.json import format as json_format
from dynamic_kafka.formats.kernel import rows_of
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker
from tests.spark.tables import Topic, create, create_json, on, records, write

pytestmark = [pytest.mark.spark, pytest.mark.broker]

UPSERT = {"connector": "upsert-kafka", "key_format": "json", "value_format": "json"}


def test_rows_are_encoded_in_the_sink(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSERT INTO writes the same bytes, whether Spark's workers or the sink's encode; the plan shows which it is."""
    key, columns = "k INT, r ROW<x ARRAY<STRING>>", "t TIMESTAMP(3), d DECIMAL(10, 2), s STRING, i INTERVAL MONTH"
    query = (
        "SELECT 1, STRUCT(ARRAY('ä', NULL)), TIMESTAMP_NTZ'2020-01-02 03:04:05.120', 100.00BD, '\"😀', INTERVAL '3' MONTH "
        "UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL"
    )
    changes = "SELECT CAST(id AS INT), 's', IF(id = 1, '-D', '+I') AS row_kind FROM range(3)"

    def without_spec(*args: Any) -> Rows:
        return rows_of(*args)._replace(spec=None)

    found = {}
    for native in (True, False):
        if not native:
            monkeypatch.setattr(json_format, "rows_of", without_spec)
        names = [topic(cluster_a) for _ in range(3)]
        keyed = on(cluster_a, names[0], key="json", value="json") | {"key.fields": "k;r"}
        create(env, f"append_{native}", f"{key}, {columns}", keyed)
        create_json(
            env, f"upsert_{native}", "i INT, s STRING, PRIMARY KEY (i) NOT ENFORCED", cluster_a, names[1], **UPSERT
        )
        create(env, f"changes_{native}", "i INT, s STRING", on(cluster_a, names[2], value="debezium-json"))
        write(env, f"INSERT INTO append_{native} {query}")
        write(env, f"INSERT INTO upsert_{native} {changes}")
        write(env, f"INSERT INTO changes_{native} {changes}")
        for insert in (f"append_{native} {query}", f"changes_{native} {changes}"):
            (plan,) = env.execute_sql(f"EXPLAIN INSERT INTO {insert}").collect()
            assert ("to_bytes(" in str(plan)) != native
        found[native] = [sorted((r.key, r.value) for r in records(cluster_a, name)) for name in names]
    assert found[True] == found[False]
    assert [len(rows) for rows in found[True]] == [2, 3, 3]
    assert found[True][1][1] == (b'{"i":1}', None)


def test_the_workers_encode_a_key_that_spreads_rows(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """With `sink.parallelism`, Spark needs the bytes of the key, and no others."""
    options = on(cluster_a, topic(cluster_a), key="json", value="json") | {"key.fields": "i", "sink.parallelism": "2"}
    create(env, "spread", "i INT, s STRING", options)
    (plan,) = env.execute_sql("EXPLAIN INSERT INTO spread SELECT 1, 's'").collect()
    assert "to_bytes(" in str(plan)
    assert str(plan).count("ArrowEvalPython [to_bytes(") == 1, str(plan)
