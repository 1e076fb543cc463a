"""Metadata columns of the connectors: Flink's keys, their types, and their columns in the rows of the source and the sink.

Source: Flink's "Apache Kafka SQL Connector" documentation; `header-list` is FLIP-568's, `kafka_cluster` that of
Flink's `dynamic-kafka`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from dynamic_kafka.formats import Format
from dynamic_kafka.spark.columns import COLUMN_TYPES

__all__ = ["METADATA_KEYS", "VALUE_PREFIX", "MetadataKey", "metadata_types"]

VALUE_PREFIX = "value."
"""The prefix of keys for the value format's own metadata."""

_HEADER_LIST = COLUMN_TYPES["headers"]


def _headers_as_map(headers: Column) -> Column:
    """Return headers as a map. The last value of a key wins, as in Flink; without headers the map is empty."""

    def is_last(header: Column, index: Column) -> Column:
        later = F.slice(headers, index + 2, F.size(headers))
        return ~F.exists(later, lambda other: other["key"] == header["key"])

    return F.coalesce(
        F.map_from_entries(F.filter(headers, is_last)), F.create_map().cast(MapType(StringType(), BinaryType()))
    )


def _timestamp_type(number: Column) -> Column:
    """Return the name in Java's TimestampType."""
    return F.when(number == 0, "CreateTime").when(number == 1, "LogAppendTime").otherwise("NoTimestampType")


def _itself(column: Column) -> Column:
    return column


@dataclass(frozen=True)
class MetadataKey:
    """A metadata key of the connectors.

    `read` is the function from the source's `column` to the value. `write` is that from the value to the sink's column of
    this name; None if it can only be read. `option` is the source's option that adds the column, if there is one.
    """

    type: DataType
    column: str
    read: Callable[[Column], Column] = _itself
    write: Callable[[Column], Column] | None = None
    option: str | None = None


METADATA_KEYS: Mapping[str, MetadataKey] = {
    "topic": MetadataKey(StringType(), "topic", write=_itself),
    "partition": MetadataKey(IntegerType(), "partition"),
    "headers": MetadataKey(
        MapType(StringType(), BinaryType()), "headers", _headers_as_map, F.map_entries, "includeHeaders"
    ),
    "header-list": MetadataKey(
        _HEADER_LIST,
        "headers",
        lambda headers: F.coalesce(headers, F.array().cast(_HEADER_LIST)),
        lambda headers: F.filter(headers, lambda header: header["key"].isNotNull()),  # as in Flink
        "includeHeaders",
    ),
    "leader-epoch": MetadataKey(IntegerType(), "leader_epoch", option="includeLeaderEpoch"),
    "offset": MetadataKey(LongType(), "offset"),
    "timestamp": MetadataKey(TimestampType(), "timestamp", write=_itself),
    "timestamp-type": MetadataKey(StringType(), "timestampType", _timestamp_type),
    "kafka_cluster": MetadataKey(StringType(), "cluster", write=_itself),
}
"""The keys in Flink's order. `kafka_cluster` is written with `dynamic-kafka` only, as the cluster that a row goes to."""


def metadata_types(value: Format) -> dict[str, DataType]:
    """Return the types of all metadata of a table with this value format, by key."""
    own = {VALUE_PREFIX + name: data_type for name, data_type in value.metadata.items()}
    return {name: found.type for name, found in METADATA_KEYS.items()} | own
