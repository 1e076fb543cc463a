"""How each kind of history is frozen and read.

To freeze a history is to list its files with their rows, once, on the driver. What is needed later is in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from dynamic_kafka.errors import ArchiveError, ConfigurationError, listed
from dynamic_kafka.history.archive.as_history import ArchivedHistory, archived_history
from dynamic_kafka.history.columns import converted
from dynamic_kafka.history.coverage import Coverage, Node, Offsets, Part, arranged, covered
from dynamic_kafka.history.csv_text import CSV_FORMATS
from dynamic_kafka.history.folder import Folder, ListedFile, in_parallel, open_folder
from dynamic_kafka.history.model import (
    FrozenHistory,
    HistoryFile,
    HistoryGap,
    HistoryPiece,
    Inspected,
    LargestOffsets,
    Place,
)
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.rows import COLUMNS

__all__ = ["FORMATS", "Frozen", "freeze", "reader_of", "rows_at", "with_gaps"]


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
        coverage: The offsets of each place, if its files have them.
        archived: Of an archive, what its log says.
        inspected: What the files say, in the order of the history.
        by_offset: Whether the files are in the order of their offsets, as far as there is one.
    """

    history: FrozenHistory
    largest: LargestOffsets
    clusters: Mapping[str, Any]
    absent: list[str]
    coverage: Mapping[Place, Coverage] = {}
    archived: ArchivedHistory | None = None
    inspected: Sequence[Inspected] = ()
    by_offset: bool = True


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

    folder = open_folder(settings.path, settings.format)
    form = FORMATS[settings.format]
    with_offsets = settings.switch == "coordinates"
    archived = archived_history(settings.path, with_offsets=with_offsets) if settings.format == "parquet" else None
    found, evidence = form.files(folder, settings) if archived is None else (archived.files, archived.evidence)
    if not found:
        raise ConfigurationError(f"Option 'history.path': all files of '{settings.path}' are empty. Correct the path")
    look = partial(
        (tabular if form.is_tabular else parquet).inspect,
        folder,
        settings,
        cluster="cluster" if archived is None else "cluster_id",
        with_offsets=with_offsets,
    )
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
    if archived is not None:
        inspected = [one._replace(parts=archived.named(one.parts)) for one in inspected]
    times = _times(settings, inspected)
    inspected = [one._replace(earliest=time) for one, time in zip(inspected, times, strict=True)]
    by_offset = not settings.time_column
    order = arranged([_node(one) for one in inspected], by_offset=by_offset)
    inspected = [inspected[number] for number in order]
    coverage = _coverage(inspected)
    if archived is not None and with_offsets:
        _check_archive(settings.path, archived, inspected)
    largest = (
        archived.largest
        if archived is not None
        else {place: found.spans[-1].end - 1 for place, found in coverage.items()}
    )
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
    return Frozen(history, largest, clusters, absent, coverage, archived, inspected, by_offset)


def with_gaps(frozen: Frozen, gaps: Mapping[Place, Sequence[HistoryGap]]) -> Frozen:
    """Return the history with gaps among its files, which are read from Kafka."""
    found = [(place, gap) for place, some in gaps.items() for gap in some]
    if not found:
        return frozen
    files: list[HistoryFile | HistoryGap] = [*frozen.history.files, *(gap for _, gap in found)]
    nodes = [_node(one, number) for number, one in enumerate(frozen.inspected)]
    nodes += [Node((), {place: gap.start}, is_gap=True) for place, gap in found]
    order = arranged(nodes, by_offset=frozen.by_offset)
    ordered = [frozen.inspected[n] if n < len(frozen.inspected) else found[n - len(frozen.inspected)] for n in order]
    rows = frozen.history.rows + sum(gap.end - gap.start for _, gap in found)
    history = replace(frozen.history, files=tuple(files[number] for number in order), rows=rows)
    return frozen._replace(history=history, coverage=_coverage(ordered))


def rows_at(frozen: Frozen, places: Collection[Place]) -> dict[Place, dict[str, Any]]:
    """Return the rows with the largest offsets of places: those of key, value and timestamp that their files have.

    Raises:
        HistoryError: If a file was changed or deleted meanwhile, or cannot be read.
    """
    last: dict[Place, tuple[int, Inspected, Part]] = {}
    for one in frozen.inspected:
        for place, part in one.parts:
            if place in places and part.spans[-1].end > last.get(place, (0,))[0]:
                last[place] = part.spans[-1].end, one, part
    read = reader_of(frozen.history)

    def row_of(entry: tuple[int, Inspected, Part]) -> dict[str, Any]:
        _, one, part = entry
        names: tuple[str, ...] = ("key", "value", "timestamp")
        types = {n: COLUMNS[n] for n in names if n in one.columns and n not in one.file.values}
        piece = HistoryPiece(one.file, part.last_row, part.last_row + 1)
        (row,) = read(piece, types) if types else [None]
        return {} if row is None else {str(n): converted(row[n], type_)[0] for n, type_ in types.items()}

    return dict(zip(last, in_parallel(row_of, last.values()), strict=True))


def _node(one: Inspected, number: int | None = None) -> Node:
    """Return a file as a node: by its earliest time, or by its number in an order that it has already."""
    starts: dict[Any, int] = {}
    for place, part in one.parts:
        starts[place] = min(part.spans[0].start, starts.get(place, part.spans[0].start))
    key = (number,) if number is not None else () if one.earliest is None else (one.earliest,)
    return Node(key, starts)


def _coverage(ordered: Sequence[Inspected | tuple[Place, HistoryGap]]) -> dict[Place, Coverage]:
    parts: dict[Place, list[Part]] = {}
    for one in ordered:
        if isinstance(one, Inspected):
            for place, part in one.parts:
                parts.setdefault(place, []).append(part)
        else:
            place, gap = one
            parts.setdefault(place, []).append(Part((Offsets(gap.start, gap.end, gap.end - gap.start),)))
    return {place: covered(some) for place, some in parts.items()}


def _check_archive(location: str, archived: ArchivedHistory, inspected: Sequence[Inspected]) -> None:
    """Raise if an archive's files do not have as many records as its log says."""
    rows: dict[Place, int] = {}
    for one in inspected:
        for place, part in one.parts:
            rows[place] = rows.get(place, 0) + sum(span.rows for span in (*part.spans, *part.twice))
    logged = {place: count for place, spans in archived.spans.items() if (count := sum(s.rows for s in spans))}
    if rows != logged:
        place = next(place for place in {**rows, **logged} if rows.get(place) != logged.get(place))
        raise ArchiveError(
            f"The archive {location} has {rows.get(place, 0)} records of cluster '{place[0]}', topic '{place[1]}', "
            f"partition {place[2]}, but {logged.get(place, 0)} in its log. Look with: dynamic-kafka archive verify"
        )


def _times(settings: HistorySettings, inspected: Sequence[Inspected]) -> list[Any]:
    """Return what orders files. What folders say are texts: numbers among them are taken as numbers."""
    times = [one.earliest for one in inspected]
    known = [time for time in times if time is not None]
    if all(isinstance(time, str) and time.isdecimal() for time in known):
        return [None if time is None else int(time) for time in times]
    if len(kinds := sorted({type(time).__name__ for time in known})) > 1:
        raise ConfigurationError(
            f"Option 'history.time-column': the column '{settings.time_column or 'timestamp'}' has values that cannot be "
            f"compared, of the types {listed(kinds)}. Give files of one kind"
        )
    return times


def reader_of(
    history: FrozenHistory, where: Callable[[Any], Any] | None = None
) -> Callable[[HistoryPiece, Mapping[str, Any]], Iterator[Any]]:
    """Return what reads columns of the pieces of a history. It takes the types that they should have.

    Args:
        history: The history.
        where: As in `HistoryTask`. Parts of Parquet files without a wanted row are not read.
    """
    from dynamic_kafka.history import parquet, tabular

    folder = open_folder(history.location, history.format)
    if FORMATS[history.format].is_tabular:
        return partial(tabular.read, folder, history.format)
    return partial(parquet.read, folder, where)
