"""From rows to records: the columns of a sink's input, and Arrow batches checked and turned into what is produced.

Everything is done a column at a time. No row becomes Python objects here, unless a partitioner of Python code has to see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import ConfigurationError, RowError, listed, suggestion
from dynamic_kafka.metadata.model import TOPIC_NAME
from dynamic_kafka.native import encoder
from dynamic_kafka.sink.partitioners import KafkaPartitioner
from dynamic_kafka.sink.report import Volume
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask

__all__ = [
    "COLUMNS",
    "DEAD_LETTER",
    "ENCODER",
    "HEADERS",
    "UNASSIGNED",
    "Records",
    "by_cluster",
    "check_schema",
    "encoded",
    "to_records",
]

UNASSIGNED = -1
"""The partition of a record for which librdkafka's partitioner chooses (RD_KAFKA_PARTITION_UA)."""
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The type of headers."""
ENCODER = "encoder"
"""The key in the metadata of a column that says how its rows are encoded (`native/encode/src/spec.rs`)."""
DEAD_LETTER = "__dead_letter"
"""A column for rows that SQL cannot encode: a struct of the reason and of the row as JSON. It is null for all other rows."""

_SLICE_BYTES = 16 * 1024 * 1024


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


COLUMNS: Mapping[str, tuple[str, Callable[[pa.DataType], bool]]] = {
    "key": ("string or binary", _is_payload),
    "value": ("string or binary", _is_payload),
    "topic": ("string", _is_text),
    "partition": ("int", pa.types.is_int32),
    "headers": ("array<struct<key:string,value:binary>>", _is_headers),
    "timestamp": ("timestamp", lambda found: pa.types.is_timestamp(found) and found.tz is not None),
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
        if name == DEAD_LETTER and settings.dead_letter_topic is not None:
            continue
        if name not in COLUMNS:
            hint = suggestion(name.lower(), COLUMNS) or "; drop it, or make it part of the value, as with to_json"
            raise ConfigurationError(f"Column '{name}' is not one of the sink's columns {', '.join(COLUMNS)}{hint}")
        expected, fits = COLUMNS[name]
        if names.count(name) > 1:
            raise ConfigurationError(f"Column '{name}' occurs {names.count(name)} times; keep one")
        if not fits(data_type):
            shown = "timestamp_ntz" if pa.types.is_timestamp(data_type) else data_type
            raise ConfigurationError(f"Column '{name}' has the type {shown}; cast it to {expected}")
    if "value" not in names:
        raise ConfigurationError(
            f"Column 'value' is missing (the columns are: {', '.join(names) or 'none'}); select what to write as 'value', "
            "or for tombstones cast(null as binary)"
        )
    if "topic" not in names and (settings.topics or settings.pattern):
        raise ConfigurationError(
            "Column 'topic' is missing. It names the topic of a row; add it, or set the option 'topic' to one topic"
        )


def encoded(batches: Iterator[pa.RecordBatch], specs: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Return the rows with bytes in place of structs, by the native kernel; `specs` says how a column is encoded.

    `sql.connectors.sink_rows` leaves that to the sink where Spark does not need the bytes. So the rows go to Python as Arrow
    columns, and Spark writes no text of them.

    Raises:
        RowError: If the message of a row would be longer than 2 GiB.
    """
    for batch in batches:
        n = batch.num_rows
        size = max(1, min(n, n * _SLICE_BYTES // max(1, batch.nbytes))) if specs else max(1, n)
        for start in range(0, n, size):
            rows = batch.slice(start, size)
            for name, spec in specs.items():
                place = rows.schema.get_field_index(name)
                column = rows.column(place)
                messages, errors = encoder(column.type, spec)(column, b"")
                if errors:
                    raise RowError(errors[0][1], errors[0][2])
                rows = rows.set_column(place, pa.field(name, messages.type), messages)
            yield rows


class Records(NamedTuple):
    """Rows of one cluster, as they are produced.

    Args:
        topics: The topics.
        rows: The columns. `value` and `key` are bytes, and null for a tombstone and for no key. `topic` is the place of the
            row's topic in `topics`; without it there is one topic. `partition` is null where librdkafka's partitioner
            chooses. `timestamp` is in milliseconds, and 0 for the time of the call. `headers` are as in `COLUMNS`, each with
            a key. All but `value` may be missing.
        volume: The number of records, and of bytes.
    """

    topics: list[str]
    rows: pa.RecordBatch
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
) -> Records:
    """Turn rows of one cluster into records. Their schema was checked, and the partitioner is open.

    `partitions` returns the number of partitions of a topic of the cluster; its second argument is the least that is
    expected.

    Raises:
        RowError: If a row names no topic, or one that it may not name, or a partition that does not exist, or if it has a
            header without a key.
    """
    topics, numbers = _topics(rows, destination, settings)
    counts = [partitions(topic, 0) for topic in topics]
    chosen = _given_partitions(rows, topics, counts, numbers, partitions)
    value, key = _payload(rows, "value"), _payload(rows, "key")
    if value is None:
        value = pa.nulls(rows.num_rows, pa.binary())  # a batch without any column would have no rows
    if settings.partitioner is not None:
        chosen = _choose(settings.partitioner, (value, key, chosen), topics, counts, numbers)
    columns = {
        "topic": numbers,
        "value": value,
        "key": key,
        "partition": chosen,
        "timestamp": _timestamps(rows),
        "headers": _headers(rows),
    }
    there = {name: column for name, column in columns.items() if column is not None}
    payload_bytes = sum(pc.sum(pc.binary_length(c), min_count=0).as_py() for c in (value, key) if c is not None)
    return Records(topics, pa.record_batch(there), Volume(rows.num_rows, payload_bytes))


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return the column; None if it is missing, or null in every row."""
    column = rows.column(name) if name in rows.schema.names else None
    return None if column is None or column.null_count == len(column) else column


def _payload(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    column = _column(rows, name)
    if column is not None and _is_text(column.type):
        return column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())  # the same bytes
    return column


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
    if not TOPIC_NAME.fullmatch(name):
        raise RowError("topic", f"is {name[:300]!r}; a topic's name has at most 249 letters, digits, '.', '_' and '-'")
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
) -> pa.Array | None:
    """Return the partition that each row names, null if it names none. Update `counts` if a topic has grown."""
    column = _column(rows, "partition")
    while column is not None:
        limits = pa.scalar(counts[0], pa.int32()) if numbers is None else pa.array(counts, pa.int32()).take(numbers)
        wrong = pc.or_(pc.less(column, 0), pc.greater_equal(column, limits))
        place = pc.index(wrong, True).as_py()
        if place < 0:
            break
        which = 0 if numbers is None else numbers[place].as_py()
        partition = column[place].as_py()
        counts[which] = partitions(topics[which], partition + 1)
        if not 0 <= partition < counts[which]:
            raise RowError(
                "partition", f"is {partition}; the topic '{topics[which]}' has the partitions 0 to {counts[which] - 1}"
            )
    return column


def _choose(
    partitioner: KafkaPartitioner,
    columns: tuple[pa.Array, pa.Array | None, pa.Array | None],
    topics: Sequence[str],
    counts: Sequence[int],
    numbers: pa.Array | None,
) -> pa.Array:
    """Return the partition of each row (value, key, partition). The partitioner chooses for rows that name none."""
    n = len(columns[0])
    which = [0] * n if numbers is None else numbers.to_pylist()
    values, keys, given = ([None] * n if column is None else column.to_pylist() for column in columns)
    choices = [range(count) for count in counts]
    choose = partitioner.partition
    chosen = [
        choose(key, value, topics[i], choices[i]) if partition is None else partition
        for i, value, key, partition in zip(which, values, keys, given, strict=True)
    ]
    for i, partition in set(zip(which, chosen, strict=True)):
        if partition not in choices[i]:
            raise ConfigurationError(
                f"{type(partitioner).__name__} ('sink.partitioner') chose the partition {partition!r}; the topic "
                f"'{topics[i]}' has the partitions 0 to {counts[i] - 1}"
            )
    return pa.array(chosen, pa.int32())


def _timestamps(rows: pa.RecordBatch) -> pa.Array | None:
    """Milliseconds since 1970; 0 is unset: librdkafka then takes the time of the call.

    So 1970-01-01T00:00:00Z itself cannot be written: no function of librdkafka takes it as a time.
    """
    column = _column(rows, "timestamp")
    if column is None:
        return None
    ms = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    earliest = pc.min(ms).as_py()
    if earliest is not None and earliest < 1:
        raise RowError(
            "timestamp",
            f"is {earliest} ms since 1970, which the client of Kafka does not write: it takes times from 1 ms on; correct "
            "it, or leave it null for the time of writing",
        )
    return ms.fill_null(0)


def _headers(rows: pa.RecordBatch) -> pa.Array | None:
    column = _column(rows, "headers")
    if column is not None and pc.struct_field(column.flatten(), "key").null_count:
        raise RowError("headers", "has a header without a key; leave it out, or give it a key")
    return column
