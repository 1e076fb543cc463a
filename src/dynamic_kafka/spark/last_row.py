"""The row after the last record of a stream with an end, which takes Spark's watermark to its end.

In Flink, a stream ends with the largest watermark, so all of its windows come. Spark's watermark follows the rows. So
`sql.connectors.scan` asks for the column `LAST_ROW` if the table has an end. That row gets a time after all others, and is
dropped after the watermark. The rules:

1. The row comes in the batch after the last record: `done` and `last row` of its document are the same number.
2. One more batch follows, in which the watermark is at its end: `done` is larger. Only then the query stops.
3. A query that is started again after that, or between the two, gets both batches again.
4. Whatever is to be read after the row would be late: the query ends with an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.spark.columns import LAST_ROW

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["last_row", "with_column"]


def last_row(schema: StructType) -> pa.RecordBatch:
    """Return the row. All of its columns are null, but for `LAST_ROW`."""
    arrays = [
        pa.array([True if column.name == LAST_ROW else None], arrow_type(column.dataType)) for column in schema.fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def with_column(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with these columns. `LAST_ROW`, which the batches lack, is null."""
    for batch in batches:
        arrays = [pa.nulls(len(batch), pa.bool_()) if name == LAST_ROW else batch[name] for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, list(columns))
