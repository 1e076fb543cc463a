"""The builders of sources, without a Spark session."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.builders.source import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    History,
    HybridSource,
    KafkaSource,
)
from dynamic_kafka.builders.watermarks import WatermarkStrategy
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.metadata.subscriber import StreamSetSubscriber


def builder() -> DynamicKafkaSourceBuilder:
    """A builder with a metadata service."""
    return DynamicKafkaSource.builder().set_kafka_metadata_service(InMemoryMetadataService())


def test_a_stream_id_may_hold_the_characters_that_separate_ids_in_options() -> None:
    """Ids are an object here, not text."""
    subscriber = builder().set_stream_ids({"a,b", "c;d"}).build().objects.subscriber
    assert isinstance(subscriber, StreamSetSubscriber)
    assert subscriber.stream_ids == {"a,b", "c;d"}


@pytest.mark.parametrize("name", ["partition.discovery.interval.ms", "scan.topic-partition-discovery.interval"])
def test_a_bounded_source_never_looks_for_new_partitions(name: str) -> None:
    """By whatever name the interval was set before: as in Flink, the end wins."""
    source = (
        builder()
        .set_stream_ids({"s"})
        .set_property(name, "5 min")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .build()
    )
    assert source.options["partition.discovery.interval.ms"] == "-1"


def test_a_subscription_by_setter_and_by_option_is_an_error() -> None:
    """One of them would be ignored."""
    with pytest.raises(ConflictingOptionsError, match="stream-pattern"):
        builder().set_stream_ids({"s"}).set_property("stream-pattern", "x").build()


@pytest.mark.parametrize(
    ("name", "value", "setter"),
    [
        ("scan.startup.mode", "latest-offset", "set_starting_offsets"),
        ("startingOffsets", "earliest", "set_starting_offsets"),
        ("scan.bounded.mode", "latest-offset", "set_bounded"),
        ("endingOffsets", "latest", "set_unbounded"),
    ],
)
def test_offsets_by_setter_and_by_option_are_an_error(name: str, value: str, setter: str) -> None:
    """One of them would be ignored."""
    both = builder().set_stream_ids({"s"}).set_property(name, value)
    with pytest.raises(ConflictingOptionsError, match=f"{name}.*the builder's st.*ing offsets"):
        getattr(both, setter)(KafkaOffsetsInitializer.earliest()).build()


@pytest.mark.parametrize(
    ("setter", "given", "expected"),
    [
        ("set_topics", (["a", "s3cret"],), r"the names of topics, as in set_topics\('a', 'b'\).* the type list"),
        ("set_topic_pattern", (None,), "a text, but was given a value of the type NoneType"),
        ("set_bootstrap_servers", (["s3cret"],), "a text for 'bootstrap.servers'.* the type list"),
        ("set_group_id", (5,), "a text for 'group.id'.* the type int"),
        ("set_property", ("fetch.min.bytes", 1), "a text for 'fetch.min.bytes', but .* the type int"),
        ("set_property", ("enable.auto.commit", True), "a text for 'enable.auto.commit', but .* the type bool"),
        ("set_property", ("client.rack", None), "a text for 'client.rack', but .* the type NoneType"),
        ("set_property", ("sasl.password", b"s3cret"), "a text for 'sasl.password', but .* the type bytes"),
        ("set_property", (5, "s3cret"), "names of properties that are text, but .* the type int"),
        ("set_properties", ({"sasl.password": ["s3cret"]},), "a text for 'sasl.password', but .* the type list"),
        ("set_properties", ("a=s3cret",), "a dict of properties, but .* the type str"),
        (
            "set_starting_offsets",
            ("earliest",),
            r"a KafkaOffsetsInitializer, such as KafkaOffsetsInitializer.earliest\(\), but .* the type str",
        ),
        ("set_bounded", ("latest",), "a KafkaOffsetsInitializer"),
        ("set_unbounded", (None,), "a KafkaOffsetsInitializer"),
    ],
)
def test_what_a_setter_does_not_take_is_refused_at_once(setter: str, given: tuple[Any, ...], expected: str) -> None:
    """With the setter and what it takes, and without the value, which may be a secret."""
    with pytest.raises(ConfigurationError, match=f"^{setter} takes {expected}") as caught:
        getattr(KafkaSource.builder(), setter)(*given)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("ids", ["s", None, 5])
def test_stream_ids_are_a_collection(ids: Any) -> None:
    """A text would be a collection of letters."""
    with pytest.raises(
        ConfigurationError, match=r"set_stream_ids takes a collection of ids, such as \{'orders'\}, but"
    ):
        builder().set_stream_ids(ids)
    with pytest.raises(ConfigurationError, match="set_stream_pattern takes a text, but"):
        builder().set_stream_pattern(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("pairs", ["ab", 5, ["a"], [("a",)], [("a", "0")], [("a", 0), (1, 2)], [("a", True)]])
def test_partitions_are_pairs(pairs: Any) -> None:
    """Of a topic and a number; a text of two letters is none."""
    with pytest.raises(ConfigurationError, match=r"^set_partitions takes pairs of a topic and a partition, such as"):
        KafkaSource.builder().set_partitions(pairs)


@pytest.mark.parametrize("given", [timedelta(seconds=-5), "-5 s", "soon", None])
@pytest.mark.parametrize("setter", ["for_bounded_out_of_orderness", "with_idleness"])
def test_a_watermark_has_no_negative_duration(setter: str, given: Any) -> None:
    """Whether it is given as a timedelta or as text."""
    with pytest.raises(ConfigurationError, match="give a timedelta, or a text such as '30 s' or '5 min', of 0 or more"):
        getattr(WatermarkStrategy.no_watermarks(), setter)(given)
    assert getattr(WatermarkStrategy.no_watermarks(), setter)(timedelta(0))


def test_a_source_is_registered_once_in_a_session() -> None:
    """However often it is read; another source, and another session, have their own class."""
    registered: list[Any] = []
    conf: dict[str, str] = {}
    session: Any = SimpleNamespace(
        conf=SimpleNamespace(get=conf.get, set=conf.__setitem__), dataSource=SimpleNamespace(register=registered.append)
    )
    source, other = builder().set_stream_ids({"s"}).build(), builder().set_stream_ids({"s"}).build()
    names = {source._registered(session) for _ in range(3)}
    assert len(names) == len(registered) == 1
    assert other._registered(session) not in names
    assert registered[0].source_objects is source.objects


def kafka_source(starting: KafkaOffsetsInitializer | None = None) -> KafkaSource:
    """A source of Kafka."""
    found = KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t")
    return (found if starting is None else found.set_starting_offsets(starting)).build()


def test_a_hybrid_source_has_the_options_of_both() -> None:
    """With PyFlink's names; what is not given is not set."""
    source = (
        HybridSource.builder(History("/h", switch="timestamp", timestamp_millis=5)).add_source(kafka_source()).build()
    )
    assert source.options["history.path"] == "/h"
    assert source.options["history.switch.timestamp-millis"] == "5"
    assert source.options["topic"] == "t"
    assert "history.time-column" not in source.options


def test_a_hybrid_source_that_is_not_complete() -> None:
    """Or says twice what comes after the files."""
    with pytest.raises(ConfigurationError, match="Kafka source is missing"):
        HybridSource.builder(History("/h")).build()
    with pytest.raises(ConfigurationError, match="second source"):
        HybridSource.builder(History("/h")).add_source(kafka_source()).add_source(kafka_source())
    started = kafka_source(KafkaOffsetsInitializer.latest())
    with pytest.raises(ConflictingOptionsError, match="the builder's starting offsets"):
        HybridSource.builder(History("/h")).add_source(started).build()
    source = HybridSource.builder(History("/h", switch="starting-offsets")).add_source(started).build()
    assert source.objects.starting == KafkaOffsetsInitializer.latest()
