"""`dynamic-kafka sql`: Flink's SQL from a file, or at a prompt with history and completion."""

from dynamic_kafka.cli.sql.command import add_to

__all__ = ["add_to"]
