"""Columns of structs become bytes in the sink's tasks, by the native kernel.

`sql.sink_rows` leaves that to the sink where Spark does not need the bytes. So the rows go to Python as Arrow columns, and
Spark writes no text of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from dynamic_kafka.errors import RowError
from dynamic_kafka.native import encoder

__all__ = ["ENCODER", "encoded"]

ENCODER = "encoder"
"""The key in the metadata of a column that says how its rows are encoded (`native/encode/src/spec.rs`)."""

_SLICE_BYTES = 16 * 1024 * 1024


def encoded(batches: Iterator[pa.RecordBatch], specs: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Return the rows with bytes in place of structs.

    Args:
        batches: The rows.
        specs: How the rows of a column are encoded, by the column's name.

    Raises:
        RowError: If the message of a row would be longer than 2 GiB.
    """
    for batch in batches:
        n = batch.num_rows
        size = max(1, min(n, n * _SLICE_BYTES // max(1, batch.nbytes))) if specs else max(1, n)
        for start in range(0, n, size):
            rows = batch.slice(start, size)
            for name, spec in specs.items():
                place = rows.schema.get_field_index(name)
                column = rows.column(place)
                messages, errors = encoder(column.type, spec)(column, b"")
                if errors:
                    raise RowError(errors[0][1], errors[0][2])
                rows = rows.set_column(place, pa.field(name, messages.type), messages)
            yield rows
