"""The offset document: all state that has to survive a restart, as one JSON value per micro-batch.

Rules that the rest of the source relies on:

1. `MARKER` is the initial offset. It is constant, costs no I/O and is never the end of a batch.
2. A document contains the start and the end of every range of its batch, so that planning is a function of the document
   alone. A partition's ranges form a chain: each batch starts where the one before ended (`check_chain`). A chain is
   broken only where the document says so (`resets`: data loss that the user tolerates).
3. Canonical text: equal documents have equal JSON, because Spark compares texts, and a difference without meaning would
   cause an endless loop of empty batches. Keys have a fixed order, partitions are sorted, and the document contains no
   clock and no health: its times (`retained`, `unresolved`) are those of an event, written once.
4. No secrets: properties pass through `storable` first.
5. Compact: small columns are JSON lists that a person can read and edit; from `_PACK_FROM` entries on they are packed
   strings. 10,000 partitions stay under 300 KB; they are read in 5 ms (one topic) to 9 ms (a topic for each).
6. A topic id is kept as its first 11 characters (66 bits), as `kafka-topics --describe` prints it. That is enough to
   recognize a topic that was recreated under the old name.

Layout (version 1)::

    {"version": 1,
     "streams": {stream: {cluster: [topic, ...] | null}},       null: all topics read from that cluster
     "clusters": {cluster: {
        "id": Kafka's own cluster.id, "properties": {...}, "starting": initializer, "stopping": initializer,
        "discovered": true once the first discovery is done, "since": ms (not reached at the first start),
        "topics": [...], "ids": [...], "partitions": [number of partitions, ...],
        "only": {topic: [partition, ...]} for topics of which a partition in the middle is not read (yet),
        "start": [...], "count": [...],                         one entry per partition, in order of topic and partition
        "stops": {topic: {partition: offset}}, "unresolved": {topic: {partition: ms, 0 on a cluster found later}},
        "unseen": {topic: the same} for listed topics that the first discovery neither found nor found missing,
        "draining": [topic, ...], "resets": {topic: [partition, ...]},
        "retained": {topic: {"id": ..., "since": ms, "offsets": {partition: offset}}}}},
     "cursor": {...}, "packing": [records per task, minimum tasks, maximum tasks, cuts],
     "starting": the starting offsets of the first start, "done": number of runs that found every stop reached}
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.initializer import KafkaTopicPartition, topic_partition

__all__ = [
    "MARKER",
    "ClusterOffsets",
    "Cursor",
    "Document",
    "Packing",
    "RetainedTopic",
    "check_chain",
    "decode",
    "encode",
    "is_marker",
    "is_spark_kafka_offset",
    "topic_id_text",
]

VERSION = 1
MARKER: dict[str, Any] = {"version": VERSION, "initial": True}
_PACK_FROM = 128
_ID_CHARS = 11
_UNKNOWN_ID = "-" * _ID_CHARS


class Packing(NamedTuple):
    """The settings for packing ranges into tasks; part of the document, so that a replay packs the same way.

    Attributes:
        records_per_task: The work that a task should get, in records.
        min_tasks: The minimum number of tasks if there is something to read (Spark's `minPartitions`).
        max_tasks: The maximum number of tasks; 0 means no limit (Flink's `scan.parallelism`).
        cuts: If true, a partition's range may be cut between tasks. Its records are then not in order across these tasks.
    """

    records_per_task: int = 1_000_000
    min_tasks: int = 1
    max_tasks: int = 0
    cuts: bool = False


class Cursor(NamedTuple):
    """The cluster and partitions served last when a limit was too small for all; the next batch starts after them."""

    cluster: str = ""
    partitions: Mapping[str, KafkaTopicPartition] = {}


@dataclass(slots=True)
class RetainedTopic:
    """The positions of a removed topic, in case it comes back."""

    topic_id: str
    since_ms: int
    offsets: dict[int, int]


@dataclass(slots=True)
class ClusterOffsets:
    """A cluster's part of the document; the top of the module explains the fields."""

    kafka_id: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    starting: Any = None
    stopping: Any = None
    discovered: bool = False
    since_ms: int | None = None
    topics: dict[str, str] = field(default_factory=dict)
    ranges: dict[KafkaTopicPartition, tuple[int, int]] = field(default_factory=dict)
    stops: dict[KafkaTopicPartition, int] = field(default_factory=dict)
    unresolved: dict[KafkaTopicPartition, int] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    resets: frozenset[KafkaTopicPartition] = frozenset()
    retained: dict[str, RetainedTopic] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Document:
    """The state between two micro-batches, and the ranges of the batch before it."""

    streams: dict[str, dict[str, frozenset[str] | None]] = field(default_factory=dict)
    clusters: dict[str, ClusterOffsets] = field(default_factory=dict)
    cursor: Cursor = field(default_factory=Cursor)
    packing: Packing = field(default_factory=Packing)
    starting: Any = None
    done: int = 0


def topic_id_text(topic_id: object) -> str:
    """Return a topic id as the document keeps it; "" if unknown. librdkafka uses plain base64, Kafka base64 for URLs."""
    return "" if topic_id is None else str(topic_id)[:_ID_CHARS].replace("+", "-").replace("/", "_")


def is_marker(offset: Mapping[str, Any]) -> bool:
    """Return whether `offset` is the constant that stands for "nothing was read yet"."""
    return offset.get("initial") is True  # not for a topic of that name in an offset of Spark's own source


def is_spark_kafka_offset(offset: Mapping[str, Any]) -> bool:
    """Return whether `offset` was written by Spark's own Kafka source: `{"topic": {"0": 23}}` and nothing else."""
    return not isinstance(offset.get("version"), int) and all(
        isinstance(partitions, Mapping)
        and all(str(p).isdecimal() and isinstance(offset, int) for p, offset in partitions.items())
        for partitions in offset.values()
    )


# --- encoding ---------------------------------------------------------------------------------------------------


def encode(document: Document) -> dict[str, Any]:
    """Return the document as a JSON value with a fixed key order."""
    result: dict[str, Any] = {
        "version": VERSION,
        "streams": {
            stream: {
                cluster: None if topics is None else _pack_names(sorted(topics))
                for cluster, topics in sorted(clusters.items())
            }
            for stream, clusters in sorted(document.streams.items())
        },
        "clusters": {name: _encode_cluster(c) for name, c in sorted(document.clusters.items())},
    }
    if document.cursor.cluster or document.cursor.partitions:
        result["cursor"] = {
            "cluster": document.cursor.cluster,
            "splits": {c: list(tp) for c, tp in sorted(document.cursor.partitions.items())},
        }
    result["packing"] = list(document.packing)
    if document.starting is not None:
        result["starting"] = document.starting
    if document.done:
        result["done"] = document.done
    return result


def _encode_cluster(c: ClusterOffsets) -> dict[str, Any]:
    result: dict[str, Any] = {"id": c.kafka_id, "properties": dict(sorted(c.properties.items()))}
    optional = {"starting": c.starting, "stopping": c.stopping, "since": c.since_ms}
    result |= {key: value for key, value in optional.items() if value is not None}
    result["discovered"] = c.discovered
    topics = sorted(c.topics)
    tps = sorted(c.ranges)
    highest = dict(tps)  # the last partition of each topic stays
    counts = [highest.get(topic, -1) + 1 for topic in topics]
    result["topics"] = _pack_names(topics)
    result["ids"] = _pack_ids([c.topics[topic] for topic in topics])
    result["partitions"] = _pack_ints(counts)
    if sum(counts) != len(tps):
        result["only"] = {t: numbers for t, numbers in _nest(tps).items() if len(numbers) <= highest[t]}
    ranges = [c.ranges[tp] for tp in tps]
    result["start"] = _pack_ints([start for start, _ in ranges])
    result["count"] = _pack_ints([end - start for start, end in ranges])
    if c.stops:
        result["stops"] = _nest_values(c.stops)
    if c.unresolved:
        result["unresolved"] = _nest_values(c.unresolved)
    if c.unseen:
        result["unseen"] = dict(sorted(c.unseen.items()))
    if c.draining:
        result["draining"] = sorted(c.draining)
    if c.resets:
        result["resets"] = _nest(sorted(c.resets))
    if c.retained:
        result["retained"] = {
            topic: {
                "id": kept.topic_id,
                "since": kept.since_ms,
                "offsets": {str(p): offset for p, offset in sorted(kept.offsets.items())},
            }
            for topic, kept in sorted(c.retained.items())
        }
    return result


def _nest(tps: Sequence[KafkaTopicPartition]) -> dict[str, list[int]]:
    nested: dict[str, list[int]] = {}
    for topic, partition in tps:
        nested.setdefault(topic, []).append(partition)
    return nested


def _nest_values(values: Mapping[KafkaTopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), value in sorted(values.items()):
        nested.setdefault(topic, {})[str(partition)] = value
    return nested


def _pack_ints(values: list[int]) -> list[int] | str:
    """Pack as `base:width:bytes`: the values minus their minimum, as planes of bytes, without planes that are all zero."""
    if len(values) < _PACK_FROM:
        return values
    base = min(values)
    data = array("Q", [value - base for value in values]).tobytes()
    width = max(1, (max(values) - base + 7).bit_length() + 7 >> 3)
    planes = b"".join(data[i::8] for i in range(width))
    return f"{base}:{width}:{base64.b64encode(planes).decode()}"


def _pack_names(names: list[str]) -> list[str] | str:
    # A topic's name cannot contain a comma.
    if len(names) < _PACK_FROM:
        return names
    return base64.b64encode(zlib.compress(",".join(names).encode(), 1)).decode()


def _pack_ids(ids: list[str]) -> list[str] | str:
    if len(ids) < _PACK_FROM:
        return ids
    return "".join([topic_id or _UNKNOWN_ID for topic_id in ids])


# --- decoding ---------------------------------------------------------------------------------------------------


def decode(value: Mapping[str, Any]) -> Document:
    """Return the document that was encoded.

    Raises:
        CheckpointError: If the value is not a document of this source, is damaged, or has a newer version.
    """
    version = value.get("version")
    if version != VERSION or is_marker(value):
        if isinstance(version, int) and version > VERSION:
            raise CheckpointError(
                f"The checkpoint's offsets have version {version}, but this package reads only up to version {VERSION}; "
                "upgrade pyspark-dynamic-kafka, or start with a new checkpoint"
            )
        raise CheckpointError(f"The checkpoint's offsets are not of the dynamic-kafka source: {_excerpt(value)}")
    try:
        cursor = value.get("cursor", {})
        return Document(
            streams={
                stream: {c: None if t is None else frozenset(_unpack_names(t)) for c, t in clusters.items()}
                for stream, clusters in value["streams"].items()
            },
            clusters={name: _decode_cluster(c) for name, c in value["clusters"].items()},
            cursor=Cursor(
                cursor.get("cluster", ""),
                {c: KafkaTopicPartition(str(t), int(p)) for c, (t, p) in cursor.get("splits", {}).items()},
            ),
            packing=_packing(value["packing"]),
            starting=value.get("starting"),
            done=int(value.get("done", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, zlib.error) as error:
        raise CheckpointError(
            f"The checkpoint's offsets are damaged ({type(error).__name__}: {error}): {_excerpt(value)}; "
            "restore the file in the checkpoint's 'offsets' folder, or start with a new checkpoint"
        ) from error


def _packing(value: Sequence[int]) -> Packing:
    per_task, least, most, cuts = value
    packing = Packing(per_task, least, most, bool(cuts))
    if packing.records_per_task < 1 or packing.min_tasks < 1 or packing.max_tasks < 0:
        raise ValueError(f"packing {value}")
    return packing


def _decode_cluster(value: Mapping[str, Any]) -> ClusterOffsets:
    topics = _unpack_names(value["topics"])
    only = value.get("only", {})
    counts = _unpack_ints(value["partitions"])
    tps = [
        topic_partition((topic, p))
        for topic, n in zip(topics, counts, strict=True)
        for p in only.get(topic) or range(n)
    ]
    starts = _unpack_ints(value["start"])
    lengths = _unpack_ints(value["count"])
    if min(starts, default=0) < 0 or min(lengths, default=0) < 0:
        raise ValueError("an offset or a count is negative")
    ranges = [(start, start + n) for start, n in zip(starts, lengths, strict=True)]
    return ClusterOffsets(
        kafka_id=value["id"],
        properties=dict(value["properties"]),
        starting=value.get("starting"),
        stopping=value.get("stopping"),
        discovered=value["discovered"],
        since_ms=value.get("since"),
        topics=dict(zip(topics, _unpack_ids(value["ids"]), strict=True)),
        ranges=dict(zip(tps, ranges, strict=True)),
        stops=_flatten(value.get("stops", {})),
        unresolved=_flatten(value.get("unresolved", {})),
        unseen=dict(value.get("unseen", {})),
        draining=frozenset(value.get("draining", ())),
        resets=frozenset(
            KafkaTopicPartition(topic, p) for topic, numbers in value.get("resets", {}).items() for p in numbers
        ),
        retained={
            topic: RetainedTopic(kept["id"], kept["since"], {int(p): o for p, o in kept["offsets"].items()})
            for topic, kept in value.get("retained", {}).items()
        },
    )


def _flatten(nested: Mapping[str, Mapping[str, int]]) -> dict[KafkaTopicPartition, int]:
    return {
        KafkaTopicPartition(topic, int(p)): value
        for topic, by_partition in nested.items()
        for p, value in by_partition.items()
    }


def _unpack_ints(packed: list[int] | str) -> list[int]:
    if isinstance(packed, list):
        return packed
    base_text, width_text, text = packed.split(":")
    base, width, planes = int(base_text), int(width_text), base64.b64decode(text, validate=True)
    n = len(planes) // width
    data = bytearray(8 * n)
    for i in range(width):
        data[i::8] = planes[i * n : (i + 1) * n]
    return [value + base for value in array("Q", bytes(data))]


def _unpack_names(packed: list[str] | str) -> list[str]:
    if isinstance(packed, list):
        return packed
    return zlib.decompress(base64.b64decode(packed, validate=True)).decode().split(",")


def _unpack_ids(packed: list[str] | str) -> list[str]:
    if isinstance(packed, list):
        return packed
    ids = [packed[i : i + _ID_CHARS] for i in range(0, len(packed), _ID_CHARS)]
    return ["" if topic_id == _UNKNOWN_ID else topic_id for topic_id in ids]


def _excerpt(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# --- the chain --------------------------------------------------------------------------------------------------


def check_chain(start: Document, end: Document) -> None:
    """Check that every range of `end` starts where the partition's chain ended in `start`.

    Raises:
        CheckpointError: If a range would skip or repeat offsets, because offset files were edited or mixed up.
    """
    for name, cluster in end.clusters.items():
        # A cluster may have got another name (see `identity`); one that was never reached has only its name.
        before = [
            state
            for old, state in sorted(start.clusters.items(), key=lambda item: item[0] != name)
            if (state.kafka_id == cluster.kafka_id if state.kafka_id else old == name)
        ]
        for tp, (first, last) in cluster.ranges.items():
            position = _position(before, tp, cluster.topics[tp.topic])
            if position not in (None, first) and tp not in cluster.resets:
                raise CheckpointError(
                    f"Cluster '{name}', topic '{tp.topic}', partition {tp.partition}: the checkpoint ends one batch at "
                    f"offset {position} and starts the next range [{first}, {last}) elsewhere; offset files of "
                    "different queries were mixed or edited: restore them, or start with a new checkpoint",
                    cluster_id=name,
                )


def _position(clusters: Sequence[ClusterOffsets], tp: KafkaTopicPartition, topic_id: str) -> int | None:
    for before in clusters:
        if tp in before.ranges:
            return before.ranges[tp][1]
    retained = [c.retained[tp.topic] for c in clusters if tp.topic in c.retained]
    of_topic = [kept for kept in retained if kept.topic_id in ("", topic_id)]
    newest = max(of_topic, key=lambda kept: kept.since_ms, default=None)  # as `identity` hands positions over
    return newest.offsets.get(tp.partition) if newest is not None else None
