"""Flink's SQL text becomes dataclasses, and errors point at a line. No Spark, no Kafka, no I/O.

Called by `sql.environment`, `sql.catalog` and the command line.
"""
