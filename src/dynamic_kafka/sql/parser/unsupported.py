"""Statements of Flink that are not supported here, and the alternative to each."""

from __future__ import annotations

import itertools

from dynamic_kafka.sql.parser.lexer import Cursor

__all__ = ["refuse_unsupported"]

_CATALOGS = (
    "Catalogs are not supported: all tables are in one environment. Configure those of others in Spark "
    "(spark.sql.catalog.<name>), and use their names in queries"
)
_FUNCTIONS = (
    "Functions cannot be created by SQL: register them with Spark (spark.udf.register), then call them in queries"
)
_JARS = "JAR files are not supported: install Python packages with pip, on the driver and on every executor"
_MODULES = "Modules are not supported: queries use Spark's functions"
_JOBS = "Jobs cannot be managed by SQL: they are Spark's streaming queries, see spark.streams.active and query.stop()"
_AGAIN = "Tables and views cannot be changed: DROP it, then CREATE it again"
_APPEND_ONLY = "Records in Kafka cannot be changed or deleted: INSERT INTO an upsert-kafka table instead"
_PLANS = "Compiled plans are not supported: Spark plans a query each time it starts"
_MODELS = "Models are not supported: call a function registered with Spark"
_PARTITIONS = "Kafka tables have no partition columns: add a column `partition` INT METADATA VIRTUAL"

_UNSUPPORTED = {
    "CREATE|DROP|ALTER|DESCRIBE|DESC CATALOG": _CATALOGS,
    "DROP|ALTER|DESCRIBE|DESC DATABASE": _CATALOGS,
    "SHOW CATALOGS|DATABASES|CURRENT": _CATALOGS,
    "SHOW TABLES|VIEWS FROM|IN": _CATALOGS,
    "SHOW CREATE CATALOG": _CATALOGS,
    "USE|LOAD|UNLOAD MODULE|MODULES": _MODULES,
    "SHOW MODULES": _MODULES,
    "SHOW FULL MODULES": _MODULES,
    "CREATE|DROP|ALTER|DESCRIBE|DESC FUNCTION": _FUNCTIONS,
    "CREATE|DROP|ALTER TEMPORARY FUNCTION|SYSTEM": _FUNCTIONS,
    "SHOW FUNCTIONS|PROCEDURES": _FUNCTIONS,
    "SHOW USER FUNCTIONS": _FUNCTIONS,
    "CALL": _FUNCTIONS,
    "REMOVE JAR": _JARS,
    "SHOW JARS": _JARS,
    "SHOW|STOP|DESCRIBE|DESC JOB|JOBS": _JOBS,
    "CREATE|DROP|ALTER|DESCRIBE|DESC MODEL": _MODELS,
    "SHOW MODELS": _MODELS,
    "CREATE|ALTER|DROP MATERIALIZED": "Materialized tables are not supported: INSERT INTO a table from a query",
    "CREATE|ALTER|DROP|DESCRIBE|DESC CONNECTION": "Connections are not supported: give a table its options in WITH",
    "SHOW CONNECTIONS": "Connections are not supported: give a table its options in WITH",
    "CREATE OR REPLACE": "OR REPLACE is not supported: DROP it, then CREATE it again",
    "REPLACE": _AGAIN,
    "ALTER": _AGAIN,
    "SHOW COLUMNS": "SHOW COLUMNS is not supported: DESCRIBE shows the columns of a table",
    "SHOW PARTITIONS": _PARTITIONS,
    "UPDATE|DELETE|TRUNCATE|MERGE|UPSERT": _APPEND_ONLY,
    "COMPILE": _PLANS,
    "EXECUTE PLAN": _PLANS,
    "ANALYZE": "ANALYZE is not supported: Kafka has no statistics about tables",
}
_SEQUENCES = {
    words: problem
    for pattern, problem in _UNSUPPORTED.items()
    for words in itertools.product(*(part.split("|") for part in pattern.split()))
}


def refuse_unsupported(cursor: Cursor) -> None:
    """Raise SqlError if the next statement is a Flink statement that is not supported here."""
    for words, problem in _SEQUENCES.items():
        if cursor.at(*words):
            raise cursor.error(problem)
