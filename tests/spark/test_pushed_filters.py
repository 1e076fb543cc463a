"""Conditions in a batch: the same rows, from fewer offsets, and fewer rows for Spark."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.rules.pruning import Condition
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, as_batches, create, on
from tests.spark.texts import session
from tests.versions import SINCE, SPARK

pytestmark = [pytest.mark.broker, pytest.mark.spark]

_NOON_MS = 1_711_843_200_000  # 31 March 2024, 00:00 UTC: Europe's clocks change an hour later
_MINUTES = [0, 5, 3, 90, 4, 61, 60, 59, 200, 2, 150, 201, 1, 199, 0]


def write(broker: KafkaBroker, topic: str) -> None:
    """Write the same times, which are out of order, to three partitions."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 4, "enable.idempotence": True}
    producer = Producer(config)  # in order
    for partition in range(3):
        for minute in _MINUTES:
            producer.produce(topic, b"v", partition=partition, timestamp=_NOON_MS + minute * 60_000)
    assert producer.flush(30) == 0


def table(spark: SparkSession, broker: KafkaBroker, topic: str, **options: str) -> DataFrame:
    """The batch of a topic."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **options}
    return spark.read.format("dynamic-kafka").options(**given).load()


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        ("partition = 1", 15),
        ("partition IN (0, 2) AND offset >= 14", 2),
        ("partition > 0 AND topic LIKE 'none%'", 1),
        ("timestamp >= TIMESTAMP '2024-03-31 03:20:00+00:00' AND partition = 0", 7),
        ("timestamp > TIMESTAMP '2024-03-31 03:30:00+00:00'", 1),
        ("timestamp > TIMESTAMP '2024-03-31 03:30:00'", 21),  # in the session's zone, where the clocks have changed
        ("timestamp < TIMESTAMP '2024-03-31 00:03:00+00:00' AND offset < 13", 39),
        ("timestamp = TIMESTAMP '2024-03-31 02:30:00+00:00' OR partition = 1", 45),
        ("NOT partition = 1 AND cluster <> 'other'", 30),
    ],
)
def test_the_rows_are_the_same_with_and_without_push_down(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, condition: str, offsets: int
) -> None:
    """With a task for each offset, their number is that of the offsets; without any, Spark makes an empty task."""
    name = topic(cluster_a, partitions=3, config={"retention.ms": "-1"})
    write(cluster_a, name)
    found = []
    for pushed in ("true", "false"):
        with session(spark, python_filterPushdown_enabled=pushed, session_timeZone="Europe/Berlin"):
            rows = table(spark, cluster_a, name).where(condition).select("partition", "offset", "timestamp")
            each = table(spark, cluster_a, name, maxRecordsPerPartition="1").where(condition)
            found.append((sorted(rows.collect()), each.rdd.getNumPartitions()))
    (with_filters, few), (without, all_) = found
    assert with_filters == without
    assert (few, all_) == (offsets if SINCE["pushFilters"] <= SPARK else 45, 45)


def test_rows_that_a_query_does_not_want_are_not_handed_over(
    spark: SparkSession, env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Of a table and of `value.format`, the same rows. A message that cannot be read is still an error."""
    name = topic(cluster_a)
    values = [{"id": i, "s": "ab"[i % 2], "f": "NaN" if i == 5 else i / 2, "d": i / 4, "b": i == 3} for i in range(8)]
    messages = [json.dumps(value).encode() for value in [*values, {"id": None, "s": None, "f": None}]]
    produce(cluster_a.bootstrap_servers, name, [(None, message) for message in messages], partition=0)
    create(env, "t", "id BIGINT, s STRING, f DOUBLE, d DECIMAL(5, 2), b BOOLEAN", on(cluster_a, name))
    schema = "value STRUCT<id: BIGINT, s: STRING, f: DOUBLE, d: DECIMAL(5, 2), b: BOOLEAN>, offset BIGINT"
    given = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name, "value.format": "json"}
    frame = spark.read.format("dynamic-kafka").schema(schema).options(**given).load().select("value.*")
    for condition in ("s = 'a' AND id > 3", "f > 2.5", "d IN (0.5, 1.25) OR FALSE", "b", "id IS NULL", "s LIKE 'b%'"):
        with as_batches(env):
            table = env.sql_query(f"SELECT id FROM t WHERE {condition}")
        both = (table.select("id"), frame.where(condition).select("id"))
        found = [sorted(map(str, df.collect())) for df in both]
        with session(spark, python_filterPushdown_enabled="false"):
            assert found == [sorted(map(str, frame.where(condition).select("id").collect()))] * 2
        if "OR" not in condition and SINCE["pushFilters"] <= SPARK:
            assert [handed_over(df) for df in both] == [len(found[0])] * 2
    produce(cluster_a.bootstrap_servers, name, [(None, b"{")], partition=0)
    with pytest.raises(PySparkException, match="offset 9: the value cannot be read as json"):
        frame.where("s = 'nobody'").collect()


def handed_over(df: DataFrame) -> int:
    """The number of rows that Spark got of the source for a query that has run."""
    plan = df._jdf.queryExecution().executedPlan()
    leaves = plan.collectLeaves()
    (scan,) = [leaves.apply(i) for i in range(leaves.size())]
    return int(scan.metrics().get("numOutputRows").get().value())


def test_a_lower_bound_of_time_starts_at_the_first_record_that_is_not_earlier(
    cluster_a: KafkaBroker, topic: Topic
) -> None:
    """For each time, where the producers' times are out of order."""
    name = topic(cluster_a, partitions=3, config={"retention.ms": "-1"})
    write(cluster_a, name)
    settings = configure_source({"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name})
    for minute in sorted({*_MINUTES, 100, 300}):
        bound = Condition("timestamp", ">=", (_NOON_MS + minute * 60_000) * 1000)
        ranges = [r for task in SourceEnumerator(settings).batch_tasks([bound]) for r in task.ranges]
        first = next((i for i, other in enumerate(_MINUTES) if other >= minute), None)
        expected = [] if first is None else [(p, first, len(_MINUTES)) for p in range(3)]
        assert sorted((r.partition, r.start, r.end) for r in ranges) == expected, json.dumps(minute)
