"""Streams and clusters as a metadata service describes them (FLIP-246: KafkaStream, ClusterMetadata)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dynamic_kafka.continuation import Continues
from dynamic_kafka.initializer import KafkaOffsetsInitializer

__all__ = ["TOPIC_NAME", "ClusterMetadata", "KafkaStream"]

TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
"""Kafka's own rule for the whole name of a topic (org.apache.kafka.common.internals.Topic)."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A cluster's part of a stream.

    Args:
        topics: The topics of the stream on this cluster.
        properties: The client properties for the cluster, by Java's or librdkafka's names; `bootstrap.servers` is
            required. Secrets should be references (`${env:NAME}`, `${file:PATH}`). `repr` never shows them.
        starting_offsets: The starting offsets on this cluster; None takes those of the source.
        stopping_offsets: The stopping offsets on this cluster; None takes those of the source.
        continues: The cluster that this one continues; None if it continues none.
    """

    topics: frozenset[str]
    properties: Mapping[str, str] = field(repr=False)
    starting_offsets: KafkaOffsetsInitializer | None = None
    stopping_offsets: KafkaOffsetsInitializer | None = None
    continues: Continues | None = None


@dataclass(frozen=True, slots=True)
class KafkaStream:
    """A logical name for topics on any number of clusters.

    Args:
        stream_id: The name.
        clusters: Cluster id to the cluster's part of the stream. The id is a name of your choice, and bootstrap servers may
            change while it stays the same. Checkpoints know a cluster also by Kafka's own `cluster.id`.
    """

    stream_id: str
    clusters: Mapping[str, ClusterMetadata]
