"""The columns of the offset document: lists of integers and names as short texts. Pure.

Version 1 packs a column from `_PACK_FROM` entries on. Version 2, for large documents, packs more and tighter:

* Integers: `base:plane:plane...`, the values minus their minimum as planes of bytes, the lowest first. A plane is base64.
  One with few different bytes is deflated first, and marked with `~`. So a column of equal values costs next to nothing.
* Partitions (`Keys`): the number of partitions of each topic and, unless they are 0, 1, 2 and so on, their numbers.
"""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from dynamic_kafka.initializer import KafkaTopicPartition, topic_partition

__all__ = [
    "pack_bytes",
    "pack_ids",
    "pack_ints",
    "pack_keys",
    "pack_names",
    "pack_tightly",
    "unpack_bytes",
    "unpack_ids",
    "unpack_ints",
    "unpack_keys",
    "unpack_names",
]

_PACK_FROM = 128
_PACK_TIGHTLY_FROM = 16
_FEW_BYTES = 32  # a plane with so few different bytes gets shorter by deflating, other planes do not
_ID_CHARS = 11
_UNKNOWN_ID = "-" * _ID_CHARS
_MOST_BYTES = 1 << 28
"""The most bytes of a column: 30 million offsets. A document of a few bytes must not fill the memory."""


def pack_bytes(data: bytes) -> str:
    """Return bytes as a text, deflated."""
    return base64.b64encode(zlib.compress(data, 1)).decode()


def unpack_bytes(packed: str) -> bytes:
    """Return the bytes of `pack_bytes`.

    Raises:
        ValueError: If these are too many, or cut off.
        zlib.error: If they are damaged.
    """
    deflated = zlib.decompressobj()
    data = deflated.decompress(base64.b64decode(packed, validate=True), _MOST_BYTES)
    if not deflated.eof:
        raise ValueError(f"a column is cut off, or has more than {_MOST_BYTES} bytes")
    return data


# --- names and ids ------------------------------------------------------------------------------------------------


def pack_names(names: list[str], *, tightly: bool = False) -> list[str] | str:
    """Return names of topics as a column."""
    # A topic's name cannot contain a comma.
    if len(names) < (_PACK_TIGHTLY_FROM if tightly else _PACK_FROM):
        return names
    return pack_bytes(",".join(names).encode())


def unpack_names(packed: list[str] | str) -> list[str]:
    """Return the names of a column."""
    return packed if isinstance(packed, list) else unpack_bytes(packed).decode().split(",")


def pack_ids(ids: list[str], *, tightly: bool = False) -> list[str] | str:
    """Return topic ids as a column."""
    if len(ids) < (_PACK_TIGHTLY_FROM if tightly else _PACK_FROM):
        return ids
    return "".join([topic_id or _UNKNOWN_ID for topic_id in ids])


def unpack_ids(packed: list[str] | str) -> list[str]:
    """Return the topic ids of a column."""
    if isinstance(packed, list):
        return packed
    ids = [packed[i : i + _ID_CHARS] for i in range(0, len(packed), _ID_CHARS)]
    return ["" if topic_id == _UNKNOWN_ID else topic_id for topic_id in ids]


# --- integers -----------------------------------------------------------------------------------------------------


def pack_ints(values: list[int]) -> list[int] | str:
    """Return a column of version 1, `base:width:bytes`: planes of bytes, without those that are all zero."""
    if len(values) < _PACK_FROM:
        return values
    base, data = _minus_least(values)
    width = max(1, (max(values) - base + 7).bit_length() + 7 >> 3)
    planes = b"".join(data[i::8] for i in range(width))
    return f"{base}:{width}:{base64.b64encode(planes).decode()}"


def pack_tightly(values: list[int]) -> list[int] | str:
    """Return a column of the layout "columns"; the top of the module explains it."""
    if len(values) < _PACK_TIGHTLY_FROM:
        return values
    base, data = _minus_least(values)
    width = max(1, (max(values) - base).bit_length() + 7 >> 3)
    planes = [data[i::8] for i in range(width)]
    return ":".join(
        [
            str(base),
            *(
                "~" + pack_bytes(plane) if len(set(plane)) <= _FEW_BYTES else base64.b64encode(plane).decode()
                for plane in planes
            ),
        ]
    )


def _minus_least(values: list[int]) -> tuple[int, bytes]:
    base = min(values)
    return base, array("Q", [value - base for value in values] if base else values).tobytes()


def unpack_ints(packed: list[int] | str, *, tightly: bool = False) -> list[int]:
    """Return the integers of a column."""
    if isinstance(packed, list):
        return packed
    if tightly:
        base_text, *texts = packed.split(":")
        planes = [
            unpack_bytes(text[1:]) if text.startswith("~") else base64.b64decode(text, validate=True) for text in texts
        ]
    else:
        base_text, width_text, text = packed.split(":")
        width, joined = int(width_text), base64.b64decode(text, validate=True)
        n = len(joined) // width
        planes = [joined[i * n : (i + 1) * n] for i in range(width)]
    base, data = int(base_text), bytearray(8 * len(planes[0]))
    for i, plane in enumerate(planes):
        data[i::8] = plane
    values = array("Q", bytes(data))
    return [value + base for value in values] if base else values.tolist()


# --- partitions ---------------------------------------------------------------------------------------------------


def pack_keys(tps: Sequence[KafkaTopicPartition], topics: Sequence[str]) -> dict[str, Any]:
    """Return the columns for a sorted list of partitions of these topics."""
    numbers: dict[str, list[int]] = {topic: [] for topic in topics}
    for topic, partition in tps:
        numbers[topic].append(partition)
    counts = list(map(len, numbers.values()))
    keys: dict[str, Any] = {"partitions": pack_tightly(counts)}
    if any(of_topic and of_topic[-1] != len(of_topic) - 1 for of_topic in numbers.values()):
        keys["numbers"] = pack_tightly([partition for _, partition in tps])
    return keys


def unpack_keys(keys: Mapping[str, Any], topics: Iterable[str], n: int) -> list[KafkaTopicPartition]:
    """Return the list of `n` partitions; raise ValueError if there are more or fewer."""
    counts = unpack_ints(keys["partitions"], tightly=True)
    if sum(counts) != n or min(counts, default=0) < 0:
        raise ValueError(f"{sum(counts)} partitions with {n} values")
    numbers: Collection[int]
    if "numbers" in keys:
        numbers = unpack_ints(keys["numbers"], tightly=True)
    else:
        numbers = list(chain.from_iterable(map(range, counts)))
    names = [topic for topic, count in zip(topics, counts, strict=True) for _ in range(count)]
    return list(map(topic_partition, zip(names, numbers, strict=True)))
