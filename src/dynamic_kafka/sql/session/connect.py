"""What is different in a session of Spark Connect.

A function of `foreachBatch` is pickled there and runs in a process of the server. So it cannot hand rows to this process,
and it does not see the properties of the query's thread.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.errors import CheckpointError, DynamicKafkaError
from dynamic_kafka.files import open_files
from dynamic_kafka.sql.errors.stream import await_end

__all__ = ["follow_by_memory", "is_connect", "query_id"]

T = TypeVar("T")

_LOOK_S = 0.2


def is_connect(session: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def follow_by_memory(
    stream: DataFrame,
    rows_of: Mapping[str, Callable[[DataFrame], Iterable[T]]],
    start: Callable[[DataStreamWriter], tuple[str, StreamingQuery]],
) -> Iterator[T]:
    """Yield what a stream gives as it arrives, by Spark's sink `memory`: the server keeps its rows until the iterator ends.

    `rows_of` says what to yield of new rows, by output mode: one item of each, or in `complete` of all rows if they are
    others. `start` starts the query in an output mode that it supports, and returns both.
    """
    spark, name = stream.sparkSession, f"dynamic_kafka_{uuid.uuid4().hex}"
    mode, running = start(stream.writeStream.format("memory").queryName(name))
    seen = 0
    last: list[T] | None = None
    try:
        while True:
            ended = not running.isActive  # before the look: what arrives after it is seen by the next one
            rows = spark.table(name)
            items = [*rows_of[mode](rows if mode == "complete" else rows.offset(seen))]
            if mode == "complete" and (items == last or running.lastProgress is None):
                items = []
            last = items or last
            seen += len(items)
            yield from items
            if ended and not items:
                break
            if not items:
                time.sleep(_LOOK_S)
        await_end(running)  # raises its error
    finally:
        running.stop()
        spark.catalog.dropTempView(name)


def query_id(checkpoint: str) -> str:
    """Return the id of the query with a checkpoint, from the file in which Spark keeps it.

    Raises:
        CheckpointError: If it cannot be read.
    """
    try:
        found = json.loads(open_files(checkpoint).read("metadata"))["id"]
    except (DynamicKafkaError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"The query's id cannot be read from {checkpoint}/metadata, so its batches cannot be written exactly once: "
            f"{error}. Set 'execution.checkpointing.dir' to a folder that the server's Python can read, too"
        ) from error
    return str(found)
