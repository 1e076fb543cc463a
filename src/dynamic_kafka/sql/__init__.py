"""Flink's Kafka SQL on Spark: statements, tables and columns on top of `format("dynamic-kafka")`. See docs/guides/sql.md.

Users and the command line call the names below. A statement passes through `parser` (text to dataclasses), `environment`
(its effect), `tables` (all rules, checked), `queries` and `dialect` (a query for Spark), `connectors` (columns that are read
and written), and `insert` (running queries).
"""

from __future__ import annotations

from dynamic_kafka.sql.environment import StatementSet, TableEnvironment
from dynamic_kafka.sql.session.config import TableConfig
from dynamic_kafka.sql.session.result import TableResult

__all__ = ["StatementSet", "TableConfig", "TableEnvironment", "TableResult"]
