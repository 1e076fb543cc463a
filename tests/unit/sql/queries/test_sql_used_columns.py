"""Which columns a query can use."""

from __future__ import annotations

import pytest

from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.queries.used_columns import used_names, with_columns
from dynamic_kafka.sql.tables.definition import ComputedColumn, PhysicalColumn, TableDefinition, Watermark
from dynamic_kafka.sql.tables.types import FlinkType

_INT, _TIME = FlinkType("INT"), FlinkType("TIMESTAMP", (3,))
TABLE = TableDefinition(
    ("t",),
    (
        PhysicalColumn("a", _INT),
        PhysicalColumn("b", _INT),
        PhysicalColumn("c", _INT),
        PhysicalColumn("Größe", _INT),
        PhysicalColumn("ts", _TIME),
        ComputedColumn("twice", "`B` * 2"),
        ComputedColumn("more", "twice + 1"),
    ),
    watermark=Watermark("ts", "ts", "0 SECOND"),
)


def used(query: str, *, streaming: bool = False) -> list[str] | None:
    """Return the columns of TABLE that a query can use; None for all."""
    parsed = parse_query(query)
    names = used_names(parsed, query)
    return None if names is None else [c.name for c in with_columns(TABLE, names, streaming=streaming).columns]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT a FROM t", ["a"]),
        ("SELECT A, t.`b` FROM T WHERE c > 1", ["a", "b", "c"]),
        ("SELECT COUNT(*) FROM t", []),
        ("SELECT COUNT(*) FROM t -- a", ["a"]),
        ("FROM t |> SELECT a", ["a"]),
        ("SELECT more FROM t", ["b", "twice", "more"]),
        ("SELECT `größe` FROM t", ["Größe"]),
        ("SELECT x FROM (SELECT a AS x, b FROM t) WHERE x > 0", ["a", "b"]),
        ("SELECT * FROM (SELECT a FROM t)", ["a"]),
        ("WITH w AS (SELECT a FROM t) SELECT * FROM w", ["a"]),
        ("SELECT u.a FROM u JOIN t USING (b)", ["a", "b"]),
        ("SELECT a FROM t WHERE EXISTS (SELECT * FROM u WHERE u.z = t.c)", ["a", "c"]),
        ("SELECT a FROM t UNION ALL SELECT b FROM t", ["a", "b"]),
        ("SELECT a FROM t JOIN cat.db.s AS s ON s.id = t.b", ["a", "b"]),
        ("SELECT a FROM t JOIN temporary_view_of_spark AS v ON v.a = t.a", ["a"]),
        ("SELECT a FROM t, my_function(TABLE(t))", ["a"]),
        (
            "SELECT SUM(a) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_end",
            ["a", "ts"],
        ),
        ("SELECT a FROM TABLE(SESSION(DATA => TABLE t PARTITION BY b, TIMECOL => DESCRIPTOR(c)))", ["a", "b", "c"]),
        ("SELECT x FROM t CROSS JOIN UNNEST(a) AS n (x)", ["a"]),
    ],
)
def test_a_column_is_used_where_its_name_is_a_word(query: str, columns: list[str]) -> None:
    """Also of another table, or as an alias: a column too many costs little."""
    assert used(query) == columns


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT t.* FROM t JOIN u ON t.a = u.a",
        "SELECT COUNT(DISTINCT *) FROM t",
        "SELECT COUNT(t.*) FROM t",
        "SELECT TO_JSON(STRUCT(*)) FROM t",
        "SELECT * FROM (SELECT a FROM t) AS x JOIN t ON x.a = t.a",
        "SELECT * FROM (SELECT a FROM t) AS x, LATERAL (SELECT * FROM t)",
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM (SELECT * FROM t))",
        "TABLE t",
        "SELECT x FROM t AS r (x, y, z, v, w, p, q)",
        "SELECT a FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS w (a, b, c, d, e, f, g, h, i, j)",
        "SELECT a FROM t NATURAL JOIN u",
        "SELECT IDENTIFIER('b') FROM t",
        "SELECT a FROM t PIVOT (SUM(b) FOR c IN (1, 2))",
        "FROM t |> WHERE b > 1",
    ],
)
def test_a_query_that_may_use_columns_without_their_names_uses_all(query: str) -> None:
    """Stars, joins by all common names, new names by position, functions of tables, and names made of texts."""
    assert used(query) is None


def test_a_stream_keeps_the_time_of_its_watermark() -> None:
    """It follows all rows. A batch has no watermark."""
    assert used("SELECT a FROM t", streaming=True) == ["a", "ts"]
    assert used("SELECT a FROM t", streaming=False) == ["a"]


def test_a_column_is_kept_if_only_the_translation_names_it_or_its_name_is_no_word() -> None:
    """A temporal join is translated to a SELECT that names all columns of a table."""
    table = TableDefinition(("t",), tuple(PhysicalColumn(name, _INT) for name in ("a", "b", "c", "a b", "x$")))
    names = used_names(parse_query("SELECT a FROM t"), "SELECT a, struct(`t`.`b`) FROM t")
    assert names is not None
    assert [c.name for c in with_columns(table, names, streaming=False).columns] == ["a", "b", "a b", "x$"]


@pytest.mark.parametrize(("column", "word"), [("s", "ſ"), ("k", "\u212a"), ("i", "ı"), ("i", "İ"), ("ß", "ß")])
def test_names_that_are_one_name_for_spark_are_one(column: str, word: str) -> None:
    """Spark compares names as Java's equalsIgnoreCase."""
    table = TableDefinition(("t",), (PhysicalColumn(column, _INT), PhysicalColumn("other", _INT)))
    query = f"SELECT `{word}` FROM t"
    names = used_names(parse_query(query), query)
    assert names is not None
    assert [c.name for c in with_columns(table, names, streaming=False).columns] == [column]
