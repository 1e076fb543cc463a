"""Which conditions of a query are comparisons of a table's columns with constants."""

from __future__ import annotations

import pytest

from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.queries.pushed_conditions import conditions_of

COLUMNS = frozenset(("a", "b", "off", "ts", "flag", "s"))


def found(query: str) -> list[str]:
    """Return the conditions on the table `t`, as texts."""
    place = query.index(" t ") + 1
    conditions = conditions_of(parse_query(query.strip()), place, COLUMNS)
    return [
        " OR ".join(f"{c} {sign} {', '.join(given)}".rstrip() for c, sign, given in any_of) for any_of in conditions
    ]


@pytest.mark.parametrize(
    ("where", "conditions"),
    [
        ("off > 5", ["off > 5"]),
        ("5 <= OFF", ["OFF >= 5"]),
        ("a = b AND t.off IN (1, 2) AND off <> -1", ["off in 1, 2", "off != -1"]),
        ("(off BETWEEN 1 AND 1 + 2)", ["off >= 1", "off <= 1 + 2"]),
        ("ts BETWEEN NOW() - INTERVAL '1' HOUR AND NOW()", ["ts >= NOW() - INTERVAL '1' HOUR"]),
        (
            "CURRENT_TIMESTAMP - INTERVAL '1 02' DAY TO HOUR < ts",
            ["ts > CURRENT_TIMESTAMP() - INTERVAL '1 02' DAY TO HOUR"],
        ),
        ("ts >= CAST('2024-01-01' AS TIMESTAMP_LTZ(3))", ["ts >= CAST('2024-01-01' AS TIMESTAMP_LTZ(3))"]),
        ("flag AND s LIKE 'it''s%'", ["flag = TRUE", "s starts with 'it''s'"]),
        ("NOT flag", ["flag = FALSE"]),
        ("off IS NULL AND s IS NOT NULL", ["off is null", "s is not null"]),
        ("off > 5 OR (a = 1 OR b IS NULL) OR flag", ["off > 5 OR a = 1 OR b is null OR flag = TRUE"]),
        ("off = 9 OR (off BETWEEN 1 AND 2 AND RAND() < 1)", ["off = 9 OR off >= 1", "off = 9 OR off <= 2"]),
        (
            "(a = 1 AND b = 2) OR (a = 3 AND off = 4)",
            ["a = 1 OR a = 3", "a = 1 OR off = 4", "b = 2 OR a = 3", "b = 2 OR off = 4"],
        ),
    ],
)
def test_comparisons_with_constants_are_found(where: str, conditions: list[str]) -> None:
    """Among those that WHERE joins by AND, whatever the others are. NOW() is only taken for a lower bound."""
    assert found(f"SELECT * FROM t WHERE {where}") == conditions


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t WHERE off > 5 OR a = 1 OR s LIKE '_'",
        "SELECT * FROM t WHERE NOT off > 5",
        "SELECT * FROM t WHERE " + " OR ".join(["(a > 1 AND b > 1)"] * 7),
        "SELECT * FROM t WHERE (a > 1 OR b > 1) IS NULL AND (off > 5) IS NOT NULL",
        "SELECT * FROM t , u WHERE t.off > 5 OR u.a = 1",
        "SELECT * FROM u LEFT JOIN t ON u.a = t.a WHERE t.off IS NULL OR t.off > 5",
        "SELECT * FROM t WHERE off > a",
        "SELECT * FROM t WHERE off > RAND() * 10",
        "SELECT * FROM t WHERE off + 1 > 5",
        "SELECT * FROM t WHERE off IN (SELECT 1)",
        "SELECT * FROM t WHERE off > (SELECT MAX(x) FROM u)",
        "SELECT * FROM t WHERE s > '\\n'",
        "SELECT * FROM t WHERE s LIKE 'a%b%' AND s LIKE '_a%' AND s LIKE 'a!%%' ESCAPE '!'",
        "SELECT * FROM t WHERE ts = NOW() AND ts < CURRENT_TIMESTAMP AND ts > NOW() - INTERVAL '1' MONTH",
        "SELECT * FROM t WHERE ts > LOCALTIMESTAMP AND ts > CAST(NOW() AS TIMESTAMP(3))",
        "SELECT * FROM t WHERE s NOT LIKE 'a%' AND off NOT IN (1) AND off NOT BETWEEN 1 AND 2 AND NOT s LIKE 'a%'",
        "FROM t |> LIMIT 10 |> WHERE off > 5",
        "FROM t |> SELECT a, off - 100 AS off |> WHERE off < 5",
        "FROM t |> AGGREGATE MAX(a) AS off GROUP BY s |> WHERE off > 5",
        "SELECT off > 5 FROM t ",
        "SELECT a, COUNT(*) FROM t GROUP BY a HAVING MAX(off) > 5",
        "SELECT * FROM u JOIN t ON t.off > 5 AND u.a = t.a",
        "SELECT * FROM u JOIN t ON u.a = t.a WHERE off > 5",
        "SELECT * FROM (SELECT * FROM t ) WHERE off > 5",
        "SELECT * FROM t TABLESAMPLE (10 ROWS) WHERE off > 5",
        "SELECT * FROM t AS x (off, ts, a) WHERE off > 5",
        "SELECT * FROM t AS flag WHERE flag.off > 5",
        "SELECT * FROM u WHERE EXISTS (SELECT * FROM t WHERE t.a = u.a) AND u.off > 5",
        "SELECT * FROM t AS o JOIN r FOR SYSTEM_TIME AS OF o.ts AS v ON o.a = v.a WHERE o.off > 5",
        "SELECT * FROM TABLE(TUMBLE(TABLE t , DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE off > 5",
    ],
)
def test_others_are_left_to_spark(query: str) -> None:
    """They may be of another table or another part of the query, hold for a NULL, or change from run to run."""
    assert found(query) == []


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_a_where_after_a_join_holds_for_the_table_below_it(join: str) -> None:
    """With the name of the table: without a row of the table the column is NULL, and no comparison is true."""
    assert found(f"SELECT * FROM u {join} t ON u.a = t.a WHERE t.off > 5 AND u.b > 1") == ["off > 5"]
    assert found(f"SELECT * FROM t AS x {join} u ON u.a = x.a WHERE x.off > 5 AND t.off > 1") == ["off > 5"]
