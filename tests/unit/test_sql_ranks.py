"""Ranks and aggregations with DISTINCT of a stream, as Spark's aggregations, without Spark."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, StringType, TimestampType
from sqlglot import exp

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.dialect.translate import translate_stream

COLUMNS: dict[str, DataType] = {
    "i": IntegerType(),
    "l": LongType(),
    "x": DoubleType(),
    "s": StringType(),
    "k": StringType(),
    "n": LongType(),
    "ts": TimestampType(),
}
VIEWS = {"recent": "SELECT k, s, ts FROM t WHERE i > 0", "counts": "SELECT k, COUNT(*) AS n FROM t GROUP BY k"}


def ask(sql: str) -> DataType | None:
    """The type of a column."""
    column = re.match(r"SELECT (?:\w+\.)?`?(\w+)`? FROM", sql)
    return COLUMNS.get(column[1]) if column else None


class Streams:
    """Tables of which each has an offset, and `ts` as its event time."""

    def is_time(self, query: str) -> bool:
        """Whether it is `ts`."""
        return query.startswith("SELECT ts ")

    def view(self, name: str) -> exp.Query | None:
        """The query of a view."""
        return parse_query(VIEWS[name]).tree if name in VIEWS else None

    def ordered(self, name: str) -> str | None:
        """The table with offsets."""
        return f"{name}_in_order"


def stream(sql: str) -> tuple[str, list[list[str]] | None]:
    """The query for Spark, and the key of its rows."""
    text, _, key = translate_stream(parse_query(sql), ask, Streams(), zone="UTC", views={})
    return text, None if key is None else [sorted(part) for part in key.parts]


def first(order: str, condition: str = "rn = 1", table: str = "t") -> str:
    """The first rows of each key."""
    return (
        f"SELECT k, s, rn FROM (SELECT k, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS rn FROM {table}) "
        f"WHERE {condition}"
    )


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ts DESC", "max_by(struct(k, s), struct(ts, __arrival))"),
        ("ts", "min_by(struct(k, s), struct(ts, __arrival))"),
        ("l DESC", "max_by(struct(k, s), struct(l, -__arrival))"),
        ("s", "min_by(struct(k, s), struct(s, __arrival))"),
        ("l DESC, s", "min_by(struct(k, s), struct((l) IS NULL, -(CAST(l AS DECIMAL(20,0))), s, __arrival))"),
        ("x, s DESC", "max_by(struct(k, s), struct((x) IS NULL, NOT isnan(x), -(x), s, -__arrival))"),
    ],
)
def test_the_first_row_is_the_largest_or_the_smallest(order: str, expected: str) -> None:
    """Among equal ones, the first to arrive is; with the newest event time, the last to arrive."""
    text, key = stream(first(order))
    assert f"SELECT {expected} AS __best FROM t_in_order AS `t` GROUP BY k" in text.replace(
        "`t_in_order`", "t_in_order"
    )
    assert "CAST(1 AS BIGINT) AS `rn`" in text
    assert "rn = 1" not in text
    assert key == [["k"]]


@pytest.mark.parametrize("condition", ["rn <= 3", "rn < 4", "3 >= rn", "4 > rn"])
def test_the_first_rows_are_numbered(condition: str) -> None:
    """The number is a part of the key."""
    text, key = stream(first("l DESC", condition))
    assert "max_by(struct(k, s), struct(l, -__arrival), 3)" in text
    assert "posexplode(__best)" in text
    assert key == [["rn"], ["k"]]


def test_a_rank_reads_views_and_parts_of_with() -> None:
    """A column with the order of arrival is handed on; rows of an aggregation do not have one."""
    text, _ = stream(first("ts DESC", table="recent"))
    assert "(SELECT k, s, ts, __arrival FROM `t_in_order` AS `t` WHERE i > 0) AS `recent`" in text
    assert "struct(ts, __arrival)" in stream(first("ts DESC", table="(SELECT * FROM t WHERE i > 0) AS q"))[0]
    with_ = "WITH ranked AS (SELECT k, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) "
    text, key = stream(f"{with_}SELECT s, k AS id FROM ranked AS r WHERE r.rn = 1")
    assert text.startswith("SELECT s, k AS id FROM (SELECT __best.*")
    assert key == [["id"]]
    assert (
        "struct(n))"
        in stream("SELECT k, rn FROM (SELECT k, ROW_NUMBER() OVER (ORDER BY n) AS rn FROM counts) WHERE rn = 1")[0]
    )


def test_ranks_of_windows() -> None:
    """The rows do not change, so anything can be calculated with them."""
    tumble = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    over = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY {} DESC) AS rn"
    text, key = stream(f"SELECT * FROM (SELECT *, {over.format('l')} FROM {tumble}) WHERE rn <= 2 AND l > 5")
    assert "GROUP BY `__windowed`.__window)" in text
    assert "* EXCEPT (__arrival, __window), CAST(`__windowed`.__window.start AS TIMESTAMP_NTZ) AS window_start" in text
    assert text.endswith("WHERE l > 5")
    assert key is None
    counts = f"SELECT window_start, window_end, k, COUNT(*) AS n FROM {tumble} GROUP BY window_start, window_end, k"
    text, key = stream(f"SELECT k, n FROM (SELECT *, {over.format('n')} FROM ({counts})) WHERE rn <= 2")
    assert "`__windowed`.__window AS __window FROM" in text
    assert text.count("GROUP BY __window)") == 1
    assert "struct(* EXCEPT (__window)), struct(n), 2)" in text
    assert key is None


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        (first("ts DESC", "rn = 2"), "WHERE rn = 1"),
        (first("ts DESC", "rn = 1 AND s = 'x'"), "takes the earlier ones back"),
        (
            first("ts DESC", "rn = 1").replace("SELECT k, s, rn", "SELECT COUNT(*)") + " GROUP BY s",
            "takes the earlier ones back",
        ),
        (f"SELECT COUNT(*) FROM ({first('ts')}) AS q GROUP BY k", "takes the earlier ones back"),
        (f"SELECT COUNT(*) FROM ({first('ts')}) AS q", "takes the earlier ones back"),
        (first("ts").replace("SELECT k, s, rn", "SELECT MAX(s)", 1), "takes the earlier ones back"),
        (first("ts DESC", "rn <= 2").replace("k, s, rn", "k, s", 1), "SELECT rn, too"),
        (first("s DESC, k"), "together"),
        (first("s NULLS LAST"), "NULLS LAST"),
        (first("ts", table="t UNION ALL SELECT 1"), "OVER|UNION|known"),
        (first("ts", table="(SELECT * FROM t UNION ALL SELECT * FROM t) AS q"), "not known"),
        ("SELECT SUM(DISTINCT l) FROM t", "collect_set"),
    ],
)
def test_other_ranks_of_a_stream_are_refused(sql: str, problem: str) -> None:
    """With what to do instead."""
    with pytest.raises(SqlError, match=problem):
        stream(sql)


def test_distinct_values_are_collected() -> None:
    """Spark's streams have no COUNT(DISTINCT x)."""
    text, _ = stream(
        "SELECT COUNT(DISTINCT s) AS a, COUNT(DISTINCT k) FILTER (WHERE l > 1) AS b, COUNT(DISTINCT k, s) AS c FROM t"
    )
    assert "CAST(size(collect_set(s)) AS BIGINT) AS a" in text
    assert "CAST(size(collect_set(k) FILTER(WHERE l > 1)) AS BIGINT) AS b" in text
    assert "collect_set(CASE WHEN (k) IS NOT NULL AND (s) IS NOT NULL THEN struct(k, s) END)" in text
