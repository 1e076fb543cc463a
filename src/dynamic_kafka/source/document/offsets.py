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
5. Compact: small columns are JSON lists that a person can read and edit; longer ones are packed strings (see `columns`).
   A document with `_COMPACT_FROM` entries or more has the layout "columns", in which everything that grows with topics
   and partitions is a column: 100,000 partitions stay under 30 bytes each.
6. A topic id is kept as its first 11 characters (66 bits), as `kafka-topics --describe` prints it. That is enough to
   recognize a topic that was recreated under the old name.

Layout::

    {"version": 1,
     "streams": {stream: {cluster: [topic, ...] | null}},       null: all topics read from that cluster
     "clusters": {cluster: {
        "id": Kafka's own cluster.id, "properties": {...}, "starting": initializer, "stopping": initializer,
        "continues": see `continuation`, "marks": {topic: {partition: [[until, [record, ...]], ...]}},
                     for topics that another cluster is ready to continue: the last records before offsets, of which none
                     is left out up to `until`; a record is [offset, time, hash, hash of headers],
        "anchors": {topic: {"logs": [[cluster.id, topic id], ...], partition: [number of the log, ...]}}: where this log and
                     another one are known to agree (`evidence.Anchor` has the numbers),
        "discovered": true once the first discovery is done, "since": ms (not reached at the first start),
        "topics": [...], "ids": [...], "partitions": [number of partitions, ...],
        "only": {topic: [partition, ...]} for topics of which a partition in the middle is not read (yet),
        "start": [...], "count": [...],                         one entry per partition, in order of topic and partition
        "stops": {topic: {partition: offset}}, "unresolved": {topic: {partition: ms, 0 on a cluster found later}},
        "unseen": {topic: the same} for listed topics that the first discovery neither found nor found missing,
        "draining": [topic, ...], "resets": {topic: [partition, ...]},
        "retained": {topic: {"id": ..., "since": ms, "offsets": {partition: offset}}}}},
     "cursor": {...}, "packing": [records per task, minimum tasks, maximum tasks, cuts],
     "starting": the starting offsets of the first start, "done": number of batches that found every stop reached,
     "last row": the number "done" of the last batch that had the row after the last record (see `spark.last_row`),
     "history": what is read before Kafka (see `stage`), if there is a history,
     "frontier": with watermark alignment, the time in ms that nothing is older than which is still to be read}

The layout "columns" is the same, except for the following. KEYS are the columns "partitions" (a number for each of the
topics) and, if these are not the first ones of each topic, "numbers". A field without KEYS is about the partitions of
"start"::

    "layout": "columns", after "version",
    "streams": one deflated text, if there are many,
    "streams by topic": clusters of which each topic is also a stream with this name, which "streams" leaves out
    in a cluster: KEYS instead of "partitions" and "only",
        "stops": {KEYS, "after": [offset minus the end of the range, or minus 0 if there is none]},
        "unresolved": {KEYS, "since": [...]}, "unseen": {"topics": [...], "since": [...]},
        "draining": true for all topics, or [topic, ...], "resets": {KEYS},
        "retained": {"topics": [...], "ids": [...], "since": [...], KEYS, "offsets": [...]}

Stops, unresolved and reset partitions of topics that are not in "topics" add "more topics": [...] to their KEYS.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.initializer import KafkaTopicPartition, topic_partition
from dynamic_kafka.source.document.collector import without_collector
from dynamic_kafka.source.document.columns import (
    pack_bytes,
    pack_ids,
    pack_ints,
    pack_names,
    unpack_bytes,
    unpack_ids,
    unpack_ints,
    unpack_names,
)
from dynamic_kafka.source.document.compact import decode_compact, encode_compactly, paired, settings_of, settings_text
from dynamic_kafka.source.document.document import ClusterOffsets, Cursor, Document, Packing, RetainedTopic
from dynamic_kafka.source.document.stage import check_stage, decode_stage, encode_stage

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
MARKER: dict[str, Any] = {"version": 1, "initial": True}
_COLUMNS = "columns"
_COMPACT_FROM = 2_000
_PACK_STREAMS_FROM = 16
_ID_CHARS = 11


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


@without_collector
def encode(document: Document) -> dict[str, Any]:
    """Return the document as a JSON value with a fixed key order."""
    compact = _entries(document) >= _COMPACT_FROM
    encode_cluster = encode_compactly if compact else _encode_cluster
    by_topic = _read_by_topic(document) if compact else []
    streams = {
        stream: {
            cluster: None if topics is None else pack_names(sorted(topics)) for cluster, topics in sorted(parts.items())
        }
        for stream, parts in sorted(_without(by_topic, document).items())
    }
    result: dict[str, Any] = {
        "version": VERSION,
        **({"layout": _COLUMNS} if compact else {}),
        "streams": streams
        if not compact or len(streams) < _PACK_STREAMS_FROM
        else pack_bytes(json.dumps(streams).encode()),
    }
    if by_topic:
        result["streams by topic"] = by_topic
    result["clusters"] = {name: encode_cluster(c) for name, c in sorted(document.clusters.items())}
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
    if document.last_row:
        result["last row"] = document.last_row
    if document.history is not None:
        result["history"] = encode_stage(document.history)
    if document.frontier_ms is not None:
        result["frontier"] = document.frontier_ms
    return result


def _read_by_topic(document: Document) -> list[str]:
    """Return the clusters of which each topic is a stream with its name: the metadata service for one cluster says so."""
    return [
        name
        for name, c in sorted(document.clusters.items())
        if c.topics and all(document.streams.get(topic, {}).get(name) == frozenset((topic,)) for topic in c.topics)
    ]


def _without(by_topic: list[str], document: Document) -> Mapping[str, Mapping[str, frozenset[str] | None]]:
    """Return the streams without what `_read_by_topic` says of these clusters."""
    if not by_topic:
        return document.streams
    said = {name: document.clusters[name].topics for name in by_topic}
    return {
        stream: rest
        for stream, parts in document.streams.items()
        if (rest := {name: topics for name, topics in parts.items() if stream not in said.get(name, ())}) or not parts
    }


def _entries(document: Document) -> int:
    """Return the number of entries by which a document grows."""
    return len(document.streams) + sum(
        len(c.topics)
        + len(c.ranges)
        + len(c.stops)
        + len(c.unresolved)
        + len(c.unseen)
        + len(c.retained)
        + sum(len(kept.offsets) for kept in c.retained.values())
        for c in document.clusters.values()
    )


def _encode_cluster(c: ClusterOffsets) -> dict[str, Any]:
    result = settings_text(c)
    topics = sorted(c.topics)
    tps = sorted(c.ranges)
    highest = dict(tps)  # the last partition of each topic stays
    counts = [highest.get(topic, -1) + 1 for topic in topics]
    result["topics"] = pack_names(topics)
    result["ids"] = pack_ids([c.topics[topic] for topic in topics])
    result["partitions"] = pack_ints(counts)
    if sum(counts) != len(tps):
        result["only"] = {t: numbers for t, numbers in _nest(tps).items() if len(numbers) <= highest[t]}
    ranges = [c.ranges[tp] for tp in tps]
    result["start"] = pack_ints([start for start, _ in ranges])
    result["count"] = pack_ints([end - start for start, end in ranges])
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


# --- decoding ---------------------------------------------------------------------------------------------------


@without_collector
def decode(value: Mapping[str, Any]) -> Document:
    """Return the document that was encoded.

    Raises:
        CheckpointError: If the value is not a document of this source, is damaged, or has a newer version.
    """
    version = value.get("version")
    if type(version) is not int or not 1 <= version <= VERSION or is_marker(value):
        if isinstance(version, int) and version > VERSION:
            raise CheckpointError(
                f"The checkpoint's offsets have version {version}, but this package reads only up to version {VERSION}; "
                "upgrade pyspark-dynamic-kafka, or start with a new checkpoint"
            )
        raise CheckpointError(f"The checkpoint's offsets are not of the dynamic-kafka source: {_excerpt(value)}")
    try:
        cursor = value.get("cursor", {})
        layout = value.get("layout")
        if layout not in (None, _COLUMNS):
            raise ValueError(f"layout {layout!r}")
        decode_cluster = _decode_cluster if layout is None else decode_compact
        clusters = {name: decode_cluster(c) for name, c in value["clusters"].items()}
        return Document(
            streams=_decode_streams(value, clusters),
            clusters=clusters,
            cursor=Cursor(
                cursor.get("cluster", ""),
                {c: KafkaTopicPartition(str(t), int(p)) for c, (t, p) in cursor.get("splits", {}).items()},
            ),
            packing=_packing(value["packing"]),
            starting=value.get("starting"),
            done=int(value.get("done", 0)),
            last_row=int(value.get("last row", 0)),
            history=decode_stage(value["history"]) if "history" in value else None,
            frontier_ms=None if (frontier := value.get("frontier")) is None else int(frontier),
        )
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, zlib.error) as error:
        raise CheckpointError(
            f"The checkpoint's offsets are damaged ({type(error).__name__}: {error}): {_excerpt(value)}; "
            "restore the file in the checkpoint's 'offsets' folder, or start with a new checkpoint"
        ) from error


def _decode_streams(
    value: Mapping[str, Any], clusters: Mapping[str, ClusterOffsets]
) -> dict[str, dict[str, frozenset[str] | None]]:
    packed = value["streams"]
    streams: dict[str, dict[str, frozenset[str] | None]] = {
        stream: {name: None if topics is None else frozenset(unpack_names(topics)) for name, topics in parts.items()}
        for stream, parts in (json.loads(unpack_bytes(packed)) if isinstance(packed, str) else packed).items()
    }
    for name in value.get("streams by topic", ()):
        for topic in clusters[name].topics:
            streams.setdefault(topic, {})[name] = frozenset((topic,))
    return streams


def _packing(value: Sequence[int]) -> Packing:
    per_task, least, most, cuts = value
    packing = Packing(per_task, least, most, bool(cuts))
    if packing.records_per_task < 1 or packing.min_tasks < 1 or packing.max_tasks < 0:
        raise ValueError(f"packing {value}")
    return packing


def _decode_cluster(value: Mapping[str, Any]) -> ClusterOffsets:
    topics = unpack_names(value["topics"])
    only = value.get("only", {})
    counts = unpack_ints(value["partitions"])
    starts = unpack_ints(value["start"])
    declared = sum(len(only.get(topic, ())) or n for topic, n in zip(topics, counts, strict=True))
    if declared != len(starts):  # before they are listed: a damaged number would fill the memory
        raise ValueError(f"{declared} partitions with {len(starts)} values")
    tps = [
        topic_partition((topic, p))
        for topic, n in zip(topics, counts, strict=True)
        for p in only.get(topic) or range(n)
    ]
    ranges = paired(tps, starts, unpack_ints(value["count"]))
    return ClusterOffsets(
        **settings_of(value),
        topics=dict(zip(topics, unpack_ids(value["ids"]), strict=True)),
        ranges=ranges,
        stops=_flatten(value.get("stops", {})),
        unresolved=_flatten(value.get("unresolved", {})),
        unseen=dict(value.get("unseen", {})),
        draining=set(value.get("draining", ())),
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


def _excerpt(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# --- the chain --------------------------------------------------------------------------------------------------


@without_collector
def check_chain(start: Document, end: Document) -> None:
    """Check that every range of `end` starts where the partition's chain ended in `start`.

    Raises:
        CheckpointError: If a range would skip or repeat offsets, because offset files were edited or mixed up.
    """
    check_stage(start.history, end.history)
    by_id: dict[str, list[tuple[str, ClusterOffsets]]] = {}
    for name, state in start.clusters.items():
        by_id.setdefault(state.kafka_id, []).append((name, state))
    nameless = dict(by_id.pop("", ()))
    for name, cluster in end.clusters.items():
        # A cluster may have got another name (see `identity`); one that was never reached has only its name.
        same = sorted(by_id.get(cluster.kafka_id, ()), key=lambda item: item[0] != name)
        before = [nameless[name]] if name in nameless else []
        before += [state for _, state in same]
        closed = before[0].ranges if before else {}
        # Nearly all of a million ranges go on as they should: only the others are looked at one by one.
        others = [tp for tp, (first, _) in cluster.ranges.items() if tp not in closed or closed[tp][1] != first]
        for tp in others:
            first, last = cluster.ranges[tp]
            position = closed[tp][1] if tp in closed else _position(before, tp, cluster.topics[tp.topic])
            if position != first and position is not None and tp not in cluster.resets:
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
