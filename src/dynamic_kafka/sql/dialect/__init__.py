"""Flink's queries as Spark's: a dialect for sqlglot, with a rule for each construct that means something else in Spark."""

__all__: list[str] = []
