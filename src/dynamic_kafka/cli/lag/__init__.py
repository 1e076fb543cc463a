"""`dynamic-kafka lag`: how far a query is behind, seen from its checkpoint or from its driver."""

from dynamic_kafka.cli.lag.command import add_to

__all__ = ["add_to"]
