"""Names of tables with a catalog and a database, of which the environment has only the names."""

from __future__ import annotations

import pytest
from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.queries.names import Databases, key_of, qualified_tables, tables_here, unqualified
from dynamic_kafka.sql.tables.definition import Name, database_of

PLACES: dict[str, Name] = {"t": ("hive", "sales"), "u": ()}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (("t",), ()),
        (("default_database", "t"), ()),
        (("Default_Catalog", "Default_Database", "t"), ()),
        (("default_catalog", "sales", "t"), ("sales",)),
        (("Hive", "Sales", "t"), ("hive", "sales")),
    ],
)
def test_the_place_of_a_name(name: Name, place: Name) -> None:
    """Flink's default catalog and database are no place of their own."""
    assert database_of(name) == place


def test_a_table_is_found_under_the_names_of_its_creation() -> None:
    """By its last part, or with as many parts before it as one likes."""
    for name in (("T",), ("sales", "t"), ("HIVE", "Sales", "T"), ("default_database", "t")):
        assert key_of(name, PLACES) == "t"
    assert key_of(("unknown",), PLACES) == "unknown"
    for name in (("other", "t"), ("hive", "t"), ("sales", "u"), ("sales", "unknown")):
        with pytest.raises(ConfigurationError, match="was not created here"):
            key_of(name, PLACES)


def test_tables_of_a_query() -> None:
    """Only those of the environment: the others are of Spark's catalogs."""
    text = "SELECT * FROM hive.sales.t AS a JOIN `sales`.T b ON a.x = b.x JOIN t JOIN other.t JOIN sales.u"
    assert qualified_tables(parse_query(text), PLACES) == {text.index("t AS"): "t", text.index("T b"): "t"}


def test_databases_are_names() -> None:
    """Of new tables; a database of another catalog is not one."""
    databases = Databases()
    databases.use(("default_catalog",), catalog=True)
    databases.create(("Sales",), if_not_exists=False)
    databases.create(("default_catalog", "sales"), if_not_exists=True)
    databases.use(("sales",), catalog=False)
    assert databases.current == ("sales",)
    databases.use(("default_catalog", "default_database"), catalog=False)
    assert len(databases.current) == 0
    for name, catalog, problem in (
        (("other",), False, "Database `other` was not created here"),
        (("hive",), True, "Catalog `hive` does not exist here"),
        (("hive", "sales"), False, "Catalog `hive` does not exist here"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            databases.use(name, catalog=catalog)
    with pytest.raises(ConfigurationError, match="exists already"):
        databases.create(("SALES",), if_not_exists=False)
    with pytest.raises(ConfigurationError, match=r"of Spark \(spark.sql.catalog.<name>\)"):
        databases.create(("lakehouse", "bronze"), if_not_exists=True)


def test_names_of_the_environment_in_a_query() -> None:
    """They are one name; those of Spark's catalogs stay."""
    tree = parse_query("SELECT * FROM hive.sales.t JOIN default_database.u JOIN other.t JOIN lake.db.v").tree
    assert tree is not None
    names = [table.sql() for table in unqualified(tree, PLACES).find_all(exp.Table)]
    assert sorted(names) == ["lake.db.v", "other.t", "t", "u"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM T JOIN sales.t AS x", {"t"}),
        ("SELECT * FROM lake.db.t", set()),
        ("WITH t AS (SELECT * FROM u) SELECT * FROM t", {"u"}),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", {"t"}),
        ("WITH RECURSIVE t AS (SELECT * FROM u UNION ALL SELECT a + 1 FROM t) SELECT * FROM t", {"u"}),
        ("SELECT * FROM u WHERE EXISTS (WITH u AS (SELECT * FROM v) SELECT * FROM u)", {"u", "v"}),
        ("SELECT T2.t FROM `My-T` AS T2 JOIN u ON T2.id = u.id", {"my-t", "u"}),
        ("SELECT total FROM (SELECT amount AS total FROM orders)", {"orders"}),
        ("SELECT 1 UNION ALL SELECT a FROM t", {"t"}),
        ("WITH w AS (SELECT * FROM t) SELECT * FROM w WHERE a IN (SELECT b FROM u)", {"t", "u"}),
        ("SELECT 'FROM x' -- FROM y\nFROM t", {"t"}),
    ],
)
def test_which_names_of_a_query_are_of_the_environment(query: str, names: set[str]) -> None:
    """In lower case; not aliases, not those of its WITH, and not those of Spark's catalogs."""
    assert tables_here(query, PLACES) == names


def test_of_a_query_that_nobody_understands_every_word_may_be_a_table() -> None:
    """Such as one that only Spark knows."""
    query = "FROM t |> AGGREGATE magic(a) GROUP BY b |> PIVOT ??"
    assert tables_here(query, {}) >= {"from", "t", "aggregate", "magic", "a"}
