"""Protobuf: (m) a column of messages to columns on one core, and Google's parser beside it, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

import pyarrow as pa
from benchmarks.report import Result
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructType

from dynamic_kafka.formats.kernel import decoder
from dynamic_kafka.formats.protobuf.descriptors import message_of_set
from dynamic_kafka.formats.protobuf.plan import Missing, plan_of
from dynamic_kafka.formats.protobuf.schemas import parse_schema

__all__ = ["protobuf_decoding"]

_PROTO = """syntax = "proto3";
message Row { int64 id = 1; string user = 2; string session = 3; double amount = 4; bool paid = 5; }"""
_SCHEMA = (
    StructType()
    .add("id", LongType())
    .add("user", StringType())
    .add("session", StringType())
    .add("amount", DoubleType())
    .add("paid", BooleanType())
)
_BATCH = 10_000
_REPEATED = 20

Tell = Callable[[str], None]


def protobuf_decoding(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (m). Google's parser makes an object of each message, which is no column yet."""
    type_ = message_of_set("name", "Row", parse_schema(_PROTO, {}))
    row = GetMessageClass(type_.descriptor)
    encoded = [
        row(
            id=i * 1_000_003, user=f"user-{i % 1000}", session=f"{i:067x}", amount=i * 1.5, paid=True
        ).SerializeToString()
        for i in range(1, records + 1)
    ]
    messages = pa.array(encoded, pa.binary())
    decode = decoder(_SCHEMA, {"format": "protobuf", "plan": plan_of(type_, _SCHEMA, Missing(defaults=False))})
    parts = [messages.slice(start, _BATCH) for start in range(0, records, _BATCH)]
    ours, theirs = [], []
    for i in range(count + 1):
        began = time.process_time()
        for _ in range(_REPEATED):
            for part in parts:
                decode(part)
        native = time.process_time()
        for message in encoded:
            row.FromString(message)
        google = time.process_time()
        if i:  # the first ones do not count
            ours.append(_REPEATED * records / (native - began))
            theirs.append(records / (google - native))
            tell(f"{ours[-1] / 1e6:.2f} M and {theirs[-1] / 1e6:.2f} M records/s")
    yield Result(
        "m",
        f"Protobuf to columns, {sum(map(len, encoded)) // records} B, records a second and core",
        f"{median(ours) / 1e6:.1f} M",
        f"{median(theirs) / 1e6:.2f} M",
        median(ours),
        ours,
        1_000_000,
        "at least",
        {"native": ours, "google": theirs},
        "Google's parser",
    )
