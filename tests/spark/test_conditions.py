"""Conditions in a batch: the same rows, from fewer offsets, and fewer rows for Spark."""

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


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_queries_on_one_dataframe_do_not_share_their_conditions(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, pushed: str
) -> None:
    """Spark 4.1 to 4.3 keep what a reader makes of filters for all queries on a DataFrame, so a reader must not take any."""
    name = topic(cluster_a, partitions=3, config={"retention.ms": "-1"})
    write(cluster_a, name)
    with session(spark, python_filterPushdown_enabled=pushed):
        df = table(spark, cluster_a, name)
        few, many = df.where("offset < 2"), df.where("offset > 4")
        assert (few.count(), df.count(), many.count()) == (6, 45, 30)
        assert (few.union(many).count(), few.union(df).count(), df.join(few, ["partition", "offset"]).count()) == (
            36,
            51,
            6,
        )


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
