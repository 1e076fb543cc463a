"""Formats: (h) JSON beside `from_json` and Flink SQL, (i) Avro on one core, (o) encoding."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import fastavro
import pyarrow as pa
from benchmarks.drivers import Child, Driver
from benchmarks.flink import FLINK
from benchmarks.records import fill
from benchmarks.report import Result
from benchmarks.rivals import Measure, Target, all_three, compared
from pyspark.sql.types import BooleanType, DoubleType, IntegerType, LongType, StringType, StructType

from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.encoding import encode
from dynamic_kafka.formats.avro.format import AVRO
from dynamic_kafka.formats.avro.schemas import parse_schema, schema_text
from dynamic_kafka.formats.json.format import rows_of_json
from dynamic_kafka.testing import KafkaBroker

__all__ = ["avro_decoding", "encoding", "json_decoding"]

_COLUMNS = "`id` BIGINT, `user` STRING, `session` STRING, `amount` INT, `x` STRING"
_SCHEMA = (
    StructType()
    .add("id", LongType())
    .add("user", StringType())
    .add("session", StringType())
    .add("amount", DoubleType())
    .add("paid", BooleanType())
)
_ROWS = StructType([*_SCHEMA.fields[:3]]).add("amount", IntegerType()).add("x", StringType())
_AVRO_RECORDS = 200_000
_BATCH = 10_000

Tell = Callable[[str], None]


def json_decoding(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (h): the same records of 120 bytes, five columns, to noop; in Flink to `blackhole`."""
    with KafkaBroker(heap="1g") as broker, all_three() as (ours, jvm, flink):
        broker.create_topic("json", 8)
        tell("writing the records")
        fill(broker.bootstrap_servers, "json", partitions=8, records=records)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": "json",
            "startingOffsets": "earliest",
        }
        table = {"topic": "json", "format": "json", "properties.bootstrap.servers": broker.bootstrap_servers}
        flink.create_tables(_COLUMNS, table, records=records)

        def measure(driver: Driver) -> float:
            return float(driver("decode", options=options, columns=_COLUMNS)["seconds"])

        measures: dict[str, tuple[Child, Measure]] = {
            "ours": (ours, partial(measure, ours)),
            "JVM": (jvm, partial(measure, jvm)),
            FLINK: (flink, flink.decode),
        }
        targets: dict[str, Target] = {"JVM": (3.0, "at least"), FLINK: (1.5, "at least")}
        yield from compared("h", "JSON to columns, SQL API", measures, targets, records=records, count=count, tell=tell)


def avro_decoding(count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (i): a column of Avro bytes to columns on one core, in batches of the size that Spark uses."""
    text = schema_text(_SCHEMA, legacy_timestamps=True)
    schema = fastavro.parse_schema(json.loads(text))
    encoded = []
    for i in range(_AVRO_RECORDS):
        row = {
            "id": i * 1_000_003,
            "user": f"user-{i % 1000}",
            "session": f"{i:070x}",
            "amount": i * 1.5,
            "paid": i % 2 == 0,
        }
        message = io.BytesIO()
        fastavro.schemaless_writer(message, schema, row)
        encoded.append(message.getvalue())
    messages = pa.array(encoded, pa.binary())
    batches = [messages.slice(start, _BATCH) for start in range(0, len(messages), _BATCH)]
    decode, rates = AVRO.decoder(_SCHEMA, {}), []
    for i in range(count + 1):
        began = time.process_time()
        for batch in batches:
            decode(batch)
        if i:  # the first one does not count
            rates.append(len(messages) / (time.process_time() - began))
            tell(f"{rates[-1]:.0f} records/s")
    yield Result(
        "i",
        f"Avro to columns, {messages.nbytes // len(messages)} B, records a second and core",
        f"{median(rates) / 1000:.0f} k",
        "",
        median(rates),
        rates,
        300_000,
        "at least",
        {"records_per_second": rates},
    )


def encoding(count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (o): the rows of case (h) to messages on one core, in batches of the size that Spark uses."""
    rows = pa.array((_row(i) for i in range(_AVRO_RECORDS)), arrow_type(_ROWS))
    batches = [rows.slice(start, _BATCH) for start in range(0, len(rows), _BATCH)]
    no_column: Any = None  # Spark's, which an encoder does not need
    to_json = rows_of_json(no_column, _ROWS, {}).encode
    avro = parse_schema(schema_text(_ROWS, legacy_timestamps=True))
    encoders: dict[str, Callable[[pa.StructArray], object]] = {
        "JSON": to_json,
        "Avro": lambda batch: encode(batch, avro),
    }
    found: dict[str, list[float]] = {name: [] for name in encoders}
    for i in range(count + 1):
        for name, function in encoders.items():
            began = time.process_time()
            for batch in batches:
                function(batch)
            if i:  # the first one does not count
                found[name].append((time.process_time() - began) * 1e6 / len(rows))
                tell(f"{name}: {found[name][-1]:.2f} us")
    for name, times in found.items():
        rates = [1e6 / us for us in times]
        yield Result(
            "o",
            f"rows to {name}, records a second and core",
            f"{median(rates) / 1000:.0f} k",
            "",
            median(rates),
            rates,
            1_000_000,
            "at least",
            {"records_per_second": rates},
        )


def _row(i: int) -> dict[str, object]:
    mixed = i * 0x9E3779B97F4A7C15 % 2**64
    texts = {"user": f"user-{mixed >> 44:07d}", "session": f"{mixed:016x}", "x": "x" * 40}
    return {"id": i, "amount": mixed % 100_000, **texts}
