"""Changes in a format with schemas: a message is decoded as a record, which is Debezium's envelope, and becomes rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dynamic_kafka.formats.changelog.envelopes import DEBEZIUM_RECORD as ENVELOPE
from dynamic_kafka.formats.format import (
    DELETE,
    ERROR,
    INSERT,
    METADATA,
    ROW_KIND,
    ROW_KINDS,
    ROWS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Decode,
)

__all__ = ["decoder"]

# Spark counts microseconds in 64 bits; a time beyond them is null.
_MAX_MS = (2**63 - 1) // 1000


def decoder(records: Decode) -> Decode:
    """Return what decodes messages, by what decodes them to records."""

    def changes(messages: pa.Array, ids: pa.Array | None = None) -> pa.Array:
        return _changes(messages, records(messages, ids))

    return changes


def _changes(messages: pa.Array, records: pa.StructArray) -> pa.StructArray:
    """Return a struct of rows, metadata and `ERROR` for each message; null for one that is null or empty."""
    kinds = pc.struct_field(records, ENVELOPE.kind)
    before, after = (pc.struct_field(records, image) for image in ENVELOPE.images)
    inserts, updates, deletes = (
        _mask(pc.is_in(kinds, pa.array(words))) for words in (ENVELOPE.inserts, [ENVELOPE.update], [ENVELOPE.delete])
    )
    has_before, has_after = _mask(before.is_valid()), _mask(after.is_valid())
    is_message = _mask(pc.and_(records.is_valid(), pc.greater(pc.binary_length(messages), 0)))
    read = is_message & _mask(pc.struct_field(records, ERROR).is_null())
    fine = read & ((inserts & has_after) | (updates & has_before & has_after) | (deletes & has_before))
    updates &= fine
    found = pa.StructArray.from_arrays(
        [_rows(before, after, fine, updates, fine & deletes), _metadata(records), _errors(records, is_message & ~fine)],
        [ROWS, METADATA, ERROR],
    )
    return pc.if_else(pa.array(is_message), found, pa.scalar(None, found.type))


def _mask(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values, False))


def _rows(before: pa.Array, after: pa.Array, fine: np.ndarray, updates: np.ndarray, deletes: np.ndarray) -> pa.Array:
    """Return a list of rows for each message; null for one that cannot be read.

    Args:
        before: The rows before the change.
        after: Those after it.
        fine: Which messages are read.
        updates: Which of them are updates, with two rows.
        deletes: Which of them are deletions.
    """
    ends = np.cumsum(fine.astype(np.int32) + updates, dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    message = np.repeat(np.arange(len(fine)), np.diff(offsets))
    is_second = np.arange(len(message)) > offsets[message]
    is_before = deletes[message] | (updates[message] & ~is_second)
    before_, delete, insert, after_ = map(ROW_KINDS.index, (UPDATE_BEFORE, DELETE, INSERT, UPDATE_AFTER))
    kinds = np.select([deletes[message], ~updates[message], is_second], [delete, insert, after_], before_).astype(
        np.int8
    )
    rows = pa.concat_arrays([before, after]).take(pa.array(np.where(is_before, message, message + len(fine))))
    values = pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(kinds, list(ROW_KINDS)).cast(pa.string()), rows], [ROW_KIND, "row"]
    )
    type_ = pa.list_(pa.field("element", values.type))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=type_, mask=pa.array(~fine))


def _metadata(records: pa.StructArray) -> pa.StructArray:
    found = {}
    for name, metadata in ENVELOPE.metadata.items():
        value = pc.struct_field(records, metadata.field)
        value = value if metadata.key is None else pc.struct_field(value, metadata.key)
        found[name] = _time(value) if metadata.form == "milliseconds" else value
    return pa.StructArray.from_arrays([*found.values()], [*found])


def _time(milliseconds: pa.Array) -> pa.Array:
    """Return times; null for those that Spark does not have."""
    fits = pc.and_(pc.greater_equal(milliseconds, -_MAX_MS), pc.less_equal(milliseconds, _MAX_MS))
    return pc.multiply(pc.if_else(fits, milliseconds, None), 1000).cast(pa.timestamp("us", "UTC"))


def _errors(records: pa.StructArray, wrong: np.ndarray) -> pa.Array:
    """Return why messages cannot be read; null for those that can."""
    texts: list[str | None] = [None] * len(records)
    for i in np.flatnonzero(wrong).tolist():
        error, kind, before, after = (pc.struct_field(records, n)[i] for n in (ERROR, ENVELOPE.kind, *ENVELOPE.images))
        texts[i] = error.as_py() or _problem(kind.as_py(), has_before=before.is_valid, has_after=after.is_valid)
    return pa.array(texts, pa.string())


def _problem(kind: str | None, *, has_before: bool, has_after: bool) -> str:
    if kind is None:
        return f'It does not have the field "{ENVELOPE.kind}" of {ENVELOPE.tool}\'s messages about rows'
    if kind not in (*ENVELOPE.inserts, ENVELOPE.update, ENVELOPE.delete):
        advice = f", which is not about a row; exclude such messages in {ENVELOPE.tool} or with 'format.on-error'"
        hint = f": {ENVELOPE.hints[kind]}" if kind in ENVELOPE.hints else advice
        return f'Unknown "{ENVELOPE.kind}" value "{kind}"{hint}'
    before, after = ENVELOPE.images
    if kind not in ENVELOPE.inserts and not has_before:
        name = "UPDATE" if kind == ENVELOPE.update else "DELETE"
        return f'The "{before}" field of {name} message is null; {ENVELOPE.whole_rows}'
    assert not has_after
    return f'Its "{after}" is null'
