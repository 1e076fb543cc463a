"""What has to last before it counts: a topic that stays quiet, an end that stays below the position. Pure.

The time is that of the looks at a cluster, and not that of the calls: a cluster that hangs shows nothing.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.offsets import ClusterOffsets
from dynamic_kafka.source.rules.model import ClusterView

__all__ = ["Lasting"]


class Lasting:
    """Remembers since when what was seen last is so.

    Args:
        quiet_s: How long the ends of a draining topic have to stay.
        below_s: How long an end has to stay below the position: longer than a leader change takes.
    """

    def __init__(self, *, quiet_s: float, below_s: float) -> None:
        self._quiet_s, self._below_s = quiet_s, below_s
        self._quiet_since: dict[tuple[str, str], tuple[list[int], float]] = {}
        self._below_since: dict[tuple[str, KafkaTopicPartition], tuple[float, int | None]] = {}

    @property
    def is_counting(self) -> bool:
        """Return whether another look may lead to another answer, although nothing else has changed."""
        return bool(self._quiet_since or self._below_since)

    @property
    def below(self) -> KeysView[tuple[str, KafkaTopicPartition]]:
        """Return the partitions with an end that was below the position in the last look, for however long."""
        return self._below_since.keys()

    def quiet(
        self,
        known: Mapping[str, ClusterOffsets],
        views: Mapping[str, ClusterView],
        seen_at: Mapping[str, float],
        *,
        at_once: bool,
    ) -> set[tuple[str, str]]:
        """Return the draining topics that were read to their ends, if the ends have not moved for the quiet time.

        Under read_committed, the records of an open transaction may still come, and so may those after them.

        Args:
            known: The clusters of the last document.
            views: The clusters that answer.
            seen_at: When they have answered, in seconds.
            at_once: Whether a topic that was read to its end counts without waiting.
        """
        quiet = set()
        draining = {(name, topic) for name, c in known.items() if name in views for topic in c.draining}
        for key in set(self._quiet_since) - draining:
            del self._quiet_since[key]
        partitions = {name: known[name].partitions_by_topic() for name in {name for name, _ in draining}}
        for name, topic in draining:
            ranges = known[name].ranges
            tps = [tp for tp in partitions[name].get(topic, ()) if tp in ranges]
            ends = [views[name].ends.get(tp, -1) for tp in tps]
            log_ends = views[name].log_ends
            whole = ends if log_ends is None else [log_ends.get(tp, -1) for tp in tps]
            caught_up = ends == whole and all(ranges[tp][1] >= end >= 0 for tp, end in zip(tps, ends, strict=True))
            now = seen_at[name]
            before, since = self._quiet_since.get((name, topic), ([], now))
            if not caught_up or ends != before:
                since = now
            self._quiet_since[name, topic] = ends, since
            if caught_up and (at_once or now - since >= self._quiet_s):
                quiet.add((name, topic))
        return quiet

    def regressed(
        self, known: Mapping[str, ClusterOffsets], views: Mapping[str, ClusterView], seen_at: Mapping[str, float]
    ) -> dict[tuple[str, KafkaTopicPartition], int]:
        """Return partitions with an end that was below the position for longer than a leader change takes: the lowest.

        Under read_committed the end of the whole log counts, as soon as it is known. An open transaction makes no log
        shorter, and a query that has read uncommitted records may be beyond its begin.
        """
        below: dict[tuple[str, KafkaTopicPartition], tuple[float, int | None]] = {}
        for name, c in known.items():
            if name not in views:
                continue
            log_ends = views[name].log_ends
            for tp, (_, position) in c.ranges.items():
                seen = views[name].ends.get(tp, position)
                if seen >= position:
                    continue
                end = seen if log_ends is None else log_ends.get(tp)
                if end is None or end < position:
                    since, lowest = self._below_since.get((name, tp), (seen_at[name], None))
                    below[name, tp] = since, min((e for e in (end, lowest) if e is not None), default=None)
        self._below_since = below
        return {
            (name, tp): lowest
            for (name, tp), (since, lowest) in below.items()
            if lowest is not None and seen_at[name] - since >= self._below_s
        }
