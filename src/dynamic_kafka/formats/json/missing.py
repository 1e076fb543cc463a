"""The option `json.fail-on-missing-field`: which field of a schema a JSON object does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from dynamic_kafka.formats.expressions import either, has, let
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.json.lenient import NAMES, PARSER

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["with_missing_field"]


def with_missing_field(row: Column, text: Column, schema: StructType) -> Column:
    """A row that could be read, with an error if its message lacks a field.

    The message is parsed again only if the row has a null, which a missing field is read as.

    Args:
        row: The columns and `ERROR`.
        text: The message.
        schema: The columns.
    """
    suspicious = row[ERROR].isNull() & _may_lack(row, schema)
    return F.when(suspicious, row.withField(ERROR, _missing(text, schema))).otherwise(row)


def _may_lack(column: Column, type_: DataType) -> Column:
    match type_:
        case StructType():
            return either(column[f.name].isNull() | _may_lack(column[f.name], f.dataType) for f in type_.fields)
        case _:
            return F.lit(has(type_, (StructType,)))  # those in arrays and maps are not looked at


def _missing(text: Column, type_: DataType, path: str = "") -> Column:
    """What to say about a field of the type that a JSON text does not have; null if it has all of them.

    A field that is there with null is not missing, and null itself lacks no field, as in Flink.
    """

    def lacking(names: Column) -> Column:
        assert isinstance(type_, StructType)
        nested = (f for f in type_.fields if has(f.dataType, (StructType,)))
        return F.coalesce(
            *(F.when(~F.map_contains_key(names, f.name), f"It has no field '{path}{f.name}'") for f in type_.fields),
            *(_missing(names[f.name], f.dataType, f"{path}{f.name}.") for f in nested),
        )

    match type_:
        case StructType():
            return let(F.from_json(text, NAMES, PARSER), lacking)
        case MapType(valueType=element):
            texts = F.map_values(F.from_json(text, NAMES, PARSER))
        case ArrayType(elementType=element):
            texts = F.from_json(text, ArrayType(StringType()), PARSER)
        case _:
            raise AssertionError(type_)
    found = F.transform(texts, lambda x: _missing(x, element, path))
    return F.get(F.array_compact(found), F.lit(0))
