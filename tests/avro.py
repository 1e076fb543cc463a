"""Avro for tests: messages of a schema as the native kernel reads them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.formats.avro.plan import plan_of
from dynamic_kafka.formats.avro.schemas import AvroSchema

__all__ = ["message", "read", "record", "written"]


def read(
    messages: Sequence[bytes | None] | pa.Array, writer: AvroSchema, schema: AvroSchema, target: pa.StructType
) -> pa.StructArray:
    """The rows of messages of one schema that are read as another one, and their errors."""
    decoder = native.Decoder(target, {"format": "avro", "plan": plan_of(writer, schema, target)})
    found = decoder.decode(messages if isinstance(messages, pa.Array) else pa.array(messages, pa.binary()))
    found.validate(full=True)
    assert len(found) == len(messages)
    return found


def record(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "Order") -> str:
    """A record's schema: name and type of each field, and a default if there is one."""
    made = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) == 3 else {})} for f in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def written(schema: Any, value: Any) -> bytes:
    """A value as fastavro writes it."""
    made = io.BytesIO()
    fastavro.schemaless_writer(made, schema, value)
    return made.getvalue()


def message(schema_id: int, schema: str, value: Any) -> bytes:
    """A message as Confluent's serializer makes it."""
    return b"\0" + schema_id.to_bytes(4, "big") + written(json.loads(schema), value)
