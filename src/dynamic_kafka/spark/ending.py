"""Streams that end by themselves: a Python source can only idle once its stops are reached, so somebody stops the query.

The document says `done` in a batch of its own, so Spark reports that batch, and a daemon thread of the driver sees it. A
query is stopped when each of its sources is done. A query started again on a finished checkpoint gets one more batch.

A thread that looks once a second, and not a StreamingQueryListener: Spark hands each progress event to Python listeners
through dozens of calls into the JVM, for every query of the session. Measured with three micro-batches a second on two
cores, a listener that did nothing made each batch a third slower.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["stop_queries_that_are_done"]

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_watched: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def stop_queries_that_are_done(spark: SparkSession) -> None:
    """Look after a session's queries from now on, once for each session."""
    if spark not in _watched:
        _watched.add(spark)
        threading.Thread(target=_watch, args=(spark,), name="dynamic-kafka-ending", daemon=True).start()


def _watch(spark: SparkSession) -> None:
    pause = threading.Event()
    while not pause.wait(_INTERVAL_S):
        try:
            for query in spark.streams.active:
                progress = query.lastProgress
                if progress is not None and progress.sources and all(_is_done(s.endOffset) for s in progress.sources):
                    _log.info("Query %s has reached all its stopping offsets; stopping it", query.id)
                    query.stop()
        except Exception:  # noqa: BLE001  whatever Spark and Py4J raise when the session is stopped meanwhile
            _log.debug("No longer looking after the session's queries", exc_info=True)
            return


def _is_done(end_offset: Any) -> bool:
    try:
        offset = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
    except ValueError:
        return False
    return isinstance(offset, dict) and bool(offset.get("done")) and "clusters" in offset
