"""Readers of Debezium's semantic types that are not numbers: texts that are times, decimals with a scale of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.formats.avro.connect import ZONED_TIMESTAMP
from dynamic_kafka.formats.avro.values import Build, Cursor, Read, cast, converter, scan, take, texts

__all__ = ["semantic_reader"]

_LARGEST_SCALE = 76  # of Arrow's decimals
_FURTHER_DIGITS = r"(\.\d{6})\d+"  # Spark has microseconds


def semantic_reader(name: str, target: pa.DataType, path: str) -> Read:
    """Return the reader of a value with a semantic type that `connect.converted` has returned.

    Args:
        name: The semantic type.
        target: The column's type: a timestamp for a `ZonedTimestamp`, which is in UTC, or a decimal.
        path: The field, for reasons.
    """
    return _zoned_timestamp(target, path) if name == ZONED_TIMESTAMP else _decimal(target, path)


def _zoned_timestamp(target: pa.DataType, path: str) -> Read:
    text = scan(("string", {}), path)

    def read(cursor: Cursor) -> Build:
        span = text(cursor)

        def build() -> pa.Array:
            reason = f"{path} is not a time with a zone such as 2024-01-31T12:00:00.123456Z"
            found = cast(texts(span, cursor), pa.string(), cursor, reason)
            cut = pc.replace_substring_regex(found, _FURTHER_DIGITS, r"\1")
            return cast(cut, pa.timestamp("us", "UTC"), cursor, reason).view(target)

        return build

    return read


def _decimal(target: pa.DataType, path: str) -> Read:
    scale_of, digits = scan(("int", {}), path), scan(("bytes", {}), path)

    def read(cursor: Cursor) -> Build:
        scales = scale_of(cursor)
        wrong = np.abs(scales) > _LARGEST_SCALE
        cursor.fail(wrong, f"{path} has a scale of more than {_LARGEST_SCALE} digits")
        start, end = digits(cursor)

        def build() -> pa.Array:
            order, parts = [], []
            for scale in np.unique(scales[~wrong]).tolist():
                chosen = np.flatnonzero(scales == scale)
                typed = ("bytes", {"logicalType": "decimal", "scale": scale})
                convert = converter(typed, typed, target, path)
                parts.append(convert((start[chosen], end[chosen]), cursor.take(chosen)))
                order.append(chosen)
            index = np.full(len(cursor), -1)
            if order:
                index[np.concatenate(order)] = np.arange(sum(map(len, order)))
            return take(pa.concat_arrays([*parts, pa.nulls(0, target)]), index)

        return build

    return read
