"""`KafkaSink` with PyFlink's builder, over the same options as `format(...)`."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from dynamic_kafka.builders.arguments import checked
from dynamic_kafka.builders.serializers import KafkaRecordSerializationSchema, RecordSerializer
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.native import kernel
from dynamic_kafka.options import option_names
from dynamic_kafka.sink.configure import SINK_OPTIONS, SinkObjects, configure_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter
    from pyspark.sql.streaming import DataStreamWriter

__all__ = ["DeliveryGuarantee", "KafkaSink", "KafkaSinkBuilder", "TransactionNamingStrategy"]


class DeliveryGuarantee(enum.Enum):
    """The delivery guarantee of a sink (Flink: DeliveryGuarantee)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class TransactionNamingStrategy(enum.Enum):
    """Flink's strategies for transactional ids. Accepted, but without effect: the ids always come from a pool."""

    INCREMENTING = "incrementing"
    POOLING = "pooling"


def _unique() -> str:
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True)
class KafkaSink:
    """A sink that writes rows to topics of one Kafka cluster, or to a stream on any number of them (Flink: KafkaSink).

    Examples:
        >>> sink = (
        ...     KafkaSink.builder()
        ...     .set_bootstrap_servers("localhost:9092")
        ...     .set_record_serializer(
        ...         KafkaRecordSerializationSchema.builder()
        ...         .set_topic("output-topic")
        ...         .set_value_serialization_schema(SimpleStringSchema())
        ...         .build()
        ...     )
        ...     .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        ...     .set_transactional_id_prefix("my-job")
        ...     .build()
        ... )
        >>> query = sink.write_stream(df).option("checkpointLocation", path).start()  # doctest: +SKIP
    """

    options: Mapping[str, str] = field(repr=False)
    objects: SinkObjects = field(repr=False)
    serializer: RecordSerializer
    parallelism: int | None = None
    _id: str = field(default_factory=_unique, init=False, repr=False)

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a new builder."""
        return KafkaSinkBuilder()

    def write_stream(self, rows: DataFrame) -> DataStreamWriter:
        """Return a writer for a streaming DataFrame; give it a checkpoint and a trigger, and start it (Flink: sink_to)."""
        return self._records(rows).writeStream.format(self._registered(rows)).options(**self.options)

    def write(self, rows: DataFrame) -> DataFrameWriter:
        """Return a writer for a batch DataFrame; give each of several writes in one `foreachBatch` a `sink.name`."""
        return self._records(rows).write.format(self._registered(rows)).mode("append").options(**self.options)

    def save(self, rows: DataFrame) -> None:
        """Write a batch DataFrame."""
        self.write(rows).save()

    def _records(self, rows: DataFrame) -> DataFrame:
        records = self.serializer(rows)
        return records if self.parallelism is None else records.repartition(self.parallelism)

    def _registered(self, rows: DataFrame) -> str:
        """Register a data source class that carries the objects as they are now; once, as `foreachBatch` calls often."""
        from dynamic_kafka.spark.datasource import activate, registered

        activate(rows.sparkSession)  # a new thread has none
        return registered(rows.sparkSession, self._id, sink_objects=self.objects)


class KafkaSinkBuilder:
    """The builder of a `KafkaSink`; a record serializer, and bootstrap servers or a stream, are required.

    The delivery guarantee is `NONE` by default, as in Flink. (The option's default is at-least-once, as in Flink's SQL.)
    Every setter returns the builder.
    """

    def __init__(self) -> None:
        self._options: dict[str, str] = {"sink.delivery-guarantee": DeliveryGuarantee.NONE.value}
        self._serializer: RecordSerializer | None = None
        self._metadata_service: KafkaMetadataService | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the brokers to connect to first, as `host:port,host:port`."""
        return self._set("set_bootstrap_servers", "bootstrap.servers", bootstrap_servers)

    def set_kafka_metadata_service(self, kafka_metadata_service: KafkaMetadataService) -> Self:
        """Set the metadata service, which maps the stream to clusters and topics. Spark's processes get a copy of it."""
        self._metadata_service = kafka_metadata_service
        return self

    def set_stream_id(self, stream_id: str) -> Self:
        """Write to this stream of the metadata service."""
        self._options["stream-ids"] = checked("set_stream_id", stream_id)
        return self

    def set_record_serializer(self, record_serializer: RecordSerializer) -> Self:
        """Set how rows become records: a `KafkaRecordSerializationSchema`, or a function to the sink's columns."""
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Set the delivery guarantee. `EXACTLY_ONCE` needs a transactional id prefix."""
        expected = "a DeliveryGuarantee, such as DeliveryGuarantee.EXACTLY_ONCE"
        guarantee = checked("set_delivery_guarantee", delivery_guarantee, expected, DeliveryGuarantee)
        self._options["sink.delivery-guarantee"] = guarantee.value
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> Self:
        """Set the prefix of all transactional ids. Keep it across restarts, and do not use it for another query."""
        self._options["sink.transactional-id-prefix"] = checked("set_transactional_id_prefix", transactional_id_prefix)
        return self

    def set_transaction_naming_strategy(self, transaction_naming_strategy: TransactionNamingStrategy) -> Self:
        """Accept Flink's setting, which has no effect here."""
        expected = "a TransactionNamingStrategy, such as TransactionNamingStrategy.POOLING"
        strategy = checked(
            "set_transaction_naming_strategy", transaction_naming_strategy, expected, TransactionNamingStrategy
        )
        self._options["sink.transaction-naming-strategy"] = strategy.value
        return self

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of Kafka producers, or an option of the sink by its own name."""
        return self._set("set_property", key, value)

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set several properties, as `set_property` does."""
        for key, value in checked("set_properties", properties, "a dict of properties", Mapping).items():
            self._set("set_properties", key, value)
        return self

    def set_kafka_producer_config(self, properties: Mapping[str, str]) -> Self:
        """Set several properties (Flink: setKafkaProducerConfig)."""
        return self.set_properties(properties)

    def _set(self, setter: str, key: str, value: str) -> Self:
        checked(setter, key, "names of properties that are text")
        checked(setter, value, f"a text for '{key}'")
        known = {name.lower(): option.key for name, option in option_names(SINK_OPTIONS).items()}
        option = known.get(key.lower(), "topic")
        self._options[f"properties.{key}" if option == "topic" else option] = value  # the serializer sets the topic
        return self

    def build(self) -> KafkaSink:
        """Check all settings and return the sink.

        Raises:
            ConfigurationError: If a setting is missing, invalid or in conflict. Names the option, the value and the remedy.
            DynamicKafkaError: If the native kernel cannot be used on this machine.
        """
        serializer = self._serializer
        if serializer is None:
            raise ConfigurationError("A record serializer is missing; call set_record_serializer(...)")
        options = dict(self._options)
        partitioner = None
        if isinstance(serializer, KafkaRecordSerializationSchema):
            if serializer.topic is not None:
                options["topic"] = serializer.topic
            elif "topic" not in serializer.expressions and "stream-ids" not in options:
                raise ConfigurationError("A topic is missing; call set_topic(...) or set_topic_selector(...)")
            if isinstance(serializer.partitioner, str):
                if "sink.partitioner" in options:
                    raise ConflictingOptionsError(
                        ["sink.partitioner", "set_partitioner"], "both choose partitions; give one of them"
                    )
                options["sink.partitioner"] = serializer.partitioner
            else:
                partitioner = serializer.partitioner
        objects = SinkObjects(self._metadata_service, partitioner)
        configure_sink(options, objects)
        kernel()
        parallelism = options.pop("sink.parallelism", None)
        return KafkaSink(options, objects, serializer, None if parallelism is None else int(parallelism))
