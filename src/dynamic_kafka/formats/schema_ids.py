"""The id of a message's schema in Confluent's registry: before the message, or in one of its headers.

Serializers write it before the message: a byte 0 and the id in four bytes. With `HeaderSchemaIdSerializer` they leave the
message alone and add the header `__value_schema_id` (or `__key_schema_id`): a byte 1 and the schema's GUID in 16 bytes. In
Protobuf the message indexes follow in both places. `DualSchemaIdDeserializer`, the default since Confluent Platform 8.1.1,
takes the last such header, and the id before the message if there is no header or it is null. A header may also have a byte
0 and an id. Bytes after the id in a header are ignored. All of that is the same here with `header-or-prefix`. (Before the
message, Confluent's also reads a byte 1 and a GUID, which no serializer writes there. Here it is an error.)

Source: io.confluent.kafka.serializers.schema.id.{SchemaId,DualSchemaIdDeserializer} of Confluent's schema registry 8.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from dynamic_kafka.errors import InvalidOptionError, RegistryError
from dynamic_kafka.options import Option, choice

if TYPE_CHECKING:
    import pyarrow as pa

    from dynamic_kafka import native


__all__ = [
    "GUID_BYTES",
    "ID_BYTES",
    "SchemaId",
    "beginnings",
    "header_values",
    "id_before",
    "id_of",
    "in_headers",
    "location_option",
    "no_id",
    "plans_by_id",
    "refuse_headers",
    "words_without_id",
]

SchemaId = int | UUID
"""An id of one registry, or a GUID, which is the same in all registries."""

ID_BYTES = 5
"""A byte 0 and an id, highest byte first."""
GUID_BYTES = 17
"""A byte 1 and a GUID."""

_PREFIX, _HEADER_OR_PREFIX = "prefix", "header-or-prefix"


def location_option(name: str) -> Option[str]:
    """Return the option that says where messages have the ids of their schemas, of a format's name."""
    return Option(
        f"{name}.schema-id-location",
        choice(_PREFIX, _HEADER_OR_PREFIX),
        _PREFIX,
        doc="Reading: where a message has the id of its schema. `prefix` is before the message. `header-or-prefix` is the "
        "header `__value_schema_id` (of a key `__key_schema_id`), and before the message if it has no such header. Rows are "
        "always written with the id before the message.",
    )


def in_headers(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether messages may have the ids of their schemas in headers; `name` is the format's."""
    location: str = location_option(name).of(options)
    return location == _HEADER_OR_PREFIX


def refuse_headers(name: str, options: Mapping[str, Any]) -> None:
    """Refuse ids in headers where only the bytes of a message are known; `name` is the format's.

    Raises:
        InvalidOptionError: If the options ask for them.
    """
    if in_headers(name, options):
        raise InvalidOptionError(
            f"{name}.schema-id-location",
            _HEADER_OR_PREFIX,
            "prefix here, because a column of keys or values has no headers; read a SQL table to use headers",
        )


def header_values(headers: pa.Array, part: str) -> pa.Array:
    """Return for each message the value of the header with the schema's id; null for a message without it.

    Args:
        headers: The source's column `headers`, as its Arrow type.
        part: `key` or `value`: the part of the message that has the schema.
    """
    import pyarrow as pa

    name = f"__{part}_schema_id"
    found = ([h["value"] for h in of_message or () if h["key"] == name] for of_message in headers.to_pylist())
    return pa.array([values[-1] if values else None for values in found], pa.binary())


def beginnings(messages: pa.Array, headers: pa.Array | None = None) -> pa.Array:
    """Return for each message the bytes with the id of its schema, as `id_of` takes them; null for a null message.

    Args:
        messages: Binary.
        headers: The values of the headers with ids; None if they are not looked at.
    """
    import pyarrow.compute as pc

    before = pc.binary_slice(messages, 0, ID_BYTES)
    return before if headers is None else pc.coalesce(pc.binary_slice(headers, 0, GUID_BYTES), before)


def id_before(schema_id: int) -> bytes:
    """Return what a message begins with, for the id of its schema."""
    return b"\0" + schema_id.to_bytes(ID_BYTES - 1, "big")


def id_of(given: native.SchemaId) -> SchemaId:
    """Return the id that a message or a header begins with, as the kernel and `beginnings` give it.

    Raises:
        RegistryError: If the bytes have no id. No registry has their schema then.
    """
    if isinstance(given, int):
        return given
    if given[:1] == b"\0" and len(given) >= ID_BYTES:
        return int.from_bytes(given[1:ID_BYTES], "big")
    if given[:1] == b"\1" and len(given) >= GUID_BYTES:
        return UUID(bytes=given[1:GUID_BYTES])
    raise RegistryError(
        f"0x{given[:GUID_BYTES].hex().upper()} is not the id of a schema", retriable=False, not_found=True
    )


def plans_by_id(ids: Iterable[native.SchemaId], plan_of: Callable[[SchemaId], str]) -> dict[native.SchemaId, str]:
    """Return what the native kernel has to know of schemas, by their ids.

    An id that the registry does not know is probably that of a damaged message, and an error of its messages alone.

    Args:
        ids: Ids, or the values of headers with ids.
        plan_of: Asks the registry for a schema, and returns its plan as JSON.
    """
    found = {}
    for given in ids:
        try:
            found[given] = plan_of(id_of(given))
        except RegistryError as error:
            if not error.not_found:
                raise
            found[given] = json.dumps({"missing": str(error)})
    return found


def words_without_id(name: str, *, headers: bool) -> Mapping[str, str]:
    """Return, for the native kernel, why a message without an id cannot be read; see `no_id`."""
    short = "it is too short for the magic byte and a schema id"
    foreign = "it does not begin with the magic byte 0 of a schema registry's serializer"
    return {"short": no_id(short, name, headers=headers), "foreign": no_id(foreign, name, headers=headers)}


def no_id(reason: str, name: str, *, headers: bool) -> str:
    """Return why a message without an id cannot be read.

    Args:
        reason: What is wrong with its beginning.
        name: The format's name.
        headers: True if headers with ids are looked at.
    """
    if headers:
        return f"{reason}, and no header has its schema id"
    return (
        f"{reason}; if producers put schema ids into headers, set '{name}.schema-id-location' to '{_HEADER_OR_PREFIX}'"
    )
