"""The rows that `dynamic-kafka sql` shows, as Spark gives them: values of all kinds, and a stream that aggregates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dynamic_kafka.cli.sql import results
from dynamic_kafka.cli.sql.status import StatusLine
from dynamic_kafka.sql.session.result import TableResult, follow

pytestmark = pytest.mark.spark

VALUES = """SELECT 1 AS n, CAST(1.10 AS DECIMAL(4, 2)) AS n, TIMESTAMP '2024-01-01 12:00:00.123456' AS ltz,
  TIMESTAMP_NTZ '2024-01-01 12:00:00' AS ts, X'00FF' AS bytes, array(1, NULL) AS a, map('k', 1) AS m,
  named_struct('x', 'a,b') AS r, CAST(NULL AS STRING) AS s, CAST('NaN' AS DOUBLE) AS d, true AS b"""


def test_values_of_all_kinds(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Times are in the time zone of the session with all their digits, and a DECIMAL keeps its digits."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for output in results.OUTPUTS:
            assert results.show_batch(TableResult(dataframe=spark.sql(VALUES)), output, StatusLine()) in {1, None}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    names, table, _, csv, row = capsys.readouterr().out.splitlines()
    assert names.split()[:3] == ["n", "n", "ltz"]
    shown = ["1", "1.10", "2024-01-01 12:00:00.123456", "2024-01-01 12:00:00", "x'00FF'", "[1, null]", "{k -> 1}"]
    assert table.split("  ")[0] == "1"
    for text in (*shown, "{a,b}", "NULL", "NaN", "true"):
        assert text in table
    assert csv == ",".join([*shown[:5], '"[1, null]"', "{k -> 1}", '"{a,b}"', "", "NaN", "true"])
    pairs = json.loads(row, object_pairs_hook=list, parse_float=str)
    assert [name for name, _ in pairs][:3] == ["n", "n", "ltz"]
    assert dict(pairs[1:]) == {
        "n": "1.10",
        "ltz": "2024-01-01T12:00:00.123456+09:00",
        "ts": "2024-01-01T12:00:00.000000",
        "bytes": "AP8=",
        "a": [1, None],
        "m": [("k", 1)],
        "r": [("x", "a,b")],
        "s": None,
        "d": "NaN",
        "b": True,
    }


def test_a_stream_that_aggregates_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """Of all its rows, in their order, up to what the screen takes; another program gets the changed rows."""
    (tmp_path / "one.json").write_text("".join(f'{{"k": "{k}"}}\n' for k in "aabc"))
    lines = spark.readStream.schema("k STRING").json(str(tmp_path))
    lines.createOrReplaceTempView("lines")
    counts = spark.sql("SELECT k, count(*) AS n FROM lines GROUP BY k ORDER BY n DESC, k")
    rows = follow(counts, {"append": lambda _: [], "complete": lambda batch: [results._snapshot(batch, 2)]})
    assert next(rows) == ([("a", "2"), ("b", "1")], True)
    rows.close()  # type: ignore[attr-defined]
    changes = follow(spark.sql("SELECT k, count(*) AS n FROM lines GROUP BY k"), results._rows_of("csv", None))
    assert sorted([next(changes), next(changes), next(changes)]) == [("a", "2"), ("b", "1"), ("c", "1")]
    changes.close()  # type: ignore[attr-defined]
