"""The result of a statement (PyFlink: TableResult)."""

from __future__ import annotations

import functools
import logging
import queue
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.spark.notebook import query_html
from dynamic_kafka.sql.errors.script import own_errors
from dynamic_kafka.sql.errors.stream import await_end, of_streams
from dynamic_kafka.sql.session.connect import follow_by_memory, is_connect

__all__ = ["TableResult", "follow", "note_tasks_of_state", "start"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_DEADLINE_S = 0.5
_LOOK_S = 0.2  # between two checks of running queries
_PARTITIONS, _SPARKS_DEFAULT = "spark.sql.shuffle.partitions", "200"
# In Spark's plans ~ is before what streams. A join has state if both of its sides do.
_WITH_STATE = re.compile(r"~(Aggregate|Deduplicate|Distinct)|~Join.*~StreamingRelation.*~StreamingRelation", re.DOTALL)


class TableResult:
    """The result of a statement: rows, or running queries.

    Args:
        columns: The names of the rows' columns; empty if there are no rows.
        rows: The rows of a statement such as SHOW TABLES.
        dataframe: The rows of a SELECT; it may be a stream.
        queries: The streaming queries of an INSERT, or of a statement set.
    """

    def __init__(
        self,
        columns: Sequence[str] = (),
        rows: Sequence[Sequence[Any]] = (),
        *,
        dataframe: DataFrame | None = None,
        queries: Sequence[StreamingQuery] = (),
    ) -> None:
        self.columns = tuple(columns) if dataframe is None else tuple(dataframe.columns)
        self.dataframe = dataframe
        self.queries = tuple(queries)
        self._rows = rows

    def _repr_html_(self) -> str | None:
        """Return the running queries for a notebook; None if none is shown."""
        return "".join(filter(None, map(query_html, self.queries))) or None

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the queries have ended; return at once if there are none.

        Args:
            timeout_ms: The maximum time; 0 checks once, None waits without limit.

        Returns:
            True if all have ended.

        Raises:
            ConfigurationError: As soon as one has failed because Spark cannot run it; the others continue.
            pyspark.errors.StreamingQueryException: As soon as one has failed for another reason.
        """
        deadline_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            ended = [running for running in self.queries if not running.isActive]
            for query in ended:
                await_end(query)  # raises its error
            if len(ended) == len(self.queries):
                return True
            left_s = _LOOK_S if deadline_s is None else min(_LOOK_S, deadline_s - time.monotonic())
            if left_s <= 0:
                return False
            time.sleep(left_s)  # not in a call to Spark, which does not handle Ctrl-C well

    def stop(self) -> None:
        """Stop the queries."""
        for running in self.queries:
            running.stop()

    def collect(self) -> Iterator[Row]:
        """Return an iterator of the rows; those of a stream as they arrive, until it ends or the iterator is closed."""
        if self.dataframe is None:
            return (Row(**dict(zip(self.columns, row, strict=True))) for row in self._rows)
        if self.dataframe.isStreaming:
            return _follow(self.dataframe)
        with own_errors():
            return iter(self.dataframe.collect())

    def print(self) -> None:
        """Print the rows to standard output; those of a stream as they arrive, until it ends."""
        if self.dataframe is not None and self.dataframe.isStreaming:
            for row in _follow(self.dataframe):
                _line(row)
        elif self.dataframe is not None:
            with own_errors():
                self.dataframe.show(2**31 - 1, truncate=False)
        else:
            for values in self._rows:
                _line(values)


def note_tasks_of_state(stream: DataFrame) -> None:
    """Log what to set if a stream with state is about to start with Spark's 200 tasks in a micro-batch on one machine."""
    spark, rows = stream.sparkSession, cast("Any", stream)
    if is_connect(spark) or not str(spark.sparkContext.master).startswith("local"):
        return
    if spark.conf.get(_PARTITIONS) == _SPARKS_DEFAULT and _WITH_STATE.search(
        rows._jdf.queryExecution().analyzed().toString()
    ):
        _say_once(spark.sparkContext.defaultParallelism)


@functools.cache
def _say_once(cores: int) -> None:
    _log.warning(
        "Each micro-batch of this query has %s tasks with state, because %s has its default, so answers come late. On one "
        "machine, set it before the query first starts: spark.conf.set('%s', '%d'). Its checkpoint then keeps the number",
        *(_SPARKS_DEFAULT, _PARTITIONS, _PARTITIONS, cores),
    )


def start(writer: DataStreamWriter, modes: Sequence[str]) -> StreamingQuery:
    """Start a query in the first output mode that it supports; see `start_in_mode`."""
    return start_in_mode(writer, modes)[1]


def start_in_mode(writer: DataStreamWriter, modes: Sequence[str]) -> tuple[str, StreamingQuery]:
    """Start a query in the first output mode that it supports, and return the mode with the query.

    Raises:
        ConfigurationError: If it supports none of them.
        pyspark.errors.AnalysisException: If it cannot be run for another reason.
    """
    errors = []
    for mode in modes:
        try:
            return mode, writer.outputMode(mode).start()
        except AnalysisException as error:
            errors.append(error)
    raise of_streams(errors)


def follow(stream: DataFrame, rows_of: Mapping[str, Callable[[DataFrame], Iterable[T]]]) -> Iterator[T]:
    """Yield what a stream gives as it arrives, until it ends or the iterator is closed.

    `rows_of` says what to yield of a micro-batch, by output mode: one item of each row, or in `complete` of all rows. The
    first mode that the query supports is taken.

    Raises:
        ConfigurationError: If it supports none of them.
        pyspark.errors.AnalysisException: If it cannot be run for another reason.
    """
    if is_connect(stream.sparkSession):
        yield from follow_by_memory(stream, rows_of, lambda writer: start_in_mode(writer, [*rows_of]))
        return
    found: queue.Queue[T] = queue.Queue(maxsize=10_000)
    closed = False

    def put(batch: DataFrame, _: int) -> None:
        for row in rows_of[mode](batch):
            while not closed:
                try:
                    found.put(row, timeout=_DEADLINE_S)
                    break
                except queue.Full:
                    continue

    note_tasks_of_state(stream)
    mode, running = start_in_mode(stream.writeStream.foreachBatch(put), [*rows_of])
    try:
        while True:
            try:
                yield found.get(timeout=_DEADLINE_S)
            except queue.Empty:
                # Ask Spark only now: the call takes time, and does not handle Ctrl-C well.
                if not running.isActive and found.empty():
                    break
        await_end(running)  # raises its error
    finally:
        closed = True
        running.stop()


def _follow(stream: DataFrame) -> Iterator[Row]:
    """Return the rows of a stream as they arrive; new and changed ones if it aggregates."""
    return follow(stream, dict.fromkeys(("append", "update"), lambda batch: batch.toLocalIterator()))


def _line(row: Sequence[Any]) -> None:
    print(*("NULL" if value is None else value for value in row), sep="\t")  # noqa: T201  it is the purpose
