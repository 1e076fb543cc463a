"""A data source with ready-made batches in memory, `format("ready-batches")`: what Spark alone takes to be handed them.

It hands them over as the native reader does: by Spark's Python data source, as Arrow batches of up to 20,000 records, with a
task for each million records.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dynamic_kafka.native import kernel
from dynamic_kafka.rows import arrow_schema
from dynamic_kafka.spark.columns import COLUMN_TYPES

__all__ = ["ReadyBatches"]

_DEFAULTS = [name for name in COLUMN_TYPES if name not in ("headers", "leader_epoch")]
_RECORDS_PER_TASK = 1_000_000


class ReadyBatches(DataSource):
    """The data source. Its options are `records` and `value-bytes`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "ready-batches"

    def schema(self) -> StructType:
        """Return the default columns of our source."""
        schema = StructType()
        for name in _DEFAULTS:
            schema.add(name, COLUMN_TYPES[name])
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _Reader(tuple(schema.names), int(self.options["records"]), int(self.options["value-bytes"]))


class _Reader(DataSourceReader):
    def __init__(self, columns: tuple[str, ...], records: int, value_bytes: int) -> None:
        self._columns, self._records, self._value_bytes = columns, records, value_bytes

    def partitions(self) -> list[InputPartition]:
        tasks = -(-self._records // _RECORDS_PER_TASK)
        ends = [self._records * i // tasks for i in range(tasks + 1)]
        return [InputPartition(end - begin) for begin, end in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batch(self._columns, self._value_bytes)
        for begin in range(0, partition.value, batch.num_rows):
            yield batch.slice(0, partition.value - begin)  # the last one is shorter


@cache  # once in each worker
def _batch(columns: tuple[str, ...], value_bytes: int) -> pa.RecordBatch:
    rows = min(kernel().BATCH_RECORDS, kernel().BATCH_BYTES // value_bytes)
    values = {
        "key": [None] * rows,
        "value": [b"x" * value_bytes] * rows,
        "topic": ["topic"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)] * rows,
        "timestampType": [0] * rows,
        "cluster": ["cluster"] * rows,
    }
    schema = arrow_schema(columns)
    return pa.record_batch([pa.array(values[field.name], field.type) for field in schema], schema=schema)
