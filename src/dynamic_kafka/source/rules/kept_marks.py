"""The marks in the offset document: which of them stay, and which partitions have none that are current. Pure.

A partition keeps the newest marks, and while its batch has records also the newest ones up to the start of the batch: a
batch that is never finished moves from there. Marks say up to which offset they are complete, so older ones are true too.
Those of an offset behind the batch are left out: the position went back, and the records may be others now.
"""

from __future__ import annotations

from collections.abc import Collection

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.document import ClusterOffsets
from dynamic_kafka.source.document.evidence import Marks

__all__ = ["add_marks", "unmarked"]


def add_marks(state: ClusterOffsets, tp: KafkaTopicPartition, found: Marks) -> bool:
    """Keep marks of a partition, and return whether something changed. They have to be complete up to the end at most."""
    kept = state.marks.get(tp, ())
    if not found.records:  # older ones say more
        return False
    start, end = state.ranges[tp]
    known = sorted([*(marks for marks in kept if marks.until <= end and marks.until != found.until), found])
    newest = known[-1]
    now = [max((marks for marks in known if marks.until <= start), default=newest), newest] if end > start else [newest]
    state.marks[tp] = tuple(dict.fromkeys(now))
    return state.marks[tp] != kept


def unmarked(state: ClusterOffsets, topics: Collection[str]) -> list[KafkaTopicPartition]:
    """Return the partitions of topics whose marks are not complete up to their positions."""
    return [
        tp
        for tp, (_, end) in sorted(state.ranges.items())
        if tp.topic in topics and end > 0 and not any(marks.until == end for marks in state.marks.get(tp, ()))
    ]
