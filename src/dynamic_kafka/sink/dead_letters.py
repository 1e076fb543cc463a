"""Rows that cannot be written go to the topic `sink.dead-letter.topic`, on the cluster that they are for.

A dead letter is a record of the task's own producer. So it is in the same transaction as the task's other records with
exactly-once, and it is dropped with them if the task fails. There are two kinds, told apart by the header
`dynamic-kafka.content`:

1. `row`: a row that SQL could not encode. Its value is the row as JSON. Reason and JSON come in the column `DEAD_LETTER`.
2. `record`: a record that is larger than the producer takes, or than the topic takes as far as that is known. Key, value,
   headers and timestamp are those of the record.

The headers `dynamic-kafka.error`, `.cluster` and `.topic` say why and where to. A letter whose value is too large for one
record is split. Its parts have the headers `dynamic-kafka.letter`, the same id for all of them, and `.part`, such as `2/3`.
They are in one partition, in order, and their values joined are the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.errors import RowError
from dynamic_kafka.sink.records import DEAD_LETTER, HEADERS, Records, to_records
from dynamic_kafka.sink.report import Volume

if TYPE_CHECKING:
    from dynamic_kafka.sink.producers import ClusterProducer
    from dynamic_kafka.sink.settings import Destination, SinkSettings

__all__ = ["record_sizes", "with_letters"]

Sizes = npt.NDArray[np.int64]

_CLIENT_OVERHEAD = 36  # RD_KAFKAP_MESSAGE_V2_MAX_OVERHEAD of librdkafka, which it adds to each record
_BATCH_OVERHEAD = 61  # of a batch of Kafka's format 2, before its first record
_DEFAULT_TOPIC_BYTES = 1_048_588  # the brokers' default, for a letter's topic whose limit is not known
_MOST_ERROR_CHARACTERS = 2000
_PART_BYTES = 128  # the headers of a part, and what the numbers before a larger value take
_LETTER = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
    ]
)


@dataclass(frozen=True)
class _Letter:
    error: str
    topic: str
    content: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Mapping[str, Any], ...] = ()
    timestamp_ms: int = 0


def with_letters(
    rows: pa.RecordBatch, destination: Destination, settings: SinkSettings, producer: ClusterProducer
) -> tuple[Records | None, Records | None, int]:
    """Turn rows of one cluster into records, and those that cannot be written into dead letters.

    The schema of the rows was checked, and the partitioner is open.

    Returns:
        The records, the dead letters, and the number of rows that are in these; None for no records.

    Raises:
        RowError: As `to_records` does; or if key and headers of a row are too large for a dead letter, too.
        DeliveryError: If the topic for dead letters does not exist.
    """
    assert settings.dead_letter_topic is not None
    partitions = producer.partitions(settings.dead_letter_topic)  # with the first row, not with the first bad one
    rows, letters = _failed(rows, destination, settings)
    records = to_records(rows, destination, settings, producer.partitions) if rows.num_rows else None
    if records is not None and (too_large := _too_large(records, producer)):
        letters += [_of_record(records, place, why) for place, why in too_large.items()]
        records = _without(records, list(too_large))
    if not letters:
        return records, None, 0
    limit = producer.topic_limits([settings.dead_letter_topic])[0]
    most_bytes = min(producer.largest_bytes, _DEFAULT_TOPIC_BYTES if limit is None else limit)
    parts = [part for letter in letters for part in _parts(letter, producer.cluster, most_bytes, partitions)]
    volume = Volume(len(parts), sum(len(part["value"] or b"") + len(part["key"] or b"") for part in parts))
    batch = pa.RecordBatch.from_pylist(parts, schema=_LETTER)
    return records, Records([settings.dead_letter_topic], batch, volume), len(letters)


# --- rows that could not be encoded -------------------------------------------------------------------------------------


def _failed(
    rows: pa.RecordBatch, destination: Destination, settings: SinkSettings
) -> tuple[pa.RecordBatch, list[_Letter]]:
    """Return the rows that could be encoded, and letters of the others."""
    if DEAD_LETTER not in rows.schema.names or rows.column(DEAD_LETTER).null_count == rows.num_rows:
        return rows, []
    failed = rows.column(DEAD_LETTER).is_valid()
    bad = rows.filter(failed)
    topics = [None] * len(bad) if "topic" not in bad.schema.names else _bytes(bad.column("topic"))
    found = zip(*map(_bytes, bad.column(DEAD_LETTER).flatten()), topics, strict=True)
    letters = [
        _Letter(_text(error), settings.topic or _text(topic) or destination.topic or "", "row", row)
        for error, row, topic in found
    ]
    return rows.filter(pc.invert(failed)), letters


def _bytes(texts: pa.Array) -> list[bytes | None]:
    # Spark's texts need not be valid UTF-8.
    found: list[bytes | None] = texts.cast(
        pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()
    ).to_pylist()
    return found


def _text(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")


# --- records that are too large -----------------------------------------------------------------------------------------


def _too_large(records: Records, producer: ClusterProducer) -> dict[int, str]:
    """Return why records cannot be written because of their size, by their place."""
    of_client, of_batch = record_sizes(records.rows)
    found = {
        place: f"The record has {of_client[place]:,} bytes, more than the producer takes; raise max.request.size"
        for place in np.flatnonzero(of_client > producer.largest_bytes).tolist()
    }
    limits = [np.iinfo(np.int64).max if most is None else most for most in producer.topic_limits(records.topics)]
    if of_batch.max() > min(limits):
        numbers = records.rows.column("topic").to_numpy() if "topic" in records.rows.schema.names else 0
        most = np.broadcast_to(np.array(limits)[numbers], of_batch.shape)
        for place in np.flatnonzero(of_batch > most).tolist():
            why = f"The record has {of_batch[place]:,} bytes, more than max.message.bytes={most[place]} of the topic"
            found.setdefault(place, why)
    return dict(sorted(found.items()))


def record_sizes(rows: pa.RecordBatch) -> tuple[Sizes, Sizes]:
    """Return the size of each of `Records` as librdkafka counts it, and as a batch of its own without compression."""
    value, key = (_lengths(rows.column(name)) if name in rows.schema.names else None for name in ("value", "key"))
    assert value is not None
    key = np.full(len(value), -1) if key is None else key
    payload, count = np.maximum(key, 0) + np.maximum(value, 0), np.zeros(len(value), np.int64)
    if "headers" in rows.schema.names:
        headers = rows.column("headers")
        count = headers.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        names, contents = (_lengths(pc.struct_field(headers.flatten(), part)) for part in ("key", "value"))
        each = _varint(names) + names + _varint(contents) + np.maximum(contents, 0)
        until, ends = np.concatenate(([0], np.cumsum(each))), np.cumsum(count)
        payload = payload + until[ends] - until[ends - count]
    body = 3 + _varint(key) + _varint(value) + _varint(count) + payload  # attributes, and two numbers that are 0
    return payload + _CLIENT_OVERHEAD, _BATCH_OVERHEAD + _varint(body) + body


def _lengths(column: pa.Array) -> Sizes:
    """Return the sizes of values in bytes; -1 for null, as Kafka writes it."""
    found: Sizes = pc.binary_length(column).fill_null(-1).to_numpy().astype(np.int64)
    return found


def _varint(numbers: Sizes) -> Sizes:
    """Return the sizes of sizes: Kafka's numbers of 7 bits in a byte, of which one is the sign."""
    return np.ones(len(numbers), np.int64) + sum((numbers >= 1 << bits).astype(np.int64) for bits in (6, 13, 20, 27))


def _of_record(records: Records, place: int, why: str) -> _Letter:
    (row,) = records.rows.slice(place, 1).to_pylist()
    headers, timestamp_ms = tuple(row.get("headers") or ()), row.get("timestamp") or 0
    topic = records.topics[row.get("topic", 0)]
    return _Letter(why, topic, "record", row["value"], row.get("key"), headers, timestamp_ms)


def _without(records: Records, places: list[int]) -> Records | None:
    keep = np.ones(records.rows.num_rows, bool)
    keep[places] = False
    rows = records.rows.filter(pa.array(keep))
    payload = [rows.column(name) for name in ("key", "value") if name in rows.schema.names]
    size = sum(pc.sum(pc.binary_length(column), min_count=0).as_py() for column in payload)
    return Records(records.topics, rows, Volume(rows.num_rows, size)) if rows.num_rows else None


# --- letters ------------------------------------------------------------------------------------------------------------


def _parts(letter: _Letter, cluster: str, most_bytes: int, partitions: int) -> Iterator[dict[str, Any]]:
    """Yield a letter as rows of `_LETTER`: one, or as many as are needed for its value."""
    said = {
        "error": letter.error[:_MOST_ERROR_CHARACTERS],
        "cluster": cluster,
        "topic": letter.topic,
        "content": letter.content,
    }
    whole: dict[str, Any] = {
        "key": letter.key,
        "value": letter.value,
        "headers": [*letter.headers, *_headers(said)],
        "timestamp": letter.timestamp_ms,
    }
    if _size(whole) <= most_bytes:
        yield whole
        return
    room = most_bytes - _size({**whole, "value": b""}) - _PART_BYTES
    if room <= 0:
        raise RowError("key", "or its headers are too large for a dead letter, too; raise max.request.size")
    value, letter_id = letter.value or b"", uuid4()
    count = -(-len(value) // room)
    for number in range(count):
        more = {"letter": str(letter_id), "part": f"{number + 1}/{count}"}
        yield {
            **whole,
            "value": value[number * room : (number + 1) * room],
            "headers": [*whole["headers"], *_headers(more)],
            "partition": letter_id.int % partitions,
        }


def _headers(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": f"dynamic-kafka.{name}", "value": text.encode()} for name, text in texts.items()]


def _size(letter: Mapping[str, Any]) -> int:
    return max(int(size[0]) for size in record_sizes(pa.RecordBatch.from_pylist([letter], schema=_LETTER)))
