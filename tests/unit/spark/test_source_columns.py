"""The source's columns, which are declared for Spark and for Arrow."""

from __future__ import annotations

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.rows import COLUMNS, arrow_schema
from dynamic_kafka.spark.columns import COLUMN_TYPES


def test_sparks_columns_are_the_readers() -> None:
    """Names, order and types agree: Spark takes the reader's batches as they are."""
    declared = StructType([StructField(name, data_type) for name, data_type in COLUMN_TYPES.items()])
    assert to_arrow_schema(declared, timezone="UTC").equals(arrow_schema(COLUMNS))
