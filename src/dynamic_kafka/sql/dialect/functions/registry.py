"""All of Flink's functions that are known here: the same in Spark, said otherwise, or refused. Others are Spark's own."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_kafka.sql.dialect.functions import aggregates, documents, numbers, texts, times
from dynamic_kafka.sql.dialect.functions.rules import Refused, Rule

__all__ = ["AGGREGATES", "REFUSED", "RULES", "SAME"]

_PARTS = (texts, numbers, times, documents, aggregates)

RULES: Mapping[str, Rule] = {name: rule for part in _PARTS for name, rule in part.RULES.items()}
"""Functions that Spark says otherwise."""
REFUSED: Mapping[str, Refused] = {name: way for part in _PARTS for name, way in part.REFUSED.items()}
"""Functions without an equal in Spark."""
SAME: frozenset[str] = frozenset().union(*(part.SAME for part in _PARTS))
"""Functions that mean the same in Spark."""
AGGREGATES: frozenset[str] = frozenset((*aggregates.RULES, *aggregates.SAME, *aggregates.REFUSED))
"""Functions of many rows."""
