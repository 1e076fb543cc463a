"""Formats as functions over Arrow batches in Spark's workers: the types of columns there, and how Spark calls a function."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.format import ERROR

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["arrow_type", "decoded", "evaluated"]


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which Spark's workers take a type; its parts may be null where they may be in Spark.

    Raises:
        ConfigurationError: If it is one that no format over Arrow has.
    """
    import pyarrow as pa

    kind: Any = data_type  # its attributes depend on its name
    name = data_type.typeName()
    match name:
        case "struct":
            return pa.struct([pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in kind.fields])
        case "array":
            return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
        case "map":
            value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
            return pa.map_(arrow_type(kind.keyType), value)
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case "timestamp_ntz":
            return pa.timestamp("us")
    simple = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "char": pa.string(),
        "varchar": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("ns"),
    }
    if name not in simple:
        raise ConfigurationError(
            f"Columns of type {data_type.simpleString()} cannot be read from Avro or Protobuf; take them out"
        )
    return simple[name]


def decoded(function: Callable[[pa.Array], pa.Array], schema: StructType, column: Column) -> Column:
    """A column that Spark's workers decode over Arrow batches.

    Args:
        function: Takes binary and gives a struct of the columns and `ERROR`.
        schema: The columns; any of them may be null in what is decoded.
        column: Binary.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    columns = [StructField(f.name, f.dataType, nullable=True) for f in schema.fields]
    # What Arrow gives has no metadata, and Spark would take a type that has some for another one.
    result = StructType.fromJson(
        json.loads(
            StructType([*columns, StructField(ERROR, StringType())]).json(),
            object_hook=lambda part: part | {"metadata": {}} if "metadata" in part else part,
        )
    )
    # Spark takes Arrow's times as TIME(6) alone.
    returned = StructType.fromJson(json.loads(re.sub(r'"time\(\d\)"', '"time(6)"', result.json())))
    found = evaluated(function, returned, column)
    return found if returned == result else found.cast(result)


def evaluated(function: Callable[[pa.Array], pa.Array], result: DataType, column: Column) -> Column:
    """A column that Spark's workers evaluate over Arrow batches."""
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    # Spark looks at the types; it would not find what their names here mean.
    function.__annotations__ = dict.fromkeys(function.__annotations__, pa.Array)
    found: Column = arrow_udf(function, result)(column)  # type: ignore[call-overload]  # the stubs do not know that
    return found
