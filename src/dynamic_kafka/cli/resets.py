"""New positions from the clusters of a checkpoint: the earliest or latest offsets, or those of a time."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

from dynamic_kafka.cli.connection import GROUP
from dynamic_kafka.cli.output import warn
from dynamic_kafka.cli.positions import Partition, check_chosen
from dynamic_kafka.errors import CheckpointError, ClusterUnavailableError, ConfigurationError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition, checked_offsets
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.document.offsets import topic_id_text

__all__ = ["parse_target", "parse_time_ms", "reset_document"]


def parse_target(text: str) -> KafkaOffsetsInitializer:
    """Parse `earliest`, `latest` or a time for argparse."""
    if text in ("earliest", "latest"):
        return KafkaOffsetsInitializer.earliest() if text == "earliest" else KafkaOffsetsInitializer.latest()
    return KafkaOffsetsInitializer.timestamp(parse_time_ms(text))


def parse_time_ms(text: str) -> int:
    """Parse a time from 1970 on for argparse: ISO 8601, in UTC if it has no zone, or milliseconds since 1970."""
    try:
        if text.isdecimal() and len(text) > 8:  # 20261122 is a day
            found_ms = int(text)
        else:
            found = datetime.fromisoformat(text)
            found_ms = int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
        KafkaOffsetsInitializer.timestamp(found_ms)  # refuses what Kafka would take for something else
    except ValueError:
        raise argparse.ArgumentTypeError(
            "expected earliest, latest, a time from 1970 on such as 2026-11-22T20:00Z, or milliseconds since 1970"
        ) from None
    return found_ms


def reset_document(
    document: Document,
    target: KafkaOffsetsInitializer,
    *,
    clusters: Collection[str] | None,
    topics: Collection[str] | None,
    properties: Mapping[str, str],
    timeout_ms: int,
) -> tuple[Document, dict[Partition, int]]:
    """Ask the clusters for the positions of a checkpoint's topics. Clusters and topics are all if they are None.

    Returns:
        The document with the topics as they are today, and the new positions.

    Raises:
        ConfigurationError: If the document does not have a cluster or topic, or no partition of what is chosen.
        ClusterUnavailableError: If a cluster does not answer, or does not have a topic.
        CheckpointError: If another cluster answers.
    """
    check_chosen("cluster", clusters, document.clusters)
    check_chosen("topic", topics, {topic for state in document.clusters.values() for topic in state.topics})
    found: dict[Partition, int] = {}
    states = dict(document.clusters)
    for name, state in document.clusters.items():
        asked = sorted(topic for topic in state.topics if topics is None or topic in topics)
        if asked and (clusters is None or name in clusters):
            connection = ClusterConnection(
                name, {**state.properties, **properties}, group_id=GROUP, timeout_ms=timeout_ms
            )
            with closing(connection):
                states[name], offsets = _reset(name, state, asked, target, connection)
            found |= {Partition(name, topic, partition): offset for (topic, partition), offset in offsets.items()}
        elif topics is None and (clusters is None or name in clusters):
            warn(f"cluster '{name}' has no positions in the checkpoint that could be reset")
    if not found:
        raise ConfigurationError(
            "No partition of the checkpoint is chosen, so nothing would change; dynamic-kafka offsets show has the "
            "positions to choose from with --cluster and --topic"
        )
    return replace(document, clusters=states), found


def _reset(
    name: str, state: ClusterOffsets, asked: list[str], target: KafkaOffsetsInitializer, connection: ClusterConnection
) -> tuple[ClusterOffsets, dict[KafkaTopicPartition, int]]:
    kafka_id = connection.kafka_id()
    if kafka_id and state.kafka_id and kafka_id != state.kafka_id:
        raise CheckpointError(
            f"Cluster '{name}' has the cluster.id {kafka_id}, but the checkpoint was read from {state.kafka_id}. Give the "
            "addresses of that cluster with --cluster and --property bootstrap.servers=...",
            cluster_id=name,
        )
    infos, denied = connection.topics(asked)
    if absent := sorted(set(asked) - infos.keys()):
        why = "may not be described by this user" if denied else "does not exist"
        raise ClusterUnavailableError(
            f"Cluster '{name}', topic '{absent[0]}' {why}. Name the topics to reset with --topic", cluster_id=name
        )
    state = state.copied(kafka_id=state.kafka_id or kafka_id)
    by_topic = state.partitions_by_topic()
    tps = []
    for topic in asked:
        known = by_topic.get(topic, [])
        count, topic_id = len(infos[topic].leaders), topic_id_text(infos[topic].topic_id)
        if state.topics[topic] and topic_id and state.topics[topic] != topic_id:
            warn(f"cluster '{name}', topic '{topic}' was recreated: the new positions are those of the new topic")
            state.forget_copies(known)  # of the old topic
        state.topics[topic] = topic_id or state.topics[topic]
        state.forget(tp for tp in known if tp.partition >= count)
        tps += [tp for tp in known if tp.partition < count]
    return state, checked_offsets(target, tps, connection)
