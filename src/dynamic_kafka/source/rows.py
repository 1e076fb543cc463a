"""The rows of the source: columns, their Arrow types, and messages turned into record batches.

Columns are those of Spark's own Kafka source, so that existing queries run unchanged, then `cluster`, and on request
`headers` and `leader_epoch`. A message becomes Python objects once, a column at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from dynamic_kafka.errors import RecordError

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "Messages", "arrow_schema", "to_batch"]

Messages = Sequence[Message]

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
"""Every column there is, in order."""

DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name not in ("headers", "leader_epoch"))


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """The schema of batches with these columns."""
    return pa.schema([(name, COLUMNS[name]) for name in columns])


def to_batch(schema: pa.Schema, cluster: str, topic: str | None, messages: Messages) -> pa.RecordBatch:
    """Turn messages into one batch.

    Args:
        schema: From `arrow_schema`.
        cluster: The cluster they come from.
        topic: Their topic if it is one and the same, else None.
        messages: Records only, no events; at least one.

    Raises:
        RecordError: If a record's time does not fit into Spark's timestamp.
    """
    n = len(messages)
    times: list[tuple[int, int]] = []
    arrays = []
    for name, data_type in zip(schema.names, schema.types, strict=True):
        if name == "cluster":
            array = pa.repeat(pa.scalar(cluster), n)
        elif name == "topic" and topic is not None:
            array = pa.repeat(pa.scalar(topic), n)
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
    "partition": Message.partition,
    "offset": Message.offset,
    "leader_epoch": Message.leader_epoch,
}


def _timestamps(cluster: str, times: list[tuple[int, int]], messages: Messages) -> pa.Array:
    millis = pa.array([ms for _, ms in times], pa.int64())
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
    return pa.array([kind - 1 for kind, _ in times], pa.int32())


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return (
        [{"key": key, "value": value} for key, value in cast("list[tuple[str, bytes]]", headers)] if headers else None
    )
