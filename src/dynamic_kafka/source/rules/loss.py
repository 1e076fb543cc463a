"""What the answer of a cluster proves about a planned range: which of its offsets can never be read any more. Pure.

=====================================================  =================================================================
answer                                                 what it proves
=====================================================  =================================================================
none, or none about this topic or partition            nothing
another topic id, again and again                      the whole range is lost: its offsets belong to another topic
the topic does not exist, again and again              the rest of the range is lost
fewer partitions than the range's one, again and again  the same
the log starts after the position                      the offsets before its start are lost
the log ends before the range does, again and again    the offsets from its end on are lost
=====================================================  =================================================================

"Again and again" stands for a few seconds: for a moment, a broker may not know a new topic yet, and a new leader may show an
older end. A log that was truncated and has grown again shows nothing here. librdkafka finds it by the
leader epoch if it happens during a task (see `reader`). Between two tasks nobody finds it, because the offset document does
not hold leader epochs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from dynamic_kafka.source.rules.planning import Range

__all__ = ["PartitionAnswer", "Proof", "prove"]


class PartitionAnswer(NamedTuple):
    """What a cluster answered about a partition.

    Attributes:
        topic_exists: Whether the topic exists; None if the cluster did not say.
        topic_id: The id of the topic; "" if it is unknown.
        partitions: The number of partitions of the topic; None if it is unknown.
        start: The start of the log; None if it is unknown.
        end: The end of the log; None if it is unknown.
    """

    topic_exists: bool | None = None
    topic_id: str = ""
    partitions: int | None = None
    start: int | None = None
    end: int | None = None


class Proof(NamedTuple):
    """The proof that offsets [start, end) of a range are lost.

    Attributes:
        kind: The kind of loss.
        reason: The reason, as a clause.
        start: The first lost offset.
        end: The offset after the last lost one.
        final: True if one answer is enough.
    """

    kind: Literal["recreated", "deleted", "removed", "expired", "truncated"]
    reason: str
    start: int
    end: int
    final: bool = False


def prove(r: Range, position: int, answer: PartitionAnswer) -> Proof | None:
    """Return what the answer proves about a range of which the offsets before `position` were read; None for nothing."""
    if r.topic_id and answer.topic_id and answer.topic_id != r.topic_id:
        reason = f"the topic was recreated (topic id {r.topic_id} is now {answer.topic_id})"
        return Proof("recreated", reason, r.start, r.end)
    if answer.topic_exists is False:
        return Proof("deleted", "the topic was deleted", position, r.end)
    if answer.partitions is not None and answer.partitions <= r.partition:
        reason = f"the topic has only {answer.partitions} partitions now, so it was recreated"
        return Proof("removed", reason, position, r.end)
    if answer.start is not None and answer.start > position:
        reason = f"offsets up to {answer.start} were deleted (retention, or DeleteRecords)"
        return Proof("expired", reason, position, min(answer.start, r.end), final=True)
    if answer.end is not None and answer.end < r.end:
        lost_from = max(position, answer.end)
        reason = f"the log ends at offset {answer.end}, below the end of the planned range [{r.start}, {r.end})"
        return Proof("truncated", reason, lost_from, r.end)
    return None
