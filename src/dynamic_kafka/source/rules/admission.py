"""Admission: how far a micro-batch reads. It shares a limit among clusters and partitions. Pure.

Rules:

1. Limits count offsets, not rows: gaps left by compaction and transactions count. A batch never exceeds the limit.
2. Clusters share the limit equally (max-min fairness): a share that one does not need goes to the others, so a cluster with
   a large backlog cannot starve a small one. A cluster's own limit caps its share first.
3. Within a cluster each partition with a backlog gets one offset first. The rest is shared in proportion to the backlog,
   as in Spark's own Kafka source, so that the partitions of a cluster finish together.
4. If a share is too small for all, they take turns: the next batch begins after the last one served. The `Cursor` in the
   document remembers that one, so none starves over restarts either: with a limit of one offset and n partitions of a
   cluster with a backlog, each of them is served at least once in n of the cluster's turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TypeVar

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.collector import without_collector
from dynamic_kafka.source.document.offsets import Cursor

__all__ = ["admit", "load"]

K = TypeVar("K", str, KafkaTopicPartition)


@without_collector
def admit(
    backlog: Mapping[str, Mapping[KafkaTopicPartition, int]],
    cursor: Cursor,
    *,
    limit: int | None,
    cluster_limits: Mapping[str, int] | None = None,
    default_cluster_limit: int | None = None,
) -> tuple[dict[str, dict[KafkaTopicPartition, int]], Cursor]:
    """Share the limits of a micro-batch.

    Args:
        backlog: Cluster to partition to the number of offsets that could be read; only positive numbers.
        cursor: The cursor of the previous batch's document.
        limit: The maximum number of offsets in the batch; None means no limit.
        cluster_limits: Cluster to the maximum number of its offsets in the batch.
        default_cluster_limit: The maximum for other clusters; None means no limit.

    Returns:
        The offsets admitted (only positive numbers), and the cursor for the document of this batch.
    """
    wanted = {}
    for cluster, tps in backlog.items():
        total = sum(tps.values())
        cap = (cluster_limits or {}).get(cluster, default_cluster_limit)
        if total:
            wanted[cluster] = total if cap is None else min(total, cap)
    shares, last_cluster = _share_equally(wanted, limit, cursor.cluster)
    admitted: dict[str, dict[KafkaTopicPartition, int]] = {}
    last_partitions = dict(cursor.partitions)
    for cluster, share in shares.items():
        admitted[cluster], last = _share_in_proportion(backlog[cluster], share, cursor.partitions.get(cluster))
        if last is None:
            last_partitions.pop(cluster, None)
        else:
            last_partitions[cluster] = last
    return admitted, Cursor(last_cluster, last_partitions)


def load(
    backlog: Mapping[str, Mapping[KafkaTopicPartition, int]],
    *,
    limit: int | None,
    cluster_limits: Mapping[str, int] | None = None,
    default_cluster_limit: int | None = None,
) -> float:
    """Return which part of the limits a backlog takes: more than 1 does not fit into a micro-batch. 0 without a limit."""
    totals = {cluster: sum(tps.values()) for cluster, tps in backlog.items()}
    parts = [sum(totals.values()) / limit] if limit is not None else []
    for cluster, total in totals.items():
        cap = (cluster_limits or {}).get(cluster, default_cluster_limit)
        parts += [total / cap] if cap is not None else []
    return max(parts, default=0.0)


def _share_equally(wanted: Mapping[str, int], limit: int | None, last: str) -> tuple[dict[str, int], str]:
    """Share by max-min fairness; clusters take turns for the remainder of the division."""
    if limit is None or sum(wanted.values()) <= limit:
        return dict(wanted), last
    shares = dict.fromkeys(wanted, 0)
    open_clusters = _after(sorted(wanted), last)
    while limit and open_clusters:
        equal = limit // len(open_clusters)
        served = open_clusters[:limit]
        for cluster in served:
            more = min(wanted[cluster] - shares[cluster], max(1, equal))
            shares[cluster] += more
            limit -= more
        if not equal:
            last = served[-1]
        open_clusters = [c for c in open_clusters if shares[c] < wanted[c]]
    return {c: n for c, n in shares.items() if n}, last


def _share_in_proportion(
    backlog: Mapping[KafkaTopicPartition, int], share: int, last: KafkaTopicPartition | None
) -> tuple[dict[KafkaTopicPartition, int], KafkaTopicPartition | None]:
    """Give each partition one offset, then share in proportion; also return the last one served if not all were."""
    total = sum(backlog.values())
    if share >= total:
        return dict(backlog), None
    if share < len(backlog):
        turn = _after(sorted(backlog), last)[:share]
        return dict.fromkeys(turn, 1), turn[-1]
    spare, rest = share - len(backlog), total - len(backlog)
    given = {tp: 1 + (n - 1) * spare // rest for tp, n in backlog.items()}
    left = share - sum(given.values())  # by rounding down: less than one for each partition that wants more
    for _, tp in sorted([(n - backlog[tp], tp) for tp, n in given.items()])[:left]:
        given[tp] += 1
    return given, None


def _after(order: list[K], last: K | None) -> list[K]:
    """Return the sorted list, rotated to begin after `last`."""
    i = 0 if last is None else bisect_right(order, last) % len(order)
    return order[i:] + order[:i]
