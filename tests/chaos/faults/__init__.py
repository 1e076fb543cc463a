"""All faults, in the order of docs/explanations/reliability.md. Importing this declares them."""

from __future__ import annotations

# isort: off
from tests.chaos.faults import brokers, links, topics, metadata, moves, processes, secrets, checkpoints, messages

__all__ = ["brokers", "checkpoints", "links", "messages", "metadata", "moves", "processes", "secrets", "topics"]
