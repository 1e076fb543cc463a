"""Avro for tests: messages of a schema as the native kernel reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.formats.avro.plan import plan_of
from dynamic_kafka.formats.avro.schemas import AvroSchema

__all__ = ["read"]


def read(
    messages: Sequence[bytes | None] | pa.Array, writer: AvroSchema, schema: AvroSchema, target: pa.StructType
) -> pa.StructArray:
    """The rows of messages of one schema that are read as another one, and their errors."""
    decoder = native.Decoder(target, {"format": "avro", "plan": plan_of(writer, schema, target)})
    found = decoder.decode(messages if isinstance(messages, pa.Array) else pa.array(messages, pa.binary()))
    found.validate(full=True)
    assert len(found) == len(messages)
    return found
