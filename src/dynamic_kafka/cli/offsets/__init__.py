"""`dynamic-kafka offsets`: the positions in a checkpoint, shown and changed."""

from dynamic_kafka.cli.offsets.command import add_to

__all__ = ["add_to"]
