"""Rows as lines of CSV, byte by byte as Flink writes them.

Jackson's writer, which Flink uses, puts a text in quotes if it has more than 24 characters, or one that may need it: any
character up to the greater one of delimiter and quote in Unicode, so also a blank, and the backslash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    NumericType,
    StringType,
    StructType,
)

from dynamic_kafka.formats.csv.dialect import Dialect, code_point
from dynamic_kafka.formats.expressions import TEMPORAL, decimal_text, let, temporal_text

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["csv_text"]

_LONGEST_CHECKED = 24
_BACKSLASH = "\\"


def csv_text(row: Column, schema: StructType, dialect: Dialect) -> Column:
    """The line of a struct; null for null."""
    null = F.lit(dialect.null or "")
    fields = (F.coalesce(_field(row[f.name], f.dataType, dialect), null) for f in schema.fields)
    return F.when(row.isNotNull(), F.concat_ws(dialect.delimiter, *fields))


def _field(value: Column, type_: DataType, dialect: Dialect) -> Column:
    text = _text(value, type_, dialect)
    raw = isinstance(type_, (NumericType, BooleanType)) or not dialect.quote
    return text if raw else let(text, lambda t: _enclosed(t, dialect))


def _text(value: Column, type_: DataType, dialect: Dialect) -> Column:
    null = dialect.null or ""
    match type_:
        case ArrayType(elementType=element):
            texts = F.transform(value, lambda x: _text(x, element, dialect))
            return F.array_join(texts, dialect.element_delimiter, null)
        case StructType():
            texts = F.array(*(_text(value[f.name], f.dataType, dialect) for f in type_.fields))
            return F.when(value.isNotNull(), F.array_join(texts, dialect.element_delimiter, null))
        case DecimalType():
            return decimal_text(value, plain=not dialect.scientific)
        case BinaryType():
            return F.replace(F.base64(value), F.lit("\r\n"))  # whether it has lines depends on the session
        case _ if isinstance(type_, TEMPORAL):
            return temporal_text(value, type_)
        case _:
            return value.cast(StringType())


def _enclosed(text: Column, dialect: Dialect) -> Column:
    """The text in quotes, if Jackson would put it in quotes."""
    escape, quote = dialect.escape, dialect.quote
    unsafe = rf"[\x{{0}}-{code_point(max(dialect.delimiter, quote))}{code_point(escape or _BACKSLASH)}]"
    # Jackson counts in UTF-16, where a character beyond U+FFFF counts twice.
    long = (F.length(text) > _LONGEST_CHECKED) | (
        (F.octet_length(text) > _LONGEST_CHECKED) & (F.octet_length(F.encode(text, "UTF-16BE")) > 2 * _LONGEST_CHECKED)
    )
    inner = F.replace(text, F.lit(escape), F.lit(escape * 2)) if escape else text
    inner = F.replace(inner, F.lit(quote), F.lit(quote * 2))
    return F.when(long | text.rlike(unsafe), F.concat(F.lit(quote), inner, F.lit(quote))).otherwise(text)
