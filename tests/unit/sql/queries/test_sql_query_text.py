"""What is told of a query by its text."""

from __future__ import annotations

import pytest

from dynamic_kafka.sql.queries.text import filters_groups, is_projection, selects_all, uses_row_kind, with_row_kind


@pytest.mark.parametrize(
    ("query", "carrying"),
    [
        ("SELECT id, n FROM t", "SELECT id, n, row_kind FROM t"),
        ("select upper(n) AS m\nfrom t where id > 1", "select upper(n) AS m, row_kind from t where id > 1"),
        (
            "SELECT EXTRACT(YEAR FROM ts), trim(BOTH 'x' FROM n) FROM t AS s",
            "SELECT EXTRACT(YEAR FROM ts), trim(BOTH 'x' FROM n), row_kind FROM t AS s",
        ),
        ("SELECT ' FROM ', id FROM t", "SELECT ' FROM ', id, row_kind FROM t"),
        ("SELECT a IS DISTINCT FROM b FROM t", "SELECT a IS DISTINCT FROM b, row_kind FROM t"),
    ],
)
def test_a_projection_can_carry_a_column(query: str, carrying: str) -> None:
    """At the end of its list; the rest stays as it was written."""
    assert is_projection(query)
    assert with_row_kind(query) == carrying


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT t.*, 1 FROM t",
        "SELECT count(*) FROM t",
        "SELECT try_sum(n) FROM t",
        "SELECT every(n > 1), some(n > 1) FROM t",
        "SELECT histogram_numeric(n, 5) FROM t",
        "SELECT count_min_sketch(n, 0.1, 0.9, 1), hll_sketch_agg(n) FROM t",
        "SELECT id, sum(n) FROM t GROUP BY id",
        "SELECT DISTINCT id FROM t",
        "SELECT id, row_number() OVER (ORDER BY n) FROM t",
        "SELECT t.id FROM t JOIN u ON t.id = u.id",
        "SELECT t.id FROM t, u",
        "SELECT id FROM t LATERAL VIEW explode(a) e AS x",
        "SELECT id FROM (SELECT * FROM t)",
        "SELECT id FROM t WHERE n IN (SELECT n FROM u)",
        "SELECT id FROM t UNION ALL SELECT id FROM u",
        "SELECT id FROM t LIMIT 1",
        "WITH w AS (SELECT 1) SELECT id FROM w",
        "FROM t SELECT id",
        "TABLE t",
        "VALUES (1)",
        "SELECT 1",
        "no query",
    ],
)
def test_what_is_no_projection(query: str) -> None:
    """A row of it is not a row of one table, or a column has no end of a list to go to."""
    assert not is_projection(query)


def test_columns_and_stars_and_having() -> None:
    """What else is asked of a query."""
    assert uses_row_kind("SELECT id FROM t WHERE t.ROW_KIND = '+I'")
    assert not uses_row_kind("SELECT 'row_kind' AS k FROM t")
    assert selects_all("SELECT id, t.* FROM t")
    assert not selects_all("SELECT *, id FROM t")
    assert not selects_all("SELECT count(*) FROM t")
    assert filters_groups("SELECT id FROM (SELECT id FROM t GROUP BY id HAVING count(*) < 2)")
    assert not filters_groups("SELECT id FROM t WHERE id < 2")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT id, count(*) FROM t GROUP BY id)",
        "WITH w AS (SELECT id, count(*) FROM t GROUP BY id) SELECT * FROM w",
        "SELECT o.* FROM o JOIN t ON o.id = t.id",
        "SELECT o.* FROM o, t",
        "SELECT DISTINCT * FROM t",
        "SELECT * FROM t WHERE id IN (SELECT max(id) FROM t)",
        "SELECT row_number() OVER (ORDER BY id), * FROM t",
        "SELECT * EXCEPT (row_kind) FROM t",
        "SELECT * FROM t AS s(a, b)",
        "SELECT * FROM t LIMIT 1",
        "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
        "SELECT * FROM t UNION ALL SELECT * FROM t",
    ],
)
def test_a_star_over_more_than_one_table_is_not_all_of_it(query: str) -> None:
    """Its rows are not those of the table: some count several of them, or are more than once in it."""
    assert not selects_all(query)


def test_a_star_over_one_table_is_all_of_it() -> None:
    """Also in an order, or with some of its rows."""
    assert selects_all("SELECT * FROM default_catalog.default_database.t AS s WHERE id > 1 ORDER BY id")
