"""Tables of changes, whose values the native kernel decodes where they are read."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import DEBEZIUM, Topic, create, on, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_a_changelog_table_is_decoded_where_it_is_read(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Rows, metadata and errors of all that a real Debezium wrote of a table, and of odd messages."""
    lines = map(json.loads, (DEBEZIUM / "schemaless.json").read_text(encoding="utf-8").splitlines())
    values = [line["value"] for line in lines if "customers" in line["topic"]]
    values += ['{"op":"c","after":{"id":"77"},"ts_ms":" 1 "}', '{"op":"t"}']
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, value and value.encode()) for value in values], partition=0)
    columns = "id INT, name STRING, balance DECIMAL(10, 2), joined TIMESTAMP_LTZ(3), email STRING, "
    columns += "db STRING METADATA FROM 'value.source.database' VIRTUAL, p INT METADATA FROM 'partition' VIRTUAL"
    options = on(cluster_a, name, format="debezium-json")
    options |= {"debezium-json.timestamp-format.standard": "ISO-8601"}
    create(env, "lenient", columns, options | {"format.on-error": "skip"})
    create(env, "strict", columns, options)
    found = rows(env, "SELECT * FROM lenient")
    assert {row[-3] for row in found} == {"postgres", None}
    assert [row[0] for row in found][-1:] == [77]
    with pytest.raises(
        PySparkException, match=r'offset [0-9]+: the value cannot be read as debezium-json: Unknown "op"'
    ):
        rows(env, "SELECT id FROM strict")
