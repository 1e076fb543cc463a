"""A table kept up to date from changes: a change stream, repeated batches, and several changes of one key in one batch."""

from __future__ import annotations

import json
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from examples.debezium.follow import KEYS, create_table
from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.changelog import last_changes, materialize
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import DEBEZIUM, Topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]


class Rows:
    """A target in memory: rows by key, and what it was given."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.batches: list[int] = []

    def __call__(self, upserts: DataFrame, deletes: DataFrame, batch_id: int) -> None:
        """Apply a batch."""
        for row in upserts.collect():
            self.rows[row["id"]] = tuple(row)
        for row in deletes.collect():
            self.rows.pop(row["id"], None)
        self.batches.append(batch_id)


def envelope(op: str, before: str, after: str) -> str:
    """A change as Debezium writes it, without a schema."""
    return f'{{"before":{before},"after":{after},"source":{{"ts_ms":1}},"op":"{op}","ts_ms":2}}'


def test_a_table_follows_a_change_stream(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Snapshot, inserts, updates, deletes and a change of the key, over several batches and a restart."""
    name = topic(cluster_a)
    env.execute_sql(
        f"""CREATE TABLE people (id INT, name STRING, `offset` BIGINT METADATA VIRTUAL, PRIMARY KEY (id) NOT ENFORCED)
        WITH ('connector' = 'kafka', 'topic' = '{name}', 'properties.bootstrap.servers' = '{cluster_a.bootstrap_servers}',
        'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-json')"""
    )
    a, b, c = '{"id":1,"name":"a"}', '{"id":2,"name":"b"}', '{"id":3,"name":"c"}'
    table = Rows()

    def follow(*messages: str | None) -> None:
        produce(cluster_a.bootstrap_servers, name, [(None, message) for message in messages])
        writer = materialize(env.from_path("people"), ["id"], table)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        query.stop()

    follow(envelope("r", "null", a), envelope("c", "null", b), envelope("u", a, a.replace('a"', 'A"')))
    assert table.rows == {1: (1, "A"), 2: (2, "b")}
    # The key of a row changes: Debezium says so with a delete, a tombstone and an insert.
    follow(envelope("d", b, "null"), None, envelope("c", "null", c), envelope("u", c, c.replace('c"', 'd"')))
    assert table.rows == {1: (1, "A"), 3: (3, "d")}
    assert len(set(table.batches)) == len(table.batches)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["schemaless", "with-schema"])
def test_what_real_debezium_wrote_becomes_the_databases_rows(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, kind: str
) -> None:
    """Recorded by `examples/debezium`: two tables through all that a change stream can have, read in small batches."""
    recorded = [json.loads(line) for line in (DEBEZIUM / f"{kind}.json").read_text(encoding="utf-8").splitlines()]
    expected = json.loads((DEBEZIUM / "rows.json").read_text(encoding="utf-8"))
    for table in KEYS:
        name = topic(cluster_a)
        messages = [(m["key"], m["value"]) for m in recorded if m["topic"].endswith(f".{table}")]
        produce(cluster_a.bootstrap_servers, name, messages)
        schema, small = kind == "with-schema", ", 'maxOffsetsPerTrigger' = '5'"
        create_table(env, table, cluster_a.bootstrap_servers, name, with_schema=schema, options=small)
        found: dict[tuple[Any, ...], dict[str, Any]] = {}

        writer = materialize(env.from_path(table), KEYS[table], partial(apply, found, KEYS[table]))
        query = writer.option("checkpointLocation", str(tmp_path / table)).start()
        query.processAllAvailable()
        query.stop()
        assert [_as_json(found[key]) for key in sorted(found)] == expected[table]


def apply(
    found: dict[tuple[Any, ...], dict[str, Any]], keys: list[str], upserts: DataFrame, deletes: DataFrame, _: int
) -> None:
    """A target in memory: rows by key."""
    for row in deletes.collect():
        found.pop(tuple(row), None)
    found.update({tuple(row[key] for key in keys): row.asDict() for row in upserts.collect()})


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """As the database's rows were recorded."""
    if row.get("balance") is not None:
        row["balance"] = str(row["balance"])
    if row.get("joined") is not None:
        row["joined"] = row["joined"].astimezone(UTC).isoformat().replace(".999000", ".999")
    return row


def test_the_last_change_of_a_key_counts(spark: SparkSession) -> None:
    """By the columns of `order`; of an update's two rows by what they are; in whatever order Spark has them."""
    changes = [
        (1, "x", "+I", 0),
        (1, "x", "-U", 1),
        (1, "y", "+U", 1),
        (2, "z", "-D", 3),
        (2, "z", "+I", 2),
        (3, "o", "-U", 4),
    ]
    df = spark.createDataFrame(changes[::-1], "id int, name string, row_kind string, offset bigint")
    found = sorted(tuple(row) for row in last_changes(df, ["id"]).collect())
    assert found == [(1, "y", "+U"), (2, "z", "-D"), (3, "o", "-U")]


def test_what_is_missing_is_named(spark: SparkSession) -> None:
    """No key, no order, no stream."""
    df = spark.createDataFrame([(1, "+I", 0)], "id int, row_kind string, offset bigint")
    with pytest.raises(ConfigurationError, match="No key is given"):
        materialize(df, [], Rows())
    with pytest.raises(ConfigurationError, match="Column 'nr' is missing"):
        materialize(df, ["nr"], Rows())
    with pytest.raises(ConfigurationError, match="`offset` BIGINT METADATA VIRTUAL"):
        materialize(df.drop("offset"), ["id"], Rows())
    with pytest.raises(ConfigurationError, match="not a stream"):
        materialize(df, ["id"], Rows())
