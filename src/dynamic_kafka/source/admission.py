"""How far a micro-batch reads: a limit shared out over clusters and splits. Pure.

Rules:

1. Limits count offsets, not rows: gaps left by compaction and transactions count. Never more than the limit.
2. Clusters share the limit as equals (max-min fairness): what one does not need goes to the others, so a cluster with a
   large backlog cannot starve a small one. A cluster's own limit caps its share first.
3. Within a cluster each split with a backlog gets one offset first; what is left is shared in proportion to the backlog,
   as Spark's own Kafka source does, so that the splits of a cluster finish together.
4. Where a share is too small for everybody, the turn goes round: the next batch begins after the last one served. Who
   that was is the `Cursor` in the document, so nobody starves over restarts either: with a limit of one offset and n
   splits of a cluster with a backlog each of them is served at least once in n of the cluster's turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TypeVar

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.offsets import Cursor

__all__ = ["admit"]

K = TypeVar("K", str, KafkaTopicPartition)


def admit(
    backlog: Mapping[str, Mapping[KafkaTopicPartition, int]],
    cursor: Cursor,
    *,
    limit: int | None,
    cluster_limits: Mapping[str, int] | None = None,
    default_cluster_limit: int | None = None,
) -> tuple[dict[str, dict[KafkaTopicPartition, int]], Cursor]:
    """Share out one micro-batch.

    Args:
        backlog: Cluster to split to the number of offsets that could be read; only positive numbers.
        cursor: From the previous batch's document.
        limit: Most offsets in the batch; None means no limit.
        cluster_limits: Most offsets of a cluster in the batch.
        default_cluster_limit: The same for clusters not named there.

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
    last_splits = dict(cursor.partitions)
    for cluster, share in shares.items():
        admitted[cluster], last = _share_in_proportion(backlog[cluster], share, cursor.partitions.get(cluster))
        if last is None:
            last_splits.pop(cluster, None)
        else:
            last_splits[cluster] = last
    return admitted, Cursor(last_cluster, last_splits)


def _share_equally(wanted: Mapping[str, int], limit: int | None, last: str) -> tuple[dict[str, int], str]:
    """Max-min fairness; the remainder of the division goes round."""
    if limit is None or sum(wanted.values()) <= limit:
        return dict(wanted), last
    shares = dict.fromkeys(wanted, 0)
    open_clusters = _after(sorted(wanted), last)
    while limit and open_clusters:
        equal = limit // len(open_clusters)
        served = open_clusters if equal else open_clusters[:limit]
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
    """One each, then in proportion; the last one served if not everybody was."""
    total = sum(backlog.values())
    if share >= total:
        return dict(backlog), None
    if share < len(backlog):
        turn = _after(sorted(backlog), last)[:share]
        return dict.fromkeys(turn, 1), turn[-1]
    spare, rest = share - len(backlog), total - len(backlog)
    given = {tp: 1 + (n - 1) * spare // rest for tp, n in backlog.items()}
    left = share - sum(given.values())  # less than one per split, by the rounding down
    for tp in sorted(backlog, key=lambda s: (given[s] - backlog[s], s)):
        if not left:
            break
        more = min(1, backlog[tp] - given[tp])
        given[tp] += more
        left -= more
    return given, None


def _after(order: list[K], last: K | None) -> list[K]:
    """The sorted list, begun after `last`."""
    i = 0 if last is None else bisect_right(order, last) % len(order)
    return order[i:] + order[:i]
