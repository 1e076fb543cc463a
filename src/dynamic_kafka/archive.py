"""Archives: a stream's records with their coordinates in Parquet files, one folder for each day, each record once.

A history made here goes on with Kafka exactly, because the archive knows which offsets of which topic it has read.

    from dynamic_kafka import archive

    archive.write(stream, "s3://bucket/orders", checkpoint="s3://bucket/checkpoints/orders").start()
    archive.compact("s3://bucket/orders")  # once a day: one file for each finished day
    archive.verify("s3://bucket/orders").problems  # () if each record is there once
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ArchiveError, CheckpointError, ConfigurationError, listed
from dynamic_kafka.files import open_files
from dynamic_kafka.history.archive import log
from dynamic_kafka.history.archive.as_delta import Published, is_published, publish, published_files
from dynamic_kafka.history.archive.compaction import Compacted
from dynamic_kafka.history.archive.data import NEEDED
from dynamic_kafka.history.archive.model import Archive, PartitionKey
from dynamic_kafka.history.archive.plan import batch_of, check_follows, check_reset, encode_plan, plan_batch
from dynamic_kafka.history.archive.verification import PartitionReport, Verified
from dynamic_kafka.history.model import Place
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.checkpoint import read_checkpoint
from dynamic_kafka.source.document.offsets import Document
from dynamic_kafka.spark.datasource import ARCHIVE_PLAN, NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "Compacted",
    "PartitionReport",
    "Published",
    "Verified",
    "compact",
    "files",
    "publish_delta",
    "verify",
    "write",
]

_ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")
_KEEP = dt.timedelta(days=7)


def write(stream: DataFrame, path: str, *, checkpoint: str) -> DataStreamWriter:
    """Archive a stream: each record once, also after crashes, and if another query or checkpoint reads it again.

    Args:
        stream: What the source reads, with the columns cluster, topic, partition, offset and timestamp. Rows may be
            filtered, and columns added or left out; joins, explode and repartition come after the archive.
        path: The archive's folder: a local path, or an address such as `s3://bucket/path`. Driver and executors write to it.
        checkpoint: The query's checkpoint. The archive reads there which offsets a batch has.

    Returns:
        A writer. Set its trigger if you like, then call `start()`.

    Raises:
        ConfigurationError: If `stream` is not a stream, or a column is missing.
    """
    if not stream.isStreaming:
        raise ConfigurationError("What is archived is not a stream; read it with spark.readStream")
    if absent := [name for name in NEEDED if name not in stream.columns]:
        raise ConfigurationError(
            f"The stream has no column {listed(absent)}, which an archive needs; it has {listed(stream.columns, 20)}"
        )
    if taken := {"cluster_id", "topic_id", "day"} & set(stream.columns):
        raise ConfigurationError(f"The column '{min(taken)}' is the archive's own; give yours another name")
    # Executors may run in other folders.
    writing = _Writing(path if _ADDRESS.match(path) else str(Path(path).absolute()), checkpoint)
    return stream.writeStream.foreachBatch(writing.write).option("checkpointLocation", checkpoint)


def compact(path: str, *, before: dt.date | None = None, keep: dt.timedelta = _KEEP) -> Compacted:
    """Turn the files of each finished day into one, sorted by cluster, topic, partition and offset.

    If the archive is published as a Delta table, it is published before and after, so that the table names files that stay.
    It may run while the archive is written and read, and be stopped and repeated at any time.

    Args:
        path: The archive's folder.
        before: The first day that is left alone; by default today (UTC).
        keep: How long replaced files stay, for readers that have begun with them.

    Raises:
        ArchiveError: If it is no archive, or records of a day would be lost or doubled. Such a day is left as it is, and all
            others are compacted before the error.
    """
    from dynamic_kafka.history.archive.compaction import compact as run

    today = dt.datetime.now(dt.UTC).date()
    published = is_published(path)
    if published:  # otherwise files that were replaced long ago, and are deleted now, may still be in the table
        publish(path)
    # A file that is not in the table yet would be new rows in a compacted one.
    only = published_files(path) if published else None
    done = run(path, before=before or today, keep_ms=int(keep.total_seconds() * 1000), only=only)
    if published:
        publish(path)
    return done


def publish_delta(path: str) -> Published:
    """Make the archive's folder a Delta table, too, or the table what the archive is now. Nothing is copied.

    Each version of the table is a state of the archive, with each record once. Needs the extra `deltalake`.

    Args:
        path: The archive's folder.

    Raises:
        ArchiveError: If it is no archive or has no records, if somebody else has written the table, or another run of this
            was faster.
    """
    return publish(path)


def verify(path: str) -> Verified:
    """Read all files, and say what is wrong, and which offsets the archive does not have.

    Args:
        path: The archive's folder.

    Raises:
        ArchiveError: If it is no archive, or its log is damaged.
    """
    from dynamic_kafka.history.archive.verification import verify as run

    return run(path)


def files(path: str) -> list[str]:
    """Return the files with the records of an archive as it is now, for any reader of Parquet.

    In the bare folder there may be others as well: of a batch that runs or was stopped, and those that compaction has
    replaced.

    Args:
        path: The archive's folder.

    Raises:
        ArchiveError: If it is no archive, or its log is damaged.
    """
    archive = log.read_archive(path)
    if archive is None:
        raise ArchiveError(f"{path} is no archive: it has no folder {log.FOLDER}. Correct the path")
    return [f"{path.rstrip('/')}/{name}" for name in sorted(archive.files)]


class _Writing:
    """The driver's side of an archive that is written. Spark calls `write` for one batch after the other."""

    def __init__(self, path: str, checkpoint: str) -> None:
        self._path, self._checkpoint = path, checkpoint
        self._archive: Archive | None = None  # read again after each failure, and if another query has written

    def __getstate__(self) -> dict[str, Any]:  # Spark Connect sends it to another process
        return {**self.__dict__, "_archive": None}

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch, or what of it is not in the archive yet."""
        query, document, before = _batch_of(self._checkpoint, number)
        if document.history is not None and document.history.range[0] < document.history.range[1]:
            raise ArchiveError(
                "The query reads a history before Kafka, and an archive takes records from Kafka only. Leave history.path "
                "out"
            )
        where = open_files(self._path, ArchiveError)
        known, self._archive = self._archive, None
        archive = log.refreshed(where, known)
        first = (archive or Archive()).last.get(query, -1) + 1
        if first < number:
            check_follows(archive, self._path, _earlier(self._checkpoint, first, number), first=first, batch=number)
        archive = archive or log.begin(where)
        ranges = _ranges(document)
        for place, (key, start, _) in ranges.items():
            name, topic, partition = place
            if (tp := KafkaTopicPartition(topic, partition)) in document.clusters[
                name
            ].resets and name in before.clusters:
                _, ended = before.clusters[name].ranges.get(tp, (start, start))
                check_reset(archive, place, key, ended=ended, start=start, query=query, batch=number)
        names = {cluster.kafka_id: name for name, cluster in document.clusters.items() if cluster.kafka_id}
        plan = plan_batch(archive, ranges, names, location=self._path, query=query, batch=number)
        if plan.parts:
            batch.write.format(NAME).option(ARCHIVE_PLAN, encode_plan(plan)).mode("append").save()
        else:  # each batch leaves a record: by it, the next one knows that the log is the newest one
            log.create_record(where, query, plan.record, batch_of(plan, ()))
        archive.add(query, log.read_record(where, query, plan.record))
        self._archive = archive


def _batch_of(checkpoint: str, number: int) -> tuple[str, Document, Document]:
    """Return the query's id and the offset document of a batch, and that of the batch before if it is needed."""
    try:
        found = read_checkpoint(checkpoint)
        batch = found.batch(number)
        document = batch.document(batch.source(None))
        before = Document()
        if number and any(cluster.resets for cluster in document.clusters.values()):
            before = found.batch(number - 1).document(batch.source(None))
    except CheckpointError as error:
        raise ArchiveError(
            f"The archive has to read the offsets of batch {number} in the query's checkpoint. {error}. Give `checkpoint` "
            "as a whole address, such as hdfs://host/path, if Spark's default file system is not the local one"
        ) from error
    return found.query_id, document, before


def _earlier(checkpoint: str, first: int, end: int) -> list[dict[Place, tuple[PartitionKey, int, int]]]:
    """Return what batches from `first` to before `end` have read, of those that the checkpoint still has."""
    found = read_checkpoint(checkpoint)
    result = []
    for number in range(max(first, min(found.offsets)), end):
        try:
            batch = found.batch(number)
            result.append(_ranges(batch.document(batch.source(None))))
        except (CheckpointError, ConfigurationError, ArchiveError):
            continue
    return result


def _ranges(document: Document) -> dict[Place, tuple[PartitionKey, int, int]]:
    """Return what a batch reads of each partition."""
    found: dict[Place, tuple[PartitionKey, int, int]] = {}
    for name, cluster in document.clusters.items():
        if cluster.ranges and not cluster.kafka_id:
            raise ArchiveError(
                f"The cluster.id of cluster '{name}' is not known, so its records cannot be archived: a history has to know "
                "which cluster it is of. Is it older than Kafka 0.10.1?"
            )
        for (topic, partition), (start, end) in cluster.ranges.items():
            key = PartitionKey(cluster.kafka_id, topic, cluster.topics.get(topic, ""), partition)
            found[name, topic, partition] = key, start, end
    return found
