"""Which query a task belongs to, and which run of a stream a process of the driver, as far as Spark tells it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from pyspark import TaskContext

__all__ = ["query_of", "run_of"]


def query_of(context: TaskContext | None) -> tuple[str, str]:
    """Return Spark's id and name of the streaming query that a task belongs to; each is "" if there is none.

    Spark tells the name only in the description of the job: as the lines before the one with the id.
    """
    if context is None:
        return "", ""
    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
    name, found, _ = (context.getLocalProperty("spark.job.description") or "").partition(f"id = {query_id}")
    return query_id, name.strip() if query_id and found else ""


def run_of(options: Mapping[str, str]) -> str:
    """Return a name for the run of a stream, which its processes on the driver agree on; "" if there is none.

    Spark tells these processes neither the query nor the run. But its local folder has a random name for each driver, and a
    driver runs a checkpoint once at a time.

    Args:
        options: The options of the sink.
    """
    folder = os.environ.get("SPARK_LOCAL_DIRS", "")
    checkpoint = next((value for name, value in options.items() if name.lower() == "checkpointlocation"), "")
    return hashlib.sha256(f"{folder}\n{checkpoint}".encode()).hexdigest()[:16] if folder else ""
