"""Queries such as people write for Flink (`tests/flink_answers/corpus.sql`): each has Flink's answer, or is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType
from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.dialect.arrival import ARRIVAL, differs_in_streams, inline_ranks
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.dialect.translate import translate_stream
from dynamic_kafka.sql.errors.stream import of_streams
from tests.flink_answers.corpus import CORPUS, TABLES, kafka_table, views
from tests.flink_answers.record import CORPUS_ANSWERS
from tests.spark.test_sql_against_flink import same_rows
from tests.versions import needs

pytestmark = pytest.mark.spark

REFUSED = {
    "time as text": "DATE_FORMAT",
    "a part of JSON": "JSON_QUERY",
    "JSON of columns": "JSON_OBJECT",
    "last value": "max_by",
    "collected values": "COLLECT",
    "array of values": "ARRAY_AGG",
    "Top-N": "SELECT row_num, too",
    "Top-N of counts": "upsert-kafka",
    "outer join": "no outer join of two streams",
    "IN with a sub-query": "no sub-query of a stream",
    "EXISTS": "no sub-query of a stream",
    "temporal join": "temporal joins.*materialize",
    "outer temporal join": "temporal joins.*materialize",
    "lookup join": "looks rows up.*materialize",
    "running total": "no OVER in streams",
    "running average of rows": "no OVER in streams",
    "value of the row before": "no OVER in streams",
    "MATCH_RECOGNIZE": "transformWithState",
    "aggregation of an aggregation": "upsert-kafka",
    "aggregation of a deduplication": "takes the earlier ones back",
    "ORDER BY time": "ORDER BY",
    "LIMIT": "LIMIT",
}
"""The queries that a stream of Spark cannot calculate, with a word of what is said."""
FLINKS_MISTAKES = {
    "GROUP BY HOP": "windows behind a pause are missing; 'HOP of seconds' is the same without the mistake"
}
UNKNOWN = {"SESSION", "GROUP BY SESSION"}
"""Flink cannot calculate them in a batch. `test_sql_queries.test_sessions` has what they have to be."""


@pytest.fixture
def streams(env: TableEnvironment) -> TableEnvironment:
    """An environment with the tables in Kafka, which nothing connects to."""
    for name in TABLES:
        env.execute_sql(kafka_table(name))
    for view in views():
        env.execute_sql(view)
    return env


def problem_of(env: TableEnvironment, query: str) -> Exception | None:
    """What is said when a query is started as a stream, without starting it; None if it runs."""
    try:
        rows = env.sql_query(query)
    except (SqlError, ConfigurationError) as error:
        return error
    assert rows.isStreaming
    jvm: Any = rows.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    errors = []
    for mode in (modes.Append(), modes.Update()):
        try:
            checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
        except AnalysisException as error:
            errors.append(error)
        else:
            return None
    found = of_streams(errors)
    assert isinstance(found, ConfigurationError), (query, found)
    return found


@pytest.mark.slow
def test_each_runs_as_a_stream_or_is_refused(streams: TableEnvironment) -> None:
    """By its name and with Spark's way; no error of Spark is left."""
    problems = {name: problem_of(streams, query) for name, query in CORPUS.items()}
    refused = {name: str(problem) for name, problem in problems.items() if problem is not None}
    assert refused.keys() == REFUSED.keys()
    for name, words in REFUSED.items():
        assert re.search(words, refused[name], re.DOTALL), (name, refused[name])
    assert len(refused) <= len(CORPUS) / 4


# --- answers ------------------------------------------------------------------------------------------------------------


class Arrivals:
    """Tables with rows that do not change, and the places of the rows as offsets."""

    def times_of(self, query: str) -> list[tuple[str, str]]:
        """Whether it is the event time of a table."""
        name = query.split()[1]
        return [(name, "event" if any(name == table.get("time") for table in TABLES.values()) else "")]

    def first_rows(self, query: str, keys: Sequence[str]) -> str:
        """These tables have no processing time."""
        raise AssertionError(query, keys)

    def view(self, name: str) -> exp.Query | None:
        """Return no query: views are tables here."""
        return None

    def ordered(self, name: str) -> str | None:
        """Return the table with offsets."""
        return f"{name}_in_order" if name in TABLES else None


@pytest.fixture
def tables(spark: SparkSession, env: TableEnvironment) -> Iterator[TableEnvironment]:
    """An environment with tables of a few rows."""
    env.get_config().set("execution.runtime-mode", "batch")
    for name in TABLES:
        rows = table_of_rows(spark, name)
        rows.createOrReplaceTempView(f"{name}_in_order")
        env.create_temporary_view(name, rows.drop(ARRIVAL))
    for view in views():
        env.execute_sql(view)
    yield env
    for name in TABLES:
        spark.catalog.dropTempView(f"{name}_in_order")


def table_of_rows(spark: SparkSession, name: str) -> DataFrame:
    """The rows of a table, with the columns that a table of Kafka has."""
    table = TABLES[name]
    types = {column: type_.replace("TIMESTAMP(3)", "TIMESTAMP_NTZ") for column, type_ in table["columns"].items()}
    types = {column: re.sub(r"^ROW<(.*)>$", r"STRUCT<\1>", type_) for column, type_ in types.items()}
    rows = [
        (place, json.dumps({column: _named(value, types[column]) for column, value in zip(types, row, strict=True)}))
        for place, row in enumerate(table["rows"])
    ]
    schema = ", ".join(f"`{column}` {type_}" for column, type_ in types.items())
    found = spark.createDataFrame(rows, f"{ARRIVAL} BIGINT, document STRING").coalesce(1)
    found = found.select(ARRIVAL, F.from_json("document", schema).alias("row")).select(ARRIVAL, "row.*")
    computed = {"TO_TIMESTAMP_LTZ(ms, 3)": "timestamp_millis(ms)", "PROCTIME()": "current_timestamp()"}
    for column, text in table.get("computed", {}).items():
        found = found.withColumn(column, F.expr(computed.get(text, text)))
    return found.select(*types, *table.get("computed", {}), ARRIVAL)


def _named(value: Any, type_: str) -> Any:
    """Return a row as an object of JSON."""
    if not type_.startswith("STRUCT<") or value is None:
        return value
    names = [part.split()[0] for part in type_.removeprefix("STRUCT<").removesuffix(">").split(", ")]
    return dict(zip(names, value, strict=True))


def as_stream(spark: SparkSession, env: TableEnvironment, query: str) -> DataFrame:
    """The rows of a query as a stream calculates them, over tables that do not change."""

    def type_of(sql: str) -> DataType | None:
        try:
            return spark.sql(sql).schema.fields[0].dataType
        except AnalysisException:
            return None

    env.sql_query(query)  # Spark knows its tables then
    return spark.sql(translate_stream(parse_query(query), type_of, Arrivals(), zone="UTC", views={})[0])


def _of_streams_only(query: str) -> bool:
    tree = parse_query(query).tree
    return tree is not None and differs_in_streams(inline_ranks(tree.copy(), Arrivals()))


def check(spark: SparkSession, tables: TableEnvironment, names: list[str]) -> None:
    """Compare the answers to queries with those of Flink."""
    answers = json.loads(CORPUS_ANSWERS.read_text())
    different = []
    for name in names:
        answer = answers[CORPUS[name]]
        rows = (
            as_stream(spark, tables, CORPUS[name]) if _of_streams_only(CORPUS[name]) else tables.sql_query(CORPUS[name])
        )
        found = [list(row) for row in rows.collect()]
        if not same_rows(answer["rows"], found, ordered=False):
            different.append((name, answer["rows"], found))
    assert different == [], "\n".join(map(str, different))


RUNNING = [name for name in CORPUS if name not in {*REFUSED, *FLINKS_MISTAKES, *UNKNOWN, "options"}]


@needs("ROW_NUMBER")
def test_ranks_distinct_counts_and_cumulated_windows_beside_flink(
    spark: SparkSession, tables: TableEnvironment
) -> None:
    """What a stream calculates in other words than a batch, and the windows that Spark does not have."""
    check(spark, tables, [name for name in RUNNING if _of_streams_only(CORPUS[name]) or "CUMULATE" in name])


@pytest.mark.slow
def test_all_others_beside_flink(spark: SparkSession, tables: TableEnvironment) -> None:
    """The same rows."""
    check(spark, tables, [name for name in RUNNING if not _of_streams_only(CORPUS[name]) and "CUMULATE" not in name])
