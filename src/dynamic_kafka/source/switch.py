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
a cluster or partition does not answer              an error, also with `isolate`: where it goes on could not be proved
starting offsets or a time are given                checked in the same way. Of a time nothing can be counted: it is an error
                                                    if the log has no record from before it, but has lost some
==================================================  =====================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, OffsetResolutionError, listed
from dynamic_kafka.history.model import LargestOffsets
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition, PartitionOffsetsRetriever
from dynamic_kafka.source.document import Document
from dynamic_kafka.source.model import ClusterView, DesiredCluster, Event

__all__ = ["AfterHistory", "NextOffsets", "Switched", "check_answers", "check_positions", "next_offsets", "promise"]

NextOffsets = dict[str, dict[KafkaTopicPartition, int]]
"""The offsets at which Kafka goes on, by today's name of the cluster."""
_MOST = 5
_RECOGNIZED = {
    (True, True): "cluster.id and topic id",
    (True, False): "cluster.id and the topics' names",
    (False, True): "the clusters' names and topic id",
    (False, False): "their names alone, because there are no ids to compare",
}
"""By what a partition was recognized: whether ids of clusters and of topics could be compared."""


class Switched(NamedTuple):
    """Where Kafka goes on after a history.

    Attributes:
        offsets: The offsets.
        events: Warnings.
        recognized: By what clusters and topics were recognized, with the number of partitions.
    """

    offsets: NextOffsets
    events: list[Event]
    recognized: Counter[str]


@dataclass(frozen=True)
class AfterHistory(KafkaOffsetsInitializer):
    """The offsets at which Kafka goes on, proved to be there.

    Args:
        tolerant: If true, missing records are not an error.
        by_cluster: The offsets; all other partitions start at their beginning.
        given: The offsets that the user gives, in their place.
        is_time: True if these are of a time.
        given_up: Is told what is missing, if that is tolerated: one text for each answer.
    """

    tolerant: bool
    by_cluster: Mapping[str, Mapping[KafkaTopicPartition, int]] = field(default_factory=dict, repr=False)
    given: KafkaOffsetsInitializer | None = None
    is_time: bool = False
    given_up: list[str] = field(default_factory=list, compare=False, repr=False)

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
        self._check_beginnings(cluster, wanted, begins)
        return {tp: max(wanted[tp], begins[tp]) for tp in partitions}

    def _check_beginnings(
        self,
        cluster: str,
        wanted: Mapping[KafkaTopicPartition, int],
        begins: Mapping[KafkaTopicPartition, int],
    ) -> None:
        if missing := sorted(tp for tp, offset in wanted.items() if offset < begins[tp]):
            names = [
                f"{tp.topic}-{tp.partition}: {begins[tp] - wanted[tp]} (offsets {wanted[tp]} to {begins[tp] - 1})"
                for tp in missing
            ]
            total = sum(begins[tp] - wanted[tp] for tp in missing)
            self._missing(
                cluster,
                f"Cluster '{cluster}': {total} records that follow the history were deleted from Kafka: "
                f"{listed(names, _MOST)}",
            )
        # The first record that is left is at or after the time: nobody knows whether it was the first one.
        if self.is_time and (unsure := sorted(tp for tp, at in wanted.items() if 0 < begins[tp] == at)):
            names = [f"{tp.topic}-{tp.partition} begins at offset {begins[tp]}" for tp in unsure]
            self._missing(
                cluster,
                f"Cluster '{cluster}': records at or after the time of the switch may have been deleted from Kafka, because "
                f"it has no record from before it: {listed(names, _MOST)}",
            )

    def _missing(self, cluster: str, text: str) -> None:
        if not self.tolerant:
            raise OffsetResolutionError(
                f"{text}. Nothing was read. Use a history that goes further, or set failOnDataLoss=false to go on without "
                "them",
                cluster_id=cluster,
            )
        self.given_up.append(text)


def next_offsets(
    largest: LargestOffsets,
    archive: Mapping[str, Any],
    desired: Mapping[str, DesiredCluster],
    views: Mapping[str, ClusterView],
) -> Switched:
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
    recognized: Counter[str] = Counter()
    of_name = {name: archive.get(name, {}) for name, _, _ in largest}
    if "" in of_name and len(archive) == 1:  # files without a column `cluster` are of the only one
        (of_name[""],) = archive.values()
    today = {name: _name_today(name, said, desired, views) for name, said in of_name.items()}
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
        topic_id = of_name[name].get("topics", {}).get(topic, "")
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
        by_id = bool(of_name[name].get("id") and view.kafka_id)
        by_topic_id = bool(topic_id and view.topics[topic])
        recognized[_RECOGNIZED[by_id, by_topic_id]] += 1
    for name, topics in unread.items():
        of_cluster = f"cluster '{name}', " if name else ""
        events.append(
            Event(
                "warning",
                f"The history has rows of {of_cluster}topics {listed(sorted(topics), _MOST)}, which "
                "this query does not read from Kafka: after the history no more of their rows follow",
            )
        )
    return Switched(found, events, recognized)


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


def check_answers(desired: Collection[str], views: Collection[str]) -> None:
    """Check that all clusters answer when a query with a history first starts.

    Raises:
        ClusterUnavailableError: If one does not. Later nobody would check where it goes on.
    """
    if silent := sorted(set(desired) - set(views)):
        raise ClusterUnavailableError(
            f"Cluster '{silent[0]}' does not answer, so it cannot be proved where Kafka goes on after the history. Bring "
            "the cluster back and start the query again",
            cluster_id=silent[0],
        )


def check_positions(document: Document, offsets: NextOffsets, *, given: Collection[str]) -> None:
    """Check that the first document has a position for each partition that is there, and for each one of the history.

    Args:
        document: The document.
        offsets: Where the history ends.
        given: The clusters with starting offsets that somebody gave. What is seen later there would take these, without a
            check. Elsewhere it starts at its beginning.

    Raises:
        ClusterUnavailableError: If a partition has none, because it has no leader now, or its topic is not seen.
    """
    for cluster, state in document.clusters.items():
        if unseen := sorted(state.unseen if cluster in given else ()):
            raise ClusterUnavailableError(
                f"Cluster '{cluster}' does not show topic '{unseen[0]}', so it cannot be proved where it goes on after the "
                "history. Create the topic, or give the user the right to see it, and start the query again",
                cluster_id=cluster,
            )
        if waiting := sorted({*offsets.get(cluster, ()), *state.unresolved} - state.ranges.keys()):
            topic, partition = waiting[0]
            raise ClusterUnavailableError(
                f"Cluster '{cluster}', topic '{topic}', partition {partition} has no leader now, so it cannot be proved "
                "where it goes on after the history. Wait until it can be read, and start the query again",
                cluster_id=cluster,
            )


def promise(
    settings: HistorySettings,
    document: Document,
    offsets: NextOffsets,
    *,
    recognized: Mapping[str, int],
    given_up: Sequence[str] = (),
) -> str:
    """Return what is guaranteed at the switch, in words.

    Args:
        settings: The settings of the history.
        document: The first document.
        offsets: Where Kafka goes on.
        recognized: As `Switched.recognized`.
        given_up: As `AfterHistory.given_up`.
    """
    lost = f"Not exact: {listed(given_up, _MOST)}; failOnDataLoss=false" if given_up else ""
    if settings.switch == "timestamp":
        assert settings.limit is not None
        return (
            f"Kafka goes on at the time {settings.limit.before_ms}. Exact only if '{settings.limit.column}' is the time of "
            "Kafka's record and the history is complete up to that time; and a record that was written later with an "
            f"earlier time is read from Kafka, too{lost and f'. {lost}'}"
        )
    if settings.switch == "starting-offsets":
        at = "Kafka goes on at the starting offsets that were given"
        return f"{at}. {lost or 'Exact only if the history ends right before them'}"
    known = sum(map(len, offsets.values()))
    new = sum(len(c.ranges) for c in document.clusters.values()) - known
    by = " and ".join(
        f"by {by}" + (f" ({n} partitions)" if len(recognized) > 1 else "") for by, n in recognized.items()
    )
    where = (
        "behind the largest offset of each of" if settings.switch == "coordinates" else "where its checkpoint ended, in"
    )
    return (
        f"Kafka goes on {where} {known} partitions in the history"
        + (f"; {new} partitions that are not in it start at their beginning" if new else "")
        + f". {lost or 'Exact'}"
        + (f"; clusters and topics were recognized {by}" if by else "")
    )
