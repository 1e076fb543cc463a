"""Flink's Kafka SQL on Spark: statements, tables and columns on top of `format("dynamic-kafka")`. See docs/guides/sql.md.

Users and the command line call the names below. A statement passes through `parser` (text to dataclasses), `environment`
(its effect), `tables` (all rules, checked), `queries` and `dialect` (a query for Spark), `connectors` (columns that are read
and written), and `insert` (running queries).
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError

_SQLGLOT = "30.30"


def _check_sqlglot() -> None:
    """Raise if the parser that is extended here is missing, or is of another version: minor versions change its insides."""
    try:
        found = version("sqlglot")
    except PackageNotFoundError:
        raise MissingDependencyError("sqlglot", "sql", "for SQL") from None
    if not found.startswith(f"{_SQLGLOT}."):
        raise ConfigurationError(
            f"SQL needs sqlglot {_SQLGLOT}, and {found} is installed here: pip install 'pyspark-dynamic-kafka[sql]' in an "
            "environment where nothing else needs another version"
        )


_check_sqlglot()

from dynamic_kafka.sql.environment import StatementSet, TableEnvironment  # noqa: E402
from dynamic_kafka.sql.session.config import TableConfig  # noqa: E402
from dynamic_kafka.sql.session.result import TableResult  # noqa: E402

__all__ = ["StatementSet", "TableConfig", "TableEnvironment", "TableResult"]
