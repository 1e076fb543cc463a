"""The driver's work for one micro-batch over simulated clusters: everything except the calls to brokers."""

from __future__ import annotations

import json
from collections.abc import Callable

from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.offsets import Cursor, Document, check_chain, decode, encode, topic_id_text
from dynamic_kafka.source.rules.admission import admit
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, OffsetAnswers, ReadPolicy, SourceSnapshot
from dynamic_kafka.source.rules.planning import Range, plan
from dynamic_kafka.source.rules.reconcile import reconcile

__all__ = ["micro_batch"]

_POLICY = ReadPolicy(
    KafkaOffsetsInitializer.earliest(), None, fail_on_data_loss=True, retention_ms=7 * 24 * 3600 * 1000, drain=False
)
_MIXED = 7_777_777_777  # topic ids look random
_OFFSET = 123_456_789


def micro_batch(partitions: int, per_topic: int, clusters: int = 1) -> Callable[[], list[list[Range]]]:
    """Return a function that does the work of one batch: decode, reconcile, admit, encode and plan.

    Args:
        partitions: The number of partitions. Each of them has new records.
        per_topic: The number of partitions of each topic.
        clusters: The number of clusters, which have equal shares of the partitions.
    """
    names = [f"cluster-{i:04d}" for i in range(clusters)]
    topics = {
        f"topic-{i:05d}": topic_id_text(f"{i * _MIXED % 10**11:011d}")
        for i in range(partitions // per_topic // clusters)
    }
    ends = {
        KafkaTopicPartition(topic, p): _OFFSET + 1000 + 7 * i
        for i, topic in enumerate(topics)
        for p in range(per_topic)
    }
    views = {name: ClusterView(f"kafka-{name}", topics, dict.fromkeys(topics, per_topic), dict(ends)) for name in names}
    desired = {name: DesiredCluster(frozenset(topics), {"bootstrap.servers": f"{name}:9092"}) for name in names}
    streams = {"stream": dict.fromkeys(names, frozenset(topics))}

    def resolve(previous: Document | None, answers: OffsetAnswers) -> Document:
        seen = SourceSnapshot(streams, desired, views, fresh=True)
        return reconcile(previous, seen, _POLICY, answers, now_ms=0).document

    known = OffsetAnswers(start={(name, tp): _OFFSET for name in names for tp in ends})
    start = json.dumps(encode(resolve(None, known)))

    def step() -> list[list[Range]]:
        previous = decode(json.loads(start))
        document = resolve(previous, OffsetAnswers())
        backlog = {
            name: {tp: ends[tp] - position for tp, (_, position) in cluster.ranges.items()}
            for name, cluster in document.clusters.items()
        }
        admitted, document.cursor = admit(backlog, Cursor(), limit=500 * partitions)
        for name, tps in admitted.items():
            ranges = document.clusters[name].ranges
            for tp, count in tps.items():
                position = ranges[tp][0]
                ranges[tp] = (position, position + count)
        text = json.dumps(encode(document))
        end = decode(json.loads(text))  # Spark hands the text back
        check_chain(previous, end)
        return plan(end)

    planned = sum(r.end - r.start for task in step() for r in task)
    assert planned == 500 * partitions, planned
    return step
