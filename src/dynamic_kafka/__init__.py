"""Flink's Kafka connectors for PySpark, without a JAR: one stream over many Kafka clusters.

There are three ways in to one engine: options of `format("dynamic-kafka")`, builders with PyFlink's names, and Flink's SQL.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # For type checkers, to which `X as X` exports the name. At run time `__getattr__` finds the same names by `_HOMES`.
    from pyspark.sql import SparkSession

    from dynamic_kafka.arrow import read_arrow as read_arrow
    from dynamic_kafka.builders import ArrowSerializer as ArrowSerializer
    from dynamic_kafka.builders import DeliveryGuarantee as DeliveryGuarantee
    from dynamic_kafka.builders import DynamicKafkaSource as DynamicKafkaSource
    from dynamic_kafka.builders import History as History
    from dynamic_kafka.builders import HybridSource as HybridSource
    from dynamic_kafka.builders import KafkaRecordSerializationSchema as KafkaRecordSerializationSchema
    from dynamic_kafka.builders import KafkaSink as KafkaSink
    from dynamic_kafka.builders import KafkaSource as KafkaSource
    from dynamic_kafka.builders import TransactionNamingStrategy as TransactionNamingStrategy
    from dynamic_kafka.builders import WatermarkStrategy as WatermarkStrategy
    from dynamic_kafka.builders.deserializers import ArrowDeserializer as ArrowDeserializer
    from dynamic_kafka.builders.deserializers import (
        KafkaRecordDeserializationSchema as KafkaRecordDeserializationSchema,
    )
    from dynamic_kafka.builders.deserializers import SimpleStringSchema as SimpleStringSchema
    from dynamic_kafka.continuation import Continues as Continues
    from dynamic_kafka.initializer import KafkaOffsetResetStrategy as KafkaOffsetResetStrategy
    from dynamic_kafka.initializer import KafkaOffsetsInitializer as KafkaOffsetsInitializer
    from dynamic_kafka.initializer import KafkaTopicPartition as KafkaTopicPartition
    from dynamic_kafka.metadata.model import ClusterMetadata as ClusterMetadata
    from dynamic_kafka.metadata.model import KafkaStream as KafkaStream
    from dynamic_kafka.metadata.service import KafkaMetadataService as KafkaMetadataService
    from dynamic_kafka.metadata.services import FileMetadataService as FileMetadataService
    from dynamic_kafka.metadata.services import HttpMetadataService as HttpMetadataService
    from dynamic_kafka.metadata.services import InMemoryMetadataService as InMemoryMetadataService
    from dynamic_kafka.metadata.services import SingleClusterTopicMetadataService as SingleClusterTopicMetadataService
    from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber as KafkaStreamSubscriber
    from dynamic_kafka.sink.partitioners import KafkaPartitioner as KafkaPartitioner

    __version__: str

_HOMES = {
    "arrow": ("read_arrow",),
    "builders": (
        "ArrowSerializer",
        "DeliveryGuarantee",
        "DynamicKafkaSource",
        "History",
        "HybridSource",
        "KafkaRecordSerializationSchema",
        "KafkaSink",
        "KafkaSource",
        "TransactionNamingStrategy",
        "WatermarkStrategy",
    ),
    "builders.deserializers": ("ArrowDeserializer", "KafkaRecordDeserializationSchema", "SimpleStringSchema"),
    "continuation": ("Continues",),
    "initializer": ("KafkaOffsetResetStrategy", "KafkaOffsetsInitializer", "KafkaTopicPartition"),
    "metadata.model": ("ClusterMetadata", "KafkaStream"),
    "metadata.service": ("KafkaMetadataService",),
    "metadata.services": (
        "FileMetadataService",
        "HttpMetadataService",
        "InMemoryMetadataService",
        "SingleClusterTopicMetadataService",
    ),
    "metadata.subscriber": ("KafkaStreamSubscriber",),
    "sink.partitioners": ("KafkaPartitioner",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME_OF), "register"]  # noqa: PLE0604  # type checkers read the imports above


def register(spark: SparkSession) -> None:
    """Register `format("dynamic-kafka")` in a session, and stop its streams once they have reached their stopping offsets.

    Spark also finds the format without this call, but then a stream that has reached its stopping offsets keeps running
    without reading anything. In a notebook, a query that is the value of a cell is then shown as a table of its clusters.
    """
    from dynamic_kafka.spark.datasource import register_format
    from dynamic_kafka.spark.notebook import show_queries
    from dynamic_kafka.spark.stop_finished import stop_finished_queries

    register_format(spark)
    stop_finished_queries(spark)
    show_queries()


if not TYPE_CHECKING:  # it would make a type checker accept any name

    def __getattr__(name: str) -> Any:
        # Spark's workers import this package in every new process: import a module only when one of its names is used.
        if name == "__version__":
            from importlib import metadata  # 50 ms

            return metadata.version("pyspark-dynamic-kafka")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'dynamic_kafka' has no attribute {name!r}")
        return getattr(importlib.import_module(f"dynamic_kafka.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
