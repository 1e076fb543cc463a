"""Since when the records of a partition wait: a clock for lag that does not need their timestamps. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_kafka.initializer import KafkaTopicPartition

__all__ = ["Behind"]

_MOST_MARKS = 16


class Behind:
    """For each partition with records to read, the ends that were seen, and when each was seen first.

    The oldest mark beyond the position tells since when at least one record waits. Of many marks of a partition, every other
    one is dropped: then the time is that of an earlier end, and the lag is not told too small.
    """

    def __init__(self) -> None:
        self._marks: dict[KafkaTopicPartition, list[tuple[int, int]]] = {}

    def see(
        self, positions: Mapping[KafkaTopicPartition, int], ends: Mapping[KafkaTopicPartition, int], now_ms: int
    ) -> None:
        """Take the positions and the ends of all partitions, as they are now."""
        for tp, position in positions.items():
            end = ends.get(tp)
            marks = self._marks.get(tp)
            if marks is None:
                if end is not None and end > position:
                    self._marks[tp] = [(end, now_ms)]
                continue
            while marks and marks[0][0] <= position:
                del marks[0]
            if end is not None and end > (marks[-1][0] if marks else position):
                if len(marks) >= _MOST_MARKS:
                    marks[:] = _thinned(marks)
                marks.append((end, now_ms))
            if not marks:
                del self._marks[tp]
        for tp in self._marks.keys() - positions.keys():
            del self._marks[tp]

    def since_ms(self, tp: KafkaTopicPartition) -> int | None:
        """Return since when a record of a partition waits; None if none does."""
        marks = self._marks.get(tp)
        return marks[0][1] if marks else None


def _thinned(marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join each two marks: the records up to the later end wait since the earlier time."""
    return [(later[0], earlier[1]) for earlier, later in zip(marks[::2], marks[1::2], strict=True)]
