"""What some tests need, and not each supported version of Spark has. Where it is missing, they are skipped and say so."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Literal

import pytest

__all__ = ["RUNS_TO_THE_END", "SINCE", "SPARK", "needs"]

SPARK = tuple(map(int, re.findall(r"\d+", version("pyspark"))[:2]))
"""The version of Spark that runs the tests, such as (4, 0)."""

Lacking = Literal["ArrowSerializer", "AvailableNow", "lastProgress", "ROW_NUMBER", "TIME"]
SINCE: dict[Lacking, tuple[int, int]] = {
    "ArrowSerializer": (4, 1),  # functions over Arrow that take rows
    "AvailableNow": (4, 2),  # in several batches
    "lastProgress": (4, 2),  # with the source's state
    "ROW_NUMBER": (4, 2),  # over streams: max_by and min_by with three arguments
    "TIME": (4, 2),  # switched on
}
"""The version that first has it. The table in docs/guides/versions.md says what it is."""

RUNS_TO_THE_END = 1 if SINCE["AvailableNow"] <= SPARK else 2
"""How many runs with Trigger.AvailableNow read all that is there after a crash: the first may only finish a batch."""


def needs(what: Lacking) -> pytest.MarkDecorator:
    """Skip a test with a version of Spark that lacks something of `SINCE`."""
    return pytest.mark.skipif(
        SINCE[what] > SPARK, reason=f"Spark {'.'.join(map(str, SPARK))} lacks {what}, see docs/guides/versions.md"
    )
