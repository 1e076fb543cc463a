"""Which query and run of it a process of Spark belongs to, and which version of the package has planned its work."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from typing import Any

from pyspark import TaskContext

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.native import kernel

__all__ = ["OfOneVersion", "query_of", "run_of"]


class OfOneVersion:
    """An object that the driver pickles for the executors. Another version of this package refuses to use it.

    It would take the object for one of its own, whose parts may mean something else.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_version": kernel().__version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        planned, own = state.pop("_version"), kernel().__version__
        if planned != own:
            raise DynamicKafkaError(
                f"The driver has version {planned} of pyspark-dynamic-kafka, and {platform.node() or 'this machine'} has "
                f"{own}. Install the same version on all machines"
            )
        self.__dict__.update(state)


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
