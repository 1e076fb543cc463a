"""The end: the results from Kafka and Spark, compared with the results of pandas on the file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pandas as pd
from rich.table import Table

from delays import CarrierDelay, Delays
from departures import load_airlines

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """The comparison.

    Args:
        carriers: For each carrier, the expected and the found delays.
        clusters: For each cluster, the number of flights in the file, acknowledged to the producers, and read by Spark.
        lost: The number of flights that were never read.
        twice: The number of records that were read a second time.
    """

    carriers: dict[str, tuple[CarrierDelay, CarrierDelay]]
    clusters: dict[str, tuple[int, int, int]]
    lost: int
    twice: int

    @property
    def ok(self) -> bool:
        """Return whether all results are correct."""
        same = all(expected == found for expected, found in self.carriers.values())
        return (
            same and all(len(set(counts)) == 1 for counts in self.clusters.values()) and not (self.lost or self.twice)
        )

    def tables(self) -> list[Table]:
        """Return both comparisons as tables."""
        names = load_airlines()
        by_carrier = Table(
            "carrier", title="Departure delays by carrier: Kafka and Spark compared with pandas on the file"
        )
        by_cluster = Table("cluster", title="Flights by cluster")
        for heading in ("flights", "pandas", "mean delay (min)", "pandas", "ok"):
            by_carrier.add_column(heading, justify="right")
        for heading in ("in the file", "acknowledged", "read", "ok"):
            by_cluster.add_column(heading, justify="right")
        for code, (expected, found) in sorted(self.carriers.items()):
            counts = f"{found.flights:,}", f"{expected.flights:,}"
            means = f"{found.mean:.4f}", f"{expected.mean:.4f}"
            by_carrier.add_row(f"{code} {names.get(code, '')}", *counts, *means, _mark(ok=expected == found))
        for cluster, numbers in sorted(self.clusters.items()):
            by_cluster.add_row(cluster, *(f"{n:,}" for n in numbers), _mark(ok=len(set(numbers)) == 1))
        return [by_carrier, by_cluster]


def judge(departures: pd.DataFrame, acknowledged: Counter[str], delays: Delays) -> Verdict:
    """Compare the results of the query with the file.

    Args:
        departures: The replayed flights, see `departures.load_departures`.
        acknowledged: For each cluster, the number of acknowledged flights.
        delays: The results of the query.
    """
    expected = {
        str(carrier): CarrierDelay(len(of), int(of["dep_delay"].count()), int(of["dep_delay"].sum()))
        for carrier, of in departures.groupby("carrier")
    }
    found = delays.by_carrier()
    in_file, read = Counter(departures["cluster"].tolist()), delays.by_cluster()
    distinct = delays.distinct()
    return Verdict(
        {code: (expected.get(code, CarrierDelay()), found.get(code, CarrierDelay())) for code in {*expected, *found}},
        {c: (in_file[c], acknowledged[c], read[c]) for c in {*in_file, *acknowledged, *read}},
        lost=len(departures) - distinct,
        twice=read.total() - distinct,
    )


def _mark(*, ok: bool) -> str:
    return "[green]yes[/]" if ok else "[bold red]NO[/]"
