"""Formats that are the native kernel's alone: Spark's workers call it over Arrow batches.

A format makes the spec for the kernel (`native/decode/src/spec.rs`, `native/encode/src/spec.rs`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from dynamic_kafka import native
from dynamic_kafka.errors import RowError
from dynamic_kafka.formats.arrow import arrow_type, encoded
from dynamic_kafka.formats.expressions import nullable
from dynamic_kafka.formats.format import Decoder

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["decoder", "encode", "encoded_rows"]


def decoder(schema: StructType, spec: Mapping[str, Any]) -> Decoder:
    """Return what decodes messages in a worker. It also takes why messages cannot be read, by their places."""
    columns, text = nullable(schema).json(), json.dumps(spec)

    def from_bytes(messages: pa.Array, errors: Mapping[int, str] | None = None) -> pa.Array:
        return _decoder(columns, text).decode(messages, errors=errors)

    return Decoder(from_bytes)


@lru_cache(256)
def _decoder(columns: str, spec: str) -> native.Decoder:
    # Not by the Arrow type of the columns: two of them are the same with other precisions of TIME.
    return native.Decoder(arrow_type(StructType.fromJson(json.loads(columns))), json.loads(spec))


def encode(column: Column, schema: StructType, spec: Mapping[str, Any]) -> Column:
    """Return the messages of a column of rows, as `Format.encode` does."""
    text = json.dumps(spec)

    def to_bytes(rows: pa.Array) -> pa.Array:  # plans show its name
        return encoded_rows(schema, text, rows)

    return encoded(to_bytes, column, schema)


def encoded_rows(schema: StructType, spec: str, rows: pa.Array, prefix: bytes = b"") -> pa.Array:
    """Return a message for each row.

    Args:
        schema: The columns.
        spec: The spec for the kernel, as JSON.
        rows: The rows.
        prefix: The bytes with which each message begins.

    Raises:
        RowError: If a row cannot be encoded.
    """
    messages, errors = native.encoder(arrow_type(nullable(schema)), spec)(rows, prefix)
    if errors:
        _, place, reason = errors[0]
        raise RowError(place, reason)
    return messages
