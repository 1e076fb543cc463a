"""A batch that was planned on a cluster which died before it was read: its ranges are read from the copy.

Spark repeats such a batch as its document says, and the document names the old cluster. If that does not answer, if the
metadata does not name it any more, and if another cluster continues it, then both ends of each range are looked for
on the copy by the marks in the document. The records before each end have to be at one place only, and the range has to
have as many offsets on the copy: another number comes from markers of transactions, or from records that were not copied,
were repeated, or are of the copy only. The records in the middle of a range are not compared, and the message says that.
Pure: the questions go through `ask`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from dynamic_kafka.continuation import Continues
from dynamic_kafka.errors import listed
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.evidence import MoveRequest, Placement
from dynamic_kafka.source.document.offsets import Document
from dynamic_kafka.source.rules.planning import Range

__all__ = ["stand_in"]


def stand_in(
    groups: list[list[Range]],
    document: Document,
    new: str,
    *,
    topics: Collection[str],
    continues: Continues,
    ask: Callable[[MoveRequest], Placement],
) -> tuple[list[list[Range]], list[str]]:
    """Return the ranges of each task with those of the dead cluster replaced, and what to tell.

    Args:
        groups: The ranges of each task.
        document: The document of the batch.
        new: The cluster that continues the dead one.
        topics: Its topics.
        continues: What it continues.
        ask: Returns where a position is on it.
    """
    old, spans = continues.cluster, dict[KafkaTopicPartition, tuple[int, int]]()
    for r in (r for group in groups for r in group if r.cluster == continues.cluster):
        tp = KafkaTopicPartition(r.topic, r.partition)
        start, end = spans.get(tp, (r.start, r.end))
        spans[tp] = min(start, r.start), max(end, r.end)
    names = {continues.old_topic(topic): topic for topic in topics}
    found: dict[KafkaTopicPartition, Range] = {}
    said: list[str] = []
    for tp, span in sorted(spans.items()):
        if tp.topic not in names:
            continue
        there = KafkaTopicPartition(names[tp.topic], tp.partition)
        marks = document.clusters[old].marks.get(tp, ())
        placed = [ask(MoveRequest(new, there, old, tp, position, "records", "", False, marks)) for position in span]
        first, last = (p.position if p.guarantee == "exact" or p.alone else None for p in placed)
        if first is not None and last is not None and last - first != span[1] - span[0]:
            why = (
                f"it has {last - first} offsets there and not {span[1] - span[0]}: markers of transactions, or records that "
                "only one of them has, or that were repeated"
            )
            placed[0], first = placed[0]._replace(guarantee="unproved", evidence=why, alone=False), None
        elif first is not None and continues.by == "same-offsets" and first != span[0]:
            why = f"the range begins at offset {first} there, so it is not a copy with same offsets"
            placed[0], first = placed[0]._replace(guarantee="unproved", evidence=why, alone=False), None
        where = f"cluster '{old}', topic '{tp.topic}', partition {tp.partition}, offsets {span[0]} to {span[1]}"
        if first is None or last is None:
            why = next(p.evidence for p in placed if p.position is None or not (p.alone or p.guarantee == "exact"))
            said.append(f"The records of {where} cannot be read from cluster '{new}': {why}")
        else:
            found[tp] = Range(new, there.topic, "", there.partition, first, last)
    if found:
        shown = listed((f"{r.topic}/{r.partition}:{r.start}-{r.end}" for r in found.values()), 10)
        said.append(
            f"Cluster '{old}' does not answer. Its part of this batch is read from cluster '{new}': {shown}. The last "
            "records before both ends and the number of offsets are the same, what is between was not compared"
        )
    taken: set[KafkaTopicPartition] = set()
    replaced: list[list[Range]] = []
    for group in groups:
        ranges: list[Range] = []
        for r in group:
            tp = KafkaTopicPartition(r.topic, r.partition)
            if r.cluster != old or tp not in found:
                ranges.append(r)
            elif tp not in taken:  # a range that was cut is read as a whole
                taken.add(tp)
                ranges += [found[tp]] if found[tp].start < found[tp].end else []
        if ranges:
            replaced.append(sorted(ranges))
    return replaced, said
