"""The lag of a query by its checkpoint: positions from the offset log, ends and the ages of records from the clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from confluent_kafka import KafkaException, TopicPartition

from dynamic_kafka.cli.connection import addresses_of, first_messages
from dynamic_kafka.cli.job import Target
from dynamic_kafka.cli.lag.lags import Look, PartitionLag
from dynamic_kafka.cli.output import now_ms
from dynamic_kafka.cli.positions import Partition, Position, positions, waiting
from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import QUESTIONS, ClientSettings, ClusterClients
from dynamic_kafka.kafka.cluster import ClusterConnection, TopicInfo
from dynamic_kafka.source.document.checkpoint import Checkpoint, read_checkpoint
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.document.offsets import topic_id_text

__all__ = ["CheckpointLag", "properties_for"]

_GROUP = "dynamic-kafka-lag"
_WAITING = Position(None, "waiting")
_AT_ONCE = 16
# One record of each partition is wanted, and brokers send whole batches.
_ONE_RECORD = {
    **QUESTIONS,
    "queued.min.messages": "1",
    "max.partition.fetch.bytes": "65536",
    "fetch.wait.max.ms": "100",
}


class CheckpointLag:
    """Looks at a checkpoint and its clusters again and again. Clients are kept in between. For one thread.

    `source` is its name in the checkpoint; None for the only one. `targets` are the clusters as the query's options describe
    them today; empty to take what the checkpoint has. `extra` are properties for each cluster that the checkpoint does not
    have, such as passwords. `timeout_s` is the longest time of one question to a cluster. The age of the next record is
    asked for `ages_of` partitions of a cluster; None for all.
    """

    def __init__(
        self,
        location: str,
        source: str | None,
        targets: Collection[Target],
        extra: Mapping[str, str],
        *,
        timeout_s: float,
        ages_of: int | None,
    ) -> None:
        self._location, self._source = location, source
        self._targets, self._extra = targets, extra
        self._timeout_s, self._ages_of = timeout_s, ages_of
        self._clusters: dict[str, _Cluster] = {}

    def close(self) -> None:
        """Close the clients."""
        for cluster in self._clusters.values():
            cluster.close()

    def look(self) -> Look:
        """Return the lag now.

        Raises:
            CheckpointError: If the checkpoint cannot be read.
            ConfigurationError: If it has several sources and none is named.
        """
        checkpoint = read_checkpoint(self._location)
        batch = checkpoint.last_batch()
        document = batch.document(batch.source(self._source))
        targets, silent = _targets_in(document, self._targets)
        read: dict[str, dict[Partition, Position]] = {}
        for partition, position in positions(document, unfinished=checkpoint.is_unfinished).items():
            if position.state != "retained":
                read.setdefault(partition.cluster, {})[partition] = position
        for name, topics in waiting(document, {name: target.topics for name, target in targets.items()}).items():
            if topics:  # each has a partition 0
                read.setdefault(name, {}).update({Partition(name, topic, 0): _WAITING for topic in topics})
            else:
                silent[name] = "the query has not reached it yet, so its topics are not known"
        for name in read:
            properties = properties_for(name, document.clusters[name].properties, self._targets, self._extra)
            known = self._clusters.get(name)
            if known is None or known.properties != properties:
                if known is not None:
                    known.close()
                self._clusters[name] = _Cluster(name, properties, self._timeout_s)
        with ThreadPoolExecutor(max(1, min(_AT_ONCE, len(read)))) as pool:
            seen = {
                name: pool.submit(
                    self._clusters[name].look, document.clusters[name], found, targets.get(name), self._ages_of
                )
                for name, found in read.items()
            }
        partitions: list[PartitionLag] = []
        for name, future in seen.items():
            try:
                partitions += future.result()
            except DynamicKafkaError as error:
                silent[name] = str(error).partition("\n")[0]
                partitions += [
                    PartitionLag(name, p.topic, p.partition, position.offset, reason=silent[name])
                    for p, position in read[name].items()
                ]
        return Look(now_ms(), tuple(partitions), silent, (_batch(checkpoint),))


def properties_for(
    name: str, stored: Mapping[str, str], targets: Collection[Target], extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties to reach a cluster of a checkpoint. Those that are stored there have no secrets.

    A cluster of the query's options is meant if it has this name, or else one of these brokers. `extra` wins over the
    checkpoint's.
    """
    servers = addresses_of(stored)
    same = [t for t in targets if t.cluster == name] or [t for t in targets if servers & addresses_of(t.properties)]
    return {**(same[0].properties if same else stored), **extra}


def _targets_in(document: Document, targets: Collection[Target]) -> tuple[dict[str, Target], dict[str, str]]:
    """Return the clusters of the query's options by their names in the checkpoint, and those that it does not have.

    A cluster is known by its name, or else by a broker.
    """
    found, unknown = {}, {}
    for target in targets:
        servers = addresses_of(target.properties)
        same = [name for name, state in document.clusters.items() if servers & addresses_of(state.properties)]
        if target.cluster in document.clusters or same:
            found[target.cluster if target.cluster in document.clusters else same[0]] = target
        else:
            unknown[target.cluster] = "the checkpoint has no positions in it"
    return found, unknown


def _batch(checkpoint: Checkpoint) -> str:
    unfinished = checkpoint.is_unfinished
    number = checkpoint.last
    changed_ms = checkpoint.offsets[number] if unfinished else checkpoint.commits[number]
    ago_s = max(0, now_ms() - changed_ms) / 1000
    if unfinished:
        return f"Batch {number} began {ago_s:.0f} s ago and is not finished: its records count as unread"
    return f"Batch {number} ended {ago_s:.0f} s ago"


class _Cluster:
    """A cluster that is asked."""

    def __init__(self, name: str, properties: dict[str, str], timeout_s: float) -> None:
        self.name, self.properties = name, properties
        self._timeout_s = timeout_s
        self._connection = ClusterConnection(name, properties, group_id=_GROUP, timeout_ms=int(timeout_s * 1000))
        fixed = {"group.id": _GROUP, "enable.partition.eof": "false", **_ONE_RECORD}
        self._reading = ClusterClients(properties, consumer=ClientSettings(fixed=fixed))

    def close(self) -> None:
        self._connection.close()
        self._reading.close()

    def look(
        self, state: ClusterOffsets, found: Mapping[Partition, Position], target: Target | None, ages_of: int | None
    ) -> list[PartitionLag]:
        """Return the lag of partitions, and of others of their topics that exist. `target` is what the options say.

        Raises:
            DynamicKafkaError: If the cluster does not answer, or is another one.
        """
        kafka_id = self._connection.kafka_id()
        if kafka_id and state.kafka_id and kafka_id != state.kafka_id:
            raise DynamicKafkaError(
                f"Another cluster answers: its cluster.id is {kafka_id}, and the checkpoint has {state.kafka_id}",
                cluster_id=self.name,
            )
        names = {p.topic for p in found}
        if target is not None and target.pattern is not None:
            names |= self._connection.matching_topics(target.pattern)
        topics, denied = self._connection.topics(names)
        only = None if target is None else target.partitions
        found = {
            Partition(self.name, topic, number): _WAITING
            for topic, info in topics.items()
            if topic not in state.draining
            for number in range(len(info.leaders))
            if only is None or (topic, number) in only
        } | dict(found)
        problems = {p: _problem(p, position, state, topics, denied) for p, position in found.items()}
        asked = [KafkaTopicPartition(p.topic, p.partition) for p, problem in problems.items() if not problem]
        ends = self._connection.available_ends(asked, topics) if asked else {}
        seen = [
            _lag(p, position, problems[p], ends, state.stops.get(KafkaTopicPartition(p.topic, p.partition)))
            for p, position in found.items()
        ]
        return self._with_ages(seen, ages_of)

    def _with_ages(self, seen: list[PartitionLag], ages_of: int | None) -> list[PartitionLag]:
        """Add the age of each partition's next record."""
        behind = sorted((p for p in seen if p.lag), key=lambda p: -(p.lag or 0))[:ages_of]
        times = self._next_timestamps({(p.topic, p.partition): p.position or 0 for p in behind})
        at_ms = now_ms()
        result = []
        for p in seen:
            written_ms = times.get((p.topic, p.partition))
            if p.lag == 0:
                result.append(replace(p, seconds=0.0))
            elif written_ms is not None:
                result.append(replace(p, seconds=max(0, at_ms - written_ms) / 1000))
            else:
                result.append(p)
        return result

    def _next_timestamps(self, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return the timestamp of the record at or after an offset, for the partitions that show it in time."""
        if not offsets:
            return {}
        asked = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        try:
            seen = first_messages(self._reading.consumer, asked, self._timeout_s)
        except KafkaException:
            self._reading.renew()  # the ages stay unknown; the ends are what counts
            return {}
        return {tp: at_ms for tp, (at_ms, _) in seen.items() if at_ms is not None}


def _problem(
    partition: Partition,
    position: Position,
    state: ClusterOffsets,
    topics: Mapping[str, TopicInfo],
    denied: Collection[str],
) -> str:
    """Return why a partition's end need not be asked; "" if it can be."""
    topic = partition.topic
    if topic in denied:
        return "this user may not see the topic: grant Describe on it"
    if topic not in topics:
        return "the topic does not exist"
    known, now = state.topics.get(topic, ""), topic_id_text(topics[topic].topic_id)
    if known and now and known != now:
        return "the topic was deleted and made again"
    leaders = topics[topic].leaders
    if partition.partition >= len(leaders):
        return "the partition does not exist"
    if leaders[partition.partition] < 0:
        return "the partition has no leader"
    if position.offset is None:
        return "the query has no position in it yet"
    return ""


def _lag(
    partition: Partition,
    position: Position,
    problem: str,
    ends: Mapping[KafkaTopicPartition, int],
    stop: int | None,
) -> PartitionLag:
    tp = KafkaTopicPartition(partition.topic, partition.partition)
    end = ends.get(tp)
    reason = problem or ("" if end is not None else "the partition's leader does not answer")
    if end is not None and position.offset is not None:
        if end < position.offset and not problem:
            reason = f"the log ends at {end}, before the position: records were lost"
        if stop is not None:
            end = min(end, max(stop, position.offset))
    return PartitionLag(partition.cluster, partition.topic, partition.partition, position.offset, end, reason)
