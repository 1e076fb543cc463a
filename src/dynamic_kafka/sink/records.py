"""From rows to records: the columns of a sink's input, and Arrow batches turned into the arguments of produce().

A row becomes Python objects once, a column at a time, and everything that can be checked is checked a column at a time.
Rows keep their order. Nothing is grouped by topic or partition: measured, one call of `Producer.produce` with ready-made
positional arguments costs less than its part of `produce_batch`, which wants a dict for each record, and knows neither
headers nor timestamps, nor more than one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import ConfigurationError, RowError, listed, suggestion
from dynamic_kafka.sink.partitioners import KafkaPartitioner
from dynamic_kafka.sink.report import Volume
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask

__all__ = ["COLUMNS", "Records", "by_cluster", "check_schema", "to_records"]

_UNASSIGNED = -1  # librdkafka's RD_KAFKA_PARTITION_UA: its partitioner chooses


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_bytes(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))


def _is_payload(data_type: pa.DataType) -> bool:
    return _is_text(data_type) or _is_bytes(data_type)


def _is_headers(data_type: pa.DataType) -> bool:
    if not (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
        return False
    header = data_type.value_type
    if not pa.types.is_struct(header) or sorted(f.name for f in header) != ["key", "value"]:
        return False
    return _is_text(header.field("key").type) and _is_bytes(header.field("value").type)


def _is_timestamp(data_type: pa.DataType) -> bool:
    return pa.types.is_timestamp(data_type) and data_type.tz is not None


COLUMNS: Mapping[str, tuple[str, Callable[[pa.DataType], bool]]] = {
    "key": ("string or binary", _is_payload),
    "value": ("string or binary", _is_payload),
    "topic": ("string", _is_text),
    "partition": ("int", pa.types.is_int32),
    "headers": ("array<struct<key:string,value:binary>>", _is_headers),
    "timestamp": ("timestamp", _is_timestamp),
    "cluster": ("string", _is_text),
}
"""The columns of the sink: the type in Spark's words, and the check of an Arrow type."""


def check_schema(schema: pa.Schema, settings: SinkSettings) -> None:
    """Check the columns of a sink's input, as Spark sends them.

    Raises:
        ConfigurationError: If the column `value` is missing, or `topic` although there are several topics; or if a column
            is unknown, occurs twice, or has the wrong type.
    """
    names: list[str] = schema.names
    for name, data_type in zip(names, schema.types, strict=True):
        if name not in COLUMNS:
            hint = suggestion(name.lower(), COLUMNS) or "; drop it, or make it part of the value, as with to_json"
            raise ConfigurationError(f"Column '{name}' is not one of the sink's columns {', '.join(COLUMNS)}{hint}")
        expected, fits = COLUMNS[name]
        if names.count(name) > 1:
            raise ConfigurationError(f"Column '{name}' occurs {names.count(name)} times; keep one")
        if not fits(data_type):
            raise ConfigurationError(f"Column '{name}' has the type {_named(data_type)}; cast it to {expected}")
    if "value" not in names:
        raise ConfigurationError(
            f"Column 'value' is missing (the columns are: {', '.join(names) or 'none'}); select what to write as 'value', "
            "or for tombstones cast(null as binary)"
        )
    if "topic" not in names and (settings.topics or settings.pattern):
        raise ConfigurationError(
            "Column 'topic' is missing. It names the topic of a row; add it, or set the option 'topic' to one topic"
        )


def _named(data_type: pa.DataType) -> str:
    if pa.types.is_timestamp(data_type):
        return "timestamp_ntz"
    return str(data_type)


class Records(NamedTuple):
    """Rows of one cluster, as arguments of produce().

    Args:
        arguments: For each of produce()'s positional arguments a list with one element for each row: topic, value, key,
            partition, callback, on_delivery, timestamp, headers; the last ones may be left out.
        volume: The number of records, and of bytes.
    """

    arguments: list[list[Any]]
    volume: Volume


def by_cluster(batch: pa.RecordBatch, task: WriteTask) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows by cluster; they keep their order.

    Raises:
        RowError: If a row names no cluster although there are several, or one that is not a destination.
    """
    only = next(iter(task.destinations)) if len(task.destinations) == 1 else None
    column = _column(batch, "cluster")
    named: list[str | None] = [None] if column is None else pc.unique(column).to_pylist()
    for name in named:
        if name is None and only is None:
            raise RowError("cluster", f"is null or missing; it has to name one of {listed(task.destinations)}")
        if name is not None and name not in task.destinations:
            raise RowError("cluster", f"names '{name}'; the stream's clusters are {listed(task.destinations)}")
    if len(named) == 1 or only is not None:
        yield named[0] or only or "", batch
        return
    for name in named:
        assert name is not None
        yield name, batch.filter(pc.equal(column, name))


def to_records(
    rows: pa.RecordBatch,
    destination: Destination,
    settings: SinkSettings,
    partitions: Callable[[str, int], int],
    on_delivery: Callable[..., None],
) -> Records:
    """Turn rows of one cluster into records.

    Args:
        rows: The rows; their schema was checked.
        destination: The cluster.
        settings: The settings; the partitioner is open.
        partitions: Returns the number of partitions of a topic of the cluster; its second argument is the least that is
            expected.
        on_delivery: The receiver of librdkafka's delivery reports.

    Raises:
        RowError: If a row names no topic, or one that it may not name, or a partition that does not exist, or if it has a
            header without a key.
    """
    n = rows.num_rows
    topics, numbers = _topics(rows, destination, settings)
    counts = [partitions(topic, 0) for topic in topics]
    chosen = _given_partitions(rows, topics, counts, numbers, partitions)
    (values, value_bytes), (keys, key_bytes) = _payload(rows, "value"), _payload(rows, "key")
    named = [topics[0]] * n if numbers is None else [topics[i] for i in numbers.to_pylist()]
    if settings.partitioner is not None:
        chosen = _choose(settings.partitioner, [named, values, keys, chosen], dict(zip(topics, counts, strict=True)))
    arguments: list[list[Any]] = [named, values, keys, chosen, [on_delivery] * n]
    timestamps, headers = _timestamps(rows), _headers(rows)
    if timestamps is not None or headers is not None:
        arguments += [[None] * n, timestamps or [0] * n]
    if headers is not None:
        arguments.append(headers)
    return Records(arguments, Volume(n, value_bytes + key_bytes))


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return the column; None if it is missing, or null in every row."""
    column = rows.column(name) if name in rows.schema.names else None
    return None if column is None or column.null_count == len(column) else column


def _payload(rows: pa.RecordBatch, name: str) -> tuple[list[bytes | None], int]:
    column = _column(rows, name)
    if column is None:
        return [None] * rows.num_rows, 0
    if _is_text(column.type):  # the same bytes, and cheaper to hand over
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    return column.to_pylist(), pc.sum(pc.binary_length(column)).as_py()


def _topics(
    rows: pa.RecordBatch, destination: Destination, settings: SinkSettings
) -> tuple[list[str], pa.Array | None]:
    """Return the topics that the rows name, and for each row the index of its topic; None if there is only one."""
    column = None if settings.topic is not None else _column(rows, "topic")
    if column is None:
        return [_checked(settings.topic, destination, settings)], None
    encoded = column.dictionary_encode(null_encoding="encode")
    topics = [_checked(name, destination, settings) for name in encoded.dictionary.to_pylist()]
    return topics, None if len(topics) == 1 else encoded.indices


def _checked(name: str | None, destination: Destination, settings: SinkSettings) -> str:
    if settings.topic is not None:
        return settings.topic
    if name is None:
        if destination.topic is None:
            raise RowError("topic", "is null or missing; it has to name the topic, or set the option 'topic'")
        return destination.topic
    if settings.topics and name not in settings.topics:
        raise RowError("topic", f"names '{name}'; the option 'topic' allows {listed(settings.topics)}")
    if destination.topics and name not in destination.topics:
        raise RowError("topic", f"names '{name}'; the stream has {listed(sorted(destination.topics))} on this cluster")
    if settings.pattern is not None and not settings.pattern.fullmatch(name):
        raise RowError(
            "topic", f"names '{name}', which does not match the option 'topic-pattern' ({settings.pattern.pattern})"
        )
    return name


def _given_partitions(
    rows: pa.RecordBatch,
    topics: Sequence[str],
    counts: list[int],
    numbers: pa.Array | None,
    partitions: Callable[[str, int], int],
) -> list[int]:
    """Return the partition that each row names; -1 if it names none. Update `counts` if a topic has grown."""
    column = _column(rows, "partition")
    if column is None:
        return [_UNASSIGNED] * rows.num_rows
    while True:
        limits = pa.scalar(counts[0], pa.int32()) if numbers is None else pa.array(counts, pa.int32()).take(numbers)
        wrong = pc.or_(pc.less(column, 0), pc.greater_equal(column, limits))
        place = pc.index(wrong, True).as_py()
        if place < 0:
            given: list[int] = column.fill_null(_UNASSIGNED).to_pylist()
            return given
        which = 0 if numbers is None else numbers[place].as_py()
        partition = column[place].as_py()
        counts[which] = partitions(topics[which], partition + 1)
        if not 0 <= partition < counts[which]:
            raise RowError(
                "partition", f"is {partition}; the topic '{topics[which]}' has the partitions 0 to {counts[which] - 1}"
            )


def _choose(partitioner: KafkaPartitioner, columns: Sequence[Sequence[Any]], counts: Mapping[str, int]) -> list[int]:
    """Return the partition of each row (topic, value, key, partition). The partitioner chooses for rows that name none."""
    choices = {topic: range(count) for topic, count in counts.items()}
    choose = partitioner.partition
    chosen = [
        choose(key, value, topic, choices[topic]) if partition == _UNASSIGNED else partition
        for topic, value, key, partition in zip(*columns, strict=True)
    ]
    for topic, partition in set(zip(columns[0], chosen, strict=True)):
        if partition not in choices[topic]:
            raise ConfigurationError(
                f"{type(partitioner).__name__} ('sink.partitioner') chose the partition {partition!r}; the topic '{topic}' "
                f"has the partitions 0 to {counts[topic] - 1}"
            )
    return chosen


def _timestamps(rows: pa.RecordBatch) -> list[int] | None:
    """Milliseconds since 1970; 0 is unset: librdkafka then takes the time of the call."""
    column = _column(rows, "timestamp")
    if column is None:
        return None
    ms = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    timestamps: list[int] = pc.max_element_wise(ms, 0, skip_nulls=True).to_pylist()
    return timestamps


def _headers(rows: pa.RecordBatch) -> list[list[tuple[str, bytes | None]] | None] | None:
    column = _column(rows, "headers")
    if column is None:
        return None
    lengths = column.value_lengths().fill_null(0).to_pylist()
    flat = column.flatten()
    keys = pc.struct_field(flat, "key")
    if keys.null_count:
        raise RowError("headers", "has a header without a key; leave it out, or give it a key")
    headers = iter(zip(keys.to_pylist(), pc.struct_field(flat, "value").to_pylist(), strict=True))
    return [list(islice(headers, length)) or None for length in lengths]
