"""The rows of the source: the columns with their Arrow types.

The columns are those of Spark's own Kafka source, so that existing queries run unchanged, then `cluster`, and on request
`headers` and `leader_epoch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

__all__ = ["COLUMNS", "VALUE_ROW", "arrow_schema"]

COLUMNS: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "cluster": pa.string(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "leader_epoch": pa.int32(),
}
"""All columns, in order. `spark.datasource` declares them again as Spark's types; the reason stands there."""


VALUE_ROW = "value_row"
"""The column with the values that were decoded where they were read, a struct. `value` is null beside a row, and has its
bytes beside a null or an error. `sql.connectors.scan` asks for it; it is no column for users."""


def arrow_schema(columns: Iterable[str], value_row: pa.Field | None = None) -> pa.Schema:
    """Return the schema of batches with these columns. `value_row` is the field `VALUE_ROW`, if it is one of them."""
    return pa.schema([value_row if name == VALUE_ROW else pa.field(name, COLUMNS[name]) for name in columns])
