"""Deserializers of the source's builders: from bytes to columns.

There are two kinds:

* a value deserializer turns the column `value` into another column. It is a Spark column, a SQL expression, or a function
  from column to column, such as those of `dynamic_kafka.functions`;
* a record deserializer is a function from the source's raw DataFrame to another DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = [
    "ArrowDeserializer",
    "KafkaRecordDeserializationSchema",
    "RecordDeserializer",
    "SimpleStringSchema",
    "ValueDeserializer",
    "apply",
]

ValueDeserializer: TypeAlias = "Column | str | Callable[[Column], Column]"
RecordDeserializer: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True)
class SimpleStringSchema:
    """The value as text (PyFlink: SimpleStringSchema).

    Args:
        charset: The encoding of the text.
    """

    charset: str = "UTF-8"

    def __call__(self, value: Column) -> Column:
        """Decode the column."""
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        return F.decode(value, self.charset)


@dataclass(frozen=True)
class ArrowDeserializer:
    """A Python function over Arrow, called with a batch of values at once.

    Args:
        function: Takes a `pyarrow.BinaryArray` of values (null for a tombstone) and returns a `pyarrow.Array` of the same
            length.
        return_type: The type of the result, as a Spark type or in Spark's DDL.

    Examples:
        >>> import pyarrow.compute as pc
        >>> lengths = ArrowDeserializer(pc.binary_length, "int")
    """

    function: Callable[[Any], Any]
    return_type: DataType | str

    def __call__(self, value: Column) -> Column:
        """Apply the function to the column."""
        from dynamic_kafka.spark_versions import arrow_udf

        function = self.function

        def deserialize(values: pa.Array) -> pa.Array:  # the user's function may lack the annotations that Spark wants
            return function(values)

        return arrow_udf(deserialize, self.return_type)(value)


class KafkaRecordDeserializationSchema:
    """Factories for record deserializers (Flink: KafkaRecordDeserializationSchema)."""

    @staticmethod
    def value_only(deserializer: ValueDeserializer) -> Callable[[DataFrame], DataFrame]:
        """Return a record deserializer that keeps only the value, deserialized, as the column `value`."""

        def deserialize(raw: DataFrame) -> DataFrame:
            return raw.select(apply(deserializer, raw["value"]).alias("value"))

        return deserialize


def apply(expression: ValueDeserializer, value: Column) -> Column:
    """Return a column made of `value`. A given column or expression refers to it by name."""
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812

    if isinstance(expression, Column):
        return expression
    return F.expr(expression) if isinstance(expression, str) else expression(value)
