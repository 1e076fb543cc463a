"""Who chooses partitions: Flink's fixed partitioner, round robin, and a class of the user's."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sink.partitioners import (
    FixedPartitioner,
    KafkaPartitioner,
    RoundRobinPartitioner,
    create_partitioner,
)

HERE = "tests.unit.sink.test_partitioners"


class ByLength:
    """A user's partitioner."""

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:
        """Nothing to prepare."""

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """By the value's length."""
        return partitions[len(value or b"") % len(partitions)]


class Unready:
    """Cannot be made."""

    def __init__(self) -> None:
        raise LookupError("no rules")


def chosen(partitioner: KafkaPartitioner, topics: Sequence[str], count: int) -> list[int]:
    """What it chooses for records of these topics, in order."""
    return [partitioner.partition(None, b"v", topic, range(count)) for topic in topics]


@given(st.integers(0, 1000), st.integers(1, 50))
def test_fixed(task: int, count: int) -> None:
    """All records of a task go to one partition: Flink's `partitions[task % partitions.length]`."""
    partitioner = FixedPartitioner()
    partitioner.open(task, 0)
    assert chosen(partitioner, ["a", "b", "a"], count) == [task % count] * 3


@given(st.integers(0, 20), st.integers(1, 10), st.integers(0, 100))
def test_round_robin(task: int, count: int, records: int) -> None:
    """The partitions take turns, beginning with the task's own one; no partition is ever two records ahead."""
    partitioner = RoundRobinPartitioner()
    partitioner.open(task, 0)
    found = chosen(partitioner, ["t"] * records, count)
    assert found == [(task + i) % count for i in range(records)]


def test_round_robin_is_for_each_topic() -> None:
    """A topic's turns do not depend on what is written to others between them."""
    partitioner = RoundRobinPartitioner()
    partitioner.open(0, 1)
    assert chosen(partitioner, ["a", "b", "a", "b", "b", "a"], 3) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fixed", FixedPartitioner), ("round-robin", RoundRobinPartitioner), (f"{HERE}:ByLength", ByLength)],
)
def test_by_name(name: str, kind: type[KafkaPartitioner]) -> None:
    """Built-in ones and classes; all go to the tasks by pickle."""
    made = create_partitioner(name)
    assert type(made).__name__ == kind.__name__
    again = pickle.loads(pickle.dumps(made))
    again.open(0, 1)
    assert again.partition(None, b"", "t", range(3)) == 0


def test_the_default_is_the_client() -> None:
    """None: librdkafka chooses, as Java's producer does."""
    assert create_partitioner("default") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("roundrobin", "expected default, fixed, round-robin or package.module:Class; did you mean 'round-robin'?"),
        ("no.such.module:Class", "ModuleNotFoundError: No module named 'no'"),
        (f"{HERE}:NoSuchClass", "has no attribute 'NoSuchClass'"),
        (f"{HERE}:Unready", "could not be imported or created: LookupError: no rules"),
        ("collections:OrderedDict", "is not a partitioner: it lacks open, partition"),
    ],
)
def test_errors(name: str, said: str) -> None:
    """They name the option, the value, and what is wrong with it."""
    with pytest.raises(ConfigurationError) as raised:
        create_partitioner(name)
    assert "sink.partitioner" in str(raised.value)
    assert name in str(raised.value)
    assert said in str(raised.value)
