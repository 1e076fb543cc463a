"""Streams and clusters as a metadata service describes them (FLIP-246: KafkaStream, ClusterMetadata)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynamic_kafka.initializer import KafkaOffsetsInitializer

__all__ = ["ClusterMetadata", "KafkaStream"]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One cluster's part of a stream.

    Args:
        topics: The topics of the stream on this cluster.
        properties: How to reach the cluster, in Java's or librdkafka's property names; `bootstrap.servers` is
            required. Secrets should be references (`${env:NAME}`, `${file:PATH}`). Never shown by `repr`.
        starting_offsets: Where reading starts on this cluster; None leaves it to the source.
        stopping_offsets: Where reading stops on this cluster; None leaves it to the source.
    """

    topics: frozenset[str]
    properties: Mapping[str, str] = field(repr=False)
    starting_offsets: KafkaOffsetsInitializer | None = None
    stopping_offsets: KafkaOffsetsInitializer | None = None


@dataclass(frozen=True, slots=True)
class KafkaStream:
    """A logical name and where its records are.

    Args:
        stream_id: The name.
        clusters: Cluster id to that cluster's part. The id is the stable name of a cluster: its bootstrap servers
            may change while it stays the same cluster.
    """

    stream_id: str
    clusters: Mapping[str, ClusterMetadata]
