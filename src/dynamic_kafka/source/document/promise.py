"""What is guaranteed at the switch from a history to Kafka: what was looked at, what was seen, and the words for it. Pure.

A promise is exact if the offsets of all rows were looked at, each one is there once and in order, the gaps between them are
read from Kafka, and Kafka's topics are known to be those of the history. Whatever else was seen is in the promise, with its
number and its ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from dynamic_kafka.errors import listed
from dynamic_kafka.history.coverage import Coverage, Offsets
from dynamic_kafka.history.model import Place

__all__ = ["Promise", "Seen", "Verdict", "counted", "decode_promise", "encode_promise", "seen_in", "shown_place"]

Verdict = Literal["exact", "not proved", "not exact"]
Kind = Literal[
    "read from Kafka",
    "before",
    "in no file",
    "without record",
    "never read",
    "too many",
    "copied",
    "moved",
    "another name",
    "twice",
    "maybe twice",
    "out of order",
    "not compared",
    "deleted",
    "set by hand",
]
_MOST_SHOWN = 5
_MOST_KEPT = 20
_WORDS: Mapping[Kind, tuple[Verdict, str]] = {
    "deleted": ("not exact", "{ranges}; failOnDataLoss=false"),
    "never read": (
        "not exact",
        "{n} offsets were never read by the archive, and Kafka does not have them any more: {ranges}",
    ),
    "copied": (
        "not exact",
        (
            "rows of the history may come twice, because they may be on a copy, too, which is read from its beginning: "
            "{ranges}"
        ),
    ),
    "twice": ("not exact", "{n} rows are there twice: {ranges}"),
    "out of order": ("not exact", "rows are not in the order of their offsets: {ranges}"),
    "set by hand": ("not exact", "positions were set by hand: {ranges}"),
    "in no file": (
        "not proved",
        (
            "{n} offsets are in no file, and are not read from Kafka. They are markers of transactions, compacted or "
            "filtered records, or lost: {ranges}"
        ),
    ),
    "without record": (
        "not proved",
        (
            "{n} offsets were read by the archive and have no record. They are markers of transactions, compacted or "
            "filtered records, or were given up: {ranges}"
        ),
    ),
    "too many": (
        "not proved",
        (
            "{n} offsets that the history does not have are in Kafka and not read from it, because only the 1,000 largest "
            "gaps are: {ranges}"
        ),
    ),
    "another name": (
        "not proved",
        (
            "rows of the history may come twice, because nothing shows that a cluster which this query does not read is "
            "another one than a cluster which it reads, and not its former name: {ranges}"
        ),
    ),
    "moved": (
        "not proved",
        (
            "what is before the history's first offsets is not read from Kafka, because the history has rows of the cluster "
            "that is continued. Nothing shows that these are all, and each one once: {ranges}"
        ),
    ),
    "maybe twice": ("not proved", "up to {n} rows may be there twice: {ranges}"),
    "not compared": (
        "not proved",
        (
            "nothing shows that these topics were not made anew, because there are no topic ids, and no record with its "
            "time that both the history and Kafka have at its last offset: {ranges}"
        ),
    ),
    "read from Kafka": ("exact", "{n} offsets that the history does not have are read from Kafka: {ranges}"),
    "before": ("exact", "{n} offsets before the history's first ones are not in Kafka either: {ranges}"),
}
"""What each kind takes from the promise, and its words; the worst first."""


class Seen(NamedTuple):
    """Something that was seen of a history.

    Attributes:
        kind: What it is.
        offsets: The number of offsets or rows; 0 where they are not counted.
        places: The number of ranges.
        ranges: The first ranges, for people.
    """

    kind: Kind
    offsets: int
    places: int
    ranges: tuple[str, ...]

    @classmethod
    def of(cls, kind: Kind, ranges: Sequence[str], offsets: int = 0) -> Seen:
        """Return what was seen in ranges, of which the first ones are kept."""
        return cls(kind, offsets, len(ranges), tuple(ranges[:_MOST_KEPT]))

    def __str__(self) -> str:
        shown = [*self.ranges[:_MOST_SHOWN]]
        more = self.places - len(shown)
        ranges = ", ".join(shown) + (f" and {more:,} more" if more else "")
        return _WORDS[self.kind][1].format(n=f"{self.offsets:,}", ranges=ranges)


@dataclass(frozen=True, slots=True)
class Promise:
    """What is guaranteed at the switch from a history to Kafka.

    Args:
        goes_on: Where Kafka goes on, as a clause.
        rows: The number of rows of which the offsets were read.
        only_if: What the switch depends on and nobody can look at; "" if there is nothing.
        recognized: By what clusters and topics were recognized, with the number of partitions.
        seen: What was seen besides.
    """

    goes_on: str
    rows: int = 0
    only_if: str = ""
    recognized: tuple[tuple[str, int], ...] = ()
    seen: tuple[Seen, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether each record is there exactly once, and in order."""
        found = {_WORDS[seen.kind][0] for seen in self.seen}
        if "not exact" in found:
            return "not exact"
        return "not proved" if "not proved" in found or self.only_if else "exact"

    def __str__(self) -> str:
        said = sorted(self.seen, key=lambda seen: [*_WORDS].index(seen.kind))
        against = [str(seen) for seen in said if _WORDS[seen.kind][0] != "exact"]
        if self.only_if:
            against.append(f"exact only if {self.only_if}")
        words = {
            "exact": f"Exact, by the offsets of all {self.rows:,} rows",
            "not proved": "Not proved",
            "not exact": "Not exact",
        }[self.verdict]
        words += f": {'; '.join(against)}" if against else ""
        words += "".join(f"; {seen}" for seen in said if _WORDS[seen.kind][0] == "exact")
        by = listed(
            [f"by {by}" + (f" ({n:,} partitions)" if len(self.recognized) > 1 else "") for by, n in self.recognized]
        )
        return f"{self.goes_on}. {words}" + (f"; clusters and topics were recognized {by}" if by else "")

    def warnings(self) -> list[str]:
        """Return the words for all that speaks against it."""
        return [f"The history: {seen}" for seen in self.seen if _WORDS[seen.kind][0] != "exact"]

    def and_seen(self, *more: Seen) -> Promise:
        """Return the promise after more was seen."""
        return replace(self, seen=(*self.seen, *more))

    def as_progress(self) -> dict[str, Any]:
        """Return it for `lastProgress`."""
        return {
            "promise": str(self),
            "verdict": self.verdict,
            "seen": [
                {"what": s.kind, "offsets": s.offsets, "places": s.places, "ranges": [*s.ranges]} for s in self.seen
            ],
        }


def seen_in(coverage: Mapping[Place, Coverage]) -> list[Seen]:
    """Return what was seen of the rows of a history: which are there twice, and which are not in order."""
    twice = [(place, span) for place, found in sorted(coverage.items()) for span in found.twice]
    unclear = [(place, span) for place, found in sorted(coverage.items()) for span in found.unclear]
    unordered = [shown_place(place) for place, found in sorted(coverage.items()) if not found.ordered]
    return [
        *counted("twice", twice),
        *counted("maybe twice", unclear),
        *([Seen.of("out of order", unordered)] if unordered else []),
    ]


def counted(kind: Kind, found: Iterable[tuple[Place, Offsets]]) -> list[Seen]:
    """Return what was seen in some ranges; nothing without one."""
    ranges = [*found]
    if not ranges:
        return []
    texts = [f"{shown_place(place)}: {span.start} to {span.end - 1}" for place, span in ranges]
    return [Seen.of(kind, texts, sum(span.rows for _, span in ranges))]


def shown_place(place: Place) -> str:
    """Return a place for people."""
    cluster, topic, partition = place
    return f"{cluster}/{topic}-{partition}" if cluster else f"{topic}-{partition}"


def encode_promise(promise: Promise) -> dict[str, Any]:
    """Return the promise as a JSON value with a fixed key order."""
    return {
        "goes on": promise.goes_on,
        "rows": promise.rows,
        "only if": promise.only_if,
        "recognized": [list(pair) for pair in promise.recognized],
        "seen": [[seen.kind, seen.offsets, seen.places, list(seen.ranges)] for seen in promise.seen],
    }


def decode_promise(value: Mapping[str, Any]) -> Promise:
    """Return the promise that was encoded; raise one of the errors that `offsets.decode` expects if it is damaged."""
    seen = []
    for kind, offsets, places, ranges in value["seen"]:
        if kind not in _WORDS:
            raise ValueError(f"'{kind}' in a promise")
        seen.append(Seen(kind, int(offsets), int(places), tuple(str(text) for text in ranges)))
    recognized = tuple((str(by), int(number)) for by, number in value["recognized"])
    return Promise(str(value["goes on"]), int(value["rows"]), str(value["only if"]), recognized, tuple(seen))
