"""The builders of sources, without a Spark session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.builders.source import DynamicKafkaSource, DynamicKafkaSourceBuilder
from dynamic_kafka.errors import ConflictingOptionsError
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
