"""Formats that are the native kernel's alone: Spark's workers call it over Arrow batches.

A format makes the spec for the kernel (`native/decode/src/spec.rs`, `native/encode/src/spec.rs`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from dynamic_kafka import native
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.expressions import has, nullable
from dynamic_kafka.formats.format import Decode, Rows, Used
from dynamic_kafka.spark_versions import TimeType

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["decoder", "native_decoder", "rows_of"]


def decoder(schema: StructType, spec: Mapping[str, Any], used: Used | None = None) -> Decode:
    """Return what decodes messages in a worker. It also takes why messages cannot be read, by their places."""
    columns, text = nullable(schema).json(), json.dumps(spec)

    def from_bytes(messages: pa.Array, errors: Mapping[int, str] | None = None) -> pa.Array:
        return _decoder(columns, text, used).decode(messages, errors=errors)

    return from_bytes


@lru_cache(256)
def _decoder(columns: str, spec: str, used: Used | None) -> native.Decoder:
    # Not by the Arrow type of the columns: two of them are the same with other precisions of TIME.
    return native_decoder(arrow_type(StructType.fromJson(json.loads(columns))), json.loads(spec), None, used)


def native_decoder(
    columns: pa.StructType, spec: Mapping[str, Any], look_up: native.LookUp | None, used: Used | None
) -> native.Decoder:
    """Return the kernel's decoder, which builds the used columns."""
    return native.Decoder(columns, spec, look_up, None if used is None else used.columns)


def rows_of(
    column: Column, schema: StructType, spec: Mapping[str, Any], header: Callable[[], bytes] | None = None
) -> Rows:
    """Return rows and what encodes them.

    Args:
        column: The rows.
        schema: Their fields.
        spec: The spec for the kernel.
        header: Returns the bytes with which each message begins. It is called for batches with messages only.
    """
    text = json.dumps(spec)

    def to_bytes(rows: pa.Array) -> native.Encoded:  # plans show its name
        prefix = header() if header is not None and rows.null_count < len(rows) else b""
        return native.encoder(arrow_type(nullable(schema)), text)(rows, prefix)

    # The sink knows the columns by their Arrow types, which have no precision of TIME.
    alone = header is None and not has(schema, (TimeType,))
    return Rows(column, schema, to_bytes, text if alone else None)
