"""`KafkaSource` and `DynamicKafkaSource` with PyFlink's builders, over the same options as `format(...)`.

Text becomes an option. Objects (a metadata service, a custom offsets initializer) are pickled with the data source class
that Spark registers, and never into an option: Spark's UI and event log show options.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from dynamic_kafka.builders.arguments import checked
from dynamic_kafka.builders.deserializers import KafkaRecordDeserializationSchema, RecordDeserializer, ValueDeserializer
from dynamic_kafka.builders.watermarks import WatermarkStrategy
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber, StreamSetSubscriber
from dynamic_kafka.native import kernel
from dynamic_kafka.options import option_names, options_of
from dynamic_kafka.source.configure import SOURCE_OPTIONS, SourceObjects, configure_source
from dynamic_kafka.source.settings import SourceSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "History",
    "HybridSource",
    "HybridSourceBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
]

_DECLARED = options_of(SourceSettings)


@dataclass(frozen=True)
class _Source:
    """A validated source, created by a builder, that returns DataFrames."""

    options: Mapping[str, str] = field(repr=False)
    objects: SourceObjects = field(repr=False)
    deserializer: RecordDeserializer | None
    _id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False, repr=False, compare=False)

    def read_stream(self, spark: SparkSession, watermark_strategy: WatermarkStrategy | None = None) -> DataFrame:
        """Return a streaming DataFrame.

        With stopping offsets (`set_bounded`, `set_unbounded(stop)`) its query ends by itself once they are reached.

        Args:
            spark: The session.
            watermark_strategy: The watermark of the rows, and how partitions are aligned to it.

        Raises:
            ConfigurationError: If the strategy does not fit to the source.
        """
        from dynamic_kafka.spark.notebook import show_queries
        from dynamic_kafka.spark.stop_finished import stop_finished_queries

        strategy = watermark_strategy or WatermarkStrategy.no_watermarks()
        options = {**self.options, **strategy.options}
        if strategy.options:
            configure_source(options, self.objects)
        stop_finished_queries(spark)
        show_queries()
        raw = spark.readStream.format(self._registered(spark)).options(**options).load()
        return strategy.applied(self._deserialized(raw))

    def read(self, spark: SparkSession) -> DataFrame:
        """Return a batch DataFrame, up to the stopping offsets, or to the latest ones if there are none."""
        return self._deserialized(spark.read.format(self._registered(spark)).options(**self.options).load())

    def _registered(self, spark: SparkSession) -> str:
        """Register a data source class that carries the objects as they are now; once, however often it is read."""
        from dynamic_kafka.spark.datasource import registered

        return registered(spark, self._id, source_objects=self.objects)

    def _deserialized(self, raw: DataFrame) -> DataFrame:
        return raw if self.deserializer is None else self.deserializer(raw)


class KafkaSource(_Source):
    """A source that reads topics of one Kafka cluster (Flink: KafkaSource).

    Examples:
        >>> source = (
        ...     KafkaSource.builder()
        ...     .set_bootstrap_servers("localhost:9092")
        ...     .set_topics("input-topic")
        ...     .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        ...     .set_value_only_deserializer(SimpleStringSchema())
        ...     .build()
        ... )
        >>> df = source.read_stream(spark)  # doctest: +SKIP
    """

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a new builder."""
        return KafkaSourceBuilder()


class DynamicKafkaSource(_Source):
    """A source that reads streams on any number of Kafka clusters, and follows their changes (Flink: DynamicKafkaSource).

    Examples:
        >>> source = (
        ...     DynamicKafkaSource.builder()
        ...     .set_kafka_metadata_service(FileMetadataService("streams.yaml"))
        ...     .set_stream_ids({"input-stream"})
        ...     .set_value_only_deserializer(SimpleStringSchema())
        ...     .build()
        ... )
        >>> df = source.read_stream(spark)  # doctest: +SKIP
    """

    @staticmethod
    def builder() -> DynamicKafkaSourceBuilder:
        """Return a new builder."""
        return DynamicKafkaSourceBuilder()


@dataclass(frozen=True)
class History:
    """Files that are read before Kafka; the arguments are the options `history.*`.

    Args:
        path: The folder or file.
        format: The format of the files.
        switch: How Kafka goes on: `coordinates`, `starting-offsets` or `timestamp`.
        timestamp_millis: The time of the switch `timestamp`, in milliseconds since 1970.
        time_column: The column with the time of the rows.
    """

    path: str
    format: str = "parquet"
    switch: str = "coordinates"
    timestamp_millis: int | None = None
    time_column: str | None = None


class HybridSource(_Source):
    """A source that reads files first, and then goes on with Kafka (Flink: HybridSource).

    Examples:
        >>> source = HybridSource.builder(History("s3a://archive/orders")).add_source(kafka_source).build()  # doctest: +SKIP
        >>> df = source.read_stream(spark)  # doctest: +SKIP
    """

    @staticmethod
    def builder(first_source: History) -> HybridSourceBuilder:
        """Return a new builder.

        Args:
            first_source: The files that are read first.
        """
        return HybridSourceBuilder(first_source)


class HybridSourceBuilder:
    """The builder of a `HybridSource`: one history, and one Kafka source after it."""

    def __init__(self, first_source: History) -> None:
        self._history = first_source
        self._kafka: _Source | None = None

    def add_source(self, source: KafkaSource | DynamicKafkaSource) -> Self:
        """Add the Kafka source that is read after the files. Its deserializer is that of the files' rows, too.

        It has starting offsets only with the switch `starting-offsets`: otherwise the history says where Kafka goes on.
        """
        if self._kafka is not None:
            raise ConfigurationError("A second source was added. After the history there is one source, of Kafka")
        self._kafka = source
        return self

    def build(self) -> HybridSource:
        """Check all settings and return the source.

        Raises:
            ConfigurationError: If the Kafka source is missing, or a setting is invalid or in conflict.
        """
        if self._kafka is None:
            raise ConfigurationError("The Kafka source is missing; call add_source(...)")
        history = self._history
        named = {
            "history.path": history.path,
            "history.format": history.format,
            "history.switch": history.switch,
            "history.switch.timestamp-millis": history.timestamp_millis,
            "history.time-column": history.time_column,
        }
        options = {**self._kafka.options, **{name: str(value) for name, value in named.items() if value is not None}}
        configure_source(options, self._kafka.objects)
        return HybridSource(options, self._kafka.objects, self._kafka.deserializer)


def _initializer(setter: str, given: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    expected = "a KafkaOffsetsInitializer, such as KafkaOffsetsInitializer.earliest()"
    return checked(setter, given, expected, KafkaOffsetsInitializer)


class _Builder:
    """The setters of both builders. Every setter returns the builder."""

    def __init__(self) -> None:
        self._options: dict[str, str] = {}
        self._subscribed_by: str | None = None
        self._subscriber: KafkaStreamSubscriber | None = None
        self._metadata_service: KafkaMetadataService | None = None
        self._starting: KafkaOffsetsInitializer | None = None
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._deserializer: RecordDeserializer | None = None

    def set_group_id(self, group_id: str) -> Self:
        """Set the consumer group. Committed offsets are read from it and, for monitoring, written to it."""
        return self._set("set_group_id", "group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> Self:
        """Set the `client.id` of all clients."""
        return self._set("set_client_id_prefix", "client.id.prefix", prefix)

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Set where reading starts; default earliest. A cluster's own starting offsets in the metadata win."""
        self._starting = _initializer("set_starting_offsets", starting_offsets_initializer)
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop at these offsets, without discovery of new clusters, topics or partitions."""
        self._stopping, self._bounded = _initializer("set_bounded", stopping_offsets_initializer), True
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Read as a stream, with discovery, that ends by itself at these offsets."""
        self._stopping, self._bounded = _initializer("set_unbounded", stopping_offsets_initializer), False
        return self

    def set_value_only_deserializer(self, deserializer: ValueDeserializer) -> Self:
        """Keep only the value, deserialized.

        Args:
            deserializer: A Spark column or SQL expression over `value`, or a function from column to column such as
                `SimpleStringSchema()` and `ArrowDeserializer(...)`.
        """
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserializer))

    def set_deserializer(self, deserializer: RecordDeserializer) -> Self:
        """Set the function from the raw DataFrame (key, value, topic, partition, offset, ..., cluster) to the result."""
        self._deserializer = deserializer
        return self

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of Kafka clients, or an option of the source by its own name."""
        return self._set("set_property", key, value)

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set several properties, as `set_property` does."""
        for key, value in checked("set_properties", properties, "a dict of properties", Mapping).items():
            self._set("set_properties", key, value)
        return self

    def _set(self, setter: str, key: str, value: str) -> Self:
        checked(setter, key, "names of properties that are text")
        checked(setter, value, f"a text for '{key}'")
        known = {name.lower() for name in option_names(SOURCE_OPTIONS)}
        is_option = key.lower() in known and key != "topic"
        self._options[key if is_option else f"properties.{key}"] = value
        return self

    def _subscribe(self, setter: str, **options: str) -> Self:
        if self._subscribed_by is not None:
            raise ConflictingOptionsError([self._subscribed_by, setter], "a source reads by one of them")
        self._subscribed_by = setter
        self._options |= options
        return self

    def _validated(self) -> tuple[dict[str, str], SourceObjects]:
        options = dict(self._options)
        if self._bounded:
            for interval in (_DECLARED["metadata_interval_ms"], _DECLARED["discovery_interval_ms"]):
                spellings = {name.lower() for name in option_names([interval])}
                options = {key: value for key, value in options.items() if key.lower() not in spellings}
                options[interval.key] = "-1"
        objects = SourceObjects(self._metadata_service, self._subscriber, self._starting, self._stopping)
        configure_source(options, objects)
        kernel()
        return options, objects


class KafkaSourceBuilder(_Builder):
    """The builder of a `KafkaSource`; `set_bootstrap_servers` and one of the subscriptions are required."""

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the brokers to connect to first, as `host:port,host:port`."""
        return self._set("set_bootstrap_servers", "bootstrap.servers", bootstrap_servers)

    def set_topics(self, *topics: str) -> Self:
        """Read all partitions of these topics."""
        names = [checked("set_topics", topic, "the names of topics, as in set_topics('a', 'b')") for topic in topics]
        return self._subscribe("set_topics", topic=";".join(names))

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Read all topics with a name that matches the regular expression as a whole."""
        return self._subscribe("set_topic_pattern", **{"topic-pattern": checked("set_topic_pattern", topic_pattern)})

    def set_partitions(self, partitions: Collection[KafkaTopicPartition | tuple[str, int]]) -> Self:
        """Read only these partitions.

        Raises:
            ConfigurationError: If they are no pairs of a topic and a partition.
        """
        expected = "pairs of a topic and a partition, such as {('orders', 0)}"
        pairs: Collection[object] = checked("set_partitions", partitions, expected, (AbstractSet, list, tuple))
        for pair in pairs:
            if not isinstance(pair, tuple) or [*map(type, pair)] != [str, int]:
                raise ConfigurationError(f"set_partitions takes {expected}, but was given {pair!r}")
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            by_topic.setdefault(topic, []).append(partition)
        return self._subscribe("set_partitions", **{"topic-partitions": json.dumps(by_topic)})

    def build(self) -> KafkaSource:
        """Check all settings and return the source.

        Raises:
            ConfigurationError: If a setting is missing, invalid or in conflict. Names the option, the value and the remedy.
        """
        return KafkaSource(*self._validated(), self._deserializer)


class DynamicKafkaSourceBuilder(_Builder):
    """The builder of a `DynamicKafkaSource`; a metadata service and one of the subscriptions are required."""

    def set_kafka_metadata_service(self, kafka_metadata_service: KafkaMetadataService) -> Self:
        """Set the metadata service, which maps streams to clusters and topics. The reader process gets a copy of it."""
        self._metadata_service = kafka_metadata_service
        return self

    def set_stream_ids(self, stream_ids: Collection[str]) -> Self:
        """Read these streams."""
        ids = checked(
            "set_stream_ids", stream_ids, "a collection of ids, such as {'orders'}", (AbstractSet, list, tuple)
        )
        self._subscriber = StreamSetSubscriber(ids)  # not an option, in which `,` and `;` separate ids
        return self._subscribe("set_stream_ids")

    def set_stream_pattern(self, stream_pattern: str) -> Self:
        """Read the streams with an id that contains a match of the regular expression."""
        return self._subscribe(
            "set_stream_pattern", **{"stream-pattern": checked("set_stream_pattern", stream_pattern)}
        )

    def set_kafka_stream_subscriber(self, kafka_stream_subscriber: KafkaStreamSubscriber) -> Self:
        """Read the streams that this object chooses."""
        self._subscriber = kafka_stream_subscriber
        return self._subscribe("set_kafka_stream_subscriber")

    def build(self) -> DynamicKafkaSource:
        """Check all settings and return the source.

        Raises:
            ConfigurationError: If a setting is missing, invalid or in conflict. Names the option, the value and the remedy.
        """
        if self._metadata_service is None:
            raise ConfigurationError("A metadata service is missing; call set_kafka_metadata_service(...)")
        return DynamicKafkaSource(*self._validated(), self._deserializer)
