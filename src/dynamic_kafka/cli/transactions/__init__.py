"""`dynamic-kafka transactions`: the open transactions of an exactly-once sink."""

from dynamic_kafka.cli.transactions.command import add_to

__all__ = ["add_to"]
