"""`dynamic-kafka streams`: what the metadata service says, checked."""

from dynamic_kafka.cli.streams.command import add_to

__all__ = ["add_to"]
