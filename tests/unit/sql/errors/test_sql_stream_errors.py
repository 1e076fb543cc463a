"""What Spark's streams cannot calculate, in words that say what to do."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from dynamic_kafka.cli.sql.jobs import Job
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.errors.stream import await_end, of_streams
from dynamic_kafka.sql.parser.parse import parse_script
from dynamic_kafka.sql.session.result import TableResult

_APPEND = (
    "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This output mode is not supported "
    "for streaming aggregations without watermark on streaming DataFrames/DataSets. SQLSTATE: 42KDE"
)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (
            [
                "LeftOuter join between two streaming DataFrames/Datasets is not supported in Update output mode",
                "Stream-stream LeftOuter join between two streaming DataFrame/Datasets is not supported without a watermark",
            ],
            "no outer join of two streams without a limit in time.*WATERMARK",
        ),
        (
            ["[INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY] Streaming query is not allowed in subquery expressions."],
            "JOIN",
        ),
        (
            [_APPEND, "Limits are not supported on streaming DataFrames/Datasets in Update output mode"],
            "no LIMIT and OFFSET",
        ),
        (
            ["Union between streaming and batch DataFrames/Datasets is not supported"],
            "no UNION.*an INSERT for each part",
        ),
        (["Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated ..."], "no ORDER BY"),
        (
            [_APPEND, "Detected pattern of possible 'correctness' issue due to global watermark."],
            "upsert-kafka.*materialize",
        ),
        (
            [_APPEND, _APPEND.replace("append", "update").replace("streaming", "session window streaming")],
            "sessions of event time.*METADATA FROM 'timestamp'",
        ),
        (["[MULTIPLE_EVENT_TIME_COLUMNS] More than one event time columns are available."], "make the others plain"),
    ],
)
def test_it_says_what_to_do_and_what_spark_said(messages: list[str], problem: str) -> None:
    """What is said in one output mode may matter, or in the other."""
    found = of_streams([AnalysisException(message) for message in messages])
    assert isinstance(found, ConfigurationError)
    with pytest.raises(ConfigurationError, match=problem):
        raise found
    assert messages[0].split(". SQLSTATE")[0] in str(found)
    assert "\n" not in str(found)


def test_another_error_is_kept() -> None:
    """Spark's own is better than nothing."""
    error = AnalysisException("Something else")
    assert of_streams([error]) is error


def streaming(cause: str) -> StreamingQueryException:
    """The error that ends a query."""
    text = f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {cause} SQLSTATE: XXKST"
    return StreamingQueryException(f"{text}\n=== Streaming Query ===\nGrouping Sets, Sorting is not supported")


class Failed:
    """A query that has ended with an error."""

    name = "t"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.isActive = False

    def awaitTermination(self) -> None:  # noqa: N802  Spark's
        """Raise it."""
        raise self.error


_UNPLANNED = (
    "[UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK] Append output mode not supported for aggregations on streaming "
    "DataFrames/DataSets without watermark."
)


@pytest.mark.parametrize(
    ("cause", "problem"),
    [
        (_UNPLANNED, "cannot calculate with the rows of an aggregation.*upsert-kafka"),
        (
            (
                "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. "
                "Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
                f"  File 'x.py', line 1\npyspark.errors.exceptions.captured.AnalysisException: {_UNPLANNED}\n"
            ),
            "cannot calculate with the rows of an aggregation",
        ),
        (
            (
                "[FOREACH_BATCH_USER_FUNCTION_ERROR] Reason: Traceback:\npy4j.protocol.Py4JJavaError: An error occurred\n"
                f": org.apache.spark.sql.AnalysisException: {_UNPLANNED}\n\tat org.apache.spark.x(y)\n"
            ),
            "cannot calculate with the rows of an aggregation",
        ),
        ("Global aggregation with session window in streaming query is not supported.", "GROUP BY a column, too"),
    ],
)
def test_what_spark_finds_out_in_the_first_batch_is_said_in_the_same_words(cause: str, problem: str) -> None:
    """By the result of a statement, by its rows, and by the job of a script."""
    query: Any = Failed(streaming(cause))
    with pytest.raises(ConfigurationError, match=problem) as raised:
        TableResult(queries=[query]).wait()
    assert "Spark says: " in str(raised.value)
    assert "\n" not in str(raised.value)
    (statement,) = parse_script("INSERT INTO t SELECT 1")
    with pytest.raises(ConfigurationError, match=f"Line 1, job 't': .*{problem}"):
        Job(query, statement, "...").ended()


@pytest.mark.parametrize(
    "cause",
    [
        f"Job aborted due to stage failure: offset 3: the value cannot be read as json; it begins with {_UNPLANNED}",
        f"[FOREACH_BATCH_USER_FUNCTION_ERROR] Reason: Job aborted: the value begins with {_UNPLANNED}",
        "Limits are not supported",
    ],
)
def test_an_error_of_the_data_is_never_taken_for_one_of_the_query(cause: str) -> None:
    """A message may contain any words."""
    query: Any = Failed(streaming(cause))
    with pytest.raises(StreamingQueryException):
        await_end(query)
