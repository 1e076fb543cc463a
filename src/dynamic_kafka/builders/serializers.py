"""Serializers of the sink's builder: from a row to a record's key, value, topic, headers, timestamp and cluster.

Each of these is an *expression of the row*, in one of three forms:

* a Spark column, or the text of a SQL expression, such as a column's name;
* a function from the row, which is a struct of all columns, to a column: `F.to_json`, or `lambda row: row["region"]`;
* a Python function over Arrow: `ArrowSerializer(...)`.

`SimpleStringSchema()` serializes the column `key` or `value`, which must be text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from dynamic_kafka.builders.arguments import checked
from dynamic_kafka.builders.deserializers import ArrowDeserializer, SimpleStringSchema, ValueDeserializer, apply
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.sink.partitioners import KafkaPartitioner

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = [
    "ArrowSerializer",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "RecordSerializer",
    "RowExpression",
]

RowExpression: TypeAlias = ValueDeserializer
RecordSerializer: TypeAlias = "Callable[[DataFrame], DataFrame]"

_ORDER = ("key", "value", "topic", "headers", "timestamp", "cluster")


@dataclass(frozen=True)
class ArrowSerializer:
    """A Python function over Arrow, called with a batch of rows at once.

    Args:
        function: Takes a `pyarrow.StructArray` with a field for each column, and returns a `pyarrow.Array` of the same
            length.
        return_type: The type of the result, as a Spark type or in Spark's DDL.

    Examples:
        >>> import pyarrow.compute as pc
        >>> upper = ArrowSerializer(lambda rows: pc.utf8_upper(rows.field("name")), "string")
    """

    function: Callable[[Any], Any]
    return_type: DataType | str = "binary"

    def __call__(self, row: Column) -> Column:
        """Apply the function to the row.

        Raises:
            ConfigurationError: If this version of Spark gives functions over Arrow nothing but bytes.
        """
        from dynamic_kafka.spark_versions import takes_values, too_old

        if not takes_values():
            raise too_old("ArrowSerializer", "4.1", "Use dynamic_kafka.functions.to_kafka, or an expression of Spark")
        return ArrowDeserializer(self.function, self.return_type)(row)


@dataclass(frozen=True)
class KafkaRecordSerializationSchema:
    """The mapping of a DataFrame's rows to records (Flink: KafkaRecordSerializationSchema), created by a builder.

    `KafkaSinkBuilder.set_record_serializer` takes such an object, or your own function from the DataFrame to one with the
    sink's columns: `value`, and any of `key`, `topic`, `partition`, `headers`, `timestamp`, `cluster`.

    Examples:
        >>> schema = (
        ...     KafkaRecordSerializationSchema.builder()
        ...     .set_topic("orders")
        ...     .set_key_serialization_schema("CAST(id AS STRING)")
        ...     .set_value_serialization_schema(F.to_json)
        ...     .build()
        ... )  # doctest: +SKIP
    """

    expressions: Mapping[str, RowExpression] = field(repr=False)
    topic: str | None = None
    partitioner: KafkaPartitioner | str | None = None

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a new builder."""
        return KafkaRecordSerializationSchemaBuilder()

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the sink."""
        return rows.select(
            *(_column(name, self.expressions[name]).alias(name) for name in _ORDER if name in self.expressions)
        )


def _column(name: str, expression: RowExpression) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # the usual name

    if isinstance(expression, SimpleStringSchema):
        return F.encode(F.col(name), expression.charset)
    return apply(expression, F.struct("*"))


class KafkaRecordSerializationSchemaBuilder:
    """The builder of a `KafkaRecordSerializationSchema`; a value, and a topic or a topic selector, are required.

    A stream of the metadata service that has a single topic needs no topic here: `KafkaSinkBuilder.build` checks it.
    Every setter returns the builder.
    """

    def __init__(self) -> None:
        self._expressions: dict[str, RowExpression] = {}
        self._set_by: dict[str, str] = {}
        self._topic: str | None = None
        self._partitioner: KafkaPartitioner | str | None = None

    def set_topic(self, topic: str) -> Self:
        """Write all records to this topic."""
        self._once("topic", "set_topic")
        self._topic = checked("set_topic", topic)
        return self

    def set_topic_selector(self, topic_selector: RowExpression) -> Self:
        """Set the topic of each row, as text."""
        return self._set("topic", "set_topic_selector", topic_selector)

    def set_key_serialization_schema(self, key_serialization_schema: RowExpression) -> Self:
        """Set the key of each row, as text or bytes; null for a record without a key."""
        return self._set("key", "set_key_serialization_schema", key_serialization_schema)

    def set_value_serialization_schema(self, value_serialization_schema: RowExpression) -> Self:
        """Set the value of each row, as text or bytes; null for a tombstone."""
        return self._set("value", "set_value_serialization_schema", value_serialization_schema)

    def set_header_provider(self, header_provider: RowExpression) -> Self:
        """Set the headers of each row: `array<struct<key string, value binary>>`, such as `map_entries(a_map)`."""
        return self._set("headers", "set_header_provider", header_provider)

    def set_timestamp_selector(self, timestamp_selector: RowExpression) -> Self:
        """Set the timestamp of each row (Flink: the event's). Without it, or if it is null, it is the time of sending."""
        return self._set("timestamp", "set_timestamp_selector", timestamp_selector)

    def set_cluster_selector(self, cluster_selector: RowExpression) -> Self:
        """Set the id of each row's cluster, for a stream on several clusters."""
        return self._set("cluster", "set_cluster_selector", cluster_selector)

    def set_partitioner(self, partitioner: KafkaPartitioner | str) -> Self:
        """Set the partitioner: an object, or a value of the option `sink.partitioner`."""
        expected = "a KafkaPartitioner, or a text such as 'fixed'"
        self._partitioner = checked("set_partitioner", partitioner, expected, (str, KafkaPartitioner))
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema.

        Raises:
            ConfigurationError: If the value's serializer is missing.
        """
        if "value" not in self._expressions:
            raise ConfigurationError("The value's serializer is missing; call set_value_serialization_schema(...)")
        return KafkaRecordSerializationSchema(dict(self._expressions), self._topic, self._partitioner)

    def _set(self, name: str, setter: str, expression: RowExpression) -> Self:
        self._once(name, setter)
        self._expressions[name] = expression
        return self

    def _once(self, name: str, setter: str) -> None:
        if name in self._set_by:
            raise ConflictingOptionsError([self._set_by[name], setter], f"a record has one {name}; set it once")
        self._set_by[name] = setter
