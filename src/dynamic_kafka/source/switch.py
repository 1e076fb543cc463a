"""The switch from a history to Kafka: where Kafka goes on, proved before anything is read, and what is guaranteed.

==================================================  =====================================================================
situation                                           rule
==================================================  =====================================================================
the history has coordinates                         Kafka goes on behind the largest offset of each partition
a partition that the history does not have          its beginning
a cluster, topic or partition of the history that   a warning: its rows are read from the history, and nothing after them
the query does not read
Kafka does not have the offset any more             an error with the number of missing records, or the beginning if data
                                                    loss is tolerated
Kafka's log ends before it                          an error: it is another log
another cluster.id or topic id than in the history  an error
a cluster or partition of the history does not      an error, also with `isolate`: where it goes on could not be proved
answer
starting offsets or a time are given                checked in the same way. Of a time nothing can be counted: it is an error
                                                    if the log has no record from before it, but has lost some
==================================================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, OffsetResolutionError, listed
from dynamic_kafka.history.model import LargestOffsets
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition, PartitionOffsetsRetriever
from dynamic_kafka.source.document import Document
from dynamic_kafka.source.model import ClusterView, DesiredCluster, Event

__all__ = ["AfterHistory", "NextOffsets", "check_positions", "next_offsets", "promise"]

NextOffsets = dict[str, dict[KafkaTopicPartition, int]]
"""The offsets at which Kafka goes on, by today's name of the cluster."""
_MOST = 5


@dataclass(frozen=True)
class AfterHistory(KafkaOffsetsInitializer):
    """The offsets at which Kafka goes on, proved to be there.

    Args:
        tolerant: If true, missing records are not an error.
        by_cluster: The offsets; all other partitions start at their beginning.
        given: The offsets that the user gives, in their place.
        is_time: True if these are of a time.
    """

    tolerant: bool
    by_cluster: Mapping[str, Mapping[KafkaTopicPartition, int]] = field(default_factory=dict, repr=False)
    given: KafkaOffsetsInitializer | None = None
    is_time: bool = False

    @property
    def needs_group(self) -> bool:
        """See the base class."""
        return self.given is not None and self.given.needs_group

    def get_partition_offsets(
        self, partitions: Collection[KafkaTopicPartition], retriever: PartitionOffsetsRetriever
    ) -> dict[KafkaTopicPartition, int]:
        """See the base class.

        Raises:
            OffsetResolutionError: If Kafka does not have the records that follow the history.
        """
        cluster = retriever.cluster_id
        begins = retriever.beginning_offsets(partitions)
        if self.given is not None:
            wanted = self.given.get_partition_offsets(partitions, retriever)
        else:
            of_history = self.by_cluster.get(cluster, {})
            wanted = {tp: of_history.get(tp, begins[tp]) for tp in partitions}
        ends = retriever.end_offsets(partitions)
        if beyond := sorted(tp for tp in partitions if wanted[tp] > ends[tp]):
            names = [f"{tp.topic}-{tp.partition} ends at {ends[tp]} and goes on at {wanted[tp]}" for tp in beyond]
            raise OffsetResolutionError(
                f"Cluster '{cluster}': the history is ahead of Kafka, so it is of another log: {listed(names, _MOST)}. Is "
                "it the right cluster, and was the topic made anew? Nothing was read",
                cluster_id=cluster,
            )
        if not self.tolerant:
            self._check_beginnings(cluster, wanted, begins)
        return {tp: max(wanted[tp], begins[tp]) for tp in partitions}

    def _check_beginnings(
        self,
        cluster: str,
        wanted: Mapping[KafkaTopicPartition, int],
        begins: Mapping[KafkaTopicPartition, int],
    ) -> None:
        remedy = "Nothing was read. Use a history that goes further, or set failOnDataLoss=false to go on without them"
        if missing := sorted(tp for tp, offset in wanted.items() if offset < begins[tp]):
            names = [
                f"{tp.topic}-{tp.partition}: {begins[tp] - wanted[tp]} (offsets {wanted[tp]} to {begins[tp] - 1})"
                for tp in missing
            ]
            total = sum(begins[tp] - wanted[tp] for tp in missing)
            raise OffsetResolutionError(
                f"Cluster '{cluster}': {total} records that follow the history were deleted from Kafka: "
                f"{listed(names, _MOST)}. {remedy}",
                cluster_id=cluster,
            )
        # The first record that is left is at or after the time: nobody knows whether it was the first one.
        if self.is_time and (unsure := sorted(tp for tp, at in wanted.items() if 0 < begins[tp] == at)):
            names = [f"{tp.topic}-{tp.partition} begins at offset {begins[tp]}" for tp in unsure]
            raise OffsetResolutionError(
                f"Cluster '{cluster}': records at or after the time of the switch may have been deleted from Kafka, because "
                f"it has no record from before it: {listed(names, _MOST)}. {remedy}",
                cluster_id=cluster,
            )


def next_offsets(
    largest: LargestOffsets,
    archive: Mapping[str, Any],
    desired: Mapping[str, DesiredCluster],
    views: Mapping[str, ClusterView],
) -> tuple[NextOffsets, list[Event]]:
    """Return where Kafka goes on, and warnings.

    Args:
        largest: The largest offsets in the history.
        archive: What the history says of its clusters: their ids and those of their topics, by name.
        desired: The clusters that the query reads.
        views: Those that answered.

    Raises:
        ConfigurationError: If it cannot be known which cluster the history is of.
        OffsetResolutionError: If a cluster or topic is another one than in the history.
        ClusterUnavailableError: If a cluster of the history does not answer.
    """
    found: NextOffsets = {}
    events: list[Event] = []
    unread: dict[str, set[str]] = {}
    today = {name: _name_today(name, archive.get(name, {}), desired, views) for name, _, _ in largest}
    for (name, topic, partition), offset in sorted(largest.items()):
        cluster = today[name]
        tp = KafkaTopicPartition(topic, partition)
        if cluster is None or topic not in desired[cluster].topics:
            unread.setdefault(name, set()).add(topic)
            continue
        asked = desired[cluster].partitions
        if asked is not None and tp not in asked:
            unread.setdefault(name, set()).add(f"{topic}-{partition}")
            continue
        view = views[cluster]
        if topic not in view.topics or partition >= view.partitions[topic]:
            raise OffsetResolutionError(
                f"Cluster '{cluster}': the history has records of topic '{topic}', partition {partition}, which does not "
                "exist there now. Is it the right cluster, and was the topic deleted or made anew? Nothing was read",
                cluster_id=cluster,
            )
        topic_id = archive.get(name, {}).get("topics", {}).get(topic, "")
        if topic_id and view.topics[topic] and view.topics[topic] != topic_id:
            raise OffsetResolutionError(
                f"Cluster '{cluster}', topic '{topic}' was made anew after the history: its topic id was {topic_id} and is "
                f"now {view.topics[topic]}. Nothing was read. Set history.switch to timestamp or starting-offsets",
                cluster_id=cluster,
            )
        if found.setdefault(cluster, {}).setdefault(tp, offset + 1) != offset + 1:
            raise ConfigurationError(
                f"The history names the cluster '{cluster}' in more than one way, and the largest offsets of topic "
                f"'{topic}', partition {partition} differ. Set history.switch to starting-offsets"
            )
    for name, topics in unread.items():
        of_cluster = f"cluster '{name}', " if name else ""
        events.append(
            Event(
                "warning",
                f"The history has rows of {of_cluster}topics {listed(sorted(topics), _MOST)}, which "
                "this query does not read from Kafka: after the history no more of their rows follow",
            )
        )
    return found, events


def _name_today(
    name: str, archived: Mapping[str, Any], desired: Mapping[str, DesiredCluster], views: Mapping[str, ClusterView]
) -> str | None:
    """Return the name that the query has for a cluster of the history; None if it does not read it."""
    if not name and len(desired) != 1:
        raise ConfigurationError(
            "The history's files have no column 'cluster', and the query reads several clusters. Add the column, or set "
            "history.switch to timestamp or starting-offsets"
        )
    kafka_id = str(archived.get("id", ""))
    by_id = [other for other, view in views.items() if kafka_id and view.kafka_id == kafka_id and other in desired]
    cluster = by_id[0] if by_id else name or next(iter(desired))
    if cluster not in desired:
        return None
    if cluster not in views:
        raise ClusterUnavailableError(
            f"Cluster '{cluster}' does not answer, so it cannot be proved where Kafka goes on after the history. Bring the "
            "cluster back and start the query again",
            cluster_id=cluster,
        )
    if kafka_id and not by_id and views[cluster].kafka_id:
        raise OffsetResolutionError(
            f"Cluster '{cluster}' is not the one that the history was made from: its cluster.id was {kafka_id} and is now "
            f"{views[cluster].kafka_id}. Give it the address of that cluster, or set history.switch to timestamp or "
            "starting-offsets. Nothing was read",
            cluster_id=cluster,
        )
    return cluster


def check_positions(document: Document, offsets: NextOffsets) -> None:
    """Check that the first document has a position for each partition of the history.

    Raises:
        ClusterUnavailableError: If one has none, because it has no leader now.
    """
    for cluster, by_partition in offsets.items():
        if waiting := sorted(by_partition.keys() - document.clusters[cluster].ranges.keys()):
            topic, partition = waiting[0]
            raise ClusterUnavailableError(
                f"Cluster '{cluster}', topic '{topic}', partition {partition} has no leader now, so it cannot be proved "
                "where it goes on after the history. Wait until it can be read, and start the query again",
                cluster_id=cluster,
            )


def promise(settings: HistorySettings, document: Document, offsets: NextOffsets, *, has_ids: bool) -> str:
    """Return what is guaranteed at the switch, in words."""
    if settings.switch == "timestamp":
        assert settings.limit is not None
        return (
            f"Kafka goes on at the time {settings.limit.before_ms}. Exact only if '{settings.limit.column}' is the time of "
            "Kafka's record and the history is complete up to that time; and a record that was written later with an "
            "earlier time is read from Kafka, too"
        )
    if settings.switch == "starting-offsets":
        return "Kafka goes on at the starting offsets that were given. Exact only if the history ends right before them"
    known = sum(map(len, offsets.values()))
    new = sum(len(c.ranges) for c in document.clusters.values()) - known
    by = "by cluster.id and topic id" if has_ids else "by their names alone, because the history has no ids"
    where = (
        "behind the largest offset of each of" if settings.switch == "coordinates" else "where its checkpoint ended, in"
    )
    return (
        f"Kafka goes on {where} {known} partitions in the history"
        + (f"; {new} partitions that are not in it start at their beginning" if new else "")
        + f". Exact; clusters and topics were recognized {by}"
    )
