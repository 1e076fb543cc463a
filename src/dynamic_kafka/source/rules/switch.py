"""The switch from a history to Kafka: where Kafka goes on, proved before anything is read, and what is guaranteed.

==================================================  =====================================================================
situation                                           rule
==================================================  =====================================================================
the history has coordinates                         Kafka goes on after the largest offset of each partition
a cluster that continues one of the history         what is before the history's first offsets on it is not read: it has the
                                                    other's rows. Partitions that the history does not have are read from
                                                    their beginning, and a warning says that rows may come twice
a partition that the history does not have          its beginning
a cluster or topic of the history that the query    a warning, and its largest offsets stay in the document: once it is read,
does not read                                       Kafka goes on after them
offsets that the history does not have              those that Kafka has are read from it, in their place; of an archive that
                                                    has never read them, the others are an error, or told if data loss is
                                                    tolerated; of other files they are reported, because they may be markers
Kafka does not have the offset any more             an error with the number of missing records, or the beginning if data
                                                    loss is tolerated
Kafka's log ends before it                          an error: it is another log
another cluster.id or topic id than in the history  an error
a topic without an id to compare                    the record at the largest offset has to be the same; another one is an
                                                    error. Without a record to compare, or without its time, the promise is
                                                    "not proved": two topics may have the same values
a partition of the history under two names          an error: its rows may be there twice
a cluster or partition does not answer              an error, also with `isolate`: where it goes on could not be proved
starting offsets or a time are given                checked in the same way. Of a time nothing can be counted: it is an error
                                                    if the log has no record from before it, but has lost some
==================================================  =====================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, OffsetResolutionError, listed
from dynamic_kafka.history.coverage import Coverage, Offsets, gaps_between
from dynamic_kafka.history.model import HistoryGap, LargestOffsets, Place
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition, PartitionOffsetsRetriever
from dynamic_kafka.source.document.document import Document
from dynamic_kafka.source.document.offsets import topic_id_text
from dynamic_kafka.source.document.promise import Seen, counted, shown_place
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, Event, KafkaRow

__all__ = [
    "AfterHistory",
    "NextOffsets",
    "Switched",
    "Unread",
    "check_answers",
    "check_positions",
    "check_rows",
    "copies_seen",
    "gaps_of",
    "names_seen",
    "next_offsets",
]

NextOffsets = dict[str, dict[KafkaTopicPartition, int]]
"""The offsets at which Kafka goes on, by today's name of the cluster."""
_MOST = 5
_MOST_GAPS = 1_000
_RECOGNIZED = {
    (True, True): "cluster.id and topic id",
    (True, False): "cluster.id and the topics' names",
    (False, True): "the clusters' names and topic id",
    (False, False): "their names alone, because there are no ids to compare",
}
"""By what a partition was recognized: whether ids of clusters and of topics could be compared."""


class Unread(NamedTuple):
    """A topic of the history that the query does not read.

    Attributes:
        kafka_id: The cluster.id in the history; "" if it is unknown.
        topic_id: The topic id in the history; "" if it is unknown.
        offsets: The offset after the history's last one, by partition.
    """

    kafka_id: str
    topic_id: str
    offsets: dict[int, int]


class Switched(NamedTuple):
    """Where Kafka goes on after a history.

    Attributes:
        offsets: The offsets.
        events: Warnings.
        recognized: By what clusters and topics were recognized, with the number of partitions.
        places: Today's cluster and partition, by the place in the history.
        without_id: The places of which no topic ids could be compared.
        unread: The topics that are not read, by the name of the cluster and the topic.
        copies: Cluster and topic in the history, by the cluster and topic that continue them.
    """

    offsets: NextOffsets
    events: list[Event]
    recognized: Counter[str]
    places: dict[Place, tuple[str, KafkaTopicPartition]]
    without_id: set[Place]
    unread: dict[tuple[str, str], Unread]
    copies: dict[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class AfterHistory(KafkaOffsetsInitializer):
    """The offsets at which Kafka goes on, proved to be there.

    Args:
        tolerant: If true, missing records are not an error.
        by_cluster: The offsets; all other partitions start at their beginning.
        given: The offsets that the user gives, in their place.
        is_time: True if these are of a time.
        given_up: Takes what is missing, if that is tolerated: one text for each answer.
        begins: Takes where the partitions begin in Kafka.
    """

    tolerant: bool
    by_cluster: Mapping[str, Mapping[KafkaTopicPartition, int]] = field(default_factory=dict, repr=False)
    given: KafkaOffsetsInitializer | None = None
    is_time: bool = False
    given_up: list[str] = field(default_factory=list, compare=False, repr=False)
    begins: dict[tuple[str, KafkaTopicPartition], int] = field(default_factory=dict, compare=False, repr=False)

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
        self.begins.update({(cluster, tp): offset for tp, offset in begins.items()})
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
    places: dict[Place, tuple[str, KafkaTopicPartition]] = {}
    unread: dict[tuple[str, str], Unread] = {}
    left_out: dict[str, set[str]] = {}
    without_id: set[Place] = set()
    recognized: Counter[str] = Counter()
    of_name = {name: archive.get(name, {}) for name, _, _ in largest}
    if "" in of_name and len(archive) == 1:  # files without a column `cluster` are of the only one
        (of_name[""],) = archive.values()
    today = {name: _name_today(name, said, desired, views) for name, said in of_name.items()}
    for (name, topic, partition), offset in sorted(largest.items()):
        cluster = today[name]
        tp = KafkaTopicPartition(topic, partition)
        topic_id = topic_id_text(of_name[name].get("topics", {}).get(topic))
        if cluster is None or topic not in desired[cluster].topics:
            ids = str(of_name[name].get("id", "")), topic_id
            unread.setdefault((cluster or name, topic), Unread(*ids, {})).offsets[partition] = offset + 1
            continue
        asked = desired[cluster].partitions
        if asked is not None and tp not in asked:
            left_out.setdefault(name, set()).add(f"{topic}-{partition}")
            continue
        view = views[cluster]
        if topic not in view.topics or partition >= view.partitions[topic]:
            raise OffsetResolutionError(
                f"Cluster '{cluster}': the history has records of topic '{topic}', partition {partition}, which does not "
                "exist there now. Is it the right cluster, and was the topic deleted or made anew? Nothing was read",
                cluster_id=cluster,
            )
        if topic_id and view.topics[topic] and view.topics[topic] != topic_id:
            raise OffsetResolutionError(
                f"Cluster '{cluster}', topic '{topic}' was made anew after the history: its topic id was {topic_id} and is "
                f"now {view.topics[topic]}. Nothing was read. Set history.switch to timestamp or starting-offsets",
                cluster_id=cluster,
            )
        if tp in found.setdefault(cluster, {}):
            raise ConfigurationError(
                f"The history has rows of topic '{topic}', partition {partition} under two names of the cluster "
                f"'{cluster}', so it is not known which of them are there twice. Give them one name, or set history.switch "
                "to starting-offsets"
            )
        found[cluster][tp] = offset + 1
        by_id = bool(of_name[name].get("id") and view.kafka_id)
        by_topic_id = bool(topic_id and view.topics[topic])
        recognized[_RECOGNIZED[by_id, by_topic_id]] += 1
        places[name, topic, partition] = cluster, tp
        if not by_topic_id:
            without_id.add((name, topic, partition))
    for name in sorted({cluster for cluster, _ in unread}):
        topics = sorted(topic for cluster, topic in unread if cluster == name)
        events.append(
            Event(
                "warning",
                f"The history has rows of cluster '{name}', topics {listed(topics, _MOST)}, which this query does not read "
                "from Kafka now. Once it does, it goes on after the history's last offsets",
            )
        )
    for name, tps in left_out.items():
        of_cluster = f"cluster '{name}', " if name else ""
        events.append(
            Event(
                "warning",
                f"The history has rows of {of_cluster}partitions {listed(sorted(tps), _MOST)}, which this query does not "
                "read from Kafka: after the history no more of their rows follow",
            )
        )
    has = {(today[name] or name, topic) for name, topic, _ in largest}
    copies = {
        (name, topic): (continues.cluster, old)
        for name, of in desired.items()
        if (continues := of.continues) is not None
        for topic in of.topics
        if (old := continues.old_topic(topic)) is not None and (continues.cluster, old) in has
    }
    return Switched(found, events, recognized, places, without_id, unread, copies)


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
        raise _silent(cluster)
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
        raise _silent(silent[0])


def _silent(cluster: str) -> ClusterUnavailableError:
    return ClusterUnavailableError(
        f"Cluster '{cluster}' does not answer, so it cannot be proved where Kafka goes on after the history. Bring the "
        "cluster back and start the query again",
        cluster_id=cluster,
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


def copies_seen(switched: Switched, read: Iterable[tuple[str, KafkaTopicPartition]]) -> list[Seen]:
    """Return what is to be said of partitions that are copies of those in the history.

    Args:
        switched: Where Kafka goes on.
        read: The partitions that are read from Kafka.
    """
    both: list[str] = []
    again: list[str] = []
    for cluster, tp in sorted(read):
        if old := switched.copies.get((cluster, tp.topic)):
            of_history = tp in switched.offsets.get(cluster, ())
            text = f"{cluster}/{tp.topic}-{tp.partition} continues {'/'.join(old)}"
            (both if of_history else again).append(text)
    return [*([Seen.of("copied", again)] if again else []), *([Seen.of("moved", both)] if both else [])]


def names_seen(switched: Switched, starts: Mapping[tuple[str, KafkaTopicPartition], int]) -> list[Seen]:
    """Return what is to be said of clusters of the history that may be clusters which are read, under another name.

    Args:
        switched: Where Kafka goes on.
        starts: Where the partitions that are read from Kafka begin.
    """
    found = [
        f"{cluster}/{tp.topic}-{tp.partition} may be {name}/{topic}-{tp.partition}"
        for (name, topic), unread in sorted(switched.unread.items())
        if not unread.kafka_id
        for (cluster, tp), start in sorted(starts.items())
        if tp.topic == topic and start < unread.offsets.get(tp.partition, 0)
    ]
    return [Seen.of("another name", found)] if found else []


def gaps_of(
    places: Mapping[Place, tuple[str, KafkaTopicPartition]],
    coverage: Mapping[Place, Coverage],
    archived: Mapping[Place, Sequence[Offsets]] | None,
    begins: Mapping[tuple[str, KafkaTopicPartition], int],
    kafka_ids: Mapping[str, str],
    *,
    copies: Collection[tuple[str, str]] = (),
) -> tuple[dict[Place, list[HistoryGap]], list[Seen]]:
    """Return the offsets that the history does not have and Kafka has, and what is to be said of them and of the others.

    Args:
        places: The places that are read from Kafka, as in `Switched`.
        coverage: The offsets of the history's rows.
        archived: Of an archive, the offsets that it has read.
        begins: Where the partitions begin in Kafka.
        kafka_ids: The cluster.id of each cluster.
        copies: The clusters and topics that continue others in the history, which have what is before their first offsets.
    """
    there: list[tuple[Place, Offsets]] = []
    gone: list[tuple[Place, Offsets]] = []
    unasked: list[tuple[Place, Offsets]] = []
    before: list[tuple[Place, Offsets]] = []
    inside: list[tuple[Place, Offsets]] = []
    known = {place: found.spans for place, found in coverage.items()} if archived is None else archived
    for place, spans in sorted(known.items()):
        at = places.get(place)
        begin = spans[-1].end if at is None else begins.get(at, spans[-1].end)
        inside += [(place, span._replace(rows=span.end - span.start - span.rows)) for span in spans if not span.whole]
        first = spans[0].start
        is_copy = at is not None and (at[0], at[1].topic) in copies
        for gap in [*([] if is_copy else [Offsets(0, first, first)]), *gaps_between(spans)]:
            cut = min(max(begin, gap.start), gap.end)
            if cut < gap.end:
                there.append((place, Offsets(cut, gap.end, gap.end - cut)))
            if gap.start < cut:
                lacks = before if not gap.start else unasked if at is None else gone
                lacks.append((place, Offsets(gap.start, cut, cut - gap.start)))
    there.sort(key=lambda entry: -entry[1].rows)
    read, unread = sorted(there[:_MOST_GAPS]), sorted(there[_MOST_GAPS:])
    gaps: dict[Place, list[HistoryGap]] = {}
    for place, span in read:
        cluster, tp = places[place]
        gaps.setdefault(place, []).append(
            HistoryGap(cluster, kafka_ids.get(cluster, ""), tp.topic, tp.partition, span.start, span.end)
        )
    if archived is None:
        lacking = counted("in no file", sorted([*gone, *unasked, *inside]))
    else:  # what the query does not read from Kafka may be there
        lacking = [*counted("never read", gone), *counted("in no file", unasked), *counted("without record", inside)]
    return gaps, [*lacking, *counted("too many", unread), *counted("read from Kafka", read), *counted("before", before)]


def check_rows(
    places: Mapping[Place, tuple[str, KafkaTopicPartition]],
    of_history: Mapping[Place, Mapping[str, Any]],
    of_kafka: Mapping[Place, KafkaRow],
) -> tuple[Counter[str], list[Seen]]:
    """Compare last records of the history with those that Kafka has at their offsets.

    A record with the same time shows that the topic is the same. Keys and values alone show only that it is another one.

    Args:
        places: The places of the topics to recognize, as in `Switched`.
        of_history: Timestamp in milliseconds, key and value in the history, as far as it has them.
        of_kafka: The same in Kafka, where it has a record at the offset.

    Returns:
        What was compared, with the number of places, and the places of topics of which nothing was.

    Raises:
        OffsetResolutionError: If two records differ: Kafka's topic is not the one of the history.
    """
    compared: Counter[str] = Counter()
    known: set[tuple[str, str]] = set()
    for place, (cluster, tp) in sorted(places.items()):
        kafka, history = of_kafka.get(place), of_history.get(place, {})
        if kafka is None or not history:
            continue
        differ = [name for name, value in history.items() if getattr(kafka, name) != value]
        names = [name.removesuffix("_ms") for name in (differ or history)]
        if differ:
            where = f"Cluster '{cluster}', topic '{tp.topic}', partition {tp.partition}"
            said = f"{where}: the record at the history's last offset has another {listed(names)} in Kafka"
            raise OffsetResolutionError(
                f"{said}. Was the topic made anew, is it another cluster, or was the history changed? Nothing was read. Set "
                "history.switch to timestamp or starting-offsets",
                cluster_id=cluster,
            )
        if "timestamp_ms" in history:
            compared[f"the last record of the history, which has the same {listed(names)} in Kafka"] += 1
            known.add((cluster, tp.topic))
    unknown = [
        shown_place(place) for place, (cluster, tp) in sorted(places.items()) if (cluster, tp.topic) not in known
    ]
    return compared, [Seen.of("not compared", unknown)] if unknown else []
