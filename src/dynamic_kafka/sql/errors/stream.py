"""What Spark's streams cannot calculate, in words that name what to do.

Spark says some of it when a query starts, and some when it plans the first micro-batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.errors.script import reason_of

__all__ = ["await_end", "of_streams"]

_BATCH = "(A batch has it: give the tables 'scan.bounded.mode' = 'latest-offset')"
_OUTER_JOIN = """\
Spark has no outer join of two streams without a limit in time, as it cannot take a row without a partner back when one
arrives. Give both tables a WATERMARK, and the join a condition such as `s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR`.
Then a row without a partner comes when the time of all partners has passed"""
_SUB_QUERY = """\
Spark has no sub-query of a stream in an expression, such as IN (SELECT ...), EXISTS or (SELECT MAX(x) ...). Write a JOIN, or
`materialize` the sub-query and read the result"""
_OUTER_JOIN_OF_TABLE = """\
Spark has no such join of a stream with a table that is none: the rows of the table that have no partner are never known.
Keep the rows of the stream (stream LEFT JOIN table)"""
_ORDER = """\
A stream has no ORDER BY in Spark: its rows come as they arrive. Leave it out, or aggregate over windows of time"""
_GROUPING_SETS = """\
Spark's streams have no GROUPING SETS, ROLLUP and CUBE: write a query with GROUP BY for each of the groups"""
_LIMIT = "Spark's streams have no LIMIT and OFFSET of rows that change"
_UNION = """\
Spark has no UNION of a stream with rows that have an end. Write an INSERT for each part, or give the other table no end,
such as with 'source.monitor-interval' for files"""
_SETS = "Spark's streams have no EXCEPT and INTERSECT"
_SESSIONS = """\
Spark's streams have sessions of event time with a watermark only, and Flink those of PROCTIME(), too. Take the time of the
messages: `ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR ts AS ts`"""
_CHANGING = """\
Spark cannot calculate with the rows of an aggregation, a rank or a join of streams that change later, as Flink does by
taking them back. Let each step have windows of time over a WATERMARK, or write the first step to an 'upsert-kafka' table and
`materialize` that"""
_ONE_SESSION = """\
Spark's streams have sessions with a key only: GROUP BY a column, too"""
_TIMES = """\
Rows of Spark's streams have one event time when they are joined or aggregated, and those of a join have one of each side.
Use one of them in the steps that follow. In a sub-query before, make the others plain: CAST(ts AS TIMESTAMP(3)) AS t"""
_NOT_IN_STREAMS: Mapping[str, str] = {
    r"(Left|Right|Full)Outer join between two streaming": _OUTER_JOIN,
    r"not allowed in subquery|LeftSemi|LeftAnti|Existence": _SUB_QUERY,
    r"(Outer|FullOuter) joins? with|joins with a streaming": _OUTER_JOIN_OF_TABLE,
    r"Sorting is not supported": _ORDER,
    r"Grouping Sets": _GROUPING_SETS,
    r"Limits|Offset is": _LIMIT,
    r"Except on|Intersect of": _SETS,
    r"Union between streaming and batch": _UNION,
    r"session window streaming aggregations": _SESSIONS,
    r"Global aggregation with session window": _ONE_SESSION,
    r"MULTIPLE_EVENT_TIME_COLUMNS": _TIMES,
    r"Multiple streaming aggregations|correctness|without watermark|output mode, only in Append": _CHANGING,
}
"""What Spark's streams do not have, by words of its messages. The first that fits the message of any output mode counts."""


_OF_THE_QUERY = re.compile(
    r"^(?:\[STREAM_FAILED\] Query \[[^\]\n]*\] terminated with exception: "
    r"|(?:Caused by: |: )?(?:pyspark\.errors\.exceptions\.\w+|org\.apache\.spark\.sql)\.\w+: )"
    r"(?P<problem>(?:\[(?:UNSUPPORTED_STREAMING_OPERATOR|MULTIPLE_EVENT_TIME_COLUMNS)|Global aggregation with session).*)",
    re.MULTILINE,
)
"""What Spark's error in the first micro-batch says of the query. In `foreachBatch`, it is in the trace of our function."""


def await_end(query: StreamingQuery) -> None:
    """Wait until a query ends.

    Raises:
        ConfigurationError: If Spark found out in the first micro-batch that it cannot run the query.
        pyspark.errors.StreamingQueryException: If it failed for another reason.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        found = _OF_THE_QUERY.search(str(error).partition("\n=== Streaming Query ===")[0])
        if found is None:
            raise
        raise of_streams([AnalysisException(found["problem"])]) from error


def of_streams(errors: Sequence[AnalysisException]) -> Exception:
    """Return the error for a stream that Spark cannot run in any of several output modes, each with its error."""
    messages = "\n".join(map(str, errors))
    for pattern, problem in _NOT_IN_STREAMS.items():
        if re.search(pattern, messages):
            text = problem.replace("\n", " ")
            return ConfigurationError(f"{text}. {_BATCH}. Spark says: {reason_of(errors[0])}")
    return errors[0]
