"""Which offsets the rows of a history have: what is missing, what is there twice, and an order in which to read. Pure.

Rules:

1. A *part* is the rows of one partition in a row group, or in another piece of a file that is read at once. It has its
   offsets as spans. They have no gaps, if these are few. The smallest of many gaps are left within spans: then the number
   of the missing offsets is known, but not which ones they are.
2. Offsets in two whole spans are there twice. Where a span with gaps overlaps another one, some may be.
3. Files are read in the order of the offsets of each partition, as far as there is one. Of the files that may come next,
   the one with the least time does, so that a watermark does not run ahead; without times the first one in the list.
4. A gap that is read from Kafka comes as soon as what is before it in its partition was read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Coverage", "Node", "Offsets", "Part", "arranged", "covered", "gaps_between", "part_of"]

_MOST_GAPS = 31


class Offsets(NamedTuple):
    """Offsets from `start` to before `end`, and the number of rows that is meant."""

    start: int
    end: int
    rows: int

    @property
    def whole(self) -> bool:
        """Whether all offsets in between have a row."""
        return self.rows == self.end - self.start


class Part(NamedTuple):
    """The offsets of one partition in some rows.

    Attributes:
        spans: The offsets, each one once, in order.
        twice: Those of rows that repeat an offset of the part.
        ordered: Whether the rows are in the order of the offsets.
        last_row: The number of the row with the largest offset.
    """

    spans: tuple[Offsets, ...]
    twice: tuple[Offsets, ...] = ()
    ordered: bool = True
    last_row: int = 0


class Coverage(NamedTuple):
    """The offsets of one partition in a history.

    Attributes:
        spans: The offsets that are there, in order. Where rows may be there twice, the number is the largest possible one.
        twice: Ranges with the number of rows that repeat an offset.
        unclear: Ranges with the number of offsets that may be there twice.
        ordered: Whether the rows are read in the order of the offsets.
    """

    spans: tuple[Offsets, ...]
    twice: tuple[Offsets, ...] = ()
    unclear: tuple[Offsets, ...] = ()
    ordered: bool = True


class Node(NamedTuple):
    """A file or a gap, to be put in order.

    Attributes:
        key: What orders it among those that may come next.
        starts: The first offset of each partition that it has.
        is_gap: True for a gap.
    """

    key: Any
    starts: Mapping[Any, int]
    is_gap: bool = False


def part_of(offsets: np.ndarray[Any, np.dtype[np.int64]], rows: np.ndarray[Any, np.dtype[np.int64]]) -> Part:
    """Return the part of some rows.

    Args:
        offsets: Their offsets, at least one.
        rows: Their numbers.
    """
    steps = np.diff(offsets)
    ordered = bool((steps > 0).all())
    distinct, again, jumps = offsets, offsets[:0], steps
    if not ordered:
        distinct = np.unique(offsets)
        again = np.sort(offsets)[1:][np.diff(np.sort(offsets)) == 0]
        jumps = np.diff(distinct)
    cuts = np.flatnonzero(jumps > 1)
    if len(cuts) > _MOST_GAPS:
        cuts = np.sort(cuts[np.argsort(-jumps[cuts], kind="stable")[:_MOST_GAPS]])
    bounds = [0, *(int(cut) + 1 for cut in cuts), len(distinct)]
    spans = tuple(Offsets(int(distinct[i]), int(distinct[j - 1]) + 1, j - i) for i, j in pairwise(bounds))
    twice = (Offsets(int(again[0]), int(again[-1]) + 1, len(again)),) if len(again) else ()
    return Part(spans, twice, ordered, int(rows[int(np.argmax(offsets))]))


def covered(parts: Iterable[Part]) -> Coverage:
    """Return the coverage of a partition by its parts, in the order in which they are read."""
    found: list[Offsets] = []
    twice: list[Offsets] = []
    unclear: list[Offsets] = []
    ordered, reached = True, -1
    for part in parts:
        ordered &= part.ordered and part.spans[0].start >= reached
        reached = max(reached, part.spans[-1].end)
        found += part.spans
        twice += part.twice
    spans: list[Offsets] = []
    for span in sorted(found):
        last = spans[-1] if spans else None
        if last is None or span.start > last.end:
            spans.append(span)
        elif span.start == last.end:
            if span.whole and last.whole:
                spans[-1] = Offsets(last.start, span.end, last.rows + span.rows)
            else:
                spans.append(span)
        else:
            end, both = max(last.end, span.end), min(last.end, span.end) - span.start
            sure = span.whole and last.whole
            (twice if sure else unclear).append(Offsets(span.start, span.start + both, min(both, span.rows, last.rows)))
            spans[-1] = Offsets(last.start, end, min(end - last.start, last.rows + span.rows))
    return Coverage(tuple(spans), tuple(twice), tuple(unclear), ordered)


def gaps_between(spans: Sequence[Offsets]) -> list[Offsets]:
    """Return the offsets between spans."""
    return [Offsets(a.end, b.start, b.start - a.end) for a, b in pairwise(spans) if a.end < b.start]


def arranged(nodes: Sequence[Node], *, by_offset: bool) -> list[int]:
    """Return the numbers of the nodes in the order in which they are read.

    Args:
        nodes: The files and gaps.
        by_offset: Whether files are in the order of their offsets. A gap always follows what is before it.
    """
    of_place: dict[Any, list[tuple[int, int]]] = {}
    for number, node in enumerate(nodes):
        for place, start in node.starts.items():
            of_place.setdefault(place, []).append((start, number))
    after: list[list[int]] = [[] for _ in nodes]
    waits = [0] * len(nodes)
    for chain in of_place.values():
        for (_, one), (_, other) in pairwise(sorted(chain)):
            if by_offset or nodes[other].is_gap:
                after[one].append(other)
                waits[other] += 1
    ready = sorted((not node.is_gap, node.key, number) for number, node in enumerate(nodes) if not waits[number])
    rest = iter(sorted((node.is_gap, node.key, number) for number, node in enumerate(nodes)))
    done = [False] * len(nodes)
    order: list[int] = []
    while len(order) < len(nodes):
        # If all wait for each other, no order is that of all offsets.
        number = (heapq.heappop(ready) if ready else next(entry for entry in rest if not done[entry[-1]]))[-1]
        done[number] = True
        order.append(number)
        for other in after[number]:
            waits[other] -= 1
            if not waits[other] and not done[other]:
                heapq.heappush(ready, (not nodes[other].is_gap, nodes[other].key, other))
    return order
