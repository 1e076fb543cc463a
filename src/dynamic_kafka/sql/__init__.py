"""Flink's Kafka SQL on Spark: statements, tables and columns on top of `format("dynamic-kafka")`. See docs/guides/sql.md.

Users and the command line call the names below. A statement passes through `parser` (text to dataclasses), `environment`
(its effect), `table` (all rules, checked), `scan` or `sink_rows` (columns), and `insert` (running queries).
"""

from __future__ import annotations

from dynamic_kafka.sql.config import TableConfig
from dynamic_kafka.sql.environment import StatementSet, TableEnvironment
from dynamic_kafka.sql.result import TableResult

__all__ = ["StatementSet", "TableConfig", "TableEnvironment", "TableResult"]
