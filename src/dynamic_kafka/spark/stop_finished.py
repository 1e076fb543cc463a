"""Stop streaming queries that have reached all their stopping offsets: a Python data source cannot end its query itself.

Such a source reports `done` in the document of an extra batch. Spark publishes that batch's progress, and a daemon thread
of the driver reads it. A query is stopped when each of its sources is done. A query that is started again on a finished
checkpoint gets one more batch. The batch of a last row (see `last_row`) is not the end: another one follows.

Why a thread and not a StreamingQueryListener: Spark passes each progress event to Python listeners through dozens of calls
into the JVM, for every query of the session, and `lastProgress` costs nearly as much. Measured with three micro-batches a
second on two cores, each of them made a batch a fifth to a third slower. So a query without stopping offsets is checked
only once a minute.

The thread ends with the session, or with Spark's Java process. A call that fails, such as a stop that times out, is tried
again a second later.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from dynamic_kafka.spark_versions import offset_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["java_has_ended", "stop_finished_queries"]

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_UNBOUNDED_INTERVAL_S = 60.0
_ENDS_S = 2.0  # a process that is killed closes its connections first
_watched: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def stop_finished_queries(spark: SparkSession) -> None:
    """Watch a session's queries from now on and stop the finished ones. Further calls for the session do nothing."""
    if spark not in _watched:
        _watched.add(spark)
        threading.Thread(target=_watch, args=(spark,), name="dynamic-kafka-stop-finished", daemon=True).start()


def _watch(spark: SparkSession) -> None:
    next_check: dict[str, float] = {}
    failing = False
    while not _is_stopped(spark):
        time.sleep(_INTERVAL_S)
        try:
            for query in spark.streams.active:
                _stop_if_finished(query, next_check)
            failing = False
        except Exception as error:  # noqa: BLE001  whatever Spark and Py4J raise; one failure must not end the watch
            if java_has_ended():
                break  # the calls of whoever uses the session say so
            if not _is_stopped(spark):
                level = logging.DEBUG if failing else logging.WARNING
                _log.log(level, "The session's queries could not be checked (%s); trying again", type(error).__name__)
                _log.debug("The cause", exc_info=True)
            failing = True
    _watched.discard(spark)


def java_has_ended() -> bool:
    """Return whether Spark's Java process, which this process has started, has ended. Ask it after an error."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return process is not None and process.wait(_ENDS_S) is not None
    except subprocess.TimeoutExpired:
        return False


def _is_stopped(spark: Any) -> bool:
    of_connect = getattr(spark, "is_stopped", None)
    return bool(spark.sparkContext._jsc is None if of_connect is None else of_connect)


def _stop_if_finished(query: StreamingQuery, next_check: dict[str, float]) -> None:
    if time.monotonic() < next_check.get(query.runId, 0.0):
        return
    progress = query.lastProgress
    if progress is None or not progress.sources:
        return
    ends = [_document(source.endOffset) for source in progress.sources]
    if all(end.get("done", 0) != end.get("last row", 0) for end in ends):
        _log.info("Query %s has reached all its stopping offsets; stopping it", query.id)
        query.stop()
    elif not all(_has_stop(end) for end in ends):
        next_check[query.runId] = time.monotonic() + _UNBOUNDED_INTERVAL_S


def _document(end_offset: Any) -> dict[str, Any]:
    """Return a source's offset if it is a document of this package, else an empty one."""
    try:
        offset = offset_of(end_offset)
    except ValueError:
        return {}
    return offset if isinstance(offset, dict) and isinstance(offset.get("clusters"), dict) else {}


def _has_stop(document: dict[str, Any]) -> bool:
    return any("stopping" in cluster or "stops" in cluster for cluster in document.get("clusters", {}).values())
