"""Starting and stopping offsets: Flink's OffsetsInitializer, with PyFlink's names.

An initializer turns partitions into offsets once, when a partition is first found. The offset is then in the checkpoint,
and the initializer is not called for that partition again. All I/O goes through the `PartitionOffsetsRetriever` given.

As text (in metadata documents and in the checkpoint) an initializer is one of

* `earliest`, `latest` or `committed`;
* `{"committed": "earliest"}`: with the reset strategy for partitions without a committed offset;
* `{"timestamp": 1657256176000}`;
* `{"<topic>": {"<partition>": <offset>}}`. An offset may also be one of the words above, or -1 (latest), -2 (earliest) or
  -3 (committed). One word may stand for all partitions of a topic.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from dynamic_kafka.errors import OffsetResolutionError, listed

__all__ = [
    "MAX_LONG",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaTopicPartition",
    "PartitionOffsetsRetriever",
    "PartitionTimestamps",
    "checked_offsets",
    "initializer_from_json",
    "initializer_to_json",
    "named_in_option",
    "non_negative",
    "topic_partition",
    "without_group",
]

_WORDS = ("earliest", "latest", "committed")
_MARKERS = {-1: "latest", -2: "earliest", -3: "committed"}  # Spark's, and Flink's KafkaPartitionSplit
MAX_LONG = 2**63 - 1
"""The largest offset, and the latest time in milliseconds, of Kafka's requests."""


class KafkaTopicPartition(NamedTuple):
    """A partition of a topic; the context says on which cluster."""

    topic: str
    partition: int


topic_partition: Callable[[tuple[str, int]], KafkaTopicPartition] = partial(tuple.__new__, KafkaTopicPartition)
"""`KafkaTopicPartition` made from a pair, in two thirds of the time: for loops over 10,000 partitions."""


class KafkaOffsetResetStrategy(enum.Enum):
    """The offset that `committed_offsets` gives a partition without a committed offset; NONE is an error."""

    NONE = "none"
    EARLIEST = "earliest"
    LATEST = "latest"


class PartitionOffsetsRetriever(Protocol):
    """An initializer's access to a cluster (Flink: OffsetsInitializer.PartitionOffsetsRetriever).

    Each method takes all partitions at once and raises `ClusterUnavailableError` if the cluster does not answer.
    """

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, as in the metadata."""

    def beginning_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Return the first offset that each partition still holds."""

    def end_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Return the offset after the last readable record; under read_committed, the last stable offset."""

    def committed_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Return the group's committed offsets, without the partitions that have none."""

    def offsets_for_times(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """Return the first offset at or after each time, in milliseconds since 1970; None if there is no such record."""


class KafkaOffsetsInitializer:
    """Starting or stopping offsets. Use the factory methods, or subclass and override `get_partition_offsets`.

    An instance of a subclass is pickled to Spark's reader process on the driver's machine, so it must not hold a client. It
    is not written into the checkpoint, only its offsets are: it is called again only for partitions found later.

    Examples:
        >>> KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
        KafkaOffsetsInitializer(committed, reset=earliest)
    """

    def get_partition_offsets(
        self, partitions: Collection[KafkaTopicPartition], retriever: PartitionOffsetsRetriever
    ) -> dict[KafkaTopicPartition, int]:
        """Return the offset of each partition.

        Args:
            partitions: Partitions of one cluster that have no offset yet.
            retriever: The access to that cluster.

        Returns:
            An offset for every partition in `partitions`.

        Raises:
            OffsetResolutionError: If the rule gives a partition no offset.
        """
        raise NotImplementedError

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Return an initializer for the first offset of each partition."""
        return _Word("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Return an initializer for the end of each partition at the time when the partition is found."""
        return _Word("latest")

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Return an initializer for the consumer group's committed offsets; needs `group.id`.

        Args:
            offset_reset_strategy: The offset of partitions without a committed one.
        """
        return _Word("committed", offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Return an initializer for the first record at or after a time; the end if there is no such record.

        Args:
            timestamp: Milliseconds since 1970.

        Raises:
            ValueError: If it is not such a number. In Kafka's requests, negative ones have other meanings.
        """
        return PartitionTimestamps({}, non_negative(timestamp, "a time in milliseconds since 1970"))

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition | tuple[str, int], int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Return an initializer for the offsets given.

        Args:
            offsets: Partition to offset. -1, -2 and -3 stand for latest, earliest and committed, as in Flink. A partition
                that is not listed takes the group's committed offset.
            offset_reset_strategy: The offset of unlisted partitions without a committed one.

        Raises:
            ValueError: If an offset is negative and not one of these three.
        """
        listed = {KafkaTopicPartition(*tp): _offset(offset) for tp, offset in offsets.items()}
        return _Offsets(listed, {}, offset_reset_strategy)

    @property
    def needs_group(self) -> bool:
        """Return whether a `group.id` is required."""
        return False


@dataclass(frozen=True, repr=False)
class _Word(KafkaOffsetsInitializer):
    word: Literal["earliest", "latest", "committed"]
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE

    @property
    def needs_group(self) -> bool:
        return self.word == "committed"

    def get_partition_offsets(
        self, partitions: Collection[KafkaTopicPartition], retriever: PartitionOffsetsRetriever
    ) -> dict[KafkaTopicPartition, int]:
        if self.word == "earliest":
            return retriever.beginning_offsets(partitions)
        if self.word == "latest":
            return retriever.end_offsets(partitions)
        found = retriever.committed_offsets(partitions)
        return found | _reset([tp for tp in partitions if tp not in found], self.reset, retriever)

    def __repr__(self) -> str:
        reset = f", reset={self.reset.value}" if self.word == "committed" else ""
        return f"KafkaOffsetsInitializer({self.word}{reset})"


@dataclass(frozen=True, repr=False)
class PartitionTimestamps(KafkaOffsetsInitializer):
    """Offsets by timestamp, for each partition or for all. With `strict`, a partition without a later record is an error."""

    timestamps_ms: Mapping[KafkaTopicPartition, int]
    default_ms: int | None = None
    strict: bool = False

    def get_partition_offsets(
        self, partitions: Collection[KafkaTopicPartition], retriever: PartitionOffsetsRetriever
    ) -> dict[KafkaTopicPartition, int]:
        """See the base class."""
        times_ms: dict[KafkaTopicPartition, int] = {}
        for tp in partitions:
            time_ms = self.timestamps_ms.get(tp, self.default_ms)
            if time_ms is None:
                raise OffsetResolutionError(
                    f"No timestamp is given for {_names([tp])} on cluster '{retriever.cluster_id}'; list every partition",
                    cluster_id=retriever.cluster_id,
                )
            times_ms[tp] = time_ms
        return _by_time(times_ms, retriever, strict=self.strict)

    def __repr__(self) -> str:
        if not self.timestamps_ms:
            return f"KafkaOffsetsInitializer(timestamp={self.default_ms})"
        return f"KafkaOffsetsInitializer({len(self.timestamps_ms)} timestamps, default={self.default_ms})"


@dataclass(frozen=True, repr=False)
class _Offsets(KafkaOffsetsInitializer):
    listed: Mapping[KafkaTopicPartition, int | str]
    by_topic: Mapping[str, str]
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST
    # The option of Spark that gives the offsets as JSON. Only there, unlisted partitions have no committed offset.
    option: str = field(default="", compare=False)
    has_group: bool = field(default=True, compare=False)

    @property
    def needs_group(self) -> bool:
        return "committed" in {*self.listed.values(), *self.by_topic.values()}

    def get_partition_offsets(
        self, partitions: Collection[KafkaTopicPartition], retriever: PartitionOffsetsRetriever
    ) -> dict[KafkaTopicPartition, int]:
        found: dict[KafkaTopicPartition, int] = {}
        by_word: dict[str, list[KafkaTopicPartition]] = {}
        unlisted: list[KafkaTopicPartition] = []
        for tp in partitions:
            given = self.listed.get(tp, self.by_topic.get(tp.topic))
            if isinstance(given, int):
                found[tp] = given
            elif given is not None:
                by_word.setdefault(given, []).append(tp)
            else:
                unlisted.append(tp)
        for word, tps in by_word.items():
            found |= _Word(_word(word)).get_partition_offsets(tps, retriever)
        if unlisted and self.option == "endingOffsets":
            raise OffsetResolutionError(
                f"Option 'endingOffsets' does not name {_names(unlisted)} on cluster '{retriever.cluster_id}'; list every "
                "partition (-1 stands for the latest offset)",
                cluster_id=retriever.cluster_id,
            )
        if unlisted:
            committed = retriever.committed_offsets(unlisted) if self.has_group and not self.option else {}
            rest = [tp for tp in unlisted if tp not in committed]
            found |= committed | _reset(rest, self.reset, retriever)
        return found

    def __repr__(self) -> str:
        return f"KafkaOffsetsInitializer({len(self.listed) + len(self.by_topic)} specific offsets)"


def _reset(
    partitions: list[KafkaTopicPartition], reset: KafkaOffsetResetStrategy, retriever: PartitionOffsetsRetriever
) -> dict[KafkaTopicPartition, int]:
    if not partitions:
        return {}
    if reset is KafkaOffsetResetStrategy.NONE:
        raise OffsetResolutionError(
            f"The group has no committed offset for {_names(partitions)} on cluster '{retriever.cluster_id}', and no reset "
            "strategy is set; commit offsets for the group first, or choose the reset strategy 'earliest' or 'latest'",
            cluster_id=retriever.cluster_id,
        )
    return _Word(_word(reset.value)).get_partition_offsets(partitions, retriever)


def _by_time(
    times_ms: Mapping[KafkaTopicPartition, int], retriever: PartitionOffsetsRetriever, *, strict: bool
) -> dict[KafkaTopicPartition, int]:
    # The end is read before the times are looked up: a record that arrives in between is then read, never skipped.
    ends = retriever.end_offsets(list(times_ms))
    found = retriever.offsets_for_times(times_ms)
    late = [tp for tp in times_ms if found.get(tp) is None]
    if late and strict:
        raise OffsetResolutionError(
            f"There is no record at or after {times_ms[late[0]]} ms in {_names(late)} on cluster '{retriever.cluster_id}'; "
            "choose an earlier time, or set startingOffsetsByTimestampStrategy=latest",
            cluster_id=retriever.cluster_id,
        )
    return {tp: ends[tp] if (offset := found.get(tp)) is None else offset for tp in times_ms}


def _names(partitions: Collection[KafkaTopicPartition]) -> str:
    return listed((f"{topic}-{partition}" for topic, partition in sorted(partitions)), 5)


def _word(text: str) -> Literal["earliest", "latest", "committed"]:
    assert text in _WORDS, text
    return text  # type: ignore[return-value]  # narrowed by the assertion


def checked_offsets(
    initializer: KafkaOffsetsInitializer,
    partitions: Collection[KafkaTopicPartition],
    retriever: PartitionOffsetsRetriever,
) -> dict[KafkaTopicPartition, int]:
    """Return the offset of each partition by an initializer, which may be a class of the user.

    Raises:
        OffsetResolutionError: If the answer is not an offset for every partition, because it would damage the checkpoint.
    """
    found: Any = initializer.get_partition_offsets(partitions, retriever)
    for tp in partitions:
        offset = found.get(tp) if isinstance(found, Mapping) else found
        if type(offset) is not int or not 0 <= offset <= MAX_LONG:
            kind = type(initializer)
            raise OffsetResolutionError(
                f"The offsets initializer {kind.__module__}.{kind.__qualname__} returned {offset!r} for {_names([tp])} on "
                f"cluster '{retriever.cluster_id}'; return an int, 0 or more, for every partition that it gets",
                cluster_id=retriever.cluster_id,
            )
    return {tp: found[tp] for tp in partitions}


def without_group(initializer: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    """Return the initializer for a source without a consumer group: no partition has a committed offset."""
    return replace(initializer, has_group=False) if isinstance(initializer, _Offsets) else initializer


def named_in_option(initializer: KafkaOffsetsInitializer | None) -> dict[str | tuple[str, int], int | str] | None:
    """Return what JSON in an option of Spark names: partitions, and topics as a whole; None for all other initializers."""
    match initializer:
        case _Offsets(listed, by_topic, option=option) if option:
            return dict([*listed.items(), *by_topic.items()])
        case PartitionTimestamps(timestamps_ms, default_ms=None):
            return dict(timestamps_ms.items())
        case _:
            return None


def initializer_from_json(value: Any, *, option: str = "") -> KafkaOffsetsInitializer:
    """Parse the textual form described at the top of this module.

    Args:
        value: A decoded JSON or YAML value.
        option: The option of Spark that gives the value, if it is one.

    Raises:
        ValueError: If the value has none of the forms. The message says what was expected; the caller adds where.
    """
    if isinstance(value, str):
        if value not in _WORDS:
            raise ValueError(f"{value!r} is not one of {', '.join(_WORDS)}")
        return _Word(_word(value))
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            f"expected one of {', '.join(_WORDS)}, {{timestamp: <ms>}} or {{<topic>: {{<partition>: <offset>}}}}"
        )
    if set(value) == {"timestamp"} and not isinstance(value["timestamp"], Mapping | str):
        return KafkaOffsetsInitializer.timestamp(value["timestamp"])
    if isinstance(value.get("timestamps"), list):  # Spark's options by partition, as the offset document keeps them
        times = {
            KafkaTopicPartition(str(t), _partition(p)): non_negative(ms, "a time") for t, p, ms in value["timestamps"]
        }
        return PartitionTimestamps(times, value.get("default"), bool(value.get("strict")))
    if set(value) == {"committed"} and isinstance(value["committed"], str):
        try:
            return _Word("committed", KafkaOffsetResetStrategy(value["committed"]))
        except ValueError:
            raise ValueError(
                f"{value['committed']!r} is not one of the reset strategies none, earliest, latest"
            ) from None
    listed: dict[KafkaTopicPartition, int | str] = {}
    by_topic: dict[str, str] = {}
    for topic, offsets in value.items():
        if isinstance(offsets, str) and offsets in _WORDS:
            by_topic[str(topic)] = offsets
        elif isinstance(offsets, Mapping):
            for partition, offset in offsets.items():
                listed[KafkaTopicPartition(str(topic), _partition(partition))] = _offset(offset)
        else:
            raise ValueError(f"topic {topic!r}: expected a word or {{<partition>: <offset>}}, not {offsets!r}")
    return _Offsets(listed, by_topic, option=option)


def _partition(value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal():
        raise ValueError(f"{value!r} is not a valid partition number")
    return int(text)


def _offset(value: Any) -> int | str:
    if isinstance(value, str):
        if value in _WORDS:
            return value
    elif type(value) is int and value in _MARKERS:
        return _MARKERS[value]
    return non_negative(value, "an offset")


def non_negative(value: Any, what: str) -> int:
    """Return a whole number from 0 to `MAX_LONG`.

    Raises:
        ValueError: If it is not one, with what it should be.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_LONG:
        raise ValueError(f"{value!r} is not {what}")
    return value


def initializer_to_json(initializer: KafkaOffsetsInitializer | None) -> Any:
    """Return the textual form of an initializer; None for None and for a user's own subclass, which has no such form."""
    match initializer:
        case _Word("committed", reset) if reset is not KafkaOffsetResetStrategy.NONE:
            return {"committed": reset.value}
        case _Word(word):
            return word
        case PartitionTimestamps(timestamps_ms, int(default_ms), strict=False) if not timestamps_ms:
            return {"timestamp": default_ms}
        case _Offsets(listed, by_topic) if listed or by_topic:
            result: dict[str, Any] = dict(sorted(by_topic.items()))
            for tp, offset in sorted(listed.items()):
                result.setdefault(tp.topic, {})[str(tp.partition)] = offset
            return result
        case PartitionTimestamps(timestamps_ms, default_ms, strict):
            times = [[topic, partition, ms] for (topic, partition), ms in sorted(timestamps_ms.items())]
            return {"timestamps": times, "default": default_ms, "strict": strict}
        case _:
            return None
