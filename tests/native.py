"""The native decoder for tests: the program `native/decode/examples/decode.rs`, which is built with cargo."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dynamic_kafka.formats import ERROR

__all__ = ["DECODED", "LEFT", "NULL", "decode", "differences", "with_ordered_maps"]

DECODED, NULL, LEFT = range(3)
"""What became of a message."""
_CRATE = Path(__file__).parents[1] / "native" / "decode"
_SHOWN = 5


@cache
def _program() -> str:
    """Build the program, if cargo is there."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    command = ["cargo", "build", "--quiet", "--release", "--example", "decode", "--message-format", "json"]
    messages = subprocess.run(command, cwd=_CRATE, stdout=subprocess.PIPE, check=True, text=True).stdout
    found = (json.loads(line).get("executable") for line in messages.splitlines())
    return next(str(path) for path in found if path and os.access(path, os.X_OK))


def decode(spec: dict[str, Any], messages: pa.Array) -> tuple[pa.StructArray, pa.Array]:
    """Return the rows of messages, and what became of each message."""
    sent = io.BytesIO()
    with pa.ipc.new_stream(sent, pa.schema([("messages", pa.binary())])) as stream:
        stream.write_batch(pa.record_batch([messages], ["messages"]))
    command = [_program(), json.dumps(spec)]
    answer = subprocess.run(command, input=sent.getvalue(), stdout=subprocess.PIPE, check=True).stdout
    table = pa.ipc.open_stream(answer).read_all().combine_chunks()
    rows = table["rows"].combine_chunks()
    rows.validate(full=True)
    return rows, table["outcome"].combine_chunks()


def differences(truth: pa.StructArray, rows: pa.StructArray, outcomes: pa.Array, messages: pa.Array) -> list[str]:
    """Return what the native decoder did otherwise than the truth, as text; at most five messages.

    A message that was decoded has the same row, without an error. One that is null has none, and one that is left may have
    any: its bytes are kept.
    """
    decoded = pc.equal(outcomes, DECODED)
    assert rows.is_valid().equals(decoded)
    error = pc.struct_field(truth, ERROR)
    wrong = pc.or_(
        pc.and_(decoded, pc.or_(truth.is_null(), error.is_valid())), pc.and_(pc.equal(outcomes, NULL), truth.is_valid())
    )
    found = set(pc.indices_nonzero(wrong).to_pylist())
    kept = pc.indices_nonzero(decoded)
    expected, actual = truth.take(kept), rows.take(kept)
    for field in rows.type:
        one, other = _bits(pc.struct_field(expected, field.name)), _bits(pc.struct_field(actual, field.name))
        same = one if one.type == other.type else one.cast(other.type)
        if not same.equals(other):
            pairs = zip(kept.to_pylist(), one.to_pylist(), other.to_pylist(), strict=True)
            found.update(i for i, a, b in pairs if repr(a) != repr(b))
    return [
        f"{messages[i].as_py()!r}: expected {truth[i].as_py()!r}, not {rows[i].as_py()!r}"
        for i in sorted(found)[:_SHOWN]
    ]


def with_ordered_maps(rows: pa.StructArray) -> pa.StructArray:
    """Return rows with the entries of maps in the order of their keys. Google's library has them in any order."""

    def ordered(value: Any, type_: pa.DataType) -> Any:
        if value is None:
            return None
        if pa.types.is_map(type_):
            return sorted((key, ordered(item, type_.item_type)) for key, item in value)
        if pa.types.is_list(type_):
            return [ordered(item, type_.value_type) for item in value]
        if pa.types.is_struct(type_):
            return {field.name: ordered(value[field.name], field.type) for field in type_}
        return value

    found = []
    for field in rows.type:
        array = pc.struct_field(rows, field.name)
        if "map<" in str(field.type):
            array = pa.array([ordered(value, field.type) for value in array.to_pylist()], field.type)
        found.append(array)
    return pa.StructArray.from_arrays(found, fields=list(rows.type), mask=rows.is_null())


def _bits(array: pa.Array) -> pa.Array:
    """Return a floating point column as whole numbers: -0.0 is not 0.0, and NaN is NaN."""
    if pa.types.is_floating(array.type):
        return array.view(pa.int32() if array.type == pa.float32() else pa.int64())
    return array
