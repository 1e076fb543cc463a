"""Tables of changes, whose values the native kernel decodes where they are read."""

from __future__ import annotations

import json
import re

import pytest
from pyspark.errors import PySparkException

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import DEBEZIUM, Topic, create, each_decoder, on, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_a_changelog_table_is_decoded_where_it_is_read(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same rows, metadata and errors, whoever decodes: all that a real Debezium wrote of a table, and odd ones."""
    lines = map(json.loads, (DEBEZIUM / "schemaless.json").read_text(encoding="utf-8").splitlines())
    values = [line["value"] for line in lines if "customers" in line["topic"]]
    values += ['{"op":"c","after":{"id":"77"},"ts_ms":" 1 "}', '{"op":"t"}']
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, value and value.encode()) for value in values], partition=0)
    columns = "id INT, name STRING, balance DECIMAL(10, 2), joined TIMESTAMP_LTZ(3), email STRING, "
    columns += "db STRING METADATA FROM 'value.source.database' VIRTUAL, p INT METADATA FROM 'partition' VIRTUAL"
    found, errors = [], []
    for reader in each_decoder(monkeypatch):
        options = on(cluster_a, name, format="debezium-json")
        options |= {"debezium-json.timestamp-format.standard": "ISO-8601"}
        create(env, reader, columns, options | {"format.on-error": "skip"})
        create(env, f"strict_{reader}", columns, options)
        found.append(rows(env, f"SELECT * FROM {reader}"))
        with pytest.raises(PySparkException) as error:
            rows(env, f"SELECT id FROM strict_{reader}")
        errors.append(
            re.findall('offset [0-9]+: the value cannot be read as debezium-json: Unknown "op"', str(error.value))
        )
        plan = env.sql_query(f"SELECT id FROM {reader}")._jdf.queryExecution().analyzed().toString()
        assert ("value_row" in plan) == (reader == "native")
    assert found[0] == found[1]
    assert {row[-3] for row in found[0]} == {"postgres", None}
    assert errors[0]
    assert errors[0] == errors[1]
