"""The rows of the source: the columns with their Arrow types, and the conversion of messages to record batches.

The columns are those of Spark's own Kafka source, so that existing queries run unchanged, then `cluster`, and on request
`headers` and `leader_epoch`. Each field of a message becomes a Python object once, one column after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from dynamic_kafka.errors import RecordError

__all__ = ["COLUMNS", "Messages", "PartitionMessages", "arrow_schema", "to_batch"]

Messages = Sequence[Message]


class PartitionMessages(NamedTuple):
    """Messages of one partition, in order of offset; at least one."""

    topic: str
    partition: int
    messages: Messages


COLUMNS: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "cluster": pa.string(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "leader_epoch": pa.int32(),
}
"""All columns, in order. `spark.datasource` declares them again as Spark's types; the reason stands there."""


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of batches with these columns."""
    return pa.schema([(name, COLUMNS[name]) for name in columns])


def to_batch(schema: pa.Schema, cluster: str, runs: Sequence[PartitionMessages]) -> pa.RecordBatch:
    """Turn messages into one batch.

    Args:
        schema: From `arrow_schema`.
        cluster: The messages' cluster.
        runs: The messages by partition: at least one, and no events.

    Raises:
        RecordError: If a record's time does not fit into Spark's timestamp.
    """
    messages = runs[0].messages if len(runs) == 1 else [m for run in runs for m in run.messages]
    n = len(messages)
    times: list[tuple[int, int]] = []
    arrays = []
    for name, data_type in zip(schema.names, schema.types, strict=True):
        if name == "cluster":
            array = pa.repeat(pa.scalar(cluster), n)
        elif name == "topic" and len({run.topic for run in runs}) == 1:
            array = pa.repeat(pa.scalar(runs[0].topic), n)
        elif name == "partition":
            numbers = b"".join([run.partition.to_bytes(4, sys.byteorder) * len(run.messages) for run in runs])
            array = pa.Array.from_buffers(data_type, n, [None, pa.py_buffer(numbers)])
        elif name == "offset":
            array = pa.concat_arrays([_offsets(run.messages) for run in runs])
        elif name in ("timestamp", "timestampType"):
            times = times or list(map(Message.timestamp, messages))
            array = _timestamps(cluster, times, messages) if name == "timestamp" else _timestamp_types(times)
        elif name == "headers":
            array = pa.array(list(map(_headers, messages)), data_type)
        else:
            array = pa.array(list(map(_GETTERS[name], messages)), data_type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_GETTERS: Mapping[str, Callable[[Message], Any]] = {
    "key": Message.key,
    "value": Message.value,
    "topic": Message.topic,
    "leader_epoch": Message.leader_epoch,
}
_ASCENDING = pa.array(range(20_000), pa.int64())


def _offsets(messages: Messages) -> pa.Array:
    first, last, n = messages[0].offset(), messages[-1].offset(), len(messages)
    assert first is not None
    assert last is not None
    if last - first + 1 == n <= len(_ASCENDING):  # no gap: 1 ns a record instead of 45
        return pc.add(_ASCENDING.slice(0, n), first)
    return pa.array(list(map(Message.offset, messages)), pa.int64())


def _timestamps(cluster: str, times: list[tuple[int, int]], messages: Messages) -> pa.Array:
    millis = pa.array(list(map(itemgetter(1), times)), pa.int64())
    try:
        return pc.multiply_checked(millis, 1000).cast(COLUMNS["timestamp"])
    except pa.ArrowInvalid:
        bad = next(m for m, (_, ms) in zip(messages, times, strict=True) if not -(2**63) <= ms * 1000 < 2**63)
        raise RecordError(
            f"the record's timestamp {bad.timestamp()[1]} ms does not fit into a Spark timestamp; leave the timestamp "
            "column out with a schema of your own, or start after this record",
            cluster_id=cluster,
            topic=bad.topic() or "",
            partition=bad.partition() or 0,
            offset=bad.offset() or 0,
        ) from None


def _timestamp_types(times: list[tuple[int, int]]) -> pa.Array:
    # librdkafka: 0 none, 1 create time, 2 log append time; Spark and Java: -1, 0, 1.
    kinds = set(map(itemgetter(0), times))
    if len(kinds) == 1:
        return pa.repeat(pa.scalar(kinds.pop() - 1, pa.int32()), len(times))
    return pa.array([kind - 1 for kind, _ in times], pa.int32())


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return (
        [{"key": key, "value": value} for key, value in cast("list[tuple[str, bytes]]", headers)] if headers else None
    )
