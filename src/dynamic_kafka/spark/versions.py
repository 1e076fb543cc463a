"""What differs between the versions of Spark that are supported. No other module asks for a version.

Spark 4.1 has no admission control for sources in Python (SPARK-55304, Spark 4.2). There `latestOffset` has no arguments, so
the reader keeps the start of the next batch itself: Spark calls `partitions` with the last offsets that it knows before
anything else, also on a restart. Limits hold for each micro-batch, but a source cannot see that a trigger ignores them.
"""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

import pyspark

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "has_admission_control",
    "offset_of",
    "spark_version",
]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """Stands for Spark's class, which this version does not have."""

        class ReadAllAvailable(ReadLimit):
            """The same."""

        class ReadMaxRows(ReadLimit):
            """The same."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """The same."""


def spark_version() -> tuple[int, int]:
    """Return the version of Spark, such as (4, 2)."""
    major, minor = map(int, re.findall(r"\d+", pyspark.__version__)[:2])
    return major, minor


def has_admission_control() -> bool:
    """Return whether Spark tells a source where a batch starts, and whether the trigger wants all that is there."""
    return spark_version() >= (4, 2)


def offset_of(shown: object) -> Any:
    """Return an offset of a source as it was, of what a query's progress shows. Before Spark 4.2 that is Python's text.

    Raises:
        ValueError: If it is neither JSON nor Python's text.
    """
    if not isinstance(shown, str):
        return shown
    try:
        return json.loads(shown)
    except ValueError:
        try:
            return ast.literal_eval(shown)
        except SyntaxError as error:
            raise ValueError(str(error)) from None
