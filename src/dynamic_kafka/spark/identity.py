"""Which query a task belongs to, as Spark tells it."""

from __future__ import annotations

from pyspark import TaskContext

__all__ = ["query_of"]


def query_of(context: TaskContext | None) -> tuple[str, str]:
    """Return Spark's id and name of the streaming query that a task belongs to; each is "" if there is none.

    Spark tells the name only in the description of the job: as the lines before the one with the id.
    """
    if context is None:
        return "", ""
    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
    name, found, _ = (context.getLocalProperty("spark.job.description") or "").partition(f"id = {query_id}")
    return query_id, name.strip() if query_id and found else ""
