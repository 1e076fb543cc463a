"""The columns `value_row` and `undecoded` on the executors: decoded values, and what is needed of those without a row.

The native kernel decodes the values that it fetches. Those of a history are decoded here, by the kernel's same decoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.formats import ERROR, ROWS, format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.native import Decoder, unused
from dynamic_kafka.rows import COLUMNS, VALUE_ROW
from dynamic_kafka.source.executor.fetcher import Decoding
from dynamic_kafka.spark.columns import UNDECODED, UNDECODED_TYPE

if TYPE_CHECKING:
    from dynamic_kafka.source.executor.tally import Tally

__all__ = ["counted", "decoding_of", "gathered", "of_history"]

_UNDECODED = pa.struct([(name, COLUMNS[name]) for name in UNDECODED_TYPE.names])


def decoding_of(column: StructField) -> Decoding:
    """Return how the values of the column are decoded. Its metadata has it, with the format and its options.

    A value is checked as a whole. Columns that are not in the column's type are not built.
    """
    spec = json.loads(column.metadata["spec"])
    schema = StructType.fromJson(spec.pop("schema"))
    form = format_named(column.metadata["format"])
    row: Any = column.dataType
    used = frozenset((row[ROWS].dataType.elementType["row"].dataType if form.changelog else row).names)
    columns = [field if field.name in used else unused(field) for field in arrow_type(schema)]
    look_up = form.decoder(schema, json.loads(column.metadata["options"])).schemas
    return Decoding(pa.schema(columns), json.dumps(spec), look_up)


def of_history(batches: Iterator[pa.RecordBatch], decoding: Decoding) -> Iterator[pa.RecordBatch]:
    """Decode the values of a history. The kernel decodes only the values that it fetches from Kafka.

    Only values without a row keep their bytes: a value that cannot be decoded needs them for the error, and one that is
    skipped is no tombstone.
    """
    decoder = Decoder(pa.struct(list(decoding.columns)), json.loads(decoding.spec), decoding.look_up)
    for batch in batches:
        values = batch["value"]
        if values.null_count < len(values):
            import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

            rows = decoder.decode(values)
            has_no_row = pc.or_(rows.is_null(), pc.is_valid(pc.struct_field(rows, ERROR)))
            batch = _with(_with(batch, VALUE_ROW, rows), "value", pc.if_else(has_no_row, values, None))  # noqa: PLW2901
        yield batch


def counted(batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and count for the metrics the values that cannot be decoded.

    Args:
        batches: Batches with `VALUE_ROW`, `cluster` and `topic`.
        tally: The tally.
    """
    tally.count_decode_errors({})
    for batch in batches:
        rows = batch[VALUE_ROW]
        errors = rows.field(ERROR)
        if errors.null_count < len(errors):
            import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

            found = batch["topic"].filter(pc.is_valid(pc.struct_field(rows, ERROR))).value_counts().to_pylist()
            cluster = batch["cluster"][0].as_py()
            tally.count_decode_errors({(cluster, topic["values"]): topic["counts"] for topic in found})
        yield batch


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


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place).with_type(column.type), column)
