"""`execution.runtime-mode`: which queries are streams. Without Spark."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException

from dynamic_kafka.sql.catalog import Catalog, View
from dynamic_kafka.sql.parser.parse import parse_script
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.table import table_of

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
    made = Catalog(spark)
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
