"""What is different in a session of Spark Connect.

A function of `foreachBatch` is pickled there and runs in a process of the server. So it cannot hand rows to this process,
and it does not see the properties of the query's thread.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dynamic_kafka.errors import CheckpointError, DynamicKafkaError
from dynamic_kafka.files import open_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["follow_by_memory", "is_connect", "query_id"]

_LOOK_S = 0.2


def is_connect(session: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def follow_by_memory(stream: DataFrame, start: Callable[[DataStreamWriter], StreamingQuery]) -> Iterator[Row]:
    """Yield the rows of a stream as they arrive, by Spark's sink `memory`: the server keeps them until the iterator ends.

    Args:
        stream: The stream.
        start: Starts the query in an output mode that it supports.
    """
    spark, name = stream.sparkSession, f"dynamic_kafka_{uuid.uuid4().hex}"
    running = start(stream.writeStream.format("memory").queryName(name))
    seen = 0
    try:
        while True:
            ended = not running.isActive  # before the look: what arrives after it is seen by the next one
            rows = spark.table(name).offset(seen).collect()
            seen += len(rows)
            yield from rows
            if ended and not rows:
                break
            if not rows:
                time.sleep(_LOOK_S)
        running.awaitTermination()  # raises its error
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
