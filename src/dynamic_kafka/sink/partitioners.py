"""Partitioners, which choose the partition of a row that names none: Flink's `sink.partitioner`.

`default` is not a partitioner here: the client itself chooses (`partitioner=murmur2_random` in `kafka.config.properties`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dynamic_kafka.errors import InvalidOptionError, suggestion
from dynamic_kafka.options import user_object

__all__ = ["FixedPartitioner", "KafkaPartitioner", "RoundRobinPartitioner", "create_partitioner"]

_METHODS = ("open", "partition")


@runtime_checkable
class KafkaPartitioner(Protocol):
    """The interface of a partitioner; picklable.

    Implement it, and name the class as `package.module:Class` or give an object to a builder.
    """

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:
        """Prepare for a task; called once in each task.

        Args:
            parallel_instance_id: The task's number in its batch, from 0.
            parallel_instances: Always 0: Spark does not give a task the number of tasks in its batch.
        """
        ...

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """Choose the partition of a record.

        Args:
            key: The record's key.
            value: The record's value; None is a tombstone.
            topic: The topic.
            partitions: The topic's partitions, from 0 on; never empty.
        """
        ...


class FixedPartitioner:
    """Each task writes to one partition (Flink: FlinkFixedPartitioner), the n-th task to the n-th, beginning again at 0."""

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:  # noqa: ARG002
        """Remember which task this is."""
        self._task = parallel_instance_id

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:  # noqa: ARG002
        """Return the task's partition."""
        return partitions[self._task % len(partitions)]


class RoundRobinPartitioner:
    """One partition after the other, for each topic; the n-th task begins with the n-th partition."""

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:  # noqa: ARG002
        """Start at the task's number."""
        self._next = defaultdict[str, int](lambda: parallel_instance_id)

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:  # noqa: ARG002
        """Return the partition after the last one."""
        number = self._next[topic]
        self._next[topic] = number + 1
        return partitions[number % len(partitions)]


_BUILT_IN: dict[str, type[KafkaPartitioner] | None] = {
    "default": None,  # the client chooses
    "fixed": FixedPartitioner,
    "round-robin": RoundRobinPartitioner,
}


def create_partitioner(name: str) -> KafkaPartitioner | None:
    """Make the partitioner that the option `sink.partitioner` names; None for `default`.

    A class of the user (`package.module:Class`) is made without arguments.

    Raises:
        ConfigurationError: If the name is unknown, or the class cannot be made, or is not a `KafkaPartitioner`.
    """
    if name in _BUILT_IN:
        kind = _BUILT_IN[name]
        return None if kind is None else kind()
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        expected = f"{', '.join(_BUILT_IN)} or package.module:Class{suggestion(name, _BUILT_IN)}"
        raise InvalidOptionError("sink.partitioner", name, expected)
    made: KafkaPartitioner = user_object(
        "sink.partitioner", name, kind="partitioner", methods=_METHODS, make=lambda found: found()
    )
    return made
