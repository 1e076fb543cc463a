"""The header of a message in Confluent's Protobuf: the id of its schema, and the message type of that schema.

A byte 0, the schema's id, and the message indexes, which lead to the message in its file, from the outside to the inside.
Their number and each of them are in Protobuf's encoding of sint64; a single 0 stands for the list of one index, 0. A header
of the record has the same, or a byte 1 and a GUID in place of the byte 0 and the id; see `schema_ids`.

Source: io.confluent.kafka.schemaregistry.protobuf.MessageIndexes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_kafka.formats.schema_ids import GUID_BYTES, ID_BYTES, id_before

__all__ = ["header_of", "header_size", "message_indexes", "varint"]


def header_size(message: bytes) -> int:
    """Return the number of bytes of a message's header.

    Raises:
        IndexError: If the message does not begin with a header.
    """
    if message[0] != 0 or message[1] >= 0x80:  # ids are signed in Java, and never negative
        raise IndexError
    count, at = _sint64(message, ID_BYTES)
    if count < 0:
        raise IndexError
    for _ in range(count):
        _, at = _sint64(message, at)
    return at


def message_indexes(header: bytes) -> list[int]:
    """Return the message indexes."""
    count, at = _sint64(header, GUID_BYTES if header[0] else ID_BYTES)
    indexes: list[int] = []
    for _ in range(count):
        index, at = _sint64(header, at)
        indexes.append(index)
    return indexes or [0]


def header_of(schema_id: int, indexes: Sequence[int]) -> bytes:
    """Return the header with a schema's id and message indexes."""
    encoded = b"\0" if list(indexes) == [0] else b"".join(varint(number << 1) for number in (len(indexes), *indexes))
    return id_before(schema_id) + encoded


def _sint64(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a position, and the position after it."""
    value = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise IndexError


def varint(number: int) -> bytes:
    """Return a number that is not negative in Protobuf's encoding."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
