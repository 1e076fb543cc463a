"""What precedes a Protobuf message whose schema is in a registry: a byte 0, the schema's id, the message's indexes.

The indexes lead to the message in its file, from the outside to the inside. They are preceded by their number, and all are
in Protobuf's encoding of sint64; a single 0 stands for the list of one index, 0. Source: io.confluent.kafka.schemaregistry.
protobuf.MessageIndexes.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["header_of", "header_size", "message_indexes", "schema_id"]

_INDEXES_AT = 5


def header_size(message: bytes) -> int:
    """How many bytes of a message are its header.

    Raises:
        IndexError: If it has none.
    """
    if message[0] != 0 or message[1] >= 0x80:  # ids are signed in Java, and never negative
        raise IndexError
    if message[_INDEXES_AT] == 0:  # the usual case
        return _INDEXES_AT + 1
    count, at = _sint64(message, _INDEXES_AT)
    if count < 0:
        raise IndexError
    for _ in range(count):
        _, at = _sint64(message, at)
    return at


def schema_id(header: bytes) -> int:
    """The schema's id."""
    return int.from_bytes(header[1:_INDEXES_AT], "big")


def message_indexes(header: bytes) -> list[int]:
    """The indexes that lead to the message."""
    count, at = _sint64(header, _INDEXES_AT)
    indexes: list[int] = []
    for _ in range(count):
        index, at = _sint64(header, at)
        indexes.append(index)
    return indexes or [0]


def header_of(schema_id: int, indexes: Sequence[int]) -> bytes:
    """A header.

    Args:
        schema_id: The schema's id.
        indexes: Those that lead to the message.
    """
    encoded = b"\0" if list(indexes) == [0] else b"".join(map(_encoded, (len(indexes), *indexes)))
    return b"\0" + schema_id.to_bytes(4, "big") + encoded


def _sint64(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise IndexError


def _encoded(number: int) -> bytes:
    """A number that is not negative."""
    rest, encoded = number << 1, bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])
