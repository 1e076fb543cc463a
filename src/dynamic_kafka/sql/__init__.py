"""Flink's Kafka SQL on Spark: its statements, tables and formats over the engine of `format("dynamic-kafka")`.

A statement's way: `statements` (text to dataclasses), `environment` (what each does), `table` (every rule, checked),
`reading` or `writing` (columns), `jobs` (queries started). See docs/sql.md.
"""

from __future__ import annotations

from dynamic_kafka.sql.config import TableConfig
from dynamic_kafka.sql.environment import StatementSet, TableEnvironment
from dynamic_kafka.sql.result import TableResult

__all__ = ["StatementSet", "TableConfig", "TableEnvironment", "TableResult"]
