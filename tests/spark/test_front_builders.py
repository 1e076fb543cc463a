"""The builders with PyFlink's names."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka import (
    ArrowDeserializer,
    ClusterMetadata,
    DynamicKafkaSource,
    InMemoryMetadataService,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaStream,
    KafkaTopicPartition,
    SimpleStringSchema,
    SingleClusterTopicMetadataService,
)
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.initializer import PartitionOffsetsRetriever
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_kafka_source_in_batch_and_as_a_stream(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """The seed's first example; bounded, so that the streaming query ends by itself too."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i)) for i in range(10)])
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(cluster_a.bootstrap_servers)
        .set_topics(name)
        .set_group_id("my-group")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    assert sorted(r["value"] for r in source.read(spark).collect()) == [str(i) for i in range(10)]

    query = (
        source.read_stream(spark)
        .writeStream.format("memory")
        .queryName("built")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert query.awaitTermination(60)
    assert spark.table("built").count() == 10


def test_dynamic_source_with_a_service_object(
    spark: SparkSession, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic
) -> None:
    """A service made in Python goes to the reader process as it is when a query starts, and no secret is in an option."""
    name = topic(cluster_a, cluster_b)
    for broker in (cluster_a, cluster_b):
        produce(broker.bootstrap_servers, name, [(None, "xyz")])
    parts = {
        cluster: ClusterMetadata(frozenset({name}), {"bootstrap.servers": broker.bootstrap_servers})
        for cluster, broker in (("a", cluster_a), ("b", cluster_b))
    }
    service = InMemoryMetadataService([KafkaStream("input-stream", {"a": parts["a"]})])
    source = (
        DynamicKafkaSource.builder()
        .set_kafka_metadata_service(service)
        .set_stream_ids({"input-stream"})
        .set_deserializer(lambda raw: raw.select("cluster", ArrowDeserializer(pc.binary_length, "int")(F.col("value"))))
        .build()
    )
    assert [tuple(r) for r in source.read(spark).collect()] == [("a", 3)]
    service.set_streams([KafkaStream("input-stream", parts)])
    assert sorted(tuple(r) for r in source.read(spark).collect()) == [("a", 3), ("b", 3)]


class _SecondRecord(KafkaOffsetsInitializer):
    """A user's own initializer."""

    def get_partition_offsets(
        self, partitions: Collection[KafkaTopicPartition], retriever: PartitionOffsetsRetriever
    ) -> dict[KafkaTopicPartition, int]:
        return {tp: offset + 1 for tp, offset in retriever.beginning_offsets(partitions).items()}


@pytest.mark.slow
def test_a_custom_offsets_initializer(spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """It is asked on the driver, once for each partition."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, "1"), (None, "2")])
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(cluster_a.bootstrap_servers)
        .set_partitions({KafkaTopicPartition(name, 0)})
        .set_starting_offsets(_SecondRecord())
        .set_value_only_deserializer("CAST(value AS STRING)")
        .build()
    )
    assert [r["value"] for r in source.read(spark).collect()] == ["2"]


def test_build_validates() -> None:
    """Missing and doubled settings are errors that name the setters or options."""
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        KafkaSource.builder().set_topics("t").build()
    with pytest.raises(ConfigurationError, match="What to read"):
        KafkaSource.builder().set_bootstrap_servers("b:1").build()
    with pytest.raises(ConflictingOptionsError, match="'set_topics' and 'set_topic_pattern'"):
        KafkaSource.builder().set_topics("t").set_topic_pattern("t.*")
    with pytest.raises(ConfigurationError, match=r"group\.id"):
        (
            KafkaSource.builder()
            .set_bootstrap_servers("b:1")
            .set_topics("t")
            .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
            .build()
        )
    with pytest.raises(ConfigurationError, match="set_kafka_metadata_service"):
        DynamicKafkaSource.builder().set_stream_ids({"s"}).build()
    with pytest.raises(ConfigurationError, match=r"takes a collection of ids"):
        DynamicKafkaSource.builder().set_stream_ids("s")


def test_no_secret_is_shown(spark: SparkSession) -> None:
    """Neither by repr nor in Spark's plan."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    service = SingleClusterTopicMetadataService("c", {"bootstrap.servers": "b:1", "sasl.jaas.config": jaas})
    source = DynamicKafkaSource.builder().set_kafka_metadata_service(service).set_stream_ids({"s"}).build()
    df = source.read_stream(spark)
    assert "hunter2" not in repr(source) + repr(service) + df._jdf.queryExecution().toString()
