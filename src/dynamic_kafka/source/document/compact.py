"""A cluster's part of a large offset document (version 2), in which everything that grows is a column. Pure.

The top of `offsets` shows the layout, that of `columns` the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from dynamic_kafka.continuation import continues_from_json, continues_to_json
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.columns import (
    pack_ids,
    pack_keys,
    pack_names,
    pack_tightly,
    unpack_ids,
    unpack_ints,
    unpack_keys,
    unpack_names,
)
from dynamic_kafka.source.document.document import ClusterOffsets, RetainedTopic
from dynamic_kafka.source.document.evidence import anchors_of, anchors_text, marks_of, marks_text

__all__ = ["decode_compact", "encode_compactly", "paired", "settings_of", "settings_text"]


def settings_text(c: ClusterOffsets) -> dict[str, Any]:
    """Return what both versions write in one way: what does not grow, and marks and anchors, which few topics have."""
    result: dict[str, Any] = {"id": c.kafka_id, "properties": dict(sorted(c.properties.items()))}
    optional = {"starting": c.starting, "stopping": c.stopping, "since": c.since_ms}
    result |= {key: value for key, value in optional.items() if value is not None}
    if c.continues is not None:
        result["continues"] = continues_to_json(continues_from_json(c.continues))  # in its own order
    result["discovered"] = c.discovered
    if c.marks:
        result["marks"] = marks_text(c.marks)
    if c.anchors:
        result["anchors"] = anchors_text(c.anchors)
    return result


def encode_compactly(c: ClusterOffsets) -> dict[str, Any]:
    """Return a cluster as version 2 writes it."""
    topics, tps = sorted(c.topics), sorted(c.ranges)

    def keys_of(wanted: Collection[KafkaTopicPartition]) -> dict[str, Any]:
        if c.ranges.keys() == (wanted if isinstance(wanted, AbstractSet) else set(wanted)):
            return {}
        more = sorted({topic for topic, _ in wanted} - c.topics.keys())
        named = {"more topics": pack_names(more, tightly=True)} if more else {}
        return named | pack_keys(sorted(wanted), sorted(topics + more))

    ranges = [c.ranges[tp] for tp in tps]
    result = settings_text(c) | {
        "topics": pack_names(topics, tightly=True),
        "ids": pack_ids([c.topics[topic] for topic in topics], tightly=True),
        **pack_keys(tps, topics),
        "start": pack_tightly([start for start, _ in ranges]),
        "count": pack_tightly([end - start for start, end in ranges]),
    }
    if c.stops:
        after = [stop - c.ranges.get(tp, (0, 0))[1] for tp, stop in sorted(c.stops.items())]
        result["stops"] = keys_of(c.stops.keys()) | {"after": pack_tightly(after)}
    if c.unresolved:
        since = [c.unresolved[tp] for tp in sorted(c.unresolved)]
        result["unresolved"] = keys_of(c.unresolved.keys()) | {"since": pack_tightly(since)}
    if c.unseen:
        unseen = sorted(c.unseen)
        result["unseen"] = {
            "topics": pack_names(unseen, tightly=True),
            "since": pack_tightly([c.unseen[topic] for topic in unseen]),
        }
    if c.draining:
        result["draining"] = c.draining == c.topics.keys() or pack_names(sorted(c.draining), tightly=True)
    if c.resets:
        result["resets"] = keys_of(c.resets)
    if c.retained:
        result["retained"] = _encode_retained(c.retained)
    return result


def _encode_retained(retained: Mapping[str, RetainedTopic]) -> dict[str, Any]:
    topics = sorted(retained)
    offsets = [
        (KafkaTopicPartition(topic, partition), offset)
        for topic in topics
        for partition, offset in sorted(retained[topic].offsets.items())
    ]
    return {
        "topics": pack_names(topics, tightly=True),
        "ids": pack_ids([retained[topic].topic_id for topic in topics], tightly=True),
        "since": pack_tightly([retained[topic].since_ms for topic in topics]),
        **pack_keys([tp for tp, _ in offsets], topics),
        "offsets": pack_tightly([offset for _, offset in offsets]),
    }


def settings_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ClusterOffsets` from `settings_text`."""
    return {
        "kafka_id": value["id"],
        "properties": dict(value["properties"]),
        "starting": value.get("starting"),
        "stopping": value.get("stopping"),
        "discovered": value["discovered"],
        "since_ms": value.get("since"),
        "continues": value.get("continues"),
        "marks": marks_of(value.get("marks", {})),
        "anchors": anchors_of(value.get("anchors", {})),
    }


def paired(
    tps: Sequence[KafkaTopicPartition], starts: Sequence[int], counts: Sequence[int]
) -> dict[KafkaTopicPartition, tuple[int, int]]:
    """Return the ranges; raise ValueError if one is negative or too many."""
    if min(starts, default=0) < 0 or min(counts, default=0) < 0:
        raise ValueError("an offset or a count is negative")
    return dict(zip(tps, [(start, start + n) for start, n in zip(starts, counts, strict=True)], strict=True))


def decode_compact(value: Mapping[str, Any]) -> ClusterOffsets:
    """Return the cluster that `encode_compactly` wrote."""
    topics = unpack_names(value["topics"])
    starts = _ints(value["start"])
    tps = unpack_keys(value, topics, len(starts))
    ranges = paired(tps, starts, _ints(value["count"]))

    def with_keys(field: Mapping[str, Any], values: list[int]) -> dict[KafkaTopicPartition, int]:
        known = sorted(topics + unpack_names(field.get("more topics", [])))
        keys = unpack_keys(field, known, len(values)) if "partitions" in field else tps
        return dict(zip(keys, values, strict=True))

    stops, unresolved, unseen = (value.get(name, {}) for name in ("stops", "unresolved", "unseen"))
    draining, resets = value.get("draining", []), value.get("resets")
    after = with_keys(stops, _ints(stops["after"])) if stops else {}
    of_resets: list[KafkaTopicPartition] = tps if resets == {} else []
    if resets:
        known = sorted(topics + unpack_names(resets.get("more topics", [])))
        of_resets = unpack_keys(resets, known, sum(_ints(resets["partitions"])))
    return ClusterOffsets(
        **settings_of(value),
        topics=dict(zip(topics, unpack_ids(value["ids"]), strict=True)),
        ranges=ranges,
        stops={tp: n + ranges.get(tp, (0, 0))[1] for tp, n in after.items()},
        unresolved=with_keys(unresolved, _ints(unresolved["since"])) if unresolved else {},
        unseen=dict(zip(unpack_names(unseen["topics"]), _ints(unseen["since"]), strict=True)) if unseen else {},
        draining=set(topics if draining is True else unpack_names(draining)),
        resets=frozenset(of_resets),
        retained=_decode_retained(value["retained"]) if "retained" in value else {},
    )


def _decode_retained(value: Mapping[str, Any]) -> dict[str, RetainedTopic]:
    topics, offsets = unpack_names(value["topics"]), _ints(value["offsets"])
    retained = {
        topic: RetainedTopic(topic_id, since_ms, {})
        for topic, topic_id, since_ms in zip(topics, unpack_ids(value["ids"]), _ints(value["since"]), strict=True)
    }
    for (topic, partition), offset in zip(unpack_keys(value, topics, len(offsets)), offsets, strict=True):
        retained[topic].offsets[partition] = offset
    return retained


def _ints(packed: list[int] | str) -> list[int]:
    return unpack_ints(packed, tightly=True)
