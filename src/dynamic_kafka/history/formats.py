"""How each kind of history is frozen and read.

To freeze a history is to list its files with their rows, once, on the driver. What is needed later is in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dynamic_kafka.errors import ConfigurationError, listed
from dynamic_kafka.history.archive.as_history import archived_history
from dynamic_kafka.history.csv_text import CSV_FORMATS
from dynamic_kafka.history.folder import Folder, ListedFile, in_parallel, open_folder
from dynamic_kafka.history.model import FrozenHistory, HistoryPiece, Inspected, LargestOffsets
from dynamic_kafka.history.settings import HistorySettings

__all__ = ["FORMATS", "Frozen", "freeze", "reader_of"]


class HistoryFormat(NamedTuple):
    """A kind of history.

    Attributes:
        files: Lists its files; returns them with the evidence for people, such as "version 17 of the table".
        is_tabular: True if its files are no Parquet, but read from their beginning.
    """

    files: Callable[[Folder, HistorySettings], tuple[list[ListedFile], str]]
    is_tabular: bool = False


class Frozen(NamedTuple):
    """A frozen history, and what the switch to Kafka needs of it.

    Attributes:
        history: The history.
        largest: The largest offset of each cluster, topic and partition, for the switch `coordinates`.
        clusters: What the folder says of the clusters it was made from, by name.
        absent: The columns that the source has, and some or all files of the history do not.
    """

    history: FrozenHistory
    largest: LargestOffsets
    clusters: Mapping[str, Any]
    absent: list[str]


def _files_of_folder(folder: Folder, _: HistorySettings) -> tuple[list[ListedFile], str]:
    found = [file for file in folder.files() if file.size]  # Spark may leave empty files of text
    return found, f"{len(found):,} files" if len(found) > 1 else "1 file"


def _files_of_delta(folder: Folder, settings: HistorySettings) -> tuple[list[ListedFile], str]:
    from dynamic_kafka.history.delta import files_of_delta

    return files_of_delta(folder, settings)


def _files_of_iceberg(folder: Folder, settings: HistorySettings) -> tuple[list[ListedFile], str]:
    from dynamic_kafka.history.iceberg import files_of_iceberg

    return files_of_iceberg(folder, settings)


FORMATS: Mapping[str, HistoryFormat] = {
    "parquet": HistoryFormat(_files_of_folder),
    **{name: HistoryFormat(_files_of_folder, is_tabular=True) for name in ("orc", *CSV_FORMATS, "json")},
    "delta": HistoryFormat(_files_of_delta),
    "iceberg": HistoryFormat(_files_of_iceberg),
}
"""All kinds of histories, by name."""


def freeze(settings: HistorySettings) -> Frozen:
    """Return what the history is now.

    Raises:
        ConfigurationError: If there is nothing to read, or its columns do not fit.
        HistoryError: If a file cannot be read.
    """
    from dynamic_kafka.history import parquet, tabular
    from dynamic_kafka.rows import COLUMNS

    folder = open_folder(settings.path, settings.format)
    form = FORMATS[settings.format]
    with_offsets = settings.switch == "coordinates"
    archived = archived_history(settings.path, with_offsets=with_offsets) if settings.format == "parquet" else None
    if archived is not None:
        found, evidence, with_offsets = archived.files, archived.evidence, False
    else:
        found, evidence = form.files(folder, settings)
    if not found:
        raise ConfigurationError(f"Option 'history.path': all files of '{settings.path}' are empty. Correct the path")
    look = partial((tabular if form.is_tabular else parquet).inspect, folder, settings, with_offsets=with_offsets)
    inspected = list(in_parallel(look, found))
    first = inspected[0]
    for one in inspected[1:]:
        # Other columns may have been added later; but rows with and without a cluster would be of two clusters.
        kinds = [("the column 'cluster'", "cluster" in i.columns) for i in (first, one)]
        if first.decoded != one.decoded:
            kinds = [("rows of the table", i.decoded) for i in (first, one)]
        if kinds[0] != kinds[1]:
            with_it, without = (first, one) if kinds[0][1] else (one, first)
            raise ConfigurationError(
                f"The history's files differ: '{folder.shown(with_it.file.path)}' has {kinds[0][0]}, and "
                f"'{folder.shown(without.file.path)}' does not. Give a path with files of one kind"
            )
    if settings.time_column:
        timeless = [one for one in inspected if one.earliest is None]
        timed = [one for one in inspected if one.earliest is not None]
        inspected = timeless + sorted(timed, key=_by_time(settings.time_column, timed))
    largest: dict[tuple[str, str, int], int] = {} if archived is None else dict(archived.largest)
    for one in inspected:
        for place, offset in one.largest.items():
            largest[place] = max(offset, largest.get(place, -1))
    files = tuple(one.file for one in inspected)
    rows = sum(sum(file.rows) for file in files)
    history = FrozenHistory(
        folder.location, settings.format, evidence, rows, files, limit=settings.limit, decoded=first.decoded
    )
    wanted = settings.optional if first.decoded else [name for name in settings.columns if name in COLUMNS]
    absent = sorted(name for name in wanted if any(name not in one.columns for one in inspected))
    if archived is not None:
        clusters = archived.clusters
    else:  # a table of Iceberg is no folder
        clusters = {} if settings.format == "iceberg" else dict(folder.archive().get("clusters", {}))
    return Frozen(history, largest, clusters, absent)


def _by_time(column: str, timed: Sequence[Inspected]) -> Callable[[Inspected], tuple[Any, str]]:
    """Return the key by which files are ordered. What folders say are texts: numbers among them are taken as numbers."""
    times = [one.earliest for one in timed]
    if all(isinstance(time, str) and time.isdecimal() for time in times):
        return lambda one: (int(one.earliest), one.file.path)
    if kinds := {type(time) for time in times} - {type(times[0])} if times else set():
        raise ConfigurationError(
            f"Option 'history.time-column': the column '{column}' has values that cannot be compared, of the types "
            f"{listed(sorted({type(times[0]).__name__, *(kind.__name__ for kind in kinds)}))}. Give files of one kind"
        )
    return lambda one: (one.earliest, one.file.path)


def reader_of(history: FrozenHistory) -> Callable[[HistoryPiece, Mapping[str, Any]], Iterator[Any]]:
    """Return what reads columns of the pieces of a history. It takes the types that they should have."""
    from dynamic_kafka.history import parquet, tabular

    folder = open_folder(history.location, history.format)
    if FORMATS[history.format].is_tabular:
        return partial(tabular.read, folder, history.format)
    return partial(parquet.read, folder)
