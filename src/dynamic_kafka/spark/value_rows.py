"""The columns `value_row` and `undecoded` on the executors: decoded values, and what is needed of those without a row.

The native kernel decodes the values that it fetches. Those of a history are decoded here, by the same decoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.formats import ERROR, Decoder, format_named
from dynamic_kafka.formats.arrow import arrow_type, decoded_type
from dynamic_kafka.rows import COLUMNS, VALUE_ROW
from dynamic_kafka.source.executor.fetcher import Decoding
from dynamic_kafka.spark.columns import UNDECODED, UNDECODED_TYPE

if TYPE_CHECKING:
    from dynamic_kafka.observe.reports import UnreadKind
    from dynamic_kafka.source.executor.tally import Tally

__all__ = ["Values", "completed", "counted", "gathered", "projected", "values_of"]

_UNDECODED = pa.struct([(name, COLUMNS[name]) for name in UNDECODED_TYPE.names])


class Values(NamedTuple):
    """How values are decoded.

    Attributes:
        field: The Arrow field of the column `VALUE_ROW` with all columns of the values.
        decoding: What the native kernel does.
        decoder: What decodes the values that the kernel leaves, and those that it does not fetch.
    """

    field: pa.Field
    decoding: Decoding
    decoder: Decoder


def values_of(column: StructField) -> Values:
    """Return how the values of the column are decoded. Its metadata has it, with the format and its options."""
    spec = json.loads(column.metadata["spec"])
    schema = StructType.fromJson(spec.pop("schema"))
    decoding = Decoding(pa.schema(arrow_type(schema)), json.dumps(spec))
    form = format_named(column.metadata["format"])
    field = pa.field(column.name, arrow_type(column.dataType if form.changelog else decoded_type(schema)))
    make = form.decoder
    assert make is not None
    decoder = make(schema, json.loads(column.metadata["options"]))
    return Values(field, decoding._replace(look_up=decoder.schemas), decoder)


def projected(batches: Iterator[pa.RecordBatch], row: pa.StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches with only the fields of `row` in `VALUE_ROW`: each field costs where it is handed over to Spark."""
    for batch in batches:
        rows = batch[VALUE_ROW]
        arrays = [rows.field(field.name) for field in row]
        mask = rows.is_null() if rows.null_count else None
        yield _with(batch, VALUE_ROW, pa.StructArray.from_arrays(arrays, fields=[*row], mask=mask))


def completed(batches: Iterator[pa.RecordBatch], decoder: Decoder) -> Iterator[pa.RecordBatch]:
    """Yield batches with all values decoded. Only values without a row keep their bytes.

    A value that cannot be decoded needs them for the error, and one that is skipped is no tombstone.
    """
    for batch in batches:
        values = batch["value"]
        yield batch if values.null_count == len(values) else _completed(batch, decoder)


def counted(
    batches: Iterator[pa.RecordBatch], tally: Tally, kind: UnreadKind, *, total: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and count for the metrics the values that were not decoded.

    Args:
        batches: Batches with `value`, `VALUE_ROW`, `cluster` and `topic`.
        tally: The tally.
        kind: `undecoded` counts the values that have bytes and no row, `errors` the rows with an error.
        total: True if the kernel leaves no value: then those with an error are the undecoded ones.
    """
    tally.count_unread(kind, {})
    for batch in batches:
        values, rows = batch["value"], batch[VALUE_ROW]
        found = _left(values, rows) if kind == "undecoded" and not total else _failed(rows)
        if found is not None:
            cluster, topics = batch["cluster"][0].as_py(), batch["topic"].filter(found).value_counts().to_pylist()
            tally.count_unread(kind, {(cluster, topic["values"]): topic["counts"] for topic in topics})
        yield batch


def _left(values: pa.Array, rows: pa.Array) -> pa.Array | None:
    """Return which values have bytes and no row; None if no value has bytes. One that is decoded keeps no bytes."""
    if values.null_count == len(values):
        return None
    import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

    return pc.and_(rows.is_null(), pc.fill_null(pc.greater(pc.binary_length(values), 0), False))


def _failed(rows: pa.Array) -> pa.Array | None:
    """Return which rows have an error; None if none has."""
    errors = rows.field(ERROR)
    if errors.null_count == len(errors):
        return None
    import pyarrow.compute as pc

    return pc.is_valid(pc.struct_field(rows, ERROR))


def gathered(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with these columns, of which `UNDECODED` is made of its fields.

    Args:
        batches: Batches with the fields of `UNDECODED`, and all of `columns` but that one.
        columns: The names of the columns to yield, in order.
    """
    for batch in batches:
        arrays = [_undecoded(batch) if name == UNDECODED else batch[name] for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, list(columns))


def _undecoded(batch: pa.RecordBatch) -> pa.Array:
    rows = batch[VALUE_ROW]
    errors = rows.field(ERROR)
    if not rows.null_count and errors.null_count == len(errors):
        return pa.nulls(len(batch), _UNDECODED)
    import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

    is_decoded = pc.and_(rows.is_valid(), pc.is_null(pc.struct_field(rows, ERROR)))
    return pa.StructArray.from_arrays(
        [batch[field.name] for field in _UNDECODED], fields=[*_UNDECODED], mask=is_decoded
    )


def _completed(batch: pa.RecordBatch, decoder: Decoder) -> pa.RecordBatch:
    import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

    values, rows = batch["value"], batch[VALUE_ROW]
    left = np.flatnonzero(values.is_valid())
    decoded = decoder.rows(values.take(pa.array(left)))
    if len(left) == len(batch):
        rows = decoded
    else:
        order = np.arange(len(batch))
        order[left] = np.arange(len(batch), len(batch) + len(left))
        rows = pa.concat_arrays([rows, decoded]).take(pa.array(order))
    has_no_row = pc.or_(rows.is_null(), pc.is_valid(pc.struct_field(rows, ERROR)))
    return _with(_with(batch, VALUE_ROW, rows), "value", pc.if_else(has_no_row, values, None))


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place).with_type(column.type), column)
