"""INSERT INTO a table with `sink.dead-letter.topic`: rows that cannot be written do not end the query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker
from tests.spark.sinks import Files
from tests.spark.tables import Topic, create, on, records

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def letters_of(broker: KafkaBroker, topic: str) -> dict[str, str]:
    """The visible letters: for each of them the error by the value."""
    found = records(broker, topic)
    said = {
        (got.value or b"").decode(errors="replace"): dict(got.headers or [])["dynamic-kafka.error"] or b""
        for got in found
    }
    assert len(said) == len(found)
    return {value: error.decode() for value, error in said.items()}


def test_each_row_that_cannot_be_written_is_a_letter(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """A null, a decimal, and a value that the format does not take, in the transactions of the other rows."""
    name, letters = topic(cluster_a), topic(cluster_a)
    options = on(cluster_a, name, format="avro") | {
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": name,
        "sink.dead-letter.topic": letters,
        "properties.max.request.size": "10000",
    }
    create(env, "t", "id BIGINT NOT NULL, some ARRAY<INT NOT NULL>, price DECIMAL(5, 2), name STRING", options)
    env.execute_sql(
        "INSERT INTO t VALUES (1, ARRAY[1], 1.5, 'é'), (NULL, ARRAY[1], 1.5, 'é'), (3, ARRAY[1, NULL], NULL, 'c'), "
        "(4, ARRAY[1], 99999.5, 'd'), (5, ARRAY[1], NULL, repeat('x', 20000))"
    )
    assert [got.value for got in records(cluster_a, name)] == [b"\x02\x02\x02\x02\x00\x02\x04\x00\x96\x02\x04\xc3\xa9"]
    found = letters_of(cluster_a, letters)
    large_ones = [value for value in found if "xxx" in value]
    assert "".join(large_ones).count("x") == 20000
    assert {"more than the producer takes" in found.pop(value) for value in large_ones} == {True}
    assert "Column 'id' of table `t` is NOT NULL" in found.pop('{"id":null,"some":[1],"price":1.5,"name":"é"}')
    assert found == {
        '{"id":3,"some":[1,null],"price":null,"name":"c"}': "A row's column 'some' is null, and its schema "
        "does not allow that",
        '{"id":4,"some":[1],"price":99999.5,"name":"d"}': "Column 'price' has a number that does not fit DECIMAL(5, 2)",
    }


@pytest.mark.slow
def test_letters_of_a_batch_that_fails(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """They are not visible. The next run writes the batch again, and its letters are there once."""
    name, letters, late = topic(cluster_a), topic(cluster_a), topic()
    options = {
        "connector": "upsert-kafka",
        "topic": f"{name};{late}",
        "properties.bootstrap.servers": cluster_a.bootstrap_servers,
        "key.format": "json",
        "value.format": "json",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": name,
        "sink.dead-letter.topic": letters,
    }
    columns = (
        "id INT, name STRING NOT NULL, to_topic STRING NOT NULL METADATA FROM 'topic', PRIMARY KEY (id) NOT ENFORCED"
    )
    create(env, "t", columns, options)
    files = Files(spark, tmp_path)
    files.add({"id": 1, "name": "a", "t": name}, {"id": 2, "t": name}, {"id": 3, "name": "c", "t": late})  # type: ignore[dict-item]
    env.create_temporary_view("v", files.rows("id INT, name STRING, t STRING"))
    for attempt in range(3):
        (query,) = env.execute_sql("INSERT INTO t SELECT id, name, t FROM v").queries
        if attempt == 0:
            with pytest.raises(PySparkException, match=late):
                query.processAllAvailable()
            assert letters_of(cluster_a, letters) == {}
            cluster_a.create_topic(late)
            continue
        query.processAllAvailable()
        query.stop()
        assert list(letters_of(cluster_a, letters)) == ['{"id":2,"name":null,"to_topic":"' + name + '"}']
    values = [json.loads(got.value or b"") for got in records(cluster_a, name, late)]
    assert values == [{"id": 1, "name": "a"}, {"id": 3, "name": "c"}]
