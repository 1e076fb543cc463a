"""Flink's Kafka connectors for PySpark, without a JAR."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("dynamic-kafka")` known to a session."""
    from dynamic_kafka.spark.datasource import DynamicKafkaDataSource

    spark.dataSource.register(DynamicKafkaDataSource)
