"""The header of a message in Confluent's Protobuf: the id of its schema, and the message type of that schema.

A byte 0, the schema's id, and the message indexes, which lead to the message in its file, from the outside to the inside.
Their number and each of them are in Protobuf's encoding of sint64; a single 0 stands for the list of one index, 0. A header
of the record has the same, or a byte 1 and a GUID in place of the byte 0 and the id; see `schema_ids`.

Source: io.confluent.kafka.schemaregistry.protobuf.MessageIndexes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_kafka.formats.schema_ids import GUID_BYTES, ID_BYTES, id_of_header

__all__ = ["header_of", "header_of_record", "header_size", "message_indexes"]


def header_size(message: bytes) -> int:
    """Return the number of bytes of a message's header.

    Raises:
        IndexError: If the message does not begin with a header.
    """
    if message[0] != 0 or message[1] >= 0x80:  # ids are signed in Java, and never negative
        raise IndexError
    return _end_of_indexes(message, ID_BYTES)


def _end_of_indexes(header: bytes, at: int) -> int:
    """Return the position behind the message indexes, which begin at a position; raise IndexError if there are none."""
    if header[at] == 0:  # the usual case
        return at + 1
    count, at = _sint64(header, at)
    if count < 0:
        raise IndexError
    for _ in range(count):
        _, at = _sint64(header, at)
    return at


def header_of_record(value: bytes) -> bytes:
    """Return the value of a record's header as the header of a message; raise ValueError with the reason if it is none."""
    id_of_header(value)
    try:
        return value[: _end_of_indexes(value, _indexes_at(value))]
    except IndexError:
        shown = value[: 2 * GUID_BYTES].hex().upper()
        raise ValueError(f"its header with a schema id, 0x{shown}, has no message indexes") from None


def _indexes_at(header: bytes) -> int:
    return GUID_BYTES if header[0] else ID_BYTES


def message_indexes(header: bytes) -> list[int]:
    """Return the message indexes."""
    count, at = _sint64(header, _indexes_at(header))
    indexes: list[int] = []
    for _ in range(count):
        index, at = _sint64(header, at)
        indexes.append(index)
    return indexes or [0]


def header_of(schema_id: int, indexes: Sequence[int]) -> bytes:
    """Return the header with a schema's id and message indexes."""
    encoded = b"\0" if list(indexes) == [0] else b"".join(map(_encoded, (len(indexes), *indexes)))
    return b"\0" + schema_id.to_bytes(4, "big") + encoded


def _sint64(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a position, and the position behind it."""
    value = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise IndexError


def _encoded(number: int) -> bytes:
    """Encode a number that is not negative."""
    rest, encoded = number << 1, bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])
