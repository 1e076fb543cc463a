"""The format `raw`: a message is the value of the table's only column, without any structure.

A null message is a row with null. What is not of the column's size is an error. Source: org.apache.flink.formats.raw.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    VarcharType,
)

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.expressions import check_names, let
from dynamic_kafka.formats.format import ERROR, Format, FormatOptions
from dynamic_kafka.options import Option, Parser, choice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["RAW"]

_BYTES: dict[type[DataType], int] = {
    BooleanType: 1,
    ByteType: 1,
    ShortType: 2,
    IntegerType: 4,
    LongType: 8,
    FloatType: 4,
    DoubleType: 8,
}
_TEXTS = (StringType, CharType, VarcharType)
# Of IEEE 754: how many bits the fraction has, and what is added to the exponent.
_FLOATS: dict[type[DataType], tuple[int, int]] = {FloatType: (23, 127), DoubleType: (52, 1023)}


# Java's names that Python does not know, of charsets that are the same.
_JAVA_NAMES = {
    "windows-31j": "cp932",
    "x-windows-874": "cp874",
    "x-windows-949": "cp949",
    "x-macroman": "mac-roman",
    "x-maccentraleurope": "mac-latin2",
    "x-iso-8859-11": "iso8859-11",
    "x-ibm737": "cp737",
    "ibm00858": "cp858",
}


def _charset(name: str) -> str:
    """Python's name of a charset, which knows most of Java's names too."""
    given = name.strip()
    if not given:
        raise ValueError
    try:
        found = codecs.lookup(_JAVA_NAMES.get(given.lower(), given))
        "".encode(found.name)  # not one of Python's codecs for bytes, such as zlib
    except LookupError:
        raise ValueError from None
    return found.name


_CHARSET = Option(
    "raw.charset", Parser(_charset, "the name of a charset, such as UTF-8"), "UTF-8", doc="The charset of texts."
)
_ENDIANNESS = Option(
    "raw.endianness", choice("big-endian", "little-endian"), "big-endian", doc="The byte order of numbers."
)


def _check(schema: StructType, _options: FormatOptions) -> None:
    if len(schema.fields) != 1:
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)
        raise ConfigurationError(f"The format raw needs exactly one physical column, not [{columns}]")
    check_names(schema)
    (field,) = schema.fields
    if not isinstance(field.dataType, (*_TEXTS, BinaryType, *_BYTES)):
        raise ConfigurationError(
            f"The format raw does not have the type {field.dataType.simpleString()} of column '{field.name}'; expected a "
            "text, bytes, a boolean, a whole number or a floating-point number"
        )


# --- reading ---


def _decode(value: Column, schema: StructType, options: FormatOptions) -> Column:
    (field,) = schema.fields
    size = _BYTES.get(type(field.dataType))
    fits = F.lit(True) if size is None else F.length(value) == size
    found = F.when(fits, _value(value, field.dataType, options)).alias(field.name)
    problem = F.when(~fits, f"not the {size} bytes of the column's type {field.dataType.simpleString()}")
    return F.struct(found, problem.cast(StringType()).alias(ERROR))


def _value(value: Column, type_: DataType, options: FormatOptions) -> Column:
    if isinstance(type_, BinaryType):
        return value
    if isinstance(type_, BooleanType):
        return value != F.lit(b"\0")
    if isinstance(type_, _TEXTS):
        charset = _CHARSET.of(options)
        return value.cast(StringType()) if charset == "utf-8" else _recoded(value, charset, to_text=True)
    size = _BYTES[type(type_)]
    # The digits stand in front, so that the first bit is the sign; then they are moved to where they belong.
    digits = F.rpad(_ordered(F.hex(value), size, options), 16, "0")
    number = F.shiftright(F.conv(digits, 16, -10).cast(LongType()), 64 - 8 * size)
    return let(number, lambda bits: _from_bits(bits, type_)) if type(type_) in _FLOATS else number.cast(type_)


def _from_bits(bits: Column, type_: DataType) -> Column:
    """The number of IEEE 754 that has these bits; only with whole numbers and powers of two, so it is exact."""
    width, bias = _FLOATS[type(type_)]
    fraction = bits.bitwiseAND(F.lit(2**width - 1))
    exponent = F.shiftright(bits, width).bitwiseAND(F.lit(2 * bias + 1))
    leading = F.when(exponent == 0, 0).otherwise(2**width)
    size = (fraction + leading).cast(DoubleType()) * F.pow(F.lit(2.0), F.greatest(exponent, F.lit(1)) - (bias + width))
    special = F.when(fraction == 0, float("inf")).otherwise(float("nan"))
    return (F.when(exponent == 2 * bias + 1, special).otherwise(size) * F.when(bits < 0, -1.0).otherwise(1.0)).cast(
        type_
    )


# --- writing ---


def _encode(row: Column, schema: StructType, options: FormatOptions) -> Column:
    (field,) = schema.fields
    type_ = field.dataType
    value = row[field.name]
    if isinstance(type_, BinaryType):
        return value
    if isinstance(type_, _TEXTS):
        charset = _CHARSET.of(options)
        return value.cast(BinaryType()) if charset == "utf-8" else _recoded(value, charset, to_text=False)
    size = _BYTES[type(type_)]
    number = let(value.cast(DoubleType()), lambda x: _to_bits(x, type_)) if type(type_) in _FLOATS else value
    digits = F.right(F.lpad(F.hex(number.cast(LongType())), 16, "0"), F.lit(2 * size))
    return F.unhex(_ordered(digits, size, options))


def _to_bits(number: Column, type_: DataType) -> Column:
    """The bits that a number has in IEEE 754, as a whole number; exact for the same reason."""
    width, bias = _FLOATS[type(type_)]
    sign_bit = F.shiftleft(F.lit(1).cast(LongType()), 8 * _BYTES[type(type_)] - 1)
    negative = number.cast(StringType()).startswith("-")  # tells -0.0 from 0.0, which are equal
    infinity = (2 * bias + 1) << width

    def of_size(size: Column) -> Column:
        # The logarithm may be off by one near a power of two; subnormal numbers share the least exponent.
        about = F.greatest(F.coalesce(F.floor(F.log2(size)), F.lit(1 - bias)), F.lit(1 - bias))
        less, more = F.pow(F.lit(2.0), about) > size, F.pow(F.lit(2.0), about + 1) <= size
        exponent = F.when(less & (about > 1 - bias), about - 1).when(more, about + 1).otherwise(about)
        fraction = (size / F.pow(F.lit(2.0), exponent) * float(2**width)).cast(LongType())
        return F.shiftleft(exponent + (bias - 1), width) + fraction

    bits = F.when(F.abs(number) == float("inf"), infinity).otherwise(let(F.abs(number), of_size))
    signed = F.when(negative, bits.bitwiseOR(sign_bit)).otherwise(bits)
    return F.when(F.isnan(number), infinity + 2 ** (width - 1)).otherwise(signed)


# --- both ---


def _ordered(digits: Column, size: int, options: FormatOptions) -> Column:
    """Hexadecimal digits of bytes in the order of the option, to or from the order that people write."""
    if _ENDIANNESS.of(options) == "big-endian" or size == 1:
        return digits
    return F.concat(*(F.substring(digits, 2 * i + 1, 2) for i in reversed(range(size))))


def _recoded(column: Column, charset: str, *, to_text: bool) -> Column:
    """Text of another charset than UTF-8, over Arrow batches: Spark has few of them, and raises for malformed bytes."""
    from dynamic_kafka.formats.arrow import evaluated

    def decode(messages: pa.Array) -> pa.Array:
        import pyarrow as pa

        return pa.array([None if m is None else _text(m, charset) for m in messages.to_pylist()], pa.string())

    def encode(texts: pa.Array) -> pa.Array:
        import pyarrow as pa

        return pa.array([None if t is None else _bytes(t, charset) for t in texts.to_pylist()], pa.binary())

    return evaluated(decode, StringType(), column) if to_text else evaluated(encode, BinaryType(), column)


# Java reads these in the order of the byte order mark, without one big-endian; Python then takes the machine's order.
_BYTE_ORDER_MARKS = {"utf-16": (b"\xfe\xff", b"\xff\xfe"), "utf-32": (b"\0\0\xfe\xff", b"\xff\xfe\0\0")}


def _text(message: bytes, charset: str) -> str:
    marks = _BYTE_ORDER_MARKS.get(charset)
    return message.decode(f"{charset}-be" if marks and not message.startswith(marks) else charset, "replace")


def _bytes(text_: str, charset: str) -> bytes:
    if charset in _BYTE_ORDER_MARKS:
        mark = _BYTE_ORDER_MARKS[charset][0] if charset == "utf-16" else b""  # as Java writes them
        return mark + text_.encode(f"{charset}-be")
    return text_.encode(charset, "replace")


RAW = Format("raw", (_CHARSET, _ENDIANNESS), _decode, _encode, _check)
"""Flink's format `raw`."""
