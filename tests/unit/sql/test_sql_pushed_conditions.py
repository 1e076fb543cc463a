"""Which conditions of a query are on metadata columns alone."""

from __future__ import annotations

import pytest

from dynamic_kafka.sql.definition import MetadataColumn, PhysicalColumn, TableDefinition
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.pushed_conditions import conditions_of
from dynamic_kafka.sql.types import FlinkType

_INT = FlinkType("INT")
TABLE = TableDefinition(
    ("t",),
    (
        PhysicalColumn("a", _INT),
        MetadataColumn("off", _INT, "offset"),
        MetadataColumn("ts", FlinkType("TIMESTAMP_LTZ", (3,)), "timestamp"),
    ),
)


def found(query: str) -> tuple[str, ...]:
    """Return the conditions on TABLE."""
    return conditions_of(parse_query(query), "t", TABLE)


@pytest.mark.parametrize(
    ("where", "conditions"),
    [
        ("off > 5", ("`off` > 5",)),
        ("5 <= OFF", ("5 <= `OFF`",)),
        (
            "a = 1 AND t.off IN (1, 2) AND ts < NOW() - INTERVAL '1' HOUR",
            ("`off` IN (1, 2)", "`ts` < NOW() - INTERVAL '1' HOUR"),
        ),
        ("a = 1 AND off <> -1 AND off BETWEEN 1 AND 1 + 2", ("`off` <> -1", "`off` BETWEEN 1 AND 1 + 2")),
        ("ts >= CAST('2024-01-01' AS TIMESTAMP_LTZ(3))", ("`ts` >= CAST('2024-01-01' AS TIMESTAMP_LTZ(3))",)),
    ],
)
def test_comparisons_with_constants_are_found(where: str, conditions: tuple[str, ...]) -> None:
    """Among those that WHERE joins by AND, whatever the others are."""
    assert found(f"SELECT * FROM t WHERE {where}") == conditions


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t WHERE off > 5 OR a = 1",
        "SELECT * FROM t WHERE NOT off > 5",
        "SELECT * FROM t WHERE off IS NULL",
        "SELECT * FROM t WHERE off > a",
        "SELECT * FROM t WHERE off > RAND() * 10",
        "SELECT * FROM t WHERE off + 1 > 5",
        "SELECT * FROM t WHERE off IN (SELECT 1)",
        "SELECT * FROM t WHERE off IN (1, NULL)",
        "SELECT * FROM t WHERE off > (SELECT MAX(x) FROM u)",
        "SELECT * FROM t WHERE ts > '\\n'",
        "SELECT off > 5 FROM t",
        "SELECT a, COUNT(*) FROM t GROUP BY a HAVING MAX(off) > 5",
        "SELECT * FROM t JOIN u ON t.off > 5 AND u.a = t.a",
        "SELECT * FROM t JOIN u ON u.a = t.a WHERE off > 5",
        "SELECT * FROM t WHERE off > 5 UNION ALL SELECT * FROM t",
        "SELECT * FROM t AS l JOIN t AS r ON l.a = r.a WHERE l.off > 5",
        "SELECT * FROM (SELECT * FROM t) WHERE off > 5",
        "SELECT * FROM t TABLESAMPLE (10 ROWS) WHERE off > 5",
        "SELECT * FROM t AS x (off, ts, a) WHERE off > 5",
        "SELECT * FROM u WHERE EXISTS (SELECT * FROM t WHERE t.a = u.a) AND u.off > 5",
        "WITH t AS (SELECT 1 AS off) SELECT * FROM t WHERE off > 5",
        "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE off > 5",
    ],
)
def test_others_are_left_to_the_query(query: str) -> None:
    """They may be of another table or another part of the query, hold for a NULL, or change from row to row."""
    assert found(query) == ()


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_a_where_after_a_join_holds_for_the_table_below_it(join: str) -> None:
    """With the name of the table: without a row of the table the column is NULL, and no comparison is true."""
    assert found(f"SELECT * FROM u {join} t ON u.a = t.a WHERE t.off > 5 AND u.b > 1") == ("`off` > 5",)
    assert found(f"SELECT * FROM t AS x {join} u ON u.a = x.a WHERE x.off > 5 AND t.off > 1") == ("`off` > 5",)
