"""The positions in an offset document: shown, compared, changed, and as a text that people can edit. Pure.

A position is the offset at which reading goes on. In a batch that is not finished yet, that is where the batch begins,
because the next start runs it again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from dynamic_kafka.continuation import continues_from_json
from dynamic_kafka.errors import ConfigurationError, listed, suggestion
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.document import ClusterOffsets, Cursor, Document, RetainedTopic
from dynamic_kafka.source.document.promise import Seen

__all__ = [
    "Change",
    "Ids",
    "Partition",
    "Position",
    "changes",
    "check_chosen",
    "ids_of",
    "other_ids",
    "parse_ids",
    "parse_position",
    "parse_positions",
    "positions",
    "positions_text",
    "postponed",
    "renamed",
    "waiting",
    "with_positions",
]

_POSITION = re.compile(r"(?P<cluster>.+)/(?P<topic>[^/:\s]+)/(?P<partition>\d+)\s*:\s*(?P<offset>\d+)")
_MAX_OFFSET = 2**63 - 1
_ID = re.compile(
    r"# (?P<cluster>.+?) has the cluster\.id (?P<id>\S+)|# (?P<place>.+/.+) has the topic id (?P<topic_id>\S+)"
)

Ids = Mapping[tuple[str, str], str]
"""Kafka's ids: those of topics by cluster and topic, and those of clusters by cluster and ""."""


class Partition(NamedTuple):
    """A partition of a topic on a cluster. As text: `cluster/topic/partition`."""

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the text."""
        return f"{self.cluster}/{self.topic}/{self.partition}"


class Position(NamedTuple):
    """The position of a partition.

    Args:
        offset: The next offset to read; None if the partition waits for its first one.
        state: `reading`, `draining`, `done` (its stopping offset is reached), `waiting` or `retained`.
        planned: The number of offsets that an unfinished batch reads from here on.
    """

    offset: int | None
    state: str
    planned: int = 0


class Change(NamedTuple):
    """A difference between two states of a partition; None where the partition is not known."""

    partition: Partition
    before: Position | None
    after: Position | None


def positions(document: Document, *, unfinished: bool) -> dict[Partition, Position]:
    """Return all positions of a document, in order. The next start reads the ranges of an `unfinished` batch again."""
    found: dict[Partition, Position] = {}
    for name, state in document.clusters.items():
        for (topic, partition), (start, end) in state.ranges.items():
            stop = state.stops.get(KafkaTopicPartition(topic, partition))
            word = "draining" if topic in state.draining else "reading"
            if stop is not None and end >= stop:
                word = "done"
            key = Partition(name, topic, partition)
            found[key] = Position(start, word, end - start) if unfinished else Position(end, word)
        for topic, partition in state.unresolved:
            found.setdefault(Partition(name, topic, partition), Position(None, "waiting"))
        for topic, kept in state.retained.items():
            for partition, offset in kept.offsets.items():
                found.setdefault(Partition(name, topic, partition), Position(offset, "retained"))
    return dict(sorted(found.items()))


def waiting(document: Document, listed: Mapping[str, Collection[str]] | None = None) -> dict[str, frozenset[str]]:
    """Return the topics that have no partition in a document yet, by cluster.

    A cluster that never answered may be there without a topic: its topics are not known. A topic that stands by is left out,
    because its records are read on another cluster. `listed` are more topics to look for, by cluster.
    """
    found = {}
    for name, state in document.clusters.items():
        parts = [clusters[name] for clusters in document.streams.values() if name in clusters]
        named = set() if state.discovered else {topic for topics in parts for topic in topics or ()}
        known = {tp.topic for tp in (*state.ranges, *state.unresolved)}
        topics = {*state.unseen, *named, *(listed or {}).get(name, ())} - known
        continues = None if state.continues is None else continues_from_json(state.continues)
        if continues is not None and continues.cluster in document.clusters:
            old = document.clusters[continues.cluster]
            topics = {topic for topic in topics if continues.old_topic(topic) not in old.topics}
        if topics or (parts and not state.discovered and not known and continues is None):
            found[name] = frozenset(topics)
    return found


def changes(before: Mapping[Partition, Position], after: Mapping[Partition, Position]) -> list[Change]:
    """Return the partitions with another position or another state, the largest steps back first."""
    keys = [key for key in {**before, **after} if _core(before.get(key)) != _core(after.get(key))]
    found = [Change(key, before.get(key), after.get(key)) for key in keys]
    return sorted(found, key=lambda change: (_step(change), change.partition))


def ids_of(document: Document) -> Ids:
    """Return the ids that a document knows."""
    found = {(name, ""): state.kafka_id for name, state in document.clusters.items()}
    for name, state in document.clusters.items():
        topics = {topic: kept.topic_id for topic, kept in state.retained.items()} | state.topics
        found |= {(name, topic): topic_id for topic, topic_id in topics.items()}
    return {key: found_id for key, found_id in found.items() if found_id}


def other_ids(before: Ids, after: Ids) -> list[str]:
    """Return a sentence, without a full stop, for each cluster and topic that is another one on both sides."""
    return [
        f"Topic '{topic}' of cluster '{name}' is another one: its topic id was {before[name, topic]}, and is {found}"
        if topic
        else f"Cluster '{name}' is another one: its cluster.id was {before[name, topic]}, and is {found}"
        for (name, topic), found in sorted(after.items())
        if before.get((name, topic), found) != found
    ]


def _core(position: Position | None) -> tuple[int | None, str] | None:
    return position and position[:2]


def _step(change: Change) -> int:
    before, after = change.before, change.after
    if before is None or after is None or before.offset is None or after.offset is None:
        return 0
    return after.offset - before.offset


# --- as text ----------------------------------------------------------------------------------------------------------


def parse_position(text: str) -> tuple[Partition, int]:
    """Parse `cluster/topic/partition:offset`; raise ValueError if it is something else."""
    match = _POSITION.fullmatch(text.strip())
    if match is None or int(match["offset"]) > _MAX_OFFSET:
        raise ValueError(f"expected cluster/topic/partition:offset, not {text.strip()!r}")
    return Partition(match["cluster"], match["topic"], int(match["partition"])), int(match["offset"])


def parse_positions(text: str, place: str) -> dict[Partition, int]:
    """Parse a file of positions: one in each line, `#` begins a comment line. `place` names the file in errors.

    Raises:
        ConfigurationError: With the line, if it is not a position, or a partition occurs twice.
    """
    found: dict[Partition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            partition, offset = parse_position(line)
        except ValueError as error:
            raise ConfigurationError(f"{place}, line {number}: {error}") from None
        if partition in found:
            raise ConfigurationError(f"{place}, line {number}: {partition} is there twice; leave one of the lines out")
        found[partition] = offset
    return found


def parse_ids(text: str) -> Ids:
    """Return the ids in a file of positions, which an export has as comments."""
    found = {}
    for line in text.splitlines():
        if match := _ID.fullmatch(line.strip()):
            name, _, topic = (match["place"] or f"{match['cluster']}/").rpartition("/")
            found[name, topic] = match["id"] or match["topic_id"]
    return found


def positions_text(found: Mapping[Partition, Position], comments: Iterable[str], ids: Ids) -> str:
    """Return positions as a text that `parse_positions` reads. Partitions without a position and ids are comments."""
    lines = [f"# {comment}" for comment in comments]
    known = {(key.cluster, topic) for key in found for topic in ("", key.topic)}
    for name, topic in sorted(known & ids.keys()):
        what = f"{name}/{topic} has the topic id" if topic else f"{name} has the cluster.id"
        lines.append(f"# {what} {ids[name, topic]}")
    for partition, (offset, state, _) in found.items():
        if offset is None:
            lines.append(f"# {partition} has no position yet")
        else:
            lines += [f"# {state}:"] if state != "reading" else []
            lines.append(f"{partition}:{offset}")
    return "\n".join([*lines, ""])


# --- changed ----------------------------------------------------------------------------------------------------------


def with_positions(
    document: Document, wanted: Mapping[Partition, int], *, unfinished: bool, before: Document | None = None
) -> Document:
    """Return the document with other positions.

    Args:
        document: The document of the last batch.
        wanted: The new positions.
        unfinished: True if the document's batch is not finished: the result replaces its plan. A range that contains the new
            position is read from there on, any other one is left empty. False for a batch after the document's, which
            reads nothing: its positions are the ends of the document, where no other ones are wanted.
        before: For an unfinished batch, the document of the batch before it; None if it is the first one.

    Raises:
        ConfigurationError: If the document does not know a partition.
    """
    _check_known(document, wanted)
    by_cluster: dict[str, dict[KafkaTopicPartition, int]] = {}
    for (name, topic, partition), offset in wanted.items():
        by_cluster.setdefault(name, {})[KafkaTopicPartition(topic, partition)] = offset
    clusters = {}
    for name, state in document.clusters.items():
        ranges = dict(state.ranges) if unfinished else {tp: (end, end) for tp, (_, end) in state.ranges.items()}
        retained = {t: RetainedTopic(k.topic_id, k.since_ms, dict(k.offsets)) for t, k in state.retained.items()}
        unresolved, resets = dict(state.unresolved), set(state.resets) if unfinished else set()
        last = before.clusters.get(name) if before is not None else None
        for tp, offset in by_cluster.get(name, {}).items():
            if tp not in state.ranges:  # it had no position, or is retained
                if unresolved.pop(tp, None) is None:
                    retained[tp.topic].offsets[tp.partition] = offset
                else:
                    ranges[tp] = offset, offset
                continue
            start, end = ranges[tp]
            if offset != start:
                ranges[tp] = (offset, end) if unfinished and start < offset <= end else (offset, offset)
                closed = last.ranges.get(tp) if last is not None else None
                if unfinished and closed is not None and closed[1] == offset:
                    resets.discard(tp)
                else:
                    resets.add(tp)
        clusters[name] = replace(
            state, ranges=ranges, unresolved=unresolved, retained=retained, resets=frozenset(resets)
        )
    history = document.history
    if history is not None:
        by_hand = [str(partition) for partition in sorted(wanted)]
        promise = history.promise.and_seen(Seen.of("set by hand", by_hand)) if by_hand else history.promise
        history = replace(history, promise=promise, range=history.range if unfinished else (history.range[1],) * 2)
    return replace(document, clusters=clusters, done=document.done if unfinished else 0, history=history)


def _check_known(document: Document, wanted: Collection[Partition]) -> None:
    for partition in sorted(wanted):
        state = document.clusters.get(partition.cluster)
        if state is None:
            raise _not_known("cluster", partition.cluster, document.clusters)
        tp = KafkaTopicPartition(partition.topic, partition.partition)
        if partition.topic not in state.topics and partition.topic not in state.retained:
            topics = {**state.topics, **state.retained}
            raise _not_known("topic", partition.topic, topics, f" of cluster '{partition.cluster}'")
        kept = state.retained.get(partition.topic)
        if tp not in state.ranges and tp not in state.unresolved and (kept is None or tp.partition not in kept.offsets):
            raise ConfigurationError(
                f"The checkpoint does not know partition {partition.partition} of the topic '{partition.topic}' of cluster "
                f"'{partition.cluster}'. A new partition is read from the earliest offset, once the query finds it"
            )


def _not_known(what: str, name: str, known: Collection[str], where: str = "") -> ConfigurationError:
    """Return the error of a name that a checkpoint does not know; it is `where` that something is known."""
    there = listed([f"'{one}'" for one in sorted(known)], 5) or "none"
    hint = suggestion(name, known)
    return ConfigurationError(f"The checkpoint does not know the {what} '{name}'{where}; it has {there}{hint}")


def check_chosen(what: str, chosen: Collection[str] | None, known: Collection[str]) -> None:
    """Raise `ConfigurationError` if a name that is chosen is not among those that a checkpoint knows."""
    if unknown := sorted(set(chosen or ()) - set(known)):
        raise _not_known(what, unknown[0], known)


def postponed(document: Document, names: Iterable[str]) -> Document:
    """Return the document of an unfinished batch that reads nothing of some clusters. A later batch reads it.

    Raises:
        ConfigurationError: If there is no such cluster.
    """
    clusters = dict(document.clusters)
    for name in names:
        if name not in clusters:
            raise _not_known("cluster", name, document.clusters)
        ranges = {tp: (start, start) for tp, (start, _) in clusters[name].ranges.items()}
        clusters[name] = replace(clusters[name], ranges=ranges)
    return replace(document, clusters=clusters)


def renamed(document: Document, old: str, new: str) -> Document:
    """Return the document with another name of a cluster.

    Raises:
        ConfigurationError: If there is no such cluster, or the new name is taken.
    """
    if old not in document.clusters:
        raise _not_known("cluster", old, document.clusters)
    if not new.strip():
        raise ConfigurationError("The new name of the cluster is empty")
    if new in document.clusters:
        raise ConfigurationError(
            f"The checkpoint has a cluster '{new}' already. Two names of one Kafka cluster become one by themselves, once "
            "the metadata has only one of them"
        )

    def name_of(name: str) -> str:
        return new if name == old else name

    def state_of(state: ClusterOffsets) -> ClusterOffsets:
        said = state.continues
        return state if said is None else replace(state, continues={**said, "cluster": name_of(said["cluster"])})

    cursor = document.cursor
    clusters = {name_of(name): state_of(state) for name, state in document.clusters.items()}
    return replace(
        document,
        clusters=clusters,
        streams={stream: {name_of(name): t for name, t in parts.items()} for stream, parts in document.streams.items()},
        cursor=Cursor(name_of(cursor.cluster), {name_of(name): tp for name, tp in cursor.partitions.items()}),
    )
