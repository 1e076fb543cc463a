"""Rows as JSON, byte by byte as Flink writes it.

Spark's `to_json` writes most values as Flink does, because both use Jackson. Values that it writes in another way are
converted first (times to texts, intervals to numbers). JSON with decimal numbers is put together here, because only a text
can hold `1E+2`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StructType,
    YearMonthIntervalType,
)

from dynamic_kafka.formats.expressions import INTERVALS, TEMPORAL, decimal_text, has, let, rebuilt, temporal_text

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Style", "json_text"]

_SUPPLEMENTARY = r"([\x{10000}-\x{10FFFF}])"


@dataclass(frozen=True)
class Style:
    """The options for writing JSON.

    Args:
        separator: The text between the date and the time of a timestamp.
        plain_decimals: If true, decimal numbers never have an exponent.
        ignore_nulls: If true, fields that are null are not written.
    """

    separator: str
    plain_decimals: bool
    ignore_nulls: bool

    @property
    def generator(self) -> dict[str, str]:
        """Return the options of Spark's `to_json`."""
        return {"ignoreNullFields": str(self.ignore_nulls).lower()}


def json_text(row: Column, schema: StructType, style: Style) -> Column:
    """Return the JSON text of a struct; null for null."""
    return let(_text(row, schema, style), _escaped)


def _escaped(text: Column) -> Column:
    r"""Escape characters beyond U+FFFF (`\uD83D\uDE00`), as Flink does; Spark writes them as they are."""

    def escape(done: Column, character: Column) -> Column:
        units = F.regexp_replace(F.hex(F.encode(character, "UTF-16BE")), "(.{4})", r"\\u$1")
        return F.replace(done, character, units)

    characters = F.array_distinct(F.regexp_extract_all(text, F.lit(_SUPPLEMENTARY), F.lit(1)))
    ascii_only = F.octet_length(text) == F.char_length(text)
    return F.when(ascii_only, text).otherwise(F.aggregate(characters, text, escape))


def _text(column: Column, type_: DataType, style: Style) -> Column:
    """Return the JSON text of a struct, or of a value that contains a decimal number."""
    match type_:
        case DecimalType():
            return decimal_text(column, plain=style.plain_decimals)
        case StructType() if not has(type_, (DecimalType,)):
            return F.to_json(_writable(column, type_, style), style.generator)
        case StructType():
            members = F.concat_ws(",", *_members(column, type_, style))
            return F.when(column.isNotNull(), F.concat(F.lit("{"), members, F.lit("}")))
        case ArrayType(elementType=element):
            texts = F.transform(column, lambda x: _or_null(_text(x, element, style)))
            return F.concat(F.lit("["), F.array_join(texts, ","), F.lit("]"))
        case MapType(valueType=element):
            texts = F.transform(
                F.map_entries(column),
                lambda e: F.concat(
                    _inner(F.to_json(F.array(e["key"]))), F.lit(":"), _or_null(_text(e["value"], element, style))
                ),
            )
            return F.concat(F.lit("{"), F.array_join(texts, ","), F.lit("}"))
        case _:
            raise AssertionError(type_)


def _members(row: Column, type_: StructType, style: Style) -> Iterator[Column]:
    """Yield the members of an object; null for one that is not written."""
    for special, group in groupby(type_.fields, lambda f: has(f.dataType, (DecimalType,))):
        fields = list(group)
        if special:
            for f in fields:
                text = _text(row[f.name], f.dataType, style)
                yield F.concat(
                    F.lit(json.dumps(f.name, ensure_ascii=False) + ":"), text if style.ignore_nulls else _or_null(text)
                )
        else:
            values = (_writable(row[f.name], f.dataType, style).alias(f.name) for f in fields)
            yield F.nullif(_inner(F.to_json(F.struct(*values), style.generator)), F.lit(""))


def _or_null(text: Column) -> Column:
    return F.coalesce(text, F.lit("null"))


def _inner(text: Column) -> Column:
    """Return a JSON text without its braces or brackets."""
    return let(text, lambda t: F.substring(t, F.lit(2), F.length(t) - 2))


def _interval_number(column: Column, type_: DataType) -> Column:
    if isinstance(type_, YearMonthIntervalType):
        return column.cast(YearMonthIntervalType()).cast(IntegerType())
    seconds = column.cast(DayTimeIntervalType()).cast(DecimalType(20, 6))
    return (seconds * 1000).cast(LongType())


def _writable(column: Column, type_: DataType, style: Style) -> Column:
    """Return a value that `to_json` writes as Flink does."""

    def leaf(value: Column, type_: DataType) -> Column:
        if isinstance(type_, INTERVALS):
            return _interval_number(value, type_)
        return temporal_text(value, type_, style.separator)

    return rebuilt(column, type_, (*TEMPORAL, *INTERVALS), leaf)
