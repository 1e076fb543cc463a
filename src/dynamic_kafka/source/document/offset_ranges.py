"""Offsets that the user gives up (`skip-offsets`), and their text. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["OffsetRange", "parse_offset_ranges"]

_OFFSET_RANGE = re.compile(r"\s*(.+?)/([^/;]+)/(\d+):(\d+)-(\d+)\s*(?:;|$)")


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition that the user gives up. As text: `cluster/topic/partition:start-end`."""

    cluster: str
    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        """Return the text that `parse_offset_ranges` reads."""
        return f"{self.cluster}/{self.topic}/{self.partition}:{self.start}-{self.end}"


def parse_offset_ranges(text: str) -> tuple[OffsetRange, ...]:
    """Return the ranges of a text such as `cluster/topic/0:50-100;cluster/topic/1:0-10`; raise ValueError if it is wrong."""
    found, at = [], 0
    while at < len(text):
        match = _OFFSET_RANGE.match(text, at)
        if match is None:
            raise ValueError(text)
        cluster, topic, *numbers = match.groups()
        found.append(OffsetRange(cluster, topic, *map(int, numbers)))
        at = match.end()
    if any(r.start >= r.end for r in found):
        raise ValueError(text)
    return tuple(found)
