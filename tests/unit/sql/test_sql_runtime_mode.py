"""`execution.runtime-mode`: which queries are streams. Without Spark."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.parser.parse import parse_script
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.queries.catalog import Catalog, View
from dynamic_kafka.sql.queries.queries import Queries
from dynamic_kafka.sql.tables.table import table_of

ENDED = "'scan.bounded.mode' = 'latest-offset'"


@pytest.fixture
def catalog() -> Catalog:
    """Two tables with an end, one without, and views of them; `rates` is a stream of Spark."""
    streams = {"`rates`": True, "`constants`": False}

    def table(name: str) -> Any:
        if name not in streams:
            raise AnalysisException("not found")
        return Mock(isStreaming=streams[name])

    spark: Any = Mock()
    spark.table = table
    made = Queries(spark).catalog
    more = {"ended": ENDED, "by_spark": "'endingOffsets' = 'latest'", "endless": "'format.on-error' = 'skip'"}
    for name, option in more.items():
        ddl = (
            f"CREATE TABLE {name} (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', "
            f"'properties.bootstrap.servers' = 'localhost:9092', 'scan.startup.mode' = 'earliest-offset', {option})"
        )
        (statement,) = parse_script(ddl)
        assert isinstance(statement, CreateTable)
        made.tables[name] = table_of(statement.definition)
    made.views["v"] = View("v", "SELECT * FROM ended")
    made.views["w"] = View("w", "SELECT * FROM v UNION ALL SELECT * FROM endless")
    made.views["df"] = View("df", Mock(isStreaming=True))
    return made


@pytest.mark.parametrize(
    ("query", "streaming"),
    [
        ("SELECT count(*) FROM ended", False),
        ("SELECT * FROM ended JOIN by_spark USING (id)", False),
        ("SELECT * FROM Endless", True),
        ("SELECT * FROM ended WHERE id IN (SELECT id FROM endless)", True),
        ("SELECT * FROM v", False),
        ("WITH x AS (SELECT * FROM w) SELECT * FROM x", True),
        ("SELECT * FROM v JOIN df USING (id)", True),
        (f"SELECT * FROM endless /*+ OPTIONS({ENDED}) */", False),
        (f"SELECT endless.id FROM endless /*+ OPTIONS({ENDED}) */ WHERE endless.id > 1", False),
        (f"SELECT * FROM endless /*+ OPTIONS({ENDED}) */ UNION ALL SELECT * FROM endless", True),
        ("SELECT * FROM ended /*+ OPTIONS('scan.bounded.mode' = 'unbounded') */", True),
        ("SELECT * FROM ended JOIN constants USING (id)", False),
        ("SELECT * FROM ended JOIN rates USING (id)", True),
        ("SELECT * FROM ended JOIN lake.db.endless_too USING (id)", False),
        ("SELECT * FROM ended JOIN lake.db.endless USING (id)", False),
        ("WITH endless AS (SELECT * FROM ended) SELECT * FROM endless", False),
        ("SELECT 1", False),
    ],
)
def test_a_query_is_a_stream_if_a_table_has_no_end(catalog: Catalog, query: str, *, streaming: bool) -> None:
    """Also through views and WITH, with the options of a hint, and beside streams of Spark."""
    assert catalog.follows(query) is streaming
    catalog.config.set("execution.runtime-mode", "streaming")
    assert catalog.follows(query)
    catalog.config.set("execution.runtime-mode", "batch")
    assert not catalog.follows(query)


def test_which_batches_may_have_been_streams(catalog: Catalog) -> None:
    """Those that read Kafka, also through views and with the options of a hint."""
    for query in ("SELECT * FROM v", f"SELECT * FROM endless /*+ OPTIONS({ENDED}) */", "SELECT * FROM w JOIN ended"):
        assert catalog.reads_kafka(query)
    for query in ("SELECT 1", "SELECT * FROM constants", "SELECT * FROM lake.db.ended", "SELECT * FROM df"):
        assert not catalog.reads_kafka(query)


def test_a_hint_is_not_for_a_table_of_another_catalog(catalog: Catalog) -> None:
    """The environment's table with the same name is another one."""
    with pytest.raises(ConfigurationError, match=r"`lake`\.`db`\.`ended` was not created here"):
        catalog.follows("SELECT * FROM lake.db.ended /*+ OPTIONS('scan.bounded.mode' = 'unbounded') */")


def test_a_name_is_free_after_drop(catalog: Catalog) -> None:
    """For a table elsewhere, too, and for Spark's table of this name."""
    view = View("orders", "SELECT 1")
    catalog.add(("hive", "sales", "orders"), view)
    assert catalog.key(("hive", "sales", "orders")) == "orders"
    catalog.drop("orders")
    with pytest.raises(ConfigurationError, match="was not created here"):
        catalog.key(("hive", "sales", "orders"))


@pytest.mark.parametrize("name", [("hive", "sales", "orders"), ("sales", "orders")])
def test_a_table_hides_none_of_spark(catalog: Catalog, name: tuple[str, ...]) -> None:
    """Under none of the names by which queries may call it, also with USE."""
    existing = {"`sales`.`orders`"}
    catalog._spark.catalog.tableExists = existing.__contains__  # type: ignore[assignment,method-assign]
    with pytest.raises(ConfigurationError, match=r"'sales\.orders' exists already in Spark"):
        catalog.check_new(name, if_not_exists=False)
    catalog.check_new(("orders",), if_not_exists=False)
    catalog.databases.create(("sales",), if_not_exists=False)
    catalog.databases.use(("sales",), catalog=False)
    with pytest.raises(ConfigurationError, match=r"'sales\.orders' exists already in Spark"):
        catalog.check_new(("orders",), if_not_exists=False)


def test_environments_of_a_session_wait_for_each_other() -> None:
    """Temporary views belong to the session."""
    one, other = Mock(), Mock()
    assert Queries(one).lock is Queries(one).catalog.lock is not Queries(other).lock
