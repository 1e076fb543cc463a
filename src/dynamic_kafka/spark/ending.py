"""Streams that end by themselves: a Python source can only idle once its stops are reached, so a listener stops the query.

The document says `done` in a batch of its own, so Spark reports that batch, and the listener sees it. A query is stopped
when every source in it that has a stop is done and it has no other source. A query started again on a finished checkpoint
gets one more (empty) batch that says so.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

__all__ = ["stop_queries_that_are_done"]

_log = logging.getLogger(__name__)
_listening: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def stop_queries_that_are_done(spark: SparkSession) -> None:
    """Install the listener in a session, once."""
    if spark not in _listening:
        spark.streams.addListener(_StopWhenDone(spark))
        _listening.add(spark)


class _StopWhenDone(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        if progress.sources and all(_is_done(source.endOffset) for source in progress.sources):
            # Not in this thread: stop() waits for the query, which may wait for its listeners.
            threading.Thread(target=self._stop, args=(str(progress.id),), daemon=True).start()

    def _stop(self, query_id: str) -> None:
        query = self._spark.streams.get(query_id)
        if query is not None and query.isActive:
            _log.info("Query %s has reached all its stopping offsets; stopping it", query_id)
            query.stop()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def _is_done(end_offset: str | None) -> bool:
    try:
        offset = json.loads(end_offset or "null")
    except ValueError:
        return False
    return isinstance(offset, dict) and bool(offset.get("done")) and "clusters" in offset
