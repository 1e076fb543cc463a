"""What the driver tells a task about the metrics: where it reports what it has read, and for which run."""

from __future__ import annotations

from typing import NamedTuple

from dynamic_kafka.observe.place import Address

__all__ = ["Observation"]


class Observation(NamedTuple):
    """Where, and for which run, a task reports what it has read. It is a part of the task.

    Attributes:
        run: The name of the source's run.
        address: The server; None if it has not started yet.
        clients: If true, librdkafka's numbers are reported too.
    """

    run: str
    address: Address | None
    clients: bool
