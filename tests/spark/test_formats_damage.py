"""Damaged messages of the formats `json` and `csv`."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import ERROR, format_named
from tests.spark.texts import Message, checked, damaged, decode, examples, frame
from tests.versions import needs

pytestmark = pytest.mark.spark


FUZZED = "a INT, s STRING, d DECIMAL(10,2), t TIMESTAMP, u TIME(3), y TINYINT, f FLOAT, b BOOLEAN, x BINARY"
NESTED = ", l ARRAY<INT>, r STRUCT<x: DATE, y: STRING>"
FINE: dict[str, Message] = {
    "json": (
        '{"a":1,"s":"ä\\n","d":"1.5","t":"2020-01-01 00:00:00Z","u":"01:02:03","y":200,"f":1e3,"b":"true","x":"YWJj",'
        '"l":[1,"2"],"r":{"x":"2020-01-01","y":"z"},"m":{"k":[{"q":"1"}]}}'
    ),
    "csv": '1,"ä ""q""",1.5,"2020-01-01 00:00:00Z",01:02:03,7,1e3,true,YWJj,1;2,2020-01-01;z',
}


@needs("TIME")
@pytest.mark.parametrize("name", ["json", "csv"])
def test_no_message_is_lost_or_fails_the_query(spark: SparkSession, name: str) -> None:
    """Each one is a row or an error; none of them only if it is null or empty, or if errors are ignored."""
    found, fine = format_named(name), FINE[name]
    assert isinstance(fine, str)
    messages: list[Message] = [*examples(damaged(fine.encode()) | st.binary(max_size=20), each=20)]
    ddl = FUZZED + NESTED + (", m MAP<STRING, ARRAY<STRUCT<q: INT>>>" if name == "json" else "")
    reads = [
        decode(found, F.col("value"), *checked(found, ddl, {"ignore-parse-errors": ignore}))
        for ignore in ("false", "true")
    ]
    # As texts, because Python has no date after the year 9999.
    parts = [part for read in reads for part in (read.getField(ERROR), read.dropFields(ERROR).cast("string"))]
    rows = sorted(frame(spark, messages).select("i", *parts).collect(), key=lambda row: row["i"])
    assert [row["i"] for row in rows] == list(range(len(messages)))
    for message, (_, error, strict, lenient_error, _lenient) in zip(messages, rows, strict=True):
        assert lenient_error is None, message
        if strict is None:
            assert message == b""
        elif error is not None:
            assert set(strict.strip("{}").split(", ")) == {"null"}, message
