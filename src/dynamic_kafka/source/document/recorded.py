"""The offsets up to which a query has written a table, as its checkpoint records them."""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamic_kafka.errors import CheckpointError, ConfigurationError
from dynamic_kafka.history.model import LargestOffsets
from dynamic_kafka.source.document.checkpoint import json_object, read_checkpoint
from dynamic_kafka.source.document.offsets import is_spark_kafka_offset

__all__ = ["Recorded", "recorded_offsets"]


class Recorded(NamedTuple):
    """What a checkpoint records.

    Attributes:
        batch: The number of its last batch.
        largest: The last offset of each partition that was read, also of topics that the query does not read any more.
        clusters: The ids of clusters and topics, by the cluster's name; nothing, if Spark's own source has read them.
    """

    batch: int
    largest: LargestOffsets
    clusters: dict[str, Any]


def recorded_offsets(location: str) -> Recorded:
    """Return the offsets that the finished batches of a checkpoint have read.

    Args:
        location: The checkpoint, of this source or of Spark's own Kafka source.

    Raises:
        ConfigurationError: If its last batch is not finished, or it has not read everything before.
        CheckpointError: If it is not a checkpoint, or of another source.
    """
    checkpoint = read_checkpoint(location)
    batch = checkpoint.last_batch()
    if checkpoint.is_unfinished:
        raise ConfigurationError(
            f"Option 'history.switch.checkpoint': batch {checkpoint.last} in {location} is not finished, so the history may "
            "have its rows or not. Let the query finish it (trigger(availableNow=True)), and stop it"
        )
    texts = list(batch.sources.values())
    value = json_object(texts[0]) if len(texts) == 1 else None
    if value and is_spark_kafka_offset(value):
        own = {("", topic, int(p)): offset - 1 for topic, ends in value.items() for p, offset in ends.items()}
        return Recorded(checkpoint.last, own, {})
    document = batch.document(batch.source(None))
    if document.history is not None and document.history.range[1] < document.history.history.rows:
        raise ConfigurationError(
            f"Option 'history.switch.checkpoint': the query of {location} still reads its own history. Let it finish "
            "that, and stop it"
        )
    largest: dict[tuple[str, str, int], int] = {}
    clusters: dict[str, Any] = {}
    for name, cluster in document.clusters.items():
        kept = cluster.retained
        clusters[name] = {
            "id": cluster.kafka_id,
            "topics": {topic: of.topic_id for topic, of in kept.items()} | cluster.topics,
        }
        largest |= {(name, topic, p): end - 1 for topic, of in kept.items() for p, end in of.offsets.items()}
        largest |= {(name, tp.topic, tp.partition): end - 1 for tp, (_, end) in cluster.ranges.items()}
    if not largest:
        raise CheckpointError(f"{batch.place} has no offsets: this query has not read anything yet")
    return Recorded(checkpoint.last, largest, clusters)
