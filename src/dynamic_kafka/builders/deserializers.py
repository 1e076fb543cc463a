"""From bytes to columns, for the builders.

Formats will live in `dynamic_kafka.formats` and end in the same two shapes:

* a value deserializer turns the column `value` into another column: a Spark column, a SQL expression, or a function from
  column to column;
* a record deserializer turns the source's raw DataFrame into another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = [
    "ArrowDeserializer",
    "KafkaRecordDeserializationSchema",
    "RecordDeserializer",
    "SimpleStringSchema",
    "ValueDeserializer",
]

ValueDeserializer: TypeAlias = "Column | str | Callable[[Column], Column]"
RecordDeserializer: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True)
class SimpleStringSchema:
    """The value as text (PyFlink: SimpleStringSchema).

    Args:
        charset: How the text is encoded.
    """

    charset: str = "UTF-8"

    def __call__(self, value: Column) -> Column:
        """Decode the column."""
        from pyspark.sql import functions as F  # noqa: N812  # the name everybody uses

        return F.decode(value, self.charset)


@dataclass(frozen=True)
class ArrowDeserializer:
    """A Python function over Arrow: it sees a batch of values at once, never row by row.

    Args:
        function: Takes a `pyarrow.BinaryArray` of values (null for a tombstone) and returns a `pyarrow.Array` as long.
        return_type: What it returns, as a Spark type or in Spark's DDL.

    Example:
        >>> import pyarrow.compute as pc
        >>> lengths = ArrowDeserializer(pc.binary_length, "int")
    """

    function: Callable[[Any], Any]
    return_type: DataType | str

    def __call__(self, value: Column) -> Column:
        """Apply the function to the column."""
        import pyarrow as pa
        from pyspark.sql.pandas.functions import arrow_udf

        function = self.function

        def deserialize(values: pa.Array) -> pa.Array:
            return function(values)

        # Spark tells the kinds of Arrow functions apart by their annotations, which the user's may lack.
        deserialize.__annotations__ = {"values": pa.Array, "return": pa.Array}
        make: Callable[..., Any] = arrow_udf
        column: Column = make(deserialize, returnType=self.return_type)(value)
        return column


class KafkaRecordDeserializationSchema:
    """Factories for record deserializers (Flink: KafkaRecordDeserializationSchema)."""

    @staticmethod
    def value_only(deserializer: ValueDeserializer) -> Callable[[DataFrame], DataFrame]:
        """Only the value, deserialized, as the column `value`."""

        def deserialize(raw: DataFrame) -> DataFrame:
            return raw.select(apply(deserializer, raw["value"]).alias("value"))

        return deserialize


def apply(deserializer: ValueDeserializer, value: Column) -> Column:
    """The deserialized column; a ready-made column or expression refers to `value` by itself."""
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812

    if isinstance(deserializer, Column):
        return deserializer
    return F.expr(deserializer) if isinstance(deserializer, str) else deserializer(value)
