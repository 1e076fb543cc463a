"""What Spark's streams cannot calculate, in words that say what to do."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.stream_errors import of_streams

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
