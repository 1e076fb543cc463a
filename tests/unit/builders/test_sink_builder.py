"""The sink's builders: what they require, what they pass on. What they do with rows is in `tests/spark`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from dynamic_kafka import (
    DeliveryGuarantee,
    InMemoryMetadataService,
    KafkaPartitioner,
    KafkaRecordSerializationSchema,
    KafkaSink,
    SimpleStringSchema,
    TransactionNamingStrategy,
)
from dynamic_kafka.builders import KafkaRecordSerializationSchemaBuilder, KafkaSinkBuilder
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError


class First:
    """A user's own partitioner."""

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:
        """See KafkaPartitioner."""

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """See KafkaPartitioner."""
        return partitions[0]


def schema() -> KafkaRecordSerializationSchemaBuilder:
    """A record serializer that lacks only a topic."""
    return KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())


def sink() -> KafkaSinkBuilder:
    """A sink that lacks nothing."""
    return KafkaSink.builder().set_bootstrap_servers("b:1").set_record_serializer(schema().set_topic("t").build())


def test_the_seeds_sink() -> None:
    """Flink's first example, and its builder's default guarantee."""
    built = sink().build()
    assert dict(built.options) == {
        "sink.delivery-guarantee": "none",
        "properties.bootstrap.servers": "b:1",
        "topic": "t",
    }


def test_every_setter_is_an_option() -> None:
    """By Flink's names."""
    built = (
        sink()
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("job")
        .set_transaction_naming_strategy(TransactionNamingStrategy.POOLING)
        .set_property("transaction.timeout.ms", "60000")
        .set_properties({"linger.ms": "5"})
        .set_kafka_producer_config({"batch.size": "100000"})
        .set_property("Sink.Lost-Transactions", "continue:3")
        .build()
    )
    assert dict(built.options) == {
        "topic": "t",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": "job",
        "sink.transaction-naming-strategy": "pooling",
        "sink.lost-transactions": "continue:3",
        "properties.bootstrap.servers": "b:1",
        "properties.transaction.timeout.ms": "60000",
        "properties.linger.ms": "5",
        "properties.batch.size": "100000",
    }


@pytest.mark.parametrize("name", ["sink.delivery-guarantee", "sink.semantic", "SINK.Semantic"])
def test_an_option_by_its_name_replaces_the_builders_default(name: str) -> None:
    """Also by its alias, in any case."""
    assert sink().set_property(name, "at-least-once").build().options["sink.delivery-guarantee"] == "at-least-once"


def test_what_a_sink_requires() -> None:
    """Each error says what to call or to set."""
    serializer = schema().set_topic("t").build()
    with pytest.raises(ConfigurationError, match=r"call set_record_serializer"):
        KafkaSink.builder().set_bootstrap_servers("b:1").build()
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        KafkaSink.builder().set_record_serializer(serializer).build()
    with pytest.raises(ConfigurationError, match=r"call set_topic\(\.\.\.\) or set_topic_selector"):
        sink().set_record_serializer(schema().build()).build()
    with pytest.raises(ConfigurationError, match=r"'sink\.transactional-id-prefix' is missing"):
        sink().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    with pytest.raises(ConfigurationError, match=r"'linger\.mss'"):
        sink().set_property("linger.mss", "5").build()
    with pytest.raises(ConfigurationError, match="'topic'"):
        sink().set_property("topic", "u").build()


def test_what_a_record_requires() -> None:
    """A value; and each part once, a topic by one of two ways, as in Flink."""
    with pytest.raises(ConfigurationError, match=r"call set_value_serialization_schema"):
        KafkaRecordSerializationSchema.builder().set_topic("t").build()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("set_topic", "set_topic"),
        ("set_topic", "set_topic_selector"),
        ("set_topic_selector", "set_topic"),
        ("set_key_serialization_schema", "set_key_serialization_schema"),
        ("set_value_serialization_schema", "set_value_serialization_schema"),
        ("set_header_provider", "set_header_provider"),
    ],
)
def test_nothing_is_set_twice(first: str, second: str) -> None:
    """As in Flink."""
    builder = KafkaRecordSerializationSchema.builder()
    getattr(builder, first)("x")
    with pytest.raises(ConflictingOptionsError, match=f"'{first}' and '{second}' are in conflict"):
        getattr(builder, second)("x")


def test_partitioners() -> None:
    """An object goes with the class that Spark registers, a name is an option."""
    own = First()
    assert isinstance(own, KafkaPartitioner)
    by_object = sink().set_record_serializer(schema().set_topic("t").set_partitioner(own).build()).build()
    assert by_object.objects.partitioner is own
    assert "sink.partitioner" not in by_object.options
    by_name = sink().set_record_serializer(schema().set_topic("t").set_partitioner("fixed").build()).build()
    assert by_name.objects.partitioner is None
    assert by_name.options["sink.partitioner"] == "fixed"


@pytest.mark.parametrize("partitioner", ["fixed", First()])
def test_a_partitioner_by_setter_and_by_option_is_an_error(partitioner: str | KafkaPartitioner) -> None:
    """One of them would be ignored."""
    both = sink().set_record_serializer(schema().set_topic("t").set_partitioner(partitioner).build())
    with pytest.raises(ConflictingOptionsError, match=r"'sink\.partitioner' and 'set_partitioner' are in conflict"):
        both.set_property("sink.partitioner", "round-robin").build()


@pytest.mark.parametrize(
    ("setter", "given", "expected"),
    [
        ("set_bootstrap_servers", (["s3cret"],), "a text for 'bootstrap.servers'.* the type list"),
        ("set_stream_id", ({"s3cret"},), "a text, but was given a value of the type set"),
        ("set_property", ("linger.ms", 5), "a text for 'linger.ms', but was given a value of the type int"),
        ("set_properties", ({"sasl.password": b"s3cret"},), "a text for 'sasl.password', but .* the type bytes"),
        ("set_kafka_producer_config", ("a=s3cret",), "a dict of properties, but .* the type str"),
        (
            "set_delivery_guarantee",
            ("exactly-once",),
            r"a DeliveryGuarantee, such as DeliveryGuarantee\.EXACTLY_ONCE, but",
        ),
        ("set_transaction_naming_strategy", ("pooling",), "a TransactionNamingStrategy, such as"),
        ("set_transactional_id_prefix", (7,), "a text, but .* the type int"),
    ],
)
def test_what_a_setter_does_not_take_is_refused_at_once(setter: str, given: tuple[Any, ...], expected: str) -> None:
    """With the setter and what it takes, and without the value, which may be a secret."""
    name = "set_properties" if setter == "set_kafka_producer_config" else setter
    with pytest.raises(ConfigurationError, match=f"^{name} takes {expected}") as caught:
        getattr(sink(), setter)(*given)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("setter", "expected"), [("set_topic", "a text"), ("set_partitioner", "a KafkaPartitioner, or")]
)
def test_what_a_records_setter_does_not_take(setter: str, expected: str) -> None:
    """It is refused as by the sink's builder."""
    with pytest.raises(ConfigurationError, match=f"^{setter} takes {expected}.* the type list"):
        getattr(schema(), setter)(["t"])


def test_a_stream_of_a_metadata_service() -> None:
    """Its clusters and topics are looked up; neither servers nor a topic are required."""
    service = InMemoryMetadataService()
    builder = KafkaSink.builder().set_kafka_metadata_service(service).set_record_serializer(schema().build())
    built = builder.set_stream_id("s").build()
    assert built.objects.metadata_service is service
    assert built.options["stream-ids"] == "s"
    with pytest.raises(ConfigurationError, match="'metadata-service' is missing"):
        KafkaSink.builder().set_stream_id("s").set_record_serializer(schema().build()).build()


def test_a_serializer_of_ones_own() -> None:
    """A function from rows to the sink's columns, which may choose a topic by itself."""

    def identity(rows: DataFrame) -> DataFrame:
        return rows

    assert sink().set_record_serializer(identity).build().serializer is identity


def test_no_secret_is_shown() -> None:
    """By no repr."""
    built = sink().set_property("sasl.password", "hunter2").build()
    assert "hunter2" not in repr(built)


class Rows:
    """A DataFrame, its session and its writer in one: notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.registered: list[Any] = []
        self.settings: dict[str, str] = {}
        self.sparkSession = self.dataSource = self.conf = self.write = self.writeStream = self

    def register(self, data_source: Any) -> None:
        """`spark.dataSource.register`."""
        self.registered.append(data_source)

    def get(self, key: str, default: str | None) -> str | None:
        """`spark.conf.get`."""
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        """`spark.conf.set`."""
        self.settings[key] = value

    def __getattr__(self, name: str) -> Callable[..., Rows]:
        if name.startswith("_"):  # as of Spark Connect, where there is no JVM to ask
            raise AttributeError(name)

        def ask(*args: Any, **kwargs: Any) -> Rows:
            self.asked.append((name, *args, *sorted(kwargs)))
            return self

        return ask


def test_writers_have_the_format_and_the_options() -> None:
    """A batch writer appends, and is saved if asked to."""
    built = sink().set_record_serializer(lambda rows: rows).set_property("linger.ms", "5").build()
    for write, more in (
        (built.write_stream, []),
        (built.write, [("mode", "append")]),
        (built.save, [("mode", "append")]),
    ):
        rows = Rows()
        write(cast("DataFrame", rows))
        (registered,) = rows.registered
        assert registered.sink_objects is built.objects
        options = ("options", "properties.bootstrap.servers", "properties.linger.ms", "sink.delivery-guarantee")
        saved = [("save",)] if write == built.save else []
        assert rows.asked == [("format", registered.name()), *more, options, *saved]


def test_a_sink_is_registered_once_in_a_session() -> None:
    """`foreachBatch` asks for a writer with every batch; sinks of one session are kept apart."""
    built, rows = sink().set_record_serializer(lambda rows: rows).build(), Rows()
    for _ in range(3):
        built.save(cast("DataFrame", rows))
    assert len(rows.registered) == 1
    sink().set_record_serializer(lambda rows: rows).build().save(cast("DataFrame", rows))
    assert len({registered.name() for registered in rows.registered}) == 2


def test_parallelism_is_the_number_of_tasks() -> None:
    """It is no option of the data source, which cannot repartition."""
    built = sink().set_record_serializer(lambda rows: rows).set_property("sink.parallelism", "4").build()
    rows = Rows()
    built.write(cast("DataFrame", rows))
    assert rows.asked[0] == ("repartition", 4)
    assert "sink.parallelism" not in built.options
