"""Flink's SQL text becomes dataclasses, and errors show the line: no Spark session, no Kafka client, no I/O.

Called by `sql.environment` and by the command line.
"""
