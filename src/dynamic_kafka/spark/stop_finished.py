"""Stop streaming queries that have reached all their stopping offsets: a Python data source cannot end its query itself.

Such a source reports `done` in the document of an extra batch. Spark publishes that batch's progress, and a daemon thread
of the driver reads it. A query is stopped when each of its sources is done. A query that is started again on a finished
checkpoint gets one more batch.

Why a thread and not a StreamingQueryListener: Spark passes each progress event to Python listeners through dozens of calls
into the JVM, for every query of the session, and `lastProgress` costs nearly as much. Measured with three micro-batches a
second on two cores, each of them made a batch a fifth to a third slower. So a query without stopping offsets is checked
only once a minute.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["stop_finished_queries"]

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_UNBOUNDED_INTERVAL_S = 60.0
_watched: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def stop_finished_queries(spark: SparkSession) -> None:
    """Watch a session's queries from now on and stop the finished ones. Further calls for the session do nothing."""
    if spark not in _watched:
        _watched.add(spark)
        threading.Thread(target=_watch, args=(spark,), name="dynamic-kafka-stop-finished", daemon=True).start()


def _watch(spark: SparkSession) -> None:
    pause = threading.Event()
    next_check: dict[str, float] = {}
    while not pause.wait(_INTERVAL_S):
        try:
            for query in spark.streams.active:
                if time.monotonic() < next_check.get(query.runId, 0.0):
                    continue
                progress = query.lastProgress
                if progress is None or not progress.sources:
                    continue
                ends = [_document(source.endOffset) for source in progress.sources]
                if all(end.get("done") for end in ends):
                    _log.info("Query %s has reached all its stopping offsets; stopping it", query.id)
                    query.stop()
                elif not all(_has_stop(end) for end in ends):
                    next_check[query.runId] = time.monotonic() + _UNBOUNDED_INTERVAL_S
        except Exception:  # noqa: BLE001  whatever Spark and Py4J raise when the session is stopped meanwhile
            _log.debug("The session's queries are no longer watched", exc_info=True)
            return


def _document(end_offset: Any) -> dict[str, Any]:
    """Return a source's offset if it is a document of this package, else an empty one."""
    try:
        offset = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
    except ValueError:
        return {}
    return offset if isinstance(offset, dict) and isinstance(offset.get("clusters"), dict) else {}


def _has_stop(document: dict[str, Any]) -> bool:
    return any("stopping" in cluster or "stops" in cluster for cluster in document.get("clusters", {}).values())
