"""Which queries over `upsert-kafka` tables need the old row of a change, without Spark."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from tests.unit.sql.tables.test_sql_options import KAFKA, UPSERT, table

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.queries.catalog import Catalog, View
from dynamic_kafka.sql.queries.changes import rows_for

CURRENT = table(UPSERT, "id INT, n STRING, PRIMARY KEY (id) NOT ENFORCED")
FACTS = table(KAFKA, "id INT, n STRING, x STRING")
VIEWS = {
    "kept": View("kept", "SELECT * FROM rows WHERE id > 0"),
    "turned": View("turned", "SELECT * FROM rows", ("n", "id", "row_kind")),
    "again": View("again", "SELECT * FROM turned"),
    "changed": View("changed", "SELECT LENGTH(n) AS id, * EXCEPT (id) FROM rows"),
    "listed": View("listed", "SELECT LENGTH(n), * FROM rows", ("id", "old", "n", "row_kind")),
    "filtered": View("filtered", "WITH w AS (SELECT * FROM rows) SELECT * FROM (SELECT * FROM w WHERE n > 'a')"),
    "both": View("both", "SELECT * FROM rows UNION ALL SELECT * FROM changed"),
    "on_keys": View("on_keys", "SELECT r.* FROM rows r JOIN facts f ON r.id = f.id AND f.x > '' WHERE f.x > 'a'"),
    "using_keys": View("using_keys", "SELECT r.* FROM rows r JOIN facts f USING (id)"),
    "outer_join": View("outer_join", "SELECT r.* FROM rows r LEFT JOIN facts f ON r.n = f.n"),
    "on_values": View("on_values", "SELECT r.* FROM rows r JOIN facts f ON r.n = f.n"),
    "using_values": View("using_values", "SELECT r.* FROM rows r JOIN facts f USING (n)"),
    "on_a_view": View("on_a_view", "SELECT r.* FROM facts f JOIN turned r ON r.n = f.id AND r.id = f.x"),
    "on_its_right": View("on_its_right", "SELECT r.* FROM facts f LEFT JOIN rows r ON r.n = f.n"),
    "by_where": View("by_where", "SELECT r.* FROM rows r, facts f WHERE r.n = f.n"),
    "circle": View("circle", "SELECT * FROM circle UNION ALL SELECT * FROM rows"),
}


@pytest.fixture
def catalog() -> Catalog:
    """A table `rows` with the key `id` and the value `n`, and views of it."""
    made = Catalog(Mock(), Mock())
    made.tables["rows"] = CURRENT
    made.tables["facts"] = FACTS
    made.views |= VIEWS
    return made


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM rows",
        "SELECT id + 1, n FROM rows WHERE id > 1",
        "SELECT id, n FROM kept",
        "SELECT * FROM kept WHERE id < 9",
        "SELECT n, id FROM turned WHERE n > 1",
        "SELECT n, id FROM again",
        "SELECT * FROM turned",
        "SELECT 1, 'a' FROM changed",
        "SELECT * FROM on_keys",
        "SELECT * FROM using_keys",
        "SELECT * FROM outer_join",
    ],
)
def test_what_depends_on_keys_alone_needs_no_old_rows(catalog: Catalog, query: str) -> None:
    """Also if a view has other names for them."""
    rows = Mock()
    assert rows_for(CURRENT, query, None, catalog, rows) is rows.return_value


@pytest.mark.parametrize(
    "query",
    [
        "SELECT LENGTH(n), n FROM rows",
        "SELECT id, n FROM turned",
        "SELECT id, n FROM again",
        "SELECT id, n FROM changed",
        "SELECT * FROM changed",
        "SELECT id, n FROM listed",
        "SELECT id, 'a' FROM both",
    ],
)
def test_a_key_is_not_made_of_values(catalog: Catalog, query: str) -> None:
    """The row with the old key would stay, whatever a view calls the value."""
    with pytest.raises(ConfigurationError, match="When n changes, the row with the old key would stay"):
        rows_for(CURRENT, query, None, catalog, Mock())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, n FROM rows WHERE n > 'a'",
        "SELECT n, id FROM turned WHERE id > 'a'",
        "SELECT 1, 'a' FROM changed WHERE id > 1",
        "SELECT 1, 'a' FROM listed WHERE id IS NOT NULL",
        "SELECT id, n FROM filtered",
        "SELECT 1, 'a' FROM both WHERE id > 1",
        "SELECT 1, 'a' FROM circle WHERE n > 'a'",
        "SELECT * FROM on_values",
        "SELECT * FROM using_values",
        "SELECT * FROM on_a_view",
        "SELECT * FROM on_its_right",
        "SELECT * FROM by_where",
    ],
)
def test_a_condition_is_on_keys_alone(catalog: Catalog, query: str) -> None:
    """A row that no longer satisfies it would stay, also below views and in sub-queries."""
    with pytest.raises(ConfigurationError, match="the condition on n would stay"):
        rows_for(CURRENT, query, None, catalog, Mock())
