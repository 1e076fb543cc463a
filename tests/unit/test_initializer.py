"""Where reading starts and stops: Flink's semantics, with a cluster made of dicts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from dynamic_kafka.errors import OffsetResolutionError
from dynamic_kafka.initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    PartitionOffsetsRetriever,
    PartitionTimestamps,
    initializer_from_json,
    initializer_to_json,
)

NONE, EARLIEST, LATEST = KafkaOffsetResetStrategy
P0, P1, P2 = (KafkaTopicPartition("t", p) for p in range(3))
ALL = [P0, P1, P2]


class FakeRetriever:
    """p0 holds [10, 20) with a record every second from time 0 on, p1 holds [0, 5) likewise, p2 is empty."""

    cluster_id = "c"

    def __init__(self, committed: Mapping[KafkaTopicPartition, int] | None = None) -> None:
        self.committed = committed or {}
        self.calls: list[str] = []

    def beginning_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The low watermarks."""
        self.calls.append("beginning")
        return {tp: {P0: 10, P1: 0, P2: 0}[tp] for tp in partitions}

    def end_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The high watermarks."""
        self.calls.append("end")
        return {tp: {P0: 20, P1: 5, P2: 0}[tp] for tp in partitions}

    def committed_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The group's."""
        self.calls.append("committed")
        return {tp: self.committed[tp] for tp in partitions if tp in self.committed}

    def offsets_for_times(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """By the second."""
        self.calls.append("times")
        found: dict[KafkaTopicPartition, int | None] = {}
        for tp, time_ms in times_ms.items():
            low, end = {P0: (10, 20), P1: (0, 5), P2: (0, 0)}[tp]
            offset = low + -(-time_ms // 1000)
            found[tp] = offset if offset < end else None
        return found


def resolve(
    initializer: KafkaOffsetsInitializer, *partitions: KafkaTopicPartition, committed: dict[Any, int] | None = None
) -> dict[KafkaTopicPartition, int]:
    """The offsets of the partitions; of all if none is named."""
    retriever: PartitionOffsetsRetriever = FakeRetriever(committed)
    return initializer.get_partition_offsets(partitions or ALL, retriever)


# --- the words ----------------------------------------------------------------------------------------------------


def test_earliest_is_the_low_watermark() -> None:
    """Each partition's first offset that is still there."""
    assert resolve(KafkaOffsetsInitializer.earliest()) == {P0: 10, P1: 0, P2: 0}


def test_latest_is_the_end_as_it_is_now() -> None:
    """Resolved at once, not by the reader (FLINK-28303)."""
    assert resolve(KafkaOffsetsInitializer.latest()) == {P0: 20, P1: 5, P2: 0}


@pytest.mark.parametrize(("reset", "expected"), [(EARLIEST, 10), (LATEST, 20)])
def test_committed_without_a_commit_takes_the_reset(reset: KafkaOffsetResetStrategy, expected: int) -> None:
    """For those partitions only (e.13)."""
    committed = KafkaOffsetsInitializer.committed_offsets(reset)
    assert resolve(committed, P0, P1, committed={P1: 3}) == {P0: expected, P1: 3}


def test_committed_without_a_commit_and_reset_none_is_an_error() -> None:
    """It names partition and cluster, and what to do (e.13)."""
    with pytest.raises(
        OffsetResolutionError, match=r"no committed offset for t-0, t-2 on cluster 'c'.*choose the reset"
    ):
        resolve(KafkaOffsetsInitializer.committed_offsets(), committed={P1: 3})


def test_an_error_names_a_few_partitions() -> None:
    """The first line stays readable."""
    many = [KafkaTopicPartition("t", p) for p in range(100)]
    with pytest.raises(OffsetResolutionError, match="t-4 and 95 more"):
        KafkaOffsetsInitializer.committed_offsets().get_partition_offsets(many, FakeRetriever())


def test_the_reset_is_asked_for_only_if_needed() -> None:
    """No question to the cluster without a reason."""
    retriever = FakeRetriever({P0: 11})
    KafkaOffsetsInitializer.committed_offsets(EARLIEST).get_partition_offsets([P0], retriever)
    assert retriever.calls == ["committed"]


# --- times --------------------------------------------------------------------------------------------------------


def test_timestamp_is_the_first_record_at_or_after_it() -> None:
    """Inclusive; the end where there is none, which is 0 on an empty partition (e.11)."""
    assert resolve(KafkaOffsetsInitializer.timestamp(4000)) == {P0: 14, P1: 4, P2: 0}
    assert resolve(KafkaOffsetsInitializer.timestamp(4001)) == {P0: 15, P1: 5, P2: 0}


@pytest.mark.parametrize("wrong", [-1, -2, 2**63, 10**30, "5", 1.5, True, None])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    """Kafka takes -1 for the latest offset and -2 for the earliest one."""
    with pytest.raises(ValueError, match="is not a time in milliseconds since 1970"):
        KafkaOffsetsInitializer.timestamp(wrong)
    assert KafkaOffsetsInitializer.timestamp(2**63 - 1) != KafkaOffsetsInitializer.timestamp(0)


def test_timestamp_reads_the_end_before_it_looks_up_times() -> None:
    """A record that arrives between the two questions is then read, never skipped."""
    retriever = FakeRetriever()
    KafkaOffsetsInitializer.timestamp(0).get_partition_offsets(ALL, retriever)
    assert retriever.calls == ["end", "times"]


def test_timestamps_for_each_partition() -> None:
    """Spark's `startingOffsetsByTimestamp`; a default serves the others."""
    initializer = PartitionTimestamps({P0: 4000}, default_ms=1000)
    assert resolve(initializer, P0, P1) == {P0: 14, P1: 1}


def test_timestamps_strict_without_a_record_is_an_error() -> None:
    """Spark's strategy `error`; it names partition, time and the option."""
    with pytest.raises(OffsetResolutionError, match=r"no record at or after 5000 ms in t-1, t-2.*Strategy=latest"):
        resolve(PartitionTimestamps({}, default_ms=5000, strict=True))


def test_timestamps_of_a_partition_that_is_not_named_is_an_error() -> None:
    """As in Spark, every partition is named."""
    with pytest.raises(OffsetResolutionError, match="No timestamp is given for t-1 on cluster 'c'"):
        resolve(PartitionTimestamps({P0: 0}), P0, P1)


# --- offsets ------------------------------------------------------------------------------------------------------


def test_offsets_listed_then_committed_then_reset() -> None:
    """The order of Flink's rule (e.12)."""
    initializer = KafkaOffsetsInitializer.offsets({("t", 0): 12})
    assert resolve(initializer, committed={P0: 1, P1: 3}) == {P0: 12, P1: 3, P2: 0}
    latest = KafkaOffsetsInitializer.offsets({("t", 2): 0}, LATEST)
    assert resolve(latest, committed={P1: 3}) == {P0: 20, P1: 3, P2: 0}


def test_offsets_unlisted_with_reset_none_is_an_error() -> None:
    """As with `committed` (e.12)."""
    with pytest.raises(OffsetResolutionError, match=r"t-1, t-2 on cluster 'c'"):
        resolve(KafkaOffsetsInitializer.offsets({P0: 12}, NONE))


def test_offsets_may_hold_the_markers_of_flink() -> None:
    """-1, -2 and -3 are latest, earliest and committed; no other negative number is an offset."""
    initializer = KafkaOffsetsInitializer.offsets({P0: -1, P1: -2, P2: -3})
    assert resolve(initializer, committed={P2: 7}) == {P0: 20, P1: 0, P2: 7}
    with pytest.raises(ValueError, match="-4 is not an offset"):
        KafkaOffsetsInitializer.offsets({P0: -4})


def test_a_group_is_needed_for_committed_offsets_only() -> None:
    """Also for a committed marker inside an offsets map (e.4)."""
    needing = [KafkaOffsetsInitializer.committed_offsets(EARLIEST), KafkaOffsetsInitializer.offsets({P0: -3})]
    needing += [initializer_from_json({"t": "committed"}), initializer_from_json({"t": {"0": "committed"}})]
    assert all(initializer.needs_group for initializer in needing)
    others = [
        KafkaOffsetsInitializer.earliest(),
        KafkaOffsetsInitializer.latest(),
        KafkaOffsetsInitializer.timestamp(1),
    ]
    others += [
        KafkaOffsetsInitializer.offsets({P0: 1}),
        PartitionTimestamps({}, default_ms=1),
        KafkaOffsetsInitializer(),
    ]
    assert not any(initializer.needs_group for initializer in others)


# --- as text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "earliest",
        "latest",
        "committed",
        {"committed": "earliest"},
        {"committed": "latest"},
        {"timestamp": 1_657_256_176_000},
        {"t": {"0": 23, "1": "earliest", "10": 0}, "u": "latest"},
        {"timestamp": {"0": 5}},
        {"committed": {"0": 5}},
        {"timestamp": "latest"},
    ],
)
def test_text_survives_a_round_trip(value: Any) -> None:
    """Also for topics that are named like a form."""
    initializer = initializer_from_json(value)
    assert json.loads(json.dumps(initializer_to_json(initializer))) == value
    assert initializer_from_json(initializer_to_json(initializer)) == initializer
    assert pickle.loads(pickle.dumps(initializer)) == initializer


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ({"committed": "none"}, "committed"),
        ({"t": {"0": -2, "1": -1, "2": -3}}, {"t": {"0": "earliest", "1": "latest", "2": "committed"}}),
        ({"t": {0: 5}}, {"t": {"0": 5}}),
    ],
)
def test_text_has_other_spellings(value: Any, same: Any) -> None:
    """Spark's and Flink's markers, and YAML's numbers as keys."""
    assert initializer_to_json(initializer_from_json(value)) == same


def test_text_of_the_factories() -> None:
    """Each of them has one, but for what text cannot say."""
    assert initializer_to_json(KafkaOffsetsInitializer.offsets({P1: 5, P0: -1})) == {"t": {"0": "latest", "1": 5}}
    without: list[KafkaOffsetsInitializer | None] = [
        None,
        KafkaOffsetsInitializer(),
        KafkaOffsetsInitializer.offsets({}),
    ]
    assert [initializer_to_json(initializer) for initializer in without] == [None, None, None]
    for times in (PartitionTimestamps({}, 5, strict=True), PartitionTimestamps({P1: 7, P0: 8})):
        assert initializer_from_json(json.loads(json.dumps(initializer_to_json(times)))) == times


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("newest", "'newest' is not one of earliest, latest, committed"),
        ("Latest", "is not one of"),
        (None, "expected one of earliest"),
        (5, "expected one of earliest"),
        ([], "expected one of earliest"),
        ({}, "expected one of earliest"),
        ({"timestamp": -1}, "-1 is not a time in milliseconds since 1970"),
        ({"timestamp": True}, "True is not a time"),
        ({"timestamp": 1.5}, "1.5 is not a time"),
        ({"committed": "never"}, "'never' is not one of the reset strategies none, earliest, latest"),
        ({"t": 5}, "topic 't': expected a word or"),
        ({"t": "newest"}, "topic 't': expected a word or"),
        ({"t": {"zero": 5}}, "'zero' is not a valid partition number"),
        ({"t": {"-1": 5}}, "'-1' is not a valid partition number"),
        ({"t": {True: 5}}, "True is not a valid partition number"),
        ({"t": {"0": -4}}, "-4 is not an offset"),
        ({"t": {"0": 2**63}}, "is not an offset"),
        ({"t": {"0": "5"}}, "'5' is not an offset"),
        ({"t": {"0": None}}, "None is not an offset"),
        ({"t": {"0": True}}, "True is not an offset"),
        ({"t": {"0": 5.0}}, "5.0 is not an offset"),
    ],
)
def test_text_that_is_wrong_says_what_was_expected(value: Any, message: str) -> None:
    """The caller adds where it stood."""
    with pytest.raises(ValueError, match=message):
        initializer_from_json(value)


def test_repr_is_for_people() -> None:
    """Short, whatever the size."""
    assert repr(KafkaOffsetsInitializer.latest()) == "KafkaOffsetsInitializer(latest)"
    assert repr(KafkaOffsetsInitializer.committed_offsets()) == "KafkaOffsetsInitializer(committed, reset=none)"
    assert repr(KafkaOffsetsInitializer.timestamp(5)) == "KafkaOffsetsInitializer(timestamp=5)"
    assert repr(KafkaOffsetsInitializer.offsets({P0: 1})) == "KafkaOffsetsInitializer(1 specific offsets)"
    assert repr(PartitionTimestamps({P0: 1}, 5)) == "KafkaOffsetsInitializer(1 timestamps, default=5)"


def test_a_users_own_initializer_has_to_say_something() -> None:
    """The base class has no rule."""
    with pytest.raises(NotImplementedError):
        resolve(KafkaOffsetsInitializer())
