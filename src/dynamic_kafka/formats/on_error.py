"""Why a message cannot be read, in words.

A decoder puts the reason into the field `ERROR` of a message. `format.on-error` says what happens then: `spark.messages`
applies it to the messages of a topic, and `functions.from_kafka` to those of a column.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from dynamic_kafka.formats.format import ERROR

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COORDINATES", "ON_ERROR_ADVICE", "explained", "reason"]

COORDINATES = ("cluster", "topic", "partition", "offset")
"""Columns of the source that say where a message comes from."""

ON_ERROR_ADVICE = "Set 'format.on-error' to 'skip' or 'dead-letter' to continue without such messages"

_SHOWN_BYTES = 48


def explained(rows: pa.StructArray, messages: pa.Array, subject: str, format_name: str) -> pa.StructArray:
    """Return decoded messages with a whole sentence in `ERROR`.

    Args:
        rows: What the format's decoder returns.
        messages: The messages, binary.
        subject: What cannot be read, as a sentence begins with it.
        format_name: The name of the format.
    """
    import pyarrow as pa

    errors = rows.field(ERROR)
    if errors.null_count == len(errors):
        return rows
    texts = [
        None if error is None else reason(subject, format_name, error, messages[i].as_py() or b"")
        for i, error in enumerate(errors.to_pylist())
    ]
    fields = [pa.array(texts, pa.string()) if field.name == ERROR else rows.field(field.name) for field in rows.type]
    return pa.StructArray.from_arrays(fields, fields=[*rows.type], mask=rows.is_null())


def reason(subject: str, format_name: str, error: str, message: bytes) -> str:
    """Return the sentence that says why a message cannot be read, and how it begins."""
    beginning = message[:_SHOWN_BYTES]
    shown = f"0x{beginning.hex().upper()}"
    with suppress(UnicodeDecodeError):
        message.decode()
        # The last character may be cut. Control characters are escaped, quotes need no escape here.
        shown = json.dumps(beginning.decode(errors="replace"), ensure_ascii=False).replace('\\"', '"')
    return f"{subject} cannot be read as {format_name}: {error}; it begins with {shown}"
