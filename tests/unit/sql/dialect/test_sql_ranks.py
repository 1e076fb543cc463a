"""Ranks and aggregations with DISTINCT of a stream, as Spark's aggregations, without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unittest.mock import Mock

import pytest
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, StringType, TimestampType
from sqlglot import exp
from tests.unit.sql.connectors.test_sql_scan import OPTIONS
from tests.unit.sql.tables.test_sql_options import table

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.sql.connectors.all import table_of
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.dialect.translate import translate_stream
from dynamic_kafka.sql.dialect.writer import RankKey
from dynamic_kafka.sql.queries.catalog import View
from dynamic_kafka.sql.queries.known import KnownTables, check_key
from dynamic_kafka.sql.tables.definition import PhysicalColumn, TableDefinition
from dynamic_kafka.sql.tables.types import FlinkType

COLUMNS: dict[str, DataType] = {
    "i": IntegerType(),
    "l": LongType(),
    "x": DoubleType(),
    "s": StringType(),
    "k": StringType(),
    "n": LongType(),
    "ts": TimestampType(),
    "pt": TimestampType(),
}
VIEWS = {"recent": "SELECT k, s, ts FROM t WHERE i > 0", "counts": "SELECT k, COUNT(*) AS n FROM t GROUP BY k"}


def ask(sql: str) -> DataType | None:
    """The type of a column."""
    sql = f"SELECT{sql.partition(') SELECT')[2]}" if sql.startswith("WITH ") else sql
    column = re.match(r"SELECT (?:\w+\.)?`?(\w+)`? FROM", sql)
    return COLUMNS.get(column[1]) if column else None


class Streams:
    """Tables of which each has an offset, `ts` as its event time, and `pt` as its processing time."""

    def __init__(self) -> None:
        self.first: list[tuple[str, list[str]]] = []

    def times_of(self, query: str) -> list[tuple[str, str]]:
        """It is `ts` or `pt`."""
        times = {"ts": "event", "pt": "processing"}
        return [(name, times.get(name, "")) for name in ([*COLUMNS] if query[7] == "*" else query.split()[1:2])]

    def first_rows(self, query: str, keys: Sequence[str]) -> str:
        """Note what is asked for."""
        self.first.append((query, [*keys]))
        return "first_rows"

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


RANKED = (
    "SELECT k, s FROM (SELECT k, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM {}) WHERE rn = 1"
)
OF_WINDOW = (
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY l) AS rn "
    "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
)
CUMULATE = "TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR))"


def test_a_rank_reads_no_other_table_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a table behind a part of WITH, not a part of WITH behind a view's table, and no view for a table of Spark."""
    with pytest.raises(SqlError, match="Name the columns of t in its SELECT"):
        stream(f"WITH t (k, s, ts) AS (SELECT k, s, ts FROM u) {RANKED.format('t')}")
    monkeypatch.setitem(VIEWS, "latest", RANKED.format("orders"))
    assert "orders_in_order" in stream("WITH other AS (SELECT 1 AS x) SELECT * FROM latest")[0]
    for view in ("latest", "recent"):
        query = "SELECT * FROM latest" if view == "latest" else RANKED.format("recent")
        with pytest.raises(ConfigurationError, match=rf"`{view}` reads `\w+`, and where the query"):
            stream(f"WITH orders AS (SELECT * FROM u), t AS (SELECT * FROM u) {query}")
    numbered = "SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t"
    for part, query in (("SELECT * FROM t", RANKED.format("t")), (numbered, "SELECT * FROM t WHERE rn = 1")):
        with pytest.raises(ConfigurationError, match="`t` reads `t`, and where the query"):
            stream(f"WITH t AS ({part}) {query}")
    assert stream("SELECT * FROM lake.db.latest")[0] == "SELECT * FROM lake.db.latest"
    assert "__arrival" not in stream(RANKED.format("lake.db.t"))[0]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT a.k FROM ({OF_WINDOW}) AS a JOIN b ON a.k = b.k WHERE b.rn = 1",
        f"SELECT a.k FROM ({OF_WINDOW}) AS a RIGHT JOIN b ON a.k = b.k WHERE a.rn = 1",
        "SELECT * FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t) AS r(rn, b) WHERE rn = 1",
    ],
)
def test_the_condition_is_that_of_the_rank(sql: str) -> None:
    """The number of another table, and one of rows without a partner, are not."""
    with pytest.raises(SqlError, match="ROW_NUMBER stands in a sub-query"):
        stream(sql)


def test_windows_of_cumulate_are_not_known_by_their_start() -> None:
    """All windows of a period have it."""
    with pytest.raises(SqlError, match="GROUP BY window_end, too"):
        stream(f"SELECT window_start, COUNT(*) AS n FROM {CUMULATE} GROUP BY window_start")
    ranked = f"SELECT k, window_start, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY l) AS rn FROM {CUMULATE}"
    with pytest.raises(SqlError, match="PARTITION BY window_end, too"):
        stream(f"SELECT * FROM ({ranked}) WHERE rn = 1")


def test_the_key_of_a_rank_is_of_its_table() -> None:
    """Not a column with the same name of another one; and `t.*` has the order of arrival once."""
    inner = (
        "SELECT a.k AS id, b.k AS bid, ROW_NUMBER() OVER (PARTITION BY a.k ORDER BY a.l) AS rn FROM t AS a JOIN u AS b"
    )
    assert stream(f"SELECT id, bid FROM ({inner} ON a.i = b.i) WHERE rn = 1")[1] == [["id"]]
    assert "t.*, __arrival" not in stream(RANKED.format("(SELECT t.* FROM t) AS q"))[0]


def test_a_column_without_a_name() -> None:
    """Also one whose text has AS in it."""
    assert (
        "CAST(l AS INT) AS `EXPR$1`"
        in stream(RANKED.format("t").replace("SELECT k, s, ROW", "SELECT k, CAST(l AS INT), ROW"))[0]
    )


def test_only_tables_have_an_order_of_arrival() -> None:
    """A DataFrame, a stream of Spark, or a view with names for its columns has none that is known."""
    views = {"df": View("df", Mock()), "named": View("named", "SELECT k FROM t", ("a",))}
    datagen = table_of(
        TableDefinition(("g",), (PhysicalColumn("a", FlinkType("INT")),), options={"connector": "datagen"})
    )
    known = KnownTables(Mock(), Mock(tables={"g": datagen}, views=views), read=Mock(), keep=Mock())
    assert known.ordered("g") is None
    for name in ("df", "named", "rates"):
        with pytest.raises(ConfigurationError, match=f"rows of `{name}` arrive is not known"):
            known.ordered(name)


def test_a_name_that_a_query_has_twice_is_no_key() -> None:
    """It may be the column of the other table of a join."""
    columns = tuple(PhysicalColumn(name, FlinkType("INT", nullable=False)) for name in ("id", "bid"))
    target = table_of(
        TableDefinition(("t",), columns, primary_key=("bid",), options={"connector": "delta", "table-path": "/x"})
    )
    check_key(target, None, ["a", "k"], RankKey([frozenset({"k"})]))
    with pytest.raises(ConfigurationError, match="is not the key of the ranked rows"):
        check_key(target, None, ["k", "k"], RankKey([frozenset({"k"})]))


@pytest.mark.parametrize("time", ["pt", "pt ASC", "PROCTIME()"])
def test_the_first_rows_in_the_order_of_arrival_never_change(time: str) -> None:
    """They are what `dropDuplicates` keeps, with any condition and any calculation around them."""
    streams = Streams()
    rank = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k, i ORDER BY {time}) AS rn FROM t WHERE n > 0"
    query = f"SELECT COUNT(*) AS c FROM ({rank}) WHERE rn = 1 AND s = 'x'"
    text, _, key = translate_stream(parse_query(query), ask, streams, zone="UTC", views={})
    assert key is None
    ((asked, keys),) = streams.first
    assert keys == ["__key0", "__key1"]
    assert asked.startswith("SELECT * EXCEPT (__arrival), k AS __key0, i AS __key1 FROM `t_in_order` AS `t`")
    assert asked.endswith("WHERE n > 0")
    assert "FROM (SELECT * EXCEPT (__key0, __key1), CAST(1 AS BIGINT) AS `rn` FROM `first_rows`) WHERE s = 'x'" in text


@pytest.mark.parametrize("order", ["pt DESC", "ts", "pt, ts", "n"])
def test_other_first_rows_change(order: str) -> None:
    """A later row may be the first by another order, also by the event time."""
    streams = Streams()
    rank = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS rn FROM t"
    _, _, key = translate_stream(
        parse_query(f"SELECT k FROM ({rank}) WHERE rn = 1"), ask, streams, zone="UTC", views={}
    )
    assert key is not None
    assert not streams.first
    with pytest.raises(
        ConfigurationError, match="the rows of this rank change: a later message may have an earlier time"
    ):
        check_key(table(OPTIONS, "id STRING"), None, ["k"], key)
