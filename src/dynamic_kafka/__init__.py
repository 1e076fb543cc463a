"""Flink's Kafka connectors for PySpark, without a JAR: one stream over many Kafka clusters.

Three fronts over one engine: options of `format("dynamic-kafka")`, builders with PyFlink's names, and Flink's SQL.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dynamic_kafka.builders import (
        ArrowSerializer,
        DeliveryGuarantee,
        DynamicKafkaSource,
        KafkaRecordSerializationSchema,
        KafkaSink,
        KafkaSource,
        TransactionNamingStrategy,
    )
    from dynamic_kafka.builders.deserializers import (
        ArrowDeserializer,
        KafkaRecordDeserializationSchema,
        SimpleStringSchema,
    )
    from dynamic_kafka.initializer import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
    from dynamic_kafka.metadata.file import FileMetadataService
    from dynamic_kafka.metadata.http import HttpMetadataService
    from dynamic_kafka.metadata.in_memory import InMemoryMetadataService
    from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
    from dynamic_kafka.metadata.service import KafkaMetadataService
    from dynamic_kafka.metadata.single_cluster import SingleClusterTopicMetadataService
    from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber
    from dynamic_kafka.sink.partitioners import KafkaPartitioner

__all__ = [
    "ArrowDeserializer",
    "ArrowSerializer",
    "ClusterMetadata",
    "DeliveryGuarantee",
    "DynamicKafkaSource",
    "FileMetadataService",
    "HttpMetadataService",
    "InMemoryMetadataService",
    "KafkaMetadataService",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaPartitioner",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaSink",
    "KafkaSource",
    "KafkaStream",
    "KafkaStreamSubscriber",
    "KafkaTopicPartition",
    "SimpleStringSchema",
    "SingleClusterTopicMetadataService",
    "TransactionNamingStrategy",
    "register",
]

_HOMES = {
    "builders": (
        "ArrowSerializer",
        "DeliveryGuarantee",
        "DynamicKafkaSource",
        "KafkaRecordSerializationSchema",
        "KafkaSink",
        "KafkaSource",
        "TransactionNamingStrategy",
    ),
    "builders.deserializers": ("ArrowDeserializer", "KafkaRecordDeserializationSchema", "SimpleStringSchema"),
    "initializer": ("KafkaOffsetResetStrategy", "KafkaOffsetsInitializer", "KafkaTopicPartition"),
    "metadata.file": ("FileMetadataService",),
    "metadata.http": ("HttpMetadataService",),
    "metadata.in_memory": ("InMemoryMetadataService",),
    "metadata.model": ("ClusterMetadata", "KafkaStream"),
    "metadata.service": ("KafkaMetadataService",),
    "metadata.single_cluster": ("SingleClusterTopicMetadataService",),
    "metadata.subscriber": ("KafkaStreamSubscriber",),
    "sink.partitioners": ("KafkaPartitioner",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def register(spark: SparkSession) -> None:
    """Make `format("dynamic-kafka")` known to a session, and let streams with stopping offsets end by themselves.

    Without this call Spark finds the format by itself, but a stream that has reached its stopping offsets idles.
    """
    from dynamic_kafka.spark.datasource import DynamicKafkaDataSource
    from dynamic_kafka.spark.stop_finished import stop_queries_that_are_done

    spark.dataSource.register(DynamicKafkaDataSource)
    stop_queries_that_are_done(spark)


def __getattr__(name: str) -> Any:
    # Spark's workers import this package in every new process: load only what is asked for.
    if name == "__version__":
        from importlib import metadata  # 50 ms

        return metadata.version("pyspark-dynamic-kafka")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dynamic_kafka' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dynamic_kafka.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
