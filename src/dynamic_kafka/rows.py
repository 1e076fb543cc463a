"""The rows of the source: the columns with their Arrow types.

The columns are those of Spark's own Kafka source, so that existing queries run unchanged, then `cluster`, and on request
`headers` and `leader_epoch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

__all__ = ["COLUMNS", "arrow_schema"]

COLUMNS: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "cluster": pa.string(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    "leader_epoch": pa.int32(),
}
"""All columns, in order. `spark.datasource` declares them again as Spark's types; the reason stands there."""


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of batches with these columns."""
    return pa.schema([pa.field(name, COLUMNS[name]) for name in columns])
