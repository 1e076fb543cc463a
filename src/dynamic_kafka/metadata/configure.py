"""From options to a metadata service, for the source and for the sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.metadata.create import create_metadata_service
from dynamic_kafka.metadata.in_memory import InMemoryMetadataService
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.options import ParsedOptions

__all__ = ["DEFAULT_CLUSTER", "one_cluster", "service_of"]

DEFAULT_CLUSTER = "kafka"
"""What a cluster is called that no metadata service names."""


def service_of(
    parsed: ParsedOptions, properties: Mapping[str, str], given: KafkaMetadataService | None
) -> Callable[[], KafkaMetadataService]:
    """What makes the metadata service; picklable.

    Args:
        parsed: The options, of which one names the service.
        properties: The global Kafka properties.
        given: A service that a builder was given; it needs no options.

    Raises:
        ConfigurationError: If no service is named, or its own options are wrong.
    """
    if given is not None:
        return partial(_itself, given)
    name = parsed.get("metadata-service")
    if name is None:
        raise ConfigurationError(
            "Option 'metadata-service' is missing; streams are described by a metadata service: single-cluster, file, http, "
            "or package.module:Class"
        )
    make = _Named(name, parsed.service_options, properties)
    make().close()  # a missing or wrong option is an error now, not in the first batch
    return make


def one_cluster(
    parsed: ParsedOptions, properties: Mapping[str, str], topics: Collection[str]
) -> tuple[str, Callable[[], KafkaMetadataService]]:
    """A made-up stream of one cluster, for options that name topics instead of streams.

    Args:
        parsed: The options; `metadata-service.cluster-id` names the cluster.
        properties: How to reach it.
        topics: Its topics.

    Returns:
        The name of the cluster, which is the stream's too, and what makes the service; picklable.

    Raises:
        ConfigurationError: If `bootstrap.servers` is missing, or there are options of a metadata service.
    """
    unknown = [key for key in parsed.service_options if key != "metadata-service.cluster-id"]
    if unknown:
        raise ConflictingOptionsError(
            [*parsed.given("topic", "topic-pattern", "topic-partitions"), *unknown],
            "there is no metadata service; set 'metadata-service'",
        )
    if not properties.get("bootstrap.servers", "").strip():
        raise ConfigurationError(
            "Option 'properties.bootstrap.servers' (or 'kafka.bootstrap.servers') is missing; name at least one broker as "
            "host:port"
        )
    name = parsed.service_options.get("metadata-service.cluster-id", DEFAULT_CLUSTER)
    stream = KafkaStream(name, {name: ClusterMetadata(frozenset(topics), properties)})
    return name, partial(InMemoryMetadataService, [stream])


@dataclass(frozen=True)
class _Named:
    """Makes the service of a name; a class for the sake of its repr, which shows no property."""

    name: str
    options: Mapping[str, str] = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    def __call__(self) -> KafkaMetadataService:
        return create_metadata_service(self.name, self.options, self.properties)


def _itself(service: KafkaMetadataService) -> KafkaMetadataService:
    return service
