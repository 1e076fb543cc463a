"""Conditions on the coordinates of records in a batch: the same rows, from fewer offsets."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.rules.pruning import Condition
from dynamic_kafka.testing import KafkaBroker
from tests.spark.tables import Topic
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
