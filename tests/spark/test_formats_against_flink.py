"""What Flink reads from texts and changes (`tests/flink_answers`) beside ours: the same rows, or a known difference."""

from __future__ import annotations

import pprint
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import ERROR
from dynamic_kafka.formats.arrow import arrow_type
from tests.flink_answers.compare import answers, difference, known, table
from tests.flink_answers.messages import serving
from tests.flink_answers.text_messages import TEXTS
from tests.spark.texts import frame

pytestmark = pytest.mark.spark

CASES = TEXTS


def decoded(spark: SparkSession, registry: str) -> dict[str, list[Any]]:
    """What each message of each case is decoded to, in one query."""
    messages = [message for case in CASES.values() for message in case.messages]
    numbers = [n for n, case in enumerate(CASES.values()) for _ in case.messages]
    columns = []
    for n, case in enumerate(CASES.values()):
        found = table(case, registry)
        column = found.format.decode(F.col("value"), found.schema, found.options)
        columns.append(F.when(F.col("n") == n, column).alias(f"d{n}"))
    read: dict[str, list[Any]] = {name: [] for name in CASES}
    for _, n, *values in frame(spark, messages, n=numbers).select("i", "n", *columns).orderBy("i").collect():
        row = values[n]
        read[[*CASES][n]].append(None if row is None else row.asDict(recursive=True))
    return read


def compared(name: str, rows: list[Any], registry: str) -> dict[str, Any]:
    """The messages of a case that are read otherwise."""
    case = CASES[name]
    found = table(case, registry)
    type_ = arrow_type(found.schema)
    different = {}
    for message, row in zip(case.messages, rows, strict=True):
        flink = answers()[name][case.key(message)]
        ours = ValueError(row[ERROR]) if row is not None and row[ERROR] is not None else row
        text = difference(flink, ours, type_, changelog=found.format.changelog)
        if text:
            different[case.key(message)] = (text, flink, row)
    return different


@pytest.mark.slow
def test_messages_are_read_as_by_flink(spark: SparkSession) -> None:
    """Several hundred messages, apart from the known differences."""
    with serving([]) as registry:
        rows = decoded(spark, registry)
        found = {name: different for name in CASES if (different := compared(name, rows[name], registry))}
    assert {name: len(different) for name, different in found.items()} == known(CASES), pprint.pformat(found, width=200)
