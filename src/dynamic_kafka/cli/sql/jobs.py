"""The running queries of INSERTs: how they end, what they do now, and messages that they could not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamic_kafka.cli.output import warn

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from dynamic_kafka.sql.parser.statements import Statement

__all__ = ["Job", "progress_of", "summary", "warn_of_bad_messages"]


class Job(NamedTuple):
    """A running query of an INSERT."""

    query: StreamingQuery
    statement: Statement
    script: str

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self.query.name)

    def ended(self) -> bool:
        """Return whether it has ended; raise its error if it failed."""
        from dynamic_kafka.sql.errors.script import errors_of
        from dynamic_kafka.sql.session.result import TableResult

        with errors_of(self.statement, self.script, f"job '{self.name}'"):
            return TableResult(queries=[self.query]).wait(0)

    def activity(self) -> str:
        """Return what it does now, such as `batch 7, 1,200 rows/s`."""
        if not self.query.isActive:
            return "ended" if self.query.exception() is None else "failed (Enter shows why)"
        if (progress := self.query.lastProgress) is None:
            return "starting"
        shown = progress_of(progress)
        return f"batch {shown['batch']}, {shown['rows per second']} rows/s"


def progress_of(progress: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the last batch of a query, its rows and its speed, as texts, by its `lastProgress` (None before the first)."""
    if progress is None:
        return {"batch": "-", "rows": "-", "rows per second": "-"}
    # Spark leaves the speed out, or gives no number, if there is nothing to read.
    speed = _of_all_sources(progress, "processedRowsPerSecond")
    return {
        "batch": str(progress["batchId"]),
        "rows": f"{_of_all_sources(progress, 'numInputRows'):,}",
        "rows per second": f"{speed:,.0f}" if 0 < speed < float("inf") else "0",
    }


def _of_all_sources(progress: Mapping[str, Any], key: str) -> Any:
    """Return a number of a batch. In Spark Connect, only its sources have it."""
    if (found := progress.get(key)) is not None:
        return found
    return sum(source.get(key) or 0 for source in progress.get("sources", ()))


def summary(jobs: Sequence[Job]) -> str:
    """Return one line about jobs, such as `orders: batch 7, 1,200 rows/s`."""
    return " · ".join(f"{job.name}: {job.activity()}" for job in jobs)


def warn_of_bad_messages(job: Job) -> None:
    """Warn of messages that could not be read, in the batches that Spark remembers (the last 100)."""
    counts: Counter[tuple[str, str]] = Counter()
    for progress in job.query.recentProgress:
        for metric, row in progress.observedMetrics.items():
            prefix, _, table = metric.partition(": ")
            if prefix == "dynamic-kafka":
                counts.update({(table, policy): number for policy, number in row.asDict().items()})
    for (table, policy), number in counts.items():
        if number:
            what = "skipped" if policy == "skip" else "written to the dead letter topic"
            warn(f"job '{job.name}': {number} messages of table '{table}' could not be read and were {what}")
