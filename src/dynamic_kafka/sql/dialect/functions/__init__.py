"""Flink's functions, each one as Spark says it, or why it is refused."""
