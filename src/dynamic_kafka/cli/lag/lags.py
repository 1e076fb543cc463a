"""Lag: what was seen of partitions at one time, sums of it with the worst first, and how it changes. Pure.

What is not known is never 0: it is counted, it has a reason, and it comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = ["DEPTH", "By", "Look", "PartitionLag", "Row", "exceeds", "rows_of", "trend_of"]

By = Literal["cluster", "topic", "partition"]
"""What a row is about."""
DEPTH: Mapping[By, int] = {"cluster": 1, "topic": 2, "partition": 3}
"""The number of parts in the key of a row."""

Key = tuple[str, ...]
"""A cluster; a cluster and a topic; or a cluster, a topic and the number of a partition."""

_WINDOW_MS = 300_000
_LEAST_FOR_LINE = 4  # samples
_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A partition at one time.

    `position` is the next offset to read, and `end` is the end of the log, or the stopping offset if that comes first.
    `seconds` is the age of the next record, 0 if there is none. What is not known is None; `reason` says why the lag is not
    known, and is "" if it is.
    """

    cluster: str
    topic: str
    partition: int
    position: int | None = None
    end: int | None = None
    reason: str = ""
    seconds: float | None = None

    @property
    def lag(self) -> int | None:
        """Return the number of offsets to read; None if it is not known."""
        return None if self.reason or self.position is None or self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True)
class Look:
    """All partitions at one time.

    Nothing is known now of the `silent` clusters, for the reasons there. `notes` are what else was seen, such as the last
    batch. `past` is the lag of clusters at earlier times, oldest first, if somebody has kept it.
    """

    time_ms: int
    partitions: tuple[PartitionLag, ...]
    silent: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    past: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @property
    def known_lag(self) -> int:
        """Return the sum of the lags that are known."""
        return sum(p.lag or 0 for p in self.partitions)

    @property
    def lag(self) -> int | None:
        """Return the sum of all lags; None if one of them is not known."""
        return None if self.unknown or self.silent else self.known_lag

    @property
    def unknown(self) -> int:
        """Return the number of partitions with a lag that is not known."""
        return sum(p.lag is None for p in self.partitions)

    @property
    def seconds(self) -> float | None:
        """Return the greatest age of a next record; None if it is not known of any partition that has one."""
        return _seconds(self.partitions)

    @property
    def ageless(self) -> int:
        """Return the number of partitions that have a next record of an age that is not known."""
        return _ageless(self.partitions)


class Row(NamedTuple):
    """The lag of a cluster, a topic or a partition.

    Attributes:
        key: What it is about.
        partitions: The number of partitions.
        unknown: How many of them have a lag that is not known.
        lag: The sum of the others; None if none is known.
        seconds: The greatest age of a next record; None if it is not known of any partition that has one.
        per_second: How the lag changes, in records a second; None if that is not known.
        clear_s: The time until there is nothing left, at this rate; None if it is not known or never.
        swing: The smallest and the greatest lag of late, if it went up and down by more than it changed on the whole;
            then `per_second` is not known.
        note: Why something is not known, or which partition has most of the lag.
        position: The position, for a partition.
        end: The end, for a partition.
        ageless: The number of partitions that have a next record of an age that is not known.
    """

    key: Key
    partitions: int
    unknown: int
    lag: int | None
    seconds: float | None
    per_second: float | None
    clear_s: float | None
    note: str
    swing: tuple[int, int] | None = None
    position: int | None = None
    end: int | None = None
    ageless: int = 0


def rows_of(looks: Sequence[Look], by: By) -> list[Row]:
    """Return the rows, worst first: what is not known, then by age, then by lag. Earlier looks are for the trend."""
    now = looks[-1]
    groups: dict[Key, list[PartitionLag]] = {(cluster,): [] for cluster in now.silent} if by == "cluster" else {}
    for partition in now.partitions:
        groups.setdefault(_key(partition, by), []).append(partition)
    if by != "cluster":  # a cluster without partitions has a row of its own
        known = {p.cluster for p in now.partitions}
        groups |= {(cluster,): [] for cluster in now.silent if cluster not in known}
    earlier = _earlier(looks, by)
    rows = [_row(key, some, now, earlier.get(key, [])) for key, some in groups.items()]
    return sorted(
        rows, key=lambda row: (row.lag is not None and not row.unknown, -(row.seconds or 0), -(row.lag or 0), row.key)
    )


def exceeds(look: Look, max_lag: int | None, max_seconds: float | None) -> str:
    """Return why a limit is exceeded, or not known to be kept; "" if all limits are kept."""
    if max_lag is None and max_seconds is None:
        return ""
    if max_lag is not None and look.known_lag > max_lag:
        return f"the lag is {'at least ' if look.lag is None else ''}{look.known_lag}, more than {max_lag}"
    if max_seconds is not None and look.seconds is not None and look.seconds > max_seconds:
        return f"the oldest record to read is {look.seconds:.0f} s old, more than {max_seconds:g} s"
    if look.unknown or look.silent:
        return f"the lag of {look.unknown} partitions is not known"
    if max_seconds is not None and look.ageless:
        return f"the age of the next record is not known for {look.ageless} partitions"
    return ""


# --- parts --------------------------------------------------------------------------------------------------------------


def _key(partition: PartitionLag, by: By) -> Key:
    return (partition.cluster, partition.topic, str(partition.partition))[: DEPTH[by]]


def _row(key: Key, some: Sequence[PartitionLag], now: Look, earlier: Sequence[tuple[int, int]]) -> Row:
    unknown = sum(p.lag is None for p in some)
    known = [p.lag for p in some if p.lag is not None]
    lag = sum(known) if known else None
    silent = now.silent.get(key[0])
    note = silent or next((p.reason for p in some if p.reason), "") or _worst(some, lag)
    if unknown and known:
        note = f"{unknown} partitions are not known: {note}"
    # A sum without some of its parts is no trend.
    per_second, swing = (None, None) if unknown or lag is None else trend_of([*earlier, (now.time_ms, lag)])
    one = some[0] if len(key) == 3 else None
    return Row(
        key,
        len(some),
        unknown,
        lag,
        _seconds(some),
        per_second,
        lag / -per_second if lag and per_second is not None and per_second < 0 else None,
        note,
        swing,
        one.position if one is not None else None,
        one.end if one is not None else None,
        _ageless(some),
    )


def _seconds(some: Sequence[PartitionLag]) -> float | None:
    greatest = max((p.seconds for p in some if p.seconds is not None), default=None)
    return None if not greatest and _ageless(some) else greatest


def _ageless(some: Iterable[PartitionLag]) -> int:
    return sum(bool(p.lag) and p.seconds is None for p in some)


def _worst(some: Sequence[PartitionLag], lag: int | None) -> str:
    """Return the partition that has most of the lag, if one has."""
    if not lag or len(some) < 2:
        return ""
    worst = max(some, key=lambda p: p.lag or 0)
    share = (worst.lag or 0) / lag
    return f"{share:.0%} of it in {worst.topic}/{worst.partition}" if share > _SHARE else ""


def _earlier(looks: Sequence[Look], by: By) -> dict[Key, list[tuple[int, int]]]:
    """Return the lags in the looks before the last one, by key. A look in which a part was not known is left out."""
    now = looks[-1]
    found: dict[Key, list[tuple[int, int]]] = {}
    if by == "cluster":
        found = {(cluster,): list(past) for cluster, past in looks[0].past.items()}
    for look in looks[:-1]:
        sums: dict[Key, int | None] = {}
        for p in look.partitions:
            key, lag = _key(p, by), p.lag
            before = sums.get(key, 0)
            sums[key] = None if lag is None or before is None else before + lag
        for key, lag in sums.items():
            if lag is not None:
                found.setdefault(key, []).append((look.time_ms, lag))
    return {k: [s for s in samples if now.time_ms - s[0] <= _WINDOW_MS] for k, samples in found.items()}


def trend_of(samples: Sequence[tuple[int, int]]) -> tuple[float | None, tuple[int, int] | None]:
    """Return how a lag changes in each second, or between which numbers it swings; None for what is not known.

    The samples are times in milliseconds and lags, oldest first.

    The lag of a query in micro-batches is a saw: it grows until a batch ends. From two or three samples, the change is that
    from the first to the last one. From more, it is that of the straight line with the least squares, if the line changes
    by more than the samples are apart from it. Otherwise the lag swings.
    """
    (first_ms, first), (last_ms, last) = samples[0], samples[-1]
    if last_ms <= first_ms:
        return None, None
    if len(samples) < _LEAST_FOR_LINE:
        return (last - first) * 1000 / (last_ms - first_ms), None
    middle_ms = sum(ms for ms, _ in samples) / len(samples)
    middle = sum(lag for _, lag in samples) / len(samples)
    slope = sum((ms - middle_ms) * (lag - middle) for ms, lag in samples) / sum(
        (ms - middle_ms) ** 2 for ms, _ in samples
    )
    beside = [lag - slope * ms for ms, lag in samples]
    if max(beside) - min(beside) > abs(slope) * (last_ms - first_ms):
        lags = [lag for _, lag in samples]
        return None, (min(lags), max(lags))
    return slope * 1000, None
