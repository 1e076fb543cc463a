"""The stage of a query that reads a history before Kafka: its part of the document, and its tasks. Pure.

Rules:

1. The history is frozen with the first document. So are Kafka's positions, which are in the document from then on like those
   of any other query: nothing is between the two.
2. A batch reads of the history or of what follows in Kafka, never both. The stage is a range of the history's rows, and of
   the offsets in its gaps. It moves as the range of a partition does, and has its limits.
3. Tasks follow from the document alone: files in order, parts of a file (row groups) whole where that is possible.
4. Once all rows are read, the list of files is dropped. What was frozen and promised stays, for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.history.model import (
    FrozenHistory,
    HistoryFile,
    HistoryGap,
    HistoryPiece,
    HistoryTask,
    TimeLimit,
    pieces,
)
from dynamic_kafka.observe.reports import HistoryLeft
from dynamic_kafka.source.document.columns import pack_bytes, pack_tightly, unpack_bytes, unpack_ints
from dynamic_kafka.source.document.document import HistoryStage, Packing
from dynamic_kafka.source.document.promise import decode_promise, encode_promise

__all__ = ["check_stage", "decode_stage", "encode_stage", "left_of", "next_stage", "plan_stage", "progress"]

_FILE_COST = 2_000  # in rows: a file is opened, and its footer read
_PACK_FROM = 16


def next_stage(stage: HistoryStage, limit: int | None) -> HistoryStage:
    """Return the stage after its next batch. If all rows are read already, it has an empty range and no files."""
    position = stage.range[1]
    if position >= stage.history.rows:
        return replace(stage, history=replace(stage.history, files=()), range=(position, position))
    end = stage.history.rows if limit is None else min(stage.history.rows, position + limit)
    return replace(stage, range=(position, end))


def plan_stage(stage: HistoryStage, packing: Packing) -> list[HistoryTask]:
    """Return the tasks that read files for the stage's range; an empty list if there is none to read."""
    parts = [part for part in pieces(stage.history, *stage.range) if isinstance(part.file, HistoryFile)]
    if not parts:
        return []
    rows = sum(part.last - part.first for part in parts)
    work = rows + _FILE_COST * len({part.file.path for part in parts})
    count = max(round(work / packing.records_per_task), 1)
    if packing.cuts:
        count = max(-(-work // packing.records_per_task), packing.min_tasks)
        count = min(count, packing.max_tasks or count, rows)
        parts = [half for part in parts for half in _cut(part, max(rows // count, 1))]
    count = min(count, packing.max_tasks or count)
    share = work / count
    tasks: list[list[HistoryPiece]] = [[]]
    done, file = 0.0, ""
    for part in parts:
        cost = part.last - part.first + (_FILE_COST if part.file.path != file else 0)
        # A part goes to the next task if more than half of it is beyond this task's share.
        if tasks[-1] and len(tasks) < count and done + cost / 2 > share * len(tasks):
            tasks.append([])
        last = tasks[-1][-1] if tasks[-1] else None
        if last is not None and last.file is part.file and last.last == part.first:
            tasks[-1][-1] = last._replace(last=part.last)
        else:
            tasks[-1].append(part)
        done, file = done + cost, part.file.path
    history = replace(stage.history, files=())
    return [HistoryTask(history, task) for task in tasks]


def _cut(part: HistoryPiece, rows: int) -> Iterator[HistoryPiece]:
    for first in range(part.first, part.last, rows):
        yield part._replace(first=first, last=min(first + rows, part.last))


def progress(stage: HistoryStage) -> dict[str, Any]:
    """Return the state of the stage for people."""
    history, read = stage.history, stage.range[1]
    return {
        "stage": "history" if history.files else "kafka",
        "rows": history.rows,
        "read": read,
        "location": history.location,
        "evidence": history.evidence,
        **stage.promise.as_progress(),
    }


def left_of(stage: HistoryStage, read: int) -> HistoryLeft:
    """Return what is left of the history, for the metrics, once its rows before `read` are read."""
    files_left = bytes_left = position = 0
    for file in stage.history.files:
        rows = sum(file.rows)
        left = min(position + rows - read, rows)
        if left > 0:
            files_left += 1
            bytes_left += file.size * left // rows
        position += rows
    return HistoryLeft(
        location=stage.history.location,
        rows=stage.history.rows,
        rows_left=stage.history.rows - read,
        files_left=files_left,
        bytes_left=bytes_left,
    )


def check_stage(before: HistoryStage | None, stage: HistoryStage | None) -> None:
    """Check that a batch's rows begin where those of the batch before ended.

    Raises:
        CheckpointError: If it would skip or repeat rows, because offset files were edited or mixed up.
    """
    ended = None if before is None else before.range[1]
    began = None if stage is None else stage.range[0]
    if ended != began:
        raise CheckpointError(
            f"The checkpoint ends one batch at row {ended} of the history and starts the next one at row {began}; offset "
            "files of different queries were mixed or edited: restore them, or start with a new checkpoint"
        )


def encode_stage(stage: HistoryStage) -> dict[str, Any]:
    """Return the stage as a JSON value with a fixed key order."""
    history = stage.history
    result: dict[str, Any] = {
        "location": history.location,
        "format": history.format,
        "evidence": history.evidence,
        "promise": encode_promise(stage.promise),
        "rows": history.rows,
        "start": stage.range[0],
        "count": stage.range[1] - stage.range[0],
    }
    if history.cluster:
        result["cluster"] = history.cluster
    if history.limit is not None:
        result["before"] = list(history.limit)
    if history.decoded:
        result["decoded"] = True
    if history.files:
        files = [file for file in history.files if isinstance(file, HistoryFile)]
        result["files"] = {
            "paths": _pack([file.path for file in files]),
            "sizes": pack_tightly([file.size for file in files]),
            "modified": pack_tightly([file.modified_ns for file in files]),
            "checksums": pack_tightly([file.checksum for file in files]),
            "parts": pack_tightly([len(file.rows) for file in files]),
            "rows": pack_tightly([rows for file in files for rows in file.rows]),
        }
        if any(file.values for file in files):
            result["files"]["values"] = _pack([dict(file.values) for file in files])
        gaps = [[number, *file] for number, file in enumerate(history.files) if isinstance(file, HistoryGap)]
        if gaps:
            result["files"]["gaps"] = _pack(gaps)
    return result


def decode_stage(value: Mapping[str, Any]) -> HistoryStage:
    """Return the stage that was encoded; raise one of the errors that `offsets.decode` expects if it is damaged."""
    limit = None
    if "before" in value:
        column, before_ms = value["before"]
        limit = TimeLimit(str(column), int(before_ms))
    history = FrozenHistory(
        value["location"],
        value["format"],
        value["evidence"],
        int(value["rows"]),
        tuple(_files(value["files"])) if "files" in value else (),
        value.get("cluster", ""),
        limit,
        bool(value.get("decoded", False)),
    )
    start, count = int(value["start"]), int(value["count"])
    stage = HistoryStage(history, decode_promise(value["promise"]), (start, start + count))
    if not 0 <= start <= start + count <= history.rows:
        raise ValueError(f"rows [{start}, {start + count}) of {history.rows}")
    if start < history.rows and sum(map(sum, (file.rows for file in history.files))) != history.rows:
        raise ValueError("the files of the history have other numbers of rows")
    return stage


def _files(value: Mapping[str, Any]) -> list[HistoryFile | HistoryGap]:
    paths = _unpack(value["paths"])
    names = ("sizes", "modified", "checksums", "parts", "rows")
    sizes, modified, checksums, counts, rows = (unpack_ints(value[name], tightly=True) for name in names)
    values = _unpack(value["values"]) if "values" in value else [{}] * len(paths)
    files: list[HistoryFile | HistoryGap] = []
    at = 0
    for path, size, modified_ns, checksum, count, of_folders in zip(
        paths, sizes, modified, checksums, counts, values, strict=True
    ):
        files.append(HistoryFile(path, size, modified_ns, checksum, tuple(rows[at : at + count]), of_folders))
        at += count
    if at != len(rows):
        raise ValueError(f"{len(rows)} parts instead of {at}")
    for number, *gap in _unpack(value["gaps"]) if "gaps" in value else ():
        files.insert(number, HistoryGap(*gap))
    return files


def _pack(values: list[Any]) -> list[Any] | str:
    return values if len(values) < _PACK_FROM else pack_bytes(json.dumps(values).encode())


def _unpack(packed: list[Any] | str) -> list[Any]:
    return packed if isinstance(packed, list) else list(json.loads(unpack_bytes(packed)))
