"""Streams that end by themselves: a Python source can only idle once its stops are reached, so somebody stops the query.

The document says `done` in a batch of its own, so Spark reports that batch, and a daemon thread of the driver sees it. A
query is stopped when each of its sources is done. A query started again on a finished checkpoint gets one more batch.

A thread, and not a StreamingQueryListener: Spark hands each progress event to Python listeners through dozens of calls into
the JVM, for every query of the session, and `lastProgress` costs nearly as much. Measured with three micro-batches a second
on two cores, either one made each batch a fifth to a third slower. So a query without any stop is looked at once a minute.
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

__all__ = ["stop_queries_that_are_done"]

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_UNBOUNDED_INTERVAL_S = 60.0
_watched: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def stop_queries_that_are_done(spark: SparkSession) -> None:
    """Look after a session's queries from now on, once for each session."""
    if spark not in _watched:
        _watched.add(spark)
        threading.Thread(target=_watch, args=(spark,), name="dynamic-kafka-ending", daemon=True).start()


def _watch(spark: SparkSession) -> None:
    pause = threading.Event()
    next_look: dict[str, float] = {}
    while not pause.wait(_INTERVAL_S):
        try:
            for query in spark.streams.active:
                if time.monotonic() < next_look.get(query.runId, 0.0):
                    continue
                progress = query.lastProgress
                if progress is None or not progress.sources:
                    continue
                ends = [_document(source.endOffset) for source in progress.sources]
                if all(end.get("done") for end in ends):
                    _log.info("Query %s has reached all its stopping offsets; stopping it", query.id)
                    query.stop()
                elif not all(_has_stop(end) for end in ends):
                    next_look[query.runId] = time.monotonic() + _UNBOUNDED_INTERVAL_S
        except Exception:  # noqa: BLE001  whatever Spark and Py4J raise when the session is stopped meanwhile
            _log.debug("No longer looking after the session's queries", exc_info=True)
            return


def _document(end_offset: Any) -> dict[str, Any]:
    """A source's offset if it is a document of ours, else an empty one."""
    try:
        offset = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
    except ValueError:
        return {}
    return offset if isinstance(offset, dict) and isinstance(offset.get("clusters"), dict) else {}


def _has_stop(document: dict[str, Any]) -> bool:
    return any("stopping" in cluster or "stops" in cluster for cluster in document.get("clusters", {}).values())
