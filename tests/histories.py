"""Histories for tests: Parquet files with records of Kafka, as an archive has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dynamic_kafka.rows import COLUMNS

Row = Mapping[str, Any]
_BEGAN_MS = 1_700_000_000_000


def records(
    topic: str, offsets: Iterable[int], *, partition: int = 0, cluster: str = "kafka", begin_ms: int = _BEGAN_MS
) -> list[dict[str, Any]]:
    """Records of a partition, one a millisecond; the value names the offset."""
    return [
        {
            "key": f"k{offset % 7}".encode(),
            "value": f"{topic}-{partition}-{offset}".encode(),
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": (begin_ms + offset) * 1000,
            "timestampType": 0,
            "cluster": cluster,
        }
        for offset in offsets
    ]


def write(path: Path, rows: Iterable[Row], *, types: Mapping[str, pa.DataType] | None = None, **options: Any) -> Path:
    """Write a Parquet file.

    Args:
        path: The file; its folders are made.
        rows: The rows, all with the same columns.
        types: The types of columns that are not those of the source.
        options: As for `pyarrow.parquet.write_table`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    found = list(rows)
    known = {**COLUMNS, **(types or {})}
    names = list(found[0]) if found else ["key", "value", "topic", "partition", "offset", "timestamp", "cluster"]
    schema = pa.schema([(name, known[name]) for name in names])
    pq.write_table(pa.Table.from_pylist(found, schema), path, **options)
    return path
