"""The format `raw`: a message is the value of the table's only column, without any structure.

A null message is a row with null. A number of another size than the column's is an error.

Source: org.apache.flink.formats.raw.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from dynamic_kafka.formats.arrow import of_values
from dynamic_kafka.formats.format import ERROR, Decode, Format, FormatOptions, Used
from dynamic_kafka.options import Option, Parser, choice

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["RAW"]

# Numpy's name of each type's form in a message; the digit is the number of bytes.
_NUMBERS: dict[type[DataType], str] = {
    BooleanType: "u1",
    ByteType: "i1",
    ShortType: "i2",
    IntegerType: "i4",
    LongType: "i8",
    FloatType: "f4",
    DoubleType: "f8",
}
_TEXTS = (StringType, CharType, VarcharType)


# Java's names of charsets that Python knows only under other names.
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
    """Return Python's name of a charset; Python knows most of Java's names, too."""
    given = name.strip()
    if not given:
        raise ValueError
    try:
        found = codecs.lookup(_JAVA_NAMES.get(given.lower(), given))
        "".encode(found.name)  # fails for Python's codecs of bytes, such as zlib
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
    (field,) = schema.fields
    if not isinstance(field.dataType, (*_TEXTS, BinaryType, *_NUMBERS)):
        raise ConfigurationError(
            f"The format raw does not support the type {field.dataType.simpleString()} of column '{field.name}'; expected a "
            "text, bytes, a boolean, a whole number or a floating-point number"
        )


# --- reading ---


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    del used  # one column is all
    (field,) = schema.fields
    type_ = field.dataType
    dtype = _dtype(type_, options) if type(type_) in _NUMBERS else None
    charset = None if dtype or isinstance(type_, BinaryType) else _CHARSET.of(options)

    def from_raw(messages: pa.Array) -> pa.Array:
        errors = pa.nulls(len(messages), pa.string())
        values = messages
        if dtype is not None:
            values = _numbers(messages, dtype)
            wrong = pc.and_(messages.is_valid(), values.is_null())
            errors = pc.if_else(wrong, pa.scalar(_wrong_size(type_, int(dtype[-1]))), errors)
        elif charset == "utf-8":
            values = messages.view(pa.string())  # Spark, too, takes bytes that are not UTF-8 as they are
        elif charset is not None:
            values = _texts(messages, charset)
        return pa.StructArray.from_arrays([values, errors], [field.name, ERROR])

    return from_raw


def _wrong_size(type_: DataType, size: int) -> str:
    return f"it does not have the {size} bytes of the type {type_.simpleString()}"


def _numbers(messages: pa.Array, dtype: str) -> pa.Array:
    """Return the numbers of messages, as numpy's type; null for messages of another size."""
    size = int(dtype[-1])
    fits = pc.fill_null(pc.equal(pc.binary_length(messages), size), False)
    fixed = pc.if_else(fits, messages, pa.scalar(bytes(size), pa.binary())).cast(pa.binary(size))
    values = np.ndarray(len(fixed), dtype, fixed.buffers()[1], fixed.offset * size)
    native = values != 0 if dtype.endswith("u1") else values.astype(values.dtype.newbyteorder("="))
    return pa.array(native, mask=~fits.to_numpy(zero_copy_only=False))


# --- writing ---


def _messages_of(row: Column, schema: StructType, options: FormatOptions) -> Column:
    (field,) = schema.fields
    type_ = field.dataType
    value = row[field.name]
    if isinstance(type_, BinaryType):
        return value
    if isinstance(type_, _TEXTS):
        charset = _CHARSET.of(options)
        return value.cast(BinaryType()) if charset == "utf-8" else _recoded(value, charset)
    dtype = _dtype(type_, options)

    def messages(numbers: pa.Array) -> pa.Array:
        return _messages(numbers, dtype)

    return of_values(messages, BinaryType(), value, type_)


def _messages(numbers: pa.Array, dtype: str) -> pa.Array:
    """Return numbers as messages, in the form of numpy's type."""
    if pa.types.is_boolean(numbers.type):
        numbers = numbers.cast(pa.uint8())
    values = numbers.fill_null(0).to_numpy().astype(dtype)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(int(dtype[-1])), len(values), [None, pa.py_buffer(values)])
    return pc.if_else(numbers.is_valid(), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


# --- both ---


def _dtype(type_: DataType, options: FormatOptions) -> str:
    """Return numpy's name of a type in the byte order of the options."""
    return (">" if _ENDIANNESS.of(options) == "big-endian" else "<") + _NUMBERS[type(type_)]


def _recoded(texts: Column, charset: str) -> Column:
    """Encode texts in another charset than UTF-8: Spark knows few of them, and raises for malformed bytes."""

    def encode(texts: pa.Array) -> pa.Array:
        return pa.array([None if t is None else _bytes(t, charset) for t in texts.to_pylist()], pa.binary())

    return of_values(encode, BinaryType(), texts, StringType())


def _texts(messages: pa.Array, charset: str) -> pa.Array:
    return pa.array([None if m is None else _text(m, charset) for m in messages.to_pylist()], pa.string())


# Without a byte order mark, Java reads these as big-endian, and Python in the byte order of the machine.
_BYTE_ORDER_MARKS = {"utf-16": (b"\xfe\xff", b"\xff\xfe"), "utf-32": (b"\0\0\xfe\xff", b"\xff\xfe\0\0")}


def _text(message: bytes, charset: str) -> str:
    marks = _BYTE_ORDER_MARKS.get(charset)
    return message.decode(f"{charset}-be" if marks and not message.startswith(marks) else charset, "replace")


def _bytes(text_: str, charset: str) -> bytes:
    if charset in _BYTE_ORDER_MARKS:
        mark = _BYTE_ORDER_MARKS[charset][0] if charset == "utf-16" else b""  # as Java writes them
        return mark + text_.encode(f"{charset}-be")
    return text_.encode(charset, "replace")


RAW = Format("raw", (_CHARSET, _ENDIANNESS), _decoder, _messages_of, _check)
"""Flink's format `raw`."""
