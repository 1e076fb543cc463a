"""A checkpoint of Spark: the log of offsets, the log of commits, and the offset documents of our sources in them.

Spark writes `offsets/N` before it runs batch N, and `commits/N` after it. So the last batch is unfinished if it has no
file in `commits`: the next start runs it again, from the end of batch N - 1 to the end in `offsets/N`. Otherwise the next
start goes on at the end of batch N.

A file in `offsets` has the version of its format (`v1`, or `v2` for sources with names), a line of metadata, and a line for
each source. A source without an offset has `-`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dynamic_kafka.errors import CheckpointError, ConfigurationError, listed
from dynamic_kafka.files import Files, open_files
from dynamic_kafka.source.document.offsets import Document, decode, encode, is_marker, is_spark_kafka_offset

__all__ = ["Batch", "Checkpoint", "read_checkpoint"]

_NONE = "-"


@dataclass(frozen=True)
class Batch:
    """A file in `offsets`.

    Args:
        number: The number of the batch.
        place: The file as the user would write it, for errors.
        version: `v1` or `v2`.
        metadata: The line of metadata: watermark, time and settings.
        sources: The text of each source's offset by its name; in `v1` the names are `0`, `1` and so on.
    """

    number: int
    place: str
    version: str
    metadata: str
    sources: Mapping[str, str]

    @property
    def text(self) -> str:
        """Return the file's text."""
        lines = [f"{name}:{offset}" for name, offset in self.sources.items()]
        return "\n".join([self.version, self.metadata, *(lines if self.version == "v2" else self.sources.values())])

    def source(self, name: str | None) -> str:
        """Return the name of the source to use.

        Args:
            name: The name that the user gave; None for the only one of this package.

        Raises:
            ConfigurationError: If there is no such source, or there are several.
            CheckpointError: If no source is one of this package.
        """
        if name is not None:
            if name not in self.sources:
                raise ConfigurationError(f"{self.place} has no source {name}; its sources are {listed(self.sources)}")
            return name
        ours = [source for source, text in self.sources.items() if _is_document(text)]
        if len(ours) == 1:
            return ours[0]
        if len(ours) > 1:
            raise ConfigurationError(
                f"{self.place} has several sources of dynamic-kafka: add --source with one of {', '.join(ours)}"
            )
        if len(self.sources) == 1:
            return next(iter(self.sources))  # its error says what it is
        raise CheckpointError(f"{self.place} has no source of dynamic-kafka among its {len(self.sources)} sources")

    def document(self, source: str) -> Document:
        """Return the offset document of a source.

        Raises:
            CheckpointError: If it is not one, or is damaged. The message names the file.
        """
        text = self.sources.get(source, _NONE)
        if text == _NONE:
            raise CheckpointError(
                f"{self.place} has no offset of source {source}: this source has not read anything yet"
            )
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(
                f"{self.place} is damaged: the offset of source {source} is not JSON ({error})"
            ) from None
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.place}: the offset of source {source} is not one of dynamic-kafka")
        if is_marker(value):
            raise CheckpointError(f"{self.place}: source {source} has not read anything yet")
        if is_spark_kafka_offset(value):
            raise CheckpointError(
                f"{self.place}: source {source} is Spark's own Kafka source. This command reads offsets of dynamic-kafka; a "
                "query with import-kafka-checkpoint=true takes the others over"
            )
        try:
            return decode(value)
        except CheckpointError as error:
            raise CheckpointError(f"{self.place}: {error}") from None

    def with_document(self, source: str, document: Document) -> Batch:
        """Return the batch with another document of a source."""
        text = json.dumps(encode(document))  # as Spark's Python process writes it: Spark compares texts
        return replace(self, sources={**self.sources, source: text})

    def following(self, place: str, watermark_ms: int, now_ms: int) -> Batch:
        """Return an empty batch after this one, as Spark would begin it.

        Args:
            place: The file of the new batch.
            watermark_ms: The watermark after this batch, from its file in `commits`.
            now_ms: The time.
        """
        fields = json_object(self.metadata) or {}
        if "batchWatermarkMs" in fields:
            fields["batchWatermarkMs"] = max(watermark_ms, fields["batchWatermarkMs"])
        if "batchTimestampMs" in fields:
            fields["batchTimestampMs"] = max(now_ms, fields["batchTimestampMs"])
        metadata = json.dumps(fields, separators=(",", ":")) if fields else self.metadata
        return replace(self, number=self.number + 1, place=place, metadata=metadata)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint.

    Args:
        files: Its files.
        query_id: The id of the query; "" if the file `metadata` is missing.
        offsets: The numbers of the batches in `offsets`, and when each file was changed (milliseconds since 1970).
        commits: The same of `commits`.
    """

    files: Files
    query_id: str
    offsets: Mapping[int, int]
    commits: Mapping[int, int]

    @property
    def last(self) -> int:
        """Return the number of the last batch."""
        return max(self.offsets)

    @property
    def committed(self) -> int | None:
        """Return the number of the last finished batch; None if none is finished."""
        return max(self.commits, default=None)

    @property
    def is_unfinished(self) -> bool:
        """Return whether the last batch was not finished, so that the next start runs it again."""
        return self.last != self.committed

    def last_batch(self) -> Batch:
        """Return the last batch, as `batch` does."""
        return self.batch(self.last)

    def batch(self, number: int) -> Batch:
        """Return a batch.

        Raises:
            CheckpointError: If its file is missing or damaged.
        """
        path = f"offsets/{number}"
        place = self.files.shown(path)
        if number not in self.offsets:
            kept = f"it has batches {min(self.offsets)} to {self.last}"
            raise CheckpointError(f"{place} does not exist; {kept}")
        version, _, rest = self.files.read(path).partition("\n")
        metadata, _, sources = rest.partition("\n")
        if version not in ("v1", "v2") or not sources:
            raise CheckpointError(
                f"{place} is damaged: it does not have the version, the metadata and the offsets that Spark writes"
            )
        lines = sources.removesuffix("\n").split("\n")
        if version == "v1":
            return Batch(number, place, version, metadata, {str(i): line for i, line in enumerate(lines)})
        pairs = [line.partition(":") for line in lines]
        return Batch(number, place, version, metadata, {name: text for name, _, text in pairs})

    def watermark_ms(self, number: int) -> int:
        """Return the watermark after a finished batch; 0 if there is none.

        Raises:
            CheckpointError: If its file in `commits` is damaged, so that it is not known whether the batch is finished.
        """
        path = f"commits/{number}"
        version, _, rest = self.files.read(path).partition("\n")
        found = json_object(rest.partition("\n")[0] or "{}")  # as Spark, which reads a version alone, too
        if not re.fullmatch(r"v\d+", version) or found is None:
            raise CheckpointError(
                f"{self.files.shown(path)} is damaged: it does not have the version and the JSON that Spark writes. Restore "
                f"it from a backup, or delete it if batch {number} may run again"
            )
        watermark = found.get("nextBatchWatermarkMs", 0)
        return watermark if isinstance(watermark, int) else 0


def read_checkpoint(location: str) -> Checkpoint:
    """Return a checkpoint.

    Args:
        location: A local path, or an address such as `s3a://bucket/path`, as Spark takes it.

    Raises:
        CheckpointError: If it is not a checkpoint, has no batch yet, or does not hang together.
    """
    files = open_files(location)
    offsets, commits = (_numbers(files.changed_ms(folder)) for folder in ("offsets", "commits"))
    if not offsets:
        raise CheckpointError(
            f"{files.location} is not a checkpoint of a streaming query, or the query has not begun its first batch: there "
            "are no files in its folder 'offsets'"
        )
    found = Checkpoint(files, _query_id(files), offsets, commits)
    last, committed = found.last, found.committed
    if committed not in (last, last - 1) and (last, committed) != (0, None):
        raise CheckpointError(
            f"{files.location} is damaged: the last batch in 'offsets' is {last}, and in 'commits' it is "
            f"{'none' if committed is None else committed}. Restore the folder from a backup"
        )
    if committed is not None:
        found.watermark_ms(committed)  # reads the file: one that is cut is no commit
    return found


def _query_id(files: Files) -> str:
    if "metadata" not in files.names(""):
        return ""
    found = json_object(files.read("metadata"))
    if found is None or not isinstance(found.get("id"), str):
        raise CheckpointError(f"{files.shown('metadata')} is damaged: it does not have the id of the query")
    return str(found["id"])


def _numbers(files: Mapping[str, int]) -> dict[int, int]:
    return {int(name): changed_ms for name, changed_ms in files.items() if name.isdecimal()}


def json_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object; None if the text is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_document(text: str) -> bool:
    found = json_object(text)
    return found is not None and (isinstance(found.get("clusters"), dict) or is_marker(found))
