"""How each kind of history is frozen and read.

To freeze a history is to list its files with their rows, once, on the driver. What is needed later is in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dynamic_kafka.errors import ConfigurationError, listed
from dynamic_kafka.history.archive.as_history import archived_history
from dynamic_kafka.history.folder import Folder, ListedFile, in_parallel, open_folder
from dynamic_kafka.history.model import FrozenHistory, HistoryPiece, LargestOffsets
from dynamic_kafka.history.settings import HistorySettings

__all__ = ["FORMATS", "Frozen", "freeze", "reader_of"]


class HistoryFormat(NamedTuple):
    """A kind of history.

    Attributes:
        files: Lists its files; returns them with the evidence for people, such as "version 17 of the table".
    """

    files: Callable[[Folder, HistorySettings], tuple[list[ListedFile], str]]


class Frozen(NamedTuple):
    """A frozen history, and what the switch to Kafka needs of it.

    Attributes:
        history: The history.
        largest: The largest offset of each cluster, topic and partition, for the switch `coordinates`.
        clusters: What the folder says of the clusters it was made from, by name.
        absent: The columns that the source has, and the history does not.
    """

    history: FrozenHistory
    largest: LargestOffsets
    clusters: Mapping[str, Any]
    absent: list[str]


def _files_of_folder(folder: Folder, _: HistorySettings) -> tuple[list[ListedFile], str]:
    found = folder.files()
    return found, f"{len(found):,} files" if len(found) > 1 else "1 file"


def _files_of_delta(folder: Folder, settings: HistorySettings) -> tuple[list[ListedFile], str]:
    from dynamic_kafka.history.delta import files_of_delta

    return files_of_delta(folder, settings)


def _files_of_iceberg(folder: Folder, settings: HistorySettings) -> tuple[list[ListedFile], str]:
    from dynamic_kafka.history.iceberg import files_of_iceberg

    return files_of_iceberg(folder, settings)


FORMATS: Mapping[str, HistoryFormat] = {
    "parquet": HistoryFormat(_files_of_folder),
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
    from dynamic_kafka.history.columns import RECORD
    from dynamic_kafka.history.parquet import inspect

    folder = open_folder(settings.path)
    with_offsets = settings.switch == "coordinates"
    archived = archived_history(settings.path, with_offsets=with_offsets) if settings.format == "parquet" else None
    if archived is not None:
        found, evidence, with_offsets = archived.files, archived.evidence, False
    else:
        found, evidence = FORMATS[settings.format].files(folder, settings)
    time_column = settings.time_column or (settings.limit.column if settings.limit is not None else "")
    look = partial(inspect, folder, with_offsets=with_offsets, time_column=time_column)
    inspected = list(in_parallel(look, found))
    of_first = inspected[0].columns
    for one in inspected[1:]:
        if other := (one.columns ^ of_first) & {*RECORD, time_column}:
            with_it, without = (inspected[0], one) if other & of_first else (one, inspected[0])
            raise ConfigurationError(
                f"The history's files differ: '{folder.shown(with_it.file.path)}' has the column '{min(other)}', and "
                f"'{folder.shown(without.file.path)}' does not. Give a path with files of one kind"
            )
    if settings.time_column:
        if unknown := [one.file.path for one in inspected if one.earliest is None and sum(one.file.rows)]:
            raise ConfigurationError(
                f"The history's files {listed(unknown, 3)} have no statistics of the column '{settings.time_column}', so "
                "they cannot be read in its order. Leave history.time-column out to read files in the order of their paths"
            )
        inspected.sort(key=lambda one: (one.earliest is not None, one.earliest, one.file.path))
    largest: dict[tuple[str, str, int], int] = {} if archived is None else dict(archived.largest)
    for one in inspected:
        for place, offset in one.largest.items():
            largest[place] = max(offset, largest.get(place, -1))
    files = tuple(one.file for one in inspected)
    rows = sum(sum(file.rows) for file in files)
    history = FrozenHistory(folder.location, settings.format, evidence, rows, files, limit=settings.limit)
    absent = [name for name in settings.columns if name in RECORD and name not in of_first]
    if archived is not None:
        clusters = archived.clusters
    else:  # a table of Iceberg is no folder
        clusters = {} if settings.format == "iceberg" else dict(folder.archive().get("clusters", {}))
    return Frozen(history, largest, clusters, absent)


def reader_of(history: FrozenHistory) -> Callable[[HistoryPiece, Sequence[str]], Iterator[Any]]:
    """Return what reads the pieces of a history."""
    from dynamic_kafka.history.parquet import read

    return partial(read, open_folder(history.location))
