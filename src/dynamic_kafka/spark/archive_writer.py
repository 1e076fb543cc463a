"""Writes a batch into an archive: tasks write files, and the commit on the driver adds them to the archive's log.

It is a writer of the data source and no function over the rows, because such functions need pandas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from dynamic_kafka.errors import ArchiveError
from dynamic_kafka.history.archive.plan import Written, batch_of, decode_plan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArchiveMessage", "ArchiveWriter"]


@dataclass
class ArchiveMessage(WriterCommitMessage):
    """The message of a finished task to the driver."""

    written: Written


class ArchiveWriter(DataSourceArrowWriter):
    """The writer.

    Args:
        plan: The text of the plan, as `encode_plan` returns it.
    """

    def __init__(self, plan: str) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ArchiveMessage:
        """Write the rows of a task. Spark calls it on an executor."""
        from dynamic_kafka.history.archive.data import write_parts

        return ArchiveMessage(write_parts(decode_plan(self._plan), iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Add the batch to the log. Spark calls it on the driver's machine when all tasks are done.

        Raises:
            ArchiveError: If a file of a task is missing, another driver was faster, or the log cannot be written.
        """
        from dynamic_kafka.files import open_files
        from dynamic_kafka.history.archive.log import create_record
        from dynamic_kafka.history.folder import in_parallel

        plan = decode_plan(self._plan)
        batch = batch_of(plan, (message.written for message in messages if isinstance(message, ArchiveMessage)))
        files = open_files(plan.location, ArchiveError)
        for path, size in zip(batch.files, in_parallel(files.size, list(batch.files)), strict=True):
            if size != batch.files[path].size_bytes:
                raise ArchiveError(
                    f"{files.shown(path)} was just written with {batch.files[path].size_bytes} bytes, and now "
                    + ("it is missing" if size is None else f"it has {size}")
                    + f". Batch {plan.batch} was not added to the archive. Find out what changes files there, and start the "
                    "query again: it repeats the batch"
                )
        if not create_record(files, plan.query, plan.record, batch):
            raise ArchiveError(
                f"Another driver of this query has written batch {plan.batch} to {plan.location}. Stop one of the two; this "
                "batch was not written twice"
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files of a batch that failed to a compaction: whether its record is there is not known for certain."""
        del messages
