"""Write the records of the benchmarks, in its own process: `python -m benchmarks.records fill|avro|wide|nexmark|steady ...`.

`fill`, `avro`, `wide` and `nexmark` write a topic as fast as possible. `steady` writes at an even rate until stdin ends.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import fastavro
from confluent_kafka import KafkaError, KafkaException, Producer
from scripts.spark_versions import ROOT
from tests.nexmark.events import events

__all__ = [
    "AVRO_SCHEMA",
    "VALUE_BYTES",
    "fill",
    "fill_avro",
    "fill_nexmark",
    "fill_wide",
    "produce_one_each",
    "steady",
    "wide_columns",
    "wide_schema",
]

VALUE_BYTES = 120
_FIELDS = {"id": "long", "user": "string", "session": "string", "amount": "int", "x": "string"}
AVRO_SCHEMA = {
    "type": "record",
    "name": "record",
    "namespace": "org.apache.flink.avro.generated",
    "fields": [{"name": name, "type": ["null", of], "default": None} for name, of in _FIELDS.items()],
}
"""The schema that a table with these columns has in Flink and in ours."""
_BLOCK = 5_000
_TICK_S = 0.01
_NOISE = Random(1).randbytes(2**21).hex()
_FAST = {"compression.type": "lz4", "linger.ms": 50, "batch.num.messages": 10_000, "batch.size": 1_000_000}


def fill(servers: str, topic: str, *, partitions: int, records: int, value_bytes: int = VALUE_BYTES) -> None:
    """Write `records` values, 120 bytes by default, evenly over the partitions, compressed with lz4."""
    _call("fill", servers, topic, partitions, records, value_bytes)


def fill_avro(servers: str, topic: str, *, partitions: int, records: int, schema_id: int) -> None:
    """Write the same records as `fill` as Avro messages, with the id that a registry gave to `AVRO_SCHEMA`."""
    _call("avro", servers, topic, partitions, records, schema_id)


def wide_columns(fields: int) -> str:
    """Return the columns of `fill_wide` in the DDL of Spark and of Flink."""
    others = (f"f{i} {'BIGINT' if i % 2 else 'STRING'}" for i in range(fields - 2))
    return ", ".join(["status STRING", "amount DOUBLE", *others])


def wide_schema(fields: int) -> dict[str, Any]:
    """Return the Avro schema that a table with `wide_columns` has in Flink and in ours."""
    types = {"STRING": "string", "BIGINT": "long", "DOUBLE": "double"}
    columns = [column.split() for column in wide_columns(fields).split(", ")]
    parts = [{"name": name, "type": ["null", types[of]], "default": None} for name, of in columns]
    return {"type": "record", "name": "record", "namespace": "org.apache.flink.avro.generated", "fields": parts}


def fill_wide(
    servers: str, topic: str, *, partitions: int, records: int, fields: int, schema_id: int | None = None
) -> None:
    """Write JSON objects with so many fields, or Avro messages. One in a hundred has the status `paid`."""
    _call("wide", servers, topic, partitions, records, fields, *([] if schema_id is None else [schema_id]))


def fill_nexmark(servers: str, topic: str, *, partitions: int, records: int) -> None:
    """Write Nexmark's events, one each millisecond of event time, to the partitions in turn."""
    _call("nexmark", servers, topic, partitions, records)


@contextmanager
def steady(servers: str, topic: str, *, partitions: int, rate: int) -> Iterator[None]:
    """Within the block, write `rate` records a second to the partitions in turn, and send each one at once."""
    command = [sys.executable, "-m", "benchmarks.records", "steady", servers, topic, str(partitions), str(rate)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"The producer of topic '{topic}' ended early. Its message is above.")
    finally:
        process.communicate(timeout=60)


def produce_one_each(producers: list[tuple[Producer, str, int]]) -> int:
    """Write one record to each partition of (producer, topic, partitions), wait for all, and return their number."""
    for producer, topic, partitions in producers:
        for partition in range(partitions):
            producer.produce(topic, b"x" * VALUE_BYTES, partition=partition, on_delivery=_check)
            producer.poll(0)
    for producer, _, _ in producers:
        producer.flush()
    return sum(partitions for _, _, partitions in producers)


def _call(*arguments: object) -> None:
    subprocess.run(
        [sys.executable, "-m", "benchmarks.records", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        check=True,
    )


def _fill(servers: str, topic: str, partitions: int, records: int, value: Callable[[int], bytes]) -> None:
    producer = _producer(servers)
    for partition in range(partitions):
        first, end = records * partition // partitions, records * (partition + 1) // partitions
        for begin in range(first, end, _BLOCK):
            messages = [{"value": value(i)} for i in range(begin, min(begin + _BLOCK, end))]
            while len(producer) > 400_000:
                producer.poll(0.05)
            producer.produce_batch(topic, messages, partition=partition, on_delivery=_check)
        producer.poll(0)
    producer.flush()


def _fill_nexmark(servers: str, topic: str, partitions: int, records: int) -> None:
    producer = _producer(servers)
    for i, message in enumerate(events(records, step_ms=1, extra=60)):
        producer.produce(topic, message, partition=i % partitions, on_delivery=_check)
        while i % _BLOCK == 0 and len(producer) > 400_000:
            producer.poll(0.05)
    producer.flush()


def _producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 500_000, **_FAST})


def _value(i: int, size: int) -> bytes:
    # Half of it differs from record to record, as in most JSON: lz4 makes it about 2.5 times smaller.
    mixed = i * 0x9E3779B97F4A7C15 % 2**64
    text = (
        f'{{"id":{i:10d},"user":"user-{mixed >> 44:07d}","session":"{mixed:016x}","amount":{mixed % 100_000:5d},"x":"'
    )
    if size > VALUE_BYTES:
        at = mixed % (len(_NOISE) - size)
        text += _NOISE[at : at + size // 2 - len(text) // 2]
    return (text + "x" * (size - 2 - len(text)) + '"}').encode()


def _wide(i: int, fields: int) -> dict[str, Any]:
    mixed = i * 0x9E3779B97F4A7C15 % 2**64
    others = {
        f"f{n}": (mixed + n) % 1_000_000 if n % 2 else f"text {(mixed >> n % 40) % 10_000}" for n in range(fields - 2)
    }
    return {"status": "open" if i % 100 else "paid", "amount": mixed % 100_000 / 100, **others}


def _avro(row: dict[str, Any], schema_id: int, schema: Any) -> bytes:
    message = io.BytesIO()
    message.write(b"\0" + schema_id.to_bytes(4))
    fastavro.schemaless_writer(message, schema, row)
    return message.getvalue()


def _as_avro(row: Callable[[int], dict[str, Any]], schema_id: int, schema: dict[str, Any]) -> Callable[[int], bytes]:
    parsed = fastavro.parse_schema(schema)
    return lambda i: _avro(row(i), schema_id, parsed)


def _steady(servers: str, topic: str, partitions: int, rate: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    value, sent, began = b"x" * VALUE_BYTES, 0, time.monotonic()
    stopped = _ends_with_stdin()
    while not stopped():
        due = int((time.monotonic() - began) * rate)
        for i in range(sent, due):
            producer.produce(topic, value, partition=i % partitions, on_delivery=_check)
        sent = due
        producer.poll(0)
        time.sleep(_TICK_S)
    producer.flush()


def _ends_with_stdin() -> Callable[[], bool]:
    thread = threading.Thread(target=sys.stdin.read, daemon=True)
    thread.start()
    return lambda: not thread.is_alive()


def _check(error: KafkaError | None, _: object) -> None:
    if error is not None:
        raise KafkaException(error)


if __name__ == "__main__":
    what, to, topic, *numbers = sys.argv[1:]
    partitions, number, *more = map(int, numbers)
    if what == "fill":
        _fill(to, topic, partitions, number, partial(_value, size=more[0]))
    elif what == "avro":
        _fill(
            to, topic, partitions, number, _as_avro(lambda i: json.loads(_value(i, VALUE_BYTES)), more[0], AVRO_SCHEMA)
        )
    elif what == "wide":
        wide = partial(_wide, fields=more[0])
        as_json = lambda i: json.dumps(wide(i)).encode()  # noqa: E731
        _fill(to, topic, partitions, number, _as_avro(wide, more[1], wide_schema(more[0])) if more[1:] else as_json)
    elif what == "nexmark":
        _fill_nexmark(to, topic, partitions, number)
    else:
        _steady(to, topic, partitions, number)
