"""The time zones in which an ORC file was written.

ORC keeps a timestamp as the time on the writer's clock, and the zone of that clock in the footer of each stripe. Arrow
returns the time on the clock and does not tell the zone, so it is read here: https://orc.apache.org/specification/ORCv1/.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

__all__ = ["writer_zones"]

_TAIL_BYTES = 16 << 10
_UTC = {"UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal", "Greenwich"}
# Fields of ORC's messages, by their numbers.
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_BYTES = 1, 2, 3
_STRIPES, _ZONE = 3, 3
_OFFSET, _INDEX_LENGTH, _DATA_LENGTH, _STRIPE_FOOTER_LENGTH = 1, 2, 3, 4


def writer_zones(file: Any) -> set[str]:
    """Return the zones of the stripes of a file, other than UTC; "" stands for one that is not known.

    Args:
        file: The open file, of pyarrow.

    Raises:
        ValueError: If the file is damaged, or its compression is not known.
    """
    size = file.size()
    file.seek(max(0, size - _TAIL_BYTES))
    tail = bytes(file.read())
    if not tail or tail[-1] >= len(tail):
        raise ValueError("it is no ORC file")
    postscript = dict(_fields(tail[-1 - tail[-1] : -1]))
    codec, block = postscript.get(_COMPRESSION, 0), postscript.get(_BLOCK_BYTES, 256 << 10)
    end = size - 1 - tail[-1]
    footer = _part(file, end - postscript.get(_FOOTER_LENGTH, 0), postscript.get(_FOOTER_LENGTH, 0), codec, block)
    zones = set()
    for number, value in _fields(footer):
        if number == _STRIPES:
            stripe = dict(_fields(value))
            offset = sum(stripe.get(name, 0) for name in (_OFFSET, _INDEX_LENGTH, _DATA_LENGTH))
            of_stripe = dict(_fields(_part(file, offset, stripe.get(_STRIPE_FOOTER_LENGTH, 0), codec, block)))
            zones.add(of_stripe.get(_ZONE, b"").decode())
    return zones - _UTC


def _part(file: Any, offset: int, length: int, codec: int, block_bytes: int) -> bytes:
    """Return a part of the file, without its compression."""
    file.seek(offset)
    data = bytes(file.read(length))
    if not codec:
        return data
    found, at = b"", 0
    while at < len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        chunk = data[at + 3 : at + 3 + (header >> 1)]
        at += 3 + (header >> 1)
        found += chunk if header & 1 else _decompressed(chunk, codec, block_bytes)
    return found


def _decompressed(chunk: bytes, codec: int, block_bytes: int) -> bytes:
    match codec:
        case 1:
            return zlib.decompress(chunk, -zlib.MAX_WBITS)
        case 2:
            return bytes(pa.Codec("snappy").decompress(chunk, _number(chunk, 0)[0]))
        case 4:  # longer than the message by zeros, which are no fields
            return bytes(pa.Codec("lz4_raw").decompress(chunk, block_bytes))
        case 5:
            return bytes(pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read())
    raise ValueError(f"its compression, number {codec} of ORC, is not known")


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers of a message's fields with their values: numbers or bytes."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        if tag == 0:
            return
        match tag & 7:
            case 0:
                value, at = _number(message, at)
                yield tag >> 3, value
            case 2:
                length, at = _number(message, at)
                yield tag >> 3, message[at : at + length]
                at += length
            case 1:
                at += 8
            case 5:
                at += 4
            case kind:
                raise ValueError(f"it is damaged: field of kind {kind}")


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("it is damaged: it ends within a number")
