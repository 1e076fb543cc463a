"""Protobuf: (m) a column of messages to columns on one core, by the native decoder and by Python, without Spark."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pyarrow as pa
from benchmarks.report import Result
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructType

from dynamic_kafka.formats.protobuf.decoding import Missing, decoder
from dynamic_kafka.formats.protobuf.descriptors import message_of_set
from dynamic_kafka.formats.protobuf.native import native_plan
from dynamic_kafka.formats.protobuf.schemas import parse_schema

__all__ = ["protobuf_decoding"]

_CRATE = Path(__file__).parents[1] / "native" / "decode"
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
    """Measure case (m). The native decoder is a program here, and its time has the reading and writing of Arrow in it."""
    type_ = message_of_set("name", "Row", parse_schema(_PROTO, {}))
    row = GetMessageClass(type_.descriptor)
    encoded = [
        row(
            id=i * 1_000_003, user=f"user-{i % 1000}", session=f"{i:067x}", amount=i * 1.5, paid=True
        ).SerializeToString()
        for i in range(1, records + 1)
    ]
    messages = pa.array(encoded, pa.binary())
    missing = Missing(defaults=False)
    spec = {"format": "protobuf", **(native_plan(type_, _SCHEMA, missing) or {})}
    in_python, program = decoder(type_, _SCHEMA, missing, ignore_errors=False), _program()
    ours, theirs = [], []
    for i in range(count + 1):
        seconds = _native_seconds(program, spec, messages) / _REPEATED
        began = time.process_time()
        for start in range(0, records, _BATCH):
            in_python(messages.slice(start, _BATCH).to_pylist())
        python_seconds = time.process_time() - began
        if i:  # the first ones do not count
            ours.append(records / seconds)
            theirs.append(records / python_seconds)
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
        {"native": ours, "python": theirs},
        "Python",
    )


def _program() -> str:
    """Build the program that decodes an Arrow stream, and return its path."""
    command = ["cargo", "build", "--quiet", "--release", "--example", "decode", "--message-format", "json"]
    lines = subprocess.run(command, cwd=_CRATE, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    found = (json.loads(line) for line in lines)
    return next(str(part["executable"]) for part in found if part.get("target", {}).get("name") == "decode")


def _native_seconds(program: str, spec: dict[str, object], messages: pa.Array) -> float:
    """Return the CPU time in which the program decodes the messages several times."""
    sent = io.BytesIO()
    with pa.ipc.new_stream(sent, pa.schema([("messages", pa.binary())])) as stream:
        for _ in range(_REPEATED):
            for start in range(0, len(messages), _BATCH):
                stream.write_batch(pa.record_batch([messages.slice(start, _BATCH)], ["messages"]))
    before = _children_seconds()
    subprocess.run([program, json.dumps(spec)], input=sent.getvalue(), stdout=subprocess.DEVNULL, check=True)
    return _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
